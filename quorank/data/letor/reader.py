"""Reader of ranking data in LETOR (SVMlight) text: `label qid:ID index:value … # comment`, plain or gzipped.

Labels are integers from 0 to 127; a query id is any token; feature indices run from 1, in any order, and a feature that a
row leaves out is 0; `nan` is read as 0, as published code does; a finite number beyond float32 is read as the largest
float32, because some collections write the largest double for "unknown"; a document id is taken from a comment
`#docid = X`. Blank lines, lines that only hold a comment, tabs, trailing spaces and CRLF are accepted. The rows of a query
need not be adjacent: queries come in order of their first row, and rows of a query in file order. Anything else is rejected
with the file, the line, what was found and what was expected.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.data.ranking import HIGHEST_LABEL, RankingData, Strings, select_strings, stride_of, strings_from_bytes
from quorank.errors import BadInput, brief, require
from quorank.files.untrusted import (
    MOST_LINE,
    RATIO_VARIABLE,
    limits_from_environment,
    line_blocks,
    open_bounded,
    packing_of,
)
from quorank.kernels.arrays import Bytes, Floats, Int8s, Integers

READER_VERSION = 2  # part of every cache key: raise it when the same text is read differently

_SHAPE = "lines like `2 qid:10 1:0.5 2:3`"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NAN = re.compile(r"[+-]?nan", re.IGNORECASE)
_LARGEST = float(np.finfo(np.float32).max)
_PACKED = {".gz": "a gzip", ".bz2": "a bzip2", ".xz": "an xz"}
_CHUNK = 1 << 21  # bytes of a block
_LISTED = 5  # malformed lines behind the first


class LetorBlock(NamedTuple):
    """Rows of some MB of whole lines; those of the last query may go on in the next block."""

    padded: Floats  # (rows, stride)
    labels: Int8s  # (rows,)
    n_features: int
    queries: tuple[bytes, ...]  # (runs,) query id of each run of rows
    starts: Integers  # (runs + 1,) first row of each run
    documents: Integers  # (rows,) where the document id of each row ends in `names`
    names: Bytes
    line: int  # number of the first line
    size: int  # bytes of the text


def read_letor(path: Path) -> RankingData:
    r"""Read a LETOR file, plain or gzipped.

    Args:
        path: File of lines `LABEL qid:QUERY 1:VALUE 2:VALUE … # DOCUMENT`.

    Returns:
        The lists, in the order in which the queries first occur.

    Raises:
        BadInput: A line is malformed; the error names the first one and lists the next ones.

    >>> _ = Path("lists.txt").write_text("0 qid:a 1:0.2 2:0.5\n2 qid:a 1:0.8\n")
    >>> data = read_letor(Path("lists.txt"))
    >>> data.labels.tolist(), data.features[1].tolist()[1]
    ([0, 2], 0.0)
    """
    return read_letor_lines(path)[0]


def read_letor_lines(path: Path) -> tuple[RankingData, Integers | None]:
    """Read one file, and for each of its rows in their order which line with data it was; None where that is the same."""
    path, blocks, bytes_read, bytes_needed = Path(path), list[LetorBlock](), 0, 0
    for block in letor_blocks(path):
        bytes_read, bytes_needed = bytes_read + block.size, bytes_needed + block.padded.nbytes
        _check_size(path, bytes_needed, bytes_read)
        blocks.append(block)
    require(blocks, "letor.empty", f"is empty; expected {_SHAPE}", f"{path}")
    rows, widest = sum(len(block.labels) for block in blocks), max(block.n_features for block in blocks)
    require(rows, "letor.empty", f"holds no rows, only comments and blank lines; expected {_SHAPE}", f"{path}")
    require(widest, "letor.no-features", f"holds no features in its {rows} rows; expected {_SHAPE}", f"{path}")
    return _group(path, blocks, rows, widest)


def letor_blocks(path: Path) -> Iterator[LetorBlock]:
    """Read a plain or packed file of any size, parsing some blocks ahead on all cores."""
    expected = "expected a LETOR text file, plain or .gz"
    meant = None if packing_of(path, expected) else _PACKED.get(path.suffix)
    sentence = f"is not {meant} file although its name ends in {path.suffix}; {expected}"
    require(meant is None, "file.damaged", sentence, f"{path}")
    line, workers = 1, os.cpu_count() or 1
    with open_bounded(path, expected=expected) as file, ThreadPoolExecutor(workers) as pool:
        texts = line_blocks(file, path, _CHUNK)
        empty = memoryview(b"")
        first, second = next(texts, empty), next(texts, empty)
        first = first[3:] if bytes(first[:3]) == b"\xef\xbb\xbf" else first
        # highest feature index below 1,000 of the first line, as a first guess of the width
        head = bytes(first[: MOST_LINE + 1]).partition(b"\n")[0].partition(b"#")[0]
        indices = re.findall(rb"\s(\d{1,3}):", head)
        width = max(map(int, indices), default=0)
        if not second:  # in this thread, whose kernels may be interpreted
            yield from [_parse(path, first, line, width)] if first else []
            return
        waiting = deque([pool.submit(_parse, path, first, line, width)])
        line += _count_lines(first)
        for text in chain([second], texts):
            waiting.append(pool.submit(_parse, path, text, line, width))
            line += _count_lines(text)
            if len(waiting) > workers:
                yield (block := waiting.popleft().result())
                width = max(width, block.n_features)
        yield from (parsed.result() for parsed in waiting)


def _count_lines(text: memoryview | Bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == 10))


def _check_size(path: Path, needed: int, text: int) -> None:
    sentence = f"needs {needed:,} bytes for its rows, far more than its text; if you trust it, raise {RATIO_VARIABLE}"
    require(needed <= limits_from_environment().most(text), "letor.too-large", sentence, f"{path}")


def _parse(path: Path, block: memoryview, line: int, width: int) -> LetorBlock:
    """Parse whole lines, the first of which has the number `line`, probably of `width` features."""
    from quorank.data.letor import kernel

    text = np.frombuffer(block if block[-1] == ord("\n") else bytes(block) + b"\n", np.uint8)
    text.flags.writeable = False  # one compiled kernel for both
    lines = _count_lines(text)
    runs, documents = np.empty((lines, 3), np.int64), np.empty(lines, np.int64)
    names = np.empty(text.size, np.uint8)
    # the shortest feature is `1:x`; untouched pages cost nothing
    hard, bad = np.empty((text.size // 3 + 1, 5), np.int64), np.empty((1000, 3), np.int64)
    while True:
        _check_size(path, 4 * lines * stride_of(width), text.size)
        padded, labels = np.zeros((lines, stride_of(width)), np.float32), np.zeros(lines, np.int8)
        counts, seen = np.zeros(6, np.int64), np.zeros(kernel.HIGHEST_INDEX + 1, np.int64)
        kernel.parse_lines(text, padded, labels, runs, documents, names, hard, bad, counts, seen)
        rows, n_runs, n_hard, n_bad, widest, named = counts.tolist()
        if n_bad or widest <= padded.shape[1]:
            break
        width = widest
    unsettled = _settle_hard(text, padded, hard[:n_hard])
    if n_bad or len(unsettled):
        raise _malformed(path, text, line, sorted([*bad[: min(n_bad, len(bad))].tolist(), *unsettled]))
    queries = tuple(bytes(text[start:end]) for _, start, end in runs[:n_runs].tolist())
    starts = np.append(runs[:n_runs, 0], rows)
    if rows < lines:  # release the memory of lines without data
        padded, labels = padded[:rows].copy(), labels[:rows].copy()
    documents, names = documents[:rows].copy(), names[:named].copy()
    return LetorBlock(padded, labels, widest, queries, starts, documents, names, line, len(block))


def _settle_hard(text: Bytes, padded: Floats, hard: Integers) -> list[list[int]]:
    """Read what the kernel left with Python's float; what is no finite number comes back as malformed."""
    from quorank.data.letor.kernel import VALUE

    malformed: dict[int, list[int]] = {}
    places = (place for first in range(0, len(hard), 65_536) for place in hard[first : first + 65_536].tolist())
    for row, column, start, end, line in places:
        token = bytes(text[start:end]).decode("latin-1")
        value = float(token) if _NUMBER.fullmatch(token) else 0.0 if _NAN.fullmatch(token) else np.inf
        if not np.isfinite(value):
            malformed.setdefault(line, [line, VALUE, start])
        elif column < padded.shape[1]:
            padded[row, column] = max(min(value, _LARGEST), -_LARGEST)
    return list(malformed.values())


