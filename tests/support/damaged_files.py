"""Damaged copies of files, in every way that a disk, a kill or a person may change them, and what a reader may say."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from archives import zipped

from quorank.errors import BadInput

WORDS = (
    b"\0", b"\xff\xfe", b"\n", b"\r", b"\t\t", b"<", b">", b"&#", b"99999999999999999999", b"-1", b"1e999", b"0e40",
    b"nan", b'"', b"[[[[", b"{", b"}", b"\\u", b"\\ud800", b"From ", b".I ", b"</", b"\xf0\x9f\x98\x80", b"\xc3", b":",
)  # fmt: skip


def mutations(sources: Sequence[bytes], count: int, seed: int = 1) -> Iterator[bytes]:
    """`count` copies with bytes flipped, cut, repeated, put in, or spliced with another source."""
    numbers = random.Random(seed)
    for _ in range(count):
        content = bytearray(numbers.choice(sources))
        for _ in range(numbers.choice((1, 1, 2, 4))):
            at, size = numbers.randrange(len(content) + 1), numbers.choice((1, 2, 8, 64))
            kind = numbers.randrange(6)
            if kind == 0 and at < len(content):
                content[at] ^= 1 << numbers.randrange(8)
            elif kind == 1:
                del content[at:]
            elif kind == 2:
                del content[at : at + size]
            elif kind == 3:
                content[at:at] = content[at : at + size] * numbers.choice((1, 3, 40))
            elif kind == 4:
                content[at:at] = numbers.choice(WORDS)
            else:
                other = numbers.choice(sources)
                content[at:] = other[numbers.randrange(len(other) + 1) :]
        yield bytes(content)


def refusals(read: Callable[[bytes], object], contents: Iterator[bytes]) -> int:
    """How many of the contents were refused, each in one line; anything but a refusal is a failure."""
    refused = 0
    for content in contents:
        try:
            read(content)
        except BadInput as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 1000, error
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} over {content[:400]!r}") from error
    return refused


WRONG: tuple[Any, ...] = (None, True, -1, 0, 2.5, 10**30, "word", "", [], [[1]], {}, {"a": {"b": 1}})
"""Values of every kind, put in the place of another."""
TEXTS = (
    b"", b"\0" * 100, b"\xff\xfe\xfd", b"[" * 100_000, b'{"a":' * 50_000, b"{}", b"[]", b"null", b"NaN", b'{"a": NaN}',
    b'{"a": 1, "a": 2}', b'{"a": ' + b"9" * 5000 + b"}", b'{"a": 1e999}', b'{"a": "\\ud800"}', b"PK\3\4", b"PAR1PAR1PAR1",
)  # fmt: skip
"""What may stand in a file that is to be JSON, TOML, an archive or Parquet."""


def damaged_bytes(content: bytes, flips: int = 16) -> Iterator[bytes]:
    """The content cut off, with single bits flipped, doubled, and of other formats."""
    for share in (0.1, 0.5, 0.9):
        yield content[: int(len(content) * share)]
    yield content[:-1]
    for number in range(flips):
        changed = bytearray(content)
        changed[(2 * number + 1) * len(content) // (2 * flips)] ^= 1 << (number % 8)
        yield bytes(changed)
    yield content + content
    yield from TEXTS


def damaged_json(value: Any) -> Iterator[bytes]:
    """A JSON value with each key dropped, and with each inner value replaced by one of every kind."""
    for path in _paths(value):
        for wrong in WRONG:
            yield json.dumps(_changed(value, path, wrong)).encode()
        if isinstance(path[-1], str):
            yield json.dumps(_changed(value, path, _changed)).encode()


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*above, key)
        yield from _paths(inner, (*above, key))


def _changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) > 1:
        copy[path[0]] = _changed(copy[path[0]], path[1:], new)
    elif new is _changed:
        del copy[path[0]]
    else:
        copy[path[0]] = new
    return copy


def members_of(content: bytes) -> dict[str, bytes]:
    """The members of a zip."""
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def npy(array: Any) -> bytes:
    """An array as NumPy writes it, objects pickled."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def npy_of(header: str, content: bytes = b"") -> bytes:
    """An array file with any header."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + content


def damaged_archives(content: bytes) -> Iterator[bytes]:
    """An archive of arrays with members that are missing, added, renamed, of other kinds, compressed, or pickled."""
    members = members_of(content)
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield zipped(*members.items(), method=compression)
    yield zipped(*members.items(), ("more.npy", npy([1.0])))
    yield zipped(*members.items(), ("../out.npy", npy([1.0])))
    yield zipped(*((name.removesuffix(".npy"), inner) for name, inner in members.items()))
    for name in members:
        others = {other: inner for other, inner in members.items() if other != name}
        yield zipped(*others.items())
        yield zipped(*others.items(), (f"x{name}", members[name]))
        for wrong in (
            b"", b"\x93NUMPY", npy([None, {}]), npy(np.zeros(3, "c16")), npy(np.zeros((2, 2), "f4")), npy("text"),
            npy(np.zeros(0)), npy(np.full((7, 3), np.nan)), npy(np.array(-5)), npy(np.array([2**62])),
            npy_of("{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999, 999999), }"),
            npy_of("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 99999999999999999), }"),
            npy_of("{'descr': '<U999999999', 'fortran_order': False, 'shape': (), }"),
            npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\nsystem\n"),
            npy_of("(" * 9000), npy_of("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (), }", b"\0" * 8),
        ):  # fmt: skip
            yield zipped(*others.items(), (name, wrong))
