"""Bounds on replies, and the accepted replies of an open round with their running sum.

Sums are exact in any order (`sums`), so an accepted reply is added at once. A round's memory does not grow with its
cohort, but for one bit per client; only rules that need single updates keep them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation.reply import Reply, decode_reply
from quorank.federation.rounds import CohortSum, State
from quorank.federation.sums import RunningSum
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.exact_sums import LARGEST, LARGEST_SUM
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.clipping import ReleaseBound


class ClientSet:
    """Set of client numbers, one bit per number up to the largest."""

    def __init__(self) -> None:
        self._bits, self._count = bytearray(), 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, client: int) -> bool:
        at, bit = divmod(client, 8)
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> bit & 1)

    def add(self, client: int) -> None:
        """Add a client; a second time changes nothing."""
        at, bit = divmod(client, 8)
        if at >= len(self._bits):
            self._bits.extend(bytes(max(at + 1, 2 * len(self._bits)) - len(self._bits)))
        self._count += not self._bits[at] >> bit & 1
        self._bits[at] |= 1 << bit

    def numbers(self) -> Integers:
        """Return the numbers in ascending order."""
        bits = np.unpackbits(np.frombuffer(bytes(self._bits), dtype=np.uint8), bitorder="little")
        return np.flatnonzero(bits).astype(np.int64)


@dataclass(frozen=True)
class ReplyLimits:
    """Bounds on a reply, for the coordinator and for intake processes without its state."""

    run: str
    round: int
    parameters: int
    max_interactions: int
    max_norm: float  # L2 norm of a release, in units of an update
    max_replies: int  # replies of the round
    unit: float = 1.0  # factor between an update and its release
    weighted: bool = False  # a release is weighted by its interactions
    clip: float | None = None  # bound of the round's privacy mechanism, if it has one
    integers: bool = False  # releases are integers
    metric_steps: int | None = None  # range of the reported metric, if one is reported

    @staticmethod
    def of(
        run: str,
        state: State,
        mechanism: Mechanism,
        max_interactions: int,
        max_norm: float,
        max_replies: int,
        metric_steps: int | None = None,
    ) -> ReplyLimits:
        """Return the bounds of the round after this state."""
        size = len(state.theta)
        bound, unit = mechanism.bound_of(state.private, size), mechanism.unit_of(state.private)
        return ReplyLimits(
            run, state.round, size, max_interactions, max_norm, max_replies, unit, mechanism.weighted,
            None if bound is None else bound.clip, bound is not None and bound.integers, metric_steps,
        )  # fmt: skip

    def check_content(self, content: bytes, client: int) -> None:
        """Refuse bytes that are no reply of this client to this run and round within the bounds."""
        reply = decode_reply(content, self.parameters)
        sentence = "the reply names another client than the one that signed it"
        require(reply.client == client, "reply.other-client", sentence)
        require(reply.run == self.run, "reply.other-run", "the reply belongs to another run; fetch a new task")
        sentence = "the round of this reply is not open; fetch a new task"
        require(reply.round == self.round, "reply.other-round", sentence)
        self.check(reply)

    def check(self, reply: Reply) -> None:
        """Refuse numbers that no honest client sends, or of which `max_replies` could not be summed exactly."""
        sentence = f"the release must be {self.parameters} numbers; install the same ranker on both sides"
        is_row = reply.release.shape == (self.parameters,) and reply.release.dtype == np.float64
        require(is_row, "reply.shape", sentence)
        numbers = np.append(reply.release, reply.statistics)
        require(bool(np.isfinite(numbers).all()), "reply.not-finite", "the release holds a number that is not finite")
        if self.metric_steps is not None:
            step, *others = reply.statistics
            sentence = f"the reported metric is not one of the integers 0 to {self.metric_steps}"
            require(step in range(self.metric_steps + 1) and not any(others), "reply.figure", sentence)
        sentence = f"the reply claims more or fewer interactions than 1 to {self.max_interactions}"
        require(1 <= reply.interactions <= self.max_interactions, "reply.weight", sentence)
        norm = float(np.sqrt(np.dot(reply.release, reply.release))) / self.unit
        require(norm <= self.max_norm, "reply.norm", f"the release is longer than {self.max_norm:g}")
        weight = reply.interactions if self.weighted else 1
        largest, bound = float(np.abs(numbers).max()) * weight, min(LARGEST, LARGEST_SUM / max(1, self.max_replies))
        require(largest < bound, "reply.too-large", "the reply holds a number that is too large to be summed exactly")
        if self.clip is not None:
            self._check_clip(reply, self.clip)

    def _check_clip(self, reply: Reply, clip: float) -> None:
        try:
            ReleaseBound(clip, self.unit, self.integers).check(reply.release[None, :], np.array([reply.client]))
        except BadInput as error:
            if error.code == "update.not-whole":
                sentence = "the release does not consist of integers: install the same version on both sides"
                raise BadInput("reply.not-whole", sentence) from None
            sentence = "the release is longer than the clip that this round's privacy allows"
            raise BadInput("reply.clip", sentence) from None


class AcceptedReplies:
    """Accepted replies of one round: their clients and their sum."""

    def __init__(self, mechanism: Mechanism, parameters: int, *, keep_updates: bool) -> None:
        self._sum = RunningSum(mechanism, parameters)
        self._clients = ClientSet()
        self._updates: dict[int, tuple[Doubles, int]] | None = {} if keep_updates else None  # with interactions

    def __contains__(self, client: int) -> bool:
        return client in self._clients

    def __len__(self) -> int:
        return len(self._clients)

    def clients(self) -> Integers:
        """Return the clients in ascending order."""
        return self._clients.numbers()

    def add(self, reply: Reply) -> None:
        """Count a checked reply."""
        size = self._sum.parameters
        row = np.append(reply.release, reply.statistics)[None, :]
        clients, interactions = np.array([reply.client]), np.array([reply.interactions])
        self._sum.add(clients, row, interactions, int(reply.within))
        self._clients.add(reply.client)
        if self._updates is not None:
            self._updates[reply.client] = row[0, :size], reply.interactions

    def cohort_sum(self, state: State) -> CohortSum:
        """Return the sum, with single updates in the order of their clients where they are kept."""
        if self._updates is None:
            return self._sum.close(state)
        found = [self._updates[client] for client in sorted(self._updates)]
        updates = np.array([row for row, _ in found]).reshape(len(found), self._sum.parameters)
        weights = np.array([interactions for _, interactions in found], dtype=np.float64)
        return self._sum.close(state, updates=updates, weights=weights)
