"""Tokeniser: from text to terms.

A text is brought to Unicode's compatibility form (NFKC) and case-folded. A word is a run of letters, digits and the
marks that belong to them, of any script; everything else divides words, also apostrophes and hyphens. Scripts that
write no spaces give no words to divide: each Han or Hiragana character is a word, while Thai, Lao, Khmer and
Burmese are taken as their runs. Words of more than 64 characters (encoded attachments, mostly) are left out. Then stop
words are left out and the rest is reduced to stems by the Snowball algorithms of PyStemmer, each distinct word once.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import threading
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, get_args

from quorank.errors import BadInput, require_choice
from quorank.text.function_words import FUNCTION_WORDS, Language

Stemming = Literal["none", "porter", Language]
StopWords = Literal["none", Language]
LONGEST = 64  # characters of the longest word

_ENGLISH = """
a an the this that these those such same
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves one ones who whom whose which what whatever whichever whoever
somebody someone something anybody anyone anything nobody nothing everybody everyone everything
am is are was were be been being have has had having do does did doing done can could may might must shall should will
would ought
about above across after against along among amongst around as at before behind below beneath beside besides between
beyond by despite down during except for from in inside into of off on onto out outside over per since through
throughout till to toward towards under until up upon via with within without
and but or nor so yet if then else because although though while whereas whether unless than
again ago all almost already also always any anyhow anyway both each either ever every few further furthermore hence
here how however indeed just less many meanwhile more moreover most much neither never nevertheless no none not now
often once only other others otherwise own perhaps quite rather several some sometimes still there thereby therefore
thus together too very well when whenever where whereby wherein wherever why
s t d m ll re ve don doesn didn isn aren wasn weren hasn haven hadn won wouldn shouldn couldn ain
"""
ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())
"""Function words of English and, since an apostrophe divides a word, the pieces that contractions leave."""
_STOP_WORDS: dict[str, frozenset[str]] = {
    **{language: frozenset(words) for language, words in FUNCTION_WORDS.items()},
    "none": frozenset(),
    "english": ENGLISH_STOP_WORDS,
}
PROBES = (
    "The wings' heating was measured; flies, ponies, generously, universities, happiness, running, re-entry O’Brien's",
    "Straße ﬁne ｗｉｄｅ x² ½ ™ №5 naı̈ve cafe\u0301 co\u00adoperate zero\u200bwidth 20°C µm Å İstanbul ıslak ǅ",
    "والكتاب المكتبات يكتبون في المدارس كتابها ١٢",
    "husene skønnere bøgerne foreningens ikke samarbejdet",
    "huizen lichamelijke opgaven werkzaamheden niet beëindigd",
    "kirjastoissa taloissamme edeltäjänsä eivät kaupungeissa",
    "nationalement continuellement mangeaient l'eau chevaux n’était",
    "Häuser Hauses aufeinanderfolgend Verbindungen nicht größte",
    "könyvtárakban megkelkáposztásítottalanítottátok házaink nem",
    "abbandonata pronunciamento città dell'università propaganda",
    "husene gjenreisning nødvendigheten samarbeidet ikke",
    "quilométricas boníssimos não coração universidades",
    "bibliotecile și şi frumoasele universităților copiilor",
    "библиотеками важнейшие не красивее её ёлка работающий",
    "bibliotecas cheques torácicas no universidades corazón",
    "biblioteken jaktkarlarne inte skönhet böckerna",
    "kitaplıklarımızdan evlerinde için çekoslovakyalılaştıramadıklarımızdan",
    "ΑΘΗΝΑΣ λόγος ΐ हिन्दी में ภาษาไทย 漢字かな カタカナ 한국어 \u1112\u1161\u11ab עברית դպրոց",
    f"{'x' * 64} {'y' * 65} snake_case kebab-case a.b@c.org 3.14 1,000",
)
"""Texts of a fingerprint: inflected words of each language, and signs that versions of Unicode might treat otherwise."""

_REMEMBERED = 1 << 20  # distinct words whose terms are kept; then the memory is cleared

_LOWERED = bytes(i if i > 127 else ord(chr(i).lower()) if chr(i).isalnum() else 32 for i in range(256))
_ASCII = bytes(range(128))
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")  # hints for hyphenation and joining
_JAMO = re.compile("[\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]")
_FEW = 24  # characters that are replaced one after the other
_ALONE = re.compile(r"([\u3041-\u3096\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


@dataclass(frozen=True)
class Tokeniser:
    """Rule that turns a document or a query into terms; all parties of a federation must use the same."""

    kind: ClassVar[str] = "words"

    stop_words: StopWords = "english"  # language whose function words are left out
    stemming: Stemming = "none"  # language by whose rules words are stemmed

    def __post_init__(self) -> None:
        require_choice("stop_words", self.stop_words, get_args(StopWords))
        require_choice("stemming", self.stemming, get_args(Stemming))

    @classmethod
    def for_language(cls, language: Language) -> Tokeniser:
        """Return the recommended tokeniser of a language: without its stop words, with its Snowball stemmer."""
        require_choice("language", language, get_args(Language))
        return cls(language, language)

    def fingerprint(self) -> str:
        """Return sixteen hexadecimal digits of a digest over the tokeniser's fields and its terms of probe words.

        Machines with other versions of Unicode or of PyStemmer have the same one as long as they make the same terms of
        these words, which are of scripts and languages in wide use.
        """
        made = [self.stop_words, self.stemming, *(",".join(self.tokenise(probe)) for probe in PROBES)]
        return hashlib.sha256("\n".join([self.kind, *made]).encode()).hexdigest()[:16]

    def tokenise(self, text: str) -> list[str]:
        """Return the terms of a string in their order, with repetitions."""
        terms = _terms(self)
        return [term for term in map(terms.__getitem__, normalised_words(text).decode().split()) if term]

    def terms(self, words: list[str]) -> list[str]:
        """Return the term of each word as `normalised_words` gives it; empty for a word that is left out."""
        return list(map(_terms(self).__getitem__, words))


def normalised_words(text: str) -> bytes:
    """Return the words of a string in UTF-8, normalised and case-folded, separated by spaces.

    Words are divided before and after normalisation: a trade mark sign is no "tm".
    """
    if text.isascii():
        return text.encode().translate(_LOWERED)
    encoded = text.encode(errors="replace")  # a lone surrogate, which no text file can hold, becomes "?"
    text = encoded.decode()
    changed = {}
    for character in set(encoded.translate(None, _ASCII).decode()):
        instead = _instead(character)
        if instead is None:
            return _normalised_whole(text)
        if instead != character:
            changed[character] = instead
    if len(changed) > _FEW:
        return _normalised_whole(text)
    for character, instead in changed.items():
        text = text.replace(character, instead)
    return text.encode().translate(_LOWERED)


def _normalised_whole(text: str) -> bytes:
    """Compute `normalised_words` for a string whose characters cannot be folded one by one."""
    text = _divided(_INVISIBLE.sub("", text))
    text = _divided(_folded(text))
    return _ALONE.sub(r" \1 ", text).encode().translate(_LOWERED)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _divided(text: str) -> str:
    return "".join([character if _is_of_word(character) else " " for character in text])


@cache
def _instead(character: str) -> str | None:
    """Return the replacement of a character; None where it depends on the neighbours (marks, Hangul letters)."""
    if _INVISIBLE.match(character):
        return ""
    instead = _divided(_folded(character)) if _is_of_word(character) else " "
    joining = any(unicodedata.category(c).startswith("M") or _JAMO.match(c) for c in (character, *instead))
    return None if joining else _ALONE.sub(r" \1 ", instead)


@cache
def _is_of_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


class _Terms(dict[str, str]):
    """Cache of word → term, filled on first sight."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        super().__init__()
        self.left_out = _STOP_WORDS[tokeniser.stop_words]
        self.stemmer = None if tokeniser.stemming == "none" else _stemmer(tokeniser.stemming)
        self.lock = threading.Lock()  # a stemmer works on one word at a time

    def __missing__(self, word: str) -> str:
        with self.lock:
            if len(self) >= _REMEMBERED:
                self.clear()
            if word in self.left_out or len(word) > LONGEST:
                term = ""
            else:
                term = word if self.stemmer is None else self.stemmer.stemWord(word)
            self[word] = term
        return term


_terms = cache(_Terms)


def _stemmer(language: str) -> Any:
    try:
        library = importlib.import_module("Stemmer")
    except ImportError:
        remedy = 'install it (pip install PyStemmer), or use stemming = "none"'
        sentence = f"{language!r} needs PyStemmer, which is not installed; {remedy}"
        raise BadInput("package.missing", sentence, "stemming") from None
    return library.Stemmer(language, 0)  # 0: without its cache, since `_Terms` is one
