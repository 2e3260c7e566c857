"""How much augmented instances should count, found by the parties themselves.

Whether labels by rank help depends on how good a party's own labels are, which nobody knows beforehand. So the
labelled queries are cut into folds; each fold is ranked by rankers trained without it, once for each weight, and the
weight with the best nDCG@10 is taken. For a ranker that parties train together, each party tells one number for each
weight and list of its own. A weight of 0 leaves the augmented instances out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData
from quorank.evaluation.ranker import Evaluator
from quorank.rankers import Linear
from quorank.silos.instances import Instances, joined
from quorank.silos.training import Training

Doubles = npt.NDArray[np.float64]


def weighed(own: Instances, found: Instances, weight: float | None) -> Instances:
    """Own and augmented instances together; all augmented ones weigh `weight` times as much as all own ones.

    None counts every instance alike.
    """
    if not own.n_rows or not found.n_rows or weight == 0.0:
        return own if own.n_rows else found
    each = 1.0 if weight is None else weight * own.weights.sum() / found.n_rows
    return joined([own, Instances(found.data, np.full(found.n_rows, each))])


def lists_of(instances: Instances, queries: npt.NDArray[np.int64]) -> Instances:
    """Some lists of an instance set."""
    data = instances.data
    rows = [np.arange(data.offsets[q], data.offsets[q + 1]) for q in queries]
    chosen = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    kept = RankingData(
        np.ascontiguousarray(data.padded[chosen]),
        data.labels[chosen],
        np.concatenate(([0], np.cumsum([len(r) for r in rows]))).astype(np.int64),
        data.n_features,
        [data.query_ids[q] for q in queries],
    )
    return Instances(kept, instances.weights[chosen])


def best_weight(
    training: Training,
    own: Sequence[Instances],
    found: Sequence[Instances],
    weights: Sequence[float],
    folds: int,
    seed: int,
) -> float:
    """The weight whose rankers order held-out lists best, of all parties and folds together.

    The first weight is kept unless another one is better by more than the standard error of their difference: a few
    lists tell little, and a choice by chance costs more than a weight that is not quite the best.
    """
    scores: list[list[float]] = [[] for _ in weights]
    for fold in range(folds):
        kept = [lists_of(part, _numbers(part, fold, folds, keep=True)) for part in own]
        held = [lists_of(part, _numbers(part, fold, folds, keep=False)) for part in own]
        if not any(part.n_rows for part in kept):
            continue
        for number, weight in enumerate(weights):
            parts = [weighed(k, f, weight) for k, f in zip(kept, found, strict=True)]
            theta = training.train(parts, seed)
            scores[number] += [value for part in held if part.n_rows for value in _ndcg(part.data, theta)]
    gains = np.array(scores) - np.array(scores[:1])
    if gains.shape[1] < 2:
        return float(weights[0])
    error = gains.std(axis=1, ddof=1) / np.sqrt(gains.shape[1])
    sure = np.where(gains.mean(axis=1) > error, gains.mean(axis=1), 0.0)
    return float(weights[int(np.argmax(sure))])


def _numbers(part: Instances, fold: int, folds: int, *, keep: bool) -> npt.NDArray[np.int64]:
    numbers = np.arange(part.data.n_queries)
    return np.flatnonzero((numbers % folds == fold) != keep)


def _ndcg(data: RankingData, theta: Doubles) -> list[float]:
    """nDCG@10 of each list that has a relevant document."""
    evaluator = Evaluator(data, Linear())
    return list(evaluator.per_query([theta])[0][0][evaluator.counted()].tolist())
