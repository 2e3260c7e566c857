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

import secrets
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.kernels.compiled import kernel

_ABSENT = np.int32(-(2**31))
_SUM_BITS, _ROW_BITS = 22, 9
_SALT = np.uint64(secrets.randbits(64) | 1)


class Cells(NamedTuple):
    """One cell of each row, as an owner sends them: no term and no sign is needed to make them."""

    offsets: Integers  # (z + 1,) row a has entries offsets[a], …, offsets[a + 1] − 1
    documents: Int32s
    values: Int32s
    floors: Int32s  # (z,) of a document that is absent from the row: the largest size that its value may have


def rank_recommended(cells: Cells, signs: Int32s, rows: Integers, k: int, smallest: bool) -> tuple[Int32s, Doubles]:
    """Return the k documents that are worth most and their worth: the smallest row, or the lower quartile of the rows."""
    documents, values = _by_document(*cells, signs, rows, _SALT)
    keys, doubled = _worth(values, cells.floors[rows], 0 if smallest else (len(rows) - 1) // 4)
    chosen = _largest(keys, documents, k)
    return documents[chosen], doubled[chosen] / 2.0


def rank_literal(
    cells: Cells, signs: Int32s, rows: Integers, k: int, beta: float, smallest: bool
) -> tuple[Int32s, Doubles]:
    """Return the k largest medians (or minima) over the cells where a document stands, if they are enough (algorithm 5)."""
    documents, values = _by_document(*cells, signs, rows, _SALT)
    estimates = _present_only(values, beta * len(rows), smallest)
    candidates = np.flatnonzero(~np.isnan(estimates))
    documents, estimates = documents[candidates], estimates[candidates]
    chosen = _largest(estimates, documents, k)
    return documents[chosen], estimates[chosen]


def checked_cells(cells: Cells, signs: npt.ArrayLike, rows: npt.ArrayLike, k: int) -> tuple[Cells, Int32s, Integers]:
    """Return contiguous cells, signs and rows; what does not fit together is refused before compiled code reads it."""
    offsets = np.ascontiguousarray(cells.offsets, dtype=np.int64)
    documents, values, floors = (np.ascontiguousarray(part, dtype=np.int32) for part in cells[1:])
    z = len(offsets) - 1
    is_ascending = z >= 1 and documents.min(initial=0) >= 0 and offsets[0] == 0 and bool(np.all(np.diff(offsets) >= 0))
    fits = is_ascending and offsets[-1] == len(documents) == len(values) and len(floors) == z
    said = "these cells do not fit together: expected offsets of z rows, as many documents as values, and z floors"
    require(fits, "silo-answer.malformed", said)
    taken = np.ascontiguousarray(rows, dtype=np.int64)
    sides = np.ascontiguousarray(signs, dtype=np.int32)
    differ = taken.ndim == 1 and 1 <= len(taken) <= z and len(np.unique(taken)) == len(taken)
    said = f"expected different rows to rank by, numbered from 0 to {z - 1}, got {taken.tolist()}"
    require(differ and taken.min() >= 0 and taken.max() < z, "sketch.out-of-range", said)
    sound = sides.shape == (z,) and bool(np.all(np.abs(sides) == 1))
    require(sound, "sketch.bad-signs", f"expected a sign, −1 or 1, of each of {z} rows")
    require_range("k", k, least=1)
    return Cells(offsets, documents, values, floors), sides, taken


def _largest(keys: npt.NDArray[Any], documents: Int32s, k: int) -> Integers:
    """Return the places of the k largest keys, largest first; of equal ones the smaller document number."""
    candidates = np.arange(len(keys))
    if len(keys) > k:
        candidates = np.flatnonzero(keys >= np.partition(keys, len(keys) - k)[len(keys) - k])
    order = np.lexsort((documents[candidates], -keys[candidates]))
    return np.asarray(candidates[order[:k]], dtype=np.int64)


@kernel
def _by_document(
    offsets: Integers, documents: Int32s, values: Int32s, floors: Int32s, signs: Int32s, rows: Integers, salt: Any
) -> tuple[Int32s, Int32s]:
    """Return the documents of some rows, each once, and their (documents, rows) values times the row's sign.

    They are told apart by a hash table under an odd `salt` that the sender does not know (multiply-shift of Dietzfelbinger
    et al. 1997): documents chosen to collide would take quadratic time. The result does not depend on it.
    """
    total = 0
    for row in rows:
        total += offsets[row + 1] - offsets[row]
    size, shift = 8, np.uint64(61)
    while size < 2 * total:
        size *= 2
        shift -= np.uint64(1)
    slots = np.full(size, -1, dtype=np.int32)
    found = np.empty(total, dtype=np.int32)
    out = np.full((total, len(rows)), _ABSENT, dtype=np.int32)
    n = 0
    for r in range(len(rows)):
        row = rows[r]
        for i in range(offsets[row], offsets[row + 1]):
            document = documents[i]
            slot = np.int64((np.uint64(document) * salt) >> shift)
            while slots[slot] >= 0 and found[slots[slot]] != document:
                slot = (slot + 1) & (size - 1)
            if slots[slot] < 0:
                slots[slot] = n
                found[n] = document
                n += 1
            out[slots[slot], r] = signs[row] * values[i]
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


@kernel
def _present_only(values: Int32s, needed: float, smallest: bool) -> Doubles:
    """Return the median, or minimum, of the values of a document that are there; NaN if fewer are than needed."""
    n, rows = values.shape
    out = np.full(n, np.nan)
    there = np.empty(rows)
    for i in range(n):
        count = 0
        for r in range(rows):
            if values[i, r] != _ABSENT:
                there[count] = values[i, r]
                count += 1
        if count >= needed and count > 0:
            out[i] = there[:count].min() if smallest else np.median(there[:count])
    return out
