"""Replies of an open round: how each is judged, who sent those that were accepted, and their running sum.

Sums are exact in any order (`sums`), so a reply is added when it is accepted and need not be kept: what a round holds
in memory does not grow with its cohort, but for one bit a client. Rules that must see single updates keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation import wire
from quorank.federation.rounds import CohortSum, State
from quorank.federation.sums import LARGEST, ROOM, RunningSum
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.clipping import ReleaseBound
from quorank.privacy.mechanisms.figure_response import FigureResponse

Key = tuple[int, int]
"""Client and round that a reply is of."""


class OpenRound(NamedTuple):
    """What replies to the open round are judged by."""

    run: str
    latest: int  # rounds that a reply may be late
    asked: Callable[[int], Container[int]]  # the cohort of a round
    counted: Container[Key]  # replies of rounds that are over
    heaviest: int  # interactions that a client may claim
    longest: float  # L2 norm of a release
    most: int  # replies that the round may have
    turn: Callable[[int], None] = lambda client: None  # refuses a client whose turn it is not


class ClientSet:
    """Set of clients' numbers, in one bit for each up to the largest."""

    def __init__(self) -> None:
        self._bits, self._count = bytearray(), 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, client: int) -> bool:
        at, bit = divmod(client, 8)
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> bit & 1)

    def add(self, client: int) -> None:
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
    """What the numbers of a reply are judged by, for the coordinator and for whoever takes replies in without its state."""

    run: str
    round: int
    parameters: int
    heaviest: int  # interactions that a client may claim
    longest: float  # L2 norm of a release, in units
    most: int  # replies that the round may have
    unit: float = 1.0  # what a release multiplies an update by
    weighted: bool = False  # whether a release counts by its interactions
    clip: float | None = None  # of the round's privacy; None where it has no bound of its own
    whole: bool = False  # whether releases are in whole numbers
    steps: int | None = None  # of the figure that is reported with a release; None: none is

    def check_content(self, content: bytes, client: int) -> None:
        """Refuse a reply that is not this client's, of this run and round, within what the coordinator accepts."""
        reply = wire.decode_reply(content, self.parameters)
        sentence = "the reply names another client than the one that signed it"
        require(reply.client == client, "reply.other-client", sentence)
        require(reply.run == self.run, "reply.other-run", "the reply belongs to another run; fetch a new task")
        sentence = "the round of this reply is not open; fetch a new task"
        require(reply.round == self.round, "reply.other-round", sentence)
        self.check(reply)

    def check(self, reply: wire.Reply) -> None:
        """Refuse numbers that no honest client sends, or that `most` such replies could not be summed exactly with."""
        sentence = f"the release must be {self.parameters} numbers; install the same ranker on both sides"
        good = reply.release.shape == (self.parameters,) and reply.release.dtype == np.float64
        require(good, "reply.shape", sentence)
        numbers = np.append(reply.release, reply.statistics)
        require(bool(np.isfinite(numbers).all()), "reply.not-finite", "the release holds a number that is not finite")
        if self.steps is not None:
            steps, *others = reply.statistics
            sentence = "the reported figure is none that this run's reports can be; it is refused"
            require(steps in range(self.steps + 1) and not any(others), "reply.figure", sentence)
        sentence = f"the reply claims more or fewer interactions than 1 to {self.heaviest}"
        require(1 <= reply.interactions <= self.heaviest, "reply.weight", sentence)
        length = float(np.sqrt(np.dot(reply.release, reply.release))) / self.unit
        require(length <= self.longest, "reply.norm", f"the release is longer than {self.longest:g}")
        weight = reply.interactions if self.weighted else 1
        largest, room = float(np.abs(numbers).max()) * weight, min(LARGEST, ROOM / max(1, self.most))
        require(largest < room, "reply.too-large", "the reply holds a number that is too large to be summed exactly")
        if self.clip is not None:
            self._check_clip(reply, self.clip)

    def _check_clip(self, reply: wire.Reply, clip: float) -> None:
        try:
            ReleaseBound(clip, self.unit, self.whole).check(reply.release[None, :], np.array([reply.client]))
        except BadInput as error:
            if error.code == "update.not-whole":
                sentence = "the release is not in whole numbers: install the same version on both sides"
                raise BadInput("reply.not-whole", sentence) from None
            sentence = "the release is longer than the clip that this round's privacy allows"
            raise BadInput("reply.clip", sentence) from None


