"""CS-F-LTR's questions about terms and their answers, among parties in one process (§IV, algorithms 1 and 2).

Keys and noise are addressed by a seed, so that experiments repeat. There is no form of this over a network: each answer
names the documents of a whole term, and a party with a dictionary rebuilds another's documents from few questions
(`published_attack`, `quorank silo audit`, docs/results/silos.md).

**Questions.** In the paper's eq. 4, z1 of the z rows of a question hold the columns of the term, the others those of terms
drawn from the vocabulary. The owner has the hash functions and can count for every term of a dictionary in how many rows
the question fits: each decoy fits one row, the term z1; and with new decoys in each question the term alone is in the
intersection of two. `KeyedBlocks` withstands both. A keyed shuffle cuts the vocabulary into blocks of M terms of similar
frequency; a question about a term is the question about its block, in which every member holds as many rows as every
other. Questions about two terms of a block are equal to the last byte, at any time and to any owner: only the block is
revealed. An owner that knows which terms are asked together, or how likely each one is, may still guess better than 1/M.

**Noise.** Neighbouring documents differ in one occurrence of one term. It changes one cell in each of the z rows of the
document's sketch by one, so their L1 sensitivity is z. *As published* (eq. 5) all z cells of an answer carry one Laplace
number. Their differences carry no noise, so two neighbours whose cells differ in some rows only are distinguished with
certainty. Theorem 1 holds for the median of the real rows, which moves by at most one, in one question; the median is not
what is sent. *Strict* noise of scale (z + 1)/ε is added to every cell of a document's sketch, and to its length, before
either is stored. Everything after that is post-processing: ε for a document, for any number of questions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np

from quorank.errors import require, require_choice, require_range
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers
from quorank.silos.count_sketch import MOST_OCCURRENCES, Hashing, seeded_secret
from quorank.silos.discrete_laplace import AddressedStream, SystemStream, draw_noise, occurrence_statement, scale_for
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.search.attack import AttackOutcome, compare_pairs
from quorank.silos.sketch.reverse_top_k import Cells, ReverseTopK, Shape, rank

STRATUM = 64  # blocks whose terms are shuffled together; they are adjacent in the vocabulary
SKETCHES = 1 << 20  # in the addresses of the noise in sketches: above all parties
STRICT_COLUMNS = {"body": 1024, "title": 256}
HORIZONS = {
    "none": "cells are released unchanged",
    "published": "one sample for all cells hides none of their differences: the published ε covers their median only",
    "strict": "any number of questions by any number of parties",
}
_INT32 = np.iinfo(np.int32)


# ---------------------------------------------------------------- questions


@dataclass(frozen=True)
class HiddenTerm:
    """Question about one term."""

    columns: Int32s  # (vectors, z): visible to the owner
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
        drawn = int.from_bytes(self._digest(b"place", term)[:8], "little") % len(order)
        place, last = places.get(term, drawn), len(order) // self.among - 1
        first = min(place // self.among, last)
        block = order[first * self.among : None if first == last else (first + 1) * self.among]
        return tuple(block if term in places else [term if other == order[place] else other for other in block])

    def hide(self, term: str, hashing: Hashing) -> HiddenTerm:
        """Return the question about the term's block."""
        block, count = self.block(term), self.vectors(hashing.rows)
        columns, signs = hashing.places(block)
        sent, own = np.empty((count, hashing.rows), dtype=np.int32), block.index(term)
        places: list[tuple[int, Integers]] = []  # vector and rows of each term
        words = hashlib.shake_256(self._digest(b"rows", "\0".join(block))).digest(8 * sent.size)
        order = np.argsort(np.frombuffer(words, dtype="<u8").reshape(sent.shape), axis=1, kind="stable")
        for vector, members in enumerate(np.array_split(np.arange(len(block)), count)):
            for at, member in enumerate(members):
                rows = np.sort(order[vector, at :: len(members)])
                sent[vector, rows] = columns[member, rows]
                places.append((vector, rows))
        return HiddenTerm(sent, *places[own], signs[own])

    @cached_property
    def _shuffled(self) -> tuple[list[str], dict[str, int]]:
        """The vocabulary shuffled within strata, and the place of each term."""
        size, order = STRATUM * self.among, []
        for start in range(0, len(self.vocabulary), size):
            stratum = self.vocabulary[start : start + size]
            order += sorted(stratum, key=lambda term: self._digest(b"shuffle", term))
        return order, {term: place for place, term in enumerate(order)}

    def _digest(self, purpose: bytes, text: str) -> bytes:
        return hashlib.blake2b(text.encode(), key=self.key, digest_size=32, person=purpose).digest()


