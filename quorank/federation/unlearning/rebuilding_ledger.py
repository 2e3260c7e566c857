"""Ledger of a coordinator's rebuildings: every noisy sum is counted before it is released.

A rebuilding releases a sum in each of its rounds, as the next task's ranker. A round is written here before its
checkpoint, and stays when the rebuilding is abandoned or the coordinator is killed: a kill between the two writes counts
one release too many, never one too few.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from quorank.federation.rounds import CohortSum
from quorank.files.codec import Range
from quorank.files.documents import parse_json
from quorank.parts import to_table
from quorank.privacy import Mechanism, Privacy, Setting
from quorank.privacy.composition import Loss, compose, total_loss
from quorank.privacy.ledger import ledger

DOCUMENT = "rebuildings"
"""Name of the stored document."""


@dataclass(frozen=True)
class CountedRebuilding:
    """Releases of one rebuilding."""

    number: Annotated[int, Range(1)]
    without: tuple[Annotated[int, Range(0)], ...]  # clients that have left
    setting: Setting  # planned
    releases: tuple[tuple[float, float | None, float], ...] = ()  # (participants, sensitivity, noise) of each round
    finished: bool = False

    @property
    def rounds(self) -> int:
        """Number of released sums."""
        return len(self.releases)

    def loss(self, privacy: Privacy) -> Loss | None:
        """Return the privacy loss of the releases; None if no ε is stated."""
        return privacy.mechanism(self.setting, 0).loss(self.rounds)

    def entry(self, privacy: Privacy, *, withhold: bool) -> dict[str, Any]:
        """Return the rebuilding as a ledger entry; `withhold` hides the participants."""
        part = to_table(privacy)
        shape = (self.rounds, 3)
        rows = [
            (clients, math.nan if sensitivity is None else sensitivity, noise)
            for clients, sensitivity, noise in self.releases
        ]
        columns = np.array(rows, dtype=np.float64).reshape(shape).T
        mechanism = privacy.mechanism(self.setting, 0)
        book = ledger(part, mechanism, self.setting, *columns, withhold=withhold, curve=False)
        kept = {key: book[key] for key in ("mechanism", "setting", "releases", "privacy")}
        return {"without": list(self.without), "finished": self.finished, **kept}


class RunPlan(NamedTuple):
    """Numbers of rounds of a run and a rebuilding, and the loss of the metrics that devices report."""

    rounds: int  # planned
    ends: int  # current end
    done: int
    rebuilding: int
    reports: Loss


class BudgetFit(NamedTuple):
    """Outcome of fitting a rebuilding into the run's budget of ε."""

    fits: bool
    shorter: int = 0  # rounds of the run that it replaces
    reached: float = 0.0  # ε of run, reports and all rebuildings with this one, at the run's whole length
    budget: float = 0.0
    delta: float = 0.0


@dataclass(eq=False)
class RebuildingLedger:
    """Rebuildings of one coordinator.

    Args:
        privacy: The run's privacy with the run's noise.
        content: The stored document, if there is one.
        write: Replaces the stored document.
    """

    privacy: Privacy
    content: bytes | None = None
    write: Callable[[bytes], None] = lambda content: None
    entries: list[CountedRebuilding] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.content is not None:
            advice = "; restore the store from a backup"
            self.entries = parse_json(self.content, list[CountedRebuilding], DOCUMENT, advice=advice)

    def fit(
        self, number: int, loss: Loss | None, mechanism: Mechanism, plan: RunPlan, budget: float | None
    ) -> BudgetFit:
        """Fit a rebuilding with this loss into the budget by shortening the run.

        Args:
            number: Number of the rebuilding.
            loss: Its loss; None if no ε is stated.
            mechanism: The run's.
            plan: Numbers of rounds.
            budget: ε of everything together; by default the planned ε of run and reports.
        """
        planned = mechanism.loss(plan.rounds)
        if planned is None or loss is None:
            return BudgetFit(True)
        delta = float((mechanism.statement(1) or {})["delta"])
        budget = budget or compose(planned + plan.reports, delta).epsilon
        others = [plan.reports, *self.losses(but=number), loss]
        reached, rounds = math.inf, plan.rebuilding
        for shorter in (0, rounds, rounds + 1, math.ceil(1.2 * rounds) + 1, 2 * rounds):
            run = mechanism.loss(plan.ends - shorter) if shorter <= plan.ends - plan.done else None
            if run is None:
                continue
            found = compose(total_loss([run, *others]), delta).epsilon
            reached = found if math.isinf(reached) else reached
            if found <= budget * (1.0 + 1e-9):
                return BudgetFit(True, shorter)
        return BudgetFit(False, 0, reached, budget, delta)

    def begin(self, number: int, without: tuple[int, ...], setting: Setting) -> None:
        """Record a rebuilding before its first round; a continued one is recorded already."""
        if all(entry.number != number for entry in self.entries):
            self._write([*self.entries, CountedRebuilding(number, without, setting)])

    def count(self, number: int, round_: int, cohort_sum: CohortSum) -> None:
        """Count the sum of a round, from 0; a repeated round counts once."""
        sensitivity = cohort_sum.sensitivity if math.isfinite(cohort_sum.sensitivity) else None
        release = (float(cohort_sum.clients), sensitivity, float(cohort_sum.noise))
        self._change(number, lambda entry: replace(entry, releases=(*entry.releases[:round_], release)))

    def finish(self, number: int) -> None:
        """Record that the rebuilt ranker has replaced the run's."""
        self._change(number, lambda entry: replace(entry, finished=True))

    def losses(self, but: int | None = None) -> list[Loss]:
        """Return the losses of all rebuildings but one, as far as an ε is stated."""
        found = [entry.loss(self.privacy) for entry in self.entries if entry.number != but]
        return [loss for loss in found if loss is not None]

    def table(self, *, withhold: bool) -> list[dict[str, Any]]:
        """Return the rebuildings as ledger entries."""
        return [entry.entry(self.privacy, withhold=withhold) for entry in self.entries]

    def _change(self, number: int, change: Callable[[CountedRebuilding], CountedRebuilding]) -> None:
        self._write([change(entry) if entry.number == number else entry for entry in self.entries])

    def _write(self, entries: list[CountedRebuilding]) -> None:
        if entries != self.entries:
            text = json.dumps([asdict(entry) for entry in entries], allow_nan=False)
            self.write(text.encode())
        self.entries = entries
