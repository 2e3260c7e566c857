"""What the drivers of plain and of secure rounds share: the transport, which node plays a client, patience, a stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from quorank.errors import Interrupted
from quorank.federation.coordinator import Coordinator
from quorank.protocol.transport import Transport

POLL = 0.2
"""Seconds between two looks at the transport."""

MOST_FLIGHTS = 500
"""So many messages are on their way at once: a large cohort is asked in turns, and no queue holds all of it."""


class Stopped(Interrupted):
    """The network cannot go on; the rounds that are done are kept."""

    def __init__(self, round_: int, rounds: int, reason: str) -> None:
        super().__init__(round_, rounds)
        self.reason = reason


class Assignment(Protocol):
    """Which node plays a client."""

    @property
    def simulated(self) -> bool:
        """Whether any node can play any client, so that none is ever missed."""

    def node(self, client: int, turn: int, present: Collection[str]) -> str | None:
        """Who is asked for this client the first (turn 0), second … time; None while nobody can be."""

    def speaks_for(self, node: str, client: int) -> bool:
        """Whether a reply in this client's name may come from this node."""


@dataclass(eq=False)
class NodeDriver:
    """Settings of a driver over the nodes of a transport.

    `tend` is called in every look, to keep the engine alive; `stop` ends the work in the middle of a round, which a
    later coordinator repeats or goes on with. `seen` is told of every change of an open round.
    """

    transport: Transport
    assignment: Assignment
    poll: float = POLL  # seconds
    patience: float = 60.0  # seconds after which a task that was not answered is sent again
    strikes: int = 3  # false answers of a simulated client in one round, after which the run stops
    pause: float = 5.0  # seconds before a device that could not answer is asked again
    most: int = MOST_FLIGHTS  # messages on their way at once
    stop: Callable[[], bool] | None = None
    tend: Callable[[], None] | None = None
    seen: Callable[[Coordinator], None] | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
