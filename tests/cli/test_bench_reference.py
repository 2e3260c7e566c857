"""The yardstick of `quorank bench` learns what the package learns: two readings of the same equations."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from quorank.data import DataSource, load
from quorank.engines.process import Simulator
from quorank.federation import Federation
from quorank.federation.rounds import State
from quorank.learning import PDGD, Simulation
from quorank.learning.pdgd import pair_weight
from quorank.metrics.evaluator import ideal_dcg
from quorank.rankers import Linear
from quorank.users import Cascade

UNLIKELY = 1e-4  # the chance that right code fails, taken once: all draws are seeded
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "benchmarks" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pair_weights_agree_with_the_direct_product(reference: ModuleType) -> None:
    """ρ = P(R*) / (P(R) + P(R*)) with the probabilities of eq. 2 written out, for all pairs of a list."""
    random = np.random.default_rng(1)
    scores = random.normal(size=9)
    shown = random.permutation(9)[:6]

    def probability(order: np.ndarray) -> float:
        weights, left, product = np.exp(scores), np.exp(scores).sum(), 1.0
        for document in order:
            product *= weights[document] / left
            left -= weights[document]
        return product

    weights = np.exp(scores - scores.max())
    rest = weights.sum() - weights[shown].sum()
    denominators = rest + np.cumsum(weights[shown][::-1])[::-1]
    for a in range(6):
        for b in range(a + 1, 6):
            swapped = shown.copy()
            swapped[[a, b]] = swapped[[b, a]]
            direct = pair_weight(probability(shown), probability(swapped))
            assert reference.pair_weight(weights[shown], denominators, a, b) == pytest.approx(direct, rel=1e-12)


@pytest.mark.parametrize("preset", ["perfect", "navigational", "informational"])
def test_the_mean_update_is_the_same(reference: ModuleType, preset: str) -> None:
    """From one θ, many clients each: every coordinate of the mean update, and the online nDCG, by z-tests."""
    data = load(DataSource("synthetic:mq2007", queries=60)).train
    users, count, interactions = Cascade(preset=preset), 2500, 2
    theta = np.random.default_rng(2).normal(0, 0.3, data.n_features)
    tables, ideal = users.tables(3, 10), ideal_dcg(data, 10)
    ours, our_ndcg = np.empty((count, data.n_features)), np.empty(count)
    alone = Simulator(
        Federation(clients=1, interactions=interactions, learner=PDGD(eta=0.1)),
        Simulation(data, Linear(), users, 3, seed=3),
    )
    for client in range(count):  # one client a round: each row is one client's own update
        gathered = alone.gather(State(client, theta, {}))
        ours[client], our_ndcg[client] = gathered.total / interactions, gathered.ndcg / interactions
    random = np.random.default_rng(4)
    theirs, their_ndcg = np.empty_like(ours), np.empty(count)
    for client in range(count):
        moved, their_ndcg[client] = reference.federated_round(
            reference.Lists(np.asarray(data.features), data.labels, data.offsets, ideal), theta, 1, interactions,
            (tables.click, tables.stop), random,
        )  # fmt: skip
        theirs[client] = moved - theta
    both = [(ours[:, j], theirs[:, j]) for j in range(data.n_features)] + [(our_ndcg, their_ndcg)]
    error = np.array([np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / count) for a, b in both])
    difference = np.array([a.mean() - b.mean() for a, b in both])
    z = np.abs(difference) / np.maximum(error, 1e-12)
    assert z.max() < stats.norm.isf(UNLIKELY / 2 / len(z)), z
    # and the test has power: half of the update would be noticed
    assert (np.abs(theirs.mean(axis=0)) / 2 > 4 * error[:-1]).sum() >= 5
