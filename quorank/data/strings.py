"""Sequences of many strings, such as document ids, in one Arrow array: no Python object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from quorank.kernels.arrays import Bytes, Integers


class Strings(Sequence[str]):
    """Sequence over an Arrow string array; each access makes one Python string."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Strings(self.array[place])
        return self.array[int(place)].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), 4096):
            yield from self.array[start : start + 4096].to_pylist()


def strings_from_bytes(data: Bytes, offsets: Integers) -> Strings:
    """Return the strings data[offsets[i] : offsets[i + 1]], UTF-8; raises UnicodeDecodeError where they are not."""
    import pyarrow as pa

    array = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        bytes(data).decode("utf-8")
        raise
    return Strings(array)


def to_arrow(strings: Sequence[str]) -> Any:
    """Return the Arrow array of any sequence of strings."""
    import pyarrow as pa

    if isinstance(strings, Strings):
        return strings.array
    return pa.array(list(strings), type=pa.large_string())


def select_strings(strings: Sequence[str], rows: Integers) -> Strings:
    """Return the strings of these rows, in their order."""
    return Strings(to_arrow(strings).take(rows))


def concatenate_strings(parts: Sequence[Sequence[str]]) -> Strings:
    """Return the strings of all parts, one part behind the other."""
    import pyarrow as pa

    return Strings(pa.concat_arrays([to_arrow(part) for part in parts]))
