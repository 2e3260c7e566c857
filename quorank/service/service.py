"""A folder's service at work: it plays the rounds of a run with the members of its store, and stays until it is stopped.

The process that holds the coordinator runs it (`python -m quorank.service.service DIR`). After every round the checkpoint
is in the store together with `ranker.json` and the next task; the ledger and the status follow, and copies of ranker and
ledger are files of the folder. While the disk is full or the store is away it waits and tries again: nothing that was
accepted is lost. After the last round members are told that all is over, and can still leave.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from quorank import __version__
from quorank.arrays import Doubles
from quorank.errors import BadInput, Interrupted
from quorank.experiments import run_directory as storage
from quorank.experiments.progress import LEDGER as RELEASED
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.rounds import Report, State
from quorank.files import write_whole
from quorank.privacy import Setting
from quorank.privacy.composition import Composed, Loss, compose, total_loss
from quorank.privacy.ledger import combined_privacy, counts_on_secret_cohorts, ledger
from quorank.process import interruptible
from quorank.reports.live.event_log import EventLog
from quorank.reports.live.status import Problem, RoundFigures, Status, Versions, with_round
from quorank.reports.live.status_sources import coordinator_status, round_figures
from quorank.service.holder import Holder
from quorank.service.home import LEDGER, RANKER, STATUS, Home
from quorank.service.leaving_desk import LeavingDesk
from quorank.service.store.sql_store import HolderLost, SqlStore

STATUS_SECONDS, HOLD_SECONDS = 2.0, 1.0
"""Between two documents of the status, and between two tries to hold the coordinator."""
AGAIN_SECONDS = 2.0
"""So long it waits where the store cannot be written."""
STATEMENT_SECONDS = 1.0
LOOK_SECONDS = 0.2
Made = TypeVar("Made")
WAITING_SECONDS = 60.0
"""After so long without enough members a round that waits for them says so."""


def start_of(home: Home) -> Doubles:
    """The ranker before the first round."""
    return home.experiment.ranker.initial(home.settings.n_features, home.experiment.seed)


def setting_of(home: Home) -> Setting:
    """What the privacy of the folder's run is planned for."""
    experiment = home.experiment
    size = experiment.ranker.size(home.settings.n_features)
    return experiment.federation.setting(experiment.rounds, size, experiment.evaluation.k + 1)


@dataclass(frozen=True, eq=False)
class Enrolled:
    """Who may answer a round that takes whoever comes: all who are admitted."""

    holder: Holder

    def __contains__(self, client: object) -> bool:
        return self.holder.may_reply(client)


def coordinator_of(home: Home, holder: Holder) -> Coordinator:
    """The coordinator of a folder, where its checkpoint stands.

    Noise that is drawn in equal shares is complete with the planned cohort only: with fewer replies a round does not end.
    """
    experiment, settings = home.experiment, home.settings
    federation, setting = experiment.federation, setting_of(home)
    mechanism = federation.privacy.mechanism(setting, home.secret)
    state = replace(federation.start(start_of(home)), private=mechanism.start())
    fewest = setting.cohort if federation.privacy.needs_equal_shares else 1
    rules = RoundLimits(
        settings.enough, settings.least, settings.deadline, heaviest=setting.interactions,
        fewest=fewest,
    )  # fmt: skip
    basis = (federation, mechanism, state, experiment.rounds, settings.run, home.seed, rules, holder.keeping())
    enrolled = Enrolled(holder) if federation.participation.takes_whoever_comes else None
    return Coordinator(*basis, holder.clock, figure=home.terms(0).figure, enrolled=enrolled)


