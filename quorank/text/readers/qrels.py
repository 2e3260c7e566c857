"""Reader of judgement files (qrels): a line says which grade a document has for a query.

Four shapes are told apart by their columns: TREC's `query 0 document grade`, BEIR's table with a header line
`query-id corpus-id score`, three columns `query document grade`, and CISI's `query document 0 0.0`, which lists
relevant documents only (grade 1). A grade below 0 is read as 0. Where a pair stands twice, its higher grade counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from quorank.errors import BadInput
from quorank.foreign import excerpt
from quorank.text.collection import Document, Query
from quorank.text.readers.decoding import bad_line, decode, read_bytes

HIGHEST = 127
"""Labels are kept in one byte."""
LONGEST_LINE = 1 << 16
"""Characters of a judgement."""


class Judgement(NamedTuple):
    """One line of a judgement file."""

    query: str
    document: str
    grade: int


def read_judgements(path: Path, grade_of: Callable[[int], int] | None = None) -> list[Judgement]:
    """Read a judgement file, plain or packed; `grade_of` as in `parse_judgements`."""
    return parse_judgements(read_bytes(path), f"{path}", grade_of)


def parse_judgements(content: bytes, where: str, grade_of: Callable[[int], int] | None = None) -> list[Judgement]:
    """Read the lines of a judgement file; `grade_of` turns a file's own code into a grade, higher being better."""
    lines = decode(content).split("\n")
    written = (number for number, line in enumerate(lines, 1) if line.strip())
    first = next(written, 0)
    if first and lines[first - 1].split(maxsplit=1)[0].lower() in ("query-id", "qid", "query_id"):
        first = next(written, 0)
    if not first:
        raise BadInput("qrels.empty", "holds no judgement; expected lines like `query 0 document grade`", where)

    def rows() -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(lines[first - 1 :], first):
            if len(line) > LONGEST_LINE:
                raise _malformed(where, number, line)
            if row := line.split():
                yield number, row

    width = len(next(rows())[1])
    listing = False
    for number, row in rows():
        if len(row) != width or width not in (3, 4):
            raise _malformed(where, number, " ".join(row))
        listing = listing or (width == 4 and row[1] not in ("0", "Q0"))
    found = []
    for number, row in rows():
        code = _number(where, number, row)
        if listing and code != 0:
            raise _malformed(where, number, " ".join(row))
        grade = 1 if listing else code if grade_of is None else grade_of(code)
        if grade > HIGHEST:
            sentence = f"grade {row[-1][:20]} found; expected at most {HIGHEST}"
            raise bad_line(where, number, "qrels.grade-too-high", sentence)
        found.append(Judgement(row[0], row[2] if width == 4 and not listing else row[1], max(grade, 0)))
    return found


def judgements_of(
    found: Iterable[Judgement], queries: Iterable[Query], documents: Iterable[Document]
) -> dict[str, dict[str, int]]:
    """Return the grades by query and document; a judgement of one that is not there is left out."""
    asked, known = {query.id for query in queries}, {document.id for document in documents}
    kept: dict[str, dict[str, int]] = {}
    for query, document, grade in found:
        if query in asked and document in known:
            grades = kept.setdefault(query, {})
            grades[document] = max(grade, grades.get(document, 0))
    return kept


def _number(where: str, number: int, row: list[str]) -> int:
    """Return the last number of a line."""
    try:
        value = float(row[-1])
        if value != int(value):
            raise ValueError
        return int(value)
    except (ValueError, OverflowError):
        raise _malformed(where, number, " ".join(row)) from None


def _malformed(where: str, number: int, line: str) -> BadInput:
    expected = "expected `query 0 document grade` or `query document 0 0` or `query document grade`"
    return bad_line(where, number, "qrels.malformed", f"{expected}, got {excerpt(line)}")
