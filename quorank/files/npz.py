"""Checked archives of arrays (`.npz`), and mapped arrays (`.npy`).

An archive is a zip of stored `.npy` members, as `numpy.savez` writes it, with a SHA-256 of its bytes in the zip's comment.
The reader accepts only uncompressed members without pickled objects, with exactly the expected names, types and shapes. It
compares the claimed sizes with the actual bytes before it makes an array, so that memory is bounded by twice the file.

Arrays larger than memory are single `.npy` files: `ArrayAppender` writes one row by row, `map_array` maps it.
"""

from __future__ import annotations

import hashlib
import io
import math
import mmap
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, first_line
from quorank.files.atomic import read_whole, write_whole

Arrays = dict[str, npt.NDArray[Any]]
_MARK = b"sha256:"
_COMMENT = len(_MARK) + 64
_HEADER = re.compile(
    rb"\{'descr': '([<|][a-zA-Z]\d{1,9})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,18}, ?)*(?:\d{1,18})?)\), \} *\n"
)
_KINDS = frozenset("fiubU")
LARGEST = 1 << 31
"""Bytes of an archive, unless its reader knows better."""
MOST_DIMENSIONS = 4


@dataclass(frozen=True)
class ArrayShape:
    """Expected array: its type ("f8", "i8", "U" for strings, "" for any) and its lengths, None for any length."""

    kind: str
    shape: tuple[int | None, ...] | None = None  # None: any
    optional: bool = False
    finite: bool = False

    def misfit(self, array: npt.NDArray[Any]) -> str:
        """Return the first contradiction of an array to this shape; empty if it fits."""
        kind = array.dtype.str[1:]
        if self.kind and kind != self.kind and not (self.kind == "U" and kind.startswith("U")):
            return f"has numbers of type {kind}, expected {self.kind}"
        if self.shape is not None:
            fits = array.ndim == len(self.shape)
            fits = fits and all(want in (None, have) for want, have in zip(self.shape, array.shape, strict=True))
            if not fits:
                wanted = ", ".join("any" if want is None else str(want) for want in self.shape)
                return f"has the shape {array.shape}, expected ({wanted})"
        if self.finite and not np.isfinite(array).all():
            return "holds NaN or infinity"
        return ""


Expected = Mapping[str, ArrayShape]
"""Arrays by name; a name that ends with * stands for all names that begin so."""


class Unsound(Exception):
    """Fault of an archive, for the sentence of its error."""


def archive_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Encode arrays as an archive, with a digest at its end."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    body = buffer.getvalue()
    # the last two bytes of a zip without a comment say how long the comment is
    assert body[-2:] == b"\0\0"
    body = body[:-2] + _COMMENT.to_bytes(2, "little") + _MARK
    return body + hashlib.sha256(body).hexdigest().encode()


def write_arrays(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], *, durable: bool = False, private: bool = True
) -> Path:
    """Write an archive, whole or not at all; readable by its owner alone unless told otherwise."""
    return write_whole(path, archive_bytes(arrays), durable=durable, private=private)


def read_arrays(
    path: Path,
    expected: Expected,
    *,
    most: int = LARGEST,
    digest: str | None = None,
    code: str = "file.damaged",
    advice: str = "",
) -> Arrays:
    """Read an archive that holds the expected arrays and nothing else.

    Args:
        path: File that `write_arrays` wrote.
        expected: Shape of each array by name.
        most: Upper bound on the bytes of the file.
        digest: Expected SHA-256 of the file.
        code: Code of every error.
        advice: End of every error's sentence.
    """
    content = read_whole(path, most, digest, code, advice)
    return parse_arrays(content, expected, str(path), code=code, advice=advice)


def parse_arrays(
    content: bytes, expected: Expected, where: str = "", *, code: str = "file.damaged", advice: str = ""
) -> Arrays:
    """Return the arrays of an archive in memory; the arguments are those of `read_arrays`."""
    try:
        found = _members(content)
        _check(found, expected)
    except Unsound as error:
        raise BadInput(code, f"damaged ({error}){advice}", where) from None
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise BadInput(code, f"damaged (no sound archive: {first_line(error)}){advice}", where) from None
    except (KeyError, IndexError, TypeError, OverflowError, MemoryError, UnicodeError, AttributeError) as error:
        raise BadInput(code, f"damaged (no sound archive: {type(error).__name__}){advice}", where) from None
    return found


def _check(found: Arrays, expected: Expected) -> None:
    for name, array in found.items():
        family = next((key for key in expected if key.endswith("*") and name.startswith(key[:-1])), None)
        shape = expected.get(name) or (expected[family] if family else None)
        if shape is None or name.endswith("*"):
            raise Unsound(f"{name[:60]!r} is no array of this file")
        if fault := shape.misfit(array):
            raise Unsound(f"{name[:60]} {fault}")
    for name, shape in expected.items():
        if not (shape.optional or name.endswith("*") or name in found):
            raise Unsound(f"{name} is missing")


