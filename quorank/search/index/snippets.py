"""Snippet of a document: the part of its text with most terms of a query, with the matching words marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from quorank.search.index.query import SearchQuery
from quorank.text.tokens import LONGEST, Tokeniser, normalised_words

MOST_CHARACTERS = 200_000
"""Searched characters of a document."""
MOST_MATCHES = 2000
"""Matches at which a snippet may begin."""
WORDS = 32
"""Length of a snippet, words."""
_BEFORE = 6  # words of a snippet before the first match
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class SnippetPiece:
    """Piece of a snippet; `marked` for a word of the query."""

    text: str
    marked: bool = False


def make_snippet(text: str, query: SearchQuery, tokeniser: Tokeniser, words: int = WORDS) -> tuple[SnippetPiece, ...]:
    """Return the part of a text with most distinct terms of the query; its beginning without any."""
    text = text[:MOST_CHARACTERS]
    wanted = _Wanted(query, tokeniser)
    places: list[tuple[int, int]] = []
    matches: list[tuple[int, str]] = []
    for word in _WORD.finditer(text):
        term = wanted[word[0]]
        if term is not None:
            matches.append((len(places), term))
        places.append(word.span())
    if not places:
        return ()
    start = max(_best_window(matches, words) - _BEFORE, 0) if matches else 0
    end = min(start + words, len(places))
    marked = {place for place, _ in matches}
    return tuple(_pieces(text, places, start, end, marked))


def _best_window(matches: list[tuple[int, str]], words: int) -> int:
    """Return the first match of the snippet with most distinct terms; the earliest of equals."""
    different = [
        len({term for place, term in matches[at : at + words] if place < first + words - _BEFORE})
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


class _Wanted(dict[str, str | None]):
    """Term or prefix of the query that a word matches, or None."""

    def __init__(self, query: SearchQuery, tokeniser: Tokeniser) -> None:
        super().__init__()
        self._tokeniser = tokeniser
        clauses = [clause for clause in query.clauses if clause.field != "name"]
        whole = [word for clause in clauses if clause.kind != "prefix" for word in clause.words]
        self._terms = {term for term in tokeniser.terms(whole) if term} or {*whole}
        self._beginnings = tuple(clause.words[-1] for clause in clauses if clause.kind in ("typed", "prefix"))

    def __missing__(self, word: str) -> str | None:
        self[word] = found = next(self._matches(word), None)
        return found

    def _matches(self, word: str) -> Iterator[str]:
        for part, term in _parts_of(self._tokeniser, word):
            if term in self._terms:
                yield term
            yield from (beginning for beginning in self._beginnings if part.startswith(beginning))
