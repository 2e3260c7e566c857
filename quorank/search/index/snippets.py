"""Snippet of a document: the part of its text with most terms of a query, with the matching words marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from quorank.search.index.query import SearchQuery
from quorank.text.tokens import LONGEST, Tokeniser, normalised_words

MOST_CHARACTERS = 200_000  # searched characters of a document
MOST_MATCHES = 2000  # matches at which a snippet may begin
WORDS = 32  # length of a snippet, words
_BEFORE = 6  # words of a snippet before the first match
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SnippetPiece:
    """Piece of a snippet; `marked` for a word of the query."""

    text: str
    marked: bool = False


def make_snippet(text: str, query: SearchQuery, tokeniser: Tokeniser) -> tuple[SnippetPiece, ...]:
    """Return the part of a string with most distinct terms of the query; its beginning without any."""
    text, match = text[:MOST_CHARACTERS], _matcher(query, tokeniser)
    places: list[tuple[int, int]] = []
    matches: list[tuple[int, str]] = []
    for word in _WORD.finditer(text):
        term = match(word[0])
        if term is not None:
            matches.append((len(places), term))
        places.append(word.span())
    if not places:
        return ()
    start = max(_best_window(matches) - _BEFORE, 0) if matches else 0
    end = min(start + WORDS, len(places))
    marked = {place for place, _ in matches}
    return tuple(_pieces(text, places, start, end, marked))


def _best_window(matches: list[tuple[int, str]]) -> int:
    """Return the first match of the snippet with most distinct terms; the earliest of equals."""
    different = [
        len({term for place, term in matches[at : at + WORDS] if place < first + WORDS - _BEFORE})
        for at, (first, _) in enumerate(matches[:MOST_MATCHES])
    ]
    return matches[different.index(max(different))][0]


def _pieces(text: str, places: list[tuple[int, int]], start: int, end: int, marked: set[int]) -> Iterator[SnippetPiece]:
    at = 0 if start == 0 else places[start][0]
    yield from [SnippetPiece("… ")] if start else []
    for place in range(start, end):
        if place in marked:
            first, behind = places[place]
            yield from [SnippetPiece(text[at:first])] if first > at else []
            yield SnippetPiece(text[first:behind], marked=True)
            at = behind
    final = len(text) if end == len(places) else places[end - 1][1]
    yield from [SnippetPiece(text[at:final])] if final > at else []
    yield from [SnippetPiece(" …")] if end < len(places) else []


@lru_cache(maxsize=1 << 15)
def _parts_of(tokeniser: Tokeniser, word: str) -> tuple[tuple[str, str], ...]:
    """Return (part, its term or itself) of a word between spaces; cached, since few words make most texts."""
    parts = [part for part in normalised_words(word).decode().split() if len(part) <= LONGEST]
    return tuple((part, tokeniser.terms([part])[0] or part) for part in parts)


def _matcher(query: SearchQuery, tokeniser: Tokeniser) -> Callable[[str], str | None]:
    """Return the function from a word to the term or prefix of the query that it matches, or None."""
    clauses = [clause for clause in query.clauses if clause.field != "name"]
    whole = [word for clause in clauses if clause.kind != "prefix" for word in clause.words]
    terms = {term for term in tokeniser.terms(whole) if term} or {*whole}
    beginnings = tuple(clause.words[-1] for clause in clauses if clause.kind in ("typed", "prefix"))

    @cache
    def match(word: str) -> str | None:
        for part, term in _parts_of(tokeniser, word):
            if term in terms:
                return term
            if part.startswith(beginnings):
                return next(beginning for beginning in beginnings if part.startswith(beginning))
        return None

    return match
