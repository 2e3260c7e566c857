"""Function words and the language that they tell, on sentences written for these tests."""

from __future__ import annotations

import re
import time
from typing import get_args

import pytest

from quorank.text import Tokeniser
from quorank.text import tokens as tokens_module
from quorank.text.function_words import FUNCTION_WORDS, Language
from quorank.text.languages import MOST_TEXTS, detect_language
from quorank.text.tokens import Stemming, StopWords

_TEXTS = """
arabic: ذهب الرجل إلى السوق في الصباح مع ابنه، ثم عاد إلى البيت بعد الظهر. قال له إن هذا اليوم كان من أجمل الأيام التي
    مرت على المدينة، وإن كل ما رآه في الطريق لا يمكن أن ينسى.
danish: Bogen ligger på bordet, og jeg har ikke læst den endnu. Min søster sagde, at den handler om en mand, der
    rejste fra byen efter krigen, men han blev hurtigt træt af det og kom hjem til sig selv igen.
dutch: De kinderen liepen langs het water en zagen dat er geen boot meer was. Het is niet de eerste keer dat een van
    hen zoiets met eigen ogen heeft gezien, maar deze dag wordt door niemand vergeten.
english: The committee met in the old library to discuss what had been learned from the harvest. It was clear that the
    farmers would not agree to a plan which left them without the water that they needed.
finnish: Kaupungin kirjasto oli suljettu, mutta hän tiesi että ovi ei ole lukossa. Se on vanha talo, joka on ollut
    siellä kauan, ja sen ikkunat ovat pieniä kuin laivassa. Hän tuli sisään kun muut olivat jo lähteneet.
french: Le jardinier qui travaille dans le parc ne se plaint pas de la pluie, mais il préfère les matins d'été. Cette
    année, les arbres ont plus de feuilles que par le passé, et on les voit de la rue.
german: Der Zug nach Norden hat auch heute Verspätung, und die Reisenden stehen mit ihren Koffern auf dem Bahnsteig.
    Sie wissen nicht, ob er noch kommt, aber eine von ihnen hat sich schon ein Buch aus der Tasche geholt.
hungarian: A fiú nem tudta, hogy az ajtó nyitva van, és csak akkor ment be, amikor már mindenki elaludt. Azt mondta,
    hogy ez egy olyan ház, amely még a háború után épült, de senki sem lakik benne, vagy csak ritkán.
italian: La nonna non vuole che i bambini vadano al mare da soli, perché il vento è più forte nel pomeriggio. Gli
    ombrelloni della spiaggia sono chiusi, ma anche oggi si vede una barca con le vele bianche.
norwegian: Boken ligger på bordet, og jeg har ikke lest den ennå. Søsteren min sa at den handler om en mann som reiste
    fra byen etter krigen, men han ble fort lei av det og kom hjem til seg selv igjen, noe hun bare lo av.
portuguese: O padeiro da rua não abre aos domingos, mas ele deixa pão na porta para os vizinhos que não podem sair.
    Uma vez por ano faz também bolos com laranja, e as crianças do bairro são as primeiras a chegar.
romanian: Satul este mic și liniștit, iar oamenii care locuiesc în el nu pleacă decât pentru târg. După ploaie, drumul
    din vale se umple cu apă și copiii se joacă pe mal până seara, fără să le fie frică.
russian: Он не знал, что поезд уже ушёл, и ждал на платформе до вечера. Когда стало темно, к нему подошёл старик и
    сказал, что завтра будет ещё один, но из этого города он идёт только по субботам.
spanish: El panadero de la calle no abre los domingos, pero deja el pan en la puerta para los vecinos que no pueden
    salir. Una vez al año hace también tortas con naranja, y los niños del barrio son los primeros en llegar.
swedish: Boken ligger på bordet, och jag har inte läst den än. Min syster sade att den handlar om en man som reste
    från staden efter kriget, men han blev snart trött på det och kom hem till sig själv när det var vinter.
turkish: Çocuk bahçede bir kedi gördü ve onun için mutfaktan süt getirdi. Bu kedi daha önce de gelmişti ama o kadar aç
    değildi. Annesi çok iyi bir şey yaptığını söyledi, sonra kapıyı kapattı ve diğer işine döndü.
"""
SENTENCES = dict(re.findall(r"^(\w+): (.*(?:\n    .*)*)", _TEXTS, re.MULTILINE))
CODE = """
def read(path, mode="r", limit=None):
    with open(path, mode) as file:
        for number, line in enumerate(file):
            if limit is not None and number > limit:
                break
            yield line.strip().split(",") if "," in line else [line]
    for (int i = 0; i < n; i++) { if (a[i] == e && o != d) return a + b; else do_it(s, t, l); }
    SELECT a, b FROM table WHERE a IN (1, 2) AND b IS NOT NULL ORDER BY a; while not done: total += x * y
"""
NUMBERS = " ".join(f"{n * 17 % 1000} {n / 7:.3f}" for n in range(200))
CHINESE = "今天天气很好，我们一起去公园散步。他说这本书是关于历史的，但是我还没有看完。" * 5


