"""Judgement files: a line says which grade a document has for a query.

Four shapes are told apart by their columns: TREC's `query 0 document grade`, BEIR's table with a header line
`query-id corpus-id score`, three columns `query document grade`, and CISI's `query document 0 0.0`, which lists
relevant documents only (grade 1). A grade below 0 is read as 0. Where a pair stands twice, its higher grade counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from quorank.errors import BadInput

Judgements = dict[str, dict[str, int]]
HIGHEST = 127
"""Labels are kept in one byte."""


class Judgement(NamedTuple):
    """One line of a judgement file."""

    query: str
    document: str
    grade: int
    line: int


def parse_judgements(text: str, where: str, grade_of: Callable[[int], int] | None = None) -> list[Judgement]:
    """The lines of a judgement file; `grade_of` turns a file's own code into a grade, higher being better."""
    rows = [(number, line.split()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if rows and rows[0][1][0].lower() in ("query-id", "qid", "query_id"):
        del rows[0]
    if not rows:
        raise BadInput(f"{where}: holds no judgement; expected lines like `query 0 document grade`")
    width = len(rows[0][1])
    if width not in (3, 4):
        raise _malformed(where, *rows[0])
    for number, row in rows:
        if len(row) != width:
            raise _malformed(where, number, row)
    listing = width == 4 and any(row[1] not in ("0", "Q0") for _, row in rows)
    if listing and any(_number(where, n, row, row[3]) != 0 for n, row in rows):
        raise BadInput(
            f"{where}, line {rows[0][0]}: expected `query 0 document grade` or `query document 0 0`"
        )
    found = []
    for number, row in rows:
        document = row[2] if width == 4 and not listing else row[1]
        code = 1 if listing else _number(where, number, row, row[-1])
        grade = code if grade_of is None or listing else grade_of(code)
        if grade > HIGHEST:
            raise BadInput(f"{where}, line {number}: grade {grade} found; expected at most {HIGHEST}")
        found.append(Judgement(row[0], document, max(grade, 0), number))
    return found


def gather(
    found: list[Judgement], queries: Collection[str], documents: Collection[str], where: str
) -> tuple[Judgements, tuple[str, ...]]:
    """The judgements of queries and documents that are there, and a sentence about the others."""
    kept: Judgements = {}
    strangers = 0
    for query, document, grade, _ in found:
        if query not in queries or document not in documents:
            strangers += 1
            continue
        grades = kept.setdefault(query, {})
        grades[document] = max(grade, grades.get(document, 0))
    if not strangers:
        return kept, ()
    return kept, (
        f"{where}: {strangers} of {len(found)} judgements name a query or document that is not there",
    )


def merge(into: Judgements, more: Mapping[str, Mapping[str, int]]) -> None:
    """Add judgements; of a pair judged twice the higher grade counts."""
    for query, grades in more.items():
        target = into.setdefault(query, {})
        for document, grade in grades.items():
            target[document] = max(grade, target.get(document, 0))


def _number(where: str, number: int, row: list[str], word: str) -> int:
    try:
        value = float(word)
        if value != int(value):
            raise ValueError
        return int(value)
    except (ValueError, OverflowError):
        raise _malformed(where, number, row) from None


def _malformed(where: str, number: int, row: list[str]) -> BadInput:
    return BadInput(
        f"{where}, line {number}: expected `query 0 document grade` or `query document grade`, got {' '.join(row)!r:.80}"
    )
