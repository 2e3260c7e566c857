"""Engines: ways to play the rounds of a coordinator, and what the drivers of plain and secure rounds have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from quorank.errors import Interrupted, require
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report
from quorank.protocol.transport import Transport

POLL = 0.2
"""Polling interval of the transport, seconds."""

MOST_FLIGHTS = 500
"""Limit on open messages: a large cohort is asked in turns."""

Play = Callable[[Coordinator], Report]
"""Plays a coordinator's next round to its end."""


class Clients(Protocol):
    """Simulated clients of a run."""

    def respond(self, content: bytes) -> bytes:
        """Return the answers to a message for some of them, as one bundle."""


class EngineRun(NamedTuple):
    """A run as an engine sees it."""

    folder: Path
    clients: Callable[[], Clients]  # the run's clients, in this process
    clients_factory: str  # "module:function" that makes them from the run's folder, for another process
    client_count: int
    carries: bool  # clients carry updates into the next round
    done: int  # rounds
    rounds: int
    stop: Callable[[], bool]  # the run was asked to stop


Engine = Callable[[EngineRun], AbstractContextManager[Play]]
"""Starts what plays the rounds of a run, and ends it with the context."""


class Stopped(Interrupted):
    """Failure of the network; the completed rounds are kept."""

    def __init__(self, round_: int, rounds: int, reason: str) -> None:
        super().__init__(round_, rounds)
        self.reason = reason


class Assignment(Protocol):
    """Node that plays a client."""

    @property
    def simulated(self) -> bool:
        """True if any node can play any client."""

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        """Return the node to ask for this client the first (turn 0), second … time; None if all are away."""

    def speaks_for(self, node: str, client: int) -> bool:
        """Return whether a reply in this client's name may come from this node."""


@dataclass(frozen=True)
class SharedNodes:
    """Nodes that play the clients of a simulated experiment: client c is played by node c mod N.

    Where that node is away or did not answer, another one plays the client, to the same bits.
    """

    names: Sequence[str]
    simulated: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        require(self.names, "assignment.no-node", "a simulated experiment needs at least one node to play its clients")

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        own = self.names[client % len(self.names)]
        if turn == 0 and own in present:
            return own
        others = sorted(name for name in self.names if name in present)
        return others[(client + turn) % len(others)] if others else None

    def speaks_for(self, node: str, client: int) -> bool:
        return True


@dataclass(frozen=True)
class OwnNodes:
    """Devices: each client is one node, and nobody else can play it."""

    names: Mapping[int, str]
    simulated: bool = field(default=False, init=False)

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        name = self.names.get(client)
        return name if name in present else None

    def speaks_for(self, node: str, client: int) -> bool:
        return self.names.get(client) == node


@dataclass(eq=False)
class NodeDriver:
    """Settings of a driver over the nodes of a transport.

    `tend` is called at every poll, to keep the engine alive; `stop` ends the work in the middle of a round, which a
    later coordinator repeats or goes on with. `seen` is called after every change of an open round.
    """

    transport: Transport
    assignment: Assignment
    poll: float = POLL  # seconds
    patience: float = 60.0  # seconds after which an unanswered task is sent again
    strikes: int = 3  # failed answers of a simulated client in one round, after which the run stops
    pause: float = 5.0  # seconds before a device that could not answer is asked again
    most: int = MOST_FLIGHTS  # open messages
    stop: Callable[[], bool] | None = None
    tend: Callable[[], None] | None = None
    seen: Callable[[Coordinator], None] | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