def _members(content: bytes) -> Arrays:
    """Return the arrays of a zip of stored `.npy` members, each checked against the actual bytes."""
    arrays: Arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        _check_digest(content, packed.comment)
        infos = packed.infolist()
        if sum(info.file_size for info in infos) > len(content):
            raise Unsound("its members claim more bytes than it has")
        for info in infos:
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in arrays:
                raise Unsound(f"the member {info.filename[:60]!r}")
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
                raise Unsound(f"{name[:60]} is compressed or encrypted")
            arrays[name] = _array(packed.read(info), name)
    return arrays


def _check_digest(content: bytes, comment: bytes) -> None:
    body, stated = content[:-64], content[-64:]
    sound = len(comment) == _COMMENT and comment.startswith(_MARK)
    if not sound or hashlib.sha256(body).hexdigest().encode() != stated:
        raise Unsound("its digest does not fit")


class ArrayAppender:
    """Writer of a `.npy` file row by row; the header is written last."""

    _HEADER_BYTES = 128  # bytes of the header

    def __init__(self, path: Path, kind: str, columns: int | None = None) -> None:
        self._file, self._dtype, self._columns = path.open("xb"), np.dtype(f"<{kind}"), columns
        self.rows = 0
        self._file.write(bytes(self._HEADER_BYTES))

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows (n,) or (n, columns)."""
        assert rows.shape[1:] == (() if self._columns is None else (self._columns,))
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data.cast("B") if rows.size else b"")
        self.rows += len(rows)

    def close(self) -> None:
        """Write the header and close the file."""
        shape = f"({self.rows},)" if self._columns is None else f"({self.rows}, {self._columns})"
        kind = self._dtype.str.replace("=", "<")
        text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\1\0" + (self._HEADER_BYTES - 10).to_bytes(2, "little"))
        self._file.write(text.ljust(self._HEADER_BYTES - 11) + b"\n")
        self._file.close()


def map_array(path: Path, expected: ArrayShape, code: str = "file.damaged", advice: str = "") -> npt.NDArray[Any]:
    """Map an expected `.npy` file into memory, copied on write."""
    where = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size < 10:  # a pipe would be waited for
            raise Unsound("it is no array")
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        found = _array(mapped, path.name)
        if fault := expected.misfit(found):
            raise Unsound(f"it {fault}")
    except FileNotFoundError:
        raise BadInput("file.missing", f"no such file{advice}", where) from None
    except (Unsound, OSError, ValueError) as error:
        raise BadInput(code, f"damaged ({first_line(error)}){advice}", where) from None
    return found


def _array(member: bytes | mmap.mmap, name: str) -> npt.NDArray[Any]:
    """Parse a `.npy` array of format 1.0 or 2.0 whose header fits its bytes; a mapped one stays mapped."""
    if member[:6] != b"\x93NUMPY" or member[6:8] not in (b"\1\0", b"\2\0"):
        raise Unsound(f"{name[:60]} is no array")
    width = 2 if member[6] == 1 else 4
    start = 8 + width + int.from_bytes(member[8 : 8 + width], "little")
    header = _HEADER.fullmatch(member, 8 + width, start)
    if header is None or header.end() != start or start > len(member):
        raise Unsound(f"{name[:60]} has no header of an array of numbers or texts")
    kind = header.group(1).decode()
    order: Literal["F", "C"] = "F" if header.group(2) == b"True" else "C"
    if kind[1] not in _KINDS:
        raise Unsound(f"{name[:60]} holds neither numbers nor texts")
    shape = tuple(int(length) for length in header.group(3).replace(b" ", b"").split(b",") if length)
    if len(shape) > MOST_DIMENSIONS:
        raise Unsound(f"{name[:60]} has {len(shape)} dimensions")
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise Unsound(f"{name[:60]} holds numbers of the unknown type {kind}") from None
    count = math.prod(shape)
    if count * dtype.itemsize != len(member) - start:
        raise Unsound(f"{name[:60]} claims {count} values and holds {len(member) - start} bytes")
    if count == 0 or dtype.itemsize == 0:
        return np.empty(shape, dtype, order=order)
    if kind[1] == "U" and np.frombuffer(member, np.uint32, offset=start).max() > 0x10FFFF:
        raise Unsound(f"{name[:60]} holds no text")
    if kind[1] == "b" and np.frombuffer(member, np.uint8, offset=start).max() > 1:
        raise Unsound(f"{name[:60]} is neither true nor false")
    array: npt.NDArray[Any] = np.frombuffer(member, dtype, count, start).reshape(shape, order=order)
    return array.copy() if isinstance(member, bytes) else array
