"""Rankers: scoring functions with one flat parameter vector θ."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData, pad
from quorank.kernels.arrays import Doubles, Floats
from quorank.parts import Family
from quorank.rankers.ranker import MLP, Linear, Ranker
from quorank.rankers.scoring import pack, packed_size, score_rows, width_of
from quorank.rankers.trees import Trees

RANKERS: Family[Ranker] = Family("ranker", Linear, MLP, Trees, base=Ranker)  # a new ranker: its file, and its name here

__all__ = ["MLP", "RANKERS", "Linear", "Ranker", "Trees", "scores"]


def scores(ranker: Ranker, theta: Doubles, features: npt.ArrayLike | RankingData) -> Floats:
    """Compute f_θ of every document.

    Args:
        ranker: Scoring function.
        theta: (size,) parameters θ.
        features: (rows, n_features) features, or ranking data.

    Returns:
        (rows,) float32 scores; those of trees are rounded.

    Raises:
        BadInput: `ranker.wrong-size` if θ is for another number of features.

    >>> scores(Linear(), np.array([3.0, 4.0]), [[1.0, 2.0], [0.0, 1.0]])
    array([11.,  4.], dtype=float32)
    """
    if ranker.grown:
        plain = features.features if isinstance(features, RankingData) else np.asarray(features, dtype=np.float32)
        return ranker.score_features(theta, plain).astype(np.float32)
    if isinstance(features, RankingData):
        n, padded = features.n_features, ranker.prepared(features).padded
    else:
        dense = np.asarray(features, dtype=np.float32)
        n, padded = dense.shape[1], pad(ranker.transform(dense))
    ranker.check_size(theta, n)
    packed = np.zeros(packed_size(ranker.layer, padded.shape[1]), dtype=np.float32)
    pack(np.ascontiguousarray(theta, dtype=np.float64), ranker.layer, ranker.inputs(n), padded.shape[1], packed)
    out = np.empty(len(padded), dtype=np.float32)
    score_rows(packed, ranker.layer, padded, 0, len(padded), out, np.zeros(width_of(ranker.layer), dtype=np.float32))
    return out
