"""Many short texts in one Arrow array: document ids of millions of rows without as many Python objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from quorank.arrays import Bytes, Integers


class Strings(Sequence[str]):
    """A read-only sequence over an Arrow string array; a text becomes an object when it is asked for."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Strings: ...
    def __getitem__(self, place: int | slice) -> str | Strings:
        if isinstance(place, slice):
            return Strings(self.array[place])
        if not -len(self) <= place < len(self):
            raise IndexError(f"{place} of {len(self)} texts")
        text: str = self.array[int(place) % len(self)].as_py()
        return text

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), 4096):
            yield from self.array[start : start + 4096].to_pylist()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Strings({len(self)})"


def from_bytes(data: Bytes, offsets: Integers) -> Strings:
    """Texts that stand one behind the other in UTF-8; raises UnicodeDecodeError where they are not."""
    import pyarrow as pa

    array = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        bytes(data).decode("utf-8")
        raise
    return Strings(array)


def to_arrow(texts: Sequence[str]) -> Any:
    """The Arrow array of any sequence of texts."""
    import pyarrow as pa

    if isinstance(texts, Strings):
        return texts.array
    return pa.array(list(texts), type=pa.large_string())


def take(texts: Strings, rows: Integers) -> Strings:
    return Strings(texts.array.take(rows))


def concatenate(parts: Sequence[Sequence[str]]) -> Strings:
    import pyarrow as pa

    return Strings(pa.concat_arrays([to_arrow(part) for part in parts]))
