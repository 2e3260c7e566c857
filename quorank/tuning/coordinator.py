"""Coordinator of a tuning: updates come in, an iteration closes, a new version of the weights goes out.

Hartmann et al. 2019, §5.5, with the changes that §6.4 asks for. A client fetches the model, computes one update per
search, and sends it with the version it was made for, a pseudonym that is good for this version only, and the number
of the search under that version. The coordinator adds it to running sums and forgets it; of who sent what it keeps the
pseudonyms and numbers of the versions that may still count, to refuse duplicates.

The optimisers are those of a federation's server, on weights counted in their declared steps: one number serves weights
of any size, and Rprop's `most` = 1 is the largest change that the constraints allow.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.federation.server_optimisers import Adam, Add, Memory, Momentum, Rprop, Server
from quorank.kernels.arrays import Bytes, Doubles, Integers, Uint64s
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

ENVELOPE = 4 + 8 + 4 + 4
"""Bytes that go with every update: version, pseudonym, number, loss."""

KEPT_SUMS = ("kept.seen", "kept.total", "kept.squares")
"""Names under which a version's file holds the sums that undecided weights take along."""
KEPT_EVIDENCE = ("kept.watched", "kept.tried", "kept.stepped")
"""And the evidence on the published weights, and on the trial against the reference and the published ones."""


NO_TRIALS = (Evidence(), Evidence())


class Updates(NamedTuple):
    """Updates as they arrive, one row each."""

    version: Integers
    client: Uint64s  # pseudonym
    number: Integers  # of the search, counted by the client from 0 for every version
    payload: Bytes  # (updates, bytes)
    loss: Doubles
    # (updates, 3): share of the first place that the chosen item has under the reference, the published weights and the
    # trial; (updates, 0) where the guard does not ask
    first: Doubles | None = None


class Receipt(NamedTuple):
    """Numbers of updates by what became of them: every update is in exactly one."""

    counted: int  # also late ones that still count
    late: int  # made for a version that no longer counts
    duplicate: int
    refused: int  # a version that is not out yet, too many of one client, or no numbers at all