@dataclass(eq=False)
class Service:
    """One folder's coordinator at work, for the holder of this epoch."""

    home: Home
    store: SqlStore
    epoch: int
    log: EventLog
    stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    soonest: float = 1.0  # seconds after which members ask again, at least
    coordinator: Coordinator = field(init=False)
    holder: Holder = field(init=False)
    desk: LeavingDesk | None = field(default=None, init=False)  # where clients leave
    history: tuple[RoundFigures, ...] = field(default=(), init=False)
    _statement: dict[str, Any] | None = field(default=None, init=False)
    _stated: int = field(default=0, init=False)  # rounds that the statement is of
    _counting: float = field(default=0.0, init=False)  # seconds that counting them took
    _spent: Composed | None = field(default=None, init=False)  # by all that was released
    _known: dict[str, int] = field(default_factory=dict, init=False)  # refusals by code, already noted
    _exceeded: bool = field(default=False, init=False)
    _away: float | None = field(default=None, init=False)  # since when the store cannot be written
    _failed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.holder = Holder(
            self.store, self.epoch, self.home.key, self.stop, self.look, self._seen, beside=self._documents,
            soonest=self.soonest, clock=self.clock, sleep=self.sleep,
        )  # fmt: skip
        self.coordinator = coordinator = coordinator_of(self.home, self.holder)
        self._known = dict(coordinator.refused)
        self._started = self._opened = self._saved = self._written = self.clock()
        if coordinator.federation.aggregation.history == 0.0:
            settings = self.home.settings
            reports = Loss(pure=settings.report_epsilon * coordinator.rounds)
            total = settings.total_epsilon or None
            start = start_of(self.home)
            self.desk = LeavingDesk(
                coordinator, self.holder, start, total_epsilon=total, reports=reports, tell=self.tell
            )
        self._state_privacy()

    @cached_property
    def _setting(self) -> Setting:
        """What the run's privacy is planned for."""
        return setting_of(self.home)

    @cached_property
    def _withheld(self) -> bool:
        """Whether ε counts on nobody knowing who was in a round."""
        return counts_on_secret_cohorts(self.home.experiment.federation.privacy, self._setting)

    @cached_property
    def _planned(self) -> Composed | None:
        """What the whole run and its reports are planned to give away; None where nothing is accounted."""
        mechanism, each, rounds = (
            self.coordinator.mechanism,
            self.home.settings.report_epsilon,
            self.home.experiment.rounds,
        )
        loss, stated = mechanism.loss(rounds), mechanism.statement(1) or {}
        return None if loss is None else compose(loss + Loss(pure=each * rounds), stated["delta"])

    def tell(self, event: str, **numbers: object) -> None:
        """Note an event, for the log and the page; it must not keep anything from its work."""
        self.log.write(event, **numbers)
        with contextlib.suppress(OSError, BadInput):
            self.store.note(event, **{name: value for name, value in numbers.items() if value is not None})

    # ------------------------------------------------------------ rounds

    def play(self, *, stay: bool) -> bool:
        """Play the rounds that are left, and stay where asked; whether all are done. HolderLost where another took over."""
        coordinator = self.coordinator
        self.tell("holder_taken", epoch=self.epoch, round=coordinator.state.round)
        self._again(self._restored)
        while not coordinator.done and not self.stop():
            self._again(self._let_go)
            report = self._again(lambda: self.holder.round(coordinator))
            if report is not None:
                self.closed(report)
                self._again(self._write_down)
        if coordinator.done and not self.stop():
            self.tell("finished", round=coordinator.state.round, rounds=coordinator.rounds)
            self._again(self.finish)
            while stay and not self.stop():
                self._again(self.attend)
                self.look()
                self.sleep(LOOK_SECONDS)
        self._again(lambda: self.publish("done" if coordinator.done else "stopped"), once=True)
        return coordinator.done

    def _again(self, work: Callable[[], Made], *, once: bool = False) -> Made | None:
        """Do something; where the store or the disk cannot be written, again and again until it is asked to stop."""
        while True:
            try:
                made = work()
            except Interrupted:
                return None
            except OSError as error:  # the coordinator has changed nothing
                self._failed += 1
                if self._away is None:
                    self._away = self.clock()
                    self.log.write("checkpoint_failed", round=self.coordinator.state.round, code=error.errno)
                if once or self.stop():
                    return None
                self.sleep(AGAIN_SECONDS)
                continue
            if self._away is not None:
                self.tell("disk_back", round=self.coordinator.state.round, seconds=self.clock() - self._away)
                self._away = None
            return made

    def _restored(self) -> None:
        """Write what a holder that was killed did not."""
        if self.coordinator.state.round > 0:
            self._write_down()
        else:
            self.publish()

    def _write_down(self) -> None:
        """Ranker, ledger and status, as they are now."""
        self.hand_out()
        self.write_ledger()
        self.publish()

    def _let_go(self) -> None:
        """Let those go who have asked to leave."""
        if self.desk is not None and self.desk.busy():
            self.desk.attend()
            self._state_privacy()

    def closed(self, report: Report) -> None:
        """A round is over and its checkpoint written."""
        now, planned = self.clock(), self._setting.cohort if self._withheld else None
        seconds, self._opened, self._saved = now - self._opened, now, now
        self._state_privacy()
        epsilon = None if self._spent is None else self._spent.epsilon
        figures = round_figures(report, seconds, figure=self.coordinator.figure, epsilon=epsilon, planned=planned)
        self.history = with_round(self.history, figures)
        numbers: dict[str, object] = {
            "replies": report.participants,
            "cohort": len(self.coordinator.cohort),
            "received_bytes": self.holder.received_bytes,
        }
        told = {} if figures.quality is None else {"reported_ndcg": figures.quality, "reported_error": figures.error}
        self.tell(
            "round_closed",
            round=report.round,
            seconds=float(seconds),
            update_norm=float(report.update_norm),
            noise=float(report.noise),
            **({} if self._withheld else numbers),
            **told,
        )
        if report.participants < self.coordinator.rules.enough * len(self.coordinator.cohort):
            with contextlib.suppress(OSError):
                numbers["seen"] = self.store.counts(self.store.now() - seconds)["seen"]
            self.tell("round_short", round=report.round, **({} if self._withheld else numbers))

    def finish(self) -> None:
        """All rounds are done: members hear it when they come."""
        self.attend()
        self.holder.declare_over(self.coordinator)
        self.publish()

    def attend(self) -> None:
        """Let those go who have asked to leave after the last round."""
        if self.desk is not None and self.desk.busy():
            self._let_go()
            self.holder.declare_over(self.coordinator)
            self._write_down()

    def look(self) -> None:
        """Called several times a second."""
        if self.desk is not None:
            self.desk.look()
        now = self.clock()
        if now - self._written >= STATUS_SECONDS:
            self.publish()

    def _seen(self, coordinator: Coordinator) -> None:
        """Note what the coordinator has refused since the last look; it counts refusals by code."""
        if coordinator is not self.coordinator or coordinator.refused == self._known:
            return
        for code, count in coordinator.refused.items():
            if count > self._known.get(code, 0):
                self.tell("reply_refused", round=coordinator.state.round, reason=code)
        self._known = dict(coordinator.refused)

    # ------------------------------------------------------------ what is written

    def _documents(self, coordinator: Coordinator, state: State) -> Mapping[str, bytes | None]:
        return {RANKER: self._ranker(coordinator.federation.ranker(state))}

    def _ranker(self, theta: Doubles) -> bytes:
        return storage.ranker_bytes(self.home.experiment, self.home.settings.n_features, theta)

    def _write_file(self, name: str, content: bytes) -> None:
        """A copy in the folder; on a full disk the next round writes it, or the next start."""
        try:
            write_whole(self.home.path / name, content)
        except (OSError, BadInput) as error:
            code = error.errno if isinstance(error, OSError) else None
            self.log.write("checkpoint_failed", round=self.coordinator.state.round, code=code)

    def hand_out(self) -> None:
        """Write the ranker of the rounds that are done."""
        self._write_file(RANKER, self._ranker(self.coordinator.ranker))

    def _state_privacy(self) -> None:
        """What all that was released has spent; where counting takes long, a few rounds ahead: never too little."""
        coordinator, began, each = self.coordinator, time.monotonic(), self.home.settings.report_epsilon
        done = coordinator.state.round
        if done > self._stated:
            ahead = 0 if self._counting < STATEMENT_SECONDS else done // 10
            self._stated = min(done + ahead, coordinator.rounds)
            self._statement = coordinator.mechanism.statement(self._stated)
            self._counting = time.monotonic() - began
        stated, rebuilt = self._statement or {}, [] if self.desk is None else self.desk.ledger.losses()
        if stated.get("epsilon") is None:
            return
        run = coordinator.mechanism.loss(self._stated)
        if run is not None and (rebuilt or each):
            self._spent = compose(total_loss([run, Loss(pure=each * done), *rebuilt]), stated["delta"])
        else:
            self._spent = Composed(stated["epsilon"], stated["delta"], "of the run alone")
        budget = self._budget
        if budget is not None and self._spent.epsilon > budget * (1.0 + 1e-9) and not self._exceeded:
            self._exceeded = True
            self.tell("budget_exceeded", round=done, epsilon=self._spent.epsilon, budget=budget, delta=stated["delta"])

    @property
    def _budget(self) -> float | None:
        """ε that run, reports and rebuildings may reach together."""
        return self.home.settings.total_epsilon or (None if self._planned is None else self._planned.epsilon)

    def write_ledger(self) -> None:
        """Write `ledger.json`: all releases, and what they give away; where counting takes long, at start and end only."""
        coordinator, each, hidden = self.coordinator, self.home.settings.report_epsilon, self._withheld
        done = coordinator.state.round
        if self._stated > done and not coordinator.done:
            return
        part, reports = self.home.experiment.tables()["privacy"], coordinator.reports
        columns = [np.array([getattr(report, name) for report in reports], dtype=np.float64) for name in RELEASED]
        book = ledger(part, coordinator.mechanism, self._setting, *columns, withhold=hidden, curve=False)
        entries = [] if self.desk is None else self.desk.ledger.table(withhold=hidden)
        if entries or each:
            own = {"kind": "figure", "unit": "client", "epsilon": each * done, "delta": 0.0, "rounds": done}
            book |= {"unlearning": entries} | ({"reports": own | {"horizon": f"{done} reports"}} if each else {})
            book["altogether"] = combined_privacy(part, [book, *entries], Loss(pure=each * done) if each else None)
        content = storage.json_bytes(book)
        self.store.keep(self.epoch, {LEDGER: content})
        self._write_file(LEDGER, content)

    def status(self, state: str | None = None) -> Status:
        """How it stands at this moment."""
        coordinator, stated, settings, now = self.coordinator, self._statement or {}, self.home.settings, self.clock()
        rebuilding = self.desk is not None and self.desk.rebuilding
        found: Any = state or ("rebuilding" if rebuilding else "done" if coordinator.done else "running")
        left = [] if self.desk is None else self.desk.leavers
        refused = next((one.refused for one in reversed(left) if one.refused is not None), None)
        note = None
        if refused is not None and self._budget is not None:
            note = f"refused: it would have brought ε to {refused:.3g}, and {self._budget:.3g} are planned"
        entries = [] if self.desk is None else self.desk.ledger.entries
        planned = self._planned
        base = Status(
            "devices",
            found,
            settings.run,
            self.store.now(),
            process=os.getpid(),
            uptime_seconds=now - self._started,
            versions=Versions(__version__),
            received_bytes=self.holder.received_bytes,
            checkpoint_age_seconds=now - self._saved,
            checkpoints_failed=self._failed,
            epsilon_spent=None if self._spent is None else self._spent.epsilon,
            epsilon_planned=None if planned is None else settings.total_epsilon or planned.epsilon,
            epsilon_delta=stated.get("delta"),
            epsilon_unit=stated.get("unit"),
            epsilon_horizon=None if planned is None else f"whole run of {self.home.experiment.rounds} rounds",
            epsilon_method=None if self._spent is None else self._spent.method,
            report_epsilon=settings.report_epsilon or None,
            rebuilding_rounds=sum(entry.rounds for entry in entries),
            rebuilding_note=note,
            problems=tuple(self._problems(refused)),
        )
        planned_cohort = self._setting.cohort if self._withheld else None
        k, opened = self.home.experiment.evaluation.k, now - self._opened
        return coordinator_status(base, coordinator, self.history, k=k, open_seconds=opened, planned=planned_cohort)

    def _problems(self, refused: float | None) -> list[Problem]:
        """What the operator must look at, as far as nobody else sees it."""
        found = []
        if refused is not None:
            found.append(
                Problem("rebuilding.refused", "the ranker began anew: building it again was beyond the budget")
            )
        if self._exceeded:
            found.append(Problem("budget.exceeded", "more was released than the run's ε was planned for"))
        fewest, coordinator = self.coordinator.rules.fewest, self.coordinator
        there = len(coordinator.waiting) + coordinator.came
        if coordinator.open and there < fewest and self.clock() - self._opened > WAITING_SECONDS:
            sentence = f"the round waits: {there} members of its cohort are there, and its noise takes {fewest}"
            found.append(Problem("round.too-few", sentence))
        return found

    def publish(self, state: str | None = None) -> None:
        """Write down how it stands, for `status`, the page and the metrics."""
        self._written = self.clock()
        text = self.status(state).text().encode()
        self.store.keep(self.epoch, {STATUS: text})


