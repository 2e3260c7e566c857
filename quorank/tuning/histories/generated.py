"""Generator of suggestions from simulated browsing histories (Hartmann et al. 2019, §6.1).

A search shows a block of pages, each with the number of its visits and, of the last ten, how long ago and in which way
the page was visited: all inputs of frecency (§4). The generator follows §6.1, which draws frequency, recency and
type independently of each other, and leaves the following open:

- "an exponential distribution with λ = 7": a rate of 7 would leave nearly every page without a visit, so 7 is the
  mean, and a page has ⌈Exp(mean 7)⌉ visits, at least one (7.51 on average).
- recency is "a made-up distribution that was skewed towards more recent visits": `recency` below.
- the share of bookmarked pages comes from "existing statistics" that are not given: `types` below.
- the number of suggestions is not in the text. The published code draws it from N(10, 4²); here it is rounded and
  kept within `fewest` and `most`, since one suggestion alone teaches nothing.
- a person takes the suggestion with the highest true score after adding noise with μ = 0, σ² = 30. That is the
  variance: σ = √30 ≈ 5.5 points. A first visit by a link today is worth 120, so such people rarely err; σ is a
  parameter of `draw_choices`.

Every draw has an address, (seed, search, suggestion, visit), so any range of searches can be generated alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Bytes, Doubles, Int8s, Int32s, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, normal_pair, uniform_pair, uniforms
from quorank.tuning.searches import Items

RECENCY_DAYS = (4.0, 14.0, 31.0, 90.0)  # ends of the buckets of §4; bucket 4 is more than ninety days
BUCKET_LIMITS = np.array([0.0, *RECENCY_DAYS, 365.0])  # limits of the drawn ages of each bucket, days
LAST = 10  # most visits of |T_x|
SIGMA = math.sqrt(30.0)  # σ of the noise on a person's choice
VOCABULARY = 600  # invented words of a population

_CONSONANTS, _VOWELS = "strnlcmpdbgfhvwkzjqx", "eaoiu"
_LOW = 0xFFFFFFFF
_AGES, _WORD, _HABIT = 1, 3, 5  # rounds of the addresses of ages, words and a page's usual draws; 0 are the visits
_PAIRS = LAST + 1  # pairs of uniform draws of a suggestion: one for its visits, one for each of the last ten


class Suggestions(NamedTuple):
    """Suggestions shown to many clients, in columns: one block of items per search."""

    offsets: Integers  # (searches + 1,): items of search q are offsets[q] to offsets[q + 1]
    visits: Int32s  # (items,): |S_x|, visits in all
    sampled: Int8s  # (items,): |T_x|, at most ten
    recency: Int8s  # (items, 10): bucket 0..4 of each sampled visit, −1 without a visit
    type: Int8s  # (items, 10): index into VISIT_TYPES of each sampled visit, −1 without a visit
    chosen: Integers  # (searches,): index of the choice within the block, −1 before it


@dataclass(frozen=True)
class HistorySetting:
    """Parameters of the generator: frequency, recency and type of visits, and the number of suggestions."""

    visits: float = 7.0  # λ, read as the mean of the exponential distribution
    recency: tuple[float, ...] = (0.30, 0.25, 0.20, 0.15, 0.10)  # share of each bucket, newest first
    types: tuple[float, ...] = (0.60, 0.15, 0.15, 0.0, 0.04, 0.04, 0.02)  # share of each of VISIT_TYPES, the rest 0
    habit: float = 0.0  # share of visits of the page's usual type (and recency); 0: independent, as in §6.1
    suggestions: float = 10.0  # mean of their number
    spread: float = 4.0  # standard deviation of their number
    fewest: int = 2
    most: int = 20


def generate_suggestions(
    seed: int, searches: int, first: int = 0, setting: HistorySetting | None = None
) -> Suggestions:
    """Generate the suggestions of searches `first` to `first + searches` under a seed; nothing is chosen yet."""
    setting = setting or HistorySetting()
    key = key_of(seed, Purpose.HISTORY)
    offsets = np.zeros(searches + 1, np.int64)
    _block_sizes(key, first, setting.suggestions, setting.spread, setting.fewest, setting.most, offsets[1:])
    np.cumsum(offsets, out=offsets)
    items = int(offsets[-1])
    visits, sampled = np.empty(items, np.int32), np.empty(items, np.int8)
    recency, type_ = np.full((items, LAST), -1, np.int8), np.full((items, LAST), -1, np.int8)
    made = Suggestions(offsets, visits, sampled, recency, type_, np.full(searches, -1, np.int64))
    _fill(key, first, setting.visits, setting.habit, _limits(setting.recency), _limits(setting.types), made)
    return made


def draw_choices(seed: int, items: Items, scores: Doubles, *, sigma: float = SIGMA, first: int = 0) -> Items:
    """Return the items with simulated choices: in every search the highest true score + N(0, σ²).

    items: of any kind that has `offsets` and `chosen`; scores: (items,), the true score of each; first: the number of
    the first search, as in `generate_suggestions`. Of equal ones the first is chosen.
    """
    chosen = np.empty(len(items.offsets) - 1, np.int64)
    exact = np.ascontiguousarray(scores, dtype=np.float64)
    _choose(key_of(seed, Purpose.CHOICE), first, items.offsets, exact, sigma, chosen)
    made: Items = items._replace(chosen=chosen)
    return made


def idle_days(seed: int, suggestions: Suggestions, *, first: int = 0) -> Doubles:
    """Draw the days since the last visit (pages,) of each generated page; `first` as in `generate_suggestions`."""
    ages = np.full(suggestions.recency.shape, BUCKET_LIMITS[-1], order="F")  # by columns: their minimum is faster
    fill_ages(key_of(seed, Purpose.HISTORY), first, suggestions, ages)
    return np.asarray(ages.min(axis=1))


def recency_bucket(days: npt.ArrayLike) -> Int8s:
    """Return the recency bucket of visits by their age in days (§4): "in the past 4 days" includes the fourth."""
    return np.searchsorted(np.array(RECENCY_DAYS), np.asarray(days), side="left").astype(np.int8)


@lru_cache(maxsize=4)
def vocabulary(seed: int) -> tuple[Bytes, Integers]:
    """Return the letters of a population's invented words, the commonest first, and where each word ends."""
    draws = uniforms(seed, Purpose.HISTORY, VOCABULARY * 12, round_=_WORD).reshape(VOCABULARY, 12)
    words = []
    for row in draws:
        syllables = 2 + int(row[0] * 2.5)
        pairs = row[1 : 1 + 2 * syllables].reshape(-1, 2) ** (1.5, 1.0)  # some consonants are commoner
        words.append("".join(_CONSONANTS[int(c * 20)] + _VOWELS[int(v * 5)] for c, v in pairs))
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    return np.frombuffer("".join(words).encode(), np.uint8), ends


