"""Reader of judgement files (qrels): a line says which grade a document has for a query.

Four shapes are told apart by their columns: TREC's `query 0 document grade`, BEIR's table with a header line
`query-id corpus-id score`, three columns `query document grade`, and CISI's `query document 0 0.0`, which lists
relevant documents only (grade 1). A grade below 0 is read as 0. Where a pair stands twice, its higher grade counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from quorank.errors import BadInput
from quorank.text.collection import Document, Query
from quorank.text.readers.decoding import bad_line

Judgements = dict[str, dict[str, int]]
HIGHEST = 127
"""Labels are kept in one byte."""


class Judgement(NamedTuple):
    """One line of a judgement file."""

    query: str
    document: str
    grade: int


def parse_judgements(text: str, where: str, grade_of: Callable[[int], int] | None = None) -> list[Judgement]:
    """Read the lines of a judgement file; `grade_of` turns a file's own code into a grade, higher being better."""
    rows = [(number, line.split()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if rows and rows[0][1][0].lower() in ("query-id", "qid", "query_id"):
        del rows[0]
    if not rows:
        sentence = "holds no judgement; expected lines like `query 0 document grade`"
        raise BadInput("qrels.empty", sentence, where)
    width = len(rows[0][1])
    if width not in (3, 4):
        raise _malformed(where, *rows[0])
    for number, row in rows:
        if len(row) != width:
            raise _malformed(where, number, row)
    listing = width == 4 and any(row[1] not in ("0", "Q0") for _, row in rows)
    if listing and any(_number(where, n, row, row[3]) != 0 for n, row in rows):
        sentence = "expected `query 0 document grade` or `query document 0 0`"
        raise bad_line(where, rows[0][0], "qrels.malformed", sentence)
    found = []
    for number, row in rows:
        document = row[2] if width == 4 and not listing else row[1]
        code = 1 if listing else _number(where, number, row, row[-1])
        grade = code if grade_of is None or listing else grade_of(code)
        if grade > HIGHEST:
            sentence = f"grade {grade} found; expected at most {HIGHEST}"
            raise bad_line(where, number, "qrels.grade-too-high", sentence)
        found.append(Judgement(row[0], document, max(grade, 0)))
    return found


def judgements_of(found: Iterable[Judgement], queries: Iterable[Query], documents: Iterable[Document]) -> Judgements:
    """Return the grades by query and document; a judgement of one that is not there is left out."""
    asked, known = {query.id for query in queries}, {document.id for document in documents}
    kept: Judgements = {}
    for query, document, grade in found:
        if query in asked and document in known:
            grades = kept.setdefault(query, {})
            grades[document] = max(grade, grades.get(document, 0))
    return kept


def _number(where: str, number: int, row: list[str], word: str) -> int:
    try:
        value = float(word)
        if value != int(value):
            raise ValueError
        return int(value)
    except (ValueError, OverflowError):
        raise _malformed(where, number, row) from None


def _malformed(where: str, number: int, row: list[str]) -> BadInput:
    sentence = f"expected `query 0 document grade` or `query document grade`, got {' '.join(row)!r:.80}"
    return bad_line(where, number, "qrels.malformed", sentence)
