"""Running sum of a cohort's releases and statistics, exact in any order (`kernels.exact_sums`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from quorank.federation.rounds import CohortSum, State
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.exact_sums import ExactSum
from quorank.learning.client_loop import STATISTICS
from quorank.privacy import Mechanism


@dataclass(eq=False)
class RunningSum:
    """Running sum of a cohort's releases and statistics, until its round is closed."""

    mechanism: Mechanism
    parameters: int
    clients: int = field(default=0, init=False)
    interactions: int = field(default=0, init=False)
    within: int = field(default=0, init=False)  # updates within the clip
    total: ExactSum = field(init=False)

    def __post_init__(self) -> None:
        self.total = ExactSum(self.parameters + STATISTICS)

    def weights(self, interactions: Integers) -> Doubles:
        """Return the weights of releases: their interactions, or 1 where noise needs equal weights."""
        if self.mechanism.weighted:
            return interactions.astype(np.float64)
        return np.ones(len(interactions))

    def add(self, clients: Integers, rows: Doubles, interactions: Integers, within: int) -> None:
        """Add releases with their statistics, (clients, parameters + STATISTICS)."""
        self.total.add(rows, self.weights(interactions), self.parameters, clients)
        self.clients += len(clients)
        self.interactions += int(interactions.sum())
        self.within += within

    def merge(self, other: RunningSum) -> None:
        """Add another running sum of the same round."""
        self.total.merge(other.total)
        self.clients += other.clients
        self.interactions += other.interactions
        self.within += other.within

    def close(
        self,
        state: State,
        *,
        canaries: Doubles | None = None,
        updates: Doubles | None = None,
        weights: Doubles | None = None,
        personal: Doubles | None = None,
    ) -> CohortSum:
        """Return the round's sum with the noise of its privacy mechanism.

        Args:
            state: State of the federation before the round.
            canaries: Contribution of an audit's canary clients to the sum, (parameters,).
            updates: Single releases, (clients, parameters), for rules that need them.
            weights: Their weights, (clients,).
            personal: Next offsets of the clients.
        """
        sums, size = self.total.value(), self.parameters
        weight = float(self.interactions if self.mechanism.weighted else self.clients)
        unit = self.mechanism.unit_of(state.private)
        if canaries is not None and unit == 1.0:
            sums[:size] += canaries
        private = self.mechanism.finish(sums[:size], weight, self.within, self.clients, state.round, state.private)
        if canaries is not None and unit != 1.0 and not private.stays:
            # integers over a power of two: exact; the bound on the cohort's sum does not count the canaries
            private = private._replace(total=private.total + np.rint(canaries * unit) / unit)
        if private.groups is not None:
            updates, weights = private.groups, private.sizes
        clients = self.clients if private.participants is None else private.participants
        ndcg, reciprocal, clicks = sums[size:].tolist()
        shown = self.interactions, ndcg, reciprocal, clicks
        released = private.memory, private.sensitivity, private.noise
        summed = CohortSum(private.total, private.weight, clients, *shown, *released, updates, weights, personal)
        return summed._replace(dropped=private.dropped, stays=private.stays)
