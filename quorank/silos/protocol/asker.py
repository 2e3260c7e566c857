"""Asker's side of a question (CS-F-LTR algorithm 1): hide terms, cut them into envelopes, read what comes back.

What the owner sees of a question are columns of several terms, among them the one that is meant. CS-F-LTR eq. 4: of the z
rows of a question, z1 hold the columns of the term, the others those of terms t' drawn from the vocabulary. The owner knows
the hash functions, since it sketches its own documents with them, and can count for every term of a dictionary in how many
rows the question fits. That gives the published form away at once: each t' fits one row, the term fits z1. And decoys
drawn anew for each question leave the term alone in the intersection of two questions.

`KeyedBlocks` is built against both. A keyed shuffle cuts the vocabulary into blocks of M terms, with terms of like
frequency in the same block; a question about a term is the question about its block, in which every member holds as many
rows as every other. Questions about two terms of a block are equal to the last byte, today and tomorrow, to one owner
and to owners who compare: all that anyone learns is the block. What stays: who knows which terms are asked together, or
how likely each member is, may still guess well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Int8s, Int32s, Integers
from quorank.silos.protocol.group import Field, Group
from quorank.silos.protocol.messages import Answer, Ask, most_vectors
from quorank.silos.sketch.hashing import Hashing, RememberedPlaces
from quorank.silos.sketch.ranking import Cells

STRATUM = 64
"""Blocks are shuffled among the terms of this many blocks, which stand next to each other in the vocabulary."""


TermHashing = Hashing | RememberedPlaces


@dataclass(frozen=True)
class HiddenTerm:
    """Question about one term: what is sent, and what only the asker knows about it."""

    columns: Int32s  # (vectors, z): all that the owner sees
    vector: int  # which of the vectors holds the term
    rows: Integers  # PV: the rows of that vector which are the term's
    signs: Int8s  # (z,): g(t)


class Obfuscation(Protocol):
    """Way to hide a term: how many vectors a question takes in a sketch of z rows, and the question itself."""

    def vectors(self, rows: int) -> int: ...

    def hide(self, term: str, hashing: TermHashing) -> HiddenTerm: ...


@dataclass(frozen=True)
class NoObfuscation:
    """All rows are the term's: the best estimate, and the owner reads the term with the help of a dictionary."""

    def vectors(self, rows: int) -> int:
        """Return 1."""
        return 1

    def hide(self, term: str, hashing: TermHashing) -> HiddenTerm:
        """Return the term's own columns."""
        columns, signs = hashing.places([term])
        return HiddenTerm(columns, 0, np.arange(hashing.rows), signs[0])


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
        size = len(self.key)
        require(16 <= size <= 64, "value.out-of-range", f"must have 16 to 64 bytes, got {size}", "key")
        require_range("among", self.among, least=1)
        require_range("real", self.real, least=1)
        sound = len(set(self.vocabulary)) == len(self.vocabulary) >= self.among
        said = f"must hold {self.among} different terms or more, and no term twice"
        require(sound, "obfuscation.bad-vocabulary", said, "vocabulary")

    def vectors(self, rows: int) -> int:
        """Return how many vectors a question takes: the owner answers each, and counts each."""
        require_range("real", self.real, most=rows)
        return -(-self.among // (rows // self.real))

    def block(self, term: str) -> tuple[str, ...]:
        """Return the terms among which this one is hidden, itself among them."""
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
        """Return a keyed order of the rows in each vector; the same wherever and whenever it is made."""
        seed = self._digest(b"rows", "\0".join(block))
        words = np.frombuffer(hashlib.shake_256(seed).digest(8 * count * z), dtype="<u8")
        return np.argsort(words.reshape(count, z), axis=1, kind="stable")

    def _digest(self, purpose: bytes, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), key=self.key, digest_size=32, person=purpose).digest()


@dataclass(frozen=True)
class Answered:
    """An owner's answer about one term, with what `rank(cells, signs, rows, k, shape)` needs to read it."""

    term: str
    owner: str
    field: str
    cells: Cells
    signs: Int8s  # (z,): g(t)
    rows: Integers  # PV, the rows that are the term's


@dataclass(frozen=True)
class Question:
    """Hidden terms of one envelope: what only the asker knows, and needs to read the answer."""

    terms: tuple[str, ...]
    field: Field
    index: int  # of the field
    hidden: list[HiddenTerm]

    def to_bytes(self) -> bytes:
        """Return all that the owner sees of the question."""
        return Ask(self.index, np.concatenate([each.columns for each in self.hidden])).to_bytes()

    def read(self, text: bytes, owner: str) -> list[Answered]:
        """Read an owner's answer, one for each term."""
        each = len(self.hidden[0].columns)
        answer = Answer.from_bytes(text, owner, each * len(self.hidden), self.field)
        name = self.field.name
        return [
            Answered(term, owner, name, answer.vectors[at * each + hidden.vector], hidden.signs, hidden.rows)
            for at, (term, hidden) in enumerate(zip(self.terms, self.hidden, strict=True))
        ]


class Asker:
    """Maker of questions about a group's fields."""

    def __init__(self, group: Group, obfuscation: Obfuscation, hashing: Callable[[str], Hashing]) -> None:
        self.group, self.obfuscation, self._hashing = group, obfuscation, hashing
        self._places: dict[str, RememberedPlaces] = {}

    def most_terms(self, field: str) -> int:
        """Return how many terms one envelope may ask about."""
        shape = self.group.field(field)
        most = most_vectors(shape) // self.obfuscation.vectors(shape.rows)
        said = f"one question about {field!r} does not fit into an envelope; settle on fewer entries"
        require(most >= 1, "silo-question.too-large", said)
        return most

    def batches(self, terms: Sequence[str], field: str) -> list[tuple[str, ...]]:
        """Cut terms into as many envelopes as they need."""
        most = self.most_terms(field)
        return [tuple(terms[at : at + most]) for at in range(0, len(terms), most)]

    def question(self, terms: Sequence[str], field: str) -> Question:
        """Return the question about terms that fit into one envelope."""
        words, most, shape = tuple(terms), self.most_terms(field), self.group.field(field)
        sound = words and all(isinstance(term, str) and term for term in words)
        require(sound, "silo-question.no-term", "a question is about one term or more, and none of them is empty")
        said = f"{len(words):,} terms are too many for one envelope; ask about {most:,} at a time"
        require(len(words) <= most, "silo-question.too-large", said)
        places = self._places.setdefault(field, RememberedPlaces(self._hashing(field)))
        hidden = [self.obfuscation.hide(term, places) for term in words]
        return Question(words, shape, self.group.fields.index(shape), hidden)
