"""Three ways to rebuild a ranker without clients that leave: retraining, fresh and published (FedEraser).

`published` is thesis chapter 6 after FedEraser (Liu et al. 2021). Every Δt rounds each client kept its update ΔM_{i,t}. The
ranker is rebuilt from its start in T/Δt rounds of n′ local steps: a client sends its new update ΔM′ with the length of the
kept one (eq. 6.2), and the updates are combined and applied as in the run (eq. 6.1). The leavers still act through the
lengths of the others' kept updates.

`fresh` omits eq. 6.2, so updates keep their own length and nothing of the leavers acts any more. Each round stands for Δt
rounds, so its step is as many times longer, and the published ranker is the mean of the θ of all rounds in which round t
counts t^γ.

`retrain` repeats every round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.federation.rounds import CohortSum, Federation, State
from quorank.federation.server_optimisers import AVERAGE
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy import Mechanism
from quorank.privacy.streams import SeedKind, derive_seed

Watch = Callable[[int, Doubles], None]
"""Called after each round with the number of rounds done and the ranker published by then."""


class CohortEngine(Protocol):
    """Engine that plays the cohorts of a rebuilding, such as `quorank.engines.process.Simulator`."""

    federation: Federation

    @property
    def absent(self) -> Sequence[int]:
        """Clients in no cohort."""

    @property
    def mechanism(self) -> Mechanism:
        """Privacy mechanism of the rebuilding."""

    def initial(self) -> State:
        """Return the state before the first round."""

    def gather(self, state: State, *, sent: Any = None, members: Integers | None = None) -> CohortSum:
        """Play a cohort; `sent` is called with clients and updates (clients, parameters) before their release."""

    def close(self) -> None:
        """Stop the engine's threads."""


@dataclass(frozen=True, eq=False)
class KeptRound:
    """Kept updates of the remaining clients in one round."""

    round: int  # t, from 1
    clients: Integers  # ascending
    lengths: Doubles  # ‖ΔM_{i,t}‖, one per client
    updates: Doubles | None = None  # (clients, parameters) ΔM_{i,t}, where they are needed


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Rebuilt ranker and the effort it took."""

    theta: Doubles
    rounds: int  # T_unlearn
    local_steps: int  # Σ n′ over clients and rounds
    directionless: int  # new updates of zero
    lengthless: int  # kept updates of zero; these clients send nothing
    participants: Doubles  # (rounds,) clients of each round
    sensitivity: Doubles  # (rounds,) of the round's sum to one client; NaN where unbounded
    noise: Doubles  # (rounds,) standard deviation of the noise on each number of that sum


def calibrated(update: Doubles, norm: Doubles | float, length: Doubles | float) -> Doubles:
    """Return ‖ΔM‖·ΔM′/‖ΔM′‖, eq. 6.2, of updates with these norms; zero for an update of zero."""
    return np.asarray(update / np.where(np.asarray(norm) > 0.0, norm, 1.0) * length, dtype=np.float64)


def norms_of(rows: npt.NDArray[np.floating]) -> Doubles:
    """Return ‖x_i‖ of every row in double precision, safe against underflow of squares."""
    exact = np.asarray(rows, dtype=np.float64)
    largest = np.abs(exact).max(axis=1, initial=0.0)
    scale = np.where(largest > 0.0, largest, 1.0)
    return np.asarray(np.sqrt(((exact / scale[:, None]) ** 2).sum(axis=1)) * scale, dtype=np.float64)


def clip_parameters(updates: Doubles, theta: Doubles, bound: float) -> None:
    """Clip θ + update to an L2 norm, in place on every row: a kept length may lead out of the bound."""
    if np.isfinite(bound):
        reached = theta + updates
        norms = norms_of(reached)
        outside = norms > bound
        updates[outside] = reached[outside] * (bound / norms[outside])[:, None] - theta


def scaled_steps(interactions: Integers, b: int, local_steps: int) -> Integers:
    """Return n′_i = n_i·n′/B, rounded, at least 1, which leaves the weights n_i/Σn of eq. 6.1 unchanged."""
    return np.maximum(1, np.rint(interactions * local_steps / b)).astype(np.int64)


def momentum_over(beta: float, rounds: int) -> tuple[float, float]:
    """Return β′ = β^Δt and the gain g = (1 − β^Δt)/(1 − β) of a round that stands for Δt rounds with momentum β.

    The run sends m ← β·m + u, the rebuilding g·(m ← β′·m + u): equal after each such round for constant u.
    """
    whole = float(beta**rounds)
    return whole, (1.0 - whole) / (1.0 - beta)


def fresh_seed(seed: SeedKind, purpose: str, leavers: Sequence[int]) -> SeedKind:
    """Return a seed for a rebuilding's draws; repeated noise of the run could be subtracted."""
    return derive_seed(seed, f"{purpose} {' '.join(map(str, sorted(leavers)))}".encode())


