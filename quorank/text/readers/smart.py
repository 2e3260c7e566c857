"""Reader of SMART collections (Cranfield, CISI, MED, ADI, CACM): records `.I number` with fields `.T .A .B .W .X`.

Title and body are the fields .T and .W; in Cranfield the body repeats the title. A collection without .T, as MED, has
its titles at the beginning of the body (see `decoding.leading_title`). A query is its .T and .W. Numbers lose leading
zeros here and in the judgements: CACM's queries are .I 1, and its judgements speak of query 01. A field that stands
twice in a record is joined.

Cranfield's codes run from 1, a complete answer, to 5, of no interest; here they become the grades 4 to 0. The code -1,
which its readme does not explain, becomes 0, as programs that count grades above 0 as relevant have always read it. Its
judgements count the queries from 1 in file order, while the .I numbers have gaps: where judgements name a query that no
.I has, and no number above that of the queries, they are taken to count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import zip_longest
from pathlib import Path

from quorank.text.collection import Document, Query, TextCollection, refuse_twice
from quorank.text.readers.decoding import bad_line, leading_title, one_line, read_text
from quorank.text.readers.qrels import judgements_of, read_judgements, without_zeros

MARK = b".I "
_RECORD = re.compile(r"^\.I[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_FIELD = re.compile(r"^\.([A-Z])[ \t]*$", re.MULTILINE)
_CRANFIELD_WORST = 5


def cranfield_grade(code: int) -> int:
    """Turn Cranfield's codes into grades: 1, 2, 3, 4, 5 → 4, 3, 2, 1, 0, and -1 → 0."""
    return _CRANFIELD_WORST - code if 1 <= code <= _CRANFIELD_WORST else 0


def read_smart(
    documents: Path, queries: Path | None = None, judgements: Path | None = None, name: str | None = None
) -> TextCollection:
    """Read a collection from its three files, of which the last two may be missing."""
    records = _records(documents)
    titled = any("T" in fields for _, fields in records)
    texts = tuple(
        Document(id_, one_line(fields["T"]) if titled else leading_title(fields["W"]), fields["W"].strip())
        for id_, fields in records
    )
    records = _records(queries) if queries else []
    asked = tuple(Query(id_, one_line(f"{fields['T']} {fields['W']}")) for id_, fields in records)
    found = []
    if queries and judgements:
        found = read_judgements(judgements, cranfield_grade if judgements.name.lower().startswith("cran") else None)
        judged, counted = {without_zeros(judgement.query) for judgement in found}, range(1, len(asked) + 1)
        if not judged <= {query.id for query in asked} and judged <= set(map(str, counted)):
            asked = tuple(Query(str(place), query.text) for place, query in zip(counted, asked, strict=True))
    graded, skipped = judgements_of(found, asked, texts, judgements)
    return TextCollection(name or documents.stem, texts, asked, graded, skipped, "SMART")


def _records(path: Path) -> list[tuple[str, defaultdict[str, str]]]:
    """Return the id of each record and its fields by letter; a field that it does not have is empty."""
    text = read_text(path)
    starts = list(_RECORD.finditer(text))
    if not starts or text[: starts[0].start()].strip():
        raise bad_line(path, 1, "smart.malformed", "expected a record that begins with `.I number`")
    found, lines, line, place = [], [], 1, 0
    for start, following in zip_longest(starts, starts[1:]):
        line += text.count("\n", place, start.start())
        place = start.start()
        lines.append(line)
        end = following.start() if following else len(text)
        pieces = _FIELD.split(text[start.end() : end])
        if pieces[0].strip():
            raise bad_line(path, line + 1, "smart.malformed", "expected a field like .T or .W")
        parts: defaultdict[str, list[str]] = defaultdict(list)
        for letter, content in zip(pieces[1::2], pieces[2::2], strict=True):
            parts[letter].append(content if letter in parts else content.strip("\n"))
        fields = defaultdict(str, {letter: "\n".join(contents) for letter, contents in parts.items()})
        found.append((without_zeros(start[1]), fields))
    refuse_twice(str(path), "record", (id_ for id_, _ in found), lines)
    return found
