"""Projection onto the allowed weights, violations of the constraints, and random allowed weights.

Hartmann et al. 2019, §5.6: bounds, the order of weights, and a bounded change per iteration are safeguards for any
gradients. The allowed set is a polyhedron; the projection onto it is exact: least-distance programming (Lawson and
Hanson 1974, "Solving least squares problems", ch. 23) turns it into non-negative least squares, which ends after
finitely many steps. A last pass removes rounding errors, so that the constraints hold for doubles.
"""

from __future__ import annotations

import math

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, uniforms
from quorank.tuning.heuristics.heuristic import HeuristicDeclaration, Weight

SWEEPS = 50  # of the sampler of random weights; the chains of orders are short


def project(heuristic: HeuristicDeclaration, wanted: Doubles, before: Doubles | None = None) -> Doubles:
    """Return the allowed weights nearest to `wanted`; with `before`, also within a step of those.

    Distances are Euclidean in units of the weights' steps, so the unit of a weight does not matter.
    """
    count = len(heuristic.weights)
    if wanted.shape != (count,) or not np.isfinite(wanted).all():
        wrong = f"there are {count} weights, all finite; got {wanted}"
        raise BadInput("weights.malformed", wrong, f"heuristic {heuristic.name}")
    lower, upper = heuristic.lower, heuristic.upper
    if before is not None:
        broken = "; ".join(violations(heuristic, before))
        require(not broken, "weights.not-allowed", f"an iteration must start from weights that are allowed: {broken}")
        least, most = reachable(heuristic, before)
        lower, upper = np.maximum(lower, least), np.minimum(upper, most)
    lower, upper = heuristic.tighten(lower, upper)
    near = np.clip(wanted, lower, upper)
    if not _in_order(heuristic, near):
        near = _nearest(heuristic, wanted, lower, upper, heuristic.steps(near if before is None else before))
    return _as_doubles(heuristic, near, lower, upper)


def reachable(heuristic: HeuristicDeclaration, before: Doubles) -> tuple[Doubles, Doubles]:
    """Return the least and greatest doubles (weights,) whose computed distance from `before` is at most a step."""
    steps = heuristic.steps(before)
    least, most = before - steps, before + steps
    while (over := before - least > steps).any():
        least[over] = np.nextafter(least[over], np.inf)
    while (over := most - before > steps).any():
        most[over] = np.nextafter(most[over], -np.inf)
    return least, most


def violations(heuristic: HeuristicDeclaration, weights: Doubles, before: Doubles | None = None) -> list[str]:
    """Return a sentence for every constraint that `weights` violate."""
    found = []
    names, steps = heuristic.names, None if before is None else heuristic.steps(before)
    for k, weight in enumerate(heuristic.weights):
        value = float(weights[k])
        if not weight.lower <= value <= weight.upper:
            found.append(f"{weight.name} = {value:g} is outside {weight.lower:g} … {weight.upper:g}")
        if before is not None and steps is not None and not abs(value - float(before[k])) <= steps[k]:
            found.append(f"{weight.name} moved from {before[k]:g} to {value:g}, more than {steps[k]:g}")
    for greater, smaller, by in heuristic.gaps:
        if not weights[smaller] <= weights[greater] - by:
            gap = f" − {by:g}" if by else ""
            found.append(
                f"{names[smaller]} = {weights[smaller]:g} is above {names[greater]} = {weights[greater]:g}{gap}"
            )
    return found


def random_weights(heuristic: HeuristicDeclaration, seed: int, which: int = 0) -> Doubles:
    """Draw weights uniformly from all that are allowed, by a Gibbs sampler.

    Each weight in turn is drawn uniformly within its bounds and the orders, given the others. A weight with a `share`
    is drawn uniformly on the scale of equal steps: as likely below a tenth of its range as above.
    """
    lower, upper = heuristic.bounds
    d = len(lower)
    drawn = uniforms(seed, Purpose.INITIAL, (SWEEPS + 1) * d, client=which).reshape(SWEEPS + 1, d)
    weights = project(heuristic, lower + drawn[0] * (upper - lower)).tolist()
    least, most = lower.tolist(), upper.tolist()
    for row in drawn[1:].tolist():
        for k, weight in enumerate(heuristic.weights):
            low = max([least[k], *(weights[smaller] + by for greater, smaller, by in heuristic.gaps if greater == k)])
            high = min([most[k], *(weights[greater] - by for greater, smaller, by in heuristic.gaps if smaller == k)])
            weights[k] = interpolate_steps(weight, low, max(low, high), row[k])
    return project(heuristic, np.array(weights))


def interpolate_steps(weight: Weight, low: float, high: float, u: float) -> float:
    """Return the value at the share u of the way from `low` to `high`, measured in iterations of whole steps.

    A value w ≥ 0 moves by max(step, share · w): evenly up to step/share, from there on by the logarithm.
    """
    if weight.share == 0.0 or low < 0.0:
        return low + u * (high - low)
    turn = weight.step / weight.share

    def iterations(value: float) -> float:
        return value / turn if value <= turn else 1.0 + math.log(value / turn)

    begin, end = iterations(low), iterations(high)
    there = begin + u * (end - begin)
    return min(max(turn * (there if there <= 1.0 else math.exp(there - 1.0)), low), high)


def _in_order(heuristic: HeuristicDeclaration, weights: Doubles) -> bool:
    return all(weights[smaller] <= weights[greater] - by for greater, smaller, by in heuristic.gaps)


def _nearest(
    heuristic: HeuristicDeclaration, wanted: Doubles, lower: Doubles, upper: Doubles, unit: Doubles
) -> Doubles:
    """Return arg min ‖x − wanted‖ with lower ≤ x ≤ upper and the orders, by least-distance programming.

    With z = x − wanted the constraints are G·z ≥ h. The residual r of min ‖(Gᵀ; hᵀ)·u − (0; 1)‖ over u ≥ 0 gives
    z = −r/r_last (Lawson and Hanson's LDP). Weights are counted in `unit`, their steps.
    """
    from scipy.optimize import nnls

    d = len(wanted)
    rows, limits = [*np.eye(d), *-np.eye(d)], [*((lower - wanted) / unit), *((wanted - upper) / unit)]
    for greater, smaller, by in heuristic.gaps:
        row = np.zeros(d)
        row[greater], row[smaller] = unit[greater], -unit[smaller]
        size = float(np.abs(row).max())
        rows.append(row / size)
        limits.append((by - wanted[greater] + wanted[smaller]) / size)
    g, h = np.array(rows), np.array(limits)
    scale = max(float(np.abs(h).max()), 1.0)
    matrix = np.vstack((g.T, h[None, :] / scale))
    target = np.zeros(d + 1)
    target[d] = 1.0
    u, _ = nnls(matrix, target)
    residual = matrix @ u - target
    return np.asarray(wanted - residual[:d] / residual[d] * scale * unit, dtype=np.float64)


def _as_doubles(heuristic: HeuristicDeclaration, near: Doubles, lower: Doubles, upper: Doubles) -> Doubles:
    """Return `near` with rounding removed: within the bounds, and each smaller weight at most its greater one."""
    allowed = np.clip(near, lower, upper)
    for _ in range(len(allowed)):
        if _in_order(heuristic, allowed):
            break
        for greater, smaller, by in heuristic.gaps:
            allowed[smaller] = min(allowed[smaller], allowed[greater] - by)
    return allowed
