"""Words that say nothing about what a text is about.

The English list holds the function words of the language and, because an apostrophe divides a word, the pieces that
contractions leave ("don't" becomes "don" and "t").
"""

from __future__ import annotations

_ARTICLES_AND_POINTERS = "a an the this that these those such same"
_PRONOUNS = (
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers "
    "herself it its itself they them their theirs themselves one ones who whom whose which what whatever whichever "
    "whoever somebody someone something anybody anyone anything nobody nothing everybody everyone everything"
)
_VERBS = (
    "am is are was were be been being have has had having do does did doing done can could may might must shall "
    "should will would ought"
)
_PREPOSITIONS = (
    "about above across after against along among amongst around as at before behind below beneath beside besides "
    "between beyond by despite down during except for from in inside into of off on onto out outside over per since "
    "through throughout till to toward towards under until up upon via with within without"
)
_JOINING = "and but or nor so yet if then else because although though while whereas whether unless than"
_ADVERBS = (
    "again ago all almost already also always any anyhow anyway both each either ever every few further furthermore "
    "hence here how however indeed just less many meanwhile more moreover most much neither never nevertheless no "
    "none not now often once only other others otherwise own perhaps quite rather several some sometimes still "
    "there thereby therefore thus together too very well when whenever where whereby wherein wherever why"
)
_PIECES = "s t d m ll re ve don doesn didn isn aren wasn weren hasn haven hadn won wouldn shouldn couldn ain"

ENGLISH = frozenset(
    " ".join((_ARTICLES_AND_POINTERS, _PRONOUNS, _VERBS, _PREPOSITIONS, _JOINING, _ADVERBS, _PIECES)).split()
)
