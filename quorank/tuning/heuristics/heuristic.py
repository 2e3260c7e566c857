"""Heuristics: a product's scoring function with named weights, and the constraints on the weights.

Hartmann et al. 2019 (§4, §5.4 and §5.6): the function is a black box that can be evaluated with other weights. Bounds,
the order of weights and the largest change per iteration are declared, and hold in every version.
"""

from __future__ import annotations

import math
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel

Score = Callable[[Doubles, Any], Doubles]
"""score(weights (m, weights), items) → scores (m, items): m weight vectors at once."""

Probe = Callable[[Doubles, Doubles, Doubles, Any], Doubles]
"""probe(weights, below, above, items) → the scores (2·weights + 1, items) at the places of finite differences."""


@dataclass(frozen=True)
class Weight:
    """Constant of a heuristic.

    Args:
        name: Name of the constant.
        shipped: Value in the product.
        lower: Lower bound.
        upper: Upper bound.
        step: Largest change in one iteration.
        reach: ε of the finite differences; by default a hundredth of the step.
        share: A larger value may change by this share of itself, and ε grows in proportion.

    >>> Weight("fresh", shipped=10.0, lower=0.0, upper=50.0, step=1.0).epsilon
    0.01
    """

    name: str
    shipped: float
    lower: float
    upper: float
    step: float
    reach: float | None = None
    share: float = 0.0

    def __post_init__(self) -> None:
        where, order = f"weight {self.name}", (self.lower, self.shipped, self.upper)
        ordered = -math.inf < self.lower <= self.shipped <= self.upper < math.inf
        require(ordered, "value.out-of-range", f"expected lower ≤ shipped ≤ upper, got {order}", where)
        require_range(f"{where}: step", self.step, above=0.0)
        require_range(f"{where}: reach", self.epsilon, above=0.0)
        require_range(f"{where}: share", self.share, least=0.0, below=1.0)

    @property
    def epsilon(self) -> float:
        """ε of the finite differences for a value that may change by `step`."""
        return self.step / 100.0 if self.reach is None else self.reach


@dataclass(frozen=True)
class Order:
    """Constraint: the weight `smaller` never exceeds the weight `greater` − `by`.

    Args:
        greater: Name of the greater weight.
        smaller: Name of the smaller weight.
        by: Least difference, at least 0.

    >>> Order("recency.4-days", "recency.older").by
    0.0
    """

    greater: str
    smaller: str
    by: float = 0.0

    def __post_init__(self) -> None:
        require_range(f"order of {self.greater} and {self.smaller}: by", self.by, least=0.0)


