"""Small groups of parties in one process, directly or over the mailboxes of a store, for tests of silo sessions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from quorank.member.party import SiloParty
from quorank.member.party_run import exchange
from quorank.protocol.http_client import PollingInterval, ServedMail, ServedTask, ServiceRefusal
from quorank.protocol.messages import Declined
from quorank.service.holders.group import SessionStreams
from quorank.service.store.group_commit import Call
from quorank.service.store.sql_store import SqlStore, open_store
from quorank.silos.generated import Generator
from quorank.silos.holdings import Holding, generated_holdings
from quorank.silos.session.agreement import PartyIdentity
from quorank.silos.session.coordinator import SiloPost, SiloServer
from quorank.silos.session.streams import SiloStore
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.comparison import joint_ranker
from quorank.silos.training.prior import FromPrior
from quorank.silos.training.setting import SiloSetting, Training
from quorank.silos.training.trees import TreeTraining
from quorank.text import Index, IndexedDocuments

SEED = 7  # of rehearsals: the held-out lists choose a ranker other than the prior
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


HOLDINGS = tuple(renamed(holding) for holding in generated_holdings(GENERATOR, 5))
TRAININGS: dict[str, Training] = {
    "prior": FromPrior(lambdas=(3.0, 0.3), turns=6, folds=2),
    "trees": TreeTraining(trees=2, depth=2, bins=8, least_data=2, least_lists=4, folds=4),
}


def terms_of(training: str = "prior", seed: int | None = SEED, **changes) -> SiloTerms:
    setting = SiloSetting(tested=5, training=TRAININGS[training])
    return SiloTerms("rehearsal", NAMES, setting, 4.0, seed, **changes)


_KNOWN: dict[bytes, np.ndarray] = {}


def expected(terms: SiloTerms) -> np.ndarray:
    """What the same parties come to in one process."""
    if terms.digest not in _KNOWN:
        assert terms.seed is not None
        _KNOWN[terms.digest] = joint_ranker(HOLDINGS, terms.setting, terms.seed)
    return _KNOWN[terms.digest]


def identity_of(name: str) -> PartyIdentity:
    """The lasting key of a party."""
    return PartyIdentity(name, random.Random(name).randbytes(32))


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
        self._serve()

    def _serve(self) -> None:
        self.streams = SiloStore(self.folder / "server", "coordinator")
        self.server = SiloServer(self.streams, self.terms)

    def start(self, name: str) -> None:
        self.parties[name] = SiloParty(
            self.folder / name,
            identity_of(name),
            self.terms,
            HOLDINGS[self.terms.number(name)],
            pins=self.pins.get(name),
            consent=lambda: self.consent.get(name, True),
            entropy=random.Random(f"{name} {self.kills}").randbytes,
        )

    def kill(self, name: str) -> None:
        """Drop a party without a word, and start it anew on its folder."""
        self.kills += 1
        _drop(self.parties.pop(name)._store)
        self.start(name)

    def kill_server(self) -> None:
        self.kills += 1
        _drop(self.streams)
        self._serve()

    def answer(self, party: str, content: bytes) -> bytes | None:
        """What a party says to a message, if it does."""
        self.answers += 1
        self.watch("down", content)
        try:
            found = self.parties[party].answer(content)
        except Killed:
            self.kill(party)
            return None
        if isinstance(found, Declined):
            return None
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
        found = self.answer(name, content)
        if answered and isinstance(found, bytes):
            self.receive(name, found)
        return True

    def close(self) -> None:
        for party in self.parties.values():
            party.close()
        self.streams.close()

    def rankers(self) -> set[bytes]:
        """The coordinator's and every party's."""
        found = [self.server.ranker, *(party.ranker for party in self.parties.values())]
        return {b"" if theta is None else theta.tobytes() for theta in found}


def _drop(gone: SiloStore) -> None:
    """What the system does with a process that ends: its files are closed, and what was not committed never was."""
    gone.database.close()
    gone._unlock()


class MailboxLine:
    """A party's line to a service's store in this process: what it says may be lost, or the confirmation of it."""

    def __init__(
        self, store: SqlStore, member: int, draw: random.Random, loss: float = 0.0, twice: float = 0.0
    ) -> None:
        self.store, self.member, self._draw, self._loss, self._twice = store, member, draw, loss, twice

    def _lose(self) -> None:
        if self._draw.random() < self._loss:
            raise ServiceRefusal("service.away", "lost on the way")

    def mail(self, most: int = 0) -> ServedMail:
        self._lose()
        found = self.store.letter(self.member)
        return ServedMail(0.05) if found is None else ServedMail(0.05, found.id, found.content)

    def answer(self, number: int, content: bytes) -> float:
        self._lose()
        for _ in range(2 if self._draw.random() < self._twice else 1):
            (outcome,) = self.store.take([Call(self.member, self._draw.randbytes(16), "mail", number, content)])
            if outcome.code:
                raise ServiceRefusal(outcome.code, outcome.sentence, 409)
        self._lose()
        return 0.05

    def task(self, etag: str = "") -> ServedTask:
        found = self.store.publication()
        return ServedTask(1.0) if found is None else ServedTask(1.0, found.kind, found.round, found.content)


class ScriptedLine:
    """A line on which a service says what it is told to; None ends the test's patience."""

    def __init__(self, *said: ServedMail | ServiceRefusal, over: bool = False) -> None:
        self.said, self.over, self.answers = list(said), over, list[tuple[int, bytes]]()

    def mail(self, most: int = 0) -> ServedMail:
        found = self.said.pop(0) if self.said else ServedMail(0.1)
        if isinstance(found, ServiceRefusal):
            raise found
        return found

    def answer(self, number: int, content: bytes) -> float:
        self.answers.append((number, content))
        return 0.1

    def task(self, etag: str = "") -> ServedTask:
        return ServedTask(1.0, "over" if self.over else "secure", 0, b"")


