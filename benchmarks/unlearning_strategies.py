"""Four further unlearning strategies, for comparison with those of `quorank unlearn`.

Tao, Wang, Yang and Zuccon (2025, "Unlearning for Federated Online Learning to Rank: A Reproducibility Study") compare five:
retraining and FedEraser (`published`), which `quorank unlearn` has, and fine-tuning, FedRemove and projected gradient
ascent (Halimi et al. 2022, "Federated Unlearning: How to Efficiently Erase a Client in FL?"). These three start from what
was learned with the leavers and keep traces of them. `stretched` is FedEraser with longer steps and a mean of rankers,
which the thesis's figures show as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quorank.engines.process import Simulator
from quorank.errors import require
from quorank.experiments import run_directory as storage
from quorank.experiments.kept_updates import read_kept
from quorank.experiments.unlearning.request import Unlearning
from quorank.federation import Federation, State
from quorank.federation.rounds import CohortSum
from quorank.federation.unlearning.methods import (
    KeptRound,
    Rebuilt,
    Watch,
    clip_parameters,
    fresh_seed,
    norms_of,
    play_rounds,
    retrain,
)
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.learning.client_loop import STATISTICS
from quorank.reproduce.studies.unlearning import stretched

RADIUS = 1.0 / 3.0
"""Radius of the ball of projected gradient ascent, over the reference's distance to untrained rankers."""
RANDOM_RANKERS = 10
"""Number of untrained rankers over which that distance is a mean."""


class StrategyResult(NamedTuple):
    """Rebuilt ranker, and the interactions of the leavers that it took."""

    rebuilt: Rebuilt
    leavers_steps: int = 0


def fine_tune(request: Unlearning) -> StrategyResult:
    """T/Δt rounds of the remaining clients from the last ranker."""
    engine = request.engine(request.experiment.federation.client_momentum)
    return StrategyResult(retrain(engine, request.before, request.rounds, request.tick))


def fed_remove(request: Unlearning) -> StrategyResult:
    """FedRemove: the remaining clients' kept updates combined once more."""
    engine, kept = request.engine(0.0), request.kept(updates=True)
    return StrategyResult(reaggregate(engine, request.start, kept, request.tick, step_factor=float(request.every)))


def projected_ascent(request: Unlearning) -> StrategyResult:
    """Projected gradient ascent of the leavers, followed by fine-tuning."""
    experiment, runner, size = request.experiment, request.runner, request.runner.simulator.simulation.parameters
    learner = experiment.federation.learner
    sentence = f"{learner.kind} learns nothing on the client that a leaver could undo; choose another strategy"
    require(learner.learns_on_client, "unlearning.nothing-to-undo", sentence, str(request.run))
    sentence = "a leaver would undo its learning where no noise and no sum hides it, and this run has privacy"
    require(not experiment.federation.privacy.protects, "unlearning.leaver-in-the-open", sentence, str(request.run))
    present = [c for c in storage.clients_with_kept(request.run) if c not in request.left]
    own = {client: read_kept(request.run, client, size) for client in present}
    last = max((int(rounds[-1]) for rounds, _ in own.values() if len(rounds)), default=0)
    members = np.array([c for c, (rounds, _) in own.items() if last in rounds], dtype=np.int64)
    nothing = "its clients kept no updates; run it again with --set federation.keep_every=10"
    require(not {*members.tolist()} <= {*request.clients}, "kept-updates.missing", nothing, str(request.run))
    updates = np.array([own[c][1][own[c][0] == last][0] for c in members.tolist()], dtype=np.float64)
    each = runner.simulator.interactions
    weights = np.ones(len(members)) if each is None else each[members].astype(np.float64)
    reference = reference_ranker(request.before, updates, weights, np.isin(members, request.clients))
    seed, features = fresh_seed(experiment.seed, "ascent", request.leavers), runner.workload.simulation.data.n_features
    untrained = [experiment.ranker.initial(features, seed ^ i) for i in range(RANDOM_RANKERS)]
    radius = RADIUS * float(np.mean([np.linalg.norm(reference - theta) for theta in untrained]))
    federation = Federation(experiment.federation.clients, request.steps, learner)
    simulation = replace(runner.workload.simulation, seed=seed)
    simulator = Simulator(federation, simulation, request.threads, rounds=request.rounds)
    leavers = np.array(sorted(request.clients), dtype=np.int64)
    theta, steps = ascend(simulator, reference, radius, request.rounds, leavers, request.tick)
    engine = request.engine(experiment.federation.client_momentum)
    return StrategyResult(retrain(engine, theta, request.rounds, request.tick), steps)


