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
from quorank.files.atomic import read_whole

Arrays = dict[str, npt.NDArray[Any]]
_MARK = b"sha256:"
_COMMENT = len(_MARK) + 64
_KINDS = frozenset("fiubU")
LARGEST = 1 << 31  # bytes of an archive by default
MOST_DIMENSIONS = 4
_LONGEST_HEADER = 1 << 14


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


Expected = Mapping[str, ArrayShape]  # arrays by name; a trailing * stands for any ending


class Unsound(Exception):
    """Fault of an archive, quoted in the error."""


def archive_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Encode arrays as an archive, with a digest at its end."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    body = buffer.getvalue()
    # the last two bytes of a zip without a comment say how long the comment is
    assert body[-2:] == b"\0\0"
    body = body[:-2] + _COMMENT.to_bytes(2, "little") + _MARK
    return body + hashlib.sha256(body).hexdigest().encode()


def read_arrays(path: Path, expected: Expected, *, most: int = LARGEST, digest: str | None = None) -> Arrays:
    """Read an archive that holds the expected arrays and nothing else.

    Args:
        path: File with the bytes of `archive_bytes`.
        expected: Shape of each array by name.
        most: Upper bound on the bytes of the file.
        digest: Expected SHA-256 of the file.

    Raises:
        BadInput: `file.missing`, `file.too-large` or `file.damaged`.
    """
    return parse_arrays(read_whole(path, most, digest), expected, str(path))


def parse_arrays(content: bytes, expected: Expected, where: str, *, advice: str = "") -> Arrays:
    """Return the arrays of an archive in memory; `advice` ends the sentence of every error."""
    try:
        found = _members(content)
        _check(found, expected)
    except Unsound as error:
        raise BadInput("file.damaged", f"damaged ({error}){advice}", where) from None
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise BadInput("file.damaged", f"damaged (no sound archive: {first_line(error)}){advice}", where) from None
    except (KeyError, IndexError, TypeError, OverflowError, MemoryError, UnicodeError, AttributeError) as error:
        raise BadInput("file.damaged", f"damaged (no sound archive: {type(error).__name__}){advice}", where) from None
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
        comment = _MARK + hashlib.sha256(content[:-64]).hexdigest().encode()
        if packed.comment != comment or not content.endswith(comment):
            raise Unsound("its digest does not fit")
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


class ArrayAppender:
    """Writer of a `.npy` file row by row; the header is written last."""

    def __init__(self, path: Path, kind: str, columns: int | None = None) -> None:
        self._file, self._dtype, self._columns = path.open("xb"), np.dtype(f"<{kind}"), columns
        self.rows = 0
        self._write_header()

    def _write_header(self) -> None:
        shape = (self.rows,) if self._columns is None else (self.rows, self._columns)  # NumPy pads for more rows
        head = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, head)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows (n,) or (n, columns)."""
        assert rows.shape[1:] == (() if self._columns is None else (self._columns,))
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data.cast("B") if rows.size else b"")
        self.rows += len(rows)

    def close(self) -> None:
        """Write the header and close the file."""
        self._file.seek(0)
        self._write_header()
        self._file.close()


def map_array(path: Path, expected: ArrayShape, advice: str = "") -> npt.NDArray[Any]:
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
        raise BadInput("file.damaged", f"damaged ({first_line(error)}){advice}", where) from None
    return found


def _array(member: bytes | mmap.mmap, name: str) -> npt.NDArray[Any]:
    """Parse a `.npy` array of format 1.0 or 2.0 whose header fits its bytes; a mapped one stays mapped."""
    head = io.BytesIO(member[:_LONGEST_HEADER])
    reads = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        shape, fortran, dtype = reads[np.lib.format.read_magic(head)](head)
    except Exception as error:  # of NumPy's parser, which raises many kinds
        raise Unsound(f"{name[:60]} is no array ({first_line(error)})") from None
    start = head.tell()
    if dtype.kind not in _KINDS or dtype.hasobject or len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise Unsound(f"{name[:60]} is no array of numbers or strings")
    count = math.prod(shape)
    if count * dtype.itemsize != len(member) - start:
        raise Unsound(f"{name[:60]} claims {count} values and holds {len(member) - start} bytes")
    order: Literal["F", "C"] = "F" if fortran else "C"
    if count == 0 or dtype.itemsize == 0:
        return np.empty(shape, dtype, order=order)
    widest = {"U": 0x10FFFF, "b": 1}.get(dtype.kind)  # of code points, and of booleans
    codes = np.frombuffer(member, np.uint32 if dtype.kind == "U" else np.uint8, offset=start)
    if widest is not None and codes.max() > widest:
        raise Unsound(f"{name[:60]} holds no {'strings' if dtype.kind == 'U' else 'booleans'}")
    array: npt.NDArray[Any] = np.frombuffer(member, dtype, count, start).reshape(shape, order=order)
    return array.copy() if isinstance(member, bytes) else array
