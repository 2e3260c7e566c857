"""Words of many texts become numbers: one compiled pass with a hash table over the bytes of the words.

A Python dictionary would hash and compare a new string object for each occurrence; here a string is made once for each
distinct word. Numbers are given in the order of first sight.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.arrays import Bytes, Int32s, Integers, Uint64s
from quorank.compiled import kernel

_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of the hash FNV-1a
_32 = np.uint64(32)
_SPACE, _END_OF_TEXT = 32, 10


class Words:
    """The distinct words seen so far, each with its number."""

    def __init__(self) -> None:
        self._slots = np.full(1 << 14, -1, dtype=np.int32)
        self._hashes = np.empty(1 << 13, dtype=np.uint64)
        self._ends = np.zeros(
            (1 << 13) + 1, dtype=np.int64
        )  # word i lies in _letters[_ends[i] : _ends[i + 1]]
        self._letters = np.empty(1 << 17, dtype=np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def words(self, first: int) -> list[str]:
        """The words from number `first` on."""
        ends = self._ends[first : self._count + 1]
        if len(ends) < 2:
            return []
        text = self._letters[ends[0] : ends[-1]].tobytes()
        places = (ends - ends[0]).tolist()
        return [text[a:b].decode() for a, b in pairwise(places)]

    def scan(self, texts: list[bytes]) -> tuple[Int32s, Integers]:
        """The numbers of all words, and where each text's begin; words are divided by spaces (see `spaced`)."""
        block = np.frombuffer(b"\n".join(texts), dtype=np.uint8)
        numbers = np.empty(len(block) // 2 + 1, dtype=np.int32)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        state = np.array([0, 0, 0, self._count], dtype=np.int64)
        while not _scan(block, self._slots, self._hashes, self._ends, self._letters, state, numbers, offsets):
            self._count = int(state[3])
            self._grow(len(block))
        self._count = int(state[3])
        return numbers[: state[1]], offsets

    def _grow(self, longest: int) -> None:
        """Twice the room for what has run out; `longest` bounds the letters of the next word."""
        capacity = len(self._hashes)
        used = int(self._ends[self._count])
        if used + longest > len(self._letters):
            self._letters = _longer(self._letters, 2 * (used + longest))
        if self._count == capacity:
            self._hashes = _longer(self._hashes, 2 * capacity)
            self._ends = _longer(self._ends, 2 * capacity + 1)
            self._slots = np.full(4 * capacity, -1, dtype=np.int32)
            _refill(self._slots, self._hashes, self._count)


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.empty(size, dtype=array.dtype)
    grown[: len(array)] = array
    return grown


@kernel
def _place(hash_: Any, mask: Any) -> Any:
    return (hash_ ^ (hash_ >> _32)) & mask


@kernel
def _refill(slots: Int32s, hashes: Uint64s, count: int) -> None:
    mask = np.uint64(len(slots) - 1)
    for word in range(count):
        at = _place(hashes[word], mask)
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = word


@kernel
def _scan(
    block: Bytes,
    slots: Int32s,
    hashes: Uint64s,
    ends: Integers,
    letters: Bytes,
    state: Integers,
    numbers: Int32s,
    offsets: Integers,
) -> bool:
    """Go on from `state` (byte, words read, texts read, words known); False when a table is full."""
    byte_at, read, text, known = state[0], state[1], state[2], state[3]
    mask = np.uint64(len(slots) - 1)
    first = -1
    hash_ = _BASIS
    for i in range(byte_at, len(block) + 1):
        byte = block[i] if i < len(block) else np.uint8(_END_OF_TEXT)
        if byte > _SPACE:
            if first < 0:
                first, hash_ = i, _BASIS
            hash_ = (hash_ ^ np.uint64(byte)) * _PRIME
            continue
        if first >= 0:
            size = i - first
            at = _place(hash_, mask)
            while True:
                word = slots[at]
                if word < 0:
                    start = ends[known]
                    if known == len(hashes) or start + size > len(letters):
                        state[0], state[1], state[2], state[3] = first, read, text, known
                        return False
                    slots[at] = known
                    hashes[known] = hash_
                    for j in range(size):
                        letters[start + j] = block[first + j]
                    ends[known + 1] = start + size
                    word = known
                    known += 1
                    break
                if hashes[word] == hash_ and ends[word + 1] - ends[word] == size:
                    same = True
                    for j in range(size):
                        if letters[ends[word] + j] != block[first + j]:
                            same = False
                            break
                    if same:
                        break
                at = (at + np.uint64(1)) & mask
            numbers[read] = word
            read += 1
            first = -1
        if byte == _END_OF_TEXT:
            text += 1
            offsets[text] = read
    state[0], state[1], state[2], state[3] = len(block) + 1, read, text, known
    return True
