"""Clipping of updates to an L2 norm, so that no client can move a sum by more than it."""

from __future__ import annotations

import math

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.compiled import kernel
from quorank.errors import BadInput

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
