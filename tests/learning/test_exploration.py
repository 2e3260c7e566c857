"""Stated exploration: the distribution of the lists, its promises, and pair weights that stay exact for it."""

from __future__ import annotations

import itertools
import math

import equations
import numpy as np
import pytest
from chance import assert_follows, assert_mean
from equations import list_probability
from lists import Sampler, one_query, simulate
from sampling import sampled

from quorank.learning import PDGD, OnlineRanker
from quorank.learning.client_loop import STATISTICS
from quorank.learning.exploration import FREE, IN_BLOCKS, Dial
from quorank.learning.online import weighted_pairs
from quorank.rankers import Linear
from quorank.users import Cascade, PositionBased

DIALS = [
    Dial(0.5, 0, 1.0),
    Dial(2.0, 0, 0.4),
    Dial(1e30, 1, 1.0),
    Dial(0.7, 1, 0.3),
    Dial(1.5, 2, 1.0),
    Dial(1.0, 3, 0.8),
]
SCORES = (0.5, -0.5, 0.25, 1.5, 0.0)
USERS = [
    PositionBased(eta=1.0),
    PositionBased(eta=0.5, preset="informational"),
    Cascade("perfect"),
    Cascade("navigational"),
    Cascade("informational"),
    Cascade("poison"),
]


def in_blocks(scores, k, window, offset) -> dict[tuple[int, ...], float]:
    """P(list | where the blocks begin): eq. 2 within each block of the ranking, cut after k documents."""
    n = len(scores)
    ranking = sorted(range(n), key=lambda d: (-scores[d], d))
    edges = sorted({0, min(offset, n), n, *range(offset, n, window + 1)})
    out: dict[tuple[int, ...], float] = {}
    blocks = [ranking[a:b] for a, b in itertools.pairwise(edges)]
    for parts in itertools.product(*(list(itertools.permutations(block)) for block in blocks)):
        p = 1.0
        for block, part in zip(blocks, parts, strict=True):
            p *= list_probability([block.index(d) for d in part], [scores[d] for d in block])
        shown = tuple(itertools.chain(*parts))[:k]
        out[shown] = out.get(shown, 0.0) + p
    return out


def circumstances(scores, k, dial) -> list[tuple[float, dict[tuple[int, ...], float]]]:
    """(probability, the lists that are possible then): unexplored, free, or in blocks from each offset on."""
    tempered = [float(np.float32(np.float32(s) / dial.temperature)) for s in scores]
    ranking = tuple(sorted(range(len(scores)), key=lambda d: (-scores[d], d))[:k])
    found = [(1.0 - dial.share, {ranking: 1.0})] if dial.share < 1.0 else []
    if dial.window == 0:
        return [*found, (dial.share, equations.ranking_probabilities(tempered, k))]
    size = dial.window + 1
    return [*found, *((dial.share / size, in_blocks(tempered, k, dial.window, o)) for o in range(size))]


def direct_coefficients(lists, shown, scores, clicked) -> np.ndarray:
    """Eq. 5 with ρ from the probabilities of both lists, and the slope of f."""
    out = np.zeros(len(shown))
    for better, worse in equations.preferences(clicked):
        swapped = list(shown)
        swapped[better], swapped[worse] = swapped[worse], swapped[better]
        p, q = lists[shown], lists.get(tuple(swapped), 0.0)
        gap = abs(scores[shown[better]] - scores[shown[worse]])
        weight = q / (p + q) * math.exp(-gap) / (1 + math.exp(-gap)) ** 2
        out[better] += weight
        out[worse] -= weight
    return out


@pytest.mark.parametrize("dial", DIALS, ids=str)
@pytest.mark.parametrize("k", [3, 5])
def test_lists_follow_the_stated_distribution(dial, k) -> None:
    expected: dict[tuple[int, ...], float] = {}
    for p, lists in circumstances(SCORES, k, dial):
        for shown, q in lists.items():
            expected[shown] = expected.get(shown, 0.0) + p * q
    sampler = Sampler(SCORES, k, dial=dial)
    assert_follows((sampler.draw(client) for client in range(20_000)), expected)


@pytest.mark.parametrize("dial", [d for d in DIALS if d.window], ids=str)
def test_no_document_moves_farther_than_the_window(dial) -> None:
    random, unexplored = np.random.default_rng(4), 0
    for trial in range(300):
        n = int(random.integers(1, 40))
        scores = np.round(random.normal(size=n), 1).astype(np.float32)  # with ties
        k = min(n, 10)
        rank = np.empty(n, dtype=int)
        rank[np.lexsort((np.arange(n), -scores))] = np.arange(n)
        sampler = Sampler(scores, k, dial=dial)
        shown = sampler.draw(trial)
        assert len(set(shown)) == k
        assert np.abs(rank[list(shown)] - np.arange(k)).max() <= dial.window
        if sampler.shown_weights.tolist() == list(range(k)) and sampler.rest == IN_BLOCKS:
            assert rank[list(shown)].tolist() == list(range(k))
            unexplored += k > 4
    assert unexplored == 0 if dial.share == 1.0 else 100 < unexplored / (1 - dial.share) < 400


