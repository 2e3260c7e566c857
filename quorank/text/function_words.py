"""Function words of sixteen languages, the most frequent first: stop words, and evidence for detecting a language.

Words have the form that the tokeniser gives them: case-folded, and divided at apostrophes (French `l'eau` is `l` and
`eau`). Older spellings in use are listed with newer ones (Romanian with cedillas, Arabic without hamza).
"""

from __future__ import annotations

import re
from typing import Literal, cast

Language = Literal[
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "hungarian", "italian", "norwegian",
    "portuguese", "romanian", "russian", "spanish", "swedish", "turkish",
]  # fmt: skip

_LISTS = """
arabic: في من على إلى أن عن ما لا التي الذي هذا هذه مع كان كانت هو هي إن لم قد كل بعد ذلك بين أو ثم حتى كما عند لن له
    بها به لها منه فيه فيها غير أي وفي ومن الى ان او
danish: og i at det er en til af på for der den de med som ikke et har var jeg han sig men om fra vi kan være blev
    efter eller så også hun ved nu skal hvad mellem noget kun end
dutch: de het een van en in is dat op te zijn met voor niet die aan er om ook als maar dan door bij nog uit naar hij
    ik wordt werd over zij heeft hebben deze worden geen ze wat
english: the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
    which you were her all she there would their we him been has its these can when who will more no if out
finnish: ja on ei että se oli ovat mutta kun hän myös joka niin kuin tai sen jos vain mukaan jo ole hänen kanssa sekä
    voi siitä tämä jotka ne mitä olivat minä jossa sitä ollut vielä koska
french: de la le les et des en un une du est que qui dans pour pas il ce sur au par plus ne se avec sont mais ou à son
    cette aux elle nous qu l d c s ont être je
german: der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat
    dass sie nach wird bei einer um am sind noch wie einem
hungarian: a az és hogy nem is egy van ez de meg csak már volt mint el még ha vagy azt ki minden lehet kell sem majd
    fel ezt akkor voltak amely itt olyan pedig után szerint között
italian: di e che la il in un per non è una del le si con i da della sono lo ma come al gli dei nel ha più alla anche
    delle questo l su era se o dell nella
norwegian: og i det er en til av på for at som de den med ikke et har var jeg han seg men om fra vi kan være ble etter
    eller så også hun ved nå skal hva mellom noe bare enn opp
portuguese: de a o que e do da em um para não com uma os no se na por mais as dos como mas ao ele das à seu sua ou
    quando foi é são também pelo pela muito já
romanian: de și în a la cu nu o pe că din este un care pentru mai sunt se ce au fi lui prin dar sau după fost ale al
    era cea lor ei până acest această fără şi aceasta
russian: и в не на что он с как это я по но они к у из за то все так мы от было для же его о бы вы только был быть или
    если уже когда ее её
spanish: de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha me si sin
    sobre este ya entre cuando muy también fue
swedish: och i att det som en på är av för med till den har de inte om ett han men var jag från vi så kan när nu eller
    också där efter hade sig under då skulle mycket vad mellan
turkish: ve bir bu da de için ile çok olarak daha olan gibi en ne ama kadar sonra o var değil ya her ki mi onun şey
    ben diye veya ise hem göre tarafından olduğu ancak bunun
"""
_ENTRY = re.compile(r"^(\w+):(.*(?:\n    .*)*)", re.MULTILINE)

FUNCTION_WORDS: dict[Language, tuple[str, ...]] = {
    cast("Language", language): tuple(words.split()) for language, words in _ENTRY.findall(_LISTS)
}
"""Language → its function words, the most frequent first."""
