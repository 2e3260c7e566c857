"""Ranking of the documents in an answer: the K with most occurrences of the asked term (CS-F-LTR algorithm 5).

*Literal*: a document that stands in at least β·z1 of the z1 real cells is a candidate, its estimate the median (Count
Sketch) or the minimum (Count-Min) of the values in the cells where it stands, and nothing is made of those where it does
not. It stands in a cell because its value there is large, so that the estimate of a document that holds the term seldom,
or never, is taken from the very rows in which other terms have driven it up.

*Recommended*: absence says something. A cell that turned away no entry above its floor F holds every document whose value
has a larger size, so an absent one has −F ≤ v ≤ F, and 0 where nothing was ever turned away. Rows say

    s_a = g_a(t)·v_a where the document stands in the cell of row a,   F_a / 2 where it does not,

and a document is worth their lower quartile, the (⌊(z1 − 1)/4⌋ + 1)-th smallest: of four rows or fewer the smallest. With
Count-Min it is always the smallest, since each row is an upper bound. A row in which a document lies on the wrong side
rules it out: what is not the term falls on the right side with chance one half a row, which makes the smallest of signed
rows sharper than that of Count-Min; and of many rows some are spoilt by chance, which the quartile forgives. Of equal
documents those in more cells come first, then those whose values are smaller in sum and so agree better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.kernels.compiled import kernel

_ABSENT = np.int32(-(2**31))
_SUM_BITS, _ROW_BITS = 22, 9


class Cells(NamedTuple):
    """Cell of each row, as an owner sends them: no term and no sign is needed to make them."""

    offsets: Integers  # (z + 1,) row a has entries offsets[a], …, offsets[a + 1] − 1
    documents: Int32s
    values: Int32s
    floors: Int32s  # (z,) of a document that is absent from the row: the largest size that its value may have


def rank_recommended(cells: Cells, signs: Int32s, rows: Integers, k: int, smallest: bool) -> tuple[Int32s, Doubles]:
    """Return the k documents that are worth most and their worth: the smallest row, or the lower quartile of the rows."""
    documents, values = _by_document(*cells, signs, rows)
    keys, doubled = _worth(values, cells.floors[rows], 0 if smallest else (len(rows) - 1) // 4)
    chosen = _largest(keys, documents, k)
    return documents[chosen], doubled[chosen] / 2.0


def rank_literal(
    cells: Cells, signs: Int32s, rows: Integers, k: int, beta: float, smallest: bool
) -> tuple[Int32s, Doubles]:
    """Return the k largest medians (or minima) over the cells where a document stands, if they are enough (algorithm 5)."""
    documents, values = _by_document(*cells, signs, rows)
    estimates = _present_only(values, beta * len(rows), smallest)
    candidates = np.flatnonzero(~np.isnan(estimates))
    documents, estimates = documents[candidates], estimates[candidates]
    chosen = _largest(estimates, documents, k)
    return documents[chosen], estimates[chosen]


def _largest(keys: npt.NDArray[Any], documents: Int32s, k: int) -> Integers:
    """Return the places of the k largest keys, largest first; of equal ones the smaller document number."""
    candidates = np.arange(len(keys))
    if len(keys) > k:
        candidates = np.flatnonzero(keys >= np.partition(keys, len(keys) - k)[len(keys) - k])
    order = np.lexsort((documents[candidates], -keys[candidates]))
    return np.asarray(candidates[order[:k]], dtype=np.int64)


@kernel
def _by_document(
    offsets: Integers, documents: Int32s, values: Int32s, floors: Int32s, signs: Int32s, rows: Integers
) -> tuple[Int32s, Int32s]:
    """Return the documents of some rows, each once, and their (documents, rows) values times the row's sign."""
    total, last = 0, -1
    for row in rows:
        total += offsets[row + 1] - offsets[row]
        for i in range(offsets[row], offsets[row + 1]):
            last = max(last, documents[i])
    place = np.full(last + 1, -1, dtype=np.int32)
    found = np.empty(total, dtype=np.int32)
    out = np.full((total, len(rows)), _ABSENT, dtype=np.int32)
    n = 0
    for r in range(len(rows)):
        row = rows[r]
        for i in range(offsets[row], offsets[row + 1]):
            document = documents[i]
            if place[document] < 0:
                place[document] = n
                found[n] = document
                n += 1
            out[place[document], r] = signs[row] * values[i]
    return found[:n].copy(), out[:n].copy()


@kernel
def _worth(values: Int32s, floors: Int32s, forgiven: int) -> tuple[Integers, Integers]:
    """Return keys that order documents, and twice the smallest s_a but for `forgiven` smaller ones."""
    n, rows = values.shape
    keys, doubled = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    said = np.empty(rows, dtype=np.int64)
    most = (1 << _SUM_BITS) - 1
    for i in range(n):
        present, total = 0, 0
        for r in range(rows):
            if values[i, r] == _ABSENT:
                said[r] = floors[r]
            else:
                said[r] = 2 * int(values[i, r])
                present += 1
                total += abs(int(values[i, r]))
        if forgiven > 0:
            said.sort()
        least = said[forgiven] if forgiven > 0 else said.min()
        doubled[i] = least
        shifted = min(max(least + (1 << 31), 0), (1 << 32) - 1)
        keys[i] = (((shifted << _ROW_BITS) | present) << _SUM_BITS) | (most - min(total, most))
    return keys, doubled


def _present_only(values: Int32s, needed: float, smallest: bool) -> Doubles:
    """Return the median, or minimum, of the values of a document that are there; NaN if fewer are than needed."""
    ordered = np.sort(np.where(values == _ABSENT, np.inf, values), axis=1)
    count = np.maximum(np.isfinite(ordered).sum(axis=1), 1)
    each = np.arange(len(values))
    middle = (ordered[each, (count - 1) // 2] + ordered[each, count // 2]) / 2.0
    return np.where(count >= needed, ordered[:, 0] if smallest else middle, np.nan)
