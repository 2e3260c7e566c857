"""What the kernel found in one chunk of lines, and the sentence for lines that are malformed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quorank.arrays import Bytes, Integers
from quorank.errors import BadInput

_LISTED = 5


@dataclass(frozen=True)
class Parsed:
    """What one chunk of lines gave; positions and lines are counted from its beginning."""

    rows: int
    runs: Integers  # (runs, 3) first row, span of the query id
    documents: Integers  # (rows,) where the document id of each row ends in `names`
    names: Bytes
    bad: Integers  # (some, 3) line, what is wrong, position
    n_bad: int
    widest: int


def refuse_malformed(
    path: Path, chunks: Sequence[Bytes], parsed: Sequence[Parsed], places: Sequence[int]
) -> None:
    """One sentence on the first malformed line, with the numbers of the next ones."""
    total = sum(chunk.n_bad for chunk in parsed)
    if not total:
        return
    found = [
        (place + line + 1, code, position, text)
        for text, chunk, place in zip(chunks, parsed, places, strict=True)
        for line, code, position in chunk.bad.tolist()
    ]
    found.sort(key=lambda bad: bad[0])
    line, code, position, text = found[0]
    more = ""
    if total > 1:
        listed = ", ".join(str(bad[0]) for bad in found[1 : 1 + _LISTED])
        listed += ", …" if total - 1 > _LISTED else ""
        more = f"; and {total - 1} more malformed line{'s' if total > 2 else ''}: {listed}"
    raise BadInput(f"{path}:{line}: {_describe(text, code, position)}{more}")


def _describe(text: Bytes, code: int, position: int) -> str:
    from quorank.data.letor import kernel

    if code == kernel.VALUE:  # the position is behind the colon, but the index belongs to what is shown
        while position > 0 and text[position - 1] not in b" \t\r\n\v\f":
            position -= 1
    rest = bytes(text[position : position + 80]).decode("utf-8", "backslashreplace")
    token = re.split(r"[\s#]", rest, maxsplit=1)[0]
    shown = "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in token[:40])
    shown += "…'" if len(token) > 40 else "'"
    return {
        kernel.LABEL: f"found label {shown}, expected a whole number from 0 to {kernel.HIGHEST_LABEL}",
        kernel.NO_QUERY: f"found {shown if token else 'nothing'} behind the label, expected qid:ID",
        kernel.EMPTY_QUERY: "found 'qid:' without an id, expected qid:ID",
        kernel.FEATURE: f"found {shown}, expected a feature as index:value",
        kernel.INDEX: f"found {shown}, expected a feature index from 1 to {kernel.HIGHEST_INDEX}",
        kernel.VALUE: f"found {shown}, expected a finite float32 number behind the colon",
        kernel.DUPLICATE: f"found {shown} whose index stands twice in the row, expected each feature once",
    }[code]
