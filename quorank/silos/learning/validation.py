"""Cross-validated weight of augmented instances, found by the parties themselves.

Whether labels by rank help depends on how good a party's own labels are, which nobody knows beforehand. So the
labelled queries are cut into folds; each fold is ranked by rankers trained without it, once for each weight, and the
weight with the best nDCG@10 is taken. For a ranker that parties train together, each party tells how many lists it held
out and two sums over them for each weight (`Tally`). A weight of 0 leaves the augmented instances out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quorank.data.ranking import RankingData
from quorank.kernels.arrays import Doubles, Integers
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear
from quorank.silos.learning.instances import Instances, join_instances
from quorank.silos.learning.training import InstanceTraining


def weigh_augmented(own: Instances, found: Instances, weight: float | None) -> Instances:
    """Join own and augmented instances; all augmented ones weigh `weight` times as much as all own ones.

    None counts every instance alike.
    """
    if not own.n_rows or not found.n_rows or weight == 0.0:
        return own if own.n_rows else found
    each = 1.0 if weight is None else weight * own.weights.sum() / found.n_rows
    return join_instances([own, Instances(found.data, np.full(found.n_rows, each))])


def select_lists(instances: Instances, queries: Integers) -> Instances:
    """Return some lists of an instance set."""
    data = instances.data
    rows = [np.arange(data.offsets[q], data.offsets[q + 1]) for q in queries]
    chosen = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    offsets = np.cumsum([0, *(len(r) for r in rows)])
    kept = data.select_rows(chosen, offsets, [data.query_ids[q] for q in queries])
    return Instances(kept, instances.weights[chosen])


class Tally(NamedTuple):
    """What a party tells of its held-out lists: their number, and for each weight Σ g and Σ g² over them.

    g is a list's nDCG@10 with that weight minus its nDCG@10 with the first one.
    """

    lists: int
    gains: Doubles  # (weights,)
    squares: Doubles  # (weights,)


def split_fold(own: Instances, fold: int, folds: int) -> tuple[Instances, Instances]:
    """Return a party's lists without a fold, which train, and those of the fold, which validate."""
    numbers = np.arange(own.data.n_queries)
    held = numbers % folds == fold
    return select_lists(own, np.flatnonzero(~held)), select_lists(own, np.flatnonzero(held))


def tally_gains(scores: Doubles) -> Tally:
    """Compute what a party tells of its (weights, lists) nDCG@10."""
    gains = scores - scores[:1]
    return Tally(scores.shape[1], gains.sum(axis=1), (gains * gains).sum(axis=1))


def held_out_ndcg(held: Sequence[Instances], thetas: Sequence[Sequence[Doubles]]) -> Doubles:
    """Compute the (weights, lists) nDCG@10 of a party's held-out lists, each by its fold's rankers of every weight.

    thetas[fold][weight]; lists without a relevant document are left out.
    """
    found = [
        np.array([_ndcg(part.data, theta) for theta in of_fold])
        for part, of_fold in zip(held, thetas, strict=True)
        if part.n_rows
    ]
    return np.concatenate([np.empty((len(thetas[0]) if thetas else 0, 0)), *found], axis=1)


def choose_weight(weights: Sequence[float], tallies: Sequence[Tally]) -> float:
    """Return the weight with the largest mean gain over all parties' lists.

    The first weight is kept unless another one is better by more than the standard error of their difference: a few
    lists tell little, and a choice by chance costs more than a weight that is not quite the best.
    """
    lists = sum(each.lists for each in tallies)
    if lists < 2:
        return float(weights[0])
    gains = np.sum([each.gains for each in tallies if each.lists], axis=0)
    squares = np.sum([each.squares for each in tallies if each.lists], axis=0)
    mean = gains / lists
    error = np.sqrt(np.maximum(squares - gains * mean, 0.0) / (lists - 1) / lists)
    return float(weights[int(np.argmax(np.where(mean > error, mean, 0.0)))])


def best_weight(
    training: InstanceTraining,
    own: Sequence[Instances],
    found: Sequence[Instances],
    weights: Sequence[float],
    folds: int,
    seed: int,
) -> float:
    """Return the weight whose rankers order held-out lists best, of all parties and folds together."""
    thetas: list[list[Doubles]] = []
    held: list[list[Instances]] = [[] for _ in own]
    for fold in range(folds):
        parts = [split_fold(part, fold, folds) for part in own]
        if not any(kept.n_rows for kept, _ in parts):
            continue
        thetas.append([])
        for weight in weights:
            both = [weigh_augmented(kept, f, weight) for (kept, _), f in zip(parts, found, strict=True)]
            thetas[-1].append(training.train(both, seed))
        for of_party, (_, out) in zip(held, parts, strict=True):
            of_party.append(out)
    tallies = [tally_gains(held_out_ndcg(of_party, thetas)) for of_party in held] if thetas else []
    return choose_weight(weights, tallies)


def _ndcg(data: RankingData, theta: Doubles) -> list[float]:
    """Compute the nDCG@10 of each list that has a relevant document."""
    evaluator = Evaluator(data, Linear())
    return list(evaluator.per_query([theta])[0][0][evaluator.counted()].tolist())
