"""Parquet and Arrow files: our own columns of numbers, and untrusted tables checked before anything is unpacked."""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, first_line, require
from quorank.files.atomic import read_whole
from quorank.files.untrusted import (
    BYTES_VARIABLE,
    RATIO_VARIABLE,
    file_size,
    limits_from_environment,
    open_plain,
    translate_errors,
)
from quorank.kernels.arrays import Doubles

MOST_COLUMNS = 1 << 17
"""Columns of an untrusted table."""
LONGEST_STRING = 1 << 10
"""Bytes of a string in an untrusted table, on average over a column."""


def parquet_bytes(columns: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    """Encode columns of equal length as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), buffer, compression="zstd")
    return buffer.getvalue()


def read_columns(
    path: Path, required: tuple[str, ...], *, most: int = 1 << 30, digest: str | None = None, code: str = "file.damaged"
) -> dict[str, Doubles]:
    """Read the numeric columns of one of our own Parquet files as float64; nulls are NaN.

    Args:
        path: File that `parquet_bytes` wrote.
        required: Columns that must be there.
        most: Upper bound on the bytes of the file.
        digest: SHA-256 of the file from its manifest. It is what makes the file trusted.
        code: Code of every error.
    """
    content = read_whole(path, most, digest, code)

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(content), use_threads=False)
        columns = {
            name: np.array(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
            for name in table.column_names
        }
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, OverflowError, MemoryError) as cause:
        sentence = f"damaged: not readable as Parquet ({type(cause).__name__}: {first_line(cause)})"
        raise BadInput(code, sentence, str(path)) from None
    missing = [name for name in required if name not in columns]
    require(not missing, code, f"damaged: column {', '.join(missing)} is missing", str(path))
    return columns


def arrow_batches(path: Path, columns: Callable[[Any], list[str]]) -> Iterator[Any]:
    """Yield the record batches of an untrusted Arrow file (Feather version 2), one at a time.

    `columns` returns the names of the wanted columns for a schema. The unpacked size of a batch is checked before it is
    unpacked.
    """
    import mmap

    import pyarrow as pa

    what = "an Arrow file"
    limits, size = limits_from_environment(), file_size(path, f"expected {what}")
    with open_plain(path) as file, translate_errors(path, what):
        require(file.read(6) == b"ARROW1", "file.damaged", f"is not {what} (Feather version 2)", f"{path}")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        source = pa.BufferReader(pa.py_buffer(mapped))
        source.seek(8)
        messages = pa.ipc.MessageReader.open_stream(source)
        first = messages.read_next_message()
        # the library takes any message for a schema, and dies of it
        require(first.type == "schema", "file.damaged", f"is not {what}: it does not begin with a schema", f"{path}")
        schema = pa.ipc.read_schema(first)
        names = set(schema.names)  # raises where one is no UTF-8
    require(len(names) == len(schema), "arrow.column-twice", "has two columns of one name", f"{path}")
    wanted = columns(schema)
    while True:
        with translate_errors(path, what):
            try:
                message = messages.read_next_message()
            except StopIteration:
                return
            if message.type != "record batch":
                sentence = "holds a column of dictionary codes; expected plain columns"
                raise BadInput("arrow.unsupported", sentence, f"{path}")
            unpacked = _unpacked_size(message.metadata.to_pybytes(), message.body)
        sentence = f"holds a part that unpacks to {unpacked:,} bytes, far more than its size"
        hint = f"if you trust it, raise {RATIO_VARIABLE} or {BYTES_VARIABLE}"
        require(unpacked <= limits.most(size), "file.too-large", f"{sentence}; {hint}", f"{path}")
        with translate_errors(path, what):
            batch = pa.ipc.read_record_batch(message, schema).select(wanted)
            batch.validate(full=True)
        yield batch


def _unpacked_size(metadata: bytes, body: Any) -> int:
    """Return the unpacked bytes of a record batch, which are stated before each packed buffer.

    The message is a flatbuffer: the first word of a table leads back to the list of its fields' offsets.
    """

    def field(table: int, number: int) -> int:
        listed = table - int.from_bytes(metadata[table : table + 4], "little", signed=True)
        length = int.from_bytes(metadata[listed : listed + 2], "little")
        at = listed + 4 + 2 * number
        offset = int.from_bytes(metadata[at : at + 2], "little") if at + 2 <= listed + length else 0
        return table + offset if offset else 0

    def behind(at: int) -> int:
        return at + int.from_bytes(metadata[at : at + 4], "little")

    message = behind(0)
    batch = behind(field(message, 2))
    if not field(batch, 3):  # no compression
        return int(body.size)
    buffers = behind(field(batch, 2))
    total = 0
    for number in range(int.from_bytes(metadata[buffers : buffers + 4], "little")):
        place = buffers + 4 + 16 * number
        start, length = struct.unpack_from("<qq", metadata, place)
        if length > 0:
            claimed = int.from_bytes(body.slice(start, 8).to_pybytes(), "little", signed=True)
            total += max(length, claimed)
    return total


def open_table(path: Path, most_bytes: int, code: str = "file.damaged") -> Any:
    """Return the Arrow table of an untrusted Parquet file with columns of numbers and strings.

    A file is rejected before it is unpacked if its rows and columns would take more than `most_bytes`, or if a page claims
    more than its rows can hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        fault = _fault_in(content, most_bytes // 8)
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
_KINDS = _NUMBERS | {6: "BYTE_ARRAY"}
"""Physical types of Parquet that a column may have."""


def _fault_in(content: mmap.mmap, most_rows: int) -> str:
    """Return the first contradiction in the footer and the page headers, or an empty string.

    The footer is parsed here because accessors of pyarrow abort the process on some damaged fields.
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
    if not 1 <= len(schema) <= MOST_COLUMNS or footer[2][0][5] != len(schema):
        return f"claims {len(schema)} columns"
    for column in schema:
        if column.get(1) not in _KINDS or column.get(5):
            return f"a column holds no {' or '.join(_KINDS.values())}"
    if len({column[4] for column in schema}) < len(schema):
        return "has a column twice"
    if sum(group[3] for group in groups) != rows or any(group[3] < 0 for group in groups):
        return "its parts have other rows than it claims"
    for group in groups:
        if len(group[1]) != len(schema):
            return "a part lacks a column"
        for chunk in group[1]:
            if fault := _fault_in_chunk(content, chunk, group[3]):
                return fault
    return ""


def _fault_in_chunk(content: mmap.mmap, chunk: Any, rows: int) -> str:
    if 1 in chunk:
        return "a column lies in another file"
    about = chunk[3]
    # of the first data page and of the dictionary; 0 where there is none, as in a file without rows
    start = min((offset for offset in (about[9], about.get(11, 0)) if offset != 0), default=4)
    widest = 16 if about[1] in _NUMBERS else 16 + LONGEST_STRING
    end, most = start + about[7], 65536 + widest * rows
    if about[5] != rows or about[1] not in _KINDS:
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


def _struct(content: mmap.mmap, at: int, end: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Parse a struct of Thrift's compact protocol; return its fields by number and its end.

    A field is one byte, with the difference to the previous field's number and a type, then its value. A zero byte ends it.
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
            number, at = _zigzag(content, at, end)
        kind = head & 15
        if kind in (1, 2):  # true and false are types
            fields[number] = kind == 1
        else:
            fields[number], at = _value(kind, content, at, end, depth)


def _value(kind: int, content: mmap.mmap, at: int, end: int, depth: int) -> tuple[Any, int]:
    """Parse an integer, double, string, list or struct; return it and its end."""
    if depth > 12:
        raise ValueError("the footer is nested too deep")
    if kind in (1, 2, 3):  # in a list, booleans have a byte each
        return _byte(content, at, end)
    if kind in (4, 5, 6):
        return _zigzag(content, at, end)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(content, at, end)
        if length > end - at:
            raise ValueError("a string ends too early")
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


def _byte(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise ValueError("it ends too early")
    return content[at], at + 1


def _zigzag(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value, at = _varint(content, at, end)
    return (value >> 1) ^ -(value & 1), at


def _varint(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte, at = _byte(content, at, end)
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")
