"""Counterfactual evaluation against brute force: all click patterns of small lists, and the truth of a generated log."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from quorank.data.logs.generated import generated_log, true_propensities, true_relevance
from quorank.data.logs.records import SearchRecords
from quorank.data.logs.splitting import log_collection
from quorank.data.ranking import RankingData
from quorank.kernels.arrays import Doubles
from quorank.metrics.counterfactual import LoggedClickEvaluator

PROPENSITIES = np.array([1.0, 0.5, 0.2])
RELEVANCE = np.array([0.3, 0.8, 0.5])
SCORES = np.array([0.1, 0.9, 0.5])  # ranks 3, 1, 2


def judge(
    clicks: list[tuple[int, ...]], users: list[int] | None = None, clip: float = 0.0, k: int = 3
) -> LoggedClickEvaluator:
    """An evaluator of searches with these clicks on lists of three documents."""
    n = len(clicks)
    data = RankingData.from_arrays(np.zeros((3 * n, 1)), np.array(clicks).reshape(-1), 3 * np.arange(n + 1))
    user = np.array(users if users is not None else [-1] * n, dtype=np.int64)
    ranks = np.tile(np.array([1, 2, 3], dtype=np.int16), n)
    names = [str(number) for number in range(1 + int(user.max()))]
    records = SearchRecords(user, np.arange(n), ranks, names, ["q"] * n)
    return LoggedClickEvaluator(data, records, PROPENSITIES, k, clip)


def patterns() -> list[tuple[float, tuple[int, ...]]]:
    """All clicks on one list, each with its probability under position-based clicks."""
    chances = PROPENSITIES * RELEVANCE
    return [
        (float(np.prod([p if c else 1 - p for p, c in zip(chances, clicks, strict=True)])), clicks)
        for clicks in product((0, 1), repeat=3)
    ]


def value(clicks: tuple[int, ...], metric: str, clip: float = 0.0) -> float:
    found = judge([clicks], clip=clip)
    return float(found.values(found.ranks_of(SCORES), metric)[0])


@pytest.mark.parametrize("metric", ["dcg", "clicks"])
def test_the_estimate_is_unbiased_and_its_variance_is_the_exact_one(metric: str) -> None:
    """E x = Σ λ(ρ)·relevance, Var x = Σ λ(ρ)²·relevance·(1 − p·relevance)/p, over all click patterns."""
    table = 1 / np.log2([2, 3, 4]) if metric == "dcg" else PROPENSITIES
    discount = table[[2, 0, 1]]
    truth = float((discount * RELEVANCE).sum())
    found = [(chance, value(clicks, metric)) for chance, clicks in patterns()]
    assert sum(chance * x for chance, x in found) == pytest.approx(truth, abs=1e-12)
    exact = float((discount**2 * RELEVANCE * (1 - PROPENSITIES * RELEVANCE) / PROPENSITIES).sum())
    assert sum(chance * (x - truth) ** 2 for chance, x in found) == pytest.approx(exact, abs=1e-12)
    # the squared standard error of two searches is on average the variance of their mean
    errors = 0.0
    for (p, one), (q, other) in product(patterns(), repeat=2):
        pair = judge([one, other])
        scores = np.tile(SCORES, 2)
        errors += p * q * pair.ips(pair.values(pair.ranks_of(scores), metric)).error ** 2
    assert errors == pytest.approx(exact / 2, abs=1e-12)


def test_clipping_lowers_the_estimate_by_what_stands_below_it() -> None:
    """p = 0.2 counts as 0.5: the document there counts 0.4 of its relevance."""
    found = sum(chance * value(clicks, "dcg", clip=0.5) for chance, clicks in patterns())
    discount = 1 / np.log2([4, 2, 3])
    assert found == pytest.approx(float((discount * RELEVANCE * [1, 1, 0.2 / 0.5]).sum()), abs=1e-12)


def test_ratios_and_their_errors_by_hand() -> None:
    """Two users: the one with two searches is one observation."""
    found = judge([(1, 0, 0), (0, 1, 0), (0, 0, 1)], users=[0, 0, 1])
    x = found.values(found.ranks_of(np.tile(SCORES, 3)), "dcg")
    table = 1 / np.log2([2, 3, 4])
    assert x == pytest.approx([table[2], table[0] / 0.5, table[1] / 0.2])
    totals, weights, searches = np.array([x[0] + x[1], x[2]]), np.array([1 + 2, 5.0]), np.array([2, 1])
    for estimate, sizes in ((found.ips(x), searches), (found.snips(x), weights)):
        mean = totals.sum() / sizes.sum()
        assert estimate.value == pytest.approx(mean)
        assert estimate.error == pytest.approx(np.sqrt(2 * ((totals - mean * sizes) ** 2).sum()) / sizes.sum())
    assert np.isnan(judge([(1, 0, 0), (0, 1, 0)], users=[0, 0]).ips(x[:2]).error)
    assert judge([(1, 0, 0)]).figures(SCORES)["estimates"]["dcg@3"]["ips"]["ranker"]["error"] is None


def test_ranks_follow_scores_and_ties_the_order_of_the_list() -> None:
    found = judge([(1, 0, 0), (0, 0, 0)])
    assert found.ranks_of(np.array([0.0, 1.0, 0.0, 5.0, 5.0, 6.0])).tolist() == [2, 1, 3, 2, 3, 1]


def test_behind_the_last_rank_nothing_counts() -> None:
    found = judge([(1, 1, 1)], k=1)
    assert found.values(found.ranks_of(SCORES), "dcg").tolist() == [1 / 0.5]
    short = LoggedClickEvaluator(found.data, found.records, PROPENSITIES[:2], 2, 0.0)
    assert short.weights.tolist() == [1.0, 2.0, 0.0]


@pytest.mark.parametrize("seed", [1, 2])
def test_rankers_that_were_not_shown_are_judged_as_if_they_had_been(seed: int) -> None:
    """The true value of two rankers on a generated log lies within four standard errors of each estimate."""
    collection = log_collection(generated_log("clicks", 4000, seed), "x")
    assert collection.log is not None
    data = collection.train
    found = LoggedClickEvaluator(data, collection.log.train, true_propensities(10), clip=0.0)
    relevance = true_relevance(np.asarray(data.features)).reshape(-1, 10)
    for scores in (data.features[:, 5], relevance.reshape(-1)):
        order = np.argsort(-np.asarray(scores, dtype=np.float64).reshape(-1, 10), axis=1, kind="stable")
        best: Doubles = np.take_along_axis(relevance, order, axis=1)
        ranks = found.ranks_of(np.asarray(scores, dtype=np.float64))
        short = LoggedClickEvaluator(data, collection.log.train, true_propensities(10), 3, 0.0)
        top = short.ips(short.values(ranks, "dcg"))
        assert abs(top.value - (best[:, :3] / np.log2([2, 3, 4])).sum(axis=1).mean()) < 4 * top.error
        for metric, discount in (("dcg", 1 / np.log2(np.arange(2, 12))), ("clicks", 1 / np.arange(1, 11))):
            values = found.values(ranks, metric)
            truth = (best * discount).sum(axis=1).mean()
            estimate = found.ips(values)
            assert abs(estimate.value - truth) < 4 * estimate.error < 0.4 * truth
            ratio, normal = found.snips(values), (best * discount).sum() / best.sum()
            assert abs(ratio.value - normal) < 4 * ratio.error < 0.2 * normal


def test_users_are_counted_where_there_are_any() -> None:
    assert judge([(1, 0, 0), (0, 1, 0)]).figures(np.tile(SCORES, 2))["users"] is None
    found = judge([(1, 0, 0), (0, 1, 0), (1, 0, 1)], users=[0, 1, 1], clip=0.5).figures(np.tile(SCORES, 3))
    assert (found["users"], found["searches"], found["clicks"], found["clipped_clicks"]) == (2, 3, 4, 1)
    assert found["effective_clicks"] == pytest.approx((1 + 2 + 1 + 2) ** 2 / (1 + 4 + 1 + 4))
