"""Query language: words, "phrases", prefix*, title:word, name:word, source:mail, type:pdf, before:, after:, since:.

Everything else is plain words, and nothing is an error. Words are divided by the tokeniser; the last word, while it is
being typed, stands for all words that begin with it. Plain words and prefixes are optional: a document with some of
them is found too. Phrases, words of a field and filters are required.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from quorank.text.tokens import LONGEST, normalised_words

ClauseKind = Literal["word", "typed", "prefix", "phrase"]
ClauseField = Literal["any", "title", "name"]

LONGEST_QUERY = 1000  # maximum length of a query, characters
MOST_CLAUSES = 32  # maximum number of words, prefixes and phrases of a query
MOST_IN_PHRASE = 32  # maximum number of words of a phrase

_PIECE = re.compile(r'(?:(title|name):)?"([^"]*)"|(\S+)', re.IGNORECASE)
_OPERATOR = re.compile(r"(title|name|source|type|before|after|since):(.+)", re.IGNORECASE)
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_AGE = re.compile(r"(\d{1,5})([hdwmy])", re.IGNORECASE)
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "m": 30 * 86400.0, "y": 365 * 86400.0}


@dataclass(frozen=True)
class Clause:
    """Condition on a document: one word, one beginning of a word, or a phrase."""

    words: tuple[str, ...]  # as `normalised_words` gives them
    kind: ClauseKind = "word"
    field: ClauseField = "any"

    @property
    def required(self) -> bool:
        """Return whether only documents that satisfy the clause are found."""
        return self.kind == "phrase" or self.field != "any"


@dataclass(frozen=True)
class SearchQuery:
    """Parsed query."""

    text: str
    clauses: tuple[Clause, ...] = ()
    sources: tuple[str, ...] = ()  # kinds or names of sources, case-folded; one must match
    types: tuple[str, ...] = ()  # endings of file names, as "pdf"; one must match
    after: float | None = None  # Unix seconds: modified then or later
    before: float | None = None  # modified before

    @property
    def plain_words(self) -> tuple[str, ...]:
        """Words that a name may begin with; empty for a query with words of a field."""
        if any(clause.field != "any" for clause in self.clauses):
            return ()
        return tuple(word for clause in self.clauses for word in clause.words)

    @property
    def filters(self) -> bool:
        """Return whether the query restricts sources, types or dates."""
        return bool(self.sources or self.types or self.after is not None or self.before is not None)


def parse_query(text: str, *, typing: bool = False, now: float | None = None) -> SearchQuery:
    """Parse a query.

    Args:
        text: The query as typed.
        typing: Treat a plain word at the very end as unfinished.
        now: Time from which `since:` counts, Unix seconds.

    >>> parse_query('title:plan "annual report" before:2024-05').clauses
    (Clause(words=('plan',), kind='word', field='title'), Clause(words=('annual', 'report'), kind='phrase', field='any'))
    """
    text = text[:LONGEST_QUERY]
    clauses: list[Clause] = []
    sources: list[str] = []
    types: list[str] = []
    earliest: list[float] = []
    latest: list[float] = []
    for piece in _PIECE.finditer(text):
        field, phrase, word = piece.groups()
        if word is None:
            if words := _words(phrase)[:MOST_IN_PHRASE]:
                clauses.append(Clause(words, "phrase" if len(words) > 1 else "word", _field(field)))
            continue
        operator = _OPERATOR.fullmatch(word)
        name, value = (operator[1].lower(), operator[2]) if operator else ("", word)
        if name == "source" and value.strip('"'):
            sources.append(value.strip('"').casefold())
            continue
        if name == "type" and value.strip('."'):
            types.append(value.strip('."').casefold())
            continue
        moment = _parse_time(name, value, time.time() if now is None else now)
        if moment is not None:
            (latest if name == "before" else earliest).append(moment)
            continue
        of_field = name in ("title", "name") and bool(_words(value))
        last: ClauseKind = "word"
        if word.endswith("*"):
            last = "prefix"
        elif typing and not of_field and piece.end() == len(text) and _words(word[-1]):
            last = "typed"
        words = _words(value if of_field else word)
        clauses += [Clause((one,), "word", _field(name if of_field else None)) for one in words[:-1]]
        clauses += [Clause((one,), last, _field(name if of_field else None)) for one in words[-1:]]
    return SearchQuery(
        text,
        tuple(clauses[:MOST_CLAUSES]),
        tuple(dict.fromkeys(sources)),
        tuple(dict.fromkeys(types)),
        max(earliest, default=None),
        min(latest, default=None),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in normalised_words(text).decode().split() if len(word) <= LONGEST)


def _field(name: str | None) -> ClauseField:
    lowered = (name or "").lower()
    return "title" if lowered == "title" else "name" if lowered == "name" else "any"


def _parse_time(name: str, value: str, now: float) -> float | None:
    """Return the Unix seconds of `before:`, `after:` or `since:`: the beginning of a day, month or year in local time."""
    if name == "since" and (age := _AGE.fullmatch(value)):
        return now - int(age[1]) * _SECONDS[age[2].lower()]
    date = _DATE.fullmatch(value) if name in ("before", "after", "since") else None
    if date is None:
        return None
    try:
        return datetime(int(date[1]), int(date[2] or 1), int(date[3] or 1)).timestamp()
    except (ValueError, OverflowError, OSError):  # no such day, or outside the system's calendar
        return None
