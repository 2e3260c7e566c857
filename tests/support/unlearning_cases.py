"""Small federations for tests of unlearning: what clients learn, and rounds of kept updates."""

from __future__ import annotations

import numpy as np
from lists import simulate

from quorank.engines.process import Simulator
from quorank.federation import Federation
from quorank.federation.unlearning.methods import KeptRound, norms_of
from quorank.learning import PDGD

CLIENTS, B = 8, 5


def learned(simulation, theta, round_, clients, steps) -> np.ndarray:
    """What each client learns in a round, straight from the learner."""
    return simulate(simulation, PDGD(), theta, clients, steps, round_)[:, : simulation.parameters]


def kept_of(rounds=6, every=4, clients=CLIENTS, seed=0) -> list[KeptRound]:
    random = np.random.default_rng(seed)
    return [KeptRound(1 + every * j, np.arange(clients), random.uniform(0.1, 0.6, clients)) for j in range(rounds)]


def played(simulation, rounds: int, **parts) -> tuple[np.ndarray, list[KeptRound]]:
    """A run in which every update is kept: its last ranker, and what was kept."""
    simulator = Simulator(Federation(CLIENTS, B, **parts), simulation, rounds=rounds)
    state, kept = simulator.initial(), []

    def keep(clients, updates) -> None:
        kept.append(KeptRound(len(kept) + 1, clients.copy(), norms_of(updates), updates.copy()))

    for _ in range(rounds):
        state, _ = simulator.federation.round(state, simulator.gather(state, sent=keep))
    return state.theta, kept
