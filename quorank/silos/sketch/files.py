"""An RTK-Sketch as a file: a line of JSON, the arrays, and a keyed checksum over both.

The checksum is BLAKE2b under the hashing's own key, so that a file which somebody without the key has altered is refused
like one that a disk has damaged. The file holds no key and no term; it does hold documents' numbers and values, and
belongs to its owner alone.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.files import write_whole
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.reverse_top_k import ReverseTopK
from quorank.silos.sketch.shape import Shape

FORMAT = "quorank reverse top-k sketch"
VERSION = 1
_CHECKSUM = 32
_ARRAYS = (
    ("counts", "<i4"),
    ("floors", "<i4"),
    ("lows", "<i8"),
    ("entries", "<i8"),
    ("present", "|u1"),
)


def save(sketch: ReverseTopK, path: Path | str) -> Path:
    """Write a structure; the file appears complete or not at all."""
    pool = sketch._pool.arrays
    arrays: dict[str, npt.NDArray[Any]] = {
        "counts": pool.counts,
        "floors": pool.floors,
        "lows": pool.lows,
        "entries": sketch._pool.listing(),
        "present": sketch._present,
    }
    head = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": sketch.hashing.fingerprint(),
        "shape": asdict(sketch.shape),
        "limit": sketch.limit,
        "documents": len(sketch),
        "lengths": {name: len(array) for name, array in arrays.items()},
    }
    content = json.dumps(head).encode() + b"\n"
    content += b"".join(np.ascontiguousarray(arrays[name], dtype=kind).tobytes() for name, kind in _ARRAYS)
    return write_whole(path, content + _checksum(sketch.hashing, content))


def load(path: Path | str, hashing: Hashing) -> ReverseTopK:
    """Read a structure that was saved under the same key, z and w."""
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from None
    head = _head(file, content)
    require(
        head["version"] == VERSION,
        f"{file}: version {head['version']} of the sketch format; this program reads version {VERSION}",
    )
    require(
        head.get("fingerprint") == hashing.fingerprint(),
        f"{file}: this sketch was made with another key, or another number of rows or columns; build it anew or load it "
        "with the hashing that made it",
    )
    body, checksum = content[:-_CHECKSUM], content[-_CHECKSUM:]
    require(checksum == _checksum(hashing, body), f"{file}: the file is damaged; build the sketch anew")
    arrays, at = {}, content.index(b"\n") + 1
    for name, kind in _ARRAYS:
        arrays[name] = np.frombuffer(content, dtype=kind, count=head["lengths"][name], offset=at)
        at += arrays[name].nbytes
    sketch = ReverseTopK(hashing, Shape(**head["shape"]))
    present = arrays.pop("present")
    sketch._pool.restore(**arrays, limit=head["limit"])
    sketch._present, sketch._n = present.copy(), head["documents"]
    return sketch


def _head(file: Path, content: bytes) -> dict[str, Any]:
    """The first line, if it is that of a sketch."""
    try:
        head = json.loads(content[: content.index(b"\n", 0, 1 << 16)])
        known = head["format"] == FORMAT and isinstance(head["version"], int)
    except (ValueError, KeyError, TypeError):
        known = False
    require(
        known, f"{file}: not a saved sketch, or its beginning is damaged; expected a file that `save` wrote"
    )
    return dict(head)


def _checksum(hashing: Hashing, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=hashing.key, digest_size=_CHECKSUM, person=b"quorank sketch").digest()
