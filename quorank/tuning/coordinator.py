"""Coordinator of a tuning: updates are summed, an iteration closes, a new version of the weights is made.

Hartmann et al. 2019, §5.5, with the changes that §6.4 asks for. The coordinator adds each update to running sums and
keeps nothing else of it. The simulation and the service (`open_version`) drive the same object.

The optimisers are those of a federation's server, on weights counted in their declared steps: one number serves weights
of any size, and Rprop's `most` = 1 is the largest change that the constraints allow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.federation.server_optimisers import Adam, Add, Memory, Momentum, Rprop, Server
from quorank.kernels.arrays import Booleans, Doubles
from quorank.parts import Family
from quorank.tuning.closing import Closing, Count, Estimate
from quorank.tuning.guards import Evidence, Guard, ImmediateGuard
from quorank.tuning.heuristics.constraints import project
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.models import Model, check_model
from quorank.tuning.releases import GradientRelease, Release

OPTIMISERS: Family[Server] = Family("server optimiser", Rprop, Add, Momentum, Adam, base=Server, word="server")
_DEFAULTS: tuple[Server, ...] = (Rprop(), Adam(step=0.3), Momentum(step=4.0), Add(step=40.0))
OPTIMISER_DEFAULTS = {optimiser.kind: optimiser for optimiser in _DEFAULTS}
"""Optimisers that a bare word stands for: their steps suit the slopes of the relative loss, per declared step."""

KEPT_SUMS = ("kept.seen", "kept.total", "kept.squares")
"""Names under which a version's file holds the sums that undecided weights take along."""
KEPT_EVIDENCE = ("kept.watched", "kept.tried", "kept.stepped")
"""And the evidence on the published weights, and on the trial against the reference and the published ones."""

NO_TRIALS = (Evidence(), Evidence())


class Updates(NamedTuple):
    """Released updates for the current version, one row each."""

    values: Doubles  # (updates, weights): slopes as released
    loss: Doubles  # (updates,)
    # (updates, 3): share of the first place that the chosen item has under the reference, the published weights and the
    # trial; None where the guard does not ask
    first: Doubles | None = None


