"""Coordinator of a tuning: updates are summed, an iteration closes, a new version of the weights is made.

Hartmann et al. 2019, §5.5, with the changes that §6.4 asks for. The coordinator adds each update to running sums and
keeps nothing else of it. The simulation and the service (`field`) drive the same object.

The optimisers are those of a federation's server, on weights counted in their declared steps: one number serves weights
of any size, and Rprop's `most` = 1 is the largest change that the constraints allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation.server_optimisers import Adam, Add, Memory, Momentum, Rprop, Server
from quorank.files.codec import Range
from quorank.kernels.arrays import Booleans, Doubles
from quorank.parts import Family
from quorank.tuning.heuristics.constraints import project
from quorank.tuning.heuristics.heuristic import HeuristicDeclaration
from quorank.tuning.models import Model, check_model
from quorank.tuning.rules import (
    CLOSINGS,
    GUARDS,
    RELEASES,
    Closing,
    Count,
    Estimate,
    Evidence,
    GradientRelease,
    Guard,
    ImmediateGuard,
    JudgedGuard,
    Release,
)

OPTIMISERS: Family[Server] = Family("server optimiser", Rprop, Add, Momentum, Adam, base=Server, word="server")
_DEFAULTS: tuple[Server, ...] = (Rprop(), Adam(step=0.3), Momentum(step=4.0), Add(step=40.0))
OPTIMISER_DEFAULTS = {optimiser.kind: optimiser for optimiser in _DEFAULTS}
"""Optimisers that a bare word stands for: their steps suit the slopes of the relative loss, per declared step."""
FAMILIES: dict[str, Family[Any]] = {
    "optimiser": OPTIMISERS, "closing": CLOSINGS, "release": RELEASES, "guard": GUARDS,
}  # fmt: skip

RELATIVE_MARGIN = 0.2  # δ of the relative loss: a share of the spread of a list's scores
NO_EVIDENCE = Evidence()


class Updates(NamedTuple):
    """Released updates for the current version, one row each."""

    values: Doubles  # (updates, weights): slopes as released
    loss: Doubles  # (updates,)
    # (updates, 3): share of the first place that the chosen item has under the reference, the published weights and the
    # trial; None where the guard does not ask
    first: Doubles | None = None


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
    watched: Evidence = NO_EVIDENCE  # of the published weights against the reference
    trials: tuple[Evidence, Evidence] = (NO_EVIDENCE, NO_EVIDENCE)  # of the trial against reference and published ones
    shortened: int = 0  # number of times the step on trial was halved

    @property
    def on_trial(self) -> bool:
        """True while the weights differ from the published ones."""
        return not np.array_equal(self.weights, self.published)


@dataclass(frozen=True, kw_only=True)
class TuningSettings:
    """Settings that a simulated tuning and one in the field share.

    Args:
        iterations: Number of versions.
        loss: `relative` to the standard deviation of the scores, or as `published`.
        margin: δ of the relative loss, or Δ of the published one in points; by default 0.2, or that of the scenario.
        optimiser: Server optimiser.
        closing: Rule that closes an iteration.
        release: Form of an update.
        sure: Standard errors from 0 at which a slope moves its weight; see `TuningCoordinator.threshold`.
        keep: Share of its sums that a weight which did not move takes into the next iteration.
        guard: Rule by which versions are published.
    """

    iterations: Annotated[int, Range(1, 1_000_000)] = 48
    loss: Literal["relative", "published"] = "relative"
    margin: Annotated[float, Range(0.0)] | None = None
    optimiser: Server = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=GradientRelease)
    sure: Annotated[float, Range(0.0)] | None = None
    keep: Annotated[float, Range(0.0, below=1.0)] = 0.9
    guard: Guard = field(default_factory=JudgedGuard)

    @staticmethod
    def with_parts(table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the table of some settings with its parts read, each a word or a table."""
        values = dict(table)
        for name in FAMILIES.keys() & values.keys():
            spec = values[name]
            default = OPTIMISER_DEFAULTS.get(spec) if name == "optimiser" and isinstance(spec, str) else None
            values[name] = default or FAMILIES[name].read(spec, name)
        return values

    def loss_margin(self, published: float | None = None) -> float:
        """Return the margin of the loss; `published` is the scenario's, in points."""
        default = RELATIVE_MARGIN if self.loss == "relative" else published
        margin = default if self.margin is None else self.margin
        if margin is None:
            raise BadInput("tuning.no-margin", "the published loss needs a margin, in points", "margin")
        return margin