# ---------------------------------------------------------------- noise


def one_sample_noise(documents: Integers, epsilon: float, stream: SystemStream) -> Integers:
    """Draw eq. 5's Ñ, as published: one discrete Laplace number of scale 1/ε for all cells of a document."""
    different, which = np.unique(documents, return_inverse=True)
    return draw_noise(stream, scale_for(1, epsilon), len(different))[which]


def strict_table(table: Int32s, epsilon: float, stream: SystemStream) -> Int32s:
    """Add noise to every cell of a document's (z, w) sketch, empty ones included."""
    noise = draw_noise(stream, scale_for(len(table) + 1, epsilon), table.size)
    noisy = np.clip(table + noise.reshape(table.shape), -MOST_OCCURRENCES, MOST_OCCURRENCES)
    return np.asarray(noisy, dtype=np.int32)


def strict_lengths(lengths: Integers, rows: int, epsilon: float, stream: SystemStream) -> Integers:
    """Add the noise of a cell of a sketch of z rows to each length."""
    return np.asarray(lengths + draw_noise(stream, scale_for(rows + 1, epsilon), len(lengths)))


# ---------------------------------------------------------------- sessions


@dataclass(frozen=True)
class QuestionProtocol:
    """Parameters of questions about single terms: perturbation, obfuscation and sketches."""

    perturbation: Literal["published", "strict", "none"] = "strict"  # noise on answers, or in the sketches
    epsilon: float = 8.0  # ε of that noise: of one answer, or of one document
    k: int = 150  # K, documents that an answer names at most
    among: int = 3  # terms among which an asked one is hidden; 1 hides nothing
    shape: Shape | None = None  # of the sketches; None: the recommended one for K

    def __post_init__(self) -> None:
        require_choice("perturbation", self.perturbation, tuple(HORIZONS))
        require_range("k", self.k, least=1)
        require_range("among", self.among, least=1)
        scale_for(1, self.epsilon)

    def shape_of(self, name: str) -> Shape:
        """Return the shape of a field's sketches. Strict noise fills every cell of every document, so there are few."""
        if self.shape is None and self.perturbation == "strict":
            return Shape(columns=STRICT_COLUMNS[name], entries=30_000 * self.k)
        return self.shape or Shape.recommended(self.k)

    @property
    def statistics_epsilon(self) -> float | None:
        """ε of the shared statistics: with strict answers they have noise too, for as much ε again."""
        return self.epsilon if self.perturbation == "strict" else None

    def statement(self, questions: int) -> dict[str, Any]:
        """Return the guarantee after a number of questions of one asker; for published noise also the paper's ε."""
        stated = occurrence_statement(self.perturbation, self.statistics_epsilon, HORIZONS[self.perturbation])
        counted = {"published_epsilon": self.epsilon * questions} if self.perturbation == "published" else {}
        return stated | counted


