"""The tokeniser: what is a word, in any script, and what becomes of it."""

from __future__ import annotations

import builtins
import importlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.text import Tokeniser
from quorank.text import tokens as module
from quorank.text.tokens import LONGEST, normalised_words

ALL = Tokeniser(stop_words="none")
# letters with marks, Hangul letters, ligatures, signs, scripts without spaces, and what has no place in a text
ODD = "aZ9 _-'’\u00ad\u200bäÄßéé´™½²ﬁŉΐΆςκАяİıाक์निकि가가かカ漢字ǅ\U0001d400\U00020000\ud800…—\u0344\u00b5K\u212b"


def plain_words(text: str) -> list[str]:
    """The definition, character by character: divide, normalise and fold, divide again."""

    def divided(piece: str) -> str:
        return "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in piece)

    text = "".join(c for c in text if c not in "\u00ad\u200b\u200c\u200d\u2060\ufeff")
    text = divided(text)
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    out = []
    for character in divided(text):
        code = ord(character)
        alone = 0x3041 <= code <= 0x3096 or 0x3400 <= code <= 0x4DBF or 0x4E00 <= code <= 0x9FFF
        alone = alone or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
        out.append(f" {character} " if alone else character)
    return "".join(out).split()


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("Boundary-layer control, 1958.", ["boundary", "layer", "control", "1958"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("ﬁne ｗｉｄｅ x²", ["fine", "wide", "x2"]),
        ("caf\u00e9 cafe\u0301", ["caf\u00e9", "caf\u00e9"]),
        ("don't O’Brien snake_case", ["don", "t", "o", "brien", "snake", "case"]),
        ("co\u00adoperate zero\u200bwidth", ["cooperate", "zerowidth"]),
        ("Product™ 20°C β-carotene", ["product", "20", "c", "β", "carotene"]),
        ("Москва и ΑΘΗΝΑΣ", ["москва", "и", "αθηνασ"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("漢字かな カタカナ", ["漢", "字", "か", "な", "カタカナ"]),
        ("한국어 문서", ["한국어", "문서"]),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", ["한국"]),
        ("سلام دنیا ١٢", ["سلام", "دنیا", "١٢"]),
    ],
)
def test_words_of_many_scripts(text, terms) -> None:
    assert ALL.tokenise(text) == terms


@given(st.text(st.sampled_from(ODD), max_size=30))
def test_odd_characters_follow_the_definition(text) -> None:
    assert normalised_words(text).decode().split() == plain_words(text.replace("\ud800", " "))


@given(st.text(max_size=60))
def test_any_text_follows_the_definition(text) -> None:
    assert normalised_words(text).decode().split() == plain_words(text)


@given(st.text(max_size=60))
def test_terms_are_their_own_terms(text) -> None:
    once = ALL.tokenise(text)
    assert ALL.tokenise(" ".join(once)) == once


def test_stop_words_are_left_out_before_stemming() -> None:
    text = "The wings were heating, and it's being measured."
    assert Tokeniser().tokenise(text) == ["wings", "heating", "measured"]
    assert Tokeniser(stemming="english").tokenise(text) == ["wing", "heat", "measur"]
    assert Tokeniser("none", "english").tokenise(text)[0] == "the"


def test_words_too_long_are_left_out() -> None:
    assert ALL.tokenise(f"{'x' * LONGEST} {'y' * (LONGEST + 1)} z") == ["x" * LONGEST, "z"]


def test_the_memory_of_terms_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 10)
    module._terms.cache_clear()
    assert ALL.tokenise(" ".join(f"w{i}" for i in range(95))) == [f"w{i}" for i in range(95)]
    assert len(module._terms(ALL)) <= 10


def test_without_the_library_stemming_says_what_to_install(monkeypatch) -> None:
    real = importlib.import_module

    def refuse(name, *rest):
        if name == "Stemmer":
            raise builtins.ImportError(name)
        return real(name, *rest)

    module._terms.cache_clear()
    monkeypatch.setattr(importlib, "import_module", refuse)
    with refused("package.missing", "stemming"):
        Tokeniser(stemming="english").tokenise("wings")
    assert Tokeniser().tokenise("wings") == ["wings"]