def _limits(shares: tuple[float, ...]) -> Doubles:
    """Return the cumulative shares; the last one that is not 0 is exactly 1 in spite of rounding."""
    limits = np.cumsum(np.array(shares, dtype=np.float64))
    limits[np.flatnonzero(shares)[-1] :] = 1.0
    return limits


@kernel
def visits_of(u: float, mean: float) -> int:
    """Draw ⌈Exp(mean)⌉ by inversion, at least 1."""
    return max(1, math.ceil(-mean * math.log(1.0 - u)))


@kernel
def _block_sizes(key: Uint64s, first: int, mean: float, spread: float, fewest: int, most: int, sizes: Integers) -> None:
    for q in range(len(sizes)):
        search = first + q
        normal, _ = normal_pair(*uniform_pair(key, 0, search & _LOW, search >> 32, 0))
        sizes[q] = int(min(max(np.rint(mean + spread * normal), fewest), most))


@kernel
def _fill(
    key: Uint64s, first: int, mean: float, habit: float, buckets: Doubles, types: Doubles, made: Suggestions
) -> None:
    offsets = made.offsets
    for q in range(len(offsets) - 1):
        search = first + q
        low, high = search & _LOW, search >> 32
        for x in range(offsets[q], offsets[q + 1]):
            block = 1 + (x - offsets[q]) * _PAIRS
            u, _ = uniform_pair(key, block, low, high, 0)
            made.visits[x] = visits_of(u, mean)
            made.sampled[x] = min(made.visits[x], LAST)
            usual, usual_way = uniform_pair(key, x - offsets[q], low, high, _HABIT) if habit > 0.0 else (0.0, 0.0)
            for v in range(made.sampled[x]):
                u, w = uniform_pair(key, block + 1 + v, low, high, 0)
                made.recency[x, v] = np.searchsorted(buckets, _by_habit(u, usual, habit), side="right")
                made.type[x, v] = np.searchsorted(types, _by_habit(w, usual_way, habit), side="right")


@kernel
def fill_ages(key: Uint64s, first: int, suggestions: Suggestions, ages: Any) -> None:
    """Draw the days since each visit, ages (items, 10), uniformly within its bucket; other entries are unchanged."""
    offsets, recency = suggestions.offsets, suggestions.recency
    for q in range(len(offsets) - 1):
        search = first + q
        for x in range(offsets[q], offsets[q + 1]):
            for v in range(suggestions.sampled[x]):
                u, _ = uniform_pair(key, ((x - offsets[q]) << 8) | v, search & _LOW, search >> 32, _AGES)
                low, high = BUCKET_LIMITS[recency[x, v]], BUCKET_LIMITS[recency[x, v] + 1]
                ages[x, v] = low + u * (high - low)


@kernel
def _by_habit(u: float, usual: float, habit: float) -> float:
    """The page's usual draw with probability `habit`, else a fresh one: both from the same u."""
    return usual if u < habit else (u - habit) / (1.0 - habit)


@kernel
def _choose(key: Uint64s, first: int, offsets: Integers, scores: Doubles, sigma: float, chosen: Integers) -> None:
    for q in range(len(offsets) - 1):
        search = first + q
        low, high = search & _LOW, search >> 32
        chosen[q] = -1
        best = -math.inf
        for x in range(offsets[q], offsets[q + 1]):
            noise, _ = normal_pair(*uniform_pair(key, x - offsets[q], low, high, 0))
            score = scores[x] + sigma * noise
            if chosen[q] < 0 or score > best:
                best = score
                chosen[q] = x - offsets[q]
