"""Driver of secure rounds over a transport: the five exchanges of `SecureRound` as messages, with deadlines and drop-outs.

The first exchange waits for people, as a plain round does: it ends by the coordinator's limits, and never with fewer
clients than a sum needs. In later exchanges devices answer by themselves; a client that does not within `ANSWER_SECONDS`,
or has left, is dropped. If too few are left, nothing is revealed and the round ends with the ranker unchanged.
Devices take part in a round once, so that a failed or interrupted round is not repeated; simulated clients begin again, to
the same sum.

A node of several clients gets and returns bundles (`several`), a device single messages.
"""

from __future__ import annotations

import logging
import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from quorank.engines.engine import NodeDriver, Stopped
from quorank.errors import BadInput, Interrupted, require
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, Task, decode_reply
from quorank.federation.rounds import CohortSum, Report, State
from quorank.federation.sums import RunningSum
from quorank.privacy.mechanisms.integer_sums import IntegerSums, OpenedSum, secure_sums
from quorank.privacy.secure_sum.server import RoundFailed
from quorank.protocol import frames
from quorank.protocol.secure_round import KEYS, PHASES, SecureRound, SecureRounds
from quorank.protocol.transport import BUSY, Arrival, Failure

ANSWER_SECONDS = 120.0
"""Timeout of exchanges after the first, which devices answer by themselves, seconds."""

TRIES = 3
"""Attempts at a secure round of simulated clients."""

SEVERAL = b"QSCB"
_CLIENT = struct.Struct("<I")


def several(messages: Mapping[int, bytes]) -> bytes:
    """Encode messages for some of the clients of a node."""
    return SEVERAL + frames.pack([_CLIENT.pack(client) + content for client, content in messages.items()])


def single(content: bytes) -> list[tuple[int, bytes]]:
    """Return messages by client from `several`."""
    require(
        content.startswith(SEVERAL),
        "secure-sum.malformed",
        "the messages of a secure sum cannot be read; they are refused",
    )
    parts = frames.unpack(content[len(SEVERAL) :])
    require(
        all(len(part) > _CLIENT.size for part in parts),
        "secure-sum.malformed",
        "a message of a secure sum is cut off; it is refused",
    )
    return [(_CLIENT.unpack_from(part)[0], part[_CLIENT.size :]) for part in parts]


class _PhaseFlight(NamedTuple):
    node: str
    clients: tuple[int, ...]
    since: float


