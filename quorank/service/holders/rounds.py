"""Holder of a service's coordinator: publishes tasks, reads committed replies, closes rounds.

One process at a time holds the coordinator (`SqlStore.hold`) and reads the replies that intake workers commit, in batches
and in the order of their commits. A round ends in one transaction: checkpoint, next task, deletion of its replies. The next
holder finds either the open round with all its committed replies or the next round, and comes to the same bits. A reply
committed after the last look makes the transaction fail (`RepliesCame`): it is taken in, and the round is closed again.

A round waits for the members of its cohort that have enrolled and were neither revoked nor let go. Members that enrol while
the round is open may still answer it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from quorank.engines.driver import Driver
from quorank.engines.engine import Stopped
from quorank.errors import BadInput, Interrupted, require
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, Task, decode_reply, encode_task
from quorank.federation.rounds import Report, State
from quorank.federation.storage import CoordinatorCheckpoint
from quorank.federation.unlearning import NOTHING
from quorank.files.documents import json_bytes
from quorank.privacy.mechanisms.integer_sums import secure_sums
from quorank.protocol.keys import MemberKey, task_content
from quorank.protocol.messages import Kind, Publication
from quorank.protocol.transport import MailTransport, MemberNodes, Message, SignedMailboxes
from quorank.service.store.sql_store import Finished, RepliesCame, SqlStore

BATCH = 2000  # maximum number of replies read at once
FAST, SLOW = 0.03, 0.25  # minimum and maximum seconds between two looks at the store
MEMBERS_SECONDS, EPOCH_SECONDS = 0.5, 5.0  # minimum seconds between two reads of the members, and checks of the epoch
CONTRIBUTORS = "contributors"  # document with one bit for each member whose reply has counted
NOBODY = b"\xff\xff\xff\xff"  # empty cohort of a publication
REQUESTS = 200.0  # target rate of polls of all members, per second
LONGEST_NEXT = 600.0  # maximum polling interval, seconds
Documents = Mapping[str, bytes | None]  # documents of the store to be written; None: to be removed


def next_seconds(members: int, deadline: float, soonest: float = 1.0) -> float:
    """Return a polling interval that spreads the members' polls, with several of them before a round's deadline."""
    return max(soonest, min(members / REQUESTS, deadline / 4.0, LONGEST_NEXT))


def signed_task(
    key: MemberKey, kind: Kind, run: str, round_: int, content: bytes, wait: float, **limits: Any
) -> Publication:
    """Return a task signed by the service's key."""
    return Publication(kind, run, round_, content, key.sign(task_content(kind, content)), wait, **limits)


class KeptInStore:
    """Checkpoints of a coordinator as documents `NAME` and `NAME secure`.

    Replies are committed before they are taken in, and deleted with the checkpoint of their round.
    """

    where = "the service's store"

    def __init__(self, store: SqlStore, name: str = "coordinator") -> None:
        self.store, self.name = store, name
        # the task and the documents written together with a checkpoint; no task: the current one stays
        self.following: Callable[[State], tuple[Publication | None, Documents]] = lambda state: (None, {})
        self.taken: int | None = None  # id of the last reply taken in; None: later ones are not checked

    def load(self) -> CoordinatorCheckpoint | None:
        content = self.store.document(self.name)
        return None if content is None else CoordinatorCheckpoint.parse(content, self.where)

    def save(self, saved: CoordinatorCheckpoint) -> None:
        publication, others = self.following(saved.state)
        documents = {self.name: saved.to_bytes(), **others}
        finished = Finished(saved.run, saved.state.round - 1, self.taken)
        if publication is None:
            self.store.keep(documents, finished)
        else:
            self.store.publish(publication, documents, finished)

    def begin(self, round_: int) -> bool:
        name, number = f"{self.name} secure", str(round_).encode()
        if self.store.document(name) == number:
            return False
        self.store.keep({name: number})
        return True

    def remove(self, run: str) -> None:
        """Delete the documents and all replies of a run."""
        self.store.keep({self.name: None, f"{self.name} secure": None}, Finished(run, 2**31))


