"""Participation: which clients form the cohort of a round, drawn by the coordinator or as they come."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Int32s, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import BATCH, Purpose, fill_clients, key_of, uniform_pair
from quorank.parts import Family
from quorank.privacy.setting import Turns


@dataclass(frozen=True, eq=False)
class TurnsTaken:
    """How often each client has taken part, and when last: two whole numbers a client; the fleet may grow."""

    times: Int32s  # (clients,)
    last: Int32s  # (clients,) the newest such round, from 0; −1 before the first

    @staticmethod
    def none(clients: int) -> TurnsTaken:
        """Return the memory of clients of whom none has taken part."""
        return TurnsTaken(np.zeros(clients, dtype=np.int32), np.full(clients, -1, dtype=np.int32))

    def of(self, client: int) -> tuple[int, int]:
        """Return (times, last round) of a client, also of one that came to the fleet since."""
        return (int(self.times[client]), int(self.last[client])) if client < len(self.times) else (0, -1)

    def after(self, came: Integers, round_: int) -> TurnsTaken:
        """Return the memory after a round in which these clients took part."""
        most = max(len(self.times), int(came.max()) + 1 if len(came) else 0)
        grown = TurnsTaken.none(most)
        grown.times[: len(self.times)], grown.last[: len(self.last)] = self.times, self.last
        grown.times[came] += 1
        grown.last[came] = round_
        return grown

    def allowed(self, turns: Turns, round_: int) -> Booleans:
        """Return (clients,) whether `Turns.may_answer` lets each take part in a round."""
        rested = (self.times == 0) | (round_ - self.last > turns.rest)
        return np.asarray(rested if turns.most is None else rested & (self.times < turns.most))


@dataclass(frozen=True)
class Participation(ABC):
    """Which clients form the cohort of a round."""

    kind: ClassVar[str]
    everyone: ClassVar[bool] = False  # all clients, in every round
    fixed_size: ClassVar[bool] = True  # every cohort is as large as planned
    open_arrivals: ClassVar[bool] = False  # nobody is drawn: a round is of those who come, and that is no secret

    @abstractmethod
    def size(self, clients: int) -> int:
        """Return the size of a cohort of so many clients; on average, where it varies; the most, where they come."""

    @abstractmethod
    def members(self, clients: int, round_: int, seed: int, taken: TurnsTaken | None = None) -> Integers | None:
        """Return the cohort of a round in ascending order; None stands for all clients, which need no list.

        Where clients come by themselves it is a simulation of who does, after the rounds that each has `taken` part in.
        """

    def fewest(self, clients: int) -> int:
        """Return the size of the smallest cohort that ends a round."""
        return self.size(clients)

    @property
    def turns(self) -> Turns:
        """How often one client may take part."""
        return Turns()

    @property
    def seconds(self) -> float:
        """How long a round waits for all that it takes."""
        return math.inf

    def check(self, clients: int, rounds: int) -> None:
        """Refuse a run of so many rounds that so many clients cannot play to its end; by default none."""


@dataclass(frozen=True)
class Full(Participation):
    """Everyone, every round."""

    kind: ClassVar[str] = "full"
    everyone: ClassVar[bool] = True

    def size(self, clients: int) -> int:
        return clients

    def members(self, clients: int, round_: int, seed: int, taken: TurnsTaken | None = None) -> Integers | None:
        return None


@dataclass(frozen=True)
class Sampled(Participation):
    """`cohort` clients a round, each set of that size equally likely, drawn anew every round."""

    kind: ClassVar[str] = "sampled"

    cohort: int = 100  # clients of a round

    def __post_init__(self) -> None:
        require_range("cohort", self.cohort, least=1)

    def size(self, clients: int) -> int:
        return self.cohort

    def members(self, clients: int, round_: int, seed: int, taken: TurnsTaken | None = None) -> Integers | None:
        """Return the clients whose own draw of this round is among the smallest; of equal ones the lower number.

        Only draws below a limit are looked at, which about as many clients have as are wanted: the population is never
        sorted.
        """
        count = min(self.cohort, clients)
        limit = (count + 8.0 * math.sqrt(count) + 8.0) / clients
        while True:
            found, draws = _below(clients, round_, seed, limit)
            if len(found) >= count or limit >= 1.0:
                return np.sort(found[np.argsort(draws, kind="stable")[:count]])
            limit *= 2.0


@dataclass(frozen=True)
class Poisson(Participation):
    """Each client takes part in each round with probability `rate`, by its own coin.

    The rate is rounded so that on average a whole number of clients takes part.
    """

    kind: ClassVar[str] = "poisson"
    fixed_size: ClassVar[bool] = False

    rate: float = 0.1  # probability that a client is in a round

    def __post_init__(self) -> None:
        require_range("rate", self.rate, above=0.0, most=1.0)

    def size(self, clients: int) -> int:
        """Return the expected size, at least 1."""
        return max(1, round(self.rate * clients))

    def members(self, clients: int, round_: int, seed: int, taken: TurnsTaken | None = None) -> Integers | None:
        return _below(clients, round_, seed, self.size(clients) / clients)[0]


@dataclass(frozen=True)
class Arrivals(Participation):
    """A round takes whoever comes, at most `enough`, and ends then, or after `minutes` with at least `least`.

    A client takes part at most once a round, in at most `most` rounds of a run, and sits out `rest` rounds in between.

    In a simulation each client comes by a Poisson process of its own. How often it comes in a round's minutes is, on the
    average of all clients and of day and night, `rate`; clients differ by a factor of log-normal distribution with standard
    deviation `spread` of its logarithm; and day and night multiply it by 1 + amplitude·cos(2π(round/period − zone)), where
    each client's time zone is drawn from a share `zones` of the day. Of those whose turn it is the first to come are in
    the round: `enough` of them, or as many as come in time, or the `least` where fewer do, for which the round waits.
    """

    kind: ClassVar[str] = "arrivals"
    fixed_size: ClassVar[bool] = False
    open_arrivals: ClassVar[bool] = True

    enough: int = 100  # K: replies that end a round; noise is planned for so many
    least: int = 10  # L: replies without which a round does not end
    minutes: float = 60.0  # T: after which `least` are enough
    most: int | None = (
        None  # m: rounds of a run that one client may take part in; by default all that it does not rest in
    )
    rest: int = 0  # s: rounds that a client sits out after each that it takes part in
    rate: float = 0.5  # how often a client comes in so many minutes, on average
    spread: float = 1.0  # σ of the logarithm of the clients' own rates
    period: float = 24.0  # rounds of a day and a night
    amplitude: float = 0.8  # by how much more, and less, of the rate clients come by day, and by night
    zones: float = 0.25  # the share of a day that the clients' time zones are apart at most

    def __post_init__(self) -> None:
        require_range("enough", self.enough, least=1, below=2**31)
        require_range("least", self.least, least=1, most=self.enough)
        require_range("minutes", self.minutes, above=0.0, most=1e6)
        _ = self.turns  # refuses limits out of range
        require_range("rate", self.rate, above=0.0, most=1e6)
        require_range("spread", self.spread, least=0.0, most=5.0)
        require_range("period", self.period, least=1.0, most=1e9)
        require_range("amplitude", self.amplitude, least=0.0, below=1.0)
        require_range("zones", self.zones, least=0.0, most=1.0)

    def size(self, clients: int) -> int:
        return self.enough

    def fewest(self, clients: int) -> int:
        return self.least

    @property
    def turns(self) -> Turns:
        return Turns(self.most, self.rest)

    @property
    def seconds(self) -> float:
        return 60.0 * self.minutes

    def check(self, clients: int, rounds: int) -> None:
        """Refuse runs whose rounds so many clients cannot fill with `least` each, as often as each may come."""
        taking = f"{clients:,} clients cannot fill {rounds:,} rounds of at least {self.least:,}"
        sentence = (
            f"{taking} if each sits out {self.rest:,} rounds in between; lower rest or least, or find more clients"
        )
        apart = min(rounds, self.rest + 1)
        require(self.least * apart <= clients, "participation.too-few-clients", sentence, "rest")
        each = len(self.turns.busiest(rounds))
        sentence = f"{taking} if each is in {each:,} at most; raise most, or find more clients"
        enough = self.least * rounds <= clients * each
        require(enough, "participation.too-few-clients", sentence, "most")

    def members(self, clients: int, round_: int, seed: int, taken: TurnsTaken | None = None) -> Integers:
        """Return the clients that come first of those whose turn it is."""
        turn = np.ones(clients, dtype=np.bool_)
        if taken is not None:
            known = taken.allowed(self.turns, round_)[:clients]
            turn[: len(known)] = known
        waiting = np.flatnonzero(turn)
        if len(waiting) < self.least:
            sentence = (
                f"in round {round_ + 1:,} only {len(waiting):,} of {clients:,} clients may still take part, and a round "
                f"needs {self.least:,}; raise most, lower rest, enough or the rounds, or find more clients"
            )
            raise BadInput("participation.nobody-left", sentence, "federation.participation")
        times = self.times_of_coming(clients, round_, seed)[waiting]
        in_time = int(np.count_nonzero(times <= 1.0))
        count = min(self.enough, max(self.least, in_time))
        latest = np.partition(times, count - 1)[count - 1]
        first = np.flatnonzero(times <= latest)
        first = first[np.argsort(times[first], kind="stable")][:count]  # who come at the same moment: by their numbers
        return np.sort(waiting[first]).astype(np.int64)

    def times_of_coming(self, clients: int, round_: int, seed: int) -> Doubles:
        """Draw (clients,) when each client comes first after a round has begun, in units of its `minutes`."""
        times, (rates, zones) = np.empty(clients), _people(clients, seed, self.rate, self.spread, self.zones)
        day = self.period, self.amplitude
        _draw_times(key_of(seed, Purpose.ARRIVAL), round_, rates, zones, *day, times)
        return times


@lru_cache(maxsize=4)
def _people(clients: int, seed: int, rate: float, spread: float, zones: float) -> tuple[Doubles, Doubles]:
    """(clients,) each: how often a client comes, and its time zone as a share of a day."""
    rates, places = np.empty(clients), np.empty(clients)
    _draw_people(key_of(seed, Purpose.ARRIVAL), rate, spread, zones, rates, places)
    return rates, places


@kernel
def _draw_people(key: Uint64s, rate: float, spread: float, zones: float, rates: Doubles, places: Doubles) -> None:
    for client in range(len(rates)):
        a, b = uniform_pair(key, 0, 1, client, 0)
        place, _ = uniform_pair(key, 0, 2, client, 0)
        normal = math.sqrt(-2.0 * math.log(1.0 - a)) * math.cos(2.0 * math.pi * b)
        rates[client] = rate * math.exp(spread * normal - 0.5 * spread * spread)
        places[client] = zones * place


@kernel
def _draw_times(
    key: Uint64s, round_: int, rates: Doubles, zones: Doubles, period: float, amplitude: float, out: Doubles
) -> None:
    for client in range(len(out)):
        u, _ = uniform_pair(key, 0, 0, client, round_)
        day = 1.0 + amplitude * math.cos(2.0 * math.pi * (round_ / period - zones[client]))
        out[client] = -math.log(1.0 - u) / (rates[client] * day)


def _below(clients: int, round_: int, seed: int, limit: float) -> tuple[Integers, Doubles]:
    """Return the clients whose own draw of a round is below the limit, ascending, and these draws."""
    key, room = key_of(seed, Purpose.PARTICIPATION), int(min(limit, 1.0) * clients * 1.1) + 64
    while True:
        found, draws = np.empty(room, dtype=np.int64), np.empty(room)
        count = _collect_below(key, round_, clients, limit, found, draws)
        if count <= room:
            return found[:count].copy(), draws[:count].copy()
        room = count


@kernel
def _collect_below(key: Uint64s, round_: int, clients: int, limit: float, found: Integers, draws: Doubles) -> int:
    """Fill in the clients below the limit as far as there is room; return how many there are."""
    count, batch = 0, np.empty(BATCH)
    for first in range(0, clients, BATCH):
        fill_clients(key, first, round_, batch)
        for i in range(min(BATCH, clients - first)):
            if batch[i] < limit:
                if count < len(found):
                    found[count], draws[count] = first + i, batch[i]
                count += 1
    return count


PARTICIPATIONS: Family[Participation] = Family("participation", Full, Sampled, Poisson, Arrivals, base=Participation)
