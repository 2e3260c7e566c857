"""The holder of a service's coordinator: it publishes tasks, takes in committed replies, and ends rounds.

One process at a time holds the coordinator (`Store.hold`). Members' replies are committed by intake workers, whoever holds
it; the holder reads them in the order of their commits, a batch at a time, and hands them to the coordinator. The end of a
round is one transaction: checkpoint, next task, end of its replies (`kept_state`). A holder that is killed anywhere, or
that wakes up after another has taken over, changes nothing of the result: what it writes carries its epoch.

Who is waited for in a round are those of its cohort who have enrolled, and were neither revoked nor let go. Who enrols
while the round is open may still answer it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np

from quorank.engines.engine import NodeDriver, Stopped
from quorank.engines.secure_driver import SecureDriver
from quorank.errors import BadInput, Interrupted, require
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, Task, decode_reply, encode_task
from quorank.federation.rounds import Report, State
from quorank.federation.unlearning import NOTHING
from quorank.privacy.mechanisms.integer_sums import secure_sums
from quorank.protocol.keys import MemberKey, task_content
from quorank.protocol.messages import Kind, Publication
from quorank.protocol.transport import MailTransport, MemberNodes
from quorank.service.holders.kept_state import HeldMailboxes, KeptInStore
from quorank.service.intake.intake import LIMITS
from quorank.service.store.sql_store import RepliesCame, SqlStore, StoredReply

BATCH = 2000
"""So many replies are read from the store at once."""
FAST, SLOW = 0.03, 0.25
"""Seconds between two looks at the store: while replies come, and at most."""
MEMBERS_SECONDS = 0.5
"""The list of members is read again so often at most."""
EPOCH_SECONDS = 5.0
"""So often a holder makes sure that it is still the one."""
NOBODY = b"\xff\xff\xff\xff"
"""A list of members that nobody is on."""
REQUESTS = 200.0
"""Members are asked to come so many a second, all of them together."""
LONGEST_NEXT = 600.0
"""Seconds."""


def next_seconds(members: int, deadline: float, soonest: float = 1.0) -> float:
    """When it is worth asking again: not all at once, and several times before a round's deadline."""
    return max(soonest, min(members / REQUESTS, deadline / 4.0, LONGEST_NEXT))


def signed_task(
    key: MemberKey, kind: Kind, run: str, round_: int, content: bytes, wait: float, asked: bytes = b"", **more: int
) -> Publication:
    """A task for members, signed by the service's key."""
    return Publication(kind, run, round_, content, key.sign(task_content(kind, content)), wait, asked=asked, **more)


def listed(clients: Sequence[int] | frozenset[int]) -> bytes:
    """Numbers of members as a publication holds them."""
    return np.array(sorted(clients), dtype="<u4").tobytes() or NOBODY


def identities(store: SqlStore) -> dict[int, bytes]:
    """The keys that members have enrolled with."""
    found: dict[int, bytes] = {}
    last = -1
    while page := store.members(last):
        found |= {member.number: member.key for member in page if member.admitted and member.key is not None}
        last = page[-1].number
    return found


