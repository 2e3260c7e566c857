"""Arithmetic of benchmarks/ceilings.py, its ridge regression against scikit-learn, and its refusal without LightGBM."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from benchmarks import ceilings
from quorank.data.ranking import RankingData

SHIPPED, METHOD, CEILING = [0.5, 0.4, 0.6], [0.55, 0.5, 0.6], [0.6, 0.55, 0.75]


def small(seed: int = 1) -> RankingData:
    random = np.random.default_rng(seed)
    return RankingData.from_arrays(random.normal(size=(60, 4)), random.integers(0, 3, 60), np.arange(0, 61, 6))


def test_the_share_of_the_gap_is_of_the_means_and_its_error_the_jackknife() -> None:
    """Gains .05, .1, 0 in gaps .1, .15, .15; left out in turn: .1/.3, .05/.25, .15/.25."""
    share, error = ceilings.gap_closed(SHIPPED, METHOD, CEILING) or (math.nan, math.nan)
    left_out = np.array([0.1 / 0.3, 0.05 / 0.25, 0.15 / 0.25])
    assert share == pytest.approx(0.15 / 0.4)
    assert error == pytest.approx(math.sqrt(2 / 3 * ((left_out - left_out.mean()) ** 2).sum()))


@pytest.mark.parametrize("ceiling", [[0.4, 0.3, 0.5], SHIPPED, [0.6, 0.4, 0.6]])
def test_where_the_folds_show_no_gap_there_is_no_share(ceiling: list[float]) -> None:
    """Below, equal, and .033 above with a standard error of .033."""
    assert ceilings.gap_closed(SHIPPED, METHOD, ceiling) is None


def test_ridge_weights_are_those_of_scikit_learn() -> None:
    data = small()
    of = data.query_of_rows()
    centred = [
        values - np.array([values[of == q].mean(axis=0) for q in range(data.n_queries)])[of]
        for values in (data.features.astype(np.float64), data.labels.astype(np.float64))
    ]
    found = Ridge(alpha=3.0, fit_intercept=False).fit(*centred).coef_
    np.testing.assert_allclose(ceilings.ridge_weights(data, 3.0), found, rtol=1e-9)


def test_the_best_feature_is_the_one_that_holds_the_labels() -> None:
    data = small()
    features = np.array(data.features)
    features[:, 2] = data.labels
    assert ceilings.best_feature(data.with_features(features)) == 3
    assert ceilings.ndcg_of(data, data.labels.astype(np.float64)) == 1.0