@pytest.mark.parametrize("language", get_args(Language))
def test_each_language_is_told_from_a_few_sentences(language) -> None:
    found = detect_language([SENTENCES[language]])
    assert found.language == language, found
    assert found.candidates[0][1] >= 0.1
    assert language in str(found)


@pytest.mark.parametrize("text", [CODE, NUMBERS, CHINESE, "", "the of and to", "Müller Meier Schmidt Schulze " * 20])
def test_what_is_no_text_of_a_known_language_has_none(text) -> None:
    found = detect_language([text])
    assert found.language is None, found
    assert "unknown" in str(found)


def test_neighbours_in_one_text_are_reported_as_unsure() -> None:
    """Half of it Danish and half of it Norwegian: both candidates are named."""
    found = detect_language([SENTENCES["danish"], SENTENCES["norwegian"]])
    assert found.language is None
    assert {language for language, _ in found.candidates} == {"danish", "norwegian"}


def test_a_sample_is_bounded_and_spread_over_the_texts() -> None:
    texts = [SENTENCES["russian"]] * 90_000 + [SENTENCES["french"]] * 110_000
    begun = time.process_time()
    found = detect_language(texts)
    assert time.process_time() - begun < 5
    assert found.language == "french" and found.candidates[1][0] == "russian"
    assert found.words < MOST_TEXTS * 60
    assert detect_language(["x " * 10_000_000]).words == 1000


@pytest.mark.parametrize("language", get_args(Language))
def test_function_words_are_words_as_the_tokeniser_gives_them(language) -> None:
    words, plain = FUNCTION_WORDS[language], Tokeniser("none")
    assert 20 <= len(words) <= 60 and len(set(words)) == len(words)
    assert [plain.tokenise(word) for word in words] == [[word] for word in words]
    tokeniser = Tokeniser.for_language(language)
    assert (tokeniser.stop_words, tokeniser.stemming) == (language, language)
    assert tokeniser.tokenise(" ".join(words)) == []
    assert 0 < len(tokeniser.tokenise(SENTENCES[language])) < len(plain.tokenise(SENTENCES[language]))


def test_different_tokenisers_have_different_fingerprints() -> None:
    made = [Tokeniser(stop_words, stemming) for stop_words in get_args(StopWords) for stemming in get_args(Stemming)]
    prints = {tokeniser.fingerprint() for tokeniser in made}
    assert len(prints) == len(made) == 17 * 18
    assert all(len(found) == 16 and int(found, 16) >= 0 for found in prints)
    assert Tokeniser().fingerprint() == Tokeniser().fingerprint()


@pytest.mark.parametrize("language", ["english", "turkish"])
def test_a_stemmer_that_acts_otherwise_has_another_fingerprint(monkeypatch, language) -> None:
    """As another version of PyStemmer: whatever the language, some probe word shows it."""
    before = Tokeniser.for_language(language).fingerprint()
    real = tokens_module._stemmer

    class Other:
        def stemWord(self, word: str) -> str:
            found = str(real(language).stemWord(word))
            return word if found != word else found

    tokens_module._terms.cache_clear()
    monkeypatch.setattr(tokens_module, "_stemmer", lambda _: Other())
    assert Tokeniser.for_language(language).fingerprint() != before
    tokens_module._terms.cache_clear()
