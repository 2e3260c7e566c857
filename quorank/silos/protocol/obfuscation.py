"""What a document owner sees of a question: the columns of several terms, among them the one that is meant.

CS-F-LTR eq. 4: of the z rows of a question, z1 hold the columns of the term, the others those of terms t' drawn from the
vocabulary. The owner knows the hash functions, since it sketches its own documents with them, and can count for every
term of a dictionary in how many rows the question fits. That gives the published form away at once: each t' fits one
row, the term fits z1. And decoys drawn anew for each question leave the term alone in the intersection of two questions.

`KeyedBlocks` is built against both. A keyed shuffle cuts the vocabulary into blocks of M terms, with terms of like
frequency in the same block; a question about a term is the question about its block, in which every member holds as many
rows as every other. Questions about two terms of a block are equal to the last byte, today and tomorrow, to one owner
and to owners who compare: all that anyone learns is the block. What stays: who knows which terms are asked together, or
how likely each member is, may still guess well.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from quorank.arrays import Int8s, Int32s, Integers
from quorank.draws import Purpose, uniforms
from quorank.errors import require
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.hashing import Places as Remembered

STRATUM = 64
"""Blocks are shuffled among the terms of this many blocks, which stand next to each other in the vocabulary."""


class Places(Protocol):
    """What obfuscation needs of `quorank.silos.sketch.hashing.Hashing`."""

    @property
    def rows(self) -> int: ...

    def places(self, terms: Sequence[str]) -> tuple[Int32s, Int8s]: ...


class RememberedPlaces:
    """A hashing that knows the places of terms it has met: the same question to three owners is hashed once."""

    def __init__(self, hashing: Hashing) -> None:
        self.rows = hashing.rows
        self._remembered = Remembered(hashing)

    def places(self, terms: Sequence[str]) -> tuple[Int32s, Int8s]:
        """(terms, z) columns and (terms, z) signs."""
        return self._remembered.of(terms)


@dataclass(frozen=True)
class Hidden:
    """A term's question: what is sent, and what only the asker knows about it."""

    columns: Int32s  # (vectors, z): all that the owner sees
    vector: int  # which of the vectors holds the term
    rows: Integers  # PV: the rows of that vector which are the term's
    signs: Int8s  # (z,): g(t)


class Obfuscation(Protocol):
    """How many vectors a question takes, and the question itself."""

    def vectors(self, rows: int) -> int: ...

    def hide(self, term: str, hashing: Places, number: int = 0) -> Hidden: ...


@dataclass(frozen=True)
class NoObfuscation:
    """All rows are the term's: the best estimate, and the owner reads the term with the help of a dictionary."""

    def vectors(self, rows: int) -> int:
        """One."""
        return 1

    def hide(self, term: str, hashing: Places, number: int = 0) -> Hidden:
        """The term's own columns."""
        columns, signs = hashing.places([term])
        return Hidden(columns, 0, np.arange(hashing.rows), signs[0])


@dataclass(frozen=True)
class FreshDecoys:
    """Eq. 4 *as published*: z1 random rows are real, in each other row stands another random term, anew each time.

    With a `seed` the draws are addressed by the question's number, for simulation; else they come from the system.
    """

    vocabulary: tuple[str, ...] = field(repr=False)
    real: int = 15  # z1
    seed: int | None = None

    def __post_init__(self) -> None:
        require(len(self.vocabulary) >= 1, "decoys are drawn from a vocabulary, and this one is empty")
        require(self.real >= 1, f"at least one row must be real, got {self.real}")

    def vectors(self, rows: int) -> int:
        """One."""
        require(self.real <= rows, f"{self.real} rows cannot be real of {rows}; choose fewer")
        return 1

    def hide(self, term: str, hashing: Places, number: int = 0) -> Hidden:
        """h_a(t) for a in PV, h_a(t') elsewhere."""
        z = hashing.rows
        self.vectors(z)
        if self.seed is None:
            system = secrets.SystemRandom()
            u = np.array([system.random() for _ in range(2 * z)])
        else:
            u = uniforms(self.seed, Purpose.OBFUSCATION, 2 * z, interaction=number)
        rows = np.sort(np.argsort(u[:z], kind="stable")[: self.real])
        decoys = [self.vocabulary[int(x * len(self.vocabulary))] for x in u[z:]]
        columns, signs = hashing.places([term, *decoys])
        sent = columns[np.arange(1, z + 1), np.arange(z)].copy()
        sent[rows] = columns[0, rows]
        return Hidden(sent[np.newaxis], 0, rows, signs[0])


@dataclass(frozen=True)
class KeyedBlocks:
    """A question about a term is the question about its block of `among` terms, each with at least `real` rows.

    The vocabulary is in order of frequency, the most frequent term first; its last block, of the rarest terms, takes
    what is left over and has up to twice as many terms, with fewer rows each. A vector of z rows has room for z // real
    terms; a block that needs more room takes more vectors. The key is the asker's own: never an owner's, and the same
    for all owners. A term outside of the vocabulary takes the place of a term in a block: hidden among the others, until
    a question about one of them shows the block as it was. So give a vocabulary that holds what will be asked.
    """

    key: bytes = field(repr=False)
    vocabulary: tuple[str, ...] = field(repr=False)
    among: int = 3  # M
    real: int = 10  # z1

    def __post_init__(self) -> None:
        require(16 <= len(self.key) <= 64, f"the key must have 16 to 64 bytes, got {len(self.key)}")
        require(self.among >= 1 and self.real >= 1, "a block has at least one term, with at least one row")
        require(
            len(set(self.vocabulary)) == len(self.vocabulary) >= self.among,
            f"the vocabulary must hold {self.among} different terms or more, and no term twice",
        )

    def vectors(self, rows: int) -> int:
        """How many vectors a question takes: the owner answers each, and counts each."""
        require(self.real <= rows, f"{self.real} rows cannot be real of {rows}; choose fewer")
        return -(-self.among // (rows // self.real))

    def block(self, term: str) -> tuple[str, ...]:
        """The terms among which this one is hidden, itself among them."""
        order, places = self._shuffled
        place = places.get(term)
        if place is not None:
            return self._block(place)
        place = int.from_bytes(self._digest(b"place", term)[:8], "little") % len(order)
        return tuple(term if other == order[place] else other for other in self._block(place))

    def hide(self, term: str, hashing: Places, number: int = 0) -> Hidden:
        """The question about the term's block."""
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
        return Hidden(sent, *where, signs[own])

    @cached_property
    def _shuffled(self) -> tuple[list[str], dict[str, int]]:
        """The vocabulary shuffled within strata, and where each term went."""
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
        """A keyed order of the rows in each vector; the same wherever and whenever it is made."""
        seed = self._digest(b"rows", "\0".join(block))
        words = np.frombuffer(hashlib.shake_256(seed).digest(8 * count * z), dtype="<u8")
        return np.argsort(words.reshape(count, z), axis=1, kind="stable")

    def _digest(self, purpose: bytes, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), key=self.key, digest_size=32, person=purpose).digest()


def owner_guess(places: Int32s, questions: Sequence[Int32s]) -> Integers:
    """For each term of a dictionary, in how many rows it fits the question that it fits worst.

    `places` are the (terms, z) columns of the dictionary. The `questions`, (vectors, z) each, are about the same term,
    which therefore has a high count: that is the owner's guess.
    """
    fits = [np.max([(places == vector).sum(axis=1) for vector in question], axis=0) for question in questions]
    return np.asarray(np.min(fits, axis=0), dtype=np.int64)
