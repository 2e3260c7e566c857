"""Tiny collections whose rows are known again wherever they go."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from quorank.data import Collection, RankingData


def numbered(lengths, labels) -> Collection:
    """Feature 1 of a row is its number, so that rows are known again wherever they go."""
    rows = sum(lengths)
    features = np.stack([np.arange(rows), np.ones(rows)], axis=1)
    data = RankingData.from_arrays(features, labels, np.concatenate(([0], np.cumsum(lengths))))
    return Collection("numbered", data, data)


@st.composite
def collections(draw) -> Collection:
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(sum))
    highest = draw(st.integers(0, 4))
    size = sum(lengths)
    return numbered(lengths, draw(st.lists(st.integers(0, highest), min_size=size, max_size=size)))
