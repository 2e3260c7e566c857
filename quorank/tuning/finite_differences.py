"""Central finite differences: the gradient of a loss that can only be evaluated, in one pass.

Hartmann et al. 2019, "Federated learning for ranking browser history suggestions", §5.4: each parameter is moved by ε
in both directions while the others stay, and g'(x) ≈ (g(x + ε) − g(x − ε)) / 2ε. All places of evaluation are the rows of
one matrix, so that a vectorised loss sees them at once.

A place never leaves the bounds of a parameter: the difference at a bound is one-sided, over the actual distance. It
is exact up to rounding for a loss that is linear between the two places; across a kink, a subgradient of a convex loss.
"""

from __future__ import annotations

import numpy as np

from quorank.errors import BadInput
from quorank.kernels.arrays import Doubles


def ends(
    theta: Doubles, reach: Doubles, lower: Doubles | None = None, upper: Doubles | None = None
) -> tuple[Doubles, Doubles]:
    """Return θ − ε and θ + ε of every parameter, kept within its bounds."""
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
    """Return the (2d + 1, d) places of evaluation: row k has θ_k + ε, row d + k has θ_k − ε, the last row is θ itself."""
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