class Replies:
    """Iterates over the keys of what was accepted. With `figure` each reply holds one of its responses."""

    def __init__(
        self, mechanism: Mechanism, parameters: int, single: bool, figure: FigureResponse | None = None
    ) -> None:
        self._gathering = RunningSum(mechanism, parameters)
        self._single, self._figure = single, figure
        self._senders: dict[int, ClientSet] = {}  # by round
        self._kept: dict[Key, tuple[Doubles, int]] = {}  # (row, interactions), where they are looked at

    def __contains__(self, key: Key) -> bool:
        client, round_ = key
        return round_ in self._senders and client in self._senders[round_]

    def __iter__(self) -> Iterator[Key]:
        for round_ in sorted(self._senders):
            yield from ((client, round_) for client in self.senders(round_).tolist())

    def __len__(self) -> int:
        return sum(map(len, self._senders.values()))

    def senders(self, round_: int) -> Integers:
        """Return the clients whose replies of a round were accepted, in ascending order."""
        return self._senders.get(round_, ClientSet()).numbers()

    def check(self, state: State, reply: wire.Reply, open_round: OpenRound, beside: Container[Key] = ()) -> None:
        """Refuse a reply that does not belong to the round, counts already (here or `beside`), or holds false numbers."""
        late, key = state.round - reply.round, (reply.client, reply.round)
        require(reply.run == open_round.run, "reply.other-run", "the reply belongs to another run; fetch a new task")
        require(late >= 0, "reply.round-not-begun", "the reply is of a round that has not begun; fetch a new task")
        require(late <= open_round.latest, "reply.round-over", "the reply is of a round that is over; fetch a new task")
        sentence = "this client is not in the round's cohort; wait for a task"
        require(reply.client in open_round.asked(reply.round), "reply.not-in-cohort", sentence)
        fresh = key not in self and key not in open_round.counted and key not in beside
        require(fresh, "reply.replayed", "this client has replied to this task already; one reply counts")
        open_round.turn(reply.client)
        self.limits(state, open_round).check(reply)

    def limits(self, state: State, open_round: OpenRound) -> ReplyLimits:
        """What the numbers of a reply to the open round are judged by."""
        size, mechanism = self._gathering.parameters, self._gathering.mechanism
        bound, unit = mechanism.bound_of(state.private, size), mechanism.unit_of(state.private)
        return ReplyLimits(
            open_round.run, state.round, size, open_round.heaviest, open_round.longest, open_round.most, unit,
            mechanism.weighted, None if bound is None else bound.clip, bound is not None and bound.whole,
            None if self._figure is None else self._figure.steps,
        )  # fmt: skip

    def add(self, state: State, reply: wire.Reply, share: float = 1.0) -> None:
        """Count a reply whose release counts this share of a fresh one's."""
        size = self._gathering.parameters
        row = np.empty((1, size + len(reply.statistics)))
        np.multiply(reply.release, share, out=row[0, :size])
        row[0, size:] = reply.statistics
        clients, interactions = np.array([reply.client]), np.array([reply.interactions])
        self._gathering.add(state, clients, row, interactions, int(reply.within))
        self._senders.setdefault(reply.round, ClientSet()).add(reply.client)
        if self._single:
            self._kept[reply.client, reply.round] = row[0, :size], reply.interactions

    def gathered(self, state: State) -> CohortSum:
        """The sum; where rules look at single updates, those in the order of their clients."""
        if not self._single:
            return self._gathering.close(state)
        found = [kept for _, kept in sorted(self._kept.items(), key=lambda item: item[0])]
        updates = np.array([row for row, _ in found]).reshape(len(found), self._gathering.parameters)
        weights = np.array([interactions for _, interactions in found], dtype=np.float64)
        return self._gathering.close(state, updates=updates, weights=weights)