@dataclass(eq=False)
class SecureDriver:
    """A driver's secure rounds; `known` are the identities that clients have enrolled with, where they have."""

    driver: NodeDriver
    known: Callable[[], Mapping[int, bytes]] = dict
    answer_seconds: float = ANSWER_SECONDS
    _result: tuple[int, CohortSum] | None = field(default=None, init=False)  # of a round that could not be saved
    _facts: dict[int, Reply] = field(default_factory=dict, init=False)

    def round(self, coordinator: Coordinator) -> Report:
        """Play the coordinator's next round to its end."""
        mechanism = _sums(coordinator)
        task, number = coordinator.plan(), coordinator.state.round
        least = mechanism.signed_by * mechanism.groups
        require(
            len(coordinator.cohort) >= least,
            "secure-sum.too-few",
            f"the secure sums of this run take at least {least} clients, and the round has {len(coordinator.cohort)}; "
            "start a new run",
        )
        if self._result is None or self._result[0] != number:
            self._result = number, self._gathered(coordinator, mechanism, task)
        return coordinator.close(self._result[1])

    def _gathered(self, coordinator: Coordinator, mechanism: IntegerSums, task: Task) -> CohortSum:
        simulated = self.driver.assignment.simulated
        if not simulated and not _begin(coordinator):
            return _nothing(coordinator)
        for _ in range(TRIES if simulated else 1):
            cohort = np.array(sorted(coordinator.waiting), dtype=np.int64)
            known = {} if simulated else self.known()
            round_ = SecureRounds(
                [
                    SecureRound(
                        task,
                        os.urandom(16),
                        members.tolist(),
                        mechanism.signed_by,
                        neighbourhood=mechanism.plan,
                        clock=self.driver.clock,
                        known=known,
                    )
                    for members in mechanism.grouped(cohort, task.round)
                ]
            )
            self._facts.clear()
            try:
                while not round_.done:
                    _Phase(self, coordinator, round_).play()
                    round_.advance()
            except RoundFailed:
                continue
            finally:
                self._name_liars(coordinator, round_)
            if simulated and round_.failed:
                continue
            return self._sum(coordinator, mechanism, round_)
        if simulated:
            raise Stopped(coordinator.state.round, coordinator.rounds, f"a secure sum failed {TRIES} times in a row")
        return _nothing(coordinator)

    def _name_liars(self, coordinator: Coordinator, round_: SecureRounds) -> None:
        """Count and log clients that sent false shares."""
        for client, code in sorted(round_.liars.items()):
            logging.getLogger(__name__).warning("client %d lied in a secure sum: %s", client, code)
            coordinator.count_refusal(BadInput(code, f"client {client} lied in a secure sum"), client)

    def _sum(self, coordinator: Coordinator, mechanism: IntegerSums, round_: SecureRounds) -> CohortSum:
        """Return the cohort sum; only simulated users send statistics, apart from the masks."""
        state, opened = coordinator.state, []
        for one in round_.rounds:
            here = len(one.survivors)
            opened.append(None if one.total is None else mechanism.judged(one.total, here, len(one.asked)))
        present = sum(one.present for one in opened if one is not None)
        facts = RunningSum(mechanism, 0)
        for client, fact in sorted(self._facts.items()):
            rows, searched = np.array([fact.statistics]), np.array([fact.interactions])
            facts.add(np.array([client]), rows, searched, int(fact.within))
        searched_all = facts.interactions if self._facts else present * coordinator.federation.interactions
        ndcg, reciprocal, clicks = facts.total.value().tolist()
        gathered = gathered_of(mechanism, state, opened, searched_all)
        return gathered._replace(ndcg=ndcg, reciprocal=reciprocal, clicks=clicks)

    def note(self, coordinator: Coordinator, client: int, content: bytes) -> None:
        """Keep the statistics that a node reports of a simulated client."""
        fact = decode_reply(content, 0)
        same = (fact.run, fact.round, fact.client) == (coordinator.run, coordinator.state.round, client)
        heaviest = coordinator.limits.max_interactions or coordinator.federation.interactions
        require(
            same and 1 <= fact.interactions <= heaviest,
            "secure-sum.told",
            "the statistics that a node reported of a client are false",
        )
        self._facts[client] = fact


