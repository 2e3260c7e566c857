"""Reader of ranking data in LETOR (SVMlight) text: `label qid:ID index:value … # comment`, plain or gzipped.

Labels are integers from 0 to 127; a query id is any token; feature indices run from 1, in
any order, and a feature that a row leaves out is 0; `nan` is read as 0, as published code does; a finite
number beyond float32 is read as the largest float32, because some collections write the largest double for
"unknown"; a document id is taken from a comment `#docid = X`. Blank lines, lines that only hold a comment,
tabs, trailing spaces and CRLF are fine. The rows of a query need not stand together: queries come in order of
their first row, and rows of a query in file order.

What is refused: everything else, with the file, the line, what was found and what was expected.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data.ranking import RankingData, stride_of
from quorank.data.strings import Strings, select_strings, strings_from_bytes
from quorank.errors import BadInput, brief, require
from quorank.files.untrusted import (
    MOST_LINE,
    RATIO_VARIABLE,
    file_size,
    limits_from_environment,
    line_blocks,
    open_bounded,
    open_plain,
    packing_of,
    read_bounded,
    translate_errors,
)
from quorank.kernels.arrays import Bytes, Floats, Int8s, Integers

READER_VERSION = 2
"""Part of every cache key: raise it when the same text is read differently."""

_SHAPE = "lines like `2 qid:10 1:0.5 2:3`"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NAN = re.compile(r"[+-]?nan", re.IGNORECASE)
_LARGEST = float(np.finfo(np.float32).max)
PACKED = {".gz": "a gzip", ".bz2": "a bzip2", ".xz": "an xz"}
_HEAD, _CHUNK = 1 << 16, 1 << 21
_LISTED = 5  # malformed lines behind the first


def read_letor(path: Path) -> RankingData:
    """Read one file; BadInput names the first malformed line and lists the next ones."""
    return read_letor_lines(path)[0]


def read_letor_lines(path: Path) -> tuple[RankingData, Integers | None]:
    """Read one file, and for each of its rows in their order which line with data it was; None where that is the same."""
    path = Path(path)
    text = read_bytes(path)
    require(text.size, "letor.empty", f"is empty; expected {_SHAPE}", f"{path}")
    chunks = _chunks(text)
    longest = max((chunk.size for chunk in chunks), default=0)  # about that of a line, where no line ends earlier
    sentence = f"has a line of about {longest:,} bytes, longer than {MOST_LINE:,}; expected {_SHAPE}"
    require(longest <= _CHUNK + MOST_LINE, "letor.line-too-long", sentence, f"{path}")
    workers = min(len(chunks), os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        run: Callable[..., Any] = map if workers == 1 else pool.map
        lines = list(run(_count_lines, chunks))
        first_lines = np.concatenate(([0], np.cumsum(lines)))
        head = _chunks(text[:_HEAD])[0]
        width = _parse(head, _Table.empty(path, _count_lines(head), 0, text.size), 0).widest
        while True:
            table = _Table.empty(path, int(first_lines[-1]), width, text.size)
            places = [int(place) for place in first_lines[:-1]]
            parsed = list(run(_parse, chunks, [table] * len(chunks), places))
            _refuse_malformed(path, chunks, parsed, places)
            widest = max(chunk.widest for chunk in parsed)
            if widest <= table.padded.shape[1]:
                break
            width = widest  # a sparse file: its first rows did not name the highest feature
    rows = _close_gaps(table, parsed, places)
    require(rows, "letor.empty", f"holds no rows, only comments and blank lines; expected {_SHAPE}", f"{path}")
    require(widest, "letor.no-features", f"holds no features in its {rows} rows; expected {_SHAPE}", f"{path}")
    return _group(path, table, rows, widest, chunks, parsed)


@dataclass(frozen=True, eq=False)
class LetorBlock:
    """Some rows of a file that is read piece by piece: its rows of one query may go on in the next block."""

    padded: Floats  # (rows, stride)
    labels: Int8s  # (rows,)
    queries: tuple[bytes, ...]  # (runs,) query id of each run of rows
    starts: Integers  # (runs + 1,) first row of each run
    lines: Integers  # (runs,) the line on which each run begins, where no line of the block is blank
    n_features: int


def letor_blocks(path: Path, counted: Callable[[int], None] | None = None) -> Iterator[LetorBlock]:
    """Read a file of any size in blocks of a few MB; `counted` is told how many bytes of text were read.

    All rows have the features of the first block; a row that names another one is refused.
    """
    expected = "expected a LETOR text file, plain or .gz"
    width, line, workers = 0, 0, os.cpu_count() or 1
    with open_bounded(path, expected=expected) as file, ThreadPoolExecutor(workers) as pool:
        for block in line_blocks(file, path, _CHUNK * workers):
            text = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
            pieces = _chunks(text)
            if width == 0:
                head = _chunks(text[:_HEAD])[0]
                width = _parse(head, _Table.empty(path, _count_lines(head), 0, text.size), 0).widest
            lines = [_count_lines(piece) for piece in pieces]
            tables = [_Table.empty(path, count, width, text.size) for count in lines]
            parsed = list(pool.map(_parse, pieces, tables, [0] * len(pieces)))
            first_lines = [line + before for before in np.concatenate(([0], np.cumsum(lines)))[:-1].tolist()]
            _refuse_malformed(path, pieces, parsed, first_lines)
            for piece, table, found, first in zip(pieces, tables, parsed, first_lines, strict=True):
                if found.widest > width:
                    _refuse_wide(path, piece, first, width)
                starts = np.append(found.runs[:, 0], found.rows)
                queries = tuple(bytes(piece[start:end]) for _, start, end in found.runs.tolist())
                rows = slice(0, found.rows)
                if found.rows:
                    lines_of = first + 1 + starts[:-1]
                    yield LetorBlock(table.padded[rows], table.labels[rows], queries, starts, lines_of, width)
            line += sum(lines)
            if counted:
                counted(len(block))
    require(width, "letor.no-features", f"holds no features; expected {_SHAPE}", f"{path}")


def _refuse_wide(path: Path, text: Bytes, first: int, width: int) -> None:
    """Raise BadInput for the first line that names a feature beyond `width`."""
    for number, row in enumerate(bytes(text).split(b"\n"), first + 1):
        highest = max((int(index) for index in re.findall(rb"\s(\d{1,5}):", row.partition(b"#")[0])), default=0)
        if highest > width:
            sentence = (
                f"names feature {highest}, and the first rows have {width}; expected the same features in all rows"
            )
            raise BadInput("letor.more-features", sentence, f"{path}:{number}")


def read_bytes(path: Path) -> Bytes:
    """Return the text of a plain file, mapped, or of a packed one (gzip, bzip2, xz), unpacked within the gate's limits."""
    expected = "expected a LETOR text file, plain or .gz"
    if file_size(path, expected) == 0:
        return np.empty(0, np.uint8)
    if packing_of(path):
        text = np.frombuffer(read_bounded(path, expected=expected), np.uint8)
        text.flags.writeable = False  # like the mapped text: one compiled kernel for both
        return text
    meant = PACKED.get(path.suffix)
    sentence = f"is not {meant} file although its name ends in {path.suffix}; {expected}"
    require(meant is None, "file.damaged", sentence, f"{path}")
    with open_plain(path, expected) as file, translate_errors(path, "a readable file"):
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


