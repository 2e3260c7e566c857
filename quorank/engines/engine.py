"""Engines: ways to play the rounds of a coordinator, and the nodes that play simulated clients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from quorank.errors import Interrupted, require
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report

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
        """True if any node can play any client, and a round can begin again."""

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        """Return the node to ask for this client the first (turn 0), second … time; None if all are away."""


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
