"""Setting of a run, and the privacy accounting of its noisy sums by the accountants of the library `dp-accounting`.

The noise multiplier z is the standard deviation of the noise on the sum of a cohort's updates, divided by the clip.
With everyone in every round the T releases are together one Gaussian mechanism with multiplier z/√T, whose ε is known
in closed form (Balle and Wang 2018, as in the library). Sampled cohorts are composed from the library's privacy loss
distributions ("pld", tight) or Rényi divergences ("rdp", quicker, looser).

In open participation a client is in at most m of the T releases, which is no secret: ε is that of m releases without
amplification. Its rounds may depend on all earlier releases, since Gaussian releases compose by Σ z⁻² alone, which never
exceeds m·z⁻² (Smith and Thakurta 2022, "Fully Adaptive Composition for Gaussian Differential Privacy").
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from quorank.errors import BadInput, require, require_range

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Accountant = Literal["pld", "rdp"]

COARSE, FINE = 1e-3, 1e-4  # steps of a privacy loss distribution for the search and for the reported ε; both round up
LEAST_SAMPLED = 0.3  # smallest multiplier for sampled cohorts; the distributions of smaller ones exceed the memory
LARGEST_EPSILON = 1e12  # largest ε for which noise can be computed
LEAST_NOISE = 0.05  # smallest multiplier; the distributions of smaller ones exceed the memory
LEAST_DELTA = 1e-12  # smallest δ of a run, the precision of draws and distributions
LEAST_ACCOUNTED = LEAST_DELTA * (
    1.0 - 1e-6
)  # smallest δ of an accountant; a run reserves 1e-7 of its δ for discreteness


@dataclass(frozen=True)
class Turns:
    """Limits on the participation of one client, which devices and coordinator enforce from their own records.

    Args:
        most: m, largest number of rounds of the client; None is unlimited.
        rest: s, rounds of rest between two participations.

    >>> Turns(most=3, rest=1).busiest(rounds=8)
    range(0, 6, 2)
    """

    most: int | None = None
    rest: int = 0

    def __post_init__(self) -> None:
        if self.most is not None:
            require_range("most", self.most, least=1, below=2**31)
        require_range("rest", self.rest, least=0, below=2**31)

    def check(self, times: int, last: int, round_: int) -> None:
        """Refuse a client with `times` participations, the last in round `last`, that may not take part in this round."""
        if self.most is not None and times >= self.most:
            sentence = f"this client has taken part in {self.most} rounds, as many as it may in this run"
            raise BadInput("reply.too-often", sentence)
        if times > 0 and round_ - last <= self.rest:
            sentence = f"this client sits out {self.rest} rounds after each that it takes part in; come again later"
            raise BadInput("reply.resting", sentence)

    def busiest(self, rounds: int) -> range:
        """Return the rounds, min(m, ⌈rounds/(s + 1)⌉), of a client that participates as often as allowed."""
        return range(0, rounds, self.rest + 1)[: self.most]


@dataclass(frozen=True)
class Setting:
    """Releases of a whole run, as their accounting needs them.

    Args:
        clients: Number of clients.
        cohort: Clients of a round: the mean of Poisson samples, the maximum of open arrivals.
        rounds: T, planned rounds.
        participation: Rule that forms the cohorts.
        interactions: B, interactions of a client in a round.
        parameters: d, numbers of an update.
        values: Number of possible values of the metric of evolution strategies.
        most_rounds: m, largest number of rounds of one client, for open arrivals; None is unlimited.
        rest: s, rounds of rest between two participations, for open arrivals.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range; `option.conflict` for limits of a client without
            open arrivals.

    >>> Setting(clients=100, cohort=10, rounds=50, participation="sampled").rate
    0.1
    """

    clients: int
    cohort: int
    rounds: int
    participation: Literal["full", "sampled", "poisson", "arrivals"] = "full"
    interactions: int = 4
    parameters: int = 1
    values: int = 11
    most_rounds: int | None = None
    rest: int = 0

    def __post_init__(self) -> None:
        require_range("clients", self.clients, least=1)
        require_range("cohort", self.cohort, least=1, most=self.clients)
        require_range("rounds", self.rounds, least=1, below=2**31)
        for name in ("interactions", "parameters", "values"):
            require_range(name, getattr(self, name), least=1)
        require(
            self.participation != "full" or self.cohort == self.clients,
            "value.out-of-range",
            f"with full participation the cohort is everyone ({self.clients}), got {self.cohort}",
            "cohort",
        )
        limited = self.turns != Turns()  # raises for limits out of range
        sentence = "needs open participation: use participation arrivals"
        where = "rest" if self.most_rounds is None else "most_rounds"
        require(not limited or self.open_arrivals, "option.conflict", sentence, where)

    @property
    def turns(self) -> Turns:
        """Limits on the participation of one client."""
        return Turns(self.most_rounds, self.rest)

    @property
    def draws_cohorts(self) -> bool:
        """True if cohorts are drawn, so that ε may rely on their secrecy."""
        return self.participation in ("sampled", "poisson")

    @property
    def open_arrivals(self) -> bool:
        """True for open participation, whose cohorts are no secret."""
        return self.participation == "arrivals"

    @property
    def known_size(self) -> bool:
        """True if every cohort has the planned size."""
        return self.participation in ("full", "sampled")

    @property
    def rate(self) -> float:
        """Share of the clients in a cohort."""
        return self.cohort / self.clients

    @property
    def neighbouring(self) -> str:
        """Neighbouring relation of the guarantee."""
        if self.participation == "sampled":
            return "replace one client by another"
        if self.open_arrivals:
            return "one client's replies count as zero; its participation is not hidden"
        return "add or remove one client"

    def participations(self, rounds: int | None = None) -> int:
        """Return the largest number of participations of one client in the first `rounds` rounds (all by default).

        For drawn cohorts that is all of them; the accountant counts the sampling.
        """
        return len(self.turns.busiest(self.rounds if rounds is None else rounds))

    def table(self) -> dict[str, Any]:
        """Return the fields by name, with the limits of one client only for open participation."""
        found = asdict(self)
        unlimited = [name for name in ("most_rounds", "rest") if not self.open_arrivals or found[name] is None]
        return {name: value for name, value in found.items() if name not in unlimited}

    def horizon(self, rounds: int | None = None) -> str:
        """Return the horizon of the first `rounds` rounds (all by default), as statements and reports print it."""
        done = self.rounds if rounds is None else rounds
        whole = f"whole run of {done} round{'s' if done != 1 else ''}"
        times = f", of which a client is in at most {self.participations(done)}"
        return whole + times if self.open_arrivals else whole

    def stated(
        self, kind: str, model: str, done: int, epsilon: float | None, delta: float = 0.0, by: str = "", pairs: str = ""
    ) -> dict[str, Any]:
        """Return the ε of a statement of `done` rounds, computed `by` a method for neighbouring `pairs`."""
        neighbouring = {"neighbouring": pairs} if pairs else {}
        budget = {"epsilon": epsilon, "delta": delta, "horizon": self.horizon(done) + by, "rounds": done}
        return {"kind": kind, "model": model, "unit": "client"} | neighbouring | budget


def event(setting: Setting, noise_multiplier: float, accountant: Accountant = "pld") -> DpEvent:
    """Return the release of one round as an event of the library.

    For privacy loss distributions a cohort of fixed size is a Poisson sample of rate 1 truncated to that size; the Rényi
    accountant has a separate event, in which replacing a client moves the sum by two clips. For a cohort of all clients
    nothing is truncated and the library would count one clip, so the event is a Gaussian release with two clips.
    """
    import dp_accounting as dp

    if not setting.draws_cohorts:
        return dp.GaussianDpEvent(noise_multiplier)
    if setting.participation == "poisson":
        return dp.PoissonSampledDpEvent(setting.rate, dp.GaussianDpEvent(noise_multiplier))
    replaced = dp.GaussianDpEvent(noise_multiplier / 2.0)
    if setting.cohort == setting.clients:
        return replaced
    if accountant == "pld":
        return dp.TruncatedSubsampledGaussianDpEvent(setting.clients, 1.0, setting.cohort, noise_multiplier)
    return dp.SampledWithoutReplacementDpEvent(setting.clients, setting.cohort, replaced)


def epsilon(
    setting: Setting, noise_multiplier: float, delta: float, accountant: Accountant = "pld", rounds: int | None = None
) -> float:
    """Compute ε at δ after `rounds` rounds of the setting (all of them by default)."""
    require_range("delta", delta, least=LEAST_ACCOUNTED, below=1.0)
    require_range("noise multiplier", noise_multiplier, least=LEAST_NOISE)
    counted = setting.participations(rounds)
    return _epsilon(pattern_of(setting), noise_multiplier, delta, accountant, counted, FINE) if counted > 0 else 0.0


@lru_cache(maxsize=4096)
def _epsilon(setting: Setting, z: float, delta: float, accountant: Accountant, rounds: int, step: float) -> float:
    if setting.participation == "full" and accountant == "pld":
        from dp_accounting import gaussian_mechanism

        return float(gaussian_mechanism.get_epsilon_gaussian(z / math.sqrt(rounds), delta))
    import dp_accounting as dp
    from dp_accounting import pld, rdp

    sampled, relation = setting.participation == "sampled", dp.NeighboringRelation
    # bound for large cohorts: full participation, where replacing a client moves the sum by two clips
    everyone = Setting(setting.clients, setting.clients, rounds)
    if sampled and setting.cohort == setting.clients:
        return _epsilon(everyone, z / 2.0, delta, accountant, rounds, step)
    if accountant == "pld":
        counting = pld.PLDAccountant(value_discretization_interval=step)
    else:
        neighbours = relation.REPLACE_ONE if sampled else relation.ADD_OR_REMOVE_ONE
        counting = rdp.RdpAccountant(neighboring_relation=neighbours)
    composed = dp.SelfComposedDpEvent(event(setting, z, accountant), rounds)
    with quiet_library():
        found = float(counting.compose(composed).get_epsilon(delta))
    if sampled:
        found = min(found, _epsilon(everyone, z / 2.0, delta, accountant, rounds, step))
    return found


def noise_multiplier(setting: Setting, target: float, delta: float, accountant: Accountant = "pld") -> float:
    """Compute the smallest z at which the whole run stays within (target, δ)."""
    require_range("delta", delta, least=LEAST_ACCOUNTED, below=1.0)
    require_range("epsilon", target, above=0.0, most=LARGEST_EPSILON)
    return _noise_multiplier(pattern_of(setting), target, delta, accountant)


def pattern_of(setting: Setting) -> Setting:
    """Return the setting reduced to the fields that accounting depends on, as a cache key.

    Open participation with m rounds per client is full participation in m rounds.
    """
    if setting.open_arrivals:
        return Setting(1, 1, setting.participations())
    return Setting(setting.clients, setting.cohort, setting.rounds, setting.participation)


@lru_cache(maxsize=256)
def _noise_multiplier(setting: Setting, target: float, delta: float, accountant: Accountant) -> float:
    if setting.participation == "full" and accountant == "pld":
        from dp_accounting import gaussian_mechanism

        exact = gaussian_mechanism.get_sigma_gaussian(target, delta) * math.sqrt(setting.rounds)
        return smallest(lambda z: epsilon(setting, z, delta) <= target, float(exact), 1e-9)

    def search(accountant: Accountant, start: float, precision: float, step: float, least: float) -> float:
        def enough(z: float) -> bool:
            return _epsilon(setting, z, delta, accountant, setting.rounds, step) <= target

        return smallest(enough, start, precision, least)

    if accountant == "rdp":
        return search("rdp", 1.0, 1e-6, FINE, LEAST_NOISE)
    by_renyi = search("rdp", 1.0, 1e-3, FINE, LEAST_SAMPLED)
    near = search("pld", by_renyi, 3e-4, COARSE, LEAST_SAMPLED)
    while epsilon(setting, near, delta) > target:  # finer steps are tighter, so this should never be
        near *= 1.001
    return near


def smallest(enough: Callable[[float], bool], start: float, precision: float, least: float = LEAST_NOISE) -> float:
    """Search the smallest z with `enough`, to a relative precision from above; every larger z must be enough too."""
    high = start
    while not enough(high):
        high *= 1.0 + max(precision, 1e-12) if high == start else 1.5
        sentence = "this budget needs more noise than can be accounted for: raise epsilon or delta"
        require(high < 1e12, "privacy.too-much-noise", sentence)
    low = high / 1.5
    while enough(low):
        high, low = low, low / 1.5
        sentence = "this budget needs next to no noise: lower epsilon, or account for nothing"
        require(low >= least, "privacy.too-little-noise", sentence)
    while high - low > precision * high:
        middle = (high + low) / 2.0
        high, low = (middle, low) if enough(middle) else (high, middle)
    return high


def spent(
    setting: Setting, noise_multiplier: float, delta: float, accountant: Accountant = "pld"
) -> list[tuple[int, float]]:
    """Return (rounds done, ε spent by then) over the run, for its curve."""
    most = 60 if not setting.draws_cohorts or accountant == "rdp" else 8
    count = min(most, setting.rounds)
    marks = sorted({round(setting.rounds * (i + 1) / count) for i in range(count)})
    return [(t, epsilon(setting, noise_multiplier, delta, accountant, t)) for t in marks]


@contextmanager
def quiet_library() -> Iterator[None]:
    """Silence the library's warnings about Rényi orders that it leaves out; the bound holds without them."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def check_delta(delta: float) -> None:
    """Refuse a δ of a run outside [1e-12, 1)."""
    require_range("delta", delta, least=LEAST_DELTA, below=1.0)
