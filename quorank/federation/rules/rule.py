"""Base classes of aggregation rules, and the mean of the clients' updates.

Robust rules ignore the weights: a client's number of interactions is its own claim, by which it could outvote all others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles

PAIR_ARRAYS = 4
RuleMemory = dict[str, Doubles]
"""Memory of a rule from round to round, besides the clients' histories; saved with the run."""


@dataclass(frozen=True)
class Aggregation(ABC):
    """Base class of aggregation rules: `combine_all` if `needs_single_updates`, else `combine`.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass(frozen=True)
    ... class FirstHalf(Aggregation):
    ...     kind = "first-half"
    ...     needs_single_updates = True
    ...
    ...     def combine_all(self, updates, weights):
    ...         return updates[: (len(updates) + 1) // 2].mean(axis=0)
    >>> FirstHalf().combine_all(np.array([[1.0, 2.0], [3.0, 4.0], [50.0, 60.0]]), np.ones(3))
    array([2., 3.])
    """

    kind: ClassVar[str]
    needs_single_updates: ClassVar[bool] = False  # True: `combine_all` is called; no secure sum is possible
    divides_sums: ClassVar[bool] = False  # `combine` is total / weight, so it may be computed ahead
    compares_pairs: ClassVar[bool] = False  # holds up to `PAIR_ARRAYS` (n, n) arrays of doubles
    keeps_pace: ClassVar[bool] = False  # with a history the step is the movement of the combination, which does not lag

    @property
    def history(self) -> float:
        """β; above 0 the rule gets an exponential mean of each client's updates, which needs full participation."""
        return 0.0

    def check(self, n: int) -> None:
        """Refuse a cohort of n clients that the rule cannot protect."""

    def check_pair_memory(self, n: int, memory: int) -> None:
        """Refuse a cohort of n clients whose pairs exceed this many bytes of memory."""
        largest, needed = math.isqrt(memory // (8 * PAIR_ARRAYS)), 8 * PAIR_ARRAYS * n * n
        sentence = (
            f"{self.kind} compares all pairs of {n:,} clients, which takes {needed / 1e9:,.1f} GB of memory, and "
            f"this machine has {memory / 1e9:,.1f} GB; take cohorts of at most {largest:,} (participation = {{ kind = "
            '"sampled", cohort = … }), or a rule that compares no pairs (trimmed-mean, median, geometric-median)'
        )
        require(
            n <= largest or not self.compares_pairs, "aggregation.pairs-too-many", sentence, "federation.aggregation"
        )

    def combine(self, total: Doubles, weight: float) -> Doubles:
        """Return the aggregated update from the (d,) weighted sum of the updates and the sum of the weights."""
        raise NotImplementedError(f"{self.kind} looks at single updates")

    def combine_all(self, updates: Doubles, weights: Doubles) -> Doubles:
        """Return the aggregated update of the (n, d) updates of a cohort whose clients claim (n,) weights."""
        raise NotImplementedError(f"{self.kind} needs sums only")

    def combine_remembering(self, updates: Doubles, weights: Doubles, memory: RuleMemory) -> Doubles:
        """Return `combine_all` with the rule's memory of earlier rounds."""
        return self.combine_all(updates, weights)

    def remember(self, memory: RuleMemory, updates: Doubles, weights: Doubles) -> RuleMemory:
        """Return the rule's memory after a round with these (n, d) updates."""
        return {}


@dataclass(frozen=True)
class Mean(Aggregation):
    """Weighted mean Σ_c (n_c / n)·update_c, from sums alone (FPDGD algorithm 2).

    >>> Mean().combine(np.array([2.0, 4.0]), weight=2.0)
    array([1., 2.])
    """

    kind: ClassVar[str] = "mean"
    divides_sums: ClassVar[bool] = True

    def combine(self, total: Doubles, weight: float) -> Doubles:
        """Return the mean; zero for an empty cohort."""
        return total / weight if weight > 0.0 else total


@dataclass(frozen=True)
class RobustRule(Aggregation):
    """Base class of rules that withstand malicious clients.

    Args:
        byzantine: Tolerated number of malicious clients m, at least 0 and fewer than half of a cohort.

    Raises:
        BadInput: `value.out-of-range` if `byzantine` is below 0.
    """

    needs_single_updates: ClassVar[bool] = True

    byzantine: int = 1

    def __post_init__(self) -> None:
        require_range("byzantine", self.byzantine, least=0, below=2**31)

    def least_cohort(self) -> int:
        """Return the smallest cohort of the rule; more than 2·byzantine are required in any case."""
        return 1

    def check(self, n: int) -> None:
        m, least = self.byzantine, self.least_cohort()
        sentence = f"{self.kind} needs the update of at least one client, got none"
        require(n >= 1, "aggregation.empty-cohort", sentence, "aggregation")
        sentence = f"no rule can tell {m} malicious clients from others in a cohort of {n}; set byzantine below half"
        require(2 * m < n, "aggregation.too-many-malicious", sentence, "aggregation")
        sentence = (
            f"{self.kind} with byzantine = {m} needs at least {least} clients in a cohort, got {n}; lower byzantine"
        )
        require(n >= least, "aggregation.cohort-too-small", sentence, "aggregation")

    def combine_all(self, updates: Doubles, weights: Doubles) -> Doubles:
        """Return `combine_rows` of the updates in the order of their bytes.

        Raises:
            BadInput: `aggregation.shape`, `aggregation.bad-weight` or `aggregation.not-finite` for invalid arrays;
                `aggregation.empty-cohort`, `aggregation.too-many-malicious` or `aggregation.cohort-too-small` for too
                few clients.
        """
        rows = content_rows(self.kind, updates, weights)
        self.check(len(rows))
        return self.combine_rows(rows)

    @abstractmethod
    def combine_rows(self, rows: Doubles) -> Doubles:
        """Return the aggregated update of (n, d) finite updates, whose order is that of their bytes."""


def content_rows(kind: str, updates: Doubles, weights: Doubles) -> Doubles:
    """Return a checked copy of the (n, d) updates, its rows ordered by their bytes.

    The result is then independent of the order of the clients, rounding included, and ties are decided by content.
    """
    rows, claims = np.array(updates, dtype="<f8", order="C"), np.asarray(weights, dtype=np.float64)
    sentence = f"{kind} expects a row and a weight for each client, got the shapes {rows.shape} and {claims.shape}"
    require(rows.ndim == 2 and claims.shape == (len(rows),), "aggregation.shape", sentence, "aggregation")
    sentence = f"{kind} expects weights that are finite and at least 0"
    require(np.all(np.isfinite(claims) & (claims >= 0.0)), "aggregation.bad-weight", sentence, "aggregation")
    finite = np.append(np.isfinite(rows).all(axis=1), False)
    row = f"the update in row {np.argmin(finite)} holds a number that is not finite"
    sentence = f"{row}; leave such clients out before {kind} sees them"
    require(finite[:-1].all(), "aggregation.not-finite", sentence, "aggregation")
    rows += 0.0  # −0 and 0 are one number with two encodings
    return rows[sorted(range(len(rows)), key=lambda i: rows[i].tobytes())]
