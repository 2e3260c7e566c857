"""Reader of judgement files (qrels): a line says which grade a document has for a query.

Four shapes are distinguished by their columns: TREC's `query 0 document grade`, BEIR's table with a header line
`query-id corpus-id score`, three columns `query document grade`, and CISI's `query document 0 0.0`, which lists
relevant documents only (grade 1). A grade below 0 is read as 0. Of a repeated pair the higher grade counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from quorank.errors import BadInput, brief
from quorank.files.untrusted import read_bounded
from quorank.text.collection import Document, Query, SkipRecord, add_skipped
from quorank.text.readers.decoding import bad_line, decode

HIGHEST = 127  # labels are kept in one byte
LONGEST_LINE = 1 << 16  # characters of a judgement


class Judgement(NamedTuple):
    """Line of a judgement file."""

    query: str
    document: str
    grade: int


def read_judgements(path: Path, grade_of: Callable[[int], int] | None = None) -> list[Judgement]:
    """Read a judgement file, plain or packed; `grade_of` as in `parse_judgements`."""
    return parse_judgements(read_bounded(path), f"{path}", grade_of)


def parse_judgements(
    content: bytes | bytearray, where: str, grade_of: Callable[[int], int] | None = None
) -> list[Judgement]:
    """Read the lines of a judgement file; `grade_of` turns a file's own code into a grade, higher being better."""
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(decode(content).split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise _malformed(where, number, line)
        if row := line.split():
            rows.append((number, row))
    if rows and rows[0][1][0].lower() in ("query-id", "qid", "query_id"):
        del rows[0]
    if not rows:
        raise BadInput("qrels.empty", "holds no judgement; expected lines like `query 0 document grade`", where)
    width = len(rows[0][1])
    for number, row in rows:
        if len(row) != width or width not in (3, 4):
            raise _malformed(where, number, " ".join(row))
    listing = width == 4 and any(row[1] not in ("0", "Q0") for _, row in rows)
    found = []
    for number, row in rows:
        try:
            value = float(row[-1])
            code = int(value)
        except (ValueError, OverflowError):
            raise _malformed(where, number, " ".join(row)) from None
        if code != value or (listing and code != 0):
            raise _malformed(where, number, " ".join(row))
        grade = 1 if listing else code if grade_of is None else grade_of(code)
        if grade > HIGHEST:
            sentence = f"grade {row[-1][:20]} found; expected at most {HIGHEST}"
            raise bad_line(where, number, "qrels.grade-too-high", sentence)
        found.append(Judgement(row[0], row[2] if width == 4 and not listing else row[1], max(grade, 0)))
    return found


def judgements_of(
    found: Sequence[Judgement], queries: Sequence[Query], documents: Sequence[Document], where: object
) -> tuple[dict[str, dict[str, int]], SkipRecord]:
    """Return the grades by query and document, and the left-out judgements of unknown queries and documents.

    Ids that are numbers are the same with and without leading zeros, unless two ids differ by these alone. Where no
    judgement is left, the collection is refused.
    """
    find_query, find_document = _finder(query.id for query in queries), _finder(document.id for document in documents)
    kept: dict[str, dict[str, int]] = {}
    unasked, unknown = [], []
    for judgement in found:
        query, document = find_query(judgement.query), find_document(judgement.document)
        if query is None:
            unasked.append(judgement.query)
        elif document is None:
            unknown.append(judgement.document)
        else:
            grades = kept.setdefault(query, {})
            grades[document] = max(judgement.grade, grades.get(document, 0))
    if found and not kept:
        held = " and ".join(
            f"{what} are called like {brief(there[0].id)}" if there else f"there are no {what}; add their file"
            for what, there in (("queries", queries), ("documents", documents))
        )
        names = f"it names query {brief(found[0].query)} and document {brief(found[0].document)}"
        sentence = f"none of its {len(found):,} judgements is of a query and a document that are here"
        raise BadInput("qrels.all-lost", f"{sentence}: {names}, while {held}", f"{where}")
    skipped = add_skipped({}, judgements_of_unknown_queries=unasked, judgements_of_unknown_documents=unknown)
    return kept, skipped


def without_zeros(id_: str) -> str:
    """Return a number without its leading zeros, any other id as it is: 01 and 1 are one query."""
    return id_.lstrip("0") or "0" if id_.isascii() and id_.isdigit() else id_


def _finder(ids: Iterable[str]) -> Callable[[str], str | None]:
    """Return a function that finds an id by its exact string or, where the number is unique, by its number."""
    exact = {id_: id_ for id_ in ids}
    times = Counter(map(without_zeros, exact))
    numbers = {number: id_ for id_ in exact if times[number := without_zeros(id_)] == 1}
    return lambda id_: exact.get(id_) or numbers.get(without_zeros(id_))


def _malformed(where: str, number: int, line: str) -> BadInput:
    expected = "expected `query 0 document grade` or `query document 0 0` or `query document grade`"
    return bad_line(where, number, "qrels.malformed", f"{expected}, got {brief(line)}")
