"""Frecency: three formulas by which Firefox ordered suggestions from the browsing history.

`FRECENCY`, Hartmann et al. 2019, §4, with five weights for the age of a visit and four for its type:

    frecency(x) = |S_x| / |T_x| · Σ_{v ∈ T_x} recency(v) · type(v)

The score is linear in each single weight, so a weight moved by ε moves the score by ε times a slope, and all 2·9 + 1
weight vectors of the finite differences cost one pass over the visits. The paper gives no bounds and steps but w ≥ 0 and
the order of the recency weights (§5.6); here a step is a tenth of the largest shipped weight of its kind.

`FIREFOX`, the 22 preferences of `places.frecency.*` from which the study's public server code starts: four bucket
cut-offs in days (4, 14, 31, 90), five bucket weights (100, 70, 50, 30, 10) and thirteen bonuses in per cent. A visited
page has

    |S_x| / |T_x| · Σ_{v ∈ T_x} bucket(age of v) · (bonus(v) + bookmark bonus if the page is bookmarked) / 100

and a page that was never visited the newest bucket's weight times its bonus for unvisited pages. The browser rounds up
on the way; here nothing is rounded, so that differences are exact. Moving a cut-off moves visits between buckets: the
score is a staircase in it, and its difference is taken over a whole step in each direction: half a day, or 15 % of a
cut-off if that is more. (The study's was one day.) Steps in shares of the value are ours: from 200 days to 4 it
takes 24 of them, where steps of a day took 196. The study's server differs from §5.6: it kept the four cut-offs in order,
not the bucket weights, and when a weight fell below 0 it raised all 22 by the same amount.

`DECAY_FRECENCY`, since version 147 (Firefox Source Docs, "Ranking", browser/components/urlbar/docs/ranking.rst): each of
the last ten visits has a weight by its kind, high for typed visits and bookmarked pages, medium for links and downloads,
low for redirects, frames and reloads;

    score(x) = |S_x| / |T_x| · Σ_{v ∈ T_x} weight(v) · e^(−λ(t_ref − t_v)),    λ = ln 2 / 30 days

with t_ref the last visit, and the score decays daily by the same λ. Both decays together are e^(−λ(now − t_v)), so
there is one half-life: here a score is as of now. The browser stores t_ref + ln(score)/λ, which orders pages as the
score does. The weights (`places.frecency.pages.*`) are 100, 50 and 20. A fourth, 200 for visits with many keystrokes
or a long time on the page, needs what no history records, and is left out. A bookmarked page without a visit has the
high weight, as if bookmarked today. The bounds and steps of its four constants are not Mozilla's.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from quorank.data.logs.browser_history import VISIT_TYPES
from quorank.kernels.arrays import Booleans, Doubles, Floats, Int8s, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of
from quorank.tuning.heuristics.heuristic import Heuristic, Order, Weight, compiled_score, fill_linear
from quorank.tuning.histories.generated import RECENCY_DAYS, Suggestions, fill_ages

BUCKETS = 5  # of the ages of visits
TYPES = 4  # visit types with a separate weight in FRECENCY: link, typed, bookmark, and all others
CUTS = 4  # cut-offs between the buckets in FIREFOX


@kernel
def _frecency_probe(weights: Doubles, below: Doubles, above: Doubles, items: Suggestions, out: Doubles) -> None:
    """out (items, 2·9 + 1): frecency of every item with each weight moved up, moved down, and unchanged."""
    slope = np.empty(BUCKETS + TYPES)
    for x in range(len(items.visits)):
        slope[:] = 0.0
        total = 0.0
        scale = items.visits[x] / max(items.sampled[x], 1)
        for v in range(items.sampled[x]):
            b = items.recency[x, v]
            t = BUCKETS + min(items.type[x, v], TYPES - 1)
            total += weights[b] * weights[t]
            slope[b] += weights[t]
            slope[t] += weights[b]
        fill_linear(weights, below, above, total, slope, scale, out[x])


_RECENCY_WEIGHTS = {"4-days": 100.0, "14-days": 70.0, "31-days": 50.0, "90-days": 30.0, "older": 10.0}
_TYPE_WEIGHTS = {"link": 1.2, "typed": 2.0, "bookmark": 1.4, "other": 0.0}
FRECENCY = Heuristic(
    "frecency",
    (
        *(Weight(f"recency.{age}", shipped, 0.0, 200.0, 10.0) for age, shipped in _RECENCY_WEIGHTS.items()),
        *(Weight(f"type.{kind}", shipped, 0.0, 4.0, 0.2) for kind, shipped in _TYPE_WEIGHTS.items()),
    ),
    tuple(Order(f"recency.{newer}", f"recency.{older}") for newer, older in pairwise(_RECENCY_WEIGHTS)),
    *compiled_score(_frecency_probe),
)

_CUT_DAYS = dict(zip(("cut.first", "cut.second", "cut.third", "cut.fourth"), RECENCY_DAYS, strict=True))
_BUCKET_POINTS = {
    "bucket.first": 100.0, "bucket.second": 70.0, "bucket.third": 50.0, "bucket.fourth": 30.0, "bucket.default": 10.0,
}  # fmt: skip
_BONUSES = {
    "embed": 0.0, "framed-link": 0.0, "link": 100.0, "typed": 2000.0, "bookmark": 75.0, "download": 0.0,
    "redirect-permanent": 0.0, "redirect-temporary": 0.0, "redirect-source": 25.0, "default": 0.0,
    "unvisited-bookmark": 140.0, "unvisited-typed": 200.0, "reload": 0.0,
}  # fmt: skip
_PLACE = {name: CUTS + BUCKETS + k for k, name in enumerate(_BONUSES)}
BOOKMARK = _PLACE["bookmark"]
UNVISITED_BOOKMARK = _PLACE["unvisited-bookmark"]
UNVISITED_TYPED = _PLACE["unvisited-typed"]
WEIGHTS = CUTS + BUCKETS + len(_BONUSES)
PLACES = np.array([_PLACE[kind] for kind in VISIT_TYPES], np.int64)  # of each visit type's bonus in the 22 weights


class AgedSuggestions(NamedTuple):
    """Suggestions with the age of each visit instead of its recency bucket."""

    offsets: Integers
    visits: Int32s
    sampled: Int8s
    age: Floats  # (items, 10): days
    bonus: Int8s  # (items, 10): which of the 22 weights is the bonus of the visit
    bookmarked: Booleans
    chosen: Integers


def with_ages(seed: int, suggestions: Suggestions, *, first: int = 0) -> AgedSuggestions:
    """Return suggestions with ages drawn uniformly within their buckets; a page with a bookmark visit is bookmarked."""
    age = np.zeros(suggestions.recency.shape, np.float32)
    fill_ages(key_of(seed, Purpose.HISTORY), first, suggestions, age)
    marked = np.asarray((suggestions.type == VISIT_TYPES.index("bookmark")).any(axis=1), dtype=np.bool_)
    bonus = PLACES[np.maximum(suggestions.type, 0)].astype(np.int8)
    offsets, visits, sampled, _, _, chosen = suggestions
    return AgedSuggestions(offsets, visits, sampled, age, bonus, marked, chosen)


@kernel
def _bucket(age: float, weights: Doubles) -> int:
    """Return the weight of the bucket of a visit: the first with a cut-off that is not exceeded."""
    b = 0
    while b < CUTS and age > weights[b]:
        b += 1
    return CUTS + b


@kernel
def _moved(weights: Doubles, k: int, to: float, age: float) -> Any:
    """Return the weight of the bucket of a visit with cut-off k moved to `to`."""
    before = weights[k]
    weights[k] = to
    moved = weights[_bucket(age, weights)]
    weights[k] = before
    return moved


@kernel
def _firefox_probe(weights: Doubles, below: Doubles, above: Doubles, items: AgedSuggestions, out: Doubles) -> None:
    """out (items, 2·22 + 1): one pass over the visits gives the slope in each weight.

    The score is a staircase in a cut-off: moving it changes the bucket of the visits between its two places. A page
    without visits counts as visited today.
    """
    visits, sampled, bonus, bookmarked = items.visits, items.sampled, items.bonus, items.bookmarked
    up, down, slope = np.empty(CUTS), np.empty(CUTS), np.empty(WEIGHTS)  # points that a moved cut-off adds; slopes
    for x in range(len(visits)):
        up[:], down[:], slope[:] = 0.0, 0.0, 0.0
        total = 0.0
        if sampled[x] == 0:
            unvisited = UNVISITED_BOOKMARK if bookmarked[x] else UNVISITED_TYPED
            slope[CUTS], slope[unvisited] = weights[unvisited], weights[CUTS]
            total = weights[CUTS] * weights[unvisited]
        extra = weights[BOOKMARK] if bookmarked[x] else 0.0
        for v in range(sampled[x]):
            days = items.age[x, v]
            b = _bucket(days, weights)
            t = bonus[x, v]
            value = weights[t] + extra
            total += weights[b] * value
            slope[b] += value
            slope[t] += weights[b]
            if bookmarked[x]:
                slope[BOOKMARK] += weights[b]
            for k in range(CUTS):
                if below[k] < days <= above[k]:
                    up[k] += (_moved(weights, k, above[k], days) - weights[b]) * value
                    down[k] += (_moved(weights, k, below[k], days) - weights[b]) * value
        scale = 0.01 * max(visits[x], 1) / max(sampled[x], 1)
        fill_linear(weights, below, above, total, slope, scale, out[x])
        for k in range(CUTS):
            out[x, k] = (total + up[k]) * scale
            out[x, WEIGHTS + k] = (total + down[k]) * scale


FIREFOX = Heuristic(
    "firefox",
    (
        *(Weight(name, days, 1.0, 365.0, 0.5, reach=0.5, share=0.15) for name, days in _CUT_DAYS.items()),
        *(Weight(name, points, 0.0, 200.0, 5.0, share=0.1) for name, points in _BUCKET_POINTS.items()),
        *(
            Weight(f"bonus.{name}", shipped, 0.0, max(400.0, 2.0 * shipped), max(5.0, 0.05 * shipped), share=0.1)
            for name, shipped in _BONUSES.items()
        ),
    ),
    (
        *(Order(later, sooner, by=1.0) for sooner, later in pairwise(_CUT_DAYS)),
        *(Order(newer, older) for newer, older in pairwise(_BUCKET_POINTS)),
    ),
    *compiled_score(_firefox_probe),
)


KINDS = 3  # high, medium, low
HIGH, MEDIUM, LOW = range(KINDS)
HALF_LIFE = KINDS  # place of the half-life among the weights
_KIND_NAMES = {"typed": HIGH, "bookmark": HIGH, "link": MEDIUM, "download": MEDIUM}  # all others are low
_KIND = np.full(WEIGHTS, LOW, np.int64)
for _name, _kind in _KIND_NAMES.items():
    _KIND[PLACES[VISIT_TYPES.index(_name)]] = _kind


@kernel
def _decay_total(weights: Doubles, half_life: float, items: AgedSuggestions, x: int, sums: Doubles) -> Any:
    """Return Σ weight · sum of one page; sums (3,) are set to Σ 2^(−age/half-life) of its visits of each kind.

    A page without visits counts as bookmarked today.
    """
    sums[:KINDS] = 0.0
    if items.sampled[x] == 0:
        sums[HIGH] = 1.0 if items.bookmarked[x] else 0.0
    for v in range(items.sampled[x]):
        kind = _KIND[items.bonus[x, v]]
        if items.bookmarked[x] and kind == MEDIUM:
            kind = HIGH
        sums[kind] += 2.0 ** (-items.age[x, v] / half_life)
    total = 0.0
    for b in range(KINDS):
        total += weights[b] * sums[b]
    return total


@kernel
def _decay_probe(weights: Doubles, below: Doubles, above: Doubles, items: AgedSuggestions, out: Doubles) -> None:
    """out (items, 2·4 + 1): the score is linear in each weight but the half-life, which needs its sums again."""
    sums, count = np.zeros(KINDS + 1), len(weights)
    for x in range(len(items.visits)):
        scale = max(items.visits[x], 1) / max(items.sampled[x], 1)
        total = _decay_total(weights, weights[HALF_LIFE], items, x, sums)
        fill_linear(weights, below, above, total, sums, scale, out[x])
        out[x, HALF_LIFE] = _decay_total(weights, above[HALF_LIFE], items, x, sums) * scale
        out[x, count + HALF_LIFE] = _decay_total(weights, below[HALF_LIFE], items, x, sums) * scale


DECAY_FRECENCY = Heuristic(
    "decay",
    (
        Weight("high", 100.0, 0.0, 400.0, 5.0, share=0.1),
        Weight("medium", 50.0, 0.0, 400.0, 5.0, share=0.1),
        Weight("low", 20.0, 0.0, 400.0, 5.0, share=0.1),
        Weight("half-life", 30.0, 1.0, 365.0, 1.0, reach=0.2, share=0.1),
    ),
    (Order("high", "medium"), Order("medium", "low")),
    *compiled_score(_decay_probe),
)