@dataclass(frozen=True)
class _Table:
    """Rows for all lines of the file; lines without data leave gaps that are closed afterwards."""

    padded: Floats
    labels: Int8s

    @classmethod
    def empty(cls, path: Path, rows: int, width: int, text: int) -> _Table:
        """Return an empty table for `rows` × `features`; reject one that is too large for a text of that many bytes."""
        size = 4 * rows * stride_of(width)
        sentence = f"needs {size:,} bytes for {rows:,} rows of {width:,} features, far more than its text has"
        fits = size <= limits_from_environment().most(text)
        require(fits, "letor.too-large", f"{sentence}; if you trust it, raise {RATIO_VARIABLE}", f"{path}")
        try:
            return cls(np.zeros((rows, stride_of(width)), np.float32), np.zeros(rows, np.int8))
        except MemoryError:
            sentence = f"needs {rows} rows of {width} features, more than the memory holds"
            raise BadInput("letor.too-large", sentence, f"{path}") from None


@dataclass(frozen=True)
class _Parsed:
    """Result of parsing one chunk of lines; positions and lines are counted from its beginning."""

    rows: int
    runs: Integers  # (runs, 3) first row, span of the query id
    documents: Integers  # (rows,) where the document id of each row ends in `names`
    names: Bytes
    bad: Integers  # (some, 3) line, what is wrong, position
    n_bad: int
    widest: int


