"""Running sums of a cohort's releases, exact in any order (`kernels.exact_sums`), and the accepted replies of a round.

An accepted reply is added at once, so a round's memory does not grow with its cohort but for the clients' numbers; only
rules that need single updates keep them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from quorank.federation.reply import Reply
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


def private_sum(sent: Doubles, mechanism: Mechanism, state: State) -> CohortSum:
    """Return the sum of all clients' numbers (clients, numbers), clipped, with the noise of a round."""
    clients, size = sent.shape
    rows, who = np.zeros((clients, size + STATISTICS)), np.arange(clients, dtype=np.int64)
    rows[:, :size] = sent
    within = mechanism.release(rows[:, :size], state.theta, state.round, who, state.private)
    running = RunningSum(mechanism, size)
    running.add(who, rows, np.ones(clients, dtype=np.int64), within)
    return running.close(state)


class AcceptedReplies:
    """Accepted replies of one round: their clients and their sum."""

    def __init__(self, mechanism: Mechanism, parameters: int, *, keep_updates: bool) -> None:
        self._sum = RunningSum(mechanism, parameters)
        self._clients = set[int]()
        self._updates: dict[int, tuple[Doubles, int]] | None = {} if keep_updates else None  # with interactions

    def __contains__(self, client: int) -> bool:
        return client in self._clients

    def __len__(self) -> int:
        return len(self._clients)

    def clients(self) -> Integers:
        """Return the clients in ascending order."""
        return np.array(sorted(self._clients), dtype=np.int64)

    def add(self, reply: Reply) -> None:
        """Count a checked reply."""
        row = np.append(reply.release, reply.statistics)[None, :]
        self._sum.add(np.array([reply.client]), row, np.array([reply.interactions]), int(reply.within))
        self._clients.add(reply.client)
        if self._updates is not None:
            self._updates[reply.client] = reply.release, reply.interactions

    def cohort_sum(self, state: State) -> CohortSum:
        """Return the sum, with single updates in the order of their clients where they are kept."""
        if self._updates is None:
            return self._sum.close(state)
        found = [self._updates[client] for client in sorted(self._updates)]
        updates = np.array([row for row, _ in found]).reshape(len(found), self._sum.parameters)
        weights = np.array([interactions for _, interactions in found], dtype=np.float64)
        return self._sum.close(state, updates=updates, weights=weights)
