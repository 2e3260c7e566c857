"""Evolution strategies against eq. 4 of FOLtR-ES, and one client's message in plain Python."""

from __future__ import annotations

import math

import equations
import numpy as np
import pytest
from chance import assert_mean
from lists import simulate
from sampling import sampled

from quorank.errors import BadInput
from quorank.kernels.draws import Purpose, key_of, philox, uniforms
from quorank.learning import Evolution, Simulation
from quorank.learning.client_loop import STATISTICS
from quorank.learning.evolution import perturbation, rebuild
from quorank.rankers import MLP, Linear
from quorank.users import Cascade, PositionBased


def z_of(seed, size) -> np.ndarray:
    z = np.empty(size)
    perturbation(np.uint32(seed), z)
    return z


# F(θ) = −‖θ − a‖², whose smoothed gradient of eq. 4 is −2(φ − a) for any σ

PHI, AIM, SIGMA = np.array([0.3, -1.0, 2.0, 0.0]), np.array([1.0, 0.5, 2.0, -1.5]), 0.2


def reward(theta) -> np.ndarray:
    return -np.sum((theta - AIM) ** 2, axis=-1)


def estimates(count) -> tuple[np.ndarray, np.ndarray]:
    """(antithetic terms that the server rebuilds, one-sided terms of eq. 4), each (count, 4)."""
    seeds = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    z = np.array([z_of(seed, 4) for seed in seeds])
    sent = np.stack([reward(PHI + SIGMA * z), reward(PHI - SIGMA * z)], axis=1)
    rows = np.empty((count, 4))
    rebuild(seeds, sent, SIGMA, rows)
    theta = PHI + SIGMA * z
    return rows, reward(theta)[:, None] * (theta - PHI) / SIGMA**2


def test_the_estimate_is_unbiased_for_equation_4() -> None:
    rows, one_sided = estimates(40_000)
    assert_mean(rows, -2 * (PHI - AIM))
    assert_mean(one_sided, -2 * (PHI - AIM))


def test_a_term_by_hand() -> None:
    rows = np.empty((2, 3))
    rebuild(np.array([5, 6], dtype=np.uint32), np.array([[1.0, 0.25], [0.1, 0.5]]), 0.01, rows)
    np.testing.assert_allclose(rows[0], (1.0 - 0.25) / 2 * z_of(5, 3) / 0.01, rtol=1e-14)
    np.testing.assert_allclose(rows[1], (0.1 - 0.5) / 2 * z_of(6, 3) / 0.01, rtol=1e-14)


def test_a_perturbation_is_the_normal_stream_of_its_seed() -> None:
    """Box-Muller of Philox under the key (seed, PERTURBATION), so that any other server can rebuild it."""
    seed, expected = 0xDEADBEEF, []
    for block in range(3):
        w = list(map(int, philox(block, 0, 0, 0, seed, int(Purpose.PERTURBATION))))
        u, v = ((w[0] >> 5) * 2**26 + (w[1] >> 6)) / 2**53, ((w[2] >> 5) * 2**26 + (w[3] >> 6)) / 2**53
        radius = math.sqrt(-2 * math.log(1 - u))
        expected += [radius * math.cos(2 * math.pi * v), radius * math.sin(2 * math.pi * v)]
    np.testing.assert_allclose(z_of(seed, 5), expected[:5], rtol=1e-13, atol=1e-15)
    assert np.array_equal(z_of(seed, 1000)[:5], z_of(seed, 5))


