"""Exchange of answers among parties in one process: keys, sketches, questions about all terms, answers, and their price.

Every envelope goes through the relaying server as bytes, and every answer is what `protocol.party` makes of it, so
what was counted here is what a network would carry. For repeatable experiments the group key and all noise are addressed
by a seed; a deployment draws them from the system.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Integers
from quorank.silos.learning.augmentation import TopDocuments
from quorank.silos.learning.holdings import FIELDS, Holding
from quorank.silos.protocol.asker import Answered, KeyedBlocks, NoObfuscation, Obfuscation
from quorank.silos.protocol.budget import Budget
from quorank.silos.protocol.discrete_laplace import AddressedStream, Stream
from quorank.silos.protocol.group import Field, Group
from quorank.silos.protocol.keys import PartyIdentity
from quorank.silos.protocol.messages import Catalogue, Kind
from quorank.silos.protocol.owner import ServedTopK
from quorank.silos.protocol.party import Party
from quorank.silos.protocol.perturbation import AtBuild, Exact, OneSample, Perturbation
from quorank.silos.protocol.relay import Relay, deliver
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape, rank
from quorank.text import Index

SKETCHES = 1 << 20  # in the addresses of the noise in sketches: above all parties
STRICT_COLUMNS = {"body": 1024, "title": 256}


@dataclass(frozen=True)
class SiloProtocol:
    """Parameters of questions about single terms, as CS-F-LTR asks them: perturbation, obfuscation, sketches and budget.

    No question is answered unless a budget is given: each answer names the documents of a whole term, and eight to thirty
    questions about frequent terms disclose a twentieth of an owner's (document, term) pairs, whatever noise leaves answers
    usable (docs/silos/search.md). A ranker from a prior needs none. `published()` is the paper's form.
    """

    kind: ClassVar[str] = "protocol"

    perturbation: Literal["published", "strict", "none"] = "strict"  # noise on answers, or in the sketches
    epsilon: float = 8.0  # ε of that noise
    k: int = 150  # K, documents that an answer names at most
    among: int = 3  # terms among which an asked one is hidden; 1 hides nothing
    shape: Shape | None = None  # of the sketches; None: the recommended one for K
    questions: int = 0  # questions that an owner answers one asker; 0 answers none

    def __post_init__(self) -> None:
        require_range("k", self.k, least=1)
        require_range("among", self.among, least=1)
        require_range("questions", self.questions, least=0)
        self.noise()

    @classmethod
    def published(cls, epsilon: float = 0.5, questions: int = 1_000_000, **chosen: Any) -> SiloProtocol:
        """Return the paper's form: one noise for all cells of an answer, and no bound that matters on questions."""
        return cls("published", epsilon, questions=questions, **chosen)

    def warning(self) -> str | None:
        """Return what members should know of this form before they take part, if anything."""
        if not self.questions or self.perturbation == "strict":
            return None
        return (
            f"answers are perturbed as {self.perturbation!r}: a member that asked about every word of a dictionary "
            "rebuilt 96 % of another's (document, term) pairs, 99 % of them rightly; agree to it only among "
            "parties that may see each other's documents"
        )

    def noise(self) -> Perturbation:
        """Return what owners do to their answers; strict noise is in the sketches before anything is asked."""
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

    def group(self, names: Sequence[str]) -> Group:
        """Return the group of these parties with the fields of this protocol."""
        shapes = {name: self.shape_of(name) for name in FIELDS}
        fields = tuple(Field(name, s.rows, s.columns, s.capacity) for name, s in shapes.items())
        return Group(tuple(names), fields)

    @property
    def statistics_epsilon(self) -> float | None:
        """ε of the shared statistics: with strict answers they have noise too, for as much ε again."""
        return self.epsilon if self.perturbation == "strict" else None


@dataclass(frozen=True, eq=False)
class ExchangedAnswers:
    """Answers that every party received in a session, and what they cost."""

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
    holdings: Sequence[Holding], terms: Sequence[Sequence[str]], protocol: SiloProtocol, seed: int = 1
) -> ExchangedAnswers:
    """Let party i ask all others about terms[i], in both fields."""
    require(len(holdings) >= 2, "silo-group.bad-size", f"a session needs two parties or more, got {len(holdings)}")
    parties, relay = start_session(holdings, protocol, seed)
    numbers = {name: number for number, name in enumerate(parties)}
    for p, party in enumerate(parties.values()):
        for field_name in FIELDS:
            index = getattr(holdings[p].documents, field_name)
            streams = seeded_sketch_noise(seed, field_name, p)
            party.serve(field_name, build_sketches(party.hashing(field_name), field_name, index, protocol, streams))
            held = np.flatnonzero(index.lengths > 0)
            deliver(relay, parties, party.describe(field_name, held.tolist(), index.lengths[held].tolist()))
    found: dict[tuple[int, int, str, str], TopDocuments] = {}
    for asker, (name, party) in enumerate(parties.items()):
        for other in party.group.others(name):
            for field_name in FIELDS:
                asked = party.ask_many(list(terms[asker]), other, field_name)
                deliver(relay, parties, asked)
                for envelope in asked:
                    for answered in party.answers(envelope) or []:
                        key = (asker, numbers[other], field_name, answered.term)
                        found[key] = read_top_documents(answered, protocol.k, protocol.shape_of(field_name))
    announced = {
        (numbers[owner], name): lengths
        for party in parties.values()
        for owner in party.group.others(party.name)
        for name, lengths in announced_lengths({f: party.catalogues[owner, f] for f in FIELDS}).items()
    }
    return ExchangedAnswers(found, announced, _wire(relay, terms), _spent(parties, protocol))


