"""Parquet files: columns of numbers, checked against what their footer claims before anything is unpacked.

Files of ours hold numbers alone (`read_columns`); tables of others may have columns of texts beside them (`open_table`).
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, first_line
from quorank.files.atomic import read_whole
from quorank.kernels.arrays import Doubles

MOST_COLUMNS = 64
MOST_FOREIGN_COLUMNS = 1 << 17
"""Columns of a file of ours, and of a table of others."""
Content = bytes | mmap.mmap


def parquet_bytes(columns: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    """Encode columns of equal length as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), buffer, compression="zstd")
    return buffer.getvalue()


def read_columns(
    path: Path, required: tuple[str, ...], *, most_rows: int, digest: str | None = None, code: str = "file.damaged"
) -> dict[str, Doubles]:
    """Read all columns of a Parquet file as float64; nulls are NaN.

    Columns that are no numbers, too many of them, too many rows, and pages that would become larger than their rows can
    be are refused before they are unpacked: memory is bounded by 8 bytes for each of `most_rows` rows of each column.
    """
    content = read_whole(path, 1 << 20 | 16 * MOST_COLUMNS * most_rows, digest, code)
    where = str(path)

    def damaged(what: str) -> BadInput:
        return BadInput(code, f"damaged: {what}", where)

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        fault = _fault_in(content, most_rows, MOST_COLUMNS, _NUMBERS)
        if fault:
            raise damaged(fault)
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
        table.validate(full=True)
        columns = {
            name: np.array(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
            for name in table.column_names
        }
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, OverflowError, MemoryError) as cause:
        raise damaged(f"not readable as Parquet ({type(cause).__name__}: {first_line(cause)})") from None
    missing = [name for name in required if name not in columns]
    if missing:
        raise damaged(f"column {missing[0]} is missing")
    return columns