@pytest.mark.parametrize("dial", DIALS, ids=str)
@pytest.mark.parametrize("k", [3, 5])
def test_pair_weights_are_exact_for_what_was_drawn(dial, k) -> None:
    sampler, cases = Sampler(SCORES, k, dial=dial), circumstances(SCORES, k, dial)
    for client in range(60):
        shown = sampler.draw(client)
        if dial.window == 0:
            lists = cases[-1][1] if sampler.rest > IN_BLOCKS else cases[0][1]
        elif (
            len(set(sampler.shown_weights)) == k and len(cases) > dial.window + 1 and sampler.shown_weights[-1] == k - 1
        ):
            lists = cases[0][1]
        else:
            first = int((sampler.shown_weights == sampler.shown_weights[0]).sum())
            offset = int((sampler.shown_weights == 0.0).sum()) if sampler.shown_weights[0] == 0.0 else 0
            assert first <= dial.window + 1
            lists = cases[len(cases) - dial.window - 1 + offset][1]
        for bits in range(1 << k):
            clicked = [bool(bits >> p & 1) for p in range(k)]
            expected = direct_coefficients(lists, shown, SCORES, clicked)
            np.testing.assert_allclose(sampler.coefficients(clicked)[1], expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("dial", "users"), sampled([*DIALS, FREE], USERS, times=2), ids=str)
def test_the_mean_update_is_the_exact_expectation(dial, users) -> None:
    """E[eq. 5], E[nDCG], E[MaxRR], E[clicks]: Σ_R P(R) Σ_c P(c | R) · what the pair of them gives."""
    labels, k, theta = (0, 2, 1, 0, 1), 3, np.array(SCORES)
    tables, total = users.tables(3, k), np.zeros(5 + STATISTICS)
    for chance, lists in circumstances(SCORES, k, dial):
        for shown, p in lists.items():
            seen = [labels[d] for d in shown]
            for clicked, q in equations.click_patterns(seen, tables.examine, tables.click, tables.stop).items():
                total[list(shown)] += chance * p * q * direct_coefficients(lists, shown, SCORES, clicked)
                metrics = equations.ndcg(seen, labels, k), equations.reciprocal_rank(clicked), sum(clicked)
                total[5:] += chance * p * q * np.array(metrics)
    learner = PDGD(eta=0.25, temperature=dial.temperature, window=dial.window or None, share=dial.share)
    rows = simulate(one_query(labels, users, k), learner, theta, np.arange(100_000), 1)
    rows[:, :5] /= 0.25
    assert_mean(rows, total)


@pytest.mark.parametrize("dial", [Dial(0.5, 0, 1.0), Dial(3.0, 2, 1.0), Dial(1.0, 1, 0.5)], ids=str)
def test_a_later_ranker_and_the_guard_weigh_by_what_was_drawn(dial) -> None:
    """A list learned later: ρ of the distribution then, the slope now; the guard's ρ is the same."""
    learner = PDGD(eta=1.0, temperature=dial.temperature, window=dial.window or None, share=dial.share)
    theta, now = np.array(SCORES), np.array([-0.5, 1.0, 0.0, 0.25, 2.0])
    clicked = np.array([False, True, True, False])
    learned = 0
    for client in range(20):
        shown = OnlineRanker(theta, 5, Linear(), learner, client=client, k=4).rank(np.eye(5))
        sampler = Sampler(SCORES, 4, dial=dial)
        assert tuple(shown.order.tolist()) == sampler.draw(client)
        late = OnlineRanker(now, 5, Linear(), learner, k=4)
        late.learn(shown, clicked)
        better, worse, rho = weighted_pairs(shown, clicked)
        expected = np.zeros(5)
        for a, b, weight in zip(better, worse, rho, strict=True):
            gap = math.exp(-abs(now[shown.order[a]] - now[shown.order[b]]))
            expected[shown.order[a]] += weight * gap / (1 + gap) ** 2
            expected[shown.order[b]] -= weight * gap / (1 + gap) ** 2
        np.testing.assert_allclose(late.update, expected, rtol=1e-6, atol=1e-12)
        sampler.scores[:] = now
        np.testing.assert_allclose(late.update[shown.order], sampler.coefficients(clicked)[1], rtol=1e-6, atol=1e-12)
        learned += bool(late.update.any())
    assert learned >= 5
