"""Hiding an asked term among others (CS-F-LTR algorithm 1).

The owner sees columns of several terms, one of which is meant. In CS-F-LTR eq. 4, z1 of the z rows of a question hold the
columns of the term, the others those of terms t' drawn from the vocabulary. The owner has the hash functions, since it
sketches its own documents with them, and can count for every term of a dictionary in how many rows the question fits.
That breaks the published form: each t' fits one row, the term fits z1. And with new decoys in each question the term
alone is in the intersection of two questions.

`KeyedBlocks` withstands both. A keyed shuffle cuts the vocabulary into blocks of M terms of similar frequency; a question
about a term is the question about its block, in which every member holds as many rows as every other. Questions about two
terms of a block are equal to the last byte, at any time and to any owner: only the block is revealed. An owner that knows
which terms are asked together, or how likely each one is, may still guess better than 1/M.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Int8s, Int32s, Integers
from quorank.silos.hashing import Hashing, RememberedPlaces

STRATUM = 64
"""Blocks whose terms are shuffled together; they are adjacent in the vocabulary."""


TermHashing = Hashing | RememberedPlaces


@dataclass(frozen=True)
class HiddenTerm:
    """Question about one term."""

    columns: Int32s  # (vectors, z): what the owner sees
    vector: int  # place of the vector that holds the term
    rows: Integers  # PV: rows of that vector with the columns of the term
    signs: Int8s  # (z,): g(t)


@dataclass(frozen=True)
class KeyedBlocks:
    """A question about a term is the question about its block of `among` terms, each with at least `real` rows.

    The vocabulary is in order of frequency, the most frequent term first; its last block, of the rarest terms, takes the
    remainder and has up to twice as many terms, with fewer rows each. A vector of z rows holds z // real terms; larger
    blocks take several vectors. The key is the asker's own, the same for all owners. A term outside the vocabulary takes
    the place of a term in a block, and is hidden until a question about another term shows the block as it was.
    """

    key: bytes = field(repr=False)
    vocabulary: tuple[str, ...] = field(repr=False)
    among: int = 3  # M; 1 hides nothing
    real: int = 10  # z1

    def __post_init__(self) -> None:
        size = len(self.key)
        require(16 <= size <= 64, "value.out-of-range", f"must have 16 to 64 bytes, got {size}", "key")
        require_range("among", self.among, least=1)
        require_range("real", self.real, least=1)
        sound = len(set(self.vocabulary)) == len(self.vocabulary) >= self.among
        said = f"must hold at least {self.among} terms, each once"
        require(sound, "obfuscation.bad-vocabulary", said, "vocabulary")

    def vectors(self, rows: int) -> int:
        """Return the number of vectors of a question; the owner answers and counts each."""
        require_range("real", self.real, most=rows)
        return -(-self.among // (rows // self.real))

    def block(self, term: str) -> tuple[str, ...]:
        """Return the block of a term, which contains it."""
        order, places = self._shuffled
        if term in places:
            return self._block(places[term])
        place = int.from_bytes(self._digest(b"place", term)[:8], "little") % len(order)
        return tuple(term if other == order[place] else other for other in self._block(place))

    def hide(self, term: str, hashing: TermHashing) -> HiddenTerm:
        """Return the question about the term's block."""
        z, block = hashing.rows, self.block(term)
        count = self.vectors(z)
        columns, signs = hashing.places(block)
        sent = np.empty((count, z), dtype=np.int32)
        own = block.index(term)
        where: tuple[int, Integers] = (0, np.empty(0, dtype=np.int64))
        order = self._row_order(block, count, z)
        for vector, members in enumerate(np.array_split(np.arange(len(block)), count)):
            for at, member in enumerate(members):
                rows = np.sort(order[vector, at :: len(members)])
                sent[vector, rows] = columns[member, rows]
                if member == own:
                    where = vector, rows
        return HiddenTerm(sent, *where, signs[own])

    @cached_property
    def _shuffled(self) -> tuple[list[str], dict[str, int]]:
        """The vocabulary shuffled within strata, and the place of each term."""
        size, order = STRATUM * self.among, []
        for start in range(0, len(self.vocabulary), size):
            stratum = self.vocabulary[start : start + size]
            order += sorted(stratum, key=lambda term: self._digest(b"shuffle", term))
        return order, {term: place for place, term in enumerate(order)}

    def _block(self, place: int) -> tuple[str, ...]:
        order, _ = self._shuffled
        block = min(place // self.among, len(order) // self.among - 1)
        is_last = block == len(order) // self.among - 1
        return tuple(order[block * self.among : None if is_last else (block + 1) * self.among])

    def _row_order(self, block: tuple[str, ...], count: int, z: int) -> Integers:
        """Return a keyed order of the rows in each vector."""
        seed = self._digest(b"rows", "\0".join(block))
        words = np.frombuffer(hashlib.shake_256(seed).digest(8 * count * z), dtype="<u8")
        return np.argsort(words.reshape(count, z), axis=1, kind="stable")

    def _digest(self, purpose: bytes, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), key=self.key, digest_size=32, person=purpose).digest()