STRATEGIES: Mapping[str, Callable[[Unlearning], StrategyResult]] = {
    "stretched": lambda request: StrategyResult(stretched(request)),
    "fine-tune": fine_tune,
    "fedremove": fed_remove,
    "pga": projected_ascent,
}
"""The strategies of this module by name; each takes a request whose method is `published`."""


def reaggregate(
    simulator: Simulator, theta: Doubles, kept: list[KeptRound], watch: Watch | None = None, *, step_factor: float = 1.0
) -> Rebuilt:
    """Return θ_0 + Σ_t of the remaining clients' kept updates, combined and applied as in the run, without interactions."""

    def gather(state: State) -> CohortSum:
        entry = kept[state.round]
        assert entry.updates is not None
        present = ~np.isin(entry.clients, simulator.absent)
        updates = np.array(entry.updates[present], dtype=np.float64)
        clip_parameters(updates, state.theta, simulator.mechanism.bound)
        return released_again(simulator, state, entry.clients[present], updates)

    nothing = "there are no kept updates to send again"
    require(len(kept) > 0 and all(k.updates is not None for k in kept), "unlearning.nothing-kept", nothing)
    return replace(play_rounds(simulator, theta, len(kept), gather, watch, step_factor), local_steps=0)


def released_again(simulator: Simulator, state: State, clients: Integers, updates: Doubles) -> CohortSum:
    """Sum up kept updates (clients, parameters) as a round's releases, without interactions."""
    sentence = f"privacy is planned for {simulator.rounds} rounds, and they are done; plan a longer run"
    planned = state.round < (simulator.rounds or 1) or simulator.mechanism.sums_as_sent
    require(planned, "privacy.rounds-exceeded", sentence)
    rows = np.zeros((len(clients), updates.shape[1] + STATISTICS))
    each = np.full(len(clients), simulator.federation.interactions)
    interactions = each if simulator.interactions is None else simulator.interactions[clients]
    rows[:, : updates.shape[1]] = updates
    released, gathering, mechanism = rows[:, : updates.shape[1]], simulator.gathering(), simulator.mechanism
    within = mechanism.release(released, state.theta, state.round, clients, state.private)
    mechanism.check(released, clients, state.private)
    gathering.add(clients, rows, interactions, within)
    return gathering.close(state, updates=released, weights=interactions.astype(np.float64))._replace(members=clients)


def reference_ranker(theta: Doubles, updates: Doubles, weights: Doubles, leaving: Booleans) -> Doubles:
    """Return w_ref of Halimi et al. (2022), the mean of the other clients' local rankers w_j = w + Δ_j in the last round.

    θ = w + Σ n_j·Δ_j/Σ n_j is the ranker after that round, so w_ref − θ is the mean of the others' updates (clients,
    parameters), weighted by n (clients,), minus that of all.
    """
    others = ~leaving
    return np.asarray(
        theta + weights[others] @ updates[others] / weights[others].sum() - weights @ updates / weights.sum()
    )


def projected(theta: Doubles, centre: Doubles, radius: float) -> Doubles:
    """Return the nearest point to θ in the ball around the centre."""
    way = theta - centre
    length = float(norms_of(way[None])[0])
    return theta if length <= radius else np.asarray(centre + way * (radius / length))


def ascend(
    simulator: Simulator, reference: Doubles, radius: float, steps: int, leavers: Integers, watch: Watch | None = None
) -> tuple[Doubles, int]:
    """Step θ ← P(θ − Δ) from w_ref, Δ the leavers' mean update; return θ and the leavers' interactions.

    A client's update decreases its loss, so the ascent is its negative.
    """
    state, interactions = simulator.federation.start(reference), 0
    try:
        for count in range(1, steps + 1):
            cohort_sum = simulator.gather(state, members=leavers)
            theta = projected(state.theta - cohort_sum.total / cohort_sum.weight, reference, radius)
            state = replace(state, round=count, theta=theta)
            interactions += cohort_sum.interactions
            if watch is not None:
                watch(count, theta)
    finally:
        simulator.close()
    return state.theta, interactions