def open_table(path: Path, most_bytes: int, code: str = "file.damaged") -> Any:
    """Return the Arrow table of a Parquet file of others: columns of numbers and of texts.

    It is refused before it is unpacked where its rows and columns would take more than `most_bytes`, or a page claims more
    than its rows can hold; texts are taken for at most LONGEST_TEXT bytes each.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        fault = _fault_in(content, most_bytes // 8, MOST_FOREIGN_COLUMNS, _NUMBERS | _TEXTS)
        if not fault:
            end = len(content) - 8
            footer, _ = _struct(content, end - int.from_bytes(content[-8:-4], "little"), end)
            claimed = 8 * footer[3] * (len(footer[2]) - 1)
            fault = f"holds {claimed:,} bytes, expected at most {most_bytes:,}" if claimed > most_bytes else ""
        if fault:
            raise BadInput(code, f"not a table of numbers: {fault}", str(path))
        table = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content))).read()
        table.validate(full=True)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, OverflowError, MemoryError) as cause:
        sentence = f"not readable as Parquet ({type(cause).__name__}: {first_line(cause)})"
        raise BadInput(code, sentence, str(path)) from None
    return table


_NUMBERS = {1: "INT32", 2: "INT64", 4: "FLOAT", 5: "DOUBLE"}
"""Physical types of Parquet that a column of ours may have."""
_TEXTS = {6: "BYTE_ARRAY"}
"""Those of texts in tables of others."""
LONGEST_TEXT = 1 << 10


def _fault_in(content: Content, most_rows: int, most_columns: int, kinds: Mapping[int, str]) -> str:
    """What in the footer or in the heads of pages is not as a file of ours has it; nothing where all is.

    The footer is read here and not by pyarrow, whose accessors end the whole process where some fields are damaged.
    """
    if len(content) < 12 or content[:4] != b"PAR1" or content[-4:] != b"PAR1":
        return "not readable as Parquet"
    length = int.from_bytes(content[-8:-4], "little")
    end = len(content) - 8
    if length > end - 4:
        return "its footer is longer than the file"
    footer, _ = _struct(content, end - length, end)
    schema, rows, groups = footer[2][1:], footer[3], footer[4]
    if not 0 <= rows <= most_rows:
        return f"claims {rows} rows, expected at most {most_rows}"
    if not 1 <= len(schema) <= most_columns or footer[2][0][5] != len(schema):
        return f"claims {len(schema)} columns"
    for column in schema:
        if column.get(1) not in kinds or column.get(5):
            return f"a column holds no {' or '.join(kinds.values())}"
    if len({column[4] for column in schema}) < len(schema):
        return "has a column twice"
    if sum(group[3] for group in groups) != rows or any(group[3] < 0 for group in groups):
        return "its parts have other rows than it claims"
    for group in groups:
        if len(group[1]) != len(schema):
            return "a part lacks a column"
        for chunk in group[1]:
            if fault := _fault_in_chunk(content, chunk, group[3], kinds):
                return fault
    return ""


def _fault_in_chunk(content: Content, chunk: Any, rows: int, kinds: Mapping[int, str]) -> str:
    """What is wrong with one column of one part."""
    if 1 in chunk:
        return "a column lies in another file"
    about = chunk[3]
    # of the first data page and of the dictionary; 0 where there is none, as in a file without rows
    start = min((offset for offset in (about[9], about.get(11, 0)) if offset != 0), default=4)
    widest = 16 if about[1] in _NUMBERS else 16 + LONGEST_TEXT
    end, most = start + about[7], 65536 + widest * rows
    if about[5] != rows or about[1] not in kinds:
        return "a column has other values than rows"
    if not 4 <= start <= end <= len(content) or not 0 <= about[6] <= most:
        return "its columns claim more than its rows can hold"
    while start < end:
        head, start = _struct(content, start, end)
        unpacked, packed = head[2], head[3]
        if not (0 <= unpacked <= most and packed >= 0):
            return "a page claims more than its rows can hold"
        start += packed
    return ""


def _struct(content: Content, at: int, end: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A struct in Thrift's compact protocol by the numbers of its fields, and where it ends.

    A field is the difference to the last field's number and a type in one byte, then its value; a zero byte ends it.
    """
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head, at = _byte(content, at, end)
        if head == 0:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _whole(content, at, end)
        kind = head & 15
        if kind in (1, 2):  # true and false are types
            fields[number] = kind == 1
        else:
            fields[number], at = _value(kind, content, at, end, depth)


def _value(kind: int, content: Content, at: int, end: int, depth: int) -> tuple[Any, int]:
    """A value of a type of the compact protocol: whole numbers, doubles, bytes, lists and structs."""
    if depth > 12:
        raise ValueError("the footer is nested too deep")
    if kind in (1, 2, 3):  # in a list, booleans have a byte each
        return _byte(content, at, end)
    if kind in (4, 5, 6):
        return _whole(content, at, end)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(content, at, end)
        if length > end - at:
            raise ValueError("a text ends too early")
        return content[at : at + length], at + length
    if kind in (9, 10):
        head, at = _byte(content, at, end)
        count, inner = head >> 4, head & 15
        if count == 15:
            count, at = _varint(content, at, end)
        if count > end - at:
            raise ValueError("a list ends too early")
        items = []
        for _ in range(count):
            item, at = _value(inner, content, at, end, depth + 1)
            items.append(item)
        return items, at
    if kind == 12:
        return _struct(content, at, end, depth + 1)
    raise ValueError("a field is of an unknown type")


def _byte(content: Content, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise ValueError("it ends too early")
    return content[at], at + 1


def _whole(content: Content, at: int, end: int) -> tuple[int, int]:
    """A signed whole number in zigzag: 0, −1, 1, −2, …"""
    value, at = _varint(content, at, end)
    return (value >> 1) ^ -(value & 1), at


def _varint(content: Content, at: int, end: int) -> tuple[int, int]:
    """A whole number of up to ten bytes with seven bits each, the lowest first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte, at = _byte(content, at, end)
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")