def _group(path: Path, blocks: Sequence[LetorBlock], rows: int, width: int) -> tuple[RankingData, Integers | None]:
    """Bring the rows of each query together, queries in order of first appearance."""
    places: dict[bytes, int] = {}
    padded = np.zeros((rows, stride_of(width)), np.float32)
    runs, at = list[tuple[int, int]](), 0
    for block in blocks:
        padded[at : at + len(block.labels), : block.padded.shape[1]] = block.padded
        numbers = [places.setdefault(query, len(places)) for query in block.queries]
        runs += zip((block.starts[:-1] + at).tolist(), numbers, strict=True)
        at += len(block.labels)
    first, of_run = np.array(runs, np.int64).T
    sizes = np.diff(np.append(first, rows))
    offsets = np.append(0, np.cumsum(np.bincount(of_run, sizes))).astype(np.int64)
    labels, documents, order = np.concatenate([block.labels for block in blocks]), _documents(path, blocks), None
    if np.any(np.diff(of_run) < 0):
        order = np.argsort(np.repeat(of_run, sizes), kind="stable")
        padded, labels = padded[order], labels[order]
        documents = documents and select_strings(documents, order)
    try:
        names = [name.decode("utf-8") for name in places]
    except UnicodeDecodeError as error:
        sentence = f"holds query id {brief(error.object)}; expected UTF-8 text"
        raise BadInput("letor.not-utf-8", sentence, f"{path}") from None
    return RankingData(padded, labels, offsets, width, names, documents), order