@dataclass(eq=False)
class Holder:
    """Plays a coordinator's rounds over a store.

    `tend` is called in every look; `stop` ends the work in the middle of a round, which a later holder goes on with; `seen`
    is told when replies were handed in. `busy` says whether something else comes before the next round. `beside` are the
    documents that go with a checkpoint.
    """

    store: SqlStore
    epoch: int
    key: MemberKey  # of the service: it signs tasks
    stop: Callable[[], bool] = lambda: False
    tend: Callable[[], None] = lambda: None
    seen: Callable[[Coordinator], None] = lambda coordinator: None
    busy: Callable[[], bool] = lambda: False
    soonest: float = 1.0  # seconds after which members ask again, at least
    beside: Callable[[Coordinator, State], Mapping[str, bytes | None]] = lambda coordinator, state: {}
    simulated: bool = False  # clients of an experiment: all are waited for, and can begin a secure round again
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    received_bytes: int = field(default=0, init=False)  # of replies
    _open: tuple[str, int] = field(default=("", -1), init=False)  # run and round
    _taken: int = field(default=0, init=False)  # the last reply of that round that was handed in
    _silent: set[int] = field(default_factory=set, init=False)  # whose committed reply cannot count
    _empty: tuple[str, set[int]] = field(default=("", set()), init=False)  # who holds nothing for a run
    _version: int = field(default=-1, init=False)
    _looked: float = field(default=float("-inf"), init=False)
    _held: float = field(default=float("-inf"), init=False)
    _admitted: frozenset[int] = field(default_factory=frozenset, init=False)
    _pause: float = field(default=FAST, init=False)

    def keeping(self, name: str = "coordinator") -> KeptInStore:
        """Where a coordinator of this holder keeps its checkpoint."""
        return KeptInStore(self.store, self.epoch, name)

    # ------------------------------------------------------------ publications

    def publication(self, coordinator: Coordinator, state: State, kind: Kind) -> Publication:
        """The task of the round that begins with this state."""
        content = encode_task(Task(coordinator.run, state.round, state.theta, state.private))
        participation, clients = coordinator.federation.participation, coordinator.federation.clients
        deadline, room, most, rest = coordinator.limits.deadline, 0, 0, 0
        if coordinator.enrolled is not None:  # whoever comes
            asked, room, turns = b"", participation.size(clients), participation.turns
            most, rest, deadline = turns.most or 0, turns.rest, min(deadline, participation.seconds)
        else:
            cohort = coordinator.members(state.round, state.turns) - self._without(coordinator)
            asked = b"" if len(cohort) == clients else listed(cohort)
        wait = next_seconds(len(self.admitted()), deadline, self.soonest)
        wait = self.soonest if kind == "secure" else wait  # its exchanges follow each other
        turns_of = {"room": room, "most": most, "rest": rest}
        return signed_task(self.key, kind, coordinator.run, state.round, content, wait, asked=asked, **turns_of)

    def _over(self, coordinator: Coordinator, state: State) -> Publication:
        """That all rounds are done, with the last ranker."""
        ranker = coordinator.federation.ranker(state)
        content = encode_task(Task(coordinator.run, state.round, ranker))
        return signed_task(self.key, "over", coordinator.run, state.round, content, LONGEST_NEXT)

    def _paused(self) -> Publication | None:
        """The round that is there, for nobody: what is over takes no reply, and what follows is not known yet."""
        found = self.store.publication()
        return None if found is None else replace(found, asked=NOBODY, room=0, next=self.soonest)

    def _follow(self, coordinator: Coordinator, kind: Kind, state: State) -> Publication | None:
        """What is published together with the checkpoint of this state."""
        if state.round >= coordinator.rounds and kind != "rebuilding":
            return self._over(coordinator, state)
        if state.round >= coordinator.rounds or self.busy():
            return self._paused()
        return self.publication(coordinator, state, kind)

    def _documents(self, coordinator: Coordinator, kind: Kind, state: State) -> dict[str, bytes | None]:
        """What goes with a checkpoint: by what workers judge the next round's replies, and what `beside` says."""
        own = {} if kind == "rebuilding" else dict(self.beside(coordinator, state))
        return own | ({} if state.round >= coordinator.rounds else self._judging(coordinator, kind, state))

    def _judging(self, coordinator: Coordinator, kind: Kind, state: State) -> dict[str, bytes | None]:
        if kind == "secure":
            return {}
        return {LIMITS: json.dumps(asdict(coordinator.reply_limits(state))).encode()}

    def declare_over(self, coordinator: Coordinator) -> None:
        """Publish that all rounds are done, with the ranker as it is now."""
        self._publish(self._over(coordinator, coordinator.state))

    def _publish(self, wanted: Publication, documents: Mapping[str, bytes | None] | None = None) -> Publication:
        """Publish unless that is what is there, whenever it was made."""
        found = self.store.publication()
        if found is not None and replace(found, number=0, opened=0.0, next=wanted.next) == wanted:
            return found
        return self.store.publish(self.epoch, wanted, documents)

    # ------------------------------------------------------------ rounds

    def round(self, coordinator: Coordinator, kind: Kind = "round") -> Report:
        """Play the coordinator's next round to its end."""
        require(not coordinator.done, "run.done", f"the run's {coordinator.rounds} rounds are done")
        secure = coordinator.federation.privacy.hides_single_updates
        self._begin(coordinator, "secure" if secure else kind)
        return self._secure_round(coordinator) if secure else self._plain_round(coordinator)

    def _begin(self, coordinator: Coordinator, kind: Kind) -> None:
        """Open the round, or go on with the one that an earlier holder has opened."""
        keeping, state = coordinator.storage, coordinator.state
        if isinstance(keeping, KeptInStore):
            keeping.following = lambda saved: self._follow(coordinator, kind, saved.state)
            keeping.beside = lambda saved: self._documents(coordinator, kind, saved.state)
        published = self._publish(self.publication(coordinator, state, kind), self._judging(coordinator, kind, state))
        coordinator.plan(max(0.0, self.store.now() - published.opened))
        if self._open != (coordinator.run, state.round):
            self._open, self._taken = (coordinator.run, state.round), 0
            self._silent.clear()
        self._looked = float("-inf")
        self._excuse(coordinator)

    def _plain_round(self, coordinator: Coordinator) -> Report:
        while True:
            came = self._take(coordinator)
            self._excuse(coordinator)
            if coordinator.is_complete():
                if isinstance(coordinator.storage, KeptInStore):
                    coordinator.storage.taken = self._taken
                try:
                    return coordinator.advance()
                except RepliesCame:
                    continue
            self._look(coordinator)
            self._pause = FAST if came else min(SLOW, self._pause * 1.5)
            if came < BATCH:
                self.sleep(self._pause)

    def _look(self, coordinator: Coordinator) -> None:
        """What is done between two looks at the replies."""
        if self.stop():
            raise Interrupted(coordinator.state.round, coordinator.rounds)
        self.tend()
        now = self.clock()
        if now - self._held >= EPOCH_SECONDS:
            with self.store.holding(self.epoch):
                self._held = now

    def _take(self, coordinator: Coordinator) -> int:
        """Hand in the next replies; how many there were."""
        batch = self.store.replies(*self._open, self._taken, BATCH)
        if not batch:
            return 0
        handed = [(stored, reply) for stored in batch if (reply := self._opened(coordinator, stored)) is not None]
        verdicts = coordinator.receive_many(reply for _, reply in handed)
        refused = [(stored.member, one) for (stored, _), one in zip(handed, verdicts, strict=True) if not one.accepted]
        if refused and self.simulated:
            reason = f"a client's reply was refused: {refused[0][1].reason}"
            raise Stopped(coordinator.state.round, coordinator.rounds, reason)
        self._silent.update(member for member, _ in refused)
        self._taken = batch[-1].id
        self.received_bytes += sum(len(stored.content) for stored in batch)
        self._looked = float("-inf") if self._silent or self._empty[1] else self._looked
        self.seen(coordinator)
        return len(batch)

    def _opened(self, coordinator: Coordinator, stored: StoredReply) -> Reply | bytes | None:
        """The reply, where it is its sender's; the coordinator says what is wrong with bytes that are none."""
        if stored.content == NOTHING:
            if self._empty[0] != coordinator.run:
                self._empty = coordinator.run, set()
            self._empty[1].add(stored.member)
            return None
        try:
            reply = decode_reply(stored.content, coordinator.parameters)
        except BadInput:
            return stored.content
        if reply.client == stored.member:
            return reply
        coordinator.count_refusal(BadInput("reply.other-client", "the reply names another client than its sender"))
        self._silent.add(stored.member)
        return None

    # ------------------------------------------------------------ members

    def admitted(self) -> frozenset[int]:
        """Who may take part."""
        version = self.store.version()
        if version != self._version:
            self._admitted, self._version = frozenset(self.store.admitted()), version
        return self._admitted

    def __contains__(self, client: object) -> bool:
        """Whether a member may reply to a round that takes whoever comes; the list is read again for those who are new."""
        return client in self._admitted or client in self.admitted()

    def _excuse(self, coordinator: Coordinator) -> None:
        """Nobody waits for who has not enrolled, was revoked, has left, or has sent what cannot count."""
        now = self.clock()
        if self.simulated or now - self._looked < MEMBERS_SECONDS:
            return
        self._looked = now
        missing = coordinator.cohort - self.admitted()
        coordinator.set_unavailable(missing | self._silent | self._without(coordinator))

    def _without(self, coordinator: Coordinator) -> set[int]:
        """Who has said that it holds nothing for this run."""
        return self._empty[1] if self._empty[0] == coordinator.run else set()

    # ------------------------------------------------------------ secure sums

    @cached_property
    def mail(self) -> MailTransport:
        """The mailbox, without what an earlier holder has sent."""
        found = MailTransport(HeldMailboxes(self.store, self.epoch), self.admitted, bundled=self.simulated)
        found.begin()
        return found

    @cached_property
    def secure(self) -> SecureDriver:
        """Plays the rounds whose updates leave in secure sums."""
        nodes = MemberNodes(self.simulated)
        driver = NodeDriver(self.mail, nodes, SLOW / 2.0, patience=float("inf"), most=1 << 30, clock=self.clock)
        driver.sleep = self.sleep
        return SecureDriver(driver, lambda: identities(self.store))

    def _secure_round(self, coordinator: Coordinator) -> Report:
        """Play a round whose updates leave in secure sums, once enough members have enrolled for them."""
        mechanism, driver = secure_sums(coordinator.mechanism), self.secure.driver
        least = min(mechanism.signed_by * mechanism.groups, len(coordinator.cohort))
        while len(coordinator.waiting) < least:
            self._look(coordinator)
            self.sleep(SLOW)
            self._excuse(coordinator)

        def tend() -> None:
            self._look(coordinator)
            self._excuse(coordinator)

        driver.tend, driver.seen = tend, self.seen
        return self.secure.round(coordinator)
