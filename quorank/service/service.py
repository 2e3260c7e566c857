"""A coordinator that stays: it plays the rounds of a run with invited devices, and is there for them until it is stopped.

Rounds end when enough of the cohort have answered, or after the deadline with the least that are needed. After every
round the checkpoint is on disk and then `ranker.json`. SIGTERM ends it between two looks at the network; accepted replies
are in the journal, so the next start goes on in the same round. After SIGKILL likewise, to the same bits. While the disk
is full it waits and tries again: nothing that was accepted is lost.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import BadInput, Interrupted
from quorank.experiments import run_directory as storage
from quorank.experiments.progress import LEDGER as RELEASED
from quorank.federation.asynchronous import Asynchronous
from quorank.federation.coordinator import CHECKPOINT, Coordinator, RoundLimits
from quorank.federation.private_figures import reported
from quorank.federation.rounds import Report
from quorank.federation.transport import Transport
from quorank.files import write_whole
from quorank.flower.driver import Driver, Own
from quorank.privacy import Setting
from quorank.privacy.composition import Composed, Loss, compose, total_loss
from quorank.privacy.ledger import combined_privacy, counts_on_secret_cohorts, ledger
from quorank.service.flower_figures import Figures
from quorank.service.gate import Gate
from quorank.service.home import LEDGER, RANKER, STATUS, Home
from quorank.service.leaving_desk import LeavingDesk
from quorank.service.members import InvitedMember, members
from quorank.service.observe import EventLog, add_refusals
from quorank.service.rebuilding_ledger import RebuildingLedger
from quorank.service.staying import Staying, say_goodbye

STATUS_SECONDS = 2.0
DISK_SECONDS = 5.0
GOODBYE_SECONDS = 20.0
STATEMENT_SECONDS = 1.0
PATIENCE = 120.0
"""Seconds after which a task that a device has not answered is sent again."""

NO_NDCG = "devices report no figures about their searches, so there is no private aggregate"

Tend = Callable[[], None]


def start_of(home: Home) -> Doubles:
    """The ranker before the first round."""
    return home.experiment.ranker.initial(home.settings.n_features, home.experiment.seed)


def setting_of(home: Home) -> Setting:
    """What the privacy of the folder's run is planned for."""
    experiment = home.experiment
    size = experiment.ranker.size(home.settings.n_features)
    return experiment.federation.setting(experiment.rounds, size, experiment.evaluation.k + 1)


def coordinator_of(home: Home) -> Coordinator:
    """The coordinator of a folder, where its checkpoint and journal stand."""
    experiment, settings = home.experiment, home.settings
    federation, seed = experiment.federation, home.seed
    setting = setting_of(home)
    mechanism = federation.privacy.mechanism(setting, home.secret)
    state = replace(federation.start(start_of(home)), private=mechanism.start())
    share = settings.asynchronous
    late = Asynchronous.of(share, federation) if share > 0.0 else None
    rules = RoundLimits(
        settings.enough, settings.least, settings.deadline, heaviest=setting.interactions, asynchronous=late
    )
    basis = (federation, mechanism, state, experiment.rounds, settings.run, seed, rules, home.path)
    figure = home.terms(0).figure
    return Coordinator(*basis, figure=figure)


