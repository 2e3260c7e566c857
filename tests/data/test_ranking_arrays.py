"""Ranking data from arrays of somebody else: what does not fit is refused, with its place."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from quorank.data.ranking import RankingData

X, Y, OFFSETS = np.arange(8.0).reshape(4, 2), [0, 1, 2, 4], [0, 1, 4]


def test_what_fits_is_taken_as_it_is() -> None:
    for labels in (Y, np.array(Y, dtype=np.float32), np.array(Y, dtype=np.uint8), [False, True, False, True]):
        data = RankingData.from_arrays(X, labels, OFFSETS)
        assert data.labels.tolist() == [int(label) for label in labels]
        assert (data.n_queries, data.features.tolist()) == (2, X.tolist())
    assert RankingData.from_arrays(X, [0, 1, 2, 127], [0.0, 4.0]).max_label == 127
    assert RankingData.from_arrays(X, Y, [0, 0, 4]).longest == 4  # a query without documents
    assert RankingData.from_arrays(np.zeros((0, 3)), [], [0]).n_queries == 0


@pytest.mark.parametrize(
    ("features", "labels", "offsets", "code", "where"),
    [
        (X, [0, 0.5, 1, 2], OFFSETS, "ranking-data.label-fractional", "labels row 1"),
        (X, [0, 1, -1, -2], OFFSETS, "ranking-data.label-negative", "labels row 2"),
        (X, [0, 1, 1, 300], OFFSETS, "ranking-data.label-too-high", "labels row 3"),  # 44 as a byte
        (X, [0, np.nan, 1, 2], OFFSETS, "ranking-data.not-finite", "labels row 1"),
        (X, ["0", "1", "1", "2"], OFFSETS, "ranking-data.not-numbers", "labels"),
        (X, [0, 1, 1], OFFSETS, "ranking-data.length", "labels"),
        (X, [[0], [1], [1], [2]], OFFSETS, "ranking-data.shape", "labels"),
        (X, Y, [0, 3, 1, 4], "ranking-data.offsets", "offsets"),
        (X, Y, [0, 3], "ranking-data.offsets", "offsets"),
        (X, Y, [1, 4], "ranking-data.offsets", "offsets"),
        (X, Y, [0, 1.5, 4], "ranking-data.offsets", "offsets"),
        (X, Y, [], "ranking-data.offsets", "offsets"),
        (np.where(X == 5.0, np.nan, X), Y, OFFSETS, "ranking-data.not-finite", "features row 2"),
        (np.where(X == 2.0, 1e39, X), Y, OFFSETS, "ranking-data.not-finite", "features row 1"),  # infinite as float32
        (X.ravel(), Y, OFFSETS, "ranking-data.shape", "features"),
        ([[1.0], [1.0, 2.0]], [0, 1], [0, 2], "ranking-data.shape", "features"),
        (X + 1j, Y, OFFSETS, "ranking-data.not-numbers", "features"),
    ],
)
def test_what_does_not_fit_is_refused(features, labels, offsets, code, where) -> None:
    with refused(code, where):
        RankingData.from_arrays(features, labels, offsets)


def test_names_must_be_as_many_as_what_they_name() -> None:
    with refused("ranking-data.length", "query_ids"):
        RankingData.from_arrays(X, Y, OFFSETS, ["a"])
    with refused("ranking-data.length", "document_ids"):
        RankingData.from_arrays(X, Y, OFFSETS, document_ids=["a"])
