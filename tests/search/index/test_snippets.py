"""Snippets: the right part of a text, and the right words marked."""

from __future__ import annotations

from indexed_things import TOKENISER

from quorank.search.index import make_snippet, parse_query


def marked(text: str, query: str, *, typing: bool = False) -> tuple[str, list[str]]:
    pieces = make_snippet(text, parse_query(query, typing=typing), TOKENISER)
    return "".join(piece.text for piece in pieces), [piece.text for piece in pieces if piece.marked]


def test_inflected_words_are_marked_as_they_stand() -> None:
    text = "Heating: the HEATED rooms, and heat."
    assert marked(text, "heat") == (text, ["Heating", "HEATED", "heat"])
    assert marked(text, "roo", typing=True) == (text, ["rooms"])
    assert marked(text, "roo") == (text, [])
    assert marked(text, 'name:heat "the rooms"') == (text, ["rooms"])
    assert marked("To be <b>or</b> not", "or not") == ("To be <b>or</b> not", ["or", "not"])
    assert marked("", "heat") == ("", [])


def test_the_part_with_most_different_terms_is_shown() -> None:
    text = " ".join(["heat", *["filler"] * 200, "heat", "and", "rooms", *["filler"] * 200])
    shown, words = marked(text, "heat rooms")
    assert words == ["heat", "rooms"]
    assert shown.startswith("… filler")
    assert shown.endswith("filler …")
    assert len(shown.split()) == 32 + 2
    assert marked(text, "absent")[0].startswith("heat filler")
