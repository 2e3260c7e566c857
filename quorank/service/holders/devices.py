"""The holder of a coordinator of devices: the rounds of a run with the members of a store.

`python -m quorank.service.holders.devices DIR [--exit-when-done]`. After every round the checkpoint is in the store
together with `ranker.json` and the next task; the ledger and the status follow, and copies of ranker and ledger are files
of the folder. After the last round members are told that all is over, and can still leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from quorank.experiments.deployment import DeployedPrivacy, deployed_coordinator, setting_of, start_of
from quorank.experiments.run_results import saved_ranker
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.rounds import Report
from quorank.federation.rounds import State as RoundState
from quorank.files.documents import json_bytes
from quorank.kernels.arrays import Doubles
from quorank.privacy.composition import Loss
from quorank.rankers.ranker_file import ranker_bytes
from quorank.service.holders.holding import Held, main
from quorank.service.holders.leaving_desk import LeavingDesk
from quorank.service.holders.rounds import Holder
from quorank.service.home import LEDGER, RANKER, Home
from quorank.service.live.status import State, Status, with_round
from quorank.service.live.status_sources import coordinator_status, privacy_status, round_facts, round_figures


def coordinator_of(home: Home, holder: Holder) -> Coordinator:
    """The coordinator of a folder, where its checkpoint stands."""
    settings = home.settings
    rules = RoundLimits(settings.enough, settings.least, settings.deadline)
    return deployed_coordinator(
        home.experiment, settings.n_features, home.secret, run=settings.run, seed=home.seed, rules=rules,
        keeping=holder.keeping(), clock=holder.clock, figure=home.terms(0).figure, enrolled=holder,
    )  # fmt: skip


@dataclass(eq=False)
class Service(Held[Home]):
    """One folder's coordinator at work."""

    status_seconds = 2.0

    coordinator: Coordinator = field(init=False)
    holder: Holder = field(init=False)
    privacy: DeployedPrivacy = field(init=False)
    desk: LeavingDesk | None = field(default=None, init=False)  # where clients leave

    def __post_init__(self) -> None:
        super().__post_init__()
        self.holder = Holder(
            self.store, self.epoch, self.home.key, self.stop, self.tend, self._seen, beside=self._documents,
            soonest=self.soonest, clock=self.clock, sleep=self.sleep,
        )  # fmt: skip
        self.coordinator = coordinator = coordinator_of(self.home, self.holder)
        self._saved, settings, experiment = self.clock(), self.home.settings, self.home.experiment
        self.refused = dict(coordinator.refused)  # what an earlier holder has told of
        if coordinator.federation.aggregation.history == 0.0:
            self.desk = LeavingDesk(
                coordinator, start_of(experiment, settings.n_features), total_epsilon=settings.total_epsilon or None,
                reports=Loss(pure=settings.report_epsilon * coordinator.rounds), log=self.tell, holder=self.holder,
            )  # fmt: skip
        self.privacy = DeployedPrivacy(
            experiment, coordinator, setting_of(experiment, settings.n_features),
            settings.report_epsilon, settings.total_epsilon, None if self.desk is None else self.desk.ledger,
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
            self.desk.process_requests()
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
        figures = round_figures(
            report, seconds, figure=self.coordinator.metric_response, epsilon=epsilon, planned=planned
        )
        self.history = with_round(self.history, figures)
        hidden, came = planned is not None, self.holder.received_bytes
        self.tell("round_closed", **round_facts(report, figures, cohort, came, hidden=hidden))
        if report.participants < self.coordinator.limits.close_fraction * cohort:
            numbers = {} if hidden else {"replies": report.participants, "cohort": cohort, "seen": self._there(seconds)}
            self.tell("round_short", round=report.round, **numbers)

    def _there(self, seconds: float) -> int | None:
        """Members that were seen within so long."""
        with contextlib.suppress(OSError):
            return self.store.counts(self.store.now() - seconds)["seen"]
        return None

    def _seen(self, coordinator: Coordinator) -> None:
        if coordinator is self.coordinator:
            self.tell_refused(coordinator.refused)

    # ------------------------------------------------------------ what is written

    def _documents(self, coordinator: Coordinator, state: RoundState) -> Mapping[str, bytes | None]:
        return {RANKER: self._ranker(coordinator.federation.ranker(state), state.round)}

    def _ranker(self, theta: Doubles, rounds: int) -> bytes:
        experiment, features = self.home.experiment, self.home.settings.n_features
        stated = self.privacy.of_ranker
        return ranker_bytes(saved_ranker(experiment, theta, features, stated, rounds=rounds, by="coordinator"))

    def _write_down(self) -> None:
        """Ranker, ledger and status, as they are now; where counting takes long, the ledger at start and end only."""
        self.write_file(RANKER, self._ranker(self.coordinator.ranker, self.coordinator.state.round))
        book = self.privacy.book()
        if book is not None:
            content = json_bytes(book)
            self.store.keep(self.epoch, {LEDGER: content})
            self.write_file(LEDGER, content)
        self.publish()

    def status(self, state: State | None = None) -> Status:
        coordinator, now = self.coordinator, self.clock()
        rebuilding, refused = (False, None) if self.desk is None else (self.desk.rebuilding, self.desk.refused)
        base = self.base_status(
            "devices", state or ("rebuilding" if rebuilding else None), received_bytes=self.holder.received_bytes,
            checkpoint_age_seconds=now - self._saved,
        )  # fmt: skip
        base = privacy_status(base, self.privacy, refused)
        k, cohort = self.home.experiment.evaluation.k, self.privacy.shown_cohort
        return coordinator_status(base, coordinator, self.history, k=k, open_seconds=now - self.opened, planned=cohort)


if __name__ == "__main__":
    main(Home.open, Service)
