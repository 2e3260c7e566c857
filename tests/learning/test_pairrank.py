"""PairRank against brute force: which pairs are certain, the blocks, the logistic loss's gradient, whole updates."""

from __future__ import annotations

import itertools
import math

import equations
import numpy as np
import pytest
from chance import assert_follows
from lists import NO_FEATURES, reference_update, simulate
from sampling import sampled

from quorank.data.ranking import RankingData
from quorank.kernels.draws import Address, Purpose, uniforms
from quorank.learning import PairRank, Simulation
from quorank.learning.client_loop import Impression
from quorank.learning.pairrank import PairRule, logistic_coefficients, shuffle_blocks
from quorank.learning.plackett_luce import buffers_for
from quorank.rankers import MLP, Linear
from quorank.users import Cascade, PositionBased


def certain(scores, x, i, j, width) -> bool:
    """σ(|f_i − f_j|) − α·√((x_i − x_j)ᵀ·M⁻¹·(x_i − x_j)) > ½, with M = I/(width/α)²."""
    inverse = width**2 * np.eye(x.shape[1])
    difference = x[i] - x[j]
    return 1 / (1 + math.exp(-abs(scores[i] - scores[j]))) - math.sqrt(difference @ inverse @ difference) > 0.5


def blocks_of(scores, x, width) -> list[list[int]]:
    """The ranking, cut wherever all pairs across the cut are certain."""
    ranking = sorted(range(len(scores)), key=lambda d: (-scores[d], d))
    blocks: list[list[int]] = [[ranking[0]]]
    for cut in range(1, len(ranking)):
        across = itertools.product(ranking[:cut], ranking[cut:])
        if all(certain(scores, x, i, j, width) for i, j in across):
            blocks.append([])
        blocks[-1].append(ranking[cut])
    return blocks


def shuffled(blocks, k, draws) -> tuple[list[int], list[int]]:
    """The first k documents and their blocks from given uniforms: a Fisher-Yates shuffle of each block."""
    order = [d for block in blocks for d in block]
    numbers = [number for number, block in enumerate(blocks) for _ in block]
    for p in range(k):
        end = max(at for at, number in enumerate(numbers) if number == numbers[p]) + 1
        other = p + int(draws[p] * (end - p))
        order[p], order[other] = order[other], order[p]
    return order[:k], numbers[:k]


def kernel_list(scores, x, k, width, client=0) -> tuple[list[int], list[int]]:
    n, features, rule = len(scores), x.astype(np.float32), PairRule(width, 0.1)
    data = RankingData.from_arrays(features, np.zeros(n, dtype=np.int8), [0, n])
    world = Simulation(data, Linear(), Cascade(), 3, 3, k).world()
    buffers = buffers_for(n, 0, world.padded, n)
    impression = Impression(0, Address(0, client, 0), 0, n, k, scores.astype(np.float32), NO_FEATURES[0:0].ravel())
    shuffle_blocks(rule, world, impression, np.zeros(x.shape[1]), buffers)
    return buffers.shown[:k].tolist(), buffers.shown_weights[:k].astype(int).tolist()


@pytest.mark.parametrize("width", [0.0, 0.02, 0.1, 0.2, 0.4, 5.0])
def test_blocks_are_cut_where_all_pairs_are_certain(width) -> None:
    random, counts = np.random.default_rng(4), set()
    for _ in range(60):
        n = int(random.integers(1, 9))
        x = random.random((n, 3)).astype(np.float32).astype(np.float64)
        scores = (x @ random.normal(scale=3, size=3)).astype(np.float32).astype(np.float64)
        expected = blocks_of(scores, x, width)
        shown, numbers = kernel_list(scores, x, n, width)
        found = [{d for d, number in zip(shown, numbers, strict=True) if number == b} for b in range(numbers[-1] + 1)]
        assert found == [set(block) for block in expected]
        counts.add(len(expected) / n)
    assert (min(counts) < 1.0) == (width > 0.0)  # with no uncertainty each document is a block of its own
    assert len(counts) > 2 or width in (0.0, 5.0)


