"""CS-F-LTR's questions about terms and their answers, among parties in one process.

Keys and noise are addressed by a seed, so that experiments repeat. There is no form of this over a network: each answer
names the documents of a whole term, and a party with a dictionary rebuilds another's documents from few questions
(`quorank silo audit`, docs/silos/search.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Int8s, Integers
from quorank.silos.discrete_laplace import AddressedStream, Stream
from quorank.silos.hashing import Hashing, RememberedPlaces, seeded_secret
from quorank.silos.holdings import FIELDS, Holding
from quorank.silos.sketch.augmentation import TopDocuments
from quorank.silos.sketch.count_sketch import CountedField
from quorank.silos.sketch.noise import AtBuild, Exact, OneSample, Perturbation
from quorank.silos.sketch.obfuscation import KeyedBlocks
from quorank.silos.sketch.ranking import Cells
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape, rank
from quorank.text import Index

SKETCHES = 1 << 20  # in the addresses of the noise in sketches: above all parties
STRICT_COLUMNS = {"body": 1024, "title": 256}
WARNING = (
    "a party that asked about every word of a dictionary rebuilt 96 % of another's (document, term) pairs, 99 % of them "
    "correctly; these trainings run in one process only, to reproduce the paper"
)
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class QuestionProtocol:
    """Parameters of questions about single terms: perturbation, obfuscation and sketches."""

    kind: ClassVar[str] = "protocol"

    perturbation: Literal["published", "strict", "none"] = "strict"  # noise on answers, or in the sketches
    epsilon: float = 8.0  # ε of that noise
    k: int = 150  # K, documents that an answer names at most
    among: int = 3  # terms among which an asked one is hidden; 1 hides nothing
    shape: Shape | None = None  # of the sketches; None: the recommended one for K

    def __post_init__(self) -> None:
        require_range("k", self.k, least=1)
        require_range("among", self.among, least=1)
        self.noise()

    def noise(self) -> Perturbation:
        """Return the noise on sketches and answers."""
        if self.perturbation == "none":
            return Exact()
        return OneSample(self.epsilon) if self.perturbation == "published" else AtBuild(self.epsilon)

    def shape_of(self, name: str) -> Shape:
        """Return the shape of a field's sketches. Strict noise fills every cell of every document, so there are few."""
        if self.shape is not None:
            return self.shape
        if self.perturbation == "strict":
            return Shape(columns=STRICT_COLUMNS[name], entries=30_000 * self.k)
        return Shape.recommended(self.k)

    @property
    def statistics_epsilon(self) -> float | None:
        """ε of the shared statistics: with strict answers they have noise too, for as much ε again."""
        return self.epsilon if self.perturbation == "strict" else None


class Answered(NamedTuple):
    """An owner's answer about one term, with what `rank(cells, signs, rows, k, shape)` needs."""

    term: str
    cells: Cells
    signs: Int8s  # (z,): g(t)
    rows: Integers  # PV, the rows that are the term's


class QuestionSession:
    """Parties of one process that ask each other about terms."""

    def __init__(self, holdings: Sequence[Holding], protocol: QuestionProtocol, seed: int = 1) -> None:
        require(len(holdings) >= 2, "silo-group.bad-size", f"a session needs two parties or more, got {len(holdings)}")
        self.holdings, self.protocol, self.seed = tuple(holdings), protocol, seed
        self.noise = protocol.noise()
        self.hashings = {
            name: protocol.shape_of(name).hashing(seeded_secret(seed, f"hashing {name}")) for name in FIELDS
        }
        self._places = {name: RememberedPlaces(hashing) for name, hashing in self.hashings.items()}
        self._sketches: dict[tuple[int, str], ReverseTopK] = {}
        self._obfuscations = [
            make_obfuscation(holding, protocol, seeded_secret(seed, f"obfuscation party-{number}"))
            for number, holding in enumerate(holdings)
        ]
        pairs = [(a, b) for a in range(len(holdings)) for b in range(len(holdings)) if a != b]
        self._messages = Counter({pair: len(FIELDS) for pair in pairs})  # by sender and receiver: they address noise
        self.asked: Counter[tuple[int, int, str]] = Counter()  # (asker, owner, field) → vectors
        self.bytes = 0  # of questions, answers and announced lengths

    def sketch(self, owner: int, name: str) -> ReverseTopK:
        """Return the sketches of an owner's field, built on first use."""
        if (owner, name) not in self._sketches:
            index, streams = getattr(self.holdings[owner].documents, name), seeded_sketch_noise(self.seed, name, owner)
            self._sketches[owner, name] = build_sketches(self.hashings[name], name, index, self.protocol, streams)
        return self._sketches[owner, name]

    def ask(self, asker: int, owner: int, name: str, terms: Sequence[str]) -> list[Answered]:
        """Ask one owner about terms in one field; return its answers (algorithms 1 and 2)."""
        hidden = [self._obfuscations[asker].hide(term, self._places[name]) for term in terms]
        self._messages[asker, owner] += 1
        number = self._messages[asker, owner]
        stream, sketch = (
            AddressedStream(self.seed, round_=asker, client=owner, interaction=number),
            self.sketch(owner, name),
        )
        self._messages[owner, asker] += 1
        found = []
        for term, each in zip(terms, hidden, strict=True):
            vectors = [self._perturbed(sketch.cells(columns), stream) for columns in each.columns]
            found.append(Answered(term, vectors[each.vector], each.signs, each.rows))
        vectors_asked, rows = sum(len(each.columns) for each in hidden), sketch.shape.rows
        self.asked[asker, owner, name] += vectors_asked
        self.bytes += vectors_asked * rows * (4 + 8 + 8 * min(sketch.shape.capacity, max(sketch.documents, 1)))
        return found

    def _perturbed(self, cells: Cells, stream: Stream) -> Cells:
        noisy = self.noise.perturb_answer(cells.documents.astype(np.int64), cells.values.astype(np.int64), stream)
        return cells._replace(values=np.clip(noisy, _INT32.min, _INT32.max).astype(np.int32))

    def lengths(self, owner: int, name: str) -> Integers:
        """Return the (documents,) lengths that an owner announces; 0 for an empty field."""
        exact = getattr(self.holdings[owner].documents, name).lengths
        held = np.flatnonzero(exact > 0)
        stream = AddressedStream(self.seed, round_=owner, client=owner, interaction=FIELDS.index(name))
        noisy = self.noise.perturb_lengths(exact[held].astype(np.int64), self.hashings[name].rows, stream)
        found = np.zeros(len(exact), dtype=np.int64)
        found[held] = np.maximum(noisy, 1)
        return found

    def spent(self) -> dict[str, Any]:
        """Return the questions that owners have answered, in all and of the busiest pair, and the guarantee."""
        pairs: Counter[tuple[int, int]] = Counter()
        epsilons: dict[tuple[int, int], float] = {}
        for (asker, owner, _), count in self.asked.items():
            pairs[asker, owner] += count
            epsilons[asker, owner] = epsilons.get((asker, owner), 0.0) + self.noise.spends(count)
        busiest = max(pairs.values(), default=0)
        return {
            "questions": pairs.total(),
            "questions_of_a_pair": busiest,
            "epsilon_of_a_pair": max(epsilons.values(), default=0.0),
            **self.noise.statement(busiest),
        }


