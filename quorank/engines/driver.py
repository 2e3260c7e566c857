"""Driver of a coordinator's rounds over a transport: sends tasks, repeats them, hands in the answers.

A round is one or several exchanges: in a plain round each client answers the task with its reply, a secure sum takes the
five exchanges of `SecureRound`. An exchange keeps an open message for every client that is waited for. Loss, delay and
repetition cost time and never change a bit of the result: the coordinator, or the secure round, judges every answer.

The first exchange of a secure sum waits for people: it ends by the coordinator's limits, and never with fewer clients than
a sum needs. Later ones devices answer alone; a client that does not answer within `ANSWER_SECONDS`, or has left, is
dropped. If too few are left, nothing is revealed and the ranker stays. Devices take part in a round once, so that a failed
or interrupted round is not repeated; simulated clients begin again, to the same sum.
"""

from __future__ import annotations

import logging
import math
import os
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from quorank.engines.engine import Assignment, Stopped
from quorank.errors import BadInput, Interrupted, require
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, Task, decode_reply, encode_task
from quorank.federation.rounds import CohortSum, Report, RunningSum, State
from quorank.privacy.mechanisms.integer_sums import IntegerSums, OpenedSum, secure_sums
from quorank.privacy.secure_sum.server import RoundFailed
from quorank.protocol import frames
from quorank.protocol.secure_round import KEYS, PHASES, SecureRound, SecureRounds
from quorank.protocol.transport import BUSY, Arrival, Failure, Transport

ANSWER_SECONDS = 120.0
"""Timeout of exchanges that devices answer by themselves, seconds."""
TRIES = 3
"""Attempts at a secure sum of simulated clients."""
SEVERAL = b"QSCB"
_CLIENT = struct.Struct("<I")


def several(messages: Mapping[int, bytes]) -> bytes:
    """Encode messages for some of the clients of a node."""
    return SEVERAL + frames.pack([_CLIENT.pack(client) + content for client, content in messages.items()])


def single(content: bytes) -> list[tuple[int, bytes]]:
    """Return messages by client from `several`."""
    sentence = "the messages of a secure sum cannot be read; they are refused"
    require(content.startswith(SEVERAL), "secure-sum.malformed", sentence)
    parts = frames.unpack(content[len(SEVERAL) :])
    require(all(len(part) > _CLIENT.size for part in parts), "secure-sum.malformed", sentence)
    return [(_CLIENT.unpack_from(part)[0], part[_CLIENT.size :]) for part in parts]


@dataclass(eq=False)
class Driver:
    """Driver over the nodes of a transport.

    `tend` is called at every poll, to keep the engine alive; `stop` ends the work in the middle of a round, which a
    later coordinator repeats or goes on with. `seen` is called after every change of an open round. `known` are the
    identities that clients have enrolled with, and `members` the head of the list of them, where they have.
    """

    transport: Transport
    assignment: Assignment
    poll: float = 0.2  # seconds between two looks
    patience: float = 60.0  # seconds after which an unanswered message is sent again
    strikes: int = 3  # failed answers of a simulated client in one exchange, after which it ends
    pause: float = 5.0  # seconds before a device that could not answer is asked again
    stop: Callable[[], bool] = lambda: False
    tend: Callable[[], None] = lambda: None
    seen: Callable[[Coordinator], None] = lambda coordinator: None
    known: Callable[[], Mapping[int, bytes]] = dict
    members: Callable[[], bytes] = bytes
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    survivors: frozenset[int] = field(default=frozenset(), init=False)  # clients of the last secure sum
    _result: tuple[int, CohortSum] | None = field(default=None, init=False)  # of a round that could not be saved

    def round(self, coordinator: Coordinator) -> Report:
        """Play the coordinator's next round to its end."""
        if coordinator.federation.privacy.hides_single_updates:
            number = coordinator.state.round
            if self._result is None or self._result[0] != number:
                self._result = number, self._secure_sum(coordinator)
            return coordinator.close(self._result[1])
        Replies(self, coordinator, coordinator.plan()).play()
        return coordinator.advance()

    def _secure_sum(self, coordinator: Coordinator) -> CohortSum:
        mechanism, task = secure_sums(coordinator.mechanism), coordinator.plan()
        least, simulated = mechanism.signed_by * mechanism.groups, self.assignment.simulated
        sentence = (
            f"the secure sums of this run take at least {least} clients, and the round has {len(coordinator.cohort)}; "
            "start a new run"
        )
        require(len(coordinator.cohort) >= least, "secure-sum.too-few", sentence)
        storage, self.survivors = coordinator.storage, frozenset()
        if not simulated and storage is not None and not storage.begin(coordinator.state.round):
            return _no_sum(coordinator)  # devices have begun it with an earlier holder
        for _ in range(TRIES if simulated else 1):
            cohort = np.array(sorted(coordinator.waiting), dtype=np.int64)
            known, members = ({}, b"") if simulated else (self.known(), self.members())
            rounds = [
                SecureRound(
                    task, os.urandom(16), group.tolist(), mechanism.signed_by,
                    neighbourhood=mechanism.plan, known=known, members=members,
                )
                for group in mechanism.divide_cohort(cohort, task.round)
            ]  # fmt: skip
            round_, facts = SecureRounds(rounds), dict[int, Reply]()
            try:
                while not round_.done:
                    Phase(self, coordinator, round_, facts).play()
                    round_.advance()
            except RoundFailed:
                continue
            finally:
                for client, code in sorted(round_.liars.items()):
                    logging.getLogger(__name__).warning("client %d lied in a secure sum: %s", client, code)
                    coordinator.count_refusal(BadInput(code, f"client {client} lied in a secure sum"), client)
            if not (simulated and round_.failed):
                self.survivors = round_.survivors
                return _sum_of(coordinator, mechanism, round_, facts)
        if simulated:
            raise Stopped(coordinator.state.round, coordinator.rounds, f"a secure sum failed {TRIES} times in a row")
        return _no_sum(coordinator)


