"""Interleaving against exact probabilities, and dueling bandits against their algorithms in plain Python."""

from __future__ import annotations

import itertools

import equations
import numpy as np
import pytest
from chance import assert_follows, assert_mean
from lists import reference_update, simulate
from sampling import sampled

from quorank.kernels.draws import Address, Purpose, key_of, normals, uniform_pair, uniforms
from quorank.learning import DBGD, MGD, Simulation
from quorank.learning.dueling import WINNER_DRAW, draft_for, team_draft, unit_directions
from quorank.rankers import MLP, Linear
from quorank.users import Cascade, PositionBased

RANKINGS = [
    [[0, 1, 2, 3], [3, 2, 1, 0]],
    [[0, 1, 2, 3], [0, 2, 1, 3]],
    [[0, 1, 2], [2, 1, 0], [1, 0, 2]],
    [[4, 0, 1], [4, 1, 0], [0, 4, 1], [1, 0, 4]],
]


def exact(rankings, k) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """P of every (list, teams): all orders of the rankers in every turn are equally likely."""
    out: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    orders = list(itertools.permutations(range(len(rankings))))

    def turn(shown, teams, p) -> None:
        if len(shown) == k:
            out[shown, teams] = out.get((shown, teams), 0.0) + p
            return
        for order in orders:
            now, who = shown, teams
            for ranker in order:
                if len(now) < k:
                    now = (*now, next(d for d in rankings[ranker] if d not in now))
                    who = (*who, ranker)
            turn(now, who, p / len(orders))

    turn((), (), 1.0)
    return out


@pytest.mark.parametrize("rankings", RANKINGS, ids=str)
def test_team_draft_follows_its_distribution(rankings) -> None:
    k, key = len(rankings[0]), key_of(2, Purpose.RANKING)
    found, lists = [], np.array(rankings)
    draft = draft_for(len(lists), k)
    for client in range(20_000):
        team_draft(lists, k, key, Address(0, client, 0), draft)
        found.append((tuple(draft.shown.tolist()), tuple(draft.teams.tolist())))
    assert_follows(found, exact(rankings, k))


def test_directions_are_uniform_on_the_sphere() -> None:
    key, found = key_of(1, Purpose.DIRECTION), np.empty((5000, 2, 3))
    for client in range(5000):
        unit_directions(key, Address(0, client, 0), found[client])
    np.testing.assert_allclose((found**2).sum(axis=2), 1.0, rtol=1e-12)
    assert_mean(found.reshape(-1, 3), [0.0, 0.0, 0.0])
    assert_mean(found.reshape(-1, 3) ** 2, [1 / 3, 1 / 3, 1 / 3])


def drafted(rankings, k, draws) -> tuple[list[int], list[int]]:
    """Team draft from given uniforms: a Fisher-Yates shuffle of the rankers in every turn."""
    stream, shown, teams = iter(draws), [], []
    order = list(range(len(rankings)))
    while len(shown) < k:
        for at in range(len(order)):
            other = at + int(next(stream) * (len(order) - at))
            order[at], order[other] = order[other], order[at]
            if len(shown) < k:
                shown.append(next(d for d in rankings[order[at]] if d not in shown))
                teams.append(order[at])
    return shown, teams


def client_update(simulation, learner, theta, client, interactions, round_) -> np.ndarray:
    """Algorithm 2 of MGD, of which DBGD is the case of one candidate, float64."""
    candidates = 1 if isinstance(learner, DBGD) else learner.candidates
    step = learner.gamma if isinstance(learner, DBGD) else learner.alpha
    hidden, seed = simulation.ranker.hidden, simulation.seed

    def show(local, x, k, address):
        u = normals(seed, Purpose.DIRECTION, candidates * len(theta), **address).reshape(candidates, -1)
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        scores = [equations.score(w, x, hidden) for w in (local, *(local + learner.delta * u))]
        rankings = [np.argsort(-s, kind="stable").tolist() for s in scores]
        shown, teams = drafted(rankings, k, uniforms(seed, Purpose.RANKING, 20 * (k + candidates), **address))
        return shown, (u, teams)

    def learn(local, x, shown, kept, clicked, address):
        u, teams = kept
        credits = [sum(c for c, team in zip(clicked, teams, strict=True) if team == r) for r in range(candidates + 1)]
        winners = [r for r in range(candidates) if credits[r + 1] > credits[0]]
        if winners and getattr(learner, "winner", "mean") == "one":
            key = key_of(seed, Purpose.DIRECTION)
            draw, _ = uniform_pair(key, WINNER_DRAW, address["interaction"], address["client"], address["round_"])
            winners = [winners[int(draw * len(winners))]]
        return local + step * u[winners].mean(axis=0) if winners else local

    return reference_update(simulation, theta, client, interactions, round_, show, learn)


LEARNERS = [
    DBGD(delta=0.5, gamma=0.2),
    MGD(candidates=4, delta=0.5, alpha=0.2),
    MGD(candidates=3, delta=0.5, alpha=0.2, winner="one"),
]


USERS = [Cascade(), Cascade("informational"), PositionBased(eta=1.0)]


@pytest.mark.parametrize(("learner", "users", "ranker"), sampled(LEARNERS, USERS, [Linear(), MLP(hidden=5)]), ids=str)
def test_an_update_is_the_algorithm(tiny_collection, learner, users, ranker) -> None:
    simulation = Simulation(tiny_collection.train, ranker, users, tiny_collection.grades, seed=5)
    theta = np.random.default_rng(1).normal(size=simulation.parameters)
    clients = [0, 3, 17, 100_000]
    found = simulate(simulation, learner, theta, clients, 8, round_=9)
    expected = [client_update(simulation, learner, theta, client, 8, 9) for client in clients]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert np.abs(found[:, : simulation.parameters]).max() > 0.01


def test_one_candidate_is_dbgd(tiny_collection) -> None:
    simulation = Simulation(tiny_collection.train, Linear(), Cascade(), tiny_collection.grades, seed=5)
    theta = np.random.default_rng(1).normal(size=simulation.parameters)
    one = simulate(simulation, DBGD(0.7, 0.3), theta, range(20), 4)
    for winner in ("mean", "one"):
        assert np.array_equal(simulate(simulation, MGD(1, 0.7, 0.3, winner), theta, range(20), 4), one)
