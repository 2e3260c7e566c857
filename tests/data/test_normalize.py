"""Query-level normalisation against NumPy, one query at a time."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quorank.data import RankingData
from quorank.data.normalisation import normalize_queries

number = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(arrays.arrays(np.float32, (7, 5), elements=number), st.sampled_from([[0, 7], [0, 1, 7], [0, 3, 3, 7]]))
def test_each_query_and_feature_is_brought_to_0_1(features, offsets):
    data = RankingData.from_arrays(features, np.zeros(7), offsets)
    before = data.padded.copy()
    found = normalize_queries(data).features
    assert np.array_equal(before, data.padded)
    for first, last in pairwise(offsets):
        block = features[first:last].astype(np.float64)
        if first == last:
            continue
        low, high = block.min(axis=0), block.max(axis=0)
        spread = np.where(high > low, high - low, 1)
        expected = np.where(high > low, (block - low) / spread, 0).astype(np.float32)
        assert np.array_equal(found[first:last], expected)
    assert found.min() >= 0 and found.max() <= 1


def test_a_constant_feature_becomes_0_and_padding_stays_0():
    data = RankingData.from_arrays([[5, 1], [5, 3], [5, 2]], [0, 1, 0], [0, 3])
    normal = normalize_queries(data)
    assert normal.features.tolist() == [[0, 0], [0, 1], [0, 0.5]]
    assert not normal.padded[:, 2:].any()


def test_normalising_twice_changes_nothing():
    data = RankingData.from_arrays(np.random.default_rng(0).normal(size=(30, 4)), np.zeros(30), [0, 10, 30])
    once = normalize_queries(data)
    assert np.array_equal(once.padded, normalize_queries(once).padded)
