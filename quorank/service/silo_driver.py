"""Carries messages between the coordinator of a group and its parties, over a transport that may lose them.

Each party is one node, and is asked one thing at a time: again after `patience`, or after `pause` where it had nothing to
say yet. The driver believes nothing: what arrives is received as coming from the party whose node it came from, and the
coordinator judges it. So loss, delay and repetition cost time, and never change a bit of the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from quorank.errors import BadInput
from quorank.federation.node_driver import POLL
from quorank.federation.transport import Arrival, Failure, Transport
from quorank.service.silo_server import SiloServer


class _PartyFlight(NamedTuple):
    """A message on its way."""

    party: str
    node: str
    content: bytes
    since: float


@dataclass(eq=False)
class SiloDriver:
    """Asks the parties of a run; `names` says which node each of them is, and may change meanwhile."""

    transport: Transport
    names: Mapping[str, str]  # party → node
    poll: float = POLL  # seconds between two looks at the transport
    patience: float = 60.0  # seconds after which a message that was not answered is sent again
    pause: float = 1.0  # seconds before a party that had nothing to say is asked again
    stop: Callable[[], bool] | None = None
    tend: Callable[[], None] | None = None  # called in every look, to keep the engine alive
    seen: Callable[[SiloServer], None] | None = None  # told whenever something has arrived
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _flights: dict[str, _PartyFlight] = field(default_factory=dict, init=False)
    _rests: dict[str, float] = field(default_factory=dict, init=False)  # until when a party is not asked

    def run(self, server: SiloServer) -> bool:
        """Go on until every party has the ranker; False where `stop` ended it before."""
        while not server.done:
            self._send(server)
            arrivals = self.transport.pull()
            for arrival in arrivals:
                self._hand_in(server, arrival)
            if arrivals and self.seen is not None:
                self.seen(server)
            if self.stop is not None and self.stop():
                break
            if self.tend is not None:
                self.tend()
            if not arrivals:
                self.sleep(self.poll)
        for message in list(self._flights):
            self._drop(message)
        return server.done

    def _drop(self, message: str) -> None:
        del self._flights[message]
        self.transport.forget(message)

    def _send(self, server: SiloServer) -> None:
        """Ask every party that is there, has something due and is not being asked."""
        present, now = frozenset(self.transport.nodes()), self.clock()
        for message, flight in list(self._flights.items()):
            if flight.node not in present or now - flight.since >= self.patience:
                self._drop(message)
        asked = {flight.party for flight in self._flights.values()}
        for party in server.terms.parties:
            node = self.names.get(party)
            if party in asked or node not in present or self._rests.get(party, now) > now:
                continue
            content = server.due(party)
            if node is not None and content is not None:
                self._flights[self.transport.push(node, content)] = _PartyFlight(party, node, content, now)

    def _hand_in(self, server: SiloServer, arrival: Arrival) -> None:
        """Receive what came, as the party whose node it came from; let a party rest that has nothing to say."""
        party = next((party for party, node in self.names.items() if node == arrival.node), None)
        flight = self._flights.pop(arrival.id, None)
        if party is None:
            return
        if not isinstance(arrival.content, Failure):
            try:
                server.receive(party, arrival.content)
            except BadInput:
                pass  # it is counted there
            else:
                if flight is None or server.due(party) != flight.content:
                    return
        self._rests[party] = self.clock() + self.pause
