"""Clipping of updates to an L2 norm, so that no client can move a sum by more than it, and their grid of whole numbers.

On the grid an update is a vector of whole numbers of 1/unit, rounded towards zero. Its squared norm is then a whole
number below 2^52, which float64 adds up exactly: the bound on a client's contribution holds to the last bit.
"""

from __future__ import annotations

import math

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.compiled import kernel
from quorank.errors import BadInput

CLIP_BITS, SUM_BITS = 26, 49
"""A clip is below 2^26 units of the grid, and the sum of a planned cohort below 2^49: both sums and squares are exact."""

SLACK = 1.0 + 1e-9
"""A clipped update may exceed the clip by rounding, and by no more than this factor."""


@kernel
def norm(vector: Doubles) -> float:
    """Compute ‖vector‖₂ in a fixed order, so that its bits do not depend on the machine."""
    total = 0.0
    for j in range(len(vector)):
        total += vector[j] * vector[j]
    return math.sqrt(total)


@kernel
def _clip_rows(updates: Doubles, clip: float) -> tuple[int, int]:
    """u ← u·min(1, clip/‖u‖) for every row; (rows that were within, −1 or the first row that is not finite)."""
    within = 0
    for i in range(updates.shape[0]):
        length = norm(updates[i])
        if not length < np.inf:
            return within, i
        if length <= clip:
            within += 1
        else:
            for j in range(updates.shape[1]):
                updates[i, j] *= clip / length
    return within, -1


def clip_updates(updates: Doubles, clip: float, clients: Integers) -> int:
    """Clip updates (clients, parameters) in place and return how many were within the clip; refuse what is not finite."""
    within, bad = _clip_rows(updates, clip)
    if bad >= 0:
        raise not_finite(int(clients[bad]))
    return within


def grid_unit(clip: float, cohort: int) -> float:
    """Return the largest power of two with clip·unit < 2^26 and cohort·clip·unit ≤ 2^49."""
    bits = min(CLIP_BITS, SUM_BITS - (cohort - 1).bit_length())
    return math.ldexp(1.0, bits - math.frexp(clip)[1])


@kernel
def _to_grid(updates: Doubles, unit: float, longest: float) -> None:
    """u ← ⌊|u|·unit⌋ with its sign; where rounding of float64 left a row longer than `longest`, it shrinks a little."""
    for i in range(updates.shape[0]):
        factor, square = unit, np.inf
        while square > longest * longest:
            square = 0.0
            for j in range(updates.shape[1]):
                whole = np.trunc(updates[i, j] * factor)
                square += whole * whole
            if square > longest * longest:
                factor *= 1.0 - 2.0**-30
        for j in range(updates.shape[1]):
            updates[i, j] = np.trunc(updates[i, j] * factor)


def clip_to_grid(updates: Doubles, clip: float, unit: float, clients: Integers) -> int:
    """Clip updates (clients, parameters) and turn them into whole numbers of 1/unit, in place; return how many were within.

    The norm of the whole numbers is at most ⌊clip·unit⌋, exactly.
    """
    within = clip_updates(updates, clip, clients)
    _to_grid(updates, unit, math.floor(clip * unit))
    return within


def check_grid(releases: Doubles, clip: float, unit: float, clients: Integers) -> None:
    """Refuse, on the coordinator, releases that are not whole numbers or have a norm above ⌊clip·unit⌋, exactly."""
    squares = np.einsum("ij,ij->i", releases, releases)
    longest = math.floor(clip * unit)
    short = squares <= longest * longest
    if not short.all():
        at = int(np.flatnonzero(~short)[0])
        if not np.isfinite(releases[at]).all():
            raise not_finite(int(clients[at]))
        length = math.sqrt(squares[at]) / unit
        sentence = f"the update of client {clients[at]} has norm {length:.6g}, longer than the clip {clip:.6g}"
        raise BadInput("update.longer-than-clip", sentence)
    whole = (releases == np.trunc(releases)).all(axis=1)
    if not whole.all():
        at = int(np.flatnonzero(~whole)[0])
        sentence = (
            f"the update of client {clients[at]} is not in whole numbers of 2^{-round(math.log2(unit))}: an older version "
            "sent it; install the same version on both sides"
        )
        raise BadInput("update.not-whole", sentence)


def not_finite(client: int) -> BadInput:
    """Return the refusal of an update that is not finite."""
    advice = 'lower eta, or normalise the features (data.normalize = "query")'
    sentence = f"the update of client {client} holds a number that is not finite: it is refused; {advice}"
    return BadInput("update.not-finite", sentence)


def check_releases(releases: Doubles, clip: float, clients: Integers) -> None:
    """Refuse, on the coordinator, a release (clients, parameters) that is not finite or longer than the clip."""
    lengths = np.sqrt(np.einsum("ij,ij->i", releases, releases))
    if not (lengths <= clip * SLACK).all():
        at = int(np.flatnonzero(~(lengths <= clip * SLACK))[0])
        if not np.isfinite(lengths[at]):
            raise not_finite(int(clients[at]))
        sentence = f"the update of client {clients[at]} has norm {lengths[at]:.6g}, longer than the clip {clip:.6g}"
        raise BadInput("update.longer-than-clip", sentence)
