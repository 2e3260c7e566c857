"""One real client gives the bits of the cohort kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quorank.errors import BadInput
from quorank.kernels.draws import Purpose, uniforms
from quorank.learning import PDGD, Counterfactual, OnlineRanker, Simulation
from quorank.learning.simulation import STATISTICS, Work
from quorank.rankers import MLP, Linear
from quorank.users import Cascade, PositionBased, simulate_clicks

USERS = [
    Cascade(preset="perfect"),
    Cascade(preset="navigational"),
    Cascade(preset="informational"),
    Cascade(preset="poison"),
    PositionBased(eta=1.0, preset="navigational"),
]


@pytest.mark.parametrize("users", USERS, ids=str)
@pytest.mark.parametrize("step", ["interaction", "batch"])
@pytest.mark.parametrize("ranker", [Linear(), MLP(hidden=10)], ids=str)
@pytest.mark.parametrize("collection", ["tiny_collection", "tiny_graded"])
@pytest.mark.parametrize(("proximal", "bound"), [(0.0, math.inf), (0.3, 2.0)])
def test_bit_for_bit_as_in_the_simulator(request, users, step, ranker, collection, proximal, bound) -> None:
    whole = request.getfixturevalue(collection)
    as_in_the_simulator(whole, users, ranker, PDGD(eta=0.5, step=step, proximal=proximal), bound)


@pytest.mark.parametrize("users", [USERS[2], USERS[4]], ids=str)
@pytest.mark.parametrize("ranker", [Linear(), MLP(hidden=10)], ids=str)
@pytest.mark.parametrize(
    "learner",
    [
        PDGD(eta=0.5, temperature=0.3, share=0.6),
        PDGD(eta=0.5, temperature=20.0, window=1),
        PDGD(eta=0.5, window=3, share=0.7, step="batch", proximal=0.3),
        Counterfactual(),
        Counterfactual(estimator="dr", loss="listwise", clip=0.5, proximal=0.3),
        Counterfactual(estimator="snips", share=0.5, window=2),
    ],
    ids=str,
)
def test_every_dial_is_bit_for_bit_as_in_the_simulator(tiny_collection, users, ranker, learner) -> None:
    as_in_the_simulator(tiny_collection, users, ranker, learner, math.inf)


def as_in_the_simulator(whole, users, ranker, learner, bound) -> None:
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


def client(n_features=4, **options) -> OnlineRanker:
    return OnlineRanker(np.zeros(n_features), n_features, Linear(), **options)


def test_shows_at_most_k_documents_once_each() -> None:
    online = client(k=3)
    assert len(online.rank(np.zeros((2, 4))).order) == 2
    assert len(online.rank(np.zeros((1, 4))).order) == 1
    order = online.rank(np.zeros((9, 4))).order
    assert len(set(order.tolist())) == 3
    assert online.interactions == 3


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


def test_neither_the_start_nor_what_was_returned_is_shared() -> None:
    theta = np.zeros(4)
    online = OnlineRanker(theta, 4, Linear())
    online.learn(online.rank(np.eye(4)), [True, False, False, False])
    assert not theta.any()
    before = online.parameters
    online.parameters[:] = 7
    assert np.array_equal(online.parameters, before)


@pytest.mark.parametrize(
    "features",
    [np.zeros(4), np.zeros((3, 5)), np.zeros((3, 3)), np.zeros((0, 4)), np.zeros((2, 2, 4)), 1.0],
    ids=lambda f: str(np.shape(f)),
)
def test_wrong_shapes_are_refused(features) -> None:
    with pytest.raises(BadInput, match=r"expected features of shape \(documents, 4\)"):
        client().rank(features)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused(bad) -> None:
    features = np.zeros((3, 4))
    features[1, 2] = bad
    online = client()
    with pytest.raises(BadInput, match="finite"):
        online.rank(features)
    assert online.interactions == 0


def test_wrong_clicks_are_refused() -> None:
    online = client(k=3)
    shown = online.rank(np.eye(4))
    for clicks in ([True], [True] * 4, [[True, False, True]]):
        with pytest.raises(BadInput, match="expected 3 clicks, one per shown document"):
            online.learn(shown, clicks)
    assert not online.update.any()


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(BadInput, match="this ranker has 60 parameters"):
        OnlineRanker(np.zeros(4), 4, MLP(hidden=10))
    with pytest.raises(BadInput, match="this ranker has 4 parameters"):
        OnlineRanker(np.zeros((1, 4)), 4, Linear())