def _chunks(text: Bytes) -> list[Bytes]:
    """Divide the text into pieces of whole lines; the last line gets its newline if it has none."""
    start = 3 if bytes(text[:3]) == b"\xef\xbb\xbf" else 0
    size = min(_CHUNK, max(_HEAD, text.size // 4))
    pieces = []
    while start < text.size:
        end = min(start + size, text.size)
        while end < text.size and text[end - 1] != 10:
            newlines = np.flatnonzero(text[end : end + _HEAD] == 10)
            end = end + int(newlines[0]) + 1 if newlines.size else min(end + _HEAD, text.size)
        pieces.append(text[start:end])
        start = end
    if not pieces or pieces[-1][-1] != 10:
        last = pieces.pop() if pieces else text[:0]
        end = max(last.size - _HEAD, 0)
        cut = end + int(np.flatnonzero(last[end:] == 10).max(initial=-1)) + 1
        pieces += [last[:cut]] if cut else []
        ended = np.append(last[cut:], np.uint8(10))
        ended.flags.writeable = False  # like the mapped text: one compiled kernel for both
        pieces.append(ended)
    return pieces


def _count_lines(text: Bytes) -> int:
    return int(np.count_nonzero(text == 10))


def _parse(text: Bytes, table: _Table, place: int) -> _Parsed:
    """Parse a chunk into the table from row `place` on."""
    from quorank.data.letor import kernel

    lines = _count_lines(text)
    padded, labels = table.padded[place : place + lines], table.labels[place : place + lines]
    runs, documents = np.empty((lines, 3), np.int64), np.empty(lines, np.int64)
    names = np.empty(text.size, np.uint8)
    # the shortest feature is `1:x`; untouched pages cost nothing
    hard = np.empty((text.size // 3 + 1, 5), np.int64)
    bad, counts = np.empty((1000, 3), np.int64), np.zeros(6, np.int64)
    seen = np.zeros(kernel.HIGHEST_INDEX + 1, np.int64)
    kernel.parse_lines(text, padded, labels, runs, documents, names, hard, bad, counts, seen)
    rows, n_runs, n_hard, n_bad, widest, named = (int(count) for count in counts)
    unsettled = _settle_hard(text, padded, hard[:n_hard])
    return _Parsed(
        rows,
        runs[:n_runs].copy(),
        documents[:rows],
        names[:named].copy(),
        np.concatenate((bad[: min(n_bad, len(bad))], unsettled)),
        n_bad + len(unsettled),
        widest,
    )


def _settle_hard(text: Bytes, padded: Floats, hard: Integers) -> Integers:
    """Read what the kernel left with Python's float; what is no finite number comes back as malformed."""
    from quorank.data.letor.kernel import VALUE

    malformed: dict[int, tuple[int, int, int]] = {}
    places = (place for first in range(0, len(hard), _HEAD) for place in hard[first : first + _HEAD].tolist())
    for row, column, start, end, line in places:
        token = bytes(text[start:end]).decode("latin-1")
        value = float(token) if _NUMBER.fullmatch(token) else 0.0 if _NAN.fullmatch(token) else np.inf
        if not np.isfinite(value):
            malformed.setdefault(line, (line, VALUE, start))
        elif column < padded.shape[1]:
            padded[row, column] = max(min(value, _LARGEST), -_LARGEST)
    return np.array(list(malformed.values()), np.int64).reshape(-1, 3)


def _close_gaps(table: _Table, parsed: list[_Parsed], places: list[int]) -> int:
    """Move the rows of each chunk behind those of the one before; return the number of rows."""
    row = 0
    for chunk, place in zip(parsed, places, strict=True):
        if row != place:
            table.padded[row : row + chunk.rows] = table.padded[place : place + chunk.rows]
            table.labels[row : row + chunk.rows] = table.labels[place : place + chunk.rows]
        row += chunk.rows
    return row


def _group(
    path: Path, table: _Table, rows: int, n_features: int, chunks: list[Bytes], parsed: list[_Parsed]
) -> tuple[RankingData, Integers | None]:
    """Bring the rows of each query together, queries in order of first appearance."""
    places: dict[bytes, int] = {}
    starts, queries, row = [], [], 0
    for text, chunk in zip(chunks, parsed, strict=True):
        for first, start, end in chunk.runs.tolist():
            queries.append(places.setdefault(bytes(text[start:end]), len(places)))
            starts.append(row + first)
        row += chunk.rows
    sizes: Integers = np.diff(np.array([*starts, rows], np.int64)).astype(np.int64)
    of_run = np.array(queries, np.int64)
    offsets = np.zeros(len(places) + 1, np.int64)
    np.add.at(offsets, of_run + 1, sizes)
    np.cumsum(offsets, out=offsets)
    padded, labels = table.padded[:rows], table.labels[:rows]
    documents, order = _documents(path, parsed), None
    if np.any(np.diff(of_run) < 0):
        order = np.argsort(np.repeat(of_run, sizes), kind="stable")
        padded, labels = padded[order], labels[order]
        documents = documents and select_strings(documents, order)
    try:
        names = [name.decode("utf-8") for name in places]
    except UnicodeDecodeError as error:
        raise BadInput(
            "letor.not-utf-8", f"holds query id {brief(error.object)}; expected UTF-8 text", f"{path}"
        ) from None
    return RankingData(padded, labels, offsets, n_features, names, documents), order


def _documents(path: Path, parsed: Sequence[_Parsed]) -> Strings | None:
    data = np.concatenate([chunk.names for chunk in parsed])
    if not data.size:
        return None
    starts = np.cumsum([0] + [chunk.names.size for chunk in parsed])
    ends = [chunk.documents + start for chunk, start in zip(parsed, starts, strict=False)]
    try:
        return strings_from_bytes(data, np.concatenate([starts[:1], *ends]))
    except UnicodeDecodeError:
        raise BadInput("letor.not-utf-8", "holds a document id that is not UTF-8 text", f"{path}") from None


def _refuse_malformed(path: Path, chunks: Sequence[Bytes], parsed: Sequence[_Parsed], places: Sequence[int]) -> None:
    """Raise BadInput for the first malformed line, with the numbers of the next ones."""
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
    kind, sentence = _describe(text, code, position)
    raise BadInput(kind, sentence + more, f"{path}:{line}")


def _describe(text: Bytes, code: int, position: int) -> tuple[str, str]:
    """Return the code and the sentence of what the kernel found wrong with a line."""
    from quorank.data.letor import kernel

    if code == kernel.VALUE:  # the position is behind the colon, but the index belongs to what is shown
        while position > 0 and text[position - 1] not in b" \t\r\n\v\f":
            position -= 1
    rest = bytes(text[position : position + 80]).decode("utf-8", "backslashreplace")
    token = re.split(r"[\s#]", rest, maxsplit=1)[0]
    shown = "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in token[:40])
    shown += "…'" if len(token) > 40 else "'"
    whole, indices = f"from 0 to {kernel.HIGHEST_LABEL}", f"from 1 to {kernel.HIGHEST_INDEX}"
    behind = shown if token else "nothing"
    return {
        kernel.LABEL: ("letor.bad-label", f"found label {shown}, expected an integer {whole}"),
        kernel.NO_QUERY: ("letor.no-query", f"found {behind} behind the label, expected qid:ID"),
        kernel.EMPTY_QUERY: ("letor.no-query", "found 'qid:' without an id, expected qid:ID"),
        kernel.FEATURE: ("letor.bad-feature", f"found {shown}, expected a feature as index:value"),
        kernel.INDEX: ("letor.bad-index", f"found {shown}, expected a feature index {indices}"),
        kernel.VALUE: ("letor.not-a-number", f"found {shown}, expected a finite float32 number behind the colon"),
        kernel.DUPLICATE: ("letor.index-twice", f"found {shown} whose index stands twice, expected each feature once"),
    }[code]
