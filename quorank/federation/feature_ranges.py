"""Constants of a fixed normalisation from one private sum: the middle range of each feature within clients' lists.

Before the first round each client reports, per feature, the decades of 10^−6 … 10^9 of the ranges (highest − lowest) in its
lists, as shares over CELLS cells. Lists in which a feature does not vary are not counted. Divided by √n these n·CELLS
numbers have a norm of at most 1, so their sum over the clients is one Gaussian release of clip 1, accounted like a round of
updates. Cells below 4σ of the noise are ignored. The median of the others, interpolated within its decade, becomes r, and
x' = x / r: a linear ranker does not depend on the offset. A feature without a cell above the noise becomes 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quorank.errors import BadInput
from quorank.federation.rounds import State, private_sum
from quorank.federation.unlearning.methods import fresh_seed
from quorank.kernels.arrays import Doubles, Floats, Int8s, Integers
from quorank.parts import to_table
from quorank.privacy import ClippedGaussian, Mechanism, Setting
from quorank.privacy.ledger import release_entries

FIRST, LAST = -6, 9
CELLS = LAST - FIRST
EDGES = 10.0 ** np.arange(FIRST, LAST + 1)
STANDS_OUT = 4.0  # threshold of a cell, in standard deviations of the noise


def range_cells(features: Floats, offsets: Integers) -> Int8s:
    """Return (queries, n) decades of each feature's range within each list; −1 for a constant feature."""
    out = np.full((len(offsets) - 1, features.shape[1]), -1, dtype=np.int8)
    for query in range(len(out)):
        rows = features[offsets[query] : offsets[query + 1]].astype(np.float64)
        if len(rows):
            ranges = rows.max(axis=0) - rows.min(axis=0)
            cells = np.clip(np.searchsorted(EDGES, ranges, side="right") - 1, 0, CELLS - 1)
            out[query] = np.where(ranges > 0.0, cells, -1)
    return out


def range_shares(cells: Int8s, lists: Sequence[Integers]) -> Doubles:
    """Return (clients, n·CELLS) shares of each client's lists, rows of `cells` (queries, n), by decade, over √n."""
    n = cells.shape[1]
    out = np.zeros((len(lists), n, CELLS))
    for cell in range(CELLS):
        there = cells == cell
        for client, queries in enumerate(lists):
            out[client, :, cell] = there[queries].sum(axis=0) / max(1, len(queries))
    return np.asarray(out.reshape(len(lists), n * CELLS) / np.sqrt(n))


def ranges_of(total: Doubles, n_features: int, deviation: float) -> Doubles:
    """Return (n,) median ranges from a sum (n·CELLS,) with noise of this deviation; 0 without a cell above the noise."""
    found = np.zeros(n_features)
    for feature, counts in enumerate(total.reshape(n_features, CELLS)):
        kept = np.where(counts > STANDS_OUT * deviation, counts, 0.0)
        if kept.sum() > 0.0:
            below = np.concatenate([[0.0], np.cumsum(kept)])
            cell = int(np.searchsorted(below, below[-1] / 2.0, side="left")) - 1
            within = (below[-1] / 2.0 - below[cell]) / kept[cell]
            found[feature] = float(f"{10.0 ** (FIRST + cell + within):.3g}")
    return found


def range_setting(clients: int, n_features: int) -> Setting:
    """Return the setting of the release: all clients, one round."""
    return Setting(clients, clients, 1, parameters=n_features * CELLS)


def range_mechanism(part: ClippedGaussian, clients: int, n_features: int, seed: int) -> Mechanism:
    """Return the mechanism of the release, whose draws are independent of the run's."""
    try:
        return part.mechanism(range_setting(clients, n_features), fresh_seed(seed, "normalisation", ()))
    except BadInput as error:
        raise _too_noisy(clients) if error.code == "privacy.too-much-noise" else error from None


def _too_noisy(clients: int) -> BadInput:
    sentence = (
        f"no feature's range stands out of the noise on {clients} clients' sum; raise data.normalize.epsilon, find more "
        "clients, or give low and high"
    )
    return BadInput("normalisation.too-much-noise", sentence, "data.normalize")


def noise_part(epsilon: float, delta: float) -> ClippedGaussian:
    """Return the privacy part of the sum."""
    return ClippedGaussian(epsilon=epsilon, delta=delta, clip=1.0)


def learned_ranges(cells: Int8s, lists: Sequence[Integers], mechanism: Mechanism | None) -> Doubles:
    """Return (n,) ranges from all clients' lists of queries; exact without a mechanism."""
    n, shares = cells.shape[1], range_shares(cells, lists)
    total, deviation = shares.sum(axis=0), 0.0
    if mechanism is not None:
        released = private_sum(shares, mechanism, State(0, np.zeros(len(total)), {}, mechanism.start()))
        total, deviation = released.total, released.noise
    found = ranges_of(total, n, deviation)
    if not found.any():
        raise _too_noisy(len(lists))
    return found


def range_release(part: ClippedGaussian, mechanism: Mechanism, clients: int, n_features: int) -> dict[str, Any]:
    """Return the ledger's entry of the sum: mechanism, setting, release and privacy loss."""
    one = np.ones(1)
    return {
        "mechanism": to_table(part),
        "setting": range_setting(clients, n_features).table() | {"planned_rounds": 1},
        "releases": release_entries(clients * one, part.clip * one, mechanism.least_multiplier * part.clip * one),
        "privacy": mechanism.statement(1),
    }