class QuestionSession:
    """Parties of one process that ask each other about terms; every question is asked once and its answer stored."""

    def __init__(self, holdings: Sequence[Holding], protocol: QuestionProtocol, seed: int = 1) -> None:
        require(len(holdings) >= 2, "silo-group.bad-size", f"a session needs two parties or more, got {len(holdings)}")
        self.holdings, self.protocol, self.seed = tuple(holdings), protocol, seed
        self.asked: Counter[tuple[int, int]] = Counter()  # (asker, owner) → vectors
        self.answer, self.lengths, self._sketch = cache(self._answer), cache(self._lengths), cache(self._made_sketch)
        self._obfuscations = [
            _obfuscation(holding, protocol, seeded_secret(seed, f"obfuscation party-{number}"))
            for number, holding in enumerate(holdings)
        ]

    def _answer(self, asker: int, owner: int, field: str, term: str) -> tuple[Integers, Doubles]:
        """Return one owner's answer about a term, ranked by algorithm 5: documents, and their estimated counts above 0."""
        hidden, cells = self.ask(asker, owner, field, term)
        documents, estimates = rank(cells, hidden.signs, hidden.rows, self.protocol.k, self.protocol.shape_of(field))
        real = estimates > 0.0
        return documents[real].astype(np.int64), estimates[real]

    def ask(self, asker: int, owner: int, field: str, term: str) -> tuple[HiddenTerm, Cells]:
        """Ask one owner about a term in one field; return the question and the answered cells of the term's vector."""
        sketch = self._sketch(owner, field)
        hidden = self._obfuscations[asker].hide(term, sketch.hashing)
        cells = sketch.cells(hidden.columns[hidden.vector])
        if self.protocol.perturbation == "published":
            number = self.asked[asker, owner] + 1
            stream = AddressedStream(self.seed, round_=asker, client=owner, interaction=number)
            noisy = cells.values + one_sample_noise(cells.documents.astype(np.int64), self.protocol.epsilon, stream)
            cells = cells._replace(values=np.clip(noisy, _INT32.min, _INT32.max).astype(np.int32))
        self.asked[asker, owner] += len(hidden.columns)
        return hidden, cells

    def _lengths(self, owner: int, field: str) -> Integers:
        """Return the (documents,) lengths that an owner announces; 0 for an empty field."""
        found: Integers = getattr(self.holdings[owner].documents, field).lengths.astype(np.int64)
        if self.protocol.perturbation == "strict":
            held, rows = np.flatnonzero(found > 0), self.protocol.shape_of(field).rows
            stream = AddressedStream(self.seed, round_=owner, client=owner, interaction=FIELDS.index(field))
            found[held] = np.maximum(strict_lengths(found[held], rows, self.protocol.epsilon, stream), 1)
        return found

    @property
    def spent(self) -> dict[str, Any]:
        """Questions that owners have answered, in all and of the busiest pair, and the guarantee."""
        busiest = max(self.asked.values(), default=0)
        counted = {"questions": self.asked.total(), "questions_of_a_pair": busiest}
        return counted | self.protocol.statement(busiest)

    def _made_sketch(self, owner: int, field: str) -> ReverseTopK:
        """Build the sketches of an owner's field, with noise where it is strict."""

        def perturb(document: int, table: Int32s) -> Int32s:
            round_ = SKETCHES + FIELDS.index(field)
            stream = AddressedStream(self.seed, round_=round_, client=owner, interaction=document)
            return strict_table(table, self.protocol.epsilon, stream)

        index, key = getattr(self.holdings[owner].documents, field), seeded_secret(self.seed, f"hashing {field}")
        noise = perturb if self.protocol.perturbation == "strict" else None
        return ReverseTopK(key, self.protocol.shape_of(field), index, noise)


def _obfuscation(holding: Holding, protocol: QuestionProtocol, key: bytes) -> KeyedBlocks:
    """Return a party's obfuscation among the terms of its documents and queries."""
    rows, index = protocol.shape_of(FIELDS[0]).rows, holding.documents.body
    known = (index.vocabulary[t] for t in np.argsort(-index.document_frequency, kind="stable"))
    vocabulary = tuple(dict.fromkeys((*known, *(term for query in holding.queries for term in query))))
    real = max(1, rows // protocol.among) if rows > protocol.among else rows
    return KeyedBlocks(key, vocabulary, protocol.among, real)


def published_attack(
    holdings: Sequence[Holding], owner: int, asker: int, dictionary: Sequence[str], seed: int = 1
) -> AttackOutcome:
    """Ask about every word: a document that stands in the word's cell in every row holds the word."""
    session = QuestionSession(holdings, QuestionProtocol("published", epsilon=0.5), seed)
    told: set[tuple[int, str]] = set()
    for term in dictionary:
        hidden, cells = session.ask(asker, owner, "body", term)
        rows = [cells.documents[cells.offsets[row] : cells.offsets[row + 1]].tolist() for row in hidden.rows]
        told |= {(document, term) for document in set(rows[0]).intersection(*rows[1:])}
    return compare_pairs(holdings[owner].documents.body, told, len(dictionary), refused=False)