def scale_sum(cohort_sum: CohortSum, factor: float) -> CohortSum:
    """Multiply a cohort's updates on the server's side, beyond any clip."""
    updates = None if cohort_sum.updates is None else factor * cohort_sum.updates
    return cohort_sum._replace(total=factor * cohort_sum.total, updates=updates)


def rebuild(
    engine: CohortEngine,
    theta: Doubles,
    kept: Sequence[KeptRound],
    watch: Watch | None = None,
    *,
    step_factor: float = 1.0,
    average: float | None = None,
    lengths: Literal["kept", "own"] = "kept",
    gain: float = 1.0,
) -> Rebuilt:
    """Run steps 1 to 4 of §6.1.2 from a ranker.

    Args:
        engine: Plays n′ interactions per client, without the leavers.
        theta: θ before the first round.
        kept: Rounds to play again, with the lengths that clients kept.
        watch: Called after each round.
        step_factor: Factor of each server step; Δt if a round stands for Δt rounds.
        average: γ of the mean of rankers to return, unless the server averages itself; None returns the last.
        lengths: "kept" applies eq. 6.2; "own" leaves updates unchanged.
        gain: Factor of an unscaled update before privacy bounds it (`momentum_over`).
    """
    bound, directionless, lengthless = engine.mechanism.bound, 0, 0

    def send(known: Doubles, theta: Doubles, clients: Integers, updates: Doubles) -> None:
        nonlocal directionless, lengthless
        norms = norms_of(updates)
        if lengths == "kept":
            directionless += int(np.count_nonzero((norms == 0.0) & (known > 0.0)))
            lengthless += int(np.count_nonzero(known == 0.0))
            updates[:] = calibrated(updates, norms[:, None], known[:, None])
        else:
            directionless += int(np.count_nonzero(norms == 0.0))
            updates *= gain
        clip_parameters(updates, theta, bound)

    def gather(state: State) -> CohortSum:
        entry = kept[state.round]
        present = ~np.isin(entry.clients, engine.absent)
        sent = partial(send, entry.lengths[present], state.theta)
        return engine.gather(state, sent=sent, members=entry.clients[present])

    require(len(kept) > 0, "unlearning.nothing-kept", "there is no kept round to rebuild the ranker from")
    found = play_rounds(engine, theta, len(kept), gather, watch, step_factor, average)
    return replace(found, directionless=directionless, lengthless=lengthless)


def retrain(engine: CohortEngine, theta: Doubles, rounds: int, watch: Watch | None = None) -> Rebuilt:
    """Play rounds of the run without its absent clients, from θ."""
    return play_rounds(engine, theta, rounds, engine.gather, watch)


def play_rounds(
    engine: CohortEngine,
    theta: Doubles,
    rounds: int,
    gather: Callable[[State], CohortSum],
    watch: Watch | None,
    step_factor: float = 1.0,
    average: float | None = None,
) -> Rebuilt:
    """Combine and apply the sum that `gather` returns for each round, from θ, then close the engine."""
    federation = engine.federation
    # momentum of the run is dropped: it was learned from rankers of the leavers
    state = replace(federation.start(theta), private=engine.mechanism.start(), carried=engine.initial().carried)
    steps, mean, total = 0, state.theta, 0.0
    releases = np.empty((3, rounds))
    try:
        for count in range(1, rounds + 1):
            cohort_sum = gather(state)
            state, report = federation.round(state, scale_sum(cohort_sum, step_factor))
            releases[:, count - 1] = report.participants, report.sensitivity, report.noise
            weight = 0.0 if average is None else float(count) ** average
            total += weight
            mean = state.theta if average is None else mean + weight / total * (state.theta - mean)
            steps += cohort_sum.interactions
            theta = federation.ranker(state) if AVERAGE in state.memory else mean
            if watch is not None:
                watch(count, theta)
    finally:
        engine.close()
    return Rebuilt(theta, rounds, steps, 0, 0, *releases)
