"""Pointwise SVM loss, its gradient by finite differences, and rank accuracy (Hartmann et al. 2019, §5.2 and §5.4).

A client computes one gradient per search: each weight is moved by ε in both directions while the others stay, and
g'(x) ≈ (g(x + ε) − g(x − ε)) / 2ε. The score is evaluated at all 2·d + 1 weight vectors in one pass, by the heuristic's
`probe` if it has one, else by its `score`. No place leaves the bounds of a weight: the difference at a bound is
one-sided, over the actual distance. Searches are batched for simulations of many clients.

Rank accuracy is the share of searches whose chosen item stands first. The published simulation counted a search as
correct when the item with the highest score had the highest true score, so that equal items were no errors. Choices
here are noisy, so ties are by score: a chosen item that shares the first place with others counts as 1/(their number),
the expectation of a fair draw among them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from quorank.errors import BadInput, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.searches import check_items, check_scores, count_searches, search_blocks

BLOCK = 256  # searches whose scores are held at once


@kernel
def list_losses(
    scores: Doubles, offsets: Integers, chosen: Integers, margin: float, relative: bool, out: Doubles
) -> None:
    """E = Σ_{j ≠ i} max(0, (f(x_j) − f(x_i))/s + Δ) of every search, for each column of `scores` (items, m).

    s is 1, or with `relative` the standard deviation of the scores of the search. If they are all equal, every other
    item costs Δ.
    """
    m = scores.shape[1]
    mean, spread = np.empty(m), np.empty(m)
    for s in range(len(chosen)):
        first, last = offsets[s], offsets[s + 1]
        i = first + chosen[s]
        mean[:], spread[:], out[s] = 0.0, 0.0, 0.0
        for j in range(first, last):
            for k in range(m):
                mean[k] += scores[j, k] - scores[i, k]
        for j in range(first, last):
            for k in range(m):
                spread[k] += (scores[j, k] - scores[i, k] - mean[k] / (last - first)) ** 2
        for k in range(m):
            inverse = 1.0 / np.sqrt(spread[k] / (last - first)) if spread[k] > 0.0 else 0.0
            spread[k] = inverse if relative else 1.0
        for j in range(first, last):
            if j == i:
                continue
            for k in range(m):
                out[s, k] += max(0.0, (scores[j, k] - scores[i, k]) * spread[k] + margin)


def firsts(scores: Doubles, offsets: Integers, chosen: Integers) -> Doubles:
    """Compute 1/(items in first place) if the chosen one is among them, else 0, for each search (…, searches).

    scores: (…, items).
    """
    begins = offsets[:-1]
    first = scores == np.repeat(np.maximum.reduceat(scores, begins, axis=-1), np.diff(offsets), axis=-1)
    shared = np.add.reduceat(first, begins, axis=-1, dtype=np.int64)
    return np.asarray(first[..., begins + chosen] / shared, dtype=np.float64)


def losses(scores: Doubles, items: Any, margin: float, relative: bool = False) -> Doubles:
    """Compute the loss (searches, m) of every search from the scores (m, items) of m weight vectors."""
    by_item = np.ascontiguousarray(scores.T)
    out = np.empty((count_searches(items), by_item.shape[1]))
    list_losses(by_item, items.offsets, items.chosen, margin, relative, out)
    return out


def mean_loss_and_accuracy(
    heuristic: Heuristic, weights: Doubles, items: Any, margin: float, relative: bool = False
) -> tuple[float, float]:
    """Compute the mean loss and the rank accuracy of one weight vector over all searches."""
    check_items(items)
    loss = right = 0.0
    for block in search_blocks(items, 16 * BLOCK):
        scores = heuristic.score(weights[None, :], block)
        check_scores(scores, 1, block)
        loss += float(losses(scores, block, margin, relative).sum())
        right += float(firsts(scores[0], block.offsets, block.chosen).sum())
    return loss / count_searches(items), right / count_searches(items)


def first_places(heuristic: Heuristic, weights: Doubles, items: Any) -> Doubles:
    """Compute the share of the first place that each chosen item has (searches, m) under each of m weight vectors."""
    found = []
    for block in search_blocks(items, 16 * BLOCK):
        scores = heuristic.score(weights, block)
        check_scores(scores, len(weights), block)
        found.append(np.ascontiguousarray(firsts(scores, block.offsets, block.chosen).T))
    return np.concatenate(found)


def gradients(
    heuristic: Heuristic, weights: Doubles, items: Any, margin: float, relative: bool = False
) -> tuple[Doubles, Doubles]:
    """Compute ∂E/∂w of every search (searches, weights), and its loss E (searches,).

    Where neither w − ε nor w + ε has a lower loss than w, the slope is 0: at such a kink 0 is a subgradient, while the
    central difference points to the side on which the loss rises more slowly and would move an optimal weight.
    """
    require_range("margin", margin, least=0.0)
    check_items(items)
    below, above = ends(weights, heuristic.reach(weights), heuristic.lower, heuristic.upper)
    probe, d = heuristic.probe, weights.size
    score = partial(probe, weights, below, above) if probe else partial(heuristic.score, places(weights, below, above))
    slopes, loss = [np.empty((0, d))], [np.empty(0)]
    for block in search_blocks(items, BLOCK):
        scores = score(block)
        check_scores(scores, 2 * d + 1, block)
        each = losses(scores, block, margin, relative)
        here = each[:, -1]
        is_minimum = (each[:, :d] >= here[:, None]) & (each[:, d : 2 * d] >= here[:, None])
        slopes.append(np.where(is_minimum, 0.0, differences(each, below, above)))
        loss.append(here)
    return np.concatenate(slopes), np.concatenate(loss)


def ends(theta: Doubles, reach: Doubles, lower: Doubles, upper: Doubles) -> tuple[Doubles, Doubles]:
    """Return θ − ε and θ + ε of every parameter, kept within its bounds."""
    if theta.ndim != 1 or reach.shape != theta.shape or not np.all(reach > 0.0):
        wrong = f"finite differences need one distance above 0 for each of the {theta.size} parameters, got {reach}"
        raise BadInput("finite-differences.bad-distance", wrong)
    return np.maximum(theta - reach, lower), np.minimum(theta + reach, upper)


def places(theta: Doubles, below: Doubles, above: Doubles) -> Doubles:
    """Return the (2d + 1, d) places of evaluation: row k has θ_k + ε, row d + k has θ_k − ε, the last row is θ itself."""
    d = theta.size
    rows, at = np.tile(theta, (2 * d + 1, 1)), np.arange(d)
    rows[at, at], rows[d + at, at] = above, below
    return rows


def differences(losses: Doubles, below: Doubles, above: Doubles) -> Doubles:
    """(g(x + ε) − g(x − ε)) / 2ε from the losses (n, 2d + 1) at the places above: the gradients (n, d).

    A parameter whose two bounds coincide cannot be moved; its slope is 0.
    """
    d = below.size
    distance = above - below
    slope = np.zeros((len(losses), d))
    np.divide(losses[:, :d] - losses[:, d : 2 * d], distance, out=slope, where=distance > 0.0)
    return slope
