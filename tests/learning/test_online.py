"""One real client gives the bits of the cohort kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refused
from sampling import sampled

from quorank.kernels.draws import Purpose, uniforms
from quorank.learning import PDGD, Counterfactual, OnlineRanker, Simulation
from quorank.learning.client_loop import STATISTICS, Work
from quorank.rankers import MLP, Linear
from quorank.users import Cascade, PositionBased, simulate_clicks

USERS = [
    Cascade(preset="perfect"),
    Cascade(preset="navigational"),
    Cascade(preset="informational"),
    Cascade(preset="poison"),
    PositionBased(eta=1.0, preset="navigational"),
]
RANKERS = [Linear(), MLP(hidden=10)]
LEARNERS = [
    PDGD(eta=0.5),
    PDGD(eta=0.5, step="batch"),
    PDGD(eta=0.5, proximal=0.3),
    PDGD(eta=0.5, temperature=0.3, share=0.6),
    PDGD(eta=0.5, temperature=20.0, window=1),
    PDGD(eta=0.5, window=3, share=0.7, step="batch", proximal=0.3),
    Counterfactual(),
    Counterfactual(estimator="dr", loss="listwise", clip=0.5, proximal=0.3),
    Counterfactual(estimator="snips", share=0.5, window=2),
]


@pytest.mark.parametrize(
    ("learner", "users", "ranker", "bound"), sampled(LEARNERS, USERS, RANKERS, [math.inf, 2.0]), ids=str
)
@pytest.mark.parametrize("collection", ["tiny_collection", "tiny_graded"])
def test_bit_for_bit_as_in_the_simulator(request, collection, learner, users, ranker, bound) -> None:
    whole = request.getfixturevalue(collection)
    data, seed, k = whole.train, 8, 6
    simulation = Simulation(data, ranker, users, whole.grades, seed, k)
    theta = np.random.default_rng(3).normal(size=simulation.parameters)
    tables = users.tables(whole.grades, k)
    moved = 0
    for round_ in (0, 5):
        clients = np.array([0, 1, 2, 77])
        rows = np.empty((4, simulation.parameters + STATISTICS))
        work = Work(simulation.world(), seed, theta, round_, clients, np.full(4, 5), bound=bound)
        learner.updates(work, rows)
        for row, client in zip(rows, clients.tolist(), strict=True):
            online = OnlineRanker(theta, data.n_features, ranker, learner, seed, client, round_, k, bound)
            clicks = 0
            for interaction in range(5):
                address = {"round_": round_, "client": client, "interaction": interaction}
                query = int(uniforms(seed, Purpose.QUERY, 1, **address)[0] * data.n_queries)
                candidates = data.rows_of(query)
                shown = online.rank(data.features[candidates])
                assert shown.interaction == interaction
                clicked = simulate_clicks(tables, data.labels[candidates][shown.order], seed, **address)
                online.learn(shown, clicked)
                clicks += clicked.sum()
            assert np.array_equal(online.update, row[: simulation.parameters])
            assert np.array_equal(online.parameters - theta, row[: simulation.parameters])
            assert clicks == row[-1]
            moved += bool(online.update.any())
    assert moved > 4


REFUSED = {
    "features.shape": [
        lambda c, features=features: c.rank(features)
        for features in (np.zeros(4), np.zeros((3, 5)), np.zeros((0, 4)), np.zeros((2, 2, 4)), 1.0)
    ],
    "features.not-finite": [lambda c, bad=bad: c.rank(np.full((3, 4), bad)) for bad in (np.nan, np.inf, 1e300)],
    "clicks.shape": [lambda c, bad=bad: c.learn(c.rank(np.eye(4)), bad) for bad in ([1], [1] * 4, [[1, 0, 1]])],
    "clicks.not-boolean": [lambda c, bad=bad: c.learn(c.rank(np.eye(4)), [bad, 0, 0]) for bad in (2, -1, np.nan)],
    "ranker.not-finite": [lambda _, bad=bad: client(theta=np.full(4, bad)) for bad in (np.nan, np.inf)],
    "ranker.wrong-size": [lambda _: OnlineRanker(np.zeros(4), 4, MLP(10)), lambda _: client(theta=np.zeros((1, 4)))],
}


@pytest.mark.parametrize(("code", "calls"), REFUSED.items())
def test_unusable_arguments_are_refused_and_change_nothing(code, calls) -> None:
    for call in calls:
        online = client(k=3)
        with refused(code):
            call(online)
        assert not online.update.any()


def client(theta=np.zeros(4), **options) -> OnlineRanker:  # noqa: B008
    return OnlineRanker(theta, 4, Linear(), **options)


def test_says_whether_something_was_learned() -> None:
    online = client()
    shown = online.rank(np.eye(4))
    assert not online.learn(shown, [False] * 4)
    assert not online.learn(shown, [True] * 4)
    assert not online.update.any()
    assert online.learn(shown, [True, False, False, False])
    assert online.update[shown.order[0]] > 0
    assert online.update[shown.order[1]] < 0
    assert not online.update[shown.order[2:]].any()