def test_a_document_between_two_uncertain_ones_joins_their_block() -> None:
    """Scores 2 > 1 > 0; only the outer pair is far apart in its features, and uncertain: no order of blocks exists."""
    x, scores = np.array([[0.0, 0.0], [4.5, 0.0], [9.0, 0.0]]), np.array([2.0, 1.0, 0.0])
    width = 0.05  # ½ + 0.05·4.5 < σ(1) < σ(2) < ½ + 0.05·9
    assert [certain(scores, x, i, j, width) for i, j in ((0, 1), (1, 2), (0, 2))] == [True, True, False]
    assert kernel_list(scores, x, 3, width)[1] == [0, 0, 0]


def test_documents_of_a_block_are_shown_in_every_order_alike() -> None:
    x = np.array([[0.0], [0.1], [0.2], [3.0]])
    scores = np.array([0.0, 0.01, 0.02, 9.0])
    expected = {(3, *order): 1 / 6 for order in itertools.permutations((0, 1, 2), 2)}
    assert_follows([tuple(kernel_list(scores, x, 3, 0.1, client)[0]) for client in range(6000)], expected)


def test_coefficients_are_the_slope_of_the_logistic_loss() -> None:
    random = np.random.default_rng(2)
    for clicks in itertools.product((False, True), repeat=4):
        scores = random.normal(size=6).astype(np.float32).astype(np.float64)
        shown, blocks = random.permutation(6)[:4], np.array([0, 0, 0, 1])
        last = max((p for p in range(4) if clicks[p]), default=-2) + 1  # the document after the last click counts too
        pairs = [
            (winner, loser)
            for winner, loser in itertools.permutations(range(min(last, 3) + 1), 2)
            if clicks[winner] and not clicks[loser] and blocks[winner] == blocks[loser]
        ]

        def loss(at, f) -> float:
            f = dict(zip(range(4), scores[shown], strict=True)) | {at: f}  # noqa: B023
            return sum(math.log1p(math.exp(f[loser] - f[winner])) for winner, loser in pairs)  # noqa: B023

        buffers = buffers_for(6, 0, NO_FEATURES, 6)
        buffers.shown[:4], buffers.shown_weights[:4], buffers.clicked[:4] = shown, blocks, clicks
        assert logistic_coefficients(scores.astype(np.float32), 4, buffers) == bool(pairs)
        found = buffers.coefficients
        for p in range(4):
            score, h = scores[shown[p]], 1e-5
            assert found[p] == pytest.approx(-(loss(p, score + h) - loss(p, score - h)) / (2 * h), abs=1e-8)


def client_update(simulation, learner, theta, client, interactions, round_) -> np.ndarray:
    """The algorithm in plain Python, float64."""
    hidden, width = simulation.ranker.hidden, learner.alpha / math.sqrt(learner.ridge + learner.growth * round_)

    def show(local, x, k, address):
        f = equations.score(local, x, hidden)
        shown, blocks = shuffled(blocks_of(f, x, width), k, uniforms(simulation.seed, Purpose.RANKING, k, **address))
        return shown, (f, blocks)

    def learn(local, x, shown, kept, clicked, address):
        f, blocks = kept
        gradient = [equations.score_gradient(local, x[d], hidden) for d in shown]
        for winner, loser in equations.preferences(clicked):
            if blocks[winner] == blocks[loser]:
                gap = f[shown[winner]] - f[shown[loser]]
                local = local + learner.eta / (1 + math.exp(gap)) * (gradient[winner] - gradient[loser])
        return local

    return reference_update(simulation, theta, client, interactions, round_, show, learn)


USERS = [Cascade(), PositionBased(eta=1.0)]


@pytest.mark.parametrize(("round_", "users", "ranker"), sampled([0, 9, 400], USERS, [Linear(), MLP(hidden=5)]), ids=str)
def test_an_update_is_the_algorithm(tiny_collection, round_, users, ranker) -> None:
    simulation = Simulation(tiny_collection.train, ranker, users, tiny_collection.grades, seed=5)
    learner = PairRank(eta=0.2, alpha=0.5, ridge=0.5, growth=2.0)
    theta = np.random.default_rng(1).normal(size=simulation.parameters)
    clients = [0, 3, 17, 100_000]
    found = simulate(simulation, learner, theta, clients, 8, round_)
    expected = [client_update(simulation, learner, theta, client, 8, round_) for client in clients]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(found[:, : simulation.parameters]).max() > 0.01