@dataclass(frozen=True)
class TuningCoordinator:
    """Rules of a tuning, as pure steps on an explicit state: `start` or `resume`, `receive`, `closes`, `advance`.

    Args:
        heuristic: Names, bounds, steps and orders of the weights; the score is not used.
        optimiser: Server optimiser, on weights in units of their steps.
        closing: Rule that closes an iteration.
        release: Form in which updates arrive.
        sure: Standard errors from 0 at which a slope moves its weight; see `threshold`.
        keep: Share of its sums that a weight which did not move takes into the next iteration.
        guard: Rule by which versions are published.
    """

    heuristic: Heuristic
    optimiser: Server = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=GradientRelease)
    sure: float | None = None
    keep: float = 0.9
    guard: Guard = field(default_factory=ImmediateGuard)

    def __post_init__(self) -> None:
        if self.sure is not None:
            require_range("sure", self.sure, least=0.0)
        require_range("keep", self.keep, least=0.0, below=1.0)

    @property
    def threshold(self) -> float:
        """`sure`; by default so that of d weights whose slopes are all 0, two move by chance, and at least 1.

        That is z with 1 − Φ(z) = 1/d: 1.22 standard errors for 9 weights, 1.69 for 22. More weights, more caution:
        moves by chance cost rank accuracy together. 0 moves every weight always, as published.
        """
        if self.sure is not None:
            return self.sure
        return max(1.0, NormalDist().inv_cdf(1.0 - 1.0 / max(2, len(self.heuristic.weights))))

    def start(self, weights: Doubles | None = None, now: float = 0.0) -> TuningState:
        """Return the state of version 0: the shipped weights, or others that are allowed."""
        first = self.heuristic.shipped if weights is None else weights
        model = Model(self.heuristic.name, 0, self.heuristic.named(first), optimiser=str(self.optimiser))
        return self.resume(model, now)

    def resume(self, model: Model, now: float = 0.0) -> TuningState:
        """Return the state of a version; the updates of its unfinished iteration are lost."""
        where = f"version {model.version}"
        check_model(model, self.heuristic, where)
        published, weights, reference = (
            self.heuristic.vector(model.weights if named is None else named)
            for named in (None, model.trial, model.reference)
        )
        memory = {name: np.array(values) for name, values in model.memory.items()}
        seen, total, squares = (memory.pop(name, np.zeros(len(weights))) for name in KEPT_SUMS)
        watched, *trials = (Evidence(*memory.pop(name, np.zeros(4)).tolist()) for name in KEPT_EVIDENCE)
        other = f"was made by {model.optimiser}, not {self.optimiser}; continue with it, or start from its weights"
        require(not memory or model.optimiser == str(self.optimiser), "weights.other-optimiser", other, where)
        memory = memory or self.optimiser.start(len(weights))
        estimate = Estimate(0, seen, total, squares, 0.0)
        judged = (watched, tuple(trials), model.shortened)
        return TuningState(model.version, weights, memory, estimate, now, published, reference, *judged)

    def usable(self, updates: Updates) -> Booleans:
        """Return which updates (updates,) an honest client can have sent."""
        count = len(updates.values)
        usable = self.release.accepts(updates.values) & np.isfinite(updates.loss)
        if self.guard.judges:
            complete = updates.first is not None and updates.first.shape == (count, 3)
            first = updates.first if updates.first is not None and complete else np.full((count, 3), np.nan)
            usable &= ((first >= 0.0) & (first <= 1.0)).all(axis=1)
        return np.asarray(usable, dtype=np.bool_)

    def receive(self, state: TuningState, updates: Updates) -> TuningState:
        """Return the state with all `usable` updates added; the others are left out."""
        keep = self.usable(updates)
        counted = self.release.per_step(updates.values[keep], self.heuristic.steps(state.weights))
        state = replace(state, estimate=state.estimate.add(counted, updates.loss[keep]))
        if self.guard.judges and updates.first is not None:
            reference, published, trial = updates.first[keep].T
            watched = state.watched.add(reference, published)
            trials = tuple(one.add(base, trial) for one, base in zip(state.trials, (reference, published), strict=True))
            state = replace(state, watched=watched, trials=trials)
        return state

    def closes(self, state: TuningState, now: float) -> bool:
        """Return whether the iteration closes."""
        return self.closing.closes(state.estimate, now - state.since)

    def advance(self, state: TuningState, now: float) -> tuple[TuningState, Model]:
        """Close the iteration: publish the trial and step on, extend the trial, shorten the step, or roll back.

        Raises:
            BadInput: The iteration has no updates.
        """
        estimate, version = state.estimate, state.version + 1
        empty = f"iteration {version} has no updates yet: nothing to learn from"
        require(estimate.count > 0, "tuning.no-updates", empty)
        if self.guard.withdraws(state.watched):
            after = self._put_on_trial(state, state.reference, state.reference, 0)
        elif not state.on_trial or all(map(self.guard.passes, state.trials)):
            after = self._step(state)
        elif not self.guard.decides(state.trials):
            after = replace(state, estimate=estimate.carry_over(np.ones(len(state.weights), np.bool_), 1.0))
        elif self.guard.shortens(state.shortened):
            halfway = project(self.heuristic, (state.weights + state.published) / 2.0, state.published)
            after = self._put_on_trial(state, state.published, halfway, state.shortened + 1)
        else:
            after = self._put_on_trial(state, state.published, state.published, 0)
        after = replace(after, version=version, since=now)
        return after, self.model(after, estimate)

    def _step(self, state: TuningState) -> TuningState:
        """Publish the weights on trial, and put the optimiser's step, projected onto the constraints, on trial.

        A coordinate whose sign is not known sits the iteration out: its weight and the optimiser's memory of it stay,
        and it keeps a share of its sums, so that each weight waits for as many updates as its slope needs.
        """
        estimate, unit = state.estimate, self.heuristic.steps(state.weights)
        slope = self.release.direction(estimate.total, estimate.squares, estimate.seen)
        moved, memory = self.optimiser.advance(state.weights / unit, -slope, state.memory)
        unsure = np.abs(estimate.mean()) < self.threshold * estimate.standard_error()
        weights = project(self.heuristic, np.where(unsure, state.weights, moved * unit), state.weights)
        memory = {
            name: np.where(unsure, state.memory[name], values) if values.shape == unsure.shape else values
            for name, values in memory.items()
        }
        return replace(
            state,
            weights=weights,
            memory=memory,
            estimate=estimate.carry_over(unsure, self.keep),
            published=state.weights if self.guard.judges else weights,
            watched=Evidence() if state.on_trial else state.watched,
            trials=NO_TRIALS,
            shortened=0,
        )

    def _put_on_trial(self, state: TuningState, published: Doubles, trial: Doubles, shortened: int) -> TuningState:
        """Put other weights on trial, with shorter steps for the weights that led to the last ones.

        Slopes taken at the abandoned weights are forgotten.
        """
        return replace(
            state,
            weights=trial,
            memory=self.optimiser.shorten(state.memory, state.weights != published),
            estimate=Estimate.empty(len(trial)),
            published=published,
            watched=state.watched if np.array_equal(published, state.published) else Evidence(),
            trials=NO_TRIALS,
            shortened=shortened,
        )

    def model(self, state: TuningState, estimate: Estimate) -> Model:
        """Return the version of a state, made by the iteration with these sums."""
        kept = state.estimate
        stored = state.memory | dict(zip(KEPT_SUMS, (kept.seen, kept.total, kept.squares), strict=True))
        if self.guard.judges:
            evidence = (state.watched, *state.trials)
            stored |= {name: np.array(one) for name, one in zip(KEPT_EVIDENCE, evidence, strict=True)}
        named = self.heuristic.named
        trial, reference = (named(state.weights), named(state.reference)) if self.guard.judges else (None, None)
        return Model(
            self.heuristic.name,
            state.version,
            named(state.published),
            estimate.count,
            estimate.loss / estimate.count,
            str(self.optimiser),
            {name: values.tolist() for name, values in stored.items()},
            trial,
            reference,
            state.shortened,
        )


@dataclass(frozen=True)
class TuningState:
    """State of a tuning between messages; it holds no update."""

    version: int
    weights: Doubles  # at which slopes are taken: on trial, unless they are published
    memory: Memory
    estimate: Estimate
    since: float  # when the iteration began
    published: Doubles  # by which clients order their lists
    reference: Doubles  # with which the tuning began, and to which it is rolled back
    watched: Evidence = field(default_factory=Evidence)  # of the published weights against the reference
    trials: tuple[Evidence, ...] = NO_TRIALS  # of the weights on trial against the reference and the published ones
    shortened: int = 0  # number of times the step on trial was halved

    @property
    def on_trial(self) -> bool:
        """True while the weights differ from the published ones."""
        return not np.array_equal(self.weights, self.published)