def _documents(path: Path, blocks: Sequence[LetorBlock]) -> Strings | None:
    data = np.concatenate([block.names for block in blocks])
    if not data.size:
        return None
    starts = np.cumsum([0] + [block.names.size for block in blocks])
    ends = [block.documents + start for block, start in zip(blocks, starts, strict=False)]
    try:
        return strings_from_bytes(data, np.concatenate([starts[:1], *ends]))
    except UnicodeDecodeError:
        raise BadInput("letor.not-utf-8", "holds a document id that is not UTF-8 text", f"{path}") from None


def _malformed(path: Path, text: Bytes, first: int, found: list[list[int]]) -> BadInput:
    """Return the error about the first malformed line of a block, with the numbers of the next ones."""
    from quorank.data.letor import kernel

    line, code, position = found[0]
    more = ", ".join(str(first + other) for other, _, _ in found[1 : 1 + _LISTED])
    more = f"; also malformed: {more}{', …' if len(found) > 1 + _LISTED else ''}" if more else ""
    if code == kernel.VALUE:  # the position is behind the colon, but the index belongs to what is shown
        while position > 0 and text[position - 1] not in b" \t\r\n\v\f":
            position -= 1
    rest = bytes(text[position : position + 80]).decode("utf-8", "backslashreplace")
    token = re.split(r"[\s#]", rest, maxsplit=1)[0]
    shown = "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in token[:40])
    shown += "…'" if len(token) > 40 else "'"
    whole, indices = f"from 0 to {HIGHEST_LABEL}", f"from 1 to {kernel.HIGHEST_INDEX}"
    behind = shown if token else "nothing"
    kind, sentence = {
        kernel.LABEL: ("letor.bad-label", f"found label {shown}, expected an integer {whole}"),
        kernel.NO_QUERY: ("letor.no-query", f"found {behind} behind the label, expected qid:ID"),
        kernel.EMPTY_QUERY: ("letor.no-query", "found 'qid:' without an id, expected qid:ID"),
        kernel.FEATURE: ("letor.bad-feature", f"found {shown}, expected a feature as index:value"),
        kernel.INDEX: ("letor.bad-index", f"found {shown}, expected a feature index {indices}"),
        kernel.VALUE: ("letor.not-a-number", f"found {shown}, expected a finite float32 number behind the colon"),
        kernel.DUPLICATE: ("letor.index-twice", f"found {shown} whose index stands twice, expected each feature once"),
    }[code]
    return BadInput(kind, sentence + more, f"{path}:{first + line}")
