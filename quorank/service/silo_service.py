"""A group's coordinator at work: it carries the session of a folder over a network until it is done, or it is stopped.

The session itself is `silo_server`, which keeps its state in the folder after whatever it accepts; here it gets its
network, its members, its log and its figures. While the disk is full it waits and tries again.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.federation import notices
from quorank.federation.node_driver import POLL
from quorank.federation.transport import Transport
from quorank.files import write_whole
from quorank.service.flower_figures import Figures
from quorank.service.home import RANKER, STATUS
from quorank.service.members import InvitedMember, members
from quorank.service.observe import EventLog, add_refusals
from quorank.service.silo_driver import SiloDriver
from quorank.service.silo_gate import SiloGate
from quorank.service.silo_home import SERVER, SiloHome
from quorank.service.silo_server import SiloServer

STATUS_SECONDS = 2.0
DISK_SECONDS = 5.0
GOODBYE_SECONDS = 20.0
PATIENCE = 120.0
"""Seconds after which a question that a party has not answered is sent again."""


def ranker_bytes(theta: Any) -> bytes:
    """`ranker.json` of a linear ranker on the text features, as `quorank evaluate` reads it."""
    return storage.ranker_bytes(Experiment(), len(theta), theta)


@dataclass(eq=False)
class SiloService:
    """One folder's session."""

    home: SiloHome
    log: EventLog
    clock: Callable[[], float] = time.time
    server: SiloServer = field(init=False)
    figures: Figures = field(init=False)
    gate: SiloGate | None = field(default=None, init=False)
    metrics_port: int | None = field(default=None, init=False)
    state: str = field(default="starting", init=False)
    _refused: dict[str, int] = field(default_factory=dict, init=False)  # by code, at the gate
    _known: dict[str, int] = field(default_factory=dict, init=False)  # by code, already logged
    _done: int = field(default=0, init=False)  # turns, when last looked at
    _written: float = field(default=-math.inf, init=False)
    _away: float | None = field(default=None, init=False)  # since when the engine is not there
    _turn: tuple[float, int] | None = field(default=None, init=False)
    """When turns were last made, and how many were done then; None before this process has seen one."""

    def __post_init__(self) -> None:
        self.server = SiloServer(self.home.path / SERVER, self.home.group)
        self._known = dict(self.server.refused)
        now = self.clock()
        self.figures = Figures(started=now, beat=now)
        self._done = self.turns[0]

    @property
    def turns(self) -> tuple[int, int]:
        """Turns of the training that are done, and how many there are."""
        return self.server.turns

    def admit(self, known: Sequence[InvitedMember]) -> None:
        """Called when the list of members has changed."""
        self.figures.invited = sum(member.admitted for member in known)
        if self.gate is not None:
            self.gate.admit(known)

    def refuse(self, error: BadInput) -> None:
        """Called for what the gate refuses."""
        self._refused[error.code] = self._refused.get(error.code, 0) + 1
        self.log.write("reply_refused", round=self.turns[0], reason=error.code)

    def play(
        self, transport: Transport, tend: Callable[[], None], connected: Callable[[], bool], stop: Callable[[], bool]
    ) -> bool:
        """Carry on with the session; whether it is done."""
        gate = self.gate = SiloGate(transport, self.refuse)
        self.admit(members(self.home))
        self.state = "running"

        def look() -> None:
            tend()
            self.look(connected())

        driver = SiloDriver(gate, gate.names, patience=PATIENCE, pause=self.home.settings.pause, stop=stop, tend=look)
        driver.seen = self._seen
        while not self.server.done:
            try:
                if not driver.run(self.server):
                    return False
            except OSError as error:  # a full disk: the server has accepted nothing
                self.figures.checkpoints_failed += 1
                self.log.write("checkpoint_failed", round=self.turns[0], code=error.errno)
                if stop():
                    return False
                time.sleep(DISK_SECONDS)
        self.hand_out()
        self._say_goodbye(gate, stop)
        return True

    def _say_goodbye(self, gate: SiloGate, stop: Callable[[], bool]) -> None:
        """Tell the parties that are there that all is done; who does not hear it ends by itself after a while."""
        open_ = {gate.push(node, notices.OVER) for node in gate.nodes()}
        end = time.monotonic() + GOODBYE_SECONDS
        while open_ and time.monotonic() < end and not stop():
            open_ -= {arrival.id for arrival in gate.pull()}
            time.sleep(POLL)

    def hand_out(self) -> None:
        """Write the ranker of a session that is done; on a full disk the next start does."""
        theta = self.server.ranker
        if theta is None:
            return
        try:
            write_whole(self.home.path / RANKER, ranker_bytes(theta))
        except OSError as error:
            self.log.write("checkpoint_failed", round=self.turns[0], code=error.errno)

    def look(self, connected: bool) -> None:
        """Called several times a second while the session goes on."""
        now = self.clock()
        self.figures.beat, self.figures.connected = now, connected
        if not connected and self._away is None:
            self._away = now
            self.log.write("engine_lost", round=self.turns[0])
        elif connected and self._away is not None:
            self.log.write("engine_back", round=self.turns[0], seconds=float(now - self._away))
            self._away = None
        if now - self._written > STATUS_SECONDS:
            self.publish()

    def _seen(self, server: SiloServer) -> None:
        """Log the turns that were made and what was refused since the last look."""
        now, (done, _) = self.clock(), self.turns
        if done > self._done:
            self._timed(now, done)
            gate = self.gate
            self.log.write(
                "round_closed", round=done, seconds=self.figures.last_round_seconds,
                sent_bytes=0 if gate is None else gate.sent, received_bytes=0 if gate is None else gate.came,
            )  # fmt: skip
            self._done = done
        for code, count in server.refused.items():
            for _ in range(count - self._known.get(code, 0)):
                self.log.write("reply_refused", round=done, reason=code)
        self._known = dict(server.refused)

    def _timed(self, now: float, done: int) -> None:
        """Turns were made; the first of a process is not timed, since nobody knows when it began."""
        if self._turn is not None:
            since, before = self._turn
            self.figures.last_round_seconds = (now - since) / (done - before)
            self.figures.round_seconds += now - since
            self.figures.rounds_timed += done - before
        self._turn = now, done

    def measure(self) -> Figures:
        """The figures of this moment; a round is a turn of the training."""
        figures, gate, parties = self.figures, self.gate, self.home.group.parties
        figures.rounds, figures.rounds_planned = self.turns
        figures.cohort, waited = 0 if self.server.done else len(parties), self.waited()
        figures.waiting = [number for number, name in enumerate(parties) if name in waited]
        figures.refused = add_refusals(self.server.refused, self._refused)
        if gate is not None:
            figures.sent_bytes, figures.received_bytes = gate.sent, gate.came
            there = gate.present()
            figures.present = [number for number, name in enumerate(parties) if name in there]
        return figures

    def waited(self) -> list[str]:
        """The parties whose answer the session waits for."""
        if self.server.done:
            return []
        return [name for name in self.home.group.parties if self.server.waits(name)]

    def left(self) -> float | None:
        """Seconds that the turns to come will take, if they take as long as those of this process; None before any."""
        figures, (done, planned) = self.figures, self.turns
        if not figures.rounds_timed:
            return None
        return figures.round_seconds / figures.rounds_timed * (planned - done)

    def publish(self) -> None:
        """Write down how it stands, for `quorank silo status`; a full disk is no reason to end."""
        now = self._written = self.clock()
        figures, parties = self.measure(), self.home.group.parties
        table = asdict(figures) | {
            "state": self.state,
            "at": now,
            "process": os.getpid(),
            "metrics_port": self.metrics_port,
            "phase": self.server.phase,
            "waited": [parties[number] for number in figures.waiting],
            "traffic": self.server.traffic(),
            "seconds_left": self.left(),
        }
        try:
            write_whole(self.home.path / STATUS, json.dumps(table, allow_nan=False))
        except (OSError, ValueError, BadInput):
            return