def run(home: Home, log: EventLog, *, stay: bool = True) -> bool:
    """Hold the coordinator of a folder whenever no other process does, until it is asked to stop; whether all is done."""
    before = os.umask(0o077)  # whatever is written is for its owner's eyes
    try:
        with interruptible() as asked:
            while not asked():
                done = _hold(home, log, asked, stay=stay)
                if done and not stay:
                    return True
                _wait(HOLD_SECONDS, asked)
    finally:
        os.umask(before)
    return False


def _hold(home: Home, log: EventLog, asked: Callable[[], bool], *, stay: bool) -> bool:
    """Hold the coordinator until it is asked to stop or another takes it; whether all rounds are done."""
    try:
        store = home.store()
    except OSError:
        return False  # it may come back
    except BadInput as error:
        if error.code != "database.unreachable":
            raise
        return False
    epoch = None
    try:
        while (epoch := store.hold()) is None and not asked():
            _wait(HOLD_SECONDS, asked)
        return epoch is not None and Service(home, store, epoch, log, asked).play(stay=stay)
    except HolderLost:
        log.write("holder_lost", epoch=epoch)
    except OSError as error:
        log.write("checkpoint_failed", code=error.errno)
    finally:
        with contextlib.suppress(OSError):
            store.close()
    return False


def _wait(seconds: float, asked: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not asked():
        time.sleep(LOOK_SECONDS / 2.0)


def main(arguments: list[str]) -> None:
    """Hold the coordinator of a folder: `python -m quorank.service.service DIR [--exit-when-done]`."""
    folder, *_ = [word for word in arguments if not word.startswith("--")]
    try:
        run(Home.open(Path(folder)), EventLog(sys.stderr), stay="--exit-when-done" not in arguments)
    except BadInput as error:
        print(f"quorank: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
