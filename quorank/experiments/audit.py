"""Audits of a run: a lower bound on ε from canary clients, a test of the noise, and an attack that reads clicks.

The canaries give a lower bound on ε that holds with the stated confidence. A bound above the claim refutes the claim;
a bound below it proves nothing: one run shows a fraction of what a mechanism may lose. The noise of the sums is compared
with the noise that the claim asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.experiments.experiment import Experiment
from quorank.experiments.runner import Runner
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, key_of
from quorank.kernels.process import available_threads
from quorank.privacy import ClippedGaussian, Mechanism
from quorank.privacy.audit.canaries import Audit, Canaries, audit_coins
from quorank.privacy.audit.noise import NoiseTest, WatchedMechanism, check_noise
from quorank.privacy.audit.reconstruction import AttackedRounds, reconstruction_study

Watch = Callable[[int, int], None]

UNBOUNDED = 0.1  # norm of a canary's update where privacy sets no bound
SHOWN_BUDGET = 8.0  # whole-run ε of the noise that the attack is shown against if the run had none (δ = 1e-5)


@dataclass(frozen=True, eq=False)
class Replay:
    """Observations of a run that was repeated with canaries."""

    released: Doubles  # (rounds with canaries, parameters) noisy sums, in units of a canary's norm
    canaries: Canaries
    theta: Doubles  # at half time
    noise: float  # standard deviation on a sum at half time, in the units of an update
    clip: float
    added: Doubles  # (rounds, parameters) noise of the sums; NaN in rounds without a sum
    clips: Doubles  # (rounds,)
    clients: Doubles  # (rounds,)


def audit_experiment(
    experiment: Experiment,
    *,
    canaries: int = 1000,
    confidence: float = 0.95,
    victims: int = 40,
    seed: int = 1,
    threads: int | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Run all audits of an experiment; `passed` is False if a bound refutes the ε that is claimed."""
    require_range("canaries", canaries, least=10)
    require_range("confidence", confidence, least=0.5, below=1.0)
    require_range("victims", victims, least=0)
    privacy = experiment.federation.privacy
    alone = f"{privacy.kind} protects each message on its own, and canaries test sums"
    sentence = f"{alone}; audit a run with privacy gaussian, published, secure-sum or none"
    require(not privacy.protects_messages, "audit.local-privacy", sentence)
    # without the messages of its secure sums, whose totals are the same
    federation = replace(experiment.federation, privacy=privacy.without_masks())
    runner = Runner(replace(experiment, federation=federation), threads or available_threads())
    replay = _replay(runner, canaries, seed, watch)
    mechanism = runner.simulator.mechanism
    claim = mechanism.statement()
    delta = (claim or {}).get("delta") or 1e-5
    found = audit_coins(replay.canaries.scores(replay.released), replay.canaries.included, delta, confidence)
    claimed, noise = (claim or {}).get("epsilon"), None
    planned = None if claimed is None else mechanism.planned_noise(claimed, replay.clips, replay.clients)
    summed = ~np.isnan(replay.added).all(axis=1)
    if planned is not None and summed.any() and experiment.federation.attack is None:
        noise = check_noise((replay.added / planned[:, None])[summed])
    result = _verdict(claim, found, noise)
    if victims:
        result["reconstruction"] = _reconstruction(experiment, runner, replay, victims)
    return result