@dataclass(frozen=True)
class TuningCoordinator:
    """Rules of a tuning, as pure steps on an explicit state: `start` or `resume`, `receive`, `closes`, `advance`."""

    heuristic: HeuristicDeclaration
    settings: TuningSettings

    @property
    def threshold(self) -> float:
        """`sure`; by default so that of d weights whose slopes are all 0, two move by chance, and at least 1.

        That is z with 1 − Φ(z) = 1/d: 1.22 standard errors for 9 weights, 1.69 for 22. More weights, more caution:
        moves by chance cost rank accuracy together. 0 moves every weight always, as published.
        """
        if self.settings.sure is not None:
            return self.settings.sure
        return max(1.0, NormalDist().inv_cdf(1.0 - 1.0 / max(2, len(self.heuristic.weights))))

    @property
    def judges(self) -> bool:
        """Return whether versions are published only after a trial."""
        return isinstance(self.settings.guard, JudgedGuard)

    def start(self, weights: Doubles | None = None) -> TuningState:
        """Return the state of version 0: the shipped weights, or others that are allowed."""
        first = self.heuristic.shipped if weights is None else weights
        return self.resume(Model(self.heuristic.name, 0, self.heuristic.named(first)))

    def resume(self, model: Model) -> TuningState:
        """Return the state of a version; the updates of its unfinished iteration are lost."""
        where = f"version {model.version}"
        check_model(model, self.heuristic, where)
        published, weights, reference = (
            self.heuristic.vector(named or model.weights) for named in (None, model.trial, model.reference)
        )
        optimiser = self.settings.optimiser
        other = f"was made by {model.optimiser}, not {optimiser}; continue with it, or start from its weights"
        same = not model.memory or model.optimiser == str(optimiser)
        require(same, "weights.other-optimiser", other, where)
        memory = {name: np.array(values) for name, values in model.memory.items()} or optimiser.start(len(weights))
        estimate = Estimate.empty(len(weights))
        if model.sums:
            seen, total, squares = map(np.array, model.sums)
            estimate = Estimate(0, seen, total, squares, 0.0)
        watched, *trials = [Evidence(*row) for row in model.evidence] or [NO_EVIDENCE] * 3
        return TuningState(
            model.version, weights, memory, estimate, 0.0, published, reference, watched, (trials[0], trials[1]),
            model.shortened,
        )  # fmt: skip

    def usable(self, updates: Updates) -> Booleans:
        """Return which updates (updates,) an honest client can have sent."""
        usable = self.settings.release.accepts(updates.values) & np.isfinite(updates.loss)
        if self.judges:
            first = np.full((len(usable), 3), np.nan) if updates.first is None else updates.first
            usable &= ((first >= 0.0) & (first <= 1.0)).all(axis=1)
        return np.asarray(usable, dtype=np.bool_)

    def receive(self, state: TuningState, updates: Updates) -> TuningState:
        """Return the state with all `usable` updates added; the others are left out."""
        keep = self.usable(updates)
        counted = self.settings.release.per_step(updates.values[keep], self.heuristic.steps(state.weights))
        state = replace(state, estimate=state.estimate.add(counted, updates.loss[keep]))
        if self.judges and updates.first is not None:
            reference, published, trial = updates.first[keep].T
            trials = state.trials[0].add(reference, trial), state.trials[1].add(published, trial)
            state = replace(state, watched=state.watched.add(reference, published), trials=trials)
        return state

    def closes(self, state: TuningState, now: float) -> bool:
        """Return whether the iteration closes."""
        return self.settings.closing.closes(state.estimate, now - state.since)

    def advance(self, state: TuningState, now: float) -> tuple[TuningState, Model]:
        """Close the iteration: publish the trial and step on, extend the trial, shorten the step, or roll back.

        Raises:
            BadInput: The iteration has no updates.
        """
        estimate, version, guard = state.estimate, state.version + 1, self.settings.guard
        guard = guard.of(self.settings.release) if isinstance(guard, JudgedGuard) else guard
        empty = f"iteration {version} has no updates yet: nothing to learn from"
        require(estimate.count > 0, "tuning.no-updates", empty)
        if isinstance(guard, JudgedGuard) and guard.withdraws(state.watched):
            after = self._put_on_trial(state, state.reference, state.reference, 0)
        elif isinstance(guard, ImmediateGuard) or not state.on_trial or all(map(guard.passes, state.trials)):
            after = self._step(state)
        elif not guard.decides(state.trials):
            after = replace(state, estimate=estimate.carry_over(np.ones(len(state.weights), np.bool_), 1.0))
        elif state.shortened < guard.halvings:
            halfway = project(self.heuristic, (state.weights + state.published) / 2.0, state.published)
            after = self._put_on_trial(state, state.published, halfway, state.shortened + 1)
        else:
            after = self._put_on_trial(state, state.published, state.published, 0)
        after = replace(after, version=version, since=now)
        return after, self._model(after, estimate)

    def _step(self, state: TuningState) -> TuningState:
        """Publish the weights on trial, and put the optimiser's step, projected onto the constraints, on trial.

        A coordinate whose sign is not known sits the iteration out: its weight and the optimiser's memory of it stay,
        and it keeps a share of its sums, so that each weight waits for as many updates as its slope needs.
        """
        estimate, unit = state.estimate, self.heuristic.steps(state.weights)
        mean = estimate.mean()
        moved, memory = self.settings.optimiser.advance(
            state.weights / unit, -self.settings.release.direction(mean), state.memory
        )
        unsure = np.abs(mean) < self.threshold * estimate.standard_error()
        weights = project(self.heuristic, np.where(unsure, state.weights, moved * unit), state.weights)
        memory = {
            name: np.where(unsure, state.memory[name], values) if values.shape == unsure.shape else values
            for name, values in memory.items()
        }
        return TuningState(
            state.version, weights, memory, estimate.carry_over(unsure, self.settings.keep), state.since,
            state.weights if self.judges else weights, state.reference,
            NO_EVIDENCE if state.on_trial else state.watched,
        )  # fmt: skip

    def _put_on_trial(self, state: TuningState, published: Doubles, trial: Doubles, shortened: int) -> TuningState:
        """Put other weights on trial, with shorter steps for the weights that led to the last ones.

        Slopes taken at the abandoned weights are forgotten.
        """
        memory = self.settings.optimiser.shorten(state.memory, state.weights != published)
        watched = state.watched if np.array_equal(published, state.published) else NO_EVIDENCE
        return TuningState(
            state.version, trial, memory, Estimate.empty(len(trial)), state.since, published, state.reference, watched,
            shortened=shortened,
        )  # fmt: skip

    def _model(self, state: TuningState, estimate: Estimate) -> Model:
        """Return the version of a state, made by the iteration with these sums."""
        kept, named = state.estimate, self.heuristic.named
        return Model(
            self.heuristic.name,
            state.version,
            named(state.published),
            estimate.count,
            estimate.loss / estimate.count,
            str(self.settings.optimiser),
            {name: values.tolist() for name, values in state.memory.items()},
            (kept.seen.tolist(), kept.total.tolist(), kept.squares.tolist()),
            named(state.weights),
            named(state.reference),
            (state.watched, *state.trials),
            state.shortened,
        )
