"""What a run with real devices gives away: its plan, what releases, reports and rebuildings have spent, and the ledger."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from quorank.experiments.experiment import Experiment
from quorank.experiments.progress import LEDGER
from quorank.federation.coordinator import Coordinator
from quorank.federation.unlearning.rebuilding_ledger import RebuildingLedger
from quorank.privacy import Setting
from quorank.privacy.composition import Composed, Loss, compose, total_loss
from quorank.privacy.ledger import assumes_secret_cohorts, combined_privacy, ledger

STATEMENT_SECONDS = 1.0
"""Where counting takes longer, a few rounds are counted ahead."""


@dataclass(eq=False)
class DeployedPrivacy:
    """The privacy of a coordinator's run; `count` is called after every release."""

    experiment: Experiment
    coordinator: Coordinator
    setting: Setting  # what the run is planned for
    report_epsilon: float = 0.0  # ε of what a device reports with each release; 0: nothing
    total_epsilon: float = 0.0  # ε that all releases may reach together; 0: the run's and the reports' own
    rebuilt: RebuildingLedger | None = None  # None where nobody can leave
    spent: Composed | None = field(default=None, init=False)  # by all that was released
    exceeded: bool = field(default=False, init=False)  # more was released than planned
    _statement: dict[str, Any] = field(default_factory=dict, init=False)
    _stated: int = field(default=0, init=False)  # rounds that the statement is of
    _counting: float = field(default=0.0, init=False)  # seconds that counting them took

    @cached_property
    def withheld(self) -> bool:
        """Whether ε counts on nobody knowing who was in a round."""
        return assumes_secret_cohorts(self.experiment.federation.privacy, self.setting)

    @property
    def shown_cohort(self) -> int | None:
        """The planned size of a cohort where the true one is withheld."""
        return self.setting.cohort if self.withheld else None

    @cached_property
    def reports(self) -> Loss:
        """What the reports of the whole run give away."""
        return Loss(pure=self.report_epsilon * self.experiment.rounds)

    @cached_property
    def planned(self) -> Composed | None:
        """What the whole run and its reports are planned to give away; None where nothing is accounted."""
        mechanism = self.coordinator.mechanism
        loss, stated = mechanism.loss(self.experiment.rounds), mechanism.statement(1) or {}
        return None if loss is None else compose(loss + self.reports, stated["delta"])

    @property
    def of_ranker(self) -> Mapping[str, Any] | None:
        """The statement of all planned rounds, with the ε of reports, and of rebuildings where they have spent more."""
        stated, planned = self._whole_run, self.planned
        if stated is None or planned is None:
            return stated
        spent = planned.epsilon if self.spent is None else max(planned.epsilon, self.spent.epsilon)
        return {**stated, "epsilon": spent}

    @cached_property
    def _whole_run(self) -> Mapping[str, Any] | None:
        return self.coordinator.mechanism.statement(self.experiment.rounds)

    @property
    def budget(self) -> float | None:
        """ε that run, reports and rebuildings may reach together."""
        return self.total_epsilon or (None if self.planned is None else self.planned.epsilon)

    @property
    def delta(self) -> float | None:
        """δ of the statement."""
        return self._statement.get("delta")

    @property
    def unit(self) -> str | None:
        """Whom it protects: a client, an interaction."""
        return self._statement.get("unit")

    def count(self) -> bool:
        """Count all that was released, where counting takes long a few rounds ahead, never too little.

        Returns whether it is now, and was not before, more than the budget.
        """
        coordinator, began, done = self.coordinator, time.monotonic(), self.coordinator.state.round
        if done > self._stated:
            ahead = 0 if self._counting < STATEMENT_SECONDS else done // 10
            self._stated = min(done + ahead, coordinator.rounds)
            self._statement = coordinator.mechanism.statement(self._stated) or {}
            self._counting = time.monotonic() - began
        if self._statement.get("epsilon") is None:
            return False
        run, rebuilt = coordinator.mechanism.loss(self._stated), [] if self.rebuilt is None else self.rebuilt.losses()
        if run is not None and (rebuilt or self.report_epsilon):
            reports = Loss(pure=self.report_epsilon * done)
            self.spent = compose(total_loss([run, reports, *rebuilt]), self._statement["delta"])
        else:
            self.spent = Composed(self._statement["epsilon"], self._statement["delta"], "of the run alone")
        before, budget = self.exceeded, self.budget
        self.exceeded = before or (budget is not None and self.spent.epsilon > budget * (1.0 + 1e-9))
        return self.exceeded and not before

    def book(self) -> dict[str, Any] | None:
        """The ledger: all releases, and what they give away; None between start and end where counting takes long."""
        coordinator, each, done = self.coordinator, self.report_epsilon, self.coordinator.state.round
        if self._stated > done and not coordinator.done:
            return None
        part, reports = self.experiment.tables()["privacy"], coordinator.reports
        columns = [np.array([getattr(report, name) for report in reports], dtype=np.float64) for name in LEDGER]
        book = ledger(part, coordinator.mechanism, self.setting, *columns, withhold=self.withheld, curve=False)
        entries = [] if self.rebuilt is None else self.rebuilt.table(withhold=self.withheld)
        if entries or each:
            own = {"kind": "figure", "unit": "client", "epsilon": each * done, "delta": 0.0, "rounds": done}
            book |= {"unlearning": entries} | ({"reports": own | {"horizon": f"{done} reports"}} if each else {})
            book["altogether"] = combined_privacy(part, [book, *entries], Loss(pure=each * done) if each else None)
        return book
