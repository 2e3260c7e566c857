"""Small groups of parties on a network in memory, for tests of silo sessions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from joint_ranker import joint_ranker

from quorank.federation.declined import Declined
from quorank.federation.transport import BUSY, Failure, Memory
from quorank.party.party import SiloParty
from quorank.service.silo_driver import SiloDriver
from quorank.service.silo_server import SiloServer
from quorank.silos.generated import Generator
from quorank.silos.learning.augmentation import Augment
from quorank.silos.learning.comparison import SiloSetting
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.holdings import Holding, generated_holdings
from quorank.silos.learning.instances import Lists
from quorank.silos.learning.training import Averaging, RoundRobin
from quorank.silos.protocol.budget import BudgetLedger
from quorank.silos.protocol.terms import SiloTerms
from quorank.silos.sketch.reverse_top_k import Shape
from quorank.text import Index, IndexedDocuments

SEED = 5
NAMES = ("north", "south", "west")
GENERATOR = Generator(parties=3, documents=40, queries=10, body=30, vocabulary=500, topics=6, topic_terms=30)


def renamed(holding: Holding) -> Holding:
    """The same party with words and ids long enough to be looked for among random bytes."""

    def index(old: Index) -> Index:
        words = [2 * word for word in old.vocabulary]
        return replace(old, vocabulary=words, ids={word: at for at, word in enumerate(words)})

    documents = holding.documents
    return Holding(
        holding.name,
        IndexedDocuments(
            tuple(f"document {name}" for name in documents.ids), index(documents.body), index(documents.title)
        ),
        tuple(f"query {name}" for name in holding.query_ids),
        tuple(tuple(2 * word for word in query) for query in holding.queries),
        holding.grades,
    )


HOLDINGS = tuple(renamed(holding) for holding in generated_holdings(GENERATOR, SEED))
SHAPE = Shape(rows=2, columns=128, capacity=60, entries=10_000)
TRAININGS = {"round-robin": RoundRobin(turns=7, steps=4), "averaging": Averaging(rounds=3, steps=4)}


def terms_of(
    perturbation: str = "published",
    training: str = "round-robin",
    weights: tuple[float, ...] = (1.0, 0.0, 3.0),
    seed: int | None = SEED,
    questions: int = 1_000_000,
) -> SiloTerms:
    setting = SiloSetting(
        labelled=(4,),
        asked=3,
        tested=5,
        lists=Lists(depth=10, random=6),
        training=TRAININGS[training],
        augment=Augment(take=8, negatives=8, weights=weights),
    )
    protocol = SiloProtocol(perturbation, 0.5, k=10, shape=SHAPE, questions=questions)
    return SiloTerms("rehearsal", NAMES, protocol, setting, seed)


_KNOWN: dict[bytes, np.ndarray] = {}


def expected(terms: SiloTerms) -> np.ndarray:
    """What the same parties come to in one process."""
    if terms.digest() not in _KNOWN:
        assert terms.seed is not None
        _KNOWN[terms.digest()] = joint_ranker(HOLDINGS, terms.setting, terms.protocol, terms.seed)
    return _KNOWN[terms.digest()]


class Killed(BaseException):
    """The end of a process, at a place that no handler of the program sees."""


@dataclass(eq=False)
class Group:
    """A coordinator and its parties, each with a folder; any of them can be killed and started again."""

    folder: Path
    terms: SiloTerms
    consent: dict[str, bool] = field(default_factory=dict)
    pins: dict[str, dict[str, bytes]] = field(default_factory=dict)
    watch: Callable[[str, bytes], None] = lambda way, content: None
    parties: dict[str, SiloParty] = field(default_factory=dict, init=False)
    answers: int = field(default=0, init=False)
    kills: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for name in self.terms.parties:
            self.start(name)
        self.server = SiloServer(self.folder / "server", self.terms)

    def start(self, name: str) -> None:
        self.parties[name] = SiloParty(
            self.folder / name,
            name,
            self.terms,
            HOLDINGS[self.terms.number(name)],
            pins=self.pins.get(name),
            consent=lambda: self.consent.get(name, True),
            entropy=random.Random(f"{name} {self.kills}").randbytes,
        )

    def kill(self, name: str) -> None:
        """Drop a party without a word, and start it anew on its folder."""
        self.kills += 1
        _drop(self.parties.pop(name))
        self.start(name)

    def kill_server(self) -> None:
        self.kills += 1
        _drop(self.server)
        self.server = SiloServer(self.folder / "server", self.terms)

    def answer(self, node: str, content: bytes) -> bytes | Failure:
        """What a node of the network gives."""
        self.answers += 1
        party = node.removeprefix("node-")
        self.watch("down", content)
        try:
            found = self.parties[party].answer(content)
        except Killed:
            self.kill(party)
            return Failure(BUSY)
        if isinstance(found, Declined):
            return Failure(BUSY)
        self.watch("up", found)
        return found

    def receive(self, name: str, content: bytes) -> None:
        try:
            self.server.receive(name, content)
        except Killed:
            self.kill_server()

    def message(self, name: str, answered: bool = True) -> bool:
        """Ask one party what is due and hand its answer in, unless that is lost; False where nothing is due."""
        content = self.server.due(name)
        if content is None:
            return False
        found = self.answer(f"node-{name}", content)
        if answered and isinstance(found, bytes):
            self.receive(name, found)
        return True

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
        self.server.close()

    def rankers(self) -> set[bytes]:
        """The coordinator's and every party's."""
        found = [self.server.ranker, *(party.ranker for party in self.parties.values())]
        return {b"" if theta is None else theta.tobytes() for theta in found}

    def ledgers(self) -> dict[str, dict]:
        """What every owner has charged."""
        return {
            name: BudgetLedger(name, path=self.folder / name / "ledger.json").to_table() for name in self.terms.parties
        }


def _drop(gone: SiloParty | SiloServer) -> None:
    """What the system does with a process that ends: its files are closed, and what was not committed never was."""
    gone._store.database.close()
    gone._store._unlock()


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def network(group: Group, **faults) -> Memory:
    return Memory(group.answer, [f"node-{name}" for name in group.terms.parties], **faults)


def driver_of(group: Group, transport: Memory, most: int = 5_000) -> SiloDriver:
    """A driver that gives up after so many looks."""
    clock, looks = Clock(), iter(range(most))
    names = {name: f"node-{name}" for name in group.terms.parties}
    return SiloDriver(
        transport,
        names,
        poll=1.0,
        patience=8.0,
        pause=0.5,
        stop=lambda: next(looks, None) is None,
        clock=clock,
        sleep=clock.sleep,
    )


def play(group: Group, most: int = 5_000, **faults) -> bool:
    """Over a network with faults; whether it came to its end."""
    return driver_of(group, network(group, **faults), most).run(group.server)


def step_through(group: Group, after: Callable[[str], None] = lambda name: None, most: int = 2_000) -> int:
    """Message by message until all is done, `after` each one; returns how many there were."""
    count = 0
    while not group.server.done:
        before = count
        for name in group.terms.parties:
            if group.message(name):
                count += 1
                after(name)
        assert before < count <= most, [party.progress for party in group.parties.values()]
    return count