def pseudonym(secret: bytes, version: int) -> int:
    """Return 64 bits that identify a client under one version and no other; `secret` never leaves the client."""
    require(16 <= len(secret) <= 64, "secret.wrong-size", f"a secret must have 16 to 64 bytes, got {len(secret)}")
    return int.from_bytes(hashlib.blake2b(str(version).encode(), key=secret, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class TuningCoordinator:
    """Rules of a tuning, as pure steps on an explicit state: start or resume, receive, closes, advance."""

    heuristic: Heuristic
    optimiser: Server = field(default_factory=Rprop)
    closing: Closing = field(default_factory=Count)
    release: Release = field(default_factory=GradientRelease)
    sure: float | None = None  # standard errors from 0 at which a weight moves, see `threshold`
    keep: float = 0.9  # share of its sums that a coordinate which sat out takes into the next iteration
    late: int = 0  # updates for a version so many iterations old still count, as if made for the current one
    per_client: int = 1000  # updates that count of one client and version
    guard: Guard = field(default_factory=ImmediateGuard)  # how weights are published

    def __post_init__(self) -> None:
        if self.sure is not None:
            require_range("sure", self.sure, least=0.0)
        require_range("keep", self.keep, least=0.0, below=1.0)
        require_range("late", self.late, least=0)
        require_range("per_client", self.per_client, least=1)

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
        watched, *trials = (Evidence.of(memory.pop(name, np.zeros(4)).tolist()) for name in KEPT_EVIDENCE)
        other = (
            f"was made by {model.optimiser}, not {self.optimiser}; go on with that optimiser, or start from its weights"
        )
        require(not memory or model.optimiser == str(self.optimiser), "weights.other-optimiser", other, where)
        memory = memory or self.optimiser.start(len(weights))
        estimate = Estimate(0, seen, total, squares, 0.0)
        senders: dict[int, set[tuple[int, int]]] = {model.version: set()}
        return TuningState(
            model.version,
            weights,
            memory,
            estimate,
            now,
            senders,
            published,
            reference,
            watched,
            tuple(trials),
            model.shortened,
        )

    def receive(self, state: TuningState, updates: Updates) -> tuple[TuningState, Receipt]:
        """Add the updates that count. `state` is replaced, and its record of senders goes on in the new one."""
        size = len(state.weights)
        values = self.release.unpack(updates.payload, size)
        finite = np.isfinite(values).all(axis=1) & np.isfinite(updates.loss)
        told = updates.first is not None and updates.first.shape == (len(values), 3)
        first = updates.first if updates.first is not None and told else np.full((len(values), 3), np.nan)
        if self.guard.judges:
            finite &= ((first >= 0.0) & (first <= 1.0)).all(axis=1)
        keep = np.zeros(len(values), dtype=np.bool_)
        late = duplicate = refused = 0
        columns = (updates.version, updates.client, updates.number, finite)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (version, client, number, usable) in enumerate(rows):
            if version > state.version or not usable or not 0 <= number < self.per_client:
                refused += 1
            elif version not in state.senders:
                late += 1
            elif (client, number) in state.senders[version]:
                duplicate += 1
            else:
                state.senders[version].add((client, number))
                keep[row] = True
        counted = self.release.per_step(values[keep], self.heuristic.steps(state.weights))
        estimate = state.estimate.add(counted, updates.loss[keep])
        state = replace(state, estimate=estimate)
        if self.guard.judges:
            reference, published, trial = first[keep & (updates.version == state.version)].T
            watched = state.watched.add(reference, published)
            trials = tuple(one.add(base, trial) for one, base in zip(state.trials, (reference, published), strict=True))
            state = replace(state, watched=watched, trials=trials)
        return state, Receipt(int(keep.sum()), late, duplicate, refused)

    def closes(self, state: TuningState, now: float) -> bool:
        """Return whether the iteration closes."""
        return self.closing.closes(state.estimate, now - state.since)

    def advance(self, state: TuningState, now: float) -> tuple[TuningState, Model]:
        """Close the iteration: publish what was on trial and step on, go on trying, shorten the step, or roll back."""
        estimate, version = state.estimate, state.version + 1
        require(
            estimate.count > 0, "tuning.no-updates", f"iteration {version} has no updates yet: nothing to learn from"
        )
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
        counting = {v: senders for v, senders in state.senders.items() if version - v <= self.late}
        after = replace(after, version=version, since=now, senders=counting | {version: set()})
        return after, self.model(after, estimate)

    def _step(self, state: TuningState) -> TuningState:
        """Return the state with the weights published, and the optimiser's step from them projected onto the constraints.

        Steps are counted in declared steps. A coordinate whose sign is not known sits the iteration out: its weight and the
        optimiser's memory of it stay, and it keeps a share of its sums, so that each weight waits for as many updates as
        its slope needs.
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
        published = state.weights if self.guard.judges else weights
        watched = Evidence() if state.on_trial else state.watched
        kept = estimate.carry_over(unsure, self.keep)
        return replace(
            state,
            weights=weights,
            memory=memory,
            estimate=kept,
            published=published,
            watched=watched,
            trials=NO_TRIALS,
            shortened=0,
        )

    def _put_on_trial(self, state: TuningState, published: Doubles, trial: Doubles, shortened: int) -> TuningState:
        """Return the state with other weights on trial, and shorter steps for the weights that had led to the last ones.

        Slopes of weights that nobody stands at are forgotten.
        """
        memory = self.optimiser.shorten(state.memory, state.weights != published)
        watched = state.watched if np.array_equal(published, state.published) else Evidence()
        empty = Estimate.empty(len(trial))
        return replace(
            state,
            weights=trial,
            memory=memory,
            estimate=empty,
            published=published,
            watched=watched,
            trials=NO_TRIALS,
            shortened=shortened,
        )

    def model(self, state: TuningState, estimate: Estimate) -> Model:
        """Return the version that a state stands for, made out of the iteration with these sums."""
        kept = state.estimate
        stored = state.memory | dict(zip(KEPT_SUMS, (kept.seen, kept.total, kept.squares), strict=True))
        if self.guard.judges:
            evidence = (state.watched, *state.trials)
            stored |= {name: np.array(one.sums) for name, one in zip(KEPT_EVIDENCE, evidence, strict=True)}
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
    weights: Doubles  # where slopes are taken: on trial, unless they are published
    memory: Memory
    estimate: Estimate
    since: float  # when the iteration began
    senders: dict[int, set[tuple[int, int]]]  # (pseudonym, number) of each version that still counts
    published: Doubles  # what clients order their lists by
    reference: Doubles  # what the tuning began with, and is rolled back to
    watched: Evidence = field(default_factory=Evidence)  # of the published weights against the reference
    trials: tuple[Evidence, ...] = NO_TRIALS  # of the weights on trial against the reference and the published ones
    shortened: int = 0  # how often the step on trial was halved

    @property
    def on_trial(self) -> bool:
        """Whether the weights are not published yet."""
        return not np.array_equal(self.weights, self.published)
