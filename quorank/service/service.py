"""The holder of a coordinator of devices: the rounds of a run with the members of a store.

`python -m quorank.service.service DIR [--exit-when-done]`. After every round the checkpoint is in the store together with
`ranker.json` and the next task; the ledger and the status follow, and copies of ranker and ledger are files of the folder.
After the last round members are told that all is over, and can still leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from quorank.arrays import Doubles
from quorank.experiments import run_directory as storage
from quorank.experiments.deployed_privacy import DeployedPrivacy
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.rounds import Report
from quorank.federation.rounds import State as RoundState
from quorank.privacy import Setting
from quorank.privacy.composition import Loss
from quorank.reports.live.status import Problem, State, Status, with_round
from quorank.reports.live.status_sources import coordinator_status, privacy_status, round_figures
from quorank.service.holder import Holder
from quorank.service.holding import Held, main
from quorank.service.home import LEDGER, RANKER, Home
from quorank.service.leaving_desk import LeavingDesk

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
class Service(Held[Home]):
    """One folder's coordinator at work."""

    status_seconds = 2.0

    coordinator: Coordinator = field(init=False)
    holder: Holder = field(init=False)
    privacy: DeployedPrivacy = field(init=False)
    desk: LeavingDesk | None = field(default=None, init=False)  # where clients leave
    _known: dict[str, int] = field(default_factory=dict, init=False)  # refusals by code, already noted

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holder = Holder(
            self.store, self.epoch, self.home.key, self.stop, self.tend, self._seen, beside=self._documents,
            soonest=self.soonest, clock=self.clock, sleep=self.sleep,
        )  # fmt: skip
        self.coordinator = coordinator = coordinator_of(self.home, self.holder)
        self._known, self._saved, settings = dict(coordinator.refused), self.clock(), self.home.settings
        if coordinator.federation.aggregation.history == 0.0:
            self.desk = LeavingDesk(
                coordinator, start_of(self.home), total_epsilon=settings.total_epsilon or None,
                reports=Loss(pure=settings.report_epsilon * coordinator.rounds), tell=self.tell, holder=self.holder,
            )  # fmt: skip
        self.privacy = DeployedPrivacy(
            self.home.experiment, coordinator, setting_of(self.home), settings.report_epsilon, settings.total_epsilon,
            None if self.desk is None else self.desk.ledger,
        )  # fmt: skip
        self._count()

    @property
    def done(self) -> bool:
        return self.coordinator.done

    @property
    def place(self) -> tuple[int, int]:
        return self.coordinator.state.round, self.coordinator.rounds

    # ------------------------------------------------------------ rounds

    def begin(self) -> None:
        if self.coordinator.state.round > 0:
            self._write_down()
        else:
            self.publish()

    def look(self) -> bool:
        """Play a round to its end."""
        self._let_go()
        self.closed(self.holder.round(self.coordinator))
        self.again(self._write_down)
        return True

    def finish(self) -> None:
        self.attend()
        self.holder.declare_over(self.coordinator)
        self.publish()

    def attend(self) -> None:
        self.tend()
        if self._let_go():
            self.holder.declare_over(self.coordinator)
            self._write_down()

    def _let_go(self) -> bool:
        """Let those go who have asked to leave; whether there were any."""
        busy = self.desk is not None and self.desk.busy()
        if self.desk is not None and busy:
            self.desk.attend()
            self._count()
        return busy

    def tend(self) -> None:
        """Called several times a second."""
        if self.desk is not None:
            self.desk.look()
        self.publish_in_time()

    def _count(self) -> None:
        """Count what was released; beyond the budget is never silent."""
        if self.privacy.count() and self.privacy.spent is not None:
            spent, budget = self.privacy.spent, self.privacy.budget
            self.tell("budget_exceeded", round=self.place[0], epsilon=spent.epsilon, budget=budget, delta=spent.delta)

    def closed(self, report: Report) -> None:
        """A round is over and its checkpoint written."""
        now, planned, cohort = self.clock(), self.privacy.shown_cohort, len(self.coordinator.cohort)
        seconds, self.opened, self._saved = now - self.opened, now, now
        self._count()
        epsilon = None if self.privacy.spent is None else self.privacy.spent.epsilon
        figures = round_figures(report, seconds, figure=self.coordinator.figure, epsilon=epsilon, planned=planned)
        self.history = with_round(self.history, figures)
        numbers: dict[str, object] = {"replies": report.participants, "cohort": cohort}
        told = {} if figures.quality is None else {"reported_ndcg": figures.quality, "reported_error": figures.error}
        shown = {} if self.privacy.withheld else numbers | {"received_bytes": self.holder.received_bytes}
        norm, noise = float(report.update_norm), float(report.noise)
        self.tell(
            "round_closed", round=report.round, seconds=float(seconds), update_norm=norm, noise=noise, **shown, **told
        )
        if report.participants < self.coordinator.rules.enough * cohort:
            with contextlib.suppress(OSError):
                numbers["seen"] = self.store.counts(self.store.now() - seconds)["seen"]
            self.tell("round_short", round=report.round, **({} if self.privacy.withheld else numbers))

    def _seen(self, coordinator: Coordinator) -> None:
        """Note what the coordinator has refused since the last look; it counts refusals by code."""
        if coordinator is not self.coordinator or coordinator.refused == self._known:
            return
        for code, count in coordinator.refused.items():
            if count > self._known.get(code, 0):
                self.tell("reply_refused", round=coordinator.state.round, reason=code)
        self._known = dict(coordinator.refused)

    # ------------------------------------------------------------ what is written

    def _documents(self, coordinator: Coordinator, state: RoundState) -> Mapping[str, bytes | None]:
        return {RANKER: self._ranker(coordinator.federation.ranker(state))}

    def _ranker(self, theta: Doubles) -> bytes:
        return storage.ranker_bytes(self.home.experiment, self.home.settings.n_features, theta)

    def _write_down(self) -> None:
        """Ranker, ledger and status, as they are now; where counting takes long, the ledger at start and end only."""
        self.write_file(RANKER, self._ranker(self.coordinator.ranker))
        book = self.privacy.book()
        if book is not None:
            content = storage.json_bytes(book)
            self.store.keep(self.epoch, {LEDGER: content})
            self.write_file(LEDGER, content)
        self.publish()

    def status(self, state: State | None = None) -> Status:
        coordinator, now = self.coordinator, self.clock()
        entries, left = ([], []) if self.desk is None else (self.desk.ledger.entries, self.desk.leavers)
        refused = next((one.refused for one in reversed(left) if one.refused is not None), None)
        rebuilding = self.desk is not None and self.desk.rebuilding
        base = self.base_status(
            "devices", state or ("rebuilding" if rebuilding else None), received_bytes=self.holder.received_bytes,
            checkpoint_age_seconds=now - self._saved, rebuilding_rounds=sum(entry.rounds for entry in entries),
        )  # fmt: skip
        base = privacy_status(base, self.privacy, refused)
        base = replace(base, problems=(*base.problems, *self._problems()))
        k, cohort = self.home.experiment.evaluation.k, self.privacy.shown_cohort
        return coordinator_status(base, coordinator, self.history, k=k, open_seconds=now - self.opened, planned=cohort)

    def _problems(self) -> list[Problem]:
        """What the operator must look at, as far as nobody else sees it."""
        fewest, coordinator = self.coordinator.rules.fewest, self.coordinator
        there = len(coordinator.waiting) + coordinator.came
        if coordinator.open and there < fewest and self.clock() - self.opened > WAITING_SECONDS:
            sentence = f"the round waits: {there} members of its cohort are there, and its noise takes {fewest}"
            return [Problem("round.too-few", sentence)]
        return []


if __name__ == "__main__":
    main(Home.open, Service)