@dataclass(eq=False)
class Service:
    """One folder's coordinator at work."""

    home: Home
    log: EventLog
    stay: bool = False  # after the last round, until it is stopped
    clock: Callable[[], float] = time.time
    coordinator: Coordinator = field(init=False)
    figures: Figures = field(init=False)
    gate: Gate | None = field(default=None, init=False)
    desk: LeavingDesk | None = field(default=None, init=False)  # where clients leave
    metrics_port: int | None = field(default=None, init=False)
    state: str = field(default="starting", init=False)
    _refused: dict[str, int] = field(default_factory=dict, init=False)  # by code, at the gate
    _known: dict[str, int] = field(default_factory=dict, init=False)  # by code, already logged
    _rebuildings: RebuildingLedger = field(init=False)
    _statement: dict[str, Any] | None = field(default=None, init=False)
    _stated: int = field(default=0, init=False)  # rounds that the statement is of
    _counting: float = field(default=0.0, init=False)  # seconds that counting them took
    _opened: float = field(default=0.0, init=False)
    _written: float = field(default=-math.inf, init=False)
    _away: float | None = field(default=None, init=False)  # since when the engine is not there

    def __post_init__(self) -> None:
        self.coordinator = coordinator_of(self.home)
        self._start = start_of(self.home)
        self._rebuildings = RebuildingLedger(self.home.path)
        self._known = dict(self.coordinator.refused)
        now = self.clock()
        each = self.home.settings.report_epsilon
        self.figures = Figures(self.coordinator.rounds, started=now, beat=now, report_epsilon=each)
        self.figures.withheld = counts_on_secret_cohorts(self.home.experiment.federation.privacy, self._setting)
        self._opened = now
        self._state_privacy()
        self.write_ledger()

    @cached_property
    def _setting(self) -> Setting:
        """What the run's privacy is planned for."""
        return setting_of(self.home)

    @cached_property
    def _planned(self) -> Composed | None:
        """What the whole run and its reports are planned to give away; None where nothing is accounted."""
        coordinator, each = self.coordinator, self.home.settings.report_epsilon
        loss, stated = coordinator.mechanism.loss(coordinator.rounds), coordinator.mechanism.statement(1) or {}
        return None if loss is None else compose(loss + Loss(pure=each * coordinator.rounds), stated["delta"])

    def admit(self, known: Sequence[InvitedMember]) -> None:
        """Called when the list of members has changed."""
        self.figures.invited = sum(member.admitted for member in known)
        if self.gate is not None:
            self.gate.admit(known)

    def refuse(self, client: int | None, error: BadInput) -> None:
        """Called for what the gate refuses."""
        self._refused[error.code] = self._refused.get(error.code, 0) + 1
        whom = {} if self.figures.withheld else {"client": client}
        self.log.write("reply_refused", round=self.coordinator.state.round, reason=error.code, **whom)

    def play(self, transport: Transport, tend: Tend, connected: Callable[[], bool], stop: Callable[[], bool]) -> bool:
        """Play the rounds that are left; whether all are done."""
        gate = self.gate = Gate(transport, self.refuse)
        self.admit(members(self.home))
        self.state, self._opened = "running", self.clock()

        def look() -> None:
            tend()
            self.look(connected())
            if self.desk is not None:
                self.desk.look()

        driver = Driver(gate, Own(gate.names), patience=PATIENCE, pause=self.home.settings.pause, stop=stop, tend=look)
        driver.seen = self._seen
        coordinator = self.coordinator
        if coordinator.federation.aggregation.history == 0.0:
            settings = self.home.settings
            self.desk = LeavingDesk(
                coordinator,
                driver,
                self._keys,
                self._start,
                total_epsilon=settings.total_epsilon or None,
                reports=Loss(pure=settings.report_epsilon * coordinator.rounds),
                counted=self._rebuildings,
                log=self.log,
            )
            self._state_privacy()
        player = self.desk or driver
        while not coordinator.done:
            try:
                report = player.round(coordinator)
            except Interrupted:
                return False
            except OSError as error:  # a full disk: the coordinator has changed nothing
                self._disk_full(error)
                if stop():
                    return False
                time.sleep(DISK_SECONDS)
                continue
            self.closed(report)
        if self.desk is not None:
            self.desk.look()
        if self.stay:
            self.state = "done"
            self.log.write("finished", round=coordinator.state.round, rounds=coordinator.rounds)
            self.publish()
            Staying(driver, self.desk, look, stop, self._rebuilt, self._disk_full).stay()
        else:
            say_goodbye(driver, stop, GOODBYE_SECONDS)
        return True

    def _rebuilt(self) -> None:
        """The ranker was built again after the last round."""
        self._state_privacy()
        self.write_ledger()
        self.hand_out()
        self.publish()

    def _disk_full(self, error: OSError) -> None:
        self.figures.checkpoints_failed += 1
        self.log.write("checkpoint_failed", round=self.coordinator.state.round, code=error.errno)

    def _keys(self) -> dict[int, bytes]:
        """The keys that requests to leave are checked against."""
        return {member.client: member.public.encode() for member in members(self.home) if member.admitted}

    def closed(self, report: Report) -> None:
        """A round is over and its checkpoint written."""
        now, figures, gate = self.clock(), self.figures, self.gate
        seconds = now - self._opened
        figures.last_round_seconds, self._opened = seconds, now
        figures.round_seconds += seconds
        figures.rounds_timed += 1
        self._state_privacy()
        self.write_ledger()
        told = figures.reported if (figures.reported or {}).get("round") == report.round else None
        numbers: dict[str, object] = {
            "replies": report.participants,
            "cohort": len(self.coordinator.cohort),
            "sent_bytes": 0 if gate is None else gate.sent,
            "received_bytes": 0 if gate is None else gate.came,
        }
        self.log.write(
            "round_closed",
            round=report.round,
            seconds=float(seconds),
            update_norm=float(report.update_norm),
            noise=float(report.noise),
            **({} if figures.withheld else numbers),
            **({} if told is None else {"reported_ndcg": told["value"], "reported_error": told["error"]}),
        )
        self.hand_out()
        self.publish()

    def hand_out(self) -> None:
        """Write the ranker of the rounds that are done; on a full disk the next round does, or the next start."""
        home, round_ = self.home, self.coordinator.state.round
        content = storage.ranker_bytes(home.experiment, home.settings.n_features, self.coordinator.ranker)
        try:
            write_whole(home.path / RANKER, content)
        except OSError as error:
            self.log.write("checkpoint_failed", round=round_, code=error.errno)

    def look(self, connected: bool) -> None:
        """Called several times a second while a round is open."""
        now, round_ = self.clock(), self.coordinator.state.round
        self.figures.beat, self.figures.connected = now, connected
        if not connected and self._away is None:
            self._away = now
            self.log.write("engine_lost", round=round_)
        elif connected and self._away is not None:
            self.log.write("engine_back", round=round_, seconds=float(now - self._away))
            self._away = None
        if now - self._written > STATUS_SECONDS:
            self.publish()

    def _seen(self, coordinator: Coordinator) -> None:
        """Log what the coordinator has refused since the last look; it counts refusals by code."""
        if coordinator is not self.coordinator:  # the ranker is being built again
            return
        for code, count in coordinator.refused.items():
            for _ in range(count - self._known.get(code, 0)):
                self.log.write("reply_refused", round=coordinator.state.round, reason=code)
        self._known = dict(coordinator.refused)

    def _state_privacy(self) -> None:
        """What all that was released has spent; where counting takes long, a few rounds ahead: never too little."""
        done, began = self.coordinator.state.round, time.monotonic()
        if done > self._stated:
            ahead = 0 if self._counting < STATEMENT_SECONDS else done // 10
            self._stated = min(done + ahead, self.coordinator.rounds)
            self._statement = self.coordinator.mechanism.statement(self._stated)
            self._counting = time.monotonic() - began
        figures, left = self.figures, [] if self.desk is None else self.desk.leavers
        stated, rebuilt = self._statement or {}, self._rebuildings.losses(self.home.experiment.federation.privacy)
        figures.epsilon, figures.delta, figures.method = stated.get("epsilon"), stated.get("delta"), "of the run alone"
        run = None if figures.epsilon is None else self.coordinator.mechanism.loss(self._stated)
        if run is not None and (rebuilt or figures.report_epsilon):
            together = compose(total_loss([run, Loss(pure=figures.report_epsilon * done), *rebuilt]), stated["delta"])
            figures.epsilon, figures.method = together.epsilon, together.method
        if self.coordinator.figure is not None:
            figures.reported = reported(self.coordinator.reports, self.coordinator.figure)
            if figures.withheld and figures.reported is not None:
                size = self._setting.cohort
                figures.reported |= {"devices": size, "error": self.coordinator.figure.error(size)}
        figures.left = sorted({leaver.client for leaver in left})
        figures.rebuilding_rounds = sum(entry.rounds for entry in self._rebuildings.entries)
        figures.rebuilding_refused = next((one.refused for one in reversed(left) if one.refused is not None), None)
        if figures.rebuilding_refused is not None and self._planned is not None:
            figures.budget = self.home.settings.total_epsilon or self._planned.epsilon

    def write_ledger(self) -> None:
        """Write `ledger.json`: all releases, and what they give away; where counting takes long, at start and end only."""
        done, coordinator, privacy = (
            self.coordinator.state.round,
            self.coordinator,
            self.home.experiment.federation.privacy,
        )
        if self._stated > done and not coordinator.done:
            return
        part, reports, hidden = self.home.experiment.tables()["privacy"], coordinator.reports, self.figures.withheld
        columns = [np.array([getattr(report, name) for report in reports], dtype=np.float64) for name in RELEASED]
        book = ledger(part, coordinator.mechanism, self._setting, *columns, withhold=hidden, curve=False)
        entries = [entry.entry(privacy, part, withhold=hidden) for entry in self._rebuildings.entries]
        each = self.home.settings.report_epsilon
        if entries or each:
            own = {"kind": "figure", "unit": "client", "epsilon": each * done, "delta": 0.0, "rounds": done}
            book |= {"unlearning": entries} | ({"reports": own | {"horizon": f"{done} reports"}} if each else {})
            book["altogether"] = combined_privacy(part, [book, *entries], Loss(pure=each * done) if each else None)
        try:
            write_whole(self.home.path / LEDGER, storage.json_bytes(book))
        except OSError as error:
            self.log.write("checkpoint_failed", round=done, code=error.errno)
        except BadInput:  # a file that cannot be replaced is no reason to end
            self.log.write("checkpoint_failed", round=done)

    def measure(self) -> Figures:
        """The figures of this moment."""
        coordinator, figures, gate = self.coordinator, self.figures, self.gate
        figures.rounds, figures.rounds_planned = coordinator.state.round, coordinator.rounds
        figures.refused = add_refusals(coordinator.refused, self._refused)
        if figures.withheld:
            figures.cohort = 0 if coordinator.done else self._setting.cohort
            figures.accepted = figures.sent_bytes = figures.received_bytes = None
        else:
            figures.cohort = 0 if coordinator.done else len(coordinator.cohort)
            figures.waiting = [] if coordinator.done else sorted(coordinator.waiting)
            over = sum(report.participants for report in coordinator.reports)
            figures.accepted = over + len(coordinator.cohort) - len(coordinator.waiting)
        if gate is not None:
            figures.present = gate.present()
            if not figures.withheld:
                figures.sent_bytes, figures.received_bytes = gate.sent, gate.came
        try:
            figures.checkpoint_at = (self.home.path / CHECKPOINT).stat().st_mtime
        except OSError:
            figures.checkpoint_at = None
        return figures

    def publish(self) -> None:
        """Write down how it stands, for `quorank coordinator status`; a full disk is no reason to end."""
        now = self._written = self.clock()
        table = asdict(self.measure())
        table |= {"state": self.state, "at": now, "process": os.getpid(), "metrics_port": self.metrics_port}
        table |= {"run": self.home.settings.run, "privacy": self._statement}
        try:
            write_whole(self.home.path / STATUS, json.dumps(table, allow_nan=False))
        except (OSError, ValueError, BadInput):
            return
