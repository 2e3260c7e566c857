"""Personal part: the minimum of its equation, choices that are forgotten, and trials of rankers that come."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from quorank.search.ranking.personal_part import LEAST, ChosenList, PersonalFit, try_ranker

N = 5


def made(count: int, seed: int, towards: np.ndarray, queries: int = 100) -> list[ChosenList]:
    """Choices of people who follow some parameters."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        features = random.random((random.integers(2, 9), N)).astype(np.float32)
        chosen = int(np.argmax(features @ towards + random.gumbel(0, 0.5, len(features))))
        found.append(ChosenList(features, chosen, chosen + 1, f"q{number % queries}"))
    return found


def objective(theta: np.ndarray, shared: np.ndarray, lists: list[ChosenList], fit: PersonalFit) -> float:
    total = fit.penalty / 2 * float((theta - shared) @ (theta - shared))
    for one in lists:
        scores = one.features.astype(np.float64) @ theta
        repeats = sum(other.query == one.query for other in lists)
        loss = np.log(np.exp(scores).sum()) - scores[one.chosen]
        total += loss / max((1 / one.rank) ** fit.power, fit.clip) / repeats
    return float(total)


@pytest.mark.parametrize(("penalty", "queries"), [(40.0, 100), (1.0, 100), (0.5, 3)])
def test_the_fit_is_the_minimum_of_the_equation(penalty: float, queries: int) -> None:
    towards, shared = np.array([3.0, 0, -2, 0, 1]), np.array([1.0, 1, 0, 0, 0])
    lists, fit = made(25, 1, towards, queries), PersonalFit(penalty=penalty)
    best = minimize(objective, shared, args=(shared, lists, fit), tol=1e-12)
    assert fit.fitted(shared, lists) == pytest.approx(best.x, abs=1e-4)


def test_choices_that_are_forgotten_leave_no_trace_and_older_ones_do_not_count() -> None:
    lists, fit, shared = made(30, 2, np.ones(N)), PersonalFit(newest=20), np.ones(N)
    assert fit.fitted(shared, lists).tolist() == fit.fitted(shared, lists[-20:]).tolist()
    assert fit.fitted(shared, []).tolist() == shared.tolist() == PersonalFit(newest=0).fitted(shared, lists).tolist()
    alone = [ChosenList(np.ones((1, N), dtype=np.float32), 0, 1)]
    assert fit.fitted(shared, alone).tolist() == shared.tolist(), "a document without another says nothing"


def test_a_person_moves_their_ranker_towards_what_they_choose_and_not_far_by_one_choice() -> None:
    towards, shared = np.array([0.0, 0, 5, 0, 0]), np.array([10.0, 0, 0, 0, 0])
    many = PersonalFit().fitted(shared, made(200, 3, towards))
    one = PersonalFit().fitted(shared, made(1, 3, towards))
    assert many[2] > 0.5 and np.abs(one - shared).max() < 0.1


def test_a_ranker_is_taken_unless_it_is_worse_by_more_than_a_standard_error() -> None:
    towards, fit = np.array([3.0, 0, -2, 0, 1]), PersonalFit()
    lists = made(60, 4, towards)
    better, worse = try_ranker(np.zeros(N), towards, lists, fit), try_ranker(towards, -towards, lists, fit)
    assert better.taken and better.difference > 0 and better.lists == 60
    assert not worse.taken and worse.difference < -worse.error < 0
    same = try_ranker(towards, towards, lists, fit)
    assert same.taken and same.difference == 0.0
    assert try_ranker(towards, -towards, lists[: LEAST - 1], fit).taken, "too few choices to judge by"
    assert not try_ranker(towards, np.full(N, np.nan), lists, fit).taken
    assert not try_ranker(towards, np.full(N, np.inf), [], fit).taken


def test_the_gain_of_a_trial_is_that_of_the_ranks() -> None:
    """Two lists written out: the new ranker takes the chosen document from rank 3 to 1 in one, leaves it in the other."""
    first = ChosenList(np.array([[3, 0], [2, 0], [1, 9]], dtype=np.float32), 2, 3)
    second = ChosenList(np.array([[3, 0], [2, 0]], dtype=np.float32), 0, 1)
    lists = [first, second] * 4
    trial = try_ranker(np.array([1.0, 0.0]), np.array([1.0, 1.0]), lists, PersonalFit(power=1.0))
    weights = np.array([3.0, 1.0])
    assert trial.difference == pytest.approx((weights @ [1 - 1 / np.log2(4), 0.0]) / weights.sum())
