"""Driver of a coordinator's rounds over a transport: sends tasks, repeats them, hands in replies.

The driver decides nothing about a reply: all replies, late, repeated or unexpected, go to the coordinator, which accepts or
refuses them. The driver keeps an open message for every client that is waited for. Loss, delay and repetition therefore
cost time and never change a bit of the result.

The answer to a task is a bundle (`frames.pack`) with a reply of each client that the node plays. A device is the node of
one client, and its key must be that client's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from quorank.engines.engine import NodeDriver, Stopped
from quorank.engines.secure_driver import SecureDriver
from quorank.errors import BadInput, Interrupted
from quorank.federation.coordinator import Coordinator, Verdict
from quorank.federation.reply import Reply, Task, decode_reply, encode_task
from quorank.federation.rounds import Report
from quorank.protocol import frames
from quorank.protocol.transport import Arrival, Failure

OTHER_CLIENT = "the reply names another client than the node's key; it is refused"


class _TaskFlight(NamedTuple):
    """A task on its way."""

    node: str
    round: int
    clients: tuple[int, ...]
    since: float


@dataclass(eq=False)
class Driver(NodeDriver):
    """Driver of a coordinator's rounds: it carries tasks and replies between it and the nodes of a transport."""

    _flights: dict[str, _TaskFlight] = field(default_factory=dict, init=False)
    _round: int = field(default=-1, init=False)
    _turns: dict[int, int] = field(default_factory=dict, init=False)
    _struck: dict[int, int] = field(default_factory=dict, init=False)
    _rests: dict[int, float] = field(default_factory=dict, init=False)  # until when a client is not asked

    @cached_property
    def secure(self) -> SecureDriver:
        """Driver of rounds with secure sums."""
        return SecureDriver(self)

    def asked_nodes(self) -> set[str]:
        """Return the nodes that a task is on its way to."""
        return {flight.node for flight in self._flights.values()}

    def round(self, coordinator: Coordinator) -> Report:
        """Play the coordinator's next round to its end."""
        if coordinator.federation.privacy.hides_single_updates:
            return self.secure.round(coordinator)
        while True:
            task = coordinator.plan()
            self._begin(coordinator)
            if coordinator.is_complete():
                return coordinator.advance()
            self._send(coordinator, task)
            arrivals = self.transport.pull()
            for arrival, verdicts in zip(arrivals, self._hand_in(coordinator, arrivals), strict=True):
                self._settle(coordinator, arrival, verdicts)
            if arrivals and self.seen is not None:
                self.seen(coordinator)
            if coordinator.is_complete():
                continue
            if self.stop is not None and self.stop():
                raise Interrupted(coordinator.state.round, coordinator.rounds)
            if self.tend is not None:
                self.tend()
            if not arrivals:
                self.sleep(self.poll)

    def _begin(self, coordinator: Coordinator) -> None:
        """Drop tasks of earlier rounds."""
        if coordinator.state.round == self._round:
            return
        self._round = coordinator.state.round
        self._turns.clear()
        self._struck.clear()
        for message, flight in list(self._flights.items()):
            if flight.round < self._round:
                self._drop(message)

    def _drop(self, message: str) -> None:
        del self._flights[message]
        self.transport.forget(message)

    def _send(self, coordinator: Coordinator, task: Task) -> None:
        """Send the task to clients that are waited for and have no open message."""
        present, now = frozenset(self.transport.nodes()), self.clock()
        asked: set[int] = set()
        for message, flight in list(self._flights.items()):
            if flight.node in present and now - flight.since < self.patience:
                asked.update(flight.clients)
                continue
            for client in flight.clients:
                self._turns[client] = self._turns.get(client, 0) + 1
            self._drop(message)
        groups: dict[str, list[int]] = {}
        room, turns = self.most - len(self._flights), self._turns
        for client in self._next(coordinator.waiting - asked) if room > 0 else ():
            if self._rests.get(client, now) > now:
                continue
            name = self.assignment.node(client, turns.get(client, 0), present)
            if name in groups or (name is not None and len(groups) < room):
                groups.setdefault(name, []).append(client)
            elif len(groups) >= room and not self.assignment.simulated:
                break
        # a device knows its number, so that one message serves all
        for_all = None if self.assignment.simulated else encode_task(task)
        for name, clients in groups.items():
            content = for_all or encode_task(replace(task, clients=tuple(clients)))
            message = self.transport.push(name, content)
            self._flights[message] = _TaskFlight(name, task.round, tuple(clients), now)

    def _next(self, waiting: frozenset[int]) -> Iterator[int]:
        """Return waiting clients in the order in which they are asked: the least often asked first."""
        turns = self._turns
        yield from sorted(waiting.difference(turns))
        yield from sorted(waiting.intersection(turns), key=lambda client: (turns[client], client))

    def _settle(self, coordinator: Coordinator, arrival: Arrival, verdicts: list[Verdict]) -> None:
        """Schedule another task for clients of this message whose reply was not accepted."""
        flight = self._flights.pop(arrival.id, None)
        accepted = {verdict.client for verdict in verdicts if verdict.accepted}
        if flight is None or flight.round != coordinator.state.round or accepted.issuperset(flight.clients):
            return
        reason = next((verdict.reason for verdict in verdicts if not verdict.accepted), "it did not reply")
        for client in coordinator.waiting.intersection(flight.clients):
            self._turns[client] = self._turns.get(client, 0) + 1
            self._struck[client] = self._struck.get(client, 0) + 1
            if not self.assignment.simulated:
                self._rests[client] = self.clock() + self.pause
            elif self._struck[client] >= self.strikes:
                raise Stopped(
                    coordinator.state.round,
                    coordinator.rounds,
                    f"client {client} was asked {self.strikes} times without success: {reason}",
                )

    def _hand_in(self, coordinator: Coordinator, arrivals: Sequence[Arrival]) -> list[list[Verdict]]:
        """Hand in all replies that arrived together; return the verdicts on each arrival."""
        bundles = [self._opened(coordinator, arrival) for arrival in arrivals]
        replies = [part for bundle in bundles for part in bundle if not isinstance(part, Verdict)]
        verdicts = iter(coordinator.receive_many(replies))
        return [[part if isinstance(part, Verdict) else next(verdicts) for part in bundle] for bundle in bundles]

    def _opened(self, coordinator: Coordinator, arrival: Arrival) -> list[bytes | Reply | Verdict]:
        """Return the replies of a bundle; a verdict in place of each that cannot be read."""
        content = arrival.content
        if isinstance(content, Failure):
            return [Verdict(False, None, "reply.missing", content.reason)]
        try:
            parts = frames.unpack(content)
        except BadInput as error:
            return [Verdict(False, None, error.code, str(error))]
        if self.assignment.simulated:
            return list(parts)
        return [self._by_its_sender(coordinator, arrival.node, part) for part in parts]

    def _by_its_sender(self, coordinator: Coordinator, node: str, content: bytes) -> bytes | Reply | Verdict:
        try:
            reply = decode_reply(content, coordinator.parameters)
        except BadInput:
            return content  # the coordinator says why
        if self.assignment.speaks_for(node, reply.client):
            return reply
        return coordinator.count_refusal(BadInput("reply.other-client", OTHER_CLIENT))


def drive(coordinator: Coordinator, driver: Driver, watch: Callable[[Report], None] | None = None) -> list[Report]:
    """Play all rounds that are left; return their reports."""
    reports = []
    while not coordinator.done:
        reports.append(driver.round(coordinator))
        if watch is not None:
            watch(reports[-1])
    return reports
