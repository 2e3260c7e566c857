"""Unlearning: calibrated rebuilding (thesis chapter 6, after FedEraser: Liu et al. 2021), and the ways beside it.

Every Δt rounds each client kept its update ΔM_{i,t}. When clients leave, the ranker is rebuilt from its start without
them in T/Δt rounds of n′ local steps: a client sends its new update ΔM′ with the length of the one that it kept
(eq. 6.2), and what is sent is combined and applied as in the run itself (eq. 6.1).

Eq. 6.2 reads nothing of a kept update but its length. So what the leavers did still acts, as the thesis says, through
the lengths of the others' updates, which were learned from rankers that the leavers had a part in; and one number a
round would be all that a client has to keep.

As published the ranker goes only a part of its way: T/Δt steps of the length of one round each. Here the coordinator may
step `stretch` times as far, Δt times for instance, since each round stands for Δt of them; and, as long steps are noisy,
hand out a mean of the θ of all rounds in which round t counts t^γ (`average`).

With `lengths = "own"` eq. 6.2 is left out: a new update keeps its length, so that an update that says little counts little,
and nothing of what the leavers did acts any more, not even through lengths. This is retraining in fewer, longer rounds.

Tao, Wang, Yang and Zuccon (2025, "Unlearning for Federated Online Learning to Rank: A Reproducibility Study") compare
five strategies. FedEraser is the rebuilding above. Retraining is one with all rounds and updates of their own length;
fine-tuning is that from the last ranker instead of the first. FedRemove combines the updates that the others had kept
once more (`reaggregate`). Projected gradient ascent (Halimi et al. 2022, "Federated Unlearning: How to Efficiently Erase
a Client in FL?") lets the leavers undo their learning within a ball around the mean of the others' local rankers
(`ascend`), which fine-tuning follows. The last three start from what was learned with the leavers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.federation.rounds import CohortSum, State
from quorank.federation.server_optimisers import AVERAGE
from quorank.kernels.arrays import Booleans, Doubles, Integers

Simulator = Any
"""Engine that plays cohorts: `quorank.engines.process.Simulator`."""
Watch = Callable[[int, Doubles], None]
"""Is told after each round how many are done, and the ranker that would be handed out by then."""


@dataclass(frozen=True, eq=False)
class KeptRound:
    """What the remaining clients know of a round that they kept."""

    round: int  # t, from 1
    clients: Integers  # in order of their numbers
    lengths: Doubles  # ‖ΔM_{i,t}‖, one per client
    updates: Doubles | None = None  # (clients, parameters) ΔM_{i,t}, where whole updates are sent again


@dataclass(eq=False)
class Calibration:
    """Gives new updates the kept lengths, and counts what cannot be calibrated."""

    directionless: int = field(default=0, init=False)  # new updates of zero where a length was kept
    lengthless: int = field(default=0, init=False)  # kept updates of zero: these clients send nothing

    def apply(self, updates: Doubles, lengths: Doubles) -> None:
        """Eq. 6.2 on every row, in place. An update of zero has no direction, and stays zero."""
        norms = norms_of(updates)
        self.directionless += int(np.count_nonzero((norms == 0.0) & (lengths > 0.0)))
        self.lengthless += int(np.count_nonzero(lengths == 0.0))
        for row, norm, length in zip(updates, norms, lengths, strict=True):
            row[:] = calibrated(row, float(norm), float(length))


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """A ranker without the leavers, and what it took."""

    theta: Doubles
    rounds: int  # T_unlearn
    local_steps: int  # Σ n′ over clients and rounds
    directionless: int
    lengthless: int
    participants: Doubles  # (rounds,) clients of each round
    sensitivity: Doubles  # (rounds,) how far one client could move the round's sum; NaN where nothing bounds it
    noise: Doubles  # (rounds,) standard deviation of the noise on each number of that sum
    ascent_steps: int = 0  # interactions of the leavers, where they help


def calibrated(update: Doubles, norm: float, length: float) -> Doubles:
    """‖ΔM‖·ΔM′/‖ΔM′‖, eq. 6.2: the direction of the new update, the length of the kept one; zero without direction."""
    return np.asarray(update / norm * length if norm > 0.0 else np.zeros_like(update), dtype=np.float64)


def norms_of(rows: npt.NDArray[np.floating]) -> Doubles:
    """‖x_i‖ of every row, in double precision whatever the rows are kept in; safe where squares would underflow."""
    exact = np.asarray(rows, dtype=np.float64)
    largest = np.abs(exact).max(axis=1, initial=0.0)
    scale = np.where(largest > 0.0, largest, 1.0)
    return np.asarray(np.sqrt(((exact / scale[:, None]) ** 2).sum(axis=1)) * scale, dtype=np.float64)


def within_bound(updates: Doubles, theta: Doubles, bound: float) -> None:
    """θ + update clipped to an L2 norm, in place, on every row: a length that was kept may lead out of the bound again."""
    if np.isfinite(bound):
        reached = theta + updates
        norms = norms_of(reached)
        outside = norms > bound
        updates[outside] = reached[outside] * (bound / norms[outside])[:, None] - theta


def scaled_steps(interactions: Integers, b: int, local_steps: int) -> Integers:
    """n′_i where clients differ in how much they search: n_i·n′/B, rounded, at least 1.

    So the weights n_i/Σn of eq. 6.1 stay what they were, up to the rounding.
    """
    return np.maximum(1, np.rint(interactions * local_steps / b)).astype(np.int64)


def momentum_over(beta: float, rounds: int) -> tuple[float, float]:
    """β′ and gain g of a round that stands for so many with momentum β: they send m ← β·m + u, it sends g·(m ← β′·m + u).

    β′ = β^Δt and g = (1 − β^Δt)/(1 − β): where u stays the same, g·m is after each such round what m is after Δt.
    """
    whole = float(beta**rounds)
    return whole, (1.0 - whole) / (1.0 - beta)


def fresh_seed(seed: int, purpose: str, leavers: Sequence[int]) -> int:
    """A seed for the draws of a rebuilding, none of which may repeat the run's: its noise could be subtracted then."""
    text = f"{seed} {purpose} {' '.join(map(str, sorted(leavers)))}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def stretched(gathered: CohortSum, stretch: float) -> CohortSum:
    """What a cohort sent, as if each had gone `stretch` times as far: on the coordinator's side, so no clip undoes it."""
    updates = None if gathered.updates is None else stretch * gathered.updates
    return gathered._replace(total=stretch * gathered.total, updates=updates)