@dataclass(eq=False)
class Mailboxes:
    """The same group over the mailboxes of a service's store, in one thread."""

    group: Group
    folder: Path
    loss: float = 0.0
    twice: float = 0.0
    seed: int = 1
    database: str = ""

    def __post_init__(self) -> None:
        self.now, self.done = 0.0, set[str]()
        self.store = open_store(self.folder, self.database)
        if not self.store.members():
            for number, name in enumerate(self.group.terms.parties):
                self.store.invite(name, "party", name.encode(), number)
                self.store.enrol(bytes([number]) * 32, name.encode())
        draw = random.Random(self.seed)
        self.lines = {
            name: MailboxLine(self.store, number, draw, self.loss, self.twice)
            for number, name in enumerate(self.group.terms.parties)
        }
        self.hold()

    def hold(self) -> None:
        """Become the holder, as a process does that starts or takes over."""
        assert self.store.hold() is not None
        mail, streams = self.store, SessionStreams(self.store)
        self.post = SiloPost(mail, streams, self.group.terms, 2.0, clock=lambda: self.now)
        self.group.server = self.post.server

    def turn(self) -> None:
        """Everybody once: the parties that are there, then the holder."""
        for name, party in self.group.parties.items():
            try:
                if name not in self.done and exchange(party, self.lines[name], PollingInterval()) < 0.0:
                    self.done.add(name)
            except ServiceRefusal:
                continue
            except Killed:
                self.group.kill(name)
                self.done.discard(name)
        try:
            self.post.turn()
        except Killed:
            self.group.kills += 1
            self.hold()
        self.now += 1.0

    def reach(self, phase: str) -> None:
        while self.post.server.phase != phase:
            self.turn()

    def play(self, most: int = 600) -> bool:
        """Until the session is done; whether it came to its end."""
        for _ in range(most):
            if self.post.server.done:
                return True
            self.turn()
        return False


def play(group: Group, most: int = 600, **faults) -> bool:
    """Over the mailboxes of a store, with faults; whether it came to its end."""
    mailboxes = Mailboxes(group, group.folder, **faults)
    try:
        return mailboxes.play(most)
    finally:
        mailboxes.store.release()


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
