"""Frecency by exponential decay, as Firefox computes it since version 147.

Mozilla's description (Firefox Source Docs, "Ranking", browser/components/urlbar/docs/ranking.rst): each of the last ten
visits has a weight by its kind, high for typed visits and bookmarked pages, medium for links and downloads, low for
redirects, frames and reloads;

    score(x) = |S_x| / |T_x| · Σ_{v ∈ T_x} weight(v) · e^(−λ(t_ref − t_v)),    λ = ln 2 / 30 days

with t_ref the last visit, and the score decays daily by the same λ. Both decays together are e^(−λ(now − t_v)), so
there is one half-life: here a score is as of now. The browser stores t_ref + ln(score)/λ, which orders pages as the
score does. The weights (`places.frecency.pages.*`) are 100, 50 and 20. A fourth, 200 for visits with many keystrokes
or a long time on the page, needs what no history records, and is left out. A bookmarked page without a visit has the
high weight, as if bookmarked today.

The old formula has 22 constants, this one four. Bounds and steps are not Mozilla's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quorank.data.logs.browser_history import VISIT_TYPES
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel
from quorank.tuning.heuristics.firefox import PLACES, AgedSuggestions
from quorank.tuning.heuristics.firefox import WEIGHTS as FIREFOX_WEIGHTS
from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight, compiled_score

KINDS = 3  # high, medium, low
HIGH, MEDIUM, LOW = range(KINDS)
HALF_LIFE = KINDS  # place of the half-life among the weights
_KIND_NAMES = {"typed": HIGH, "bookmark": HIGH, "link": MEDIUM, "download": MEDIUM}  # all others are low
_KIND = np.full(FIREFOX_WEIGHTS, LOW, np.int64)
for _name, _kind in _KIND_NAMES.items():
    _KIND[PLACES[VISIT_TYPES.index(_name)]] = _kind


@kernel
def _sums(items: AgedSuggestions, x: int, half_life: float, out: Doubles) -> None:
    """out (3,): Σ 2^(−age/half-life) of the visits of each kind; a page without visits counts as bookmarked today."""
    out[:] = 0.0
    if items.sampled[x] == 0:
        out[HIGH] = 1.0 if items.bookmarked[x] else 0.0
    for v in range(items.sampled[x]):
        kind = _KIND[items.bonus[x, v]]
        if items.bookmarked[x] and kind == MEDIUM:
            kind = HIGH
        out[kind] += 2.0 ** (-items.age[x, v] / half_life)


@kernel
def _scale(items: AgedSuggestions, x: int) -> Any:
    return max(items.visits[x], 1) / max(items.sampled[x], 1)


@kernel
def _scores(weights: Doubles, items: AgedSuggestions, out: Doubles) -> None:
    sums = np.empty(KINDS)
    for x in range(len(items.visits)):
        for k in range(len(weights)):
            if k == 0 or weights[k, HALF_LIFE] != weights[k - 1, HALF_LIFE]:
                _sums(items, x, weights[k, HALF_LIFE], sums)
            total = 0.0
            for b in range(KINDS):
                total += weights[k, b] * sums[b]
            out[x, k] = total * _scale(items, x)


@kernel
def _probe(weights: Doubles, below: Doubles, above: Doubles, items: AgedSuggestions, out: Doubles) -> None:
    """out (items, 2·4 + 1): the score is linear in each weight but the half-life, which needs its sums again."""
    here, other, count = np.empty(KINDS), np.empty(KINDS), len(weights)
    for x in range(len(items.visits)):
        scale, total = _scale(items, x), 0.0
        _sums(items, x, weights[HALF_LIFE], here)
        for b in range(KINDS):
            total += weights[b] * here[b]
        for b in range(KINDS):
            out[x, b] = (total + (above[b] - weights[b]) * here[b]) * scale
            out[x, count + b] = (total + (below[b] - weights[b]) * here[b]) * scale
        out[x, 2 * count] = total * scale
        for place, half_life in ((HALF_LIFE, above[HALF_LIFE]), (count + HALF_LIFE, below[HALF_LIFE])):
            _sums(items, x, half_life, other)
            moved = 0.0
            for b in range(KINDS):
                moved += weights[b] * other[b]
            out[x, place] = moved * scale


DECAY_FRECENCY = Heuristic(
    "decay",
    (
        Weight("high", 100.0, 0.0, 400.0, 5.0, share=0.1),
        Weight("medium", 50.0, 0.0, 400.0, 5.0, share=0.1),
        Weight("low", 20.0, 0.0, 400.0, 5.0, share=0.1),
        Weight("half-life", 30.0, 1.0, 365.0, 1.0, reach=0.2, share=0.1),
    ),
    (Order("high", "medium"), Order("medium", "low")),
    *compiled_score(_scores, _probe),
)
