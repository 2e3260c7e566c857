"""The pointwise SVM loss and the rank accuracy (Hartmann et al. 2019, §5.2 and their published simulation).

Rank accuracy is the share of searches whose chosen item stands first. The published simulation counted a search as
right when the item with the highest score had the highest true score, so that equal items did not count as errors.
Choices here are noisy, so that items are equal by their scores: a chosen item that shares the first place with others
counts as 1/(how many share it), what a fair coin among them would give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.compiled import kernel
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.searches import check_items, check_scores, count, parts

BLOCK = 256  # searches whose scores are held at once


@kernel
def hinge_losses(scores: Doubles, offsets: Integers, chosen: Integers, margin: float, out: Doubles) -> None:
    """E = Σ_{j ≠ i} max(0, f(x_j) + Δ − f(x_i)) of every search, for each column of `scores` (items, m)."""
    m = scores.shape[1]
    for s in range(len(chosen)):
        i = offsets[s] + chosen[s]
        for k in range(m):
            out[s, k] = 0.0
        for j in range(offsets[s], offsets[s + 1]):
            if j == i:
                continue
            for k in range(m):
                out[s, k] += max(0.0, scores[j, k] + margin - scores[i, k])


@kernel
def firsts(scores: Doubles, offsets: Integers, chosen: Integers) -> Doubles:
    """For each search 1/(items in first place) if the chosen one is among them, else 0."""
    out = np.zeros(len(chosen))
    for s in range(len(chosen)):
        mine = scores[offsets[s] + chosen[s]]
        better = 0
        equal = 0
        for j in range(offsets[s], offsets[s + 1]):
            if scores[j] > mine:
                better += 1
            elif scores[j] == mine:
                equal += 1
        if better == 0:
            out[s] = 1.0 / equal
    return out


@kernel
def relative_losses(
    scores: Doubles, offsets: Integers, chosen: Integers, margin: float, out: Doubles
) -> None:
    """E = Σ_{j ≠ i} max(0, (f(x_j) − f(x_i))/s + δ), s the standard deviation of the scores of the search.

    Where all scores are equal, s is 0 and every other item costs δ.
    """
    m = scores.shape[1]
    mean, spread = np.empty(m), np.empty(m)
    for s in range(len(chosen)):
        first, last = offsets[s], offsets[s + 1]
        i = first + chosen[s]
        mean[:], spread[:] = 0.0, 0.0
        for j in range(first, last):
            for k in range(m):
                mean[k] += scores[j, k] - scores[i, k]
        for j in range(first, last):
            for k in range(m):
                spread[k] += (scores[j, k] - scores[i, k] - mean[k] / (last - first)) ** 2
        for k in range(m):
            spread[k] = 1.0 / np.sqrt(spread[k] / (last - first)) if spread[k] > 0.0 else 0.0
            out[s, k] = 0.0
        for j in range(first, last):
            if j == i:
                continue
            for k in range(m):
                out[s, k] += max(0.0, (scores[j, k] - scores[i, k]) * spread[k] + margin)


def losses(scores: Doubles, items: Any, margin: float, relative: bool = False) -> Doubles:
    """The loss (searches, m) of every search under the scores (m, items) of m weight vectors."""
    by_item = np.ascontiguousarray(scores.T)
    out = np.empty((count(items), by_item.shape[1]))
    (relative_losses if relative else hinge_losses)(by_item, items.offsets, items.chosen, margin, out)
    return out


def mean_loss_and_accuracy(
    heuristic: Heuristic, weights: Doubles, items: Any, margin: float, relative: bool = False
) -> tuple[float, float]:
    """The mean loss and the rank accuracy of one weight vector over all searches."""
    check_items(items)
    loss = right = 0.0
    row = weights[None, :]
    for block in parts(items, 16 * BLOCK):
        scores = heuristic.score(row, block)
        check_scores(scores, 1, block)
        loss += float(losses(scores, block, margin, relative).sum())
        right += float(firsts(np.ascontiguousarray(scores[0]), block.offsets, block.chosen).sum())
    return loss / count(items), right / count(items)


def rank_accuracy(heuristic: Heuristic, weights: Doubles, items: Any) -> float:
    """The share of searches whose chosen item stands first."""
    return mean_loss_and_accuracy(heuristic, weights, items, 0.0)[1]
