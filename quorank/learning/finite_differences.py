"""Central finite differences: the gradient of a loss that can only be evaluated, in one pass.

Hartmann et al. 2019, "Federated learning for ranking browser history suggestions", §5.4: each parameter is moved by ε
in both directions while the others stay, and g'(x) ≈ (g(x + ε) − g(x − ε)) / 2ε. The paper makes one forward pass after
the other; here all places of evaluation are the rows of one matrix, so that a vectorised loss sees them at once.

A place never leaves the bounds of a parameter: at a bound the difference becomes one-sided, divided by the actual
distance. If the loss is linear between the two places, the difference is exact up to rounding; a kink
between them gives a value between the two slopes, which is a subgradient of a convex loss.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles


def ends(
    theta: Doubles, reach: Doubles, lower: Doubles | None = None, upper: Doubles | None = None
) -> tuple[Doubles, Doubles]:
    """θ − ε and θ + ε of every parameter, kept within its bounds."""
    if theta.ndim != 1 or reach.shape != theta.shape or not np.all(reach > 0.0):
        wrong = f"finite differences need one distance above 0 for each of the {theta.size} parameters, got {reach}"
        raise BadInput("finite-differences.bad-distance", wrong)
    below, above = theta - reach, theta + reach
    if lower is not None:
        below = np.maximum(below, lower)
    if upper is not None:
        above = np.minimum(above, upper)
    return below, above


def places(theta: Doubles, below: Doubles, above: Doubles) -> Doubles:
    """The (2d + 1, d) places of evaluation: row k has θ_k + ε, row d + k has θ_k − ε, the last row is θ itself."""
    d = theta.size
    rows = np.tile(theta, (2 * d + 1, 1))
    at = np.arange(d)
    rows[at, at] = above
    rows[d + at, at] = below
    return rows


def differences(losses: Doubles, below: Doubles, above: Doubles) -> Doubles:
    """(g(x + ε) − g(x − ε)) / 2ε from the losses (n, 2d + 1) at the places above: the gradients (n, d).

    A parameter whose two bounds coincide cannot be moved; its slope is 0.
    """
    d = below.size
    distance = above - below
    slope = np.zeros((len(losses), d))
    np.divide(losses[:, :d] - losses[:, d : 2 * d], distance, out=slope, where=distance > 0.0)
    return slope


def gradients(
    loss: Callable[[Doubles], npt.ArrayLike],
    theta: Doubles,
    reach: Doubles,
    lower: Doubles | None = None,
    upper: Doubles | None = None,
) -> tuple[Doubles, Doubles]:
    """The gradients (n, d) at θ of n losses, and the losses (n,) themselves, with one call of `loss`.

    `loss` takes rows of parameters (m, d) and returns the losses (m, n), or (m,) if there is one.
    """
    below, above = ends(theta, reach, lower, upper)
    rows = places(theta, below, above)
    values = np.asarray(loss(rows), dtype=np.float64)
    wrong = f"a loss of {len(rows)} rows of parameters must return as many rows, got shape {values.shape}"
    require(values.ndim in (1, 2) and len(values) == len(rows), "finite-differences.shape", wrong)
    by_loss = np.ascontiguousarray(values.reshape(len(rows), -1).T)
    return differences(by_loss, below, above), by_loss[:, -1].copy()