def client_message(simulation, learner, theta, client, interactions, round_) -> tuple[int, list[float], np.ndarray]:
    """(seed, the two rewards, statistics) of one client, float64, from the addressed draws."""
    data, ranker, k = simulation.data, simulation.ranker, simulation.k
    tables = simulation.users.tables(simulation.grades, k)
    seed_key = tuple(int(word) for word in key_of(simulation.seed, Purpose.PERTURBATION_SEED))
    seed = int(philox(0, 0, client, round_, *seed_key)[0])
    z, statistics, sent = z_of(seed, len(theta)), np.zeros(STATISTICS), []
    best = sum(1 / math.log2(rank + 1) for rank in range(1, k + 1))
    for side, sign in enumerate((1, -1)):
        rewards = []
        for j in range(interactions // 2):
            address = {"round_": round_, "client": client, "interaction": side * (interactions // 2) + j}
            query = int(uniforms(simulation.seed, Purpose.QUERY, 1, **address)[0] * data.n_queries)
            rows = data.rows_of(query)
            x, labels = data.features[rows].astype(np.float64), [int(y) for y in data.labels[rows]]
            scores = equations.score(theta + sign * learner.sigma * z, x, ranker.hidden, ranker.activation)
            shown = np.argsort(-scores, kind="stable")[:k].tolist()
            shown_labels = [labels[d] for d in shown]
            clicked = equations.click_walk(
                shown_labels, tables.examine.tolist(), tables.click.tolist(), tables.stop.tolist(),
                uniforms(simulation.seed, Purpose.CLICK, 2 * k, **address).tolist(),
            )  # fmt: skip
            reciprocal = equations.reciprocal_rank(clicked)
            dcg = sum(1 / math.log2(rank + 1) for rank, click in enumerate(clicked, 1) if click)
            rewards.append(reciprocal if learner.metric == "maxrr" else dcg / best)
            statistics += equations.ndcg(shown_labels, labels, 10), reciprocal, sum(clicked)
        sent.append(sum(rewards) / len(rewards))
    return seed, sent, statistics


USERS = [Cascade(preset="navigational"), Cascade(preset="informational"), PositionBased(eta=1.0)]


RANKERS = [Linear(), MLP(hidden=10, start="zero"), MLP(hidden=3, activation="sigmoid")]


@pytest.mark.parametrize(("users", "metric", "ranker"), sampled(USERS, ["maxrr", "ndcg"], RANKERS, times=2), ids=str)
def test_client_and_server_in_plain_python(tiny_collection, users, metric, ranker) -> None:
    """Message → the same perturbation on both sides → the term of eq. 4; lists are sorted, never drawn."""
    simulation = Simulation(tiny_collection.train, ranker, users, 3, seed=4, k=5)
    learner = Evolution(sigma=0.5, metric=metric)
    theta = np.random.default_rng(1).normal(size=simulation.parameters)
    clients = [0, 1, 9, 500]
    rows = simulate(simulation, learner, theta, clients, 4, round_=7)
    for row, client in zip(rows, clients, strict=True):
        seed, sent, statistics = client_message(simulation, learner, theta, client, 4, 7)
        term = (sent[0] - sent[1]) / 2 * z_of(seed, len(theta)) / 0.5
        np.testing.assert_allclose(row[: len(theta)], term, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(row[len(theta) :], statistics, rtol=1e-12)
    assert rows[:, : len(theta)].any(axis=1).sum() >= 2


def test_what_is_privatised_is_what_the_clients_measured(tiny_collection) -> None:
    """The server sees only what `privatise` returns, from (clients, side, interaction) measurements."""
    simulation = Simulation(tiny_collection.train, Linear(), USERS[0], 3, seed=4)
    theta, seen = np.linspace(-1, 1, simulation.parameters), []

    def privatise(measured, round_, clients) -> np.ndarray:
        seen.append((measured.copy(), round_, clients.tolist()))
        return np.tile([1.0, 0.5], (len(clients), 1))

    rows = simulate(simulation, Evolution(sigma=0.1), theta, [3, 8], 6, 2, privatise)
    measured, round_, clients = seen[0]
    assert (measured.shape, round_, clients) == ((2, 2, 3), 2, [3, 8])
    for at, client in enumerate((3, 8)):
        seed, sent, _ = client_message(simulation, Evolution(sigma=0.1), theta, client, 6, 2)
        np.testing.assert_allclose(measured[at].mean(axis=1), sent, rtol=1e-14)
        np.testing.assert_allclose(rows[at, : len(theta)], 0.25 * z_of(seed, len(theta)) / 0.1, rtol=1e-12)


def test_an_odd_or_unequal_number_of_interactions_is_refused(tiny_collection) -> None:
    simulation = Simulation(tiny_collection.train, Linear(), USERS[0], 3, seed=4)
    theta = np.zeros(simulation.parameters)
    for counts in (3, [2, 4]):
        with pytest.raises(BadInput, match="even number of interactions"):
            simulate(simulation, Evolution(), theta, [0, 1], counts)
