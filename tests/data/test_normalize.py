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
    normal = normalize_queries(data)
    assert not normal.padded[:, 5:].any() and np.array_equal(normalize_queries(normal).padded, normal.padded)