@dataclass(eq=False)
class _Phase:
    """State of one exchange."""

    secure: SecureDriver
    coordinator: Coordinator
    round_: SecureRounds
    _flights: dict[str, _PhaseFlight] = field(default_factory=dict, init=False)
    _turns: dict[int, int] = field(default_factory=dict, init=False)
    _rests: dict[int, float] = field(default_factory=dict, init=False)
    _gone: set[int] = field(default_factory=set, init=False)

    def play(self) -> None:
        """Ask the clients of the exchange until all have answered or are left out."""
        driver, coordinator, round_ = self.secure.driver, self.coordinator, self.round_
        asked, began = len(round_.waiting), driver.clock()
        round_.set_deadline(math.inf)
        while not self._over(asked, driver.clock() - began):
            self._send()
            arrivals = driver.transport.pull()
            for arrival in arrivals:
                self._take(arrival)
            if arrivals and driver.seen is not None:
                driver.seen(coordinator)
            if driver.stop is not None and driver.stop():
                raise Interrupted(coordinator.state.round, coordinator.rounds)
            if driver.tend is not None:
                driver.tend()
            if not arrivals:
                driver.sleep(driver.poll)
        round_.set_deadline(0.0)
        for message in self._flights:
            driver.transport.forget(message)

    def _over(self, asked: int, seconds: float) -> bool:
        """Return whether no client is waited for any longer."""
        rules = self.coordinator.limits
        waiting = (self.round_.waiting & self.coordinator.waiting) - self._gone
        if not waiting:
            return True
        simulated = self.secure.driver.assignment.simulated
        if self.round_.phase != KEYS:
            return not simulated and seconds >= min(rules.deadline, self.secure.answer_seconds)
        came = asked - len(self.round_.waiting)
        if not self.round_.has_enough_replies:
            return False
        return came >= math.ceil(rules.close_fraction * asked) or seconds >= rules.deadline

    def _send(self) -> None:
        driver, tasks = self.secure.driver, self.round_.tasks()
        present, now = frozenset(driver.transport.nodes()), driver.clock()
        asked: set[int] = set()
        for message, flight in list(self._flights.items()):
            if flight.node in present and now - flight.since < driver.patience:
                asked.update(flight.clients)
                continue
            self._again(flight.clients)
            del self._flights[message]
            driver.transport.forget(message)
        groups: dict[str, list[int]] = {}
        room = driver.most - len(self._flights) if self.round_.phase == KEYS else len(tasks)
        for client in tasks:
            if client in asked or client in self._gone or self._rests.get(client, now) > now:
                continue
            name = driver.assignment.node(client, self._turns.get(client, 0), present)
            if name in groups or (name is not None and len(groups) < room):
                groups.setdefault(name, []).append(client)
        for name, clients in groups.items():
            wanted = {client: tasks[client] for client in clients}
            content = several(wanted) if driver.assignment.simulated else tasks[clients[0]]
            message = driver.transport.push(name, content)
            self._flights[message] = _PhaseFlight(name, tuple(clients), now)

    def _again(self, clients: Sequence[int]) -> None:
        for client in clients:
            self._turns[client] = self._turns.get(client, 0) + 1

    def _take(self, arrival: Arrival) -> None:
        driver = self.secure.driver
        content = arrival.content
        flight = self._flights.pop(arrival.id, None)
        if flight is None:
            return
        if isinstance(content, Failure):
            if content.reason == BUSY and self.round_.phase != KEYS and not driver.assignment.simulated:
                self._gone.update(flight.clients)  # it has left the round
        else:
            self._hand_in(flight.clients, content)
        late = self.round_.waiting.intersection(flight.clients)
        self._again(sorted(late))
        for client in late:
            self._rests[client] = driver.clock() + driver.pause
            if driver.assignment.simulated and self._turns[client] >= driver.strikes:
                raise RoundFailed(
                    "secure-sum.too-few",
                    f"client {client} was asked {driver.strikes} times without success for {PHASES[self.round_.phase]}",
                )

    def _hand_in(self, clients: Sequence[int], content: bytes) -> None:
        simulated = self.secure.driver.assignment.simulated
        try:
            parts = frames.unpack(content)
            if len(parts) != len(clients):
                return
            for client, part in zip(clients, parts, strict=True):
                reply, *facts = frames.unpack(part) if simulated and part else [part]
                if facts:
                    self.secure.note(self.coordinator, client, facts[0])
                self._judge(client, reply)
        except BadInput as error:
            self.coordinator.count_refusal(error)

    def _judge(self, client: int, reply: bytes) -> None:
        verdict = self.round_.receive(client, reply)
        if not verdict.accepted:
            self.coordinator.count_refusal(BadInput(verdict.code, verdict.reason))


def _sums(coordinator: Coordinator) -> IntegerSums:
    mechanism = secure_sums(coordinator.mechanism)
    require(
        mechanism.variance == 0.0 or mechanism.noise_by == "clients",
        "option.conflict",
        'the noise of a network\'s secure sums is drawn by the clients; set noise_by = "clients"',
        "privacy",
    )
    return mechanism


def _begin(coordinator: Coordinator) -> bool:
    """Record that the round has begun; return False if it had begun before: devices begin it once."""
    return coordinator.storage is None or coordinator.storage.begin(coordinator.state.round)


def _nothing(coordinator: Coordinator) -> CohortSum:
    """Return a round without a sum, which leaves the ranker unchanged."""
    zero = np.zeros(coordinator.parameters)
    return CohortSum(zero, 1.0, 0, 0, 0.0, 0.0, 0.0, coordinator.state.private, 0.0, 0.0, stays=True)


def gathered_of(
    mechanism: IntegerSums, state: State, opened: Sequence[OpenedSum | None], interactions: int
) -> CohortSum:
    """Return the cohort sum of a secure round from the sums of its groups over this number of interactions."""
    require(
        mechanism.variance == 0.0 or mechanism.noise_by == "clients",
        "option.conflict",
        'the noise of a network\'s secure sums is drawn by the clients; set noise_by = "clients"',
    )
    found = mechanism.combined(opened, len(state.theta), state.private)
    return CohortSum(
        found.total,
        found.weight,
        found.participants or 0,
        interactions,
        0.0,
        0.0,
        0.0,
        found.memory,
        found.sensitivity,
        found.noise,
        found.groups,
        found.sizes,
        dropped=found.dropped,
        stays=found.stays,
    )
