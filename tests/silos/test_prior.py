"""Ranker from a prior: its sums against the equation, its rule of choice; nothing depends on who holds which list."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scipy.optimize import minimize

from quorank.data.ranking import RankingData
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.prior import ALONG, NONE, SCALE, FromPrior, penalty_matrix, sums_length
from quorank.silos.training.sums import ONE, SumRequest

TRAINING = FromPrior(lambdas=(3.0, 0.3), turns=12, folds=2)
W0 = np.array([1.0, 0.0, 0.5])


def made(lists: int, seed: int, documents: int = 9) -> SearchedLists:
    """Lists of random features, whose first feature tells of the label, and so does the third, against the prior."""
    random = np.random.default_rng(seed)
    features = random.random((lists * documents, 3))
    labels = (features[:, 0] - features[:, 2] + random.normal(0, 0.3, len(features)) > 0.3).astype(np.int8)
    labels += (features[:, 0] > 0.9).astype(np.int8) * (labels > 0)
    data = RankingData.from_arrays(features, labels, np.arange(0, lists * documents + 1, documents))
    gains = [np.sort(2.0 ** labels[data.rows_of(q)] - 1.0)[::-1] for q in range(lists)]
    ideal = np.array([(g / np.log2(np.arange(2, len(g) + 2))).sum() for g in gains])
    return SearchedLists(data, ideal, ideal)


def sums_of(training: FromPrior, own: SearchedLists, thetas, judging: bool = False) -> np.ndarray:
    return training.answers(own, W0)(SumRequest(judging, {}, np.array(thetas)))


def cross_entropy(theta: np.ndarray, own: SearchedLists, lists: np.ndarray) -> float:
    total = 0.0
    for q in lists:
        rows = own.data.rows_of(q)
        gains = 2.0 ** own.data.labels[rows] - 1.0
        if gains.sum() > 0:
            scores = own.data.features[rows].astype(np.float64) @ theta
            total -= float(gains / gains.sum() @ (scores - np.log(np.exp(scores).sum())))
    return total


def split(own: SearchedLists, chosen: list[int]) -> SearchedLists:
    rows = [np.arange(own.data.offsets[q], own.data.offsets[q + 1]) for q in chosen]
    offsets = np.cumsum([0, *(len(r) for r in rows)])
    data = own.data.select_rows(np.concatenate(rows), offsets, [own.data.query_ids[q] for q in chosen])
    return SearchedLists(data, own.ideal_top[chosen], own.ideal[chosen])


def test_sums_are_loss_gradient_and_hessian_of_the_equation() -> None:
    own, theta = made(7, 1), np.array([0.7, -0.2, 1.1])
    sums = sums_of(TRAINING, own, [theta] * len(TRAINING.models)).view(np.int64).reshape(-1, sums_length(3))
    everything = sums[TRAINING.models.index((-1, 3.0))]
    lists = np.arange(7)
    assert everything[0] == sum(own.data.labels[own.data.rows_of(q)].any() for q in lists)
    assert everything[1] / ONE == pytest.approx(cross_entropy(theta, own, lists), abs=1e-8)
    step = 1e-4
    for i in range(3):
        up, down = theta.copy(), theta.copy()
        up[i] += step
        down[i] -= step
        slope = (cross_entropy(up, own, lists) - cross_entropy(down, own, lists)) / (2 * step)
        assert everything[2 + i] / ONE == pytest.approx(slope, abs=1e-6)
    hessian = np.zeros((3, 3))
    hessian[np.triu_indices(3)] = everything[5:] / ONE
    for i in range(3):
        for j in range(i, 3):
            corners = [
                (a * b, cross_entropy(theta + step * (a * np.eye(3)[i] + b * np.eye(3)[j]), own, lists))
                for a in (1, -1)
                for b in (1, -1)
            ]
            curve = sum(sign * value for sign, value in corners) / (4 * step * step)
            assert hessian[i, j] == pytest.approx(curve, abs=1e-4)
    held = sums[TRAINING.models.index((1, 0.3))]
    assert held[1] / ONE == pytest.approx(cross_entropy(theta, own, lists[lists % 2 != 1]), abs=1e-8)


@settings(max_examples=10, deadline=None)
@given(st.permutations(list(range(8))), st.integers(1, 7))
def test_sums_do_not_depend_on_who_holds_which_list(order: list[int], cut: int) -> None:
    own, theta = made(8, 2), np.array([2.0, 0.3, -1.0])
    training = FromPrior(lambdas=(1.0,), folds=2)
    models = [theta] * len(training.models)
    whole = sums_of(training, own, models).reshape(len(models), -1)[-1]
    parts = [sums_of(training, split(own, chosen), models) for chosen in (order[:cut], order[cut:])]
    assert np.sum(parts, axis=0, dtype=np.uint64).reshape(len(models), -1)[-1].tolist() == whole.tolist()


def test_the_ranker_minimises_the_penalised_loss() -> None:
    own = made(10, 3)
    course = TRAINING.course(W0)
    for turn in range(TRAINING.turns):
        course = TRAINING.course(W0, course.table()) if turn == 5 else course  # continued after a restart
        course.advance(sums_of(TRAINING, own, course.request.numbers))
    for value in TRAINING.lambdas:
        unit = W0 / np.linalg.norm(W0)

        def objective(w: np.ndarray, value: float = value, unit: np.ndarray = unit) -> float:
            across, along = w - (w @ unit) * unit, w @ W0 / (W0 @ W0)
            penalty = value / 2 * float(across @ across) + ALONG / 2 * (along - SCALE) ** 2
            return cross_entropy(w, own, np.arange(10)) + penalty

        best = minimize(objective, SCALE * W0, tol=1e-12)
        assert course.accepted[TRAINING.models.index((-1, value))] == pytest.approx(best.x, abs=1e-3)


def test_no_penalty_on_the_scale_of_the_prior() -> None:
    matrix = penalty_matrix(W0, 7.0)
    assert W0 @ matrix @ W0 == pytest.approx(ALONG)
    across = np.array([0.5, 3.0, -1.0])
    across -= across @ W0 / (W0 @ W0) * W0
    assert across @ matrix @ across == pytest.approx(7.0 * across @ across)


def total_of(gains: np.ndarray) -> np.ndarray:
    """Return the sums over lists with these (lists, λs) gains, as parties send them."""
    sums = np.concatenate((gains.sum(axis=0), (gains.T @ gains)[np.triu_indices(gains.shape[1])]))
    return np.concatenate(([len(gains)], np.floor(sums * ONE + 0.5).astype(np.int64))).view(np.uint64)


def test_the_largest_penalty_within_one_standard_error_is_chosen() -> None:
    """Gains of λ = 3 and λ = 0.3 over the prior, on 16 lists."""
    half = np.tile([1.0, -1.0], 8)
    none = np.zeros(16)
    level = total_of(np.column_stack((none, 0.01 + 0.3 * half, 0.02 + 0.3 * half)))
    assert TRAINING.choose(level) == NONE, "0.02 is less than 0.3·√(16/15)/4"
    clear = total_of(np.column_stack((none, 0.2 + 0.1 * half, 0.21 + 0.1 * half + 0.2 * np.tile([1, 1, -1, -1], 4))))
    assert TRAINING.choose(clear) == 3.0
    better = total_of(np.column_stack((none, 0.2 + 0.1 * half, 0.4 + 0.1 * half)))
    assert TRAINING.choose(better) == 0.3
    assert TRAINING.choose(total_of(np.array([[0.0, 1.0, 1.0]]))) == NONE
    assert TRAINING.choose(total_of(np.zeros((0, 3)))) == NONE


def test_held_out_lists_are_judged_by_rankers_that_have_not_seen_them() -> None:
    own = made(6, 4)
    thetas = [np.random.default_rng(m).normal(size=3) for m in range(len(TRAINING.models))]
    lists, *sums = sums_of(TRAINING, own, thetas, judging=True).view(np.int64)
    gains = np.zeros((6, 3))
    for q in range(6):
        mine = [W0, *(theta for (fold, _), theta in zip(TRAINING.models, thetas, strict=True) if fold == q % 2)]
        gains[q] = own.ndcg(mine)[:, q]
    gains = (gains - gains[:, :1])[own.ideal_top > 0]
    assert lists == len(gains)
    assert np.array(sums[:3]) / ONE == pytest.approx(gains.sum(axis=0), abs=1e-8)
    assert np.array(sums[3:]) / ONE == pytest.approx((gains.T @ gains)[np.triu_indices(3)], abs=1e-8)


def test_labels_correct_the_prior_where_they_are_many_and_leave_it_where_they_are_few() -> None:
    value, ranker = TRAINING.train([made(30, 5), made(30, 6)], W0)
    assert value != NONE and ranker[2] < 0.0 < ranker[0], "the third feature tells against the prior"
    test = made(50, 7)
    assert test.figures([ranker])[0]["ndcg@10"] > test.figures([W0])[0]["ndcg@10"] + 0.05
    assert TRAINING.train([made(1, 8)], W0)[0] == NONE
    nothing = SearchedLists(RankingData.from_arrays(np.zeros((0, 3)), [], [0]), np.zeros(0), np.zeros(0))
    chosen, same = TRAINING.train([nothing, nothing], W0)
    assert chosen == NONE and same.tolist() == W0.tolist()


@pytest.mark.parametrize(
    ("make", "code", "where"),
    [
        (lambda: FromPrior(lambdas=(1.0, 3.0)), "value.out-of-range", "lambdas"),
        (lambda: FromPrior(lambdas=(math.inf,)), "value.out-of-range", "lambdas"),
        (lambda: FromPrior(folds=1), "value.out-of-range", "folds"),
        (lambda: FromPrior(turns=0), "value.out-of-range", "turns"),
        (lambda: sums_of(TRAINING, made(2, 1), [np.full(3, 1e9)] * 6), "silo-message.not-agreed", ""),
        (lambda: sums_of(TRAINING, made(2, 1), np.zeros((5, 3))), "silo-message.not-agreed", ""),
    ],
)
def test_what_is_refused(make, code: str, where: str) -> None:
    with refused(code, where):
        make()
