"""Bins, histograms and splits against brute force; whole trees against LightGBM."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from quorank.learning.trees.bins import (
    CELLS,
    GRID,
    Bins,
    agreed_bins,
    cell_counts,
    cell_shares,
    cells_of,
    grid_bins,
    largest_in,
    quantile_bins,
)
from quorank.learning.trees.client_rows import ClientRows, shift_for
from quorank.learning.trees.growth import UNIT, GrowthRule, LambdaRule, LevelTask, NodeSplit, TreeGrower, best_splits
from quorank.rankers.trees import TreeArrays, Trees, tree_parameters

RULE = GrowthRule(depth=3, leaves=8, least_data=2, least_hessian=1e-3, ridge=0.5, least_gain=0.0, eta=0.1)


def some_rows(bins: Bins, features, seed: int = 1, **changes) -> ClientRows:
    rng = np.random.default_rng(seed)
    gains = 2.0 ** rng.integers(0, 3, len(features)) - 1
    offsets = np.arange(0, len(features) + 1, 10)
    rule = LambdaRule(1.0, 30, True)
    return ClientRows(bins.place(features), features.shape[1], bins.most, gains, offsets, rule, **changes)


@pytest.fixture
def features():
    rng = np.random.default_rng(7)
    found = rng.normal(size=(200, 11)).astype(np.float32)
    found[:, 3] = 1.5  # constant
    found[:, 4] = rng.integers(0, 3, 200)
    return found


def test_cells_keep_the_order_of_numbers() -> None:
    values = np.array([-np.float32(3e38), -2.0, -1e-40, -0.0, 0.0, 1e-40, 0.5, 0.50001, 1.0, 3e38], dtype=np.float32)
    cells = cells_of(values)
    assert (np.diff(cells) >= 0).all() and cells[3] == cells[4]
    edges = largest_in(cells)
    assert (values <= edges).all()
    assert (cells_of(edges) == cells).all()
    assert (cells_of(np.nextafter(edges[4:-1], np.float32(np.inf))) == cells[4:-1] + 1).all()


def test_bins_are_of_summed_counts_and_hold_about_as_many(features) -> None:
    halves = cell_counts(features[:77]) + cell_counts(features[77:])
    assert np.array_equal(halves, cell_counts(features)) and halves.shape == (11, CELLS)
    bins = agreed_bins(halves, 8)
    assert bins.counts[3] == 1 and bins.counts[4] == 3 and bins.most <= 8
    held = np.bincount(np.searchsorted(bins.edges[0], features[:, 0]), minlength=8)
    assert held.min() >= 15 and held.max() <= 40  # 25 each
    placed = bins.place(features)
    for f in range(11):
        above = np.append(bins.edges[f], np.inf)[placed[f // 8, :, f % 8]]
        below = np.append(-np.inf, bins.edges[f])[placed[f // 8, :, f % 8]]
        assert ((features[:, f] <= above) & (features[:, f] > below)).all()


def test_a_crowded_value_is_a_bin_of_its_own() -> None:
    values = np.concatenate([np.zeros(60), np.linspace(0.5, 1.0, 40)]).astype(np.float32)[:, None]
    edges = agreed_bins(cell_counts(values), 4).edges[0]
    assert len(edges) == 3 and 0.0 <= edges[0] < 0.5


def test_histograms_are_sums_over_documents(features) -> None:
    bins = agreed_bins(cell_counts(features), 16)
    rows = some_rows(bins, features)
    rows.begin()
    assert rows.gradients.any() and (rows.hessians >= 0).all()
    first = rows.histograms(LevelTask((), (0,)))
    split = LevelTask((NodeSplit(0, 9, 5, 1, 2),), (2, 1))
    right, left = rows.histograms(split)
    assert np.array_equal(right + left, first[0])
    placed = bins.place(features)
    goes_left = placed[1, :, 1] <= 5
    for f in (0, 7, 8, 10):
        for bin_ in range(bins.most):
            here = goes_left & (placed[f // 8, :, f % 8] == bin_)
            expected = [rows.gradients[here].sum(), rows.hessians[here].sum(), here.sum()]
            assert left[f, bin_].tolist() == expected


def test_the_best_split_is_found_by_trying_all(features) -> None:
    bins = agreed_bins(cell_counts(features), 16)
    rows = some_rows(bins, features)
    rows.begin()
    histogram = rows.histograms(LevelTask((), (0,)))[0]
    g, h = rows.gradients / UNIT, rows.hessians / UNIT
    placed, best = bins.place(features), (0.0, -1, -1)
    for f in range(11):
        for last in range(bins.counts[f] - 1):
            left = placed[f // 8, :, f % 8] <= last
            if min(left.sum(), (~left).sum()) < RULE.least_data:
                continue
            gain = sum(g[side].sum() ** 2 / (h[side].sum() + RULE.ridge) for side in (left, ~left))
            gain -= g.sum() ** 2 / (h.sum() + RULE.ridge)
            if gain > best[0] + 1e-12:
                best = gain, f, last
    found = best_splits(RULE, [histogram], bins.counts)
    assert (found.feature[0], found.bin[0]) == best[1:]
    assert found.gain[0] == pytest.approx(best[0])


def test_more_documents_than_one_number_can_count_are_refused() -> None:
    assert shift_for(np.array([3, 4])) == 3
    with refused("trees.too-many-rows"):
        shift_for(np.full(8, 2**57))


def grown(rows: ClientRows, bins: Bins, rule: GrowthRule):
    rows.begin()
    grower, tasks = TreeGrower(rule, bins), 0
    while not grower.finished:
        grower.accept(rows.histograms(grower.task))
        tasks += 1
    tree = grower.tree()
    rows.finish(grower.task, tree.leaf_nodes, tree.value)
    return tree, tasks


def test_a_level_is_one_message_and_leaves_are_worth_their_sums(features) -> None:
    bins = agreed_bins(cell_counts(features), 16)
    rows = some_rows(bins, features)
    tree, messages = grown(rows, bins, RULE)
    assert messages == RULE.depth and len(tree.leaf_nodes) == 8
    theta = tree_parameters(TreeArrays(*(column[None] for column in tree[:5])))
    scored = Trees(leaves=8, trees=1).score_features(theta, features)
    assert scored.tolist() == rows.scores.tolist()
    for value in np.unique(scored):
        here = scored == value
        sums = rows.gradients[here].sum() / UNIT, rows.hessians[here].sum() / UNIT
        assert value == pytest.approx(-RULE.eta * sums[0] / (sums[1] + RULE.ridge))
        assert here.sum() >= RULE.least_data


def test_few_leaves_take_the_splits_that_gain_most(features) -> None:
    bins = agreed_bins(cell_counts(features), 16)
    tree, _ = grown(some_rows(bins, features), bins, RULE._replace(leaves=3))
    assert len(tree.leaf_nodes) == 3 and tree.feature.shape == (2,)
    whole, _ = grown(some_rows(bins, features), bins, RULE)
    assert tree.feature[0] == whole.feature[0] and tree.threshold[0] == whole.threshold[0]


def test_trees_are_those_of_lightgbm() -> None:
    """The same bins, sigmoid, truncation, depth and shrinkage: the same trees, but for LightGBM's float32 gradients."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(5)
    features = rng.integers(0, 12, (600, 6)).astype(np.float32)
    labels = np.clip(features[:, 0] / 4 + features[:, 1] * features[:, 2] / 60 + rng.normal(size=600), 0, 3).astype(int)
    bins = agreed_bins(cell_counts(features), 64)
    offsets = np.arange(0, 601, 20)
    rows = ClientRows(bins.place(features), 6, bins.most, 2.0**labels - 1, offsets, LambdaRule(1.0, 7, True))
    rule = GrowthRule(3, 8, 0, 0.05, 0.3, 0.0, 0.1)
    for _ in range(8):
        grown(rows, bins, rule)
    settings = {
        "objective": "lambdarank", "num_leaves": 8, "max_depth": 3, "learning_rate": 0.1, "min_data_in_leaf": 0,
        "min_sum_hessian_in_leaf": 0.05, "lambda_l2": 0.3, "lambdarank_truncation_level": 7, "min_data_in_bin": 1,
        "feature_pre_filter": False, "verbose": -1, "num_threads": 1, "deterministic": True,
    }  # fmt: skip
    data = lightgbm.Dataset(features, label=labels, group=np.diff(offsets), params=settings)
    model = lightgbm.train(settings, data, 8)
    assert model.predict(features) == pytest.approx(rows.scores, abs=1e-4)
    assert rows.scores.std() > 0.1


def test_bins_under_noise_lie_at_the_quantiles() -> None:
    rng = np.random.default_rng(2)
    features = (rng.random((4000, 2)) ** [1, 3]).astype(np.float32)
    owners = np.arange(40) % 10
    shares = cell_shares(features, np.arange(0, 4001, 100), owners, 12, 0.5)
    assert np.linalg.norm(shares[:10], axis=1) == pytest.approx(0.5) and not shares[10:].any()
    edges = quantile_bins(shares.sum(axis=0), 2, 4).edges
    assert edges[0] == pytest.approx([0.25, 0.5, 0.75], abs=0.03)
    assert edges[1] == pytest.approx([0.25**3, 0.5**3, 0.75**3], abs=0.03)
    assert quantile_bins(np.full(2 * (len(GRID) - 1), -1.0), 2, 4).counts.tolist() == [1, 1]
    assert grid_bins(3, 4).edges[2].tolist() == [0.25, 0.5, 0.75]