@dataclass(eq=False)
class Holder:
    """Plays a coordinator's rounds over a store.

    Args:
        store: The service's store, held by this process.
        key: The service's key, which signs tasks.
        stop: Interrupts the work in the middle of a round; a later holder continues it.
        tend: Called in every look at the store.
        seen: Called when replies were taken in.
        busy: Returns whether other work comes before the next round.
        soonest: Minimum polling interval of members, seconds.
        documents: Documents written together with a checkpoint.
        simulated: Members are clients of an experiment: all are waited for, and can begin a secure round again.
        clock: Monotonic clock, seconds.
        sleep: Waits for seconds.
    """

    store: SqlStore
    key: MemberKey
    stop: Callable[[], bool] = lambda: False
    tend: Callable[[], None] = lambda: None
    seen: Callable[[Coordinator], None] = lambda coordinator: None
    busy: Callable[[], bool] = lambda: False
    soonest: float = 1.0
    documents: Callable[[Coordinator, State], Documents] = lambda coordinator, state: {}
    simulated: bool = False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    received_bytes: int = field(default=0, init=False)  # of replies
    _open: tuple[str, int] = field(default=("", -1), init=False)  # run and round
    _taken: int = field(default=0, init=False)  # id of the last reply of that round taken in
    _invalid: set[int] = field(default_factory=set, init=False)  # members whose committed reply was rejected
    # by run: members that hold nothing for it
    _empty: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set), init=False)
    _version: int = field(default=-1, init=False)
    _looked: float = field(default=float("-inf"), init=False)
    _held: float = field(default=float("-inf"), init=False)
    _admitted: frozenset[int] = field(default_factory=frozenset, init=False)

    # ------------------------------------------------------------ publications

    def publication(self, coordinator: Coordinator, state: State, kind: Kind) -> Publication:
        """Return the task of the round that begins with this state."""
        content = encode_task(Task(coordinator.run, state.round, state.theta, state.private))
        participation, clients = coordinator.federation.participation, coordinator.federation.clients
        deadline, room, most, rest = coordinator.limits.deadline, 0, 0, 0
        if coordinator.enrolled is not None:  # open participation
            asked, room, turns = b"", participation.size(clients), participation.turns
            most, rest, deadline = turns.most or 0, turns.rest, min(deadline, participation.seconds)
        else:
            cohort = coordinator.members(state.round, state.turns) - self._empty[coordinator.run]
            asked = b"" if len(cohort) == clients else np.array(sorted(cohort), dtype="<u4").tobytes() or NOBODY
        wait = next_seconds(len(self.admitted()), deadline, self.soonest)
        wait = self.soonest if kind == "secure" else wait  # its phases follow each other
        limits = b"" if kind == "secure" else json_bytes(coordinator.reply_limits(state))
        return signed_task(
            self.key, kind, coordinator.run, state.round, content, wait,
            asked=asked, room=room, most=most, rest=rest, limits=limits,
        )  # fmt: skip

    def _over(self, coordinator: Coordinator, state: State) -> Publication:
        """Return the task that ends the run, with the last ranker."""
        ranker = coordinator.federation.ranker(state)
        content = encode_task(Task(coordinator.run, state.round, ranker))
        return signed_task(self.key, "over", coordinator.run, state.round, content, LONGEST_NEXT)

    def _follow(
        self, coordinator: Coordinator, kind: Kind, state: State
    ) -> tuple[Publication | None, dict[str, bytes | None]]:
        """Return the task and the documents that are written together with the checkpoint of this state."""
        documents: dict[str, bytes | None] = {}
        if kind != "rebuilding":
            documents = {**self.documents(coordinator, state), **self._contributors(coordinator)}
        done = state.round >= coordinator.rounds
        if done and kind != "rebuilding":
            return self._over(coordinator, state), documents
        if done or self.busy():  # the current task for an empty cohort, while the next one is unknown
            found = self.store.publication()
            return found and replace(found, asked=NOBODY, room=0, next=self.soonest), documents
        return self.publication(coordinator, state, kind), documents

    def contributors(self, members: Set[int]) -> Set[int]:
        """Return those of the members with a reply that has counted in a round of the run."""
        bits = self.store.document(CONTRIBUTORS) or b""
        return {member for member in members if member // 8 < len(bits) and bits[member // 8] >> member % 8 & 1}

    def _contributors(self, coordinator: Coordinator) -> Documents:
        """Return the document of all members whose replies have counted, with those of the open round."""
        secure = coordinator.federation.privacy.hides_single_updates
        accepted = np.array(sorted(self.driver.survivors), dtype=np.int64) if secure else coordinator.accepted
        if len(accepted) == 0:
            return {}
        known = np.frombuffer(self.store.document(CONTRIBUTORS) or b"", dtype=np.uint8)
        bits = np.zeros(max(len(known), int(accepted.max()) // 8 + 1), dtype=np.uint8)
        bits[: len(known)] = known
        np.bitwise_or.at(bits, accepted // 8, np.left_shift(1, accepted % 8).astype(np.uint8))
        return {CONTRIBUTORS: bits.tobytes()}

    def has_open_round(self, coordinator: Coordinator) -> bool:
        """Return whether the coordinator's next round is published, and enough members are left to close it."""
        found, state, asked = self.store.publication(), coordinator.state, self.admitted() - coordinator.absent
        if found is None or (found.run, found.round) != (coordinator.run, state.round) or found.asked == NOBODY:
            return False
        if coordinator.enrolled is None:
            asked &= coordinator.members(state.round, state.turns)
        return found.kind != "over" and len(asked) >= coordinator.limits.minimum_replies

    def declare_over(self, coordinator: Coordinator) -> None:
        """Publish the end of the run, with the current ranker."""
        self.store.publish_once(self._over(coordinator, coordinator.state))

    # ------------------------------------------------------------ rounds

    def round(self, coordinator: Coordinator, kind: Kind = "round") -> Report:
        """Play the coordinator's next round to its end."""
        require(not coordinator.done, "run.done", f"the run's {coordinator.rounds} rounds are done")
        secure = coordinator.federation.privacy.hides_single_updates
        self._begin(coordinator, "secure" if secure else kind)
        return self._secure_round(coordinator) if secure else self._plain_round(coordinator)

    def _begin(self, coordinator: Coordinator, kind: Kind) -> None:
        """Open the round, or continue the one that an earlier holder has opened."""
        keeping, state = coordinator.storage, coordinator.state
        if isinstance(keeping, KeptInStore):
            keeping.following = lambda following: self._follow(coordinator, kind, following)
        published = self.store.publish_once(self.publication(coordinator, state, kind))
        coordinator.plan(max(0.0, self.store.now() - published.opened))
        if self._open != (coordinator.run, state.round):
            self._open, self._taken = (coordinator.run, state.round), 0
            self._invalid.clear()
        self._looked = float("-inf")
        self._excuse(coordinator)

    def _plain_round(self, coordinator: Coordinator) -> Report:
        pause = FAST
        while True:
            count = self._take_replies(coordinator)
            self._excuse(coordinator)
            if coordinator.is_complete():
                if isinstance(coordinator.storage, KeptInStore):
                    coordinator.storage.taken = self._taken
                try:
                    return coordinator.advance()
                except RepliesCame:
                    continue
            coordinator.check_answerable()
            self._look(coordinator)
            pause = FAST if count else min(SLOW, pause * 1.5)
            if count < BATCH:
                self.sleep(pause)

    def _look(self, coordinator: Coordinator) -> None:
        """Do the work between two looks at the replies."""
        if self.stop():
            raise Interrupted(coordinator.state.round, coordinator.rounds)
        self.tend()
        now = self.clock()
        if now - self._held >= EPOCH_SECONDS:
            self.store.check_holder()
            self._held = now

    def _take_replies(self, coordinator: Coordinator) -> int:
        """Give the next batch of replies to the coordinator; returns their number."""
        batch = self.store.replies(*self._open, self._taken, BATCH)
        for stored in batch:
            if stored.content == NOTHING:
                self._empty[coordinator.run].add(stored.member)
            elif not self._is_accepted(coordinator, stored):
                self._invalid.add(stored.member)
            self._taken = stored.id
            self.received_bytes += len(stored.content)
        if batch:
            self._looked = float("-inf") if self._invalid or self._empty[coordinator.run] else self._looked
            self.seen(coordinator)
        return len(batch)

    def _is_accepted(self, coordinator: Coordinator, stored: Message) -> bool:
        """Give a reply that names its sender, or cannot be decoded, to the coordinator; return whether it is accepted."""
        reply: Reply | bytes = stored.content
        with suppress(BadInput):
            reply = decode_reply(stored.content, coordinator.parameters)
        if isinstance(reply, Reply) and reply.client != stored.member:
            coordinator.count_refusal(BadInput("reply.other-client", "the reply names another client than its sender"))
            return False
        verdict = coordinator.receive(reply)
        if self.simulated and not verdict.accepted:
            reason = f"a client's reply was refused: {verdict.reason}"
            raise Stopped(coordinator.state.round, coordinator.rounds, reason)
        return verdict.accepted

    # ------------------------------------------------------------ members

    def admitted(self) -> frozenset[int]:
        """Return the members that may take part."""
        version = self.store.version()
        if version != self._version:
            self._admitted, self._version = frozenset(self.store.admitted()), version
        return self._admitted

    def __contains__(self, client: object) -> bool:
        """Return whether a member may reply under open participation; unknown ones are looked up again."""
        return client in self._admitted or client in self.admitted()

    def _excuse(self, coordinator: Coordinator) -> None:
        """Stop waiting for members that have not enrolled, were revoked, have left, or sent an invalid reply."""
        now = self.clock()
        if self.simulated or now - self._looked < MEMBERS_SECONDS:
            return
        self._looked = now
        missing = coordinator.cohort - self.admitted()
        coordinator.set_unavailable(missing | self._invalid | self._empty[coordinator.run])

    # ------------------------------------------------------------ secure sums

    @cached_property
    def driver(self) -> Driver:
        """Driver of secure sums, without letters of an earlier holder."""
        self.store.forget(None)
        return Driver(
            MailTransport(SignedMailboxes(self.store, self.key), self.admitted, bundled=self.simulated),
            MemberNodes(self.simulated), SLOW / 2.0,
            patience=float("inf"), seen=self.seen, known=self.store.keys, members=self._member_head, clock=self.clock,
            sleep=self.sleep,
        )  # fmt: skip

    def _member_head(self) -> bytes:
        return self.store.member_head().to_bytes()

    def _secure_round(self, coordinator: Coordinator) -> Report:
        """Play a round of secure sums once enough members have enrolled."""
        mechanism, driver = secure_sums(coordinator.mechanism), self.driver
        least = min(mechanism.signed_by * mechanism.groups, len(coordinator.cohort))
        while len(coordinator.waiting) < least:
            self._look(coordinator)
            self.sleep(SLOW)
            self._excuse(coordinator)

        def tend() -> None:
            self._look(coordinator)
            self._excuse(coordinator)

        driver.tend = tend
        return driver.round(coordinator)
