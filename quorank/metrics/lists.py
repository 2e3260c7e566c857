"""Metrics of one ranked list, the reference for compiled code, and their discounted sum over rounds.

A list is given by the labels of its documents from the top down. `k` is the number of ranks that count. Where a list is
given by scores, equal scores count by the expected value of the metric over all orders of their documents (McSherry and
Najork 2008, "Computing information retrieval performance measures efficiently in the presence of tied scores").
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles

NoRelevant = Literal["skip", "zero"]  # a query without relevant documents is left out of means, or counts as 0


def gain(labels: npt.ArrayLike) -> Doubles:
    """Return 2^rel − 1 elementwise (Burges et al., ICML 2005), in the shape of the labels.

    >>> gain([0, 1, 2])
    array([0., 1., 3.])
    """
    return np.asarray(np.exp2(np.asarray(labels, dtype=np.float64)) - 1.0)


def discounts(n: int) -> Doubles:
    """Return (n,) 1 / log2(rank + 1) for ranks 1 to n (Burges et al., ICML 2005).

    >>> discounts(3)[[0, 2]]  # 1/log2(2), 1/log2(4)
    array([1. , 0.5])
    """
    return np.array([1.0 / math.log2(rank + 1) for rank in range(1, n + 1)])


def dcg(labels: npt.ArrayLike, k: int = 10) -> float:
    """Compute the discounted cumulative gain, Σ_{r ≤ k} (2^rel_r − 1) / log2(r + 1) (Burges et al., ICML 2005).

    Args:
        labels: (documents,) labels in ranked order; a list shorter than k is summed to its end.
        k: Number of ranks that count.

    Raises:
        BadInput: `metric.shape` or `metric.label-out-of-range` for other labels.

    >>> dcg([1, 0, 1])  # 1/log2(2) + 1/log2(4)
    1.5
    """
    top = _labels(labels, k)[:k]
    return float(np.sum(gain(top) * discounts(len(top))))


def ndcg(ranked_labels: npt.ArrayLike, all_labels: npt.ArrayLike, k: int = 10) -> float:
    """Divide the DCG by that of the best list (Järvelin & Kekäläinen, TOIS 2002); 0 if nothing is relevant.

    Args:
        ranked_labels: (shown,) labels in ranked order, at least the first k that were shown.
        all_labels: (candidates,) labels of all the query's candidates in any order, for the best list.
        k: Number of ranks that count.

    >>> ndcg([2, 0], [0, 2])
    1.0
    """
    ideal = dcg(np.sort(_labels(all_labels, k))[::-1], k)
    return dcg(ranked_labels, k) / ideal if ideal > 0 else 0.0


def err(labels: npt.ArrayLike, k: int = 10, max_label: int = 4, scores: npt.ArrayLike | None = None) -> float:
    """Compute the expected reciprocal rank, Σ_{r ≤ k} (1/r) R_r Π_{i<r} (1 − R_i) (Chapelle et al., CIKM 2009).

    Documents with equal scores count by the expected value over all their orders. With E_j the mean of Π (1 − R) over all
    subsets of j documents of a tie, the expected probability to stop at its rank j is E_{j−1} − E_j.

    Args:
        labels: (documents,) labels in ranked order; a document satisfies with probability R = (2^rel − 1) / 2^max_label.
        k: Number of ranks that count.
        max_label: Highest grade of the collection's scale, not of this list.
        scores: (documents,) scores, if the labels are in another order.

    Raises:
        BadInput: `metric.label-out-of-range` for a label above `max_label`.

    >>> err([1, 1], max_label=1)  # 1·1/2 + 1/2·1/2·1/2
    0.625
    >>> err([0, 1], max_label=1, scores=[0.3, 0.3])  # (1·1/2 + 1/2·1/2) / 2
    0.375
    """
    all_labels = _labels(labels, k)
    order = np.arange(len(all_labels)) if scores is None else np.argsort(-np.asarray(scores), kind="stable")
    ranked = all_labels[order]
    highest = ranked[: k if scores is None else None].max(initial=0)
    above = f"ERR: label {highest:g} is above max_label = {max_label}"
    require(highest <= max_label, "metric.label-out-of-range", above)
    goes_on = 1.0 - gain(ranked) / 2.0**max_label
    ends = np.arange(1, len(ranked) + 1)
    if scores is not None:
        ordered = np.asarray(scores)[order]
        ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, len(ordered)) if len(ordered) else ends
    total, reaches, first = 0.0, 1.0, 0
    for end in ends.tolist():
        if first >= k:
            break
        means = np.ones(1)  # E_0, E_1, … of the documents so far
        for number, one in enumerate(goes_on[first:end].tolist(), 1):
            share = np.arange(number + 1) / number  # of the subsets that hold the newest document
            means = (1.0 - share) * np.append(means, 0.0) + share * one * np.append(0.0, means)
        stops = (means[:-1] - means[1:])[: k - first]
        total += reaches * float(np.sum(stops / np.arange(first + 1, first + 1 + len(stops))))
        reaches *= float(means[-1])
        first = end
    return total


def discounted_sum(per_round: npt.ArrayLike, gamma: float = 0.9995) -> float:
    """Compute Σ_t γ^(t−1)·x_t over rounds t = 1, 2, …: online performance (Wang et al., ICTIR 2021, eq. 17).

    Args:
        per_round: (rounds,) mean of the metric over each round's interactions.
        gamma: Discount γ of a round.

    >>> discounted_sum([1, 2, 3], gamma=0.5)  # 1 + 2/2 + 3/4
    2.75
    """
    x = np.asarray(per_round, dtype=np.float64)
    require(x.ndim == 1, "metric.shape", "per_round must hold one value per round")
    return float(np.sum(gamma ** np.arange(len(x)) * x))


def _labels(labels: npt.ArrayLike, k: int) -> Doubles:
    require_range("k", k, least=1)
    array = np.asarray(labels, dtype=np.float64)
    require(array.ndim == 1, "metric.shape", "labels must be a flat list, one label per document")
    require(bool(np.all(array >= 0)), "metric.label-out-of-range", "labels must be 0 or more, and not NaN")
    return array