def rebuild(
    simulator: Simulator,
    theta: Doubles,
    kept: Sequence[KeptRound],
    watch: Watch | None = None,
    *,
    stretch: float = 1.0,
    average: float | None = None,
    lengths: Literal["kept", "own"] = "kept",
    gain: float = 1.0,
) -> Rebuilt:
    """Steps 1 to 4 of §6.1.2 from a ranker θ; `simulator` plays n′ interactions and knows who is absent.

    `gain` is by what clients multiply an update of its own length before privacy bounds it (`momentum_over`).
    A server that averages by itself is left to do so.
    """
    bound, calibration = simulator.mechanism.bound, Calibration()

    def send(known: Doubles, theta: Doubles, clients: Integers, updates: Doubles) -> None:
        if lengths == "kept":
            calibration.apply(updates, known)
        else:
            calibration.directionless += int(np.count_nonzero(~updates.any(axis=1)))
            updates *= gain
        within_bound(updates, theta, bound)

    def gather(state: State) -> CohortSum:
        entry = kept[state.round]
        present = ~np.isin(entry.clients, simulator.absent)
        sent = partial(send, entry.lengths[present], state.theta)
        total: CohortSum = simulator.gather(state, sent=sent, members=entry.clients[present])
        return total

    require(len(kept) > 0, "unlearning.nothing-kept", "there is no kept round to rebuild the ranker from")
    found = _play_rounds(simulator, theta, len(kept), gather, watch, stretch, average)
    return replace(found, directionless=calibration.directionless, lengthless=calibration.lengthless)


