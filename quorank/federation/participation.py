"""Participation: the rule that forms the cohort of a round, by drawing clients or by accepting arrivals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Booleans, Doubles, Int32s, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose
from quorank.parts import Family
from quorank.privacy.accounting import Turns
from quorank.privacy.streams import Key, Seed, client_draws, key_for, uniform_pair


@dataclass(frozen=True, eq=False)
class TurnsTaken:
    """Number of rounds and last round of each client; new clients may join."""

    times: Int32s  # (clients,)
    last: Int32s  # (clients,) last round, from 0; −1 before the first

    @staticmethod
    def none(clients: int) -> TurnsTaken:
        """Return the counts before the first round."""
        return TurnsTaken(np.zeros(clients, dtype=np.int32), np.full(clients, -1, dtype=np.int32))

    def of(self, client: int) -> tuple[int, int]:
        """Return (times, last round) of a client, also of a new one."""
        return (int(self.times[client]), int(self.last[client])) if client < len(self.times) else (0, -1)

    def after(self, members: Integers, round_: int) -> TurnsTaken:
        """Return the counts after a round of these clients."""
        most = max(len(self.times), int(members.max()) + 1 if len(members) else 0)
        grown = TurnsTaken.none(most)
        grown.times[: len(self.times)], grown.last[: len(self.last)] = self.times, self.last
        grown.times[members] += 1
        grown.last[members] = round_
        return grown

    def allowed(self, turns: Turns, round_: int) -> Booleans:
        """Return a mask (clients,) of those that `Turns.check` accepts in a round."""
        rested = (self.times == 0) | (round_ - self.last > turns.rest)
        return np.asarray(rested if turns.most is None else rested & (self.times < turns.most))


@dataclass(frozen=True)
class Participation(ABC):
    """Base class of rules that form the cohort of a round.

    >>> from quorank.federation import Poisson
    >>> rule = Poisson(rate=0.2)
    >>> isinstance(rule, Participation), rule.size(100), rule.fixed_size
    (True, 20, False)
    """

    kind: ClassVar[str]
    everyone: ClassVar[bool] = False  # all clients in every round
    fixed_size: ClassVar[bool] = True  # every cohort is as large as planned
    open_arrivals: ClassVar[bool] = False  # nobody is drawn: a round accepts arriving clients, which is no secret

    @abstractmethod
    def size(self, clients: int) -> int:
        """Return the planned size of a cohort: the mean of drawn cohorts, the maximum of open arrivals."""

    @abstractmethod
    def members(self, clients: int, round_: int, seed: Seed, turns: TurnsTaken | None = None) -> Integers | None:
        """Return the cohort of a round. Open arrivals are simulated.

        Args:
            clients: Number of clients of the federation.
            round_: Round, from 0.
            seed: Seed of the run; of a deployment, a secret.
            turns: Turns that clients took before the round, for open arrivals.

        Returns:
            Numbers of the clients, ascending; None stands for all.
        """

    def fewest(self, clients: int) -> int:
        """Return the size of the smallest cohort that can close a round."""
        return self.size(clients)

    @property
    def turns(self) -> Turns:
        """Limits on the participation of one client."""
        return Turns()

    @property
    def seconds(self) -> float:
        """Deadline of a round, seconds."""
        return math.inf

    def check(self, clients: int, rounds: int) -> None:
        """Refuse a run that these clients cannot finish."""


@dataclass(frozen=True)
class Full(Participation):
    """All clients in every round.

    >>> Full().size(1000)
    1000
    """

    kind: ClassVar[str] = "full"
    everyone: ClassVar[bool] = True

    def size(self, clients: int) -> int:
        return clients

    def members(self, clients: int, round_: int, seed: Seed, turns: TurnsTaken | None = None) -> Integers | None:
        return None


@dataclass(frozen=True)
class Sampled(Participation):
    """Cohorts of a fixed size; every round draws each set of that size with equal probability.

    Args:
        cohort: Clients of a round, at least 1 and at most all.

    Raises:
        BadInput: `value.out-of-range` if `cohort` is below 1.

    >>> Sampled(cohort=3).members(clients=10, round_=0, seed=1)
    array([0, 6, 9])
    """

    kind: ClassVar[str] = "sampled"

    cohort: int = 100

    def __post_init__(self) -> None:
        require_range("cohort", self.cohort, least=1)

    def size(self, clients: int) -> int:
        return self.cohort

    def members(self, clients: int, round_: int, seed: Seed, turns: TurnsTaken | None = None) -> Integers | None:
        """Return the clients with the smallest draws of this round."""
        return smallest_places(_draws(clients, round_, seed), min(self.cohort, clients))


@dataclass(frozen=True)
class Poisson(Participation):
    """Poisson sample: each client participates in each round independently with the same probability.

    The probability is rounded so that the mean cohort size is an integer of at least 1.

    Args:
        rate: Probability in (0, 1] that a client participates in a round.

    Raises:
        BadInput: `value.out-of-range` if `rate` is outside (0, 1].

    >>> Poisson(rate=0.1).size(1000)
    100
    """

    kind: ClassVar[str] = "poisson"
    fixed_size: ClassVar[bool] = False

    rate: float = 0.1

    def __post_init__(self) -> None:
        require_range("rate", self.rate, above=0.0, most=1.0)

    def size(self, clients: int) -> int:
        """Return the expected size, at least 1."""
        return max(1, round(self.rate * clients))

    def members(self, clients: int, round_: int, seed: Seed, turns: TurnsTaken | None = None) -> Integers | None:
        return np.flatnonzero(_draws(clients, round_, seed) < self.size(clients) / clients)


@dataclass(frozen=True)
class Arrivals(Participation):
    """Open arrivals: a round closes with the first K replies, or after T minutes with at least L.

    A client participates at most once per round, in at most m rounds of a run, and rests for s rounds after each.

    In a simulation each client arrives by a Poisson process. Its mean number of arrivals in a round's T minutes is
    `rate` times a log-normal factor times 1 + amplitude·cos(2π(round/period − zone)). The first arrivals among the
    allowed clients form the round: K of them, or those in time, or L if fewer come in time.

    Args:
        enough: K, replies that close a round at once; noise is planned for K.
        least: L, replies without which no round closes, at most K.
        minutes: T, minutes after which L replies suffice.
        most: m, rounds of a run in which one client may participate; None is unlimited.
        rest: s, rounds that a client rests after each participation.
        rate: Mean arrivals of a client in T minutes (simulation).
        spread: Standard deviation of the logarithm of the clients' rates, 0 to 5 (simulation).
        period: Rounds per day, at least 1 (simulation).
        amplitude: Relative amplitude of the daily variation, in [0, 1) (simulation).
        zones: Largest distance of the clients' time zones, as a share of a day (simulation).

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> Arrivals(enough=20, least=5).fewest(clients=1000)
    5
    """

    kind: ClassVar[str] = "arrivals"
    fixed_size: ClassVar[bool] = False
    open_arrivals: ClassVar[bool] = True

    enough: int = 100
    least: int = 10
    minutes: float = 60.0
    most: int | None = None
    rest: int = 0
    rate: float = 0.5
    spread: float = 1.0
    period: float = 24.0
    amplitude: float = 0.8
    zones: float = 0.25

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
        """Refuse runs whose rounds cannot get `least` replies within the limits of each client."""
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

    def members(self, clients: int, round_: int, seed: Seed, turns: TurnsTaken | None = None) -> Integers:
        """Return the first arrivals of a round among the allowed clients."""
        allowed = np.ones(clients, dtype=np.bool_)
        if turns is not None:
            known = turns.allowed(self.turns, round_)[:clients]
            allowed[: len(known)] = known
        waiting = np.flatnonzero(allowed)
        if len(waiting) < self.least:
            sentence = (
                f"in round {round_ + 1:,} only {len(waiting):,} of {clients:,} clients may still take part, and a round "
                f"needs {self.least:,}; raise most, lower rest, enough or the rounds, or find more clients"
            )
            raise BadInput("participation.nobody-left", sentence, "federation.participation")
        times = self.arrival_times(clients, round_, seed)[waiting]
        in_time = int(np.count_nonzero(times <= 1.0))
        count = min(self.enough, max(self.least, in_time))
        return waiting[smallest_places(times, count)]

    def arrival_times(self, clients: int, round_: int, seed: Seed) -> Doubles:
        """Draw (clients,) the first arrival of each client in a round, in units of `minutes`."""
        times, (rates, zones) = np.empty(clients), _people(clients, seed, self.rate, self.spread, self.zones)
        day = self.period, self.amplitude
        _draw_times(key_for(seed, Purpose.ARRIVAL), round_, rates, zones, *day, times)
        return times


@lru_cache(maxsize=4)
def _people(clients: int, seed: Seed, rate: float, spread: float, zones: float) -> tuple[Doubles, Doubles]:
    """Draw (clients,) rates and time zones, the latter as a share of a day."""
    rates, places = np.empty(clients), np.empty(clients)
    _draw_people(key_for(seed, Purpose.ARRIVAL), rate, spread, zones, rates, places)
    return rates, places


@kernel
def _draw_people(key: Key, rate: float, spread: float, zones: float, rates: Doubles, places: Doubles) -> None:
    for client in range(len(rates)):
        a, b = uniform_pair(key, 0, 1, client, 0)
        place, _ = uniform_pair(key, 0, 2, client, 0)
        normal = math.sqrt(-2.0 * math.log(1.0 - a)) * math.cos(2.0 * math.pi * b)
        rates[client] = rate * math.exp(spread * normal - 0.5 * spread * spread)
        places[client] = zones * place


@kernel
def _draw_times(
    key: Key, round_: int, rates: Doubles, zones: Doubles, period: float, amplitude: float, out: Doubles
) -> None:
    for client in range(len(out)):
        u, _ = uniform_pair(key, 0, 0, client, round_)
        day = 1.0 + amplitude * math.cos(2.0 * math.pi * (round_ / period - zones[client]))
        out[client] = -math.log(1.0 - u) / (rates[client] * day)


def smallest_places(values: Doubles, count: int) -> Integers:
    """Return the places of the `count` smallest values, ascending; ties go to the lower place."""
    found = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return np.sort(found[np.argsort(values[found], kind="stable")[:count]])


def _draws(clients: int, round_: int, seed: Seed) -> Doubles:
    """Return (clients,) the draw of each client in a round."""
    return client_draws(key_for(seed, Purpose.PARTICIPATION), 0, round_, np.arange(clients))


PARTICIPATIONS: Family[Participation] = Family("participation", Full, Sampled, Poisson, Arrivals, base=Participation)