class _Flight(NamedTuple):
    """Message on its way."""

    node: str
    clients: tuple[int, ...]
    since: float


@dataclass(eq=False)
class Exchange(ABC):
    """One exchange of a round: every client that is waited for gets a message and answers it."""

    driver: Driver
    coordinator: Coordinator
    _flights: dict[str, _Flight] = field(default_factory=dict, init=False)
    _turns: Counter[int] = field(default_factory=Counter, init=False)
    _failures: Counter[int] = field(default_factory=Counter, init=False)
    _rests: dict[int, float] = field(default_factory=dict, init=False)  # until when a device is not asked

    @abstractmethod
    def waiting(self) -> Set[int]:
        """Return the clients that are waited for."""

    @abstractmethod
    def is_over(self, seconds: float) -> bool:
        """Return whether the exchange is over after these seconds."""

    @abstractmethod
    def message(self, clients: Sequence[int]) -> bytes:
        """Return the message to the node of these clients."""

    @abstractmethod
    def hand_in(self, clients: Sequence[int], content: bytes) -> str | None:
        """Hand in an answer; return the reason for a refusal."""

    def fail(self, client: int, reason: str) -> None:
        """End the exchange after too many failures of a simulated client."""
        sentence = f"client {client} was asked {self.driver.strikes} times without success: {reason}"
        raise Stopped(self.coordinator.state.round, self.coordinator.rounds, sentence)

    def play(self) -> None:
        """Ask the clients until the exchange is over."""
        driver, coordinator, began = self.driver, self.coordinator, self.driver.clock()
        while not self.is_over(driver.clock() - began):
            self._send()
            arrivals = driver.transport.pull()
            for arrival in arrivals:
                self._take(arrival)
            if arrivals:
                driver.seen(coordinator)
            if driver.stop():
                raise Interrupted(coordinator.state.round, coordinator.rounds)
            driver.tend()
            if not arrivals:
                driver.sleep(driver.poll)
        driver.transport.forget([*self._flights])

    def _send(self) -> None:
        """Send a message to the nodes of clients that have none open; give up those of nodes that are away or silent."""
        driver = self.driver
        present, now, asked, lost = frozenset(driver.transport.nodes()), driver.clock(), set[int](), list[str]()
        for message, flight in self._flights.items():
            if flight.node in present and now - flight.since < driver.patience:
                asked.update(flight.clients)
            else:
                self._turns.update(flight.clients)
                lost.append(message)
        driver.transport.forget(lost)
        self._flights = {message: flight for message, flight in self._flights.items() if message not in lost}
        groups: dict[str, list[int]] = {}
        for client in sorted(self.waiting() - asked):
            name = driver.assignment.node(client, self._turns[client], present)
            if name is not None and self._rests.get(client, now) <= now:
                groups.setdefault(name, []).append(client)
        if groups:
            messages = driver.transport.push([(name, self.message(clients)) for name, clients in groups.items()])
            for message, (name, clients) in zip(messages, groups.items(), strict=True):
                self._flights[message] = _Flight(name, tuple(clients), now)

    def _take(self, arrival: Arrival) -> None:
        driver, flight, reason = self.driver, self._flights.pop(arrival.id, None), None
        if flight is None:
            return
        if isinstance(arrival.content, Failure):
            reason = arrival.content.reason
            if reason == BUSY:
                self.excuse(flight.clients)
        else:
            try:
                reason = self.hand_in(flight.clients, arrival.content)
            except BadInput as error:
                self.coordinator.count_refusal(error)
                reason = str(error)
        late = self.waiting() & {*flight.clients}
        self._turns.update(late)
        self._failures.update(late)
        for client in sorted(late):
            if not driver.assignment.simulated:
                self._rests[client] = driver.clock() + driver.pause
            elif self._failures[client] >= driver.strikes:
                self.fail(client, reason or "it did not reply")

    def excuse(self, clients: Sequence[int]) -> None:
        """Note that these clients have nothing to give."""


