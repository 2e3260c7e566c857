"""Two samples compared by rank: U, how large the difference is, and by how much one is shifted.

Mann and Whitney (Ann. Math. Stat. 1947) count the pairs in which a value of the first sample is above one of the
second, ties as half: U. Dividing by all pairs gives the common-language effect size, P(a > b) + P(a = b)/2 (McGraw and
Wong 1992; Vargha and Delaney 2000); twice that minus one is the rank-biserial correlation (Wendt 1972). The shift is the
median of all differences (Hodges and Lehmann 1963), and its interval lies between two of them (Lehmann 1975). Pairs
are counted, never listed: a study has thousands of millions.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles
from quorank.compiled import kernel
from quorank.errors import require


class Shift(NamedTuple):
    """The median of all differences a − b, and its interval."""

    estimate: float
    low: float
    high: float


def common_language(u: float, n_a: int, n_b: int) -> float:
    """P(a > b) + P(a = b)/2 = U / (n_a · n_b)."""
    return u / (n_a * n_b)


def rank_biserial(u: float, n_a: int, n_b: int) -> float:
    """r = 2U / (n_a · n_b) − 1: from −1, where every a is below every b, to 1."""
    return 2.0 * u / (n_a * n_b) - 1.0


def hodges_lehmann(a: npt.ArrayLike, b: npt.ArrayLike, confidence: float = 0.95) -> Shift:
    """The shift of a against b: the median of all a_i − b_j, with the interval that inverts the test.

    The interval's ends are the differences number C and n_a·n_b + 1 − C in order, with
    C = n_a·n_b/2 − z·√(n_a·n_b·(n_a + n_b + 1)/12), rounded down.
    """
    x, y = _sorted(a), _sorted(b)
    require(0 < confidence < 1, f"confidence must lie between 0 and 1, got {confidence}")
    from scipy.special import ndtri

    pairs = len(x) * len(y)
    z = float(ndtri(0.5 + confidence / 2))
    c = max(1, math.floor(pairs / 2 - z * math.sqrt(pairs * (len(x) + len(y) + 1) / 12.0)))
    middle = (difference(x, y, (pairs + 1) // 2) + difference(x, y, pairs // 2 + 1)) / 2
    return Shift(middle, difference(x, y, c), difference(x, y, pairs + 1 - c))


def difference(x: Doubles, y: Doubles, k: int) -> float:
    """The k-th smallest of all x_i − y_j (k from 1), of two sorted samples, by halving and counting."""
    low, high = x[0] - y[-1], x[-1] - y[0]
    while low < high:  # the least value with at least k differences at or below it
        middle = low + (high - low) / 2
        if middle >= high:
            middle = low
        count, largest, next_one = _at_most(x, y, middle)
        if count >= k:
            high = largest
        else:
            low = next_one
    return float(low)


@kernel
def _at_most(x: Doubles, y: Doubles, limit: float) -> Any:
    """How many x_i − y_j ≤ limit, the largest of them, and the smallest above."""
    count, j = 0, len(y)
    largest, next_one = -np.inf, np.inf
    for i in range(len(x)):
        while j > 0 and x[i] - y[j - 1] <= limit:
            j -= 1
        # y[j:] are at or within the limit for x[i]; a larger x needs a larger y
        while j < len(y) and x[i] - y[j] > limit:
            j += 1
        count += len(y) - j
        if j < len(y):
            largest = max(largest, x[i] - y[j])
        if j > 0:
            next_one = min(next_one, x[i] - y[j - 1])
    return count, largest, next_one


@kernel
def u_and_ties(x: Doubles, y: Doubles) -> Any:
    """U of the first of two sorted samples, and Σ (t³ − t) over groups of t equal values."""
    u, ties = 0.0, 0.0
    i = j = 0
    while i < len(x) or j < len(y):
        value = x[i] if j == len(y) or (i < len(x) and x[i] <= y[j]) else y[j]
        mine = theirs = 0
        while i < len(x) and x[i] == value:
            mine += 1
            i += 1
        while j < len(y) and y[j] == value:
            theirs += 1
            j += 1
        u += mine * (j - theirs + 0.5 * theirs)
        t = float(mine + theirs)
        ties += t * t * t - t
    return u, ties


@kernel
def z_score(u: float, ties: float, n: int, m: int) -> float:
    """(|U − nm/2| − 1/2) / √(nm/12 · (N + 1 − Σ(t³ − t)/(N(N − 1)))): normal for large samples, 0 without spread."""
    total = float(n + m)
    variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)))
    if variance <= 0.0:
        return 0.0
    return (abs(u - n * m / 2.0) - 0.5) / math.sqrt(variance)


def _sorted(values: npt.ArrayLike) -> Doubles:
    array = np.sort(np.asarray(values, dtype=np.float64))
    require(array.ndim == 1 and len(array) > 0, "a comparison needs at least one value on each side")
    require(bool(np.isfinite(array).all()), "a comparison needs finite values")
    return array