@dataclass(frozen=True)
class HeuristicDeclaration:
    """Name, weights and orders of a heuristic: everything that a service and its devices must agree on."""

    name: str
    weights: tuple[Weight, ...]
    orders: tuple[Order, ...]

    def __post_init__(self) -> None:
        def check(condition: object, sentence: str) -> None:
            require(condition, "heuristic.malformed", sentence, f"heuristic {self.name}")

        names = self.names
        check(names, "at least one weight is needed")
        check(len(set(names)) == len(names), "two weights have the same name")
        for order in self.orders:
            for name in (order.greater, order.smaller):
                check(name in names, f"an order names the unknown weight {name!r}")
        lower, upper = self.bounds
        check(np.all(lower <= upper), "no weights satisfy its bounds and orders together")
        for greater, smaller, by in self.gaps:
            above = f"the shipped {names[smaller]} is above {names[greater]} − {by:g}"
            check(self.shipped[smaller] <= self.shipped[greater] - by, above)

    @property
    def declaration(self) -> HeuristicDeclaration:
        """Everything but the score."""
        return HeuristicDeclaration(self.name, self.weights, self.orders)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the weights."""
        return tuple(weight.name for weight in self.weights)

    @cached_property
    def shipped(self) -> Doubles:
        """Shipped values, (weights,)."""
        return np.array([weight.shipped for weight in self.weights])

    @cached_property
    def lower(self) -> Doubles:
        """Lower bounds, (weights,)."""
        return np.array([weight.lower for weight in self.weights])

    @cached_property
    def upper(self) -> Doubles:
        """Upper bounds, (weights,)."""
        return np.array([weight.upper for weight in self.weights])

    @cached_property
    def _steps(self) -> Doubles:
        """(3, weights): step, share and ε of each weight."""
        return np.array([[getattr(weight, name) for weight in self.weights] for name in ("step", "share", "epsilon")])

    def steps(self, weights: Doubles) -> Doubles:
        """Return the largest change (weights,) of each weight in an iteration that begins with these."""
        step, share, _ = self._steps
        return np.asarray(np.maximum(step, share * np.abs(weights)), dtype=np.float64)

    def reach(self, weights: Doubles) -> Doubles:
        """Return ε (weights,) of the finite differences around these weights."""
        step, _, epsilon = self._steps
        return np.asarray(epsilon * self.steps(weights) / step, dtype=np.float64)

    @cached_property
    def gaps(self) -> tuple[tuple[int, int, float], ...]:
        """(greater, smaller, by) of every order, with indices into the weight vector instead of names."""
        place = self.names.index
        return tuple((place(order.greater), place(order.smaller), order.by) for order in self.orders)

    @cached_property
    def bounds(self) -> tuple[Doubles, Doubles]:
        """Bounds (lower, upper) tightened by the orders: each weight can take every value within them."""
        return self.tighten(self.lower, self.upper)

    def tighten(self, lower: Doubles, upper: Doubles) -> tuple[Doubles, Doubles]:
        """Return the bounds of each weight that follow from `lower` ≤ w ≤ `upper` and the orders."""
        lower, upper = np.array(lower), np.array(upper)
        for _ in range(len(self.weights) + 1):
            before = lower.copy(), upper.copy()
            for greater, smaller, by in self.gaps:
                upper[smaller] = min(upper[smaller], upper[greater] - by)
                lower[greater] = max(lower[greater], _least_above(lower[smaller], by))
            if np.array_equal(before, (lower, upper)):
                return lower, upper
        raise BadInput("heuristic.malformed", "its orders form a cycle; remove one", f"heuristic {self.name}")

    def vector(self, values: Mapping[str, float]) -> Doubles:
        """Return the weight vector of named values; every weight must be named, and no other."""
        unknown = sorted(set(values) - set(self.names))
        missing = [name for name in self.names if name not in values]
        where = f"heuristic {self.name}"
        require(not unknown, "weights.unknown", f"there is no weight {', '.join(unknown)}", where)
        require(not missing, "weights.missing", f"a value is missing for {', '.join(missing)}", where)
        return np.array([float(values[name]) for name in self.names])

    def named(self, weights: Doubles) -> dict[str, float]:
        """Return the values of a weight vector by name."""
        return {name: float(value) for name, value in zip(self.names, weights, strict=True)}


@dataclass(frozen=True, eq=False)
class Heuristic(HeuristicDeclaration):
    """Scoring function with named weights, and the constraints on the weights.

    Args:
        name: Name of the heuristic.
        weights: Its d weights.
        orders: Orders among them.
        score: Function of (m, d) weights and items to (m, items) scores.
        probe: The same scores at the 2·d + 1 weight vectors of the finite differences, with shared work; optional.

    Raises:
        BadInput: `heuristic.malformed` if weights or orders contradict each other.

    >>> weights = Weight("recent", 1.0, 0.0, 5.0, step=0.1), Weight("title", 2.0, 0.0, 5.0, step=0.1)
    >>> score = one_by_one(["recent", "title"], lambda item, w: w["recent"] * item[0] + w["title"] * item[1])
    >>> heuristic = Heuristic("notes", weights, (Order("title", "recent"),), score)
    >>> heuristic.named(heuristic.shipped)
    {'recent': 1.0, 'title': 2.0}
    """

    score: Score
    probe: Probe | None = None


def _least_above(smaller: float, by: float) -> float:
    """Return the least double g with smaller ≤ g − by, as doubles are subtracted."""
    greater = smaller + by
    while greater - by < smaller:
        greater = math.nextafter(greater, math.inf)
    while (next_below := math.nextafter(greater, -math.inf)) - by >= smaller:
        greater = next_below
    return float(greater)


def compiled_score(probe: Callable[..., None]) -> tuple[Score, Probe]:
    """Return the score and the probe that a kernel computes; items have a column `visits`.

    probe(weights, below, above, items, out) fills `out` (items, 2·d + 1); its last column is the score.
    """

    def probed(weights: Doubles, below: Doubles, above: Doubles, items: Any) -> Doubles:
        out = np.empty((len(items.visits), 2 * len(weights) + 1))
        probe(np.array(weights), below, above, items, out)
        return out.T

    def score(weights: Doubles, items: Any) -> Doubles:
        return np.array([probed(row, row, row, items)[-1] for row in weights])

    return score, probed


@kernel
def fill_linear(
    weights: Doubles, below: Doubles, above: Doubles, total: float, slope: Doubles, scale: float, out: Doubles
) -> None:
    """out (2·d + 1,): scale · a score `total` with slopes: with each weight moved up, moved down, and unchanged."""
    d = len(weights)
    for k in range(d):
        out[k] = (total + (above[k] - weights[k]) * slope[k]) * scale
        out[d + k] = (total + (below[k] - weights[k]) * slope[k]) * scale
    out[2 * d] = total * scale


def one_by_one(names: Sequence[str], function: Callable[[Any, dict[str, float]], float]) -> Score:
    """Return the score of a plain function of one item and named weights, called for each item and weight vector.

    Items are then a `Listed`. The score is about a thousand times slower than a compiled one, and fast enough for one
    search on a device.

    Args:
        names: Names of the weights, in the order of the heuristic.
        function: Score of an item, given the item and the weights by name.

    >>> from quorank.tuning.searches import Listed
    >>> score = one_by_one(["recent", "title"], lambda item, w: w["recent"] * item[0] + w["title"] * item[1])
    >>> score(np.array([[1.0, 2.0]]), Listed.of([[(3.0, 0.0), (0.0, 1.0)]], chosen=[0]))
    array([[3., 2.]])
    """
    words = tuple(names)

    def score(weights: Doubles, items: Any) -> Doubles:
        tables = [dict(zip(words, map(float, row), strict=True)) for row in weights]
        return np.array([[function(item, table) for item in items.item] for table in tables], dtype=np.float64)

    return score


def load_object(text: str) -> Any:
    """Import the object that `module:object` names; modules in the current folder are found too.

    Importing a module runs it: the text must come from the person who runs the program (a command line, an operator's
    own file), never from a message or a file that somebody else may write.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return pkgutil.resolve_name(text)
    except ValueError:
        wrong = "expected module:object, such as my_product.tuning:heuristic"
        raise BadInput("heuristic.unknown", wrong, text) from None
    except AttributeError as error:
        raise BadInput("heuristic.no-object", f"{error}", text) from None
    except Exception as error:  # anything that a module may raise
        raise BadInput("heuristic.no-module", f"cannot be imported ({type(error).__name__}: {error})", text) from None