@dataclass(eq=False)
class Replies(Exchange):
    """The exchange of a plain round of simulated clients, in bundles with a reply of each client of a node."""

    task: Task

    def waiting(self) -> Set[int]:
        return self.coordinator.waiting

    def is_over(self, seconds: float) -> bool:
        return self.coordinator.is_complete()

    def message(self, clients: Sequence[int]) -> bytes:
        return encode_task(replace(self.task, clients=tuple(clients)))

    def hand_in(self, clients: Sequence[int], content: bytes) -> str | None:
        verdicts = [self.coordinator.receive(reply) for reply in frames.unpack(content)]
        return next((verdict.reason for verdict in verdicts if not verdict.accepted), None)


@dataclass(eq=False)
class Phase(Exchange):
    """An exchange of a secure sum; a node of simulated clients gets and returns bundles (`several`)."""

    round_: SecureRounds
    facts: dict[int, Reply]  # statistics of simulated clients, apart from the masks
    _gone: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._asked = len(self.round_.waiting)

    def waiting(self) -> Set[int]:
        return (self.round_.waiting & self.coordinator.waiting) - self._gone

    def is_over(self, seconds: float) -> bool:
        rules, simulated = self.coordinator.limits, self.driver.assignment.simulated
        if not self.waiting():
            return True
        if self.round_.phase != KEYS:
            return not simulated and seconds >= min(rules.deadline, ANSWER_SECONDS)
        accepted = self._asked - len(self.round_.waiting)
        enough = accepted >= math.ceil(rules.close_fraction * self._asked) or seconds >= rules.deadline
        return self.round_.has_enough_replies and enough

    def message(self, clients: Sequence[int]) -> bytes:
        tasks = self.round_.tasks()
        simulated = self.driver.assignment.simulated
        return several({client: tasks[client] for client in clients}) if simulated else tasks[clients[0]]

    def excuse(self, clients: Sequence[int]) -> None:
        if self.round_.phase != KEYS and not self.driver.assignment.simulated:
            self._gone.update(clients)  # they have left the round

    def fail(self, client: int, reason: str) -> None:
        sentence = f"client {client} failed {self.driver.strikes} times at {PHASES[self.round_.phase]}: {reason}"
        raise RoundFailed("secure-sum.too-few", sentence)

    def hand_in(self, clients: Sequence[int], content: bytes) -> str | None:
        simulated, refused = self.driver.assignment.simulated, None
        for client, part in zip(clients, frames.unpack(content), strict=False):
            reply, *facts = frames.unpack(part) if simulated and part else [part]
            if facts:
                self._note(client, facts[0])
            verdict = self.round_.receive(client, reply)
            if not verdict.accepted:
                refused = verdict.reason
                self.coordinator.count_refusal(BadInput(verdict.code, verdict.reason))
        return refused

    def _note(self, client: int, content: bytes) -> None:
        """Keep the statistics that a node reports of a simulated client."""
        coordinator, fact = self.coordinator, decode_reply(content, 0)
        same = (fact.run, fact.round, fact.client) == (coordinator.run, coordinator.state.round, client)
        heaviest = coordinator.limits.max_interactions or coordinator.federation.interactions
        sentence = "the statistics that a node reported of a client are false"
        require(same and 1 <= fact.interactions <= heaviest, "secure-sum.told", sentence)
        self.facts[client] = fact


def _sum_of(
    coordinator: Coordinator, mechanism: IntegerSums, round_: SecureRounds, facts: Mapping[int, Reply]
) -> CohortSum:
    opened = [
        None if one.total is None else mechanism.judge(one.total, len(one.server.survivors), len(one.asked))
        for one in round_.rounds
    ]
    present, total = sum(one.present for one in opened if one is not None), RunningSum(mechanism, 0)
    for client, fact in sorted(facts.items()):
        searched = np.array([fact.interactions])
        total.add(np.array([client]), np.array([fact.statistics]), searched, int(fact.within))
    interactions = total.interactions if facts else present * coordinator.federation.interactions
    ndcg, reciprocal, clicks = total.total.value().tolist()
    gathered = gathered_of(mechanism, coordinator.state, opened, interactions)
    return gathered._replace(ndcg=ndcg, reciprocal=reciprocal, clicks=clicks)


def gathered_of(
    mechanism: IntegerSums, state: State, opened: Sequence[OpenedSum | None], interactions: int
) -> CohortSum:
    """Return the cohort sum of a secure round from the sums of its groups over this number of interactions."""
    found = mechanism.combine(opened, len(state.theta), state.private)
    return CohortSum(
        found.total, found.weight, found.participants or 0, interactions, 0.0, 0.0, 0.0, found.memory,
        found.sensitivity, found.noise, found.groups, found.sizes, dropped=found.dropped, stays=found.stays,
    )  # fmt: skip


def _no_sum(coordinator: Coordinator) -> CohortSum:
    """Return a round without a sum, which leaves the ranker unchanged."""
    zero = np.zeros(coordinator.parameters)
    return CohortSum(zero, 1.0, 0, 0, 0.0, 0.0, 0.0, coordinator.state.private, 0.0, 0.0, stays=True)
