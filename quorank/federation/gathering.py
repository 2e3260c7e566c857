"""What has come in of one round: releases, summed exactly in any order, until the round is closed.

Simulated cohorts add chunks from several threads, a coordinator adds replies one by one as they arrive: the sums are of
whole numbers, so both come to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from quorank.arrays import Doubles, Integers
from quorank.federation.exact_sum import ExactSum
from quorank.federation.rounds import Gathered, State
from quorank.learning.simulation import STATISTICS
from quorank.privacy import Mechanism


@dataclass(eq=False)
class Gathering:
    """The running sum of a cohort's releases and statistics."""

    mechanism: Mechanism
    parameters: int
    clients: int = field(default=0, init=False)
    interactions: int = field(default=0, init=False)
    within: int = field(default=0, init=False)  # updates that were within the clip
    total: ExactSum = field(init=False)

    def __post_init__(self) -> None:
        self.total = ExactSum(self.parameters + STATISTICS)

    def weights(self, interactions: Integers) -> Doubles:
        """What each release counts: its client's interactions, or the same for all where noise is calibrated for that."""
        if self.mechanism.weighted:
            return interactions.astype(np.float64)
        return np.ones(len(interactions))

    def add(
        self, state: State, clients: Integers, rows: Doubles, interactions: Integers, within: int
    ) -> None:
        """Add releases with their statistics (clients, parameters + STATISTICS); refuses what no honest client sends."""
        self.mechanism.check(rows[:, : self.parameters], clients, state.private)
        self.total.add(rows, self.weights(interactions), self.parameters, clients)
        self.clients += len(clients)
        self.interactions += int(interactions.sum())
        self.within += within

    def merge(self, other: Gathering) -> None:
        """Add what came in elsewhere."""
        self.total.merge(other.total)
        self.clients += other.clients
        self.interactions += other.interactions
        self.within += other.within

    def close(
        self,
        state: State,
        *,
        beside: Doubles | None = None,
        updates: Doubles | None = None,
        weights: Doubles | None = None,
        personal: Doubles | None = None,
    ) -> Gathered:
        """The round's sum with the noise that its privacy adds.

        `beside` is what the canary clients of an audit add to the sum; `updates` and `weights` are the releases one by
        one, for rules that must see them; `personal` is what clients keep for themselves.
        """
        sums, size = self.total.value(), self.parameters
        weight = float(self.interactions if self.mechanism.weighted else self.clients)
        if beside is not None:
            sums[:size] += np.rint(beside * self.mechanism.unit) if self.mechanism.unit != 1.0 else beside
        private = self.mechanism.finish(
            sums[:size], weight, self.within, self.clients, state.round, state.private
        )
        return Gathered(
            private.total,
            private.weight,
            self.clients if private.participants is None else private.participants,
            self.interactions,
            float(sums[size]),
            float(sums[size + 1]),
            float(sums[size + 2]),
            private.memory,
            private.sensitivity,
            private.noise,
            updates,
            weights,
            personal,
        )