def start_session(holdings: Sequence[Holding], protocol: SiloProtocol, seed: int) -> tuple[dict[str, Party], Relay]:
    """Return parties that have agreed on a key, and the relay between them."""
    names = [f"party-{number}" for number in range(len(holdings))]
    group = protocol.group(names)
    parties = {}
    for name, holding in zip(names, holdings, strict=True):
        parties[name] = Party(
            PartyIdentity(name, seeded_secret(seed, f"identity {name}")),
            group,
            hashing_key=seeded_secret(seed, "hashing"),
            obfuscation=make_obfuscation(holding, protocol, seeded_secret(seed, f"obfuscation {name}")),
            perturbation=protocol.noise(),
            budget=Budget(protocol.questions),
            seed=seed,
        )
    relay = Relay(names)
    deliver(relay, parties, [hello for party in parties.values() for hello in party.hello()])
    return parties, relay


def build_sketches(
    hashing: Hashing, name: str, index: Index, protocol: SiloProtocol, streams: Callable[[int], Stream]
) -> ServedTopK:
    """Build the sketches of a field's documents, with noise where it belongs into the sketches."""
    served = ServedTopK(ReverseTopK(hashing, protocol.shape_of(name)), protocol.noise(), streams)
    held = np.flatnonzero(index.lengths > 0)
    if served.has_noise:
        for document in held.tolist():
            own = slice(index.offsets[document], index.offsets[document + 1])
            served.add(document, [index.vocabulary[t] for t in index.terms[own]], index.counts[own])
    else:
        offsets = np.concatenate(([0], np.cumsum(np.diff(index.offsets)[held])))
        served.structure.add_many(offsets, index.terms, index.counts, index.vocabulary, held)
    return served


def seeded_sketch_noise(seed: int, name: str, number: int) -> Callable[[int], Stream]:
    """Return the noise in a simulated party's sketches, by document."""
    built = SKETCHES + FIELDS.index(name)
    return lambda document: AddressedStream(seed, round_=built, client=number, interaction=document)


def read_top_documents(answered: Answered, k: int, shape: Shape) -> TopDocuments:
    """Rank an answer by algorithm 5; documents that are thought not to hold the term are left out."""
    documents, estimates = rank(answered.cells, answered.signs, answered.rows, k, shape)
    real = estimates > 0.0
    return TopDocuments(documents[real].astype(np.int64), estimates[real])


def seeded_secret(seed: int, purpose: str) -> bytes:
    """Return 32 bytes for a simulation: the same for the same seed, and so no secret at all."""
    return hashlib.blake2b(f"{seed} {purpose}".encode(), digest_size=32, person=b"quorank seeded").digest()


def make_obfuscation(holding: Holding, protocol: SiloProtocol, key: bytes) -> Obfuscation:
    """Return how a party hides what it asks: among terms of its own documents and queries, under a key of its own."""
    if protocol.among == 1:
        return NoObfuscation()
    rows = protocol.shape_of(FIELDS[0]).rows
    index = holding.documents.body
    asked = dict.fromkeys(term for query in holding.queries for term in query)
    known = (index.vocabulary[t] for t in np.argsort(-index.document_frequency, kind="stable"))
    vocabulary = (*known, *(term for term in asked if term not in index.ids))
    real = max(1, rows // protocol.among) if rows > protocol.among else rows
    return KeyedBlocks(key, vocabulary, protocol.among, real)


FREE_NUMBERS, SPARSE = 1 << 16, 64
"""Document numbers of an owner end here, or at so many for each one that is named: their lengths lie in one array."""


def announced_lengths(catalogues: Mapping[str, Catalogue]) -> dict[str, Integers]:
    """Return field → lengths as one owner announced them; 0 for a document that it did not name, whose field is empty.

    Its documents end with the last one that any field names: nothing else is known.
    """
    count = 1 + max(int(catalogue.ids.max(initial=-1)) for catalogue in catalogues.values())
    named = sum(len(catalogue.ids) for catalogue in catalogues.values())
    said = f"a catalogue of {named:,} documents names number {count - 1:,}; number documents from 0 without such gaps"
    require(count <= FREE_NUMBERS + SPARSE * named, "silo-catalogue.too-sparse", said)
    found = {}
    for name, catalogue in catalogues.items():
        found[name] = np.zeros(count, dtype=np.int64)
        found[name][catalogue.ids] = np.maximum(catalogue.lengths, 1)
    return found


def _wire(relay: Relay, terms: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return what crossed the relay."""
    kinds: Counter[str] = Counter()
    for (_, _, kind), traffic in relay.traffic.items():
        kinds[Kind(kind).name.lower()] += traffic.bytes
    return {**asdict(relay.total()), "bytes_by_kind": dict(kinds), "terms_asked": [len(own) for own in terms]}


def _spent(parties: dict[str, Party], protocol: SiloProtocol) -> dict[str, Any]:
    """Return what owners have answered, in all and of the busiest pair of asker and owner."""
    pairs = [(party.ledger, asker) for party in parties.values() for asker in party.group.others(party.name)]
    accounts = [(ledger.questions(asker), ledger.epsilon(asker)) for ledger, asker in pairs]
    questions = max((total for total, _ in accounts), default=0)
    return {
        "questions": sum(total for total, _ in accounts),
        "questions_of_a_pair": questions,
        "epsilon_of_a_pair": max((epsilon for _, epsilon in accounts), default=0.0),
        **protocol.noise().statement(questions),
    }