@dataclass(frozen=True, eq=False)
class ExchangedAnswers:
    """Answers of a session to all parties' questions, and their costs."""

    found: dict[tuple[int, int, str, str], TopDocuments] = field(repr=False)  # (asker, owner, field, term)
    announced: dict[tuple[int, str], Integers] = field(repr=False)  # (owner, field) → lengths
    wire: dict[str, Any]
    spent: dict[str, Any]

    def answer(self, asker: int, owner: int, field: str, term: str) -> TopDocuments:
        """Return one owner's answer to one asker about a term."""
        return self.found[asker, owner, field, term]

    def lengths(self, owner: int, field: str) -> Integers:
        """Return the (documents,) lengths that an owner announced."""
        return self.announced[owner, field]


def exchange_answers(
    holdings: Sequence[Holding], terms: Sequence[Sequence[str]], protocol: QuestionProtocol, seed: int = 1
) -> ExchangedAnswers:
    """Ask, for party i, all others about terms[i] in both fields."""
    session, everyone = QuestionSession(holdings, protocol, seed), range(len(holdings))
    found: dict[tuple[int, int, str, str], TopDocuments] = {}
    for asker in everyone:
        for owner in everyone:
            for name in FIELDS if owner != asker and terms[asker] else ():
                for answered in session.ask(asker, owner, name, terms[asker]):
                    key = (asker, owner, name, answered.term)
                    found[key] = read_top_documents(answered, protocol.k, protocol.shape_of(name))
    announced = {(owner, name): session.lengths(owner, name) for owner in everyone for name in FIELDS}
    sent = sum(8 * len(lengths) for lengths in announced.values()) * (len(holdings) - 1)
    wire = {"bytes": session.bytes + sent, "terms_asked": [len(own) for own in terms]}
    return ExchangedAnswers(found, announced, wire, session.spent())


def build_sketches(
    hashing: Hashing, name: str, index: Index, protocol: QuestionProtocol, streams: Callable[[int], Stream]
) -> ReverseTopK:
    """Build the sketches of a field's documents, with noise in every cell where the protocol says so."""
    noise, held = protocol.noise(), np.flatnonzero(index.lengths > 0)
    offsets = np.concatenate(([0], np.cumsum(np.diff(index.offsets)[held])))
    field = CountedField(offsets, index.terms, index.counts, index.vocabulary)
    perturb = (
        (lambda document, table: noise.perturb_table(table, streams(document))) if noise.perturbs_at_build else None
    )
    return ReverseTopK(hashing, protocol.shape_of(name), field, held, perturb)


def seeded_sketch_noise(seed: int, name: str, number: int) -> Callable[[int], Stream]:
    """Return the noise in a simulated party's sketches, by document."""
    built = SKETCHES + FIELDS.index(name)
    return lambda document: AddressedStream(seed, round_=built, client=number, interaction=document)


def read_top_documents(answered: Answered, k: int, shape: Shape) -> TopDocuments:
    """Rank an answer by algorithm 5, without documents whose estimated count is not positive."""
    documents, estimates = rank(answered.cells, answered.signs, answered.rows, k, shape)
    real = estimates > 0.0
    return TopDocuments(documents[real].astype(np.int64), estimates[real])


def make_obfuscation(holding: Holding, protocol: QuestionProtocol, key: bytes) -> KeyedBlocks:
    """Return a party's obfuscation among terms of its own documents and queries."""
    rows = protocol.shape_of(FIELDS[0]).rows
    index = holding.documents.body
    asked = dict.fromkeys(term for query in holding.queries for term in query)
    known = (index.vocabulary[t] for t in np.argsort(-index.document_frequency, kind="stable"))
    vocabulary = (*known, *(term for term in asked if term not in index.ids))
    real = max(1, rows // protocol.among) if rows > protocol.among else rows
    return KeyedBlocks(key, vocabulary, protocol.among, real)