def _replay(runner: Runner, count: int, seed: int, watch: Watch | None) -> Replay:
    simulator, rounds = runner.simulator, runner.experiment.rounds
    size, federation = simulator.simulation.parameters, runner.experiment.federation
    # a canary takes part as often as anyone may: the claim counts on that
    turns = federation.participation.turns.busiest(rounds)
    rate = 1.0 if federation.participation.open_arrivals else simulator.setting.rate
    most = (size * len(turns) - 1) // 2
    sentence = f"{count} canaries do not fit {len(turns)} rounds of {size} numbers: ask for at most {most}"
    require(count <= most, "audit.too-many-canaries", sentence)
    canaries = Canaries(count, size, len(turns), 1.0, key_of(seed, Purpose.CANARY))
    watched = WatchedMechanism(simulator.mechanism)
    simulator.mechanism = cast("Mechanism", watched)
    state, released, halfway = simulator.initial(), np.empty((len(turns), size)), None
    added, clips, clients = np.zeros((rounds, size)), np.empty(rounds), np.empty(rounds)
    weight = federation.interactions if simulator.mechanism.weighted else 1
    try:
        for t in range(rounds):
            bound = state.private.get("clip")  # norm of the longest update that a client may send
            length = (federation.privacy.longest_update or UNBOUNDED) if bound is None else float(bound[0])
            turn = turns.index(t) if t in turns else None
            beside = None if turn is None else weight * length * canaries.contribution(turn, rate)
            gathered = simulator.gather(state, beside=beside)
            if turn is not None:
                released[turn] = gathered.total / (weight * length)
            if beside is not None and (unit := watched.unit_of(state.private)) != 1.0:
                beside = np.rint(beside * unit) / unit  # as it is added to a sum of integers
            noise = gathered.total - watched.exact - (0.0 if beside is None else beside)
            added[t] = np.nan if gathered.dropped or gathered.stays else noise
            clips[t], clients[t] = length, gathered.clients
            if t == rounds // 2:
                halfway = Replay(released, canaries, state.theta, gathered.noise, length, added, clips, clients)
            state, _ = federation.round(state, gathered)
            if watch is not None:
                watch(t + 1, rounds)
    finally:
        simulator.mechanism = watched.watched
        simulator.close()
    assert halfway is not None
    return halfway


def _verdict(claim: dict[str, Any] | None, found: Audit, noise: NoiseTest | None) -> dict[str, Any]:
    claimed = (claim or {}).get("epsilon")
    result: dict[str, Any] = {
        "claimed": {key: claim[key] for key in ("kind", "epsilon", "delta", "unit", "horizon")} if claim else None,
        "lower_bound": found.epsilon,
        "delta": found.delta,
        "unit": "client",
        "horizon": "whole run",
        "confidence": found.confidence,
        "canaries": found.canaries,
        "guesses": found.guesses,
        "correct": found.correct,
        "ceiling": found.ceiling,
        "noise": None if noise is None else asdict(noise),
        "passed": claimed is None or (found.epsilon <= claimed and (noise is None or noise.passed)),
    }
    if claim and "published_epsilon" in claim:
        result["published"] = {
            "epsilon": claim["published_epsilon"],
            "read_as": "the ε of the whole run, as a reader of the paper may take it",
            "refuted": found.epsilon > claim["published_epsilon"],
        }
    return result


def _reconstruction(experiment: Experiment, runner: Runner, replay: Replay, victims: int) -> dict[str, Any]:
    federation = experiment.federation
    eta = federation.learner.pdgd_eta
    if experiment.ranker.hidden or eta is None:
        return {"skipped": "the attack reads the updates of pdgd as published with a linear ranker"}
    if federation.client_momentum > 0.0:
        many = "the attack reads the update of one round, and with client_momentum a client sends many in one"
        return {"skipped": many}
    cohort = federation.participation.size(federation.clients)
    if cohort < 2:
        return {"skipped": "a cohort of one client hides nothing in its sum"}
    noise, origin = replay.noise, "of this run"
    if noise == 0.0:
        setting = federation.setting(experiment.rounds, runner.simulator.simulation.parameters)
        noise = ClippedGaussian(SHOWN_BUDGET).multiplier(setting) * replay.clip
        origin = f"of a whole-run ε of {SHOWN_BUDGET:g} at δ = 1e-05 for one client; this run had none"
    try:
        lines = reconstruction_study(
            runner.collection.train,
            experiment.ranker,
            experiment.users,
            replay.theta,
            AttackedRounds(eta, federation.interactions, cohort, replay.clip, noise, experiment.evaluation.k),
            clients=victims,
            seed=experiment.seed,
        )
    except BadInput as error:
        return {"skipped": str(error)}
    return {"victims": victims, "cohort": cohort, "noise": origin, "lines": lines}


def telling(auc: float) -> str:
    """Return an area under the curve in words."""
    if not math.isfinite(auc):
        return "nothing to guess"
    return "readable" if auc > 0.9 else "partly readable" if auc > 0.6 else "hidden"
