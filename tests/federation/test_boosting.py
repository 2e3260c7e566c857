"""Trees of a federation: the bits of the pooled data, however lists are divided, summed and threaded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from quorank.federation.boosting import Boosting, TrainingLists, from_limbs, list_owners, masked_sum, to_limbs
from quorank.federation.rounds import State, private_sum
from quorank.learning import LambdaMART
from quorank.learning.trees.bins import agreed_bins, cell_counts
from quorank.learning.trees.growth import UNIT, draw_splits, release_rows, sums_of_release
from quorank.privacy import ClippedGaussian, Setting


def some_lists(clients: int, lists: int = 12, seed: int = 1) -> TrainingLists:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 30, lists)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    features = rng.random((offsets[-1], 9)).astype(np.float32)
    labels = np.clip(3 * features[:, 0] * features[:, 1] + rng.normal(size=len(features)) / 2, 0, 2).astype(int)
    return TrainingLists(features, 2.0**labels - 1, offsets, list_owners(lists, clients))


def grow(lists: TrainingLists, clients: int, learner: LambdaMART, trees: int = 3, **how):
    bins = agreed_bins(cell_counts(lists.features), learner.bins)
    boosting = Boosting(learner.tree_plan(8, 10), lists, bins, clients, 1, **how)
    return [tree for t in range(trees) for tree in boosting.grow(t)], boosting


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x[:5], y[:5], strict=True))


LEARNERS = [LambdaMART(depth=3, least_data=3), LambdaMART(depth=3, splits="random", batch=2, ridge=0.1)]


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@pytest.mark.parametrize("clients", [1, 5, 12])
def test_a_federation_grows_the_trees_of_the_pooled_data(learner, clients) -> None:
    """Every client computes its own histograms, and only their sums are used: bit for bit the central trees."""
    lists = some_lists(clients)
    central, _ = grow(lists._replace(owners=list_owners(12, 1)), 1, learner)
    federated, boosting = grow(lists, clients, learner, masked=True, masks=False)
    assert same(federated, central) and any(tree.value.any() for tree in central)
    assert boosting.messages == (9 if not boosting.plan.random else 3)


def test_the_sums_may_be_made_under_masks() -> None:
    for learner in LEARNERS:
        lists = some_lists(4)
        assert same(grow(lists, 4, learner, 2, masked=True)[0], grow(lists, 4, learner, 2)[0])


def test_bits_depend_neither_on_threads_nor_on_the_order_of_lists() -> None:
    lists = some_lists(12)
    central, boosting = grow(lists, 12, LEARNERS[0])
    with ThreadPoolExecutor(3) as pool:
        assert same(grow(lists, 12, LEARNERS[0], threads=3, pool=pool)[0], central)
    order = np.random.default_rng(4).permutation(12)
    spans = [np.arange(lists.offsets[q], lists.offsets[q + 1]) for q in order]
    rows, offsets = np.concatenate(spans), np.concatenate([[0], np.cumsum([len(s) for s in spans])])
    other = TrainingLists(lists.features[rows], lists.gains[rows], offsets, lists.owners)
    shuffled, reordered = grow(other, 12, LEARNERS[0])
    assert same(shuffled, central)
    assert reordered.rows.scores.tolist() == boosting.rows.scores[rows].tolist()


def test_growing_goes_on_from_the_scores_of_earlier_trees() -> None:
    for how in ({}, {"masked": True, "masks": False}):
        lists = some_lists(5)
        whole, _ = grow(lists, 5, LEARNERS[0], 3)
        _, half = grow(lists, 5, LEARNERS[0], 2)
        bins = agreed_bins(cell_counts(lists.features), 64)
        again = Boosting(LEARNERS[0].tree_plan(8, 10), lists, bins, 5, 1, **how)
        again.start(half.rows.scores)
        assert same(again.grow(2), whole[2:])


@given(st.lists(st.lists(st.integers(-(2**38), 2**38), min_size=3, max_size=3), min_size=1, max_size=40))
def test_limbs_add_up_to_the_sum(rows) -> None:
    numbers = np.array(rows, dtype=np.int64)
    total = np.zeros_like(to_limbs(numbers[0], len(rows)))
    for row in numbers:
        total += to_limbs(row, len(rows))
    assert from_limbs(total, len(rows)).tolist() == numbers.sum(axis=0).tolist()


def test_a_sum_that_does_not_fit_is_refused() -> None:
    with refused("trees.sum-too-large"):
        to_limbs(np.array([2**50]), 1000)
    with refused("trees.too-many-clients"):
        to_limbs(np.array([1]), 2**30)
    assert masked_sum({0: np.array([-5]), 1: np.array([2**39])}, 1).tolist() == [2**39 - 5]


def test_random_splits_are_of_different_features_and_the_same_for_everyone() -> None:
    bins = agreed_bins(cell_counts(some_lists(1).features), 16)
    drawn = draw_splits(1, 7, 50, 3, bins)
    assert all(len(set(row)) == 3 for row in drawn.features.tolist())
    assert (drawn.last_bins < bins.counts[drawn.features] - 1).all() and drawn.last_bins.min() == 0
    again, other = draw_splits(1, 7, 50, 3, bins), draw_splits(1, 8, 50, 3, bins)
    assert np.array_equal(again.features, drawn.features) and not np.array_equal(other.features, drawn.features)
    assert len(np.unique(drawn.features)) == 9
    with refused("trees.too-few-features", "learner.depth"):
        draw_splits(1, 0, 1, 10, bins)


def test_a_release_is_of_leaf_sums_and_is_clipped_with_noise() -> None:
    lists, learner = some_lists(6), LEARNERS[1]
    bins = agreed_bins(cell_counts(lists.features), 16)
    boosting = Boosting(learner.tree_plan(8, 10), lists, bins, 6, 1)
    sums = boosting.leaf_sums(draw_splits(1, 0, 2, 3, bins))
    assert sums[:, 0].sum(axis=2).tolist() == sums[:, 1].sum(axis=2).tolist()  # each tree's leaves hold all documents
    sent = release_rows(sums)
    assert sums_of_release(sent.sum(axis=0), 2) == pytest.approx(sums.sum(axis=0) / UNIT)
    clip = 0.5 * float(np.linalg.norm(sent, axis=1).max())
    part = ClippedGaussian(clip=clip, noise_multiplier=0.2)
    mechanism = part.mechanism(Setting(6, 6, 50, parameters=sent.shape[1]), 1)
    totals = []
    for round_ in range(50):
        found = private_sum(sent.copy(), mechanism, State(round_, np.zeros(0), {}, mechanism.start()))
        assert found.sensitivity == clip and found.noise == pytest.approx(0.2 * clip)
        totals.append(found.total)
    norms = np.linalg.norm(sent, axis=1, keepdims=True)
    clipped = (sent * np.minimum(1.0, clip / norms)).sum(axis=0)
    error = np.array(totals) - clipped
    assert error.std() == pytest.approx(0.2 * clip, rel=0.1)
    assert np.abs(error.mean(axis=0)).max() < 5 * 0.2 * clip / 50**0.5
