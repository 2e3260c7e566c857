"""Query language: operators, dates, and that nothing is an error; snippets: the right part, and the right words marked."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexed_things import TOKENISER

from quorank.search.index import Clause, SearchIndex, SearchQuery, make_snippet, parse_query


def clauses(text: str, *, typing: bool = False) -> list[tuple[str, str, str]]:
    return [(" ".join(c.words), c.kind, c.field) for c in parse_query(text, typing=typing).clauses]


def test_words_phrases_prefixes_and_fields() -> None:
    assert clauses('Plan "annual  Report" title:x name:a-b pre*') == [
        ("plan", "word", "any"), ("annual report", "phrase", "any"), ("x", "word", "title"), ("a", "word", "name"),
        ("b", "word", "name"), ("pre", "prefix", "any"),
    ]  # fmt: skip
    assert clauses('title:"two words" TITLE:one') == [("two words", "phrase", "title"), ("one", "word", "title")]
    assert clauses('"open ended') == [("open", "word", "any"), ("ended", "word", "any")]
    assert clauses("http://a.b/c:d title:") == [(word, "word", "any") for word in ("http", "a", "b", "c", "d", "title")]


def test_the_last_word_goes_on_only_while_it_is_typed() -> None:
    assert clauses("one two", typing=True) == [("one", "word", "any"), ("two", "typed", "any")]
    for text in ("one two ", 'one "two"', "one two,"):
        assert [kind for _, kind, _ in clauses(text, typing=True)] == ["word", "word"]


def test_dates_and_ages() -> None:
    def start(*date: int) -> float:
        return datetime(*date).timestamp()  # type: ignore[arg-type]

    query = parse_query("after:2023 before:2024-05 before:2024-05-07 since:7d", now=start(2024, 1, 8))
    assert (query.after, query.before, query.clauses) == (start(2024, 1, 1), start(2024, 5, 1), ())
    assert parse_query("since:2023-02").after == start(2023, 2, 1)
    for text in ("before:then", "before:2024-13", "after:2024-02-31", "since:9x", "before:9999999", "after:0000"):
        query = parse_query(text)
        assert (query.after, query.before) == (None, None)
        assert query.clauses[0] == Clause((text.partition(":")[0],))


def test_sources_and_types() -> None:
    query = parse_query("source:Mail source:firefox type:.PDF type: source:")
    assert (query.sources, query.types) == (("mail", "firefox"), ("pdf",))
    assert [c.words for c in query.clauses] == [("type",), ("source",)]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory):
    with SearchIndex.open(tmp_path_factory.mktemp("home")) as index:
        yield index


@given(text=st.text() | st.text(alphabet='"*:()^-+{} \0ab\ud800', max_size=30), typing=st.booleans())
def test_nothing_is_an_error(empty: SearchIndex, text: str, typing: bool) -> None:
    query = parse_query(text, typing=typing)
    assert isinstance(query, SearchQuery)
    assert len(empty.find(query)) == 0


def test_endless_queries_are_cut() -> None:
    assert len(parse_query("word " * 100_000).clauses) == 32
    assert len(parse_query(f'"{"word " * 100_000}').clauses) == 32
    assert parse_query("x" * 65).clauses == ()


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
