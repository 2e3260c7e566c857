"""The evaluator against a brute-force evaluation."""

from __future__ import annotations

import itertools
import math

import equations
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import sampled

from quorank.data.ranking import RankingData
from quorank.metrics.evaluator import Evaluator, ideal_dcg, top_k
from quorank.metrics.lists import discounts, err
from quorank.rankers import MLP, Linear, scores


def brute_force(data, ranker, theta, k) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(nDCG@k, reciprocal rank, has a relevant document) of every query, expected over the orders of equal scores."""
    found = scores(ranker, theta, data)
    out = []
    for q in range(data.n_queries):
        rows = data.rows_of(q)
        labels = [int(label) for label in data.labels[rows]]
        by_score = sorted(zip(found[rows].tolist(), labels, strict=True), key=lambda d: -d[0])
        ties = [[label for _, label in tie] for _, tie in itertools.groupby(by_score, key=lambda d: d[0])]
        gains = [sum(2**label - 1 for label in tie) / len(tie) for tie in ties for _ in tie]
        best = sorted(labels, reverse=True)[:k]
        ideal = sum((2**label - 1) / math.log2(rank + 1) for rank, label in enumerate(best, 1))
        ndcg = sum(g / math.log2(rank + 1) for rank, g in enumerate(gains[:k], 1)) / ideal if ideal else 0.0
        first, before = 0.0, 0
        for tie in ties:
            m, r = len(tie), sum(label > 0 for label in tie)
            if r:  # P(the first relevant one has place i) = C(m − i, r − 1) / C(m, r)
                chances = [math.comb(m - i, r - 1) / math.comb(m, r) for i in range(1, m - r + 2)]
                first = sum(p / rank for rank, p in enumerate(chances, before + 1) if rank <= k)
                break
            before += m
        out.append((ndcg, first, any(labels)))
    ndcgs, reciprocal, relevant = zip(*out, strict=True)
    return np.array(ndcgs), np.array(reciprocal), np.array(relevant)


def thetas_for(ranker, data, count=5) -> list[np.ndarray]:
    """Random rankers, and zero, which scores all documents alike."""
    random = np.random.default_rng(1)
    return [random.normal(size=ranker.size(data.n_features)) for _ in range(count - 1)] + [
        np.zeros(ranker.size(data.n_features))
    ]


@pytest.mark.parametrize(
    ("k", "ranker", "collection"),
    sampled([1, 3, 10, 40], [Linear(), MLP(hidden=5)], ["tiny_collection", "tiny_graded"]),
    ids=str,
)
def test_evaluation_equals_brute_force(request, k, ranker, collection) -> None:
    """Lists of 1..25, so k = 40 is beyond all of them."""
    data = request.getfixturevalue(collection).train
    thetas = thetas_for(ranker, data)
    ndcg, reciprocal = Evaluator(data, ranker, k).per_query(thetas)
    for r, theta in enumerate(thetas):
        expected = brute_force(data, ranker, theta, k)
        np.testing.assert_allclose(ndcg[r], expected[0], rtol=1e-12)
        np.testing.assert_allclose(reciprocal[r], expected[1], rtol=1e-12)
        for no_relevant, counted in (("skip", expected[2]), ("zero", np.ones_like(expected[2]))):
            means = Evaluator(data, ranker, k, no_relevant).all_means([theta])
            assert means[0][0] == pytest.approx(expected[0][counted].mean(), rel=1e-12)
            assert means[1][0] == pytest.approx(expected[1][counted].mean(), rel=1e-12)


@pytest.mark.parametrize("ranker", [Linear(), MLP(hidden=5, activation="sigmoid")], ids=str)
def test_further_depths_and_the_page_come_from_the_same_pass(tiny_graded, ranker) -> None:
    """nDCG@1, 3, 5 and 30 beside nDCG@10, while the reciprocal rank looks at a page of 4."""
    data, depths = tiny_graded.train, (10, 1, 3, 5, 30)
    thetas = thetas_for(ranker, data, 3)
    found = Evaluator(data, ranker, 10, page=4, cutoffs=depths[1:], threads=2).all_means(thetas)
    assert found.shape == (6, 3)
    for r, theta in enumerate(thetas):
        expected = {k: brute_force(data, ranker, theta, k) for k in (*depths, 4)}
        counted = expected[10][2]
        for row, k in zip((0, 2, 3, 4, 5), depths, strict=True):
            assert found[row, r] == pytest.approx(expected[k][0][counted].mean(), rel=1e-12)
        assert found[1, r] == pytest.approx(expected[4][1][counted].mean(), rel=1e-12)
    assert found[:2].tobytes() == Evaluator(data, ranker, 10, page=4).all_means(thetas).tobytes()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6), st.integers(1, 4), st.randoms()
)
def test_tied_documents_count_by_the_mean_over_their_orders(documents, k, random) -> None:
    """Mean of each metric over every order of the file, of the list and of a shuffled file."""
    shuffled = random.sample(documents, len(documents))
    figures = []
    for file in (documents, shuffled):
        scores_, labels = (np.array(column) for column in zip(*file, strict=True))
        evaluator = Evaluator(RankingData.from_arrays(scores_[:, None], labels, [0, len(file)]), Linear(), k)
        ndcg, reciprocal = evaluator.per_query([np.ones(1)])
        figures.append((ndcg[0, 0], reciprocal[0, 0], evaluator.err(np.ones(1))[0]))
    np.testing.assert_allclose(figures[0], figures[1], rtol=1e-14)
    assert figures[0][:2] == figures[1][:2]  # to the bit
    orders = [sorted(order, key=lambda d: -d[0]) for order in itertools.permutations(documents)]
    labels = [[label for _, label in order] for order in orders]
    if any(labels[0]):
        expected = [
            np.mean([equations.ndcg(order, order, k) for order in labels]),
            np.mean([equations.reciprocal_rank([label > 0 for label in order[:k]]) for order in labels]),
            np.mean([err(order, k, 2) for order in labels]),
        ]
        np.testing.assert_allclose(figures[0], expected, rtol=1e-12)


def test_the_results_of_a_search_keep_their_order() -> None:
    data = RankingData.from_arrays(np.zeros((5, 1)), [0, 2, 1, 1, 0], [0, 3, 5])
    evaluator = Evaluator(data, Linear(), k=2, ordered=True)
    ndcg, reciprocal = evaluator.per_query([np.ones(1)])
    np.testing.assert_allclose(ndcg[0], [(3 / math.log2(3)) / (3 + 1 / math.log2(3)), 1.0])
    assert reciprocal[0].tolist() == [1 / 2, 1.0]
    np.testing.assert_allclose(evaluator.err(np.ones(1)), [(3 / 4) / 2, 1 / 4])


def test_nothing_relevant_at_all() -> None:
    data = RankingData.from_arrays(np.eye(3), [0, 0, 0], [0, 2, 3])
    for no_relevant in ("skip", "zero"):
        ndcg, reciprocal = Evaluator(data, Linear(), no_relevant=no_relevant).all_means([np.ones(3)])
        assert (ndcg.tolist(), reciprocal.tolist()) == ([0.0], [0.0])


def test_by_hand() -> None:
    """Scores 3, 2, 1 over labels 0, 2, 1."""
    data = RankingData.from_arrays([[3.0], [2.0], [1.0]], [0, 2, 1], [0, 3])
    ndcg, reciprocal = Evaluator(data, Linear(), k=2).all_means([np.array([1.0])])
    assert ndcg[0] == pytest.approx((3 / math.log2(3)) / (3 / math.log2(2) + 1 / math.log2(3)))
    assert reciprocal[0] == 1 / 2
    ndcg, reciprocal = Evaluator(data, Linear(), k=2).all_means([np.array([-1.0])])
    assert ndcg[0] == pytest.approx((1 / math.log2(2) + 3 / math.log2(3)) / (3 / math.log2(2) + 1 / math.log2(3)))
    assert reciprocal[0] == 1


@pytest.mark.parametrize("ranker", [Linear(), MLP(hidden=5)], ids=str)
def test_bits_do_not_depend_on_company_or_threads(tiny_graded, ranker) -> None:
    data = tiny_graded.train
    thetas = thetas_for(ranker, data, 9)
    reference = Evaluator(data, ranker).all_means(thetas)
    for threads in (2, 3, 64):
        found = Evaluator(data, ranker, threads=threads).all_means(thetas)
        assert [m.tobytes() for m in found] == [m.tobytes() for m in reference]
    for r, theta in enumerate(thetas):
        alone = Evaluator(data, ranker).all_means([theta])
        assert (alone[0][0], alone[1][0]) == (reference[0][r], reference[1][r])
    stacked = Evaluator(data, ranker).all_means(np.array(thetas))
    assert stacked[0].tobytes() == reference[0].tobytes()


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 12))
def test_top_k_is_a_stable_sort(values, k) -> None:
    top = np.full(k, -1)
    size = top_k(np.array(values, dtype=np.float32), len(values), k, top)
    expected = sorted(range(len(values)), key=lambda i: -values[i])[:k]
    assert size == len(expected) == min(k, len(values))
    assert top[:size].tolist() == expected


def test_discounts_and_ideal() -> None:
    np.testing.assert_allclose(discounts(4), [1 / math.log2(rank + 1) for rank in (1, 2, 3, 4)], rtol=1e-15)
    data = RankingData.from_arrays(np.zeros((6, 1)), [0, 4, 1, 0, 0, 2], [0, 3, 5, 6])
    expected = [15 / math.log2(2) + 1 / math.log2(3), 0.0, 3.0]
    np.testing.assert_allclose(ideal_dcg(data, 10), expected)
    np.testing.assert_allclose(ideal_dcg(data, 1), [15.0, 0.0, 3.0])