def reaggregate(
    simulator: Simulator, theta: Doubles, kept: Sequence[KeptRound], watch: Watch | None = None, *, stretch: float = 1.0
) -> Rebuilt:
    """FedRemove: θ_0 + Σ_t of the remaining clients' kept updates, combined and applied as in the run. Nobody interacts."""

    def gather(state: State) -> CohortSum:
        entry = kept[state.round]
        assert entry.updates is not None
        present = ~np.isin(entry.clients, simulator.absent)
        updates = np.array(entry.updates[present], dtype=np.float64)
        within_bound(updates, state.theta, simulator.mechanism.bound)
        total: CohortSum = simulator.resend(state, entry.clients[present], updates)
        return total

    nothing = "there are no kept updates to send again"
    require(len(kept) > 0 and all(k.updates is not None for k in kept), "unlearning.nothing-kept", nothing)
    return replace(_play_rounds(simulator, theta, len(kept), gather, watch, stretch), local_steps=0)


def retrain(simulator: Simulator, theta: Doubles, rounds: int, watch: Watch | None = None) -> Rebuilt:
    """Rounds of the run without those who are absent: retraining from the first ranker θ, fine-tuning from the last."""
    return _play_rounds(simulator, theta, rounds, simulator.gather, watch)


def _play_rounds(
    simulator: Simulator,
    theta: Doubles,
    rounds: int,
    gather: Callable[[State], CohortSum],
    watch: Watch | None,
    stretch: float = 1.0,
    average: float | None = None,
) -> Rebuilt:
    """Combine and apply what is gathered in each round, from θ."""
    federation = simulator.federation
    # of the run nobody carries on anything: the others learned it from rankers that the leavers had a part in
    state = replace(federation.start(theta), private=simulator.mechanism.start(), carried=simulator.initial().carried)
    steps, mean, total = 0, state.theta, 0.0
    releases = np.empty((3, rounds))
    try:
        for count in range(1, rounds + 1):
            gathered = gather(state)
            state, report = federation.round(state, stretched(gathered, stretch))
            releases[:, count - 1] = report.participants, report.sensitivity, report.noise
            weight = 0.0 if average is None else float(count) ** average
            total += weight
            mean = state.theta if average is None else mean + weight / total * (state.theta - mean)
            steps += gathered.interactions
            theta = federation.ranker(state) if AVERAGE in state.memory else mean
            if watch is not None:
                watch(count, theta)
    finally:
        simulator.close()
    return Rebuilt(theta, rounds, steps, 0, 0, *releases)


def reference_ranker(theta: Doubles, updates: Doubles, weights: Doubles, leaving: Booleans) -> Doubles:
    """w_ref of Halimi et al. (2022): the mean of the other clients' local rankers w_j = w + Δ_j in the last round.

    θ is w + Σ n_j·Δ_j/Σ n_j, the ranker after that round, so that w_ref − θ is a difference of two means of the
    updates (clients, parameters), weighted by n (clients,): that over the others and that over all.
    """
    others = ~leaving
    return np.asarray(
        theta + weights[others] @ updates[others] / weights[others].sum() - weights @ updates / weights.sum()
    )


def projected(theta: Doubles, centre: Doubles, radius: float) -> Doubles:
    """The point nearest to θ of the ball of this radius around the centre."""
    way = theta - centre
    length = float(norms_of(way[None])[0])
    return theta if length <= radius else np.asarray(centre + way * (radius / length))


def ascend(
    simulator: Simulator, reference: Doubles, radius: float, steps: int, leavers: Integers, watch: Watch | None = None
) -> tuple[Doubles, int]:
    """Projected gradient ascent: θ ← P(θ − Δ) from w_ref, Δ the leavers' mean update from θ; and their interactions.

    A client's update goes down its loss, so the way up is minus that.
    """
    state, interactions = simulator.federation.start(reference), 0
    try:
        for count in range(1, steps + 1):
            gathered = simulator.gather(state, members=leavers)
            theta = projected(state.theta - gathered.total / gathered.weight, reference, radius)
            state = replace(state, round=count, theta=theta)
            interactions += gathered.interactions
            if watch is not None:
                watch(count, theta)
    finally:
        simulator.close()
    return state.theta, interactions
