"""Privacy accounting of a whole run of noisy sums, by the accountants of the library `dp-accounting`.

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
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from quorank.errors import require, require_range
from quorank.privacy.setting import Setting

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Accountant = Literal["pld", "rdp"]

COARSE, FINE = 1e-3, 1e-4  # steps of a privacy loss distribution for the search and for the reported ε; both round up
LEAST_SAMPLED = 0.3  # smallest multiplier for sampled cohorts; the distributions of smaller ones exceed the memory
LARGEST_EPSILON = 1e12  # largest ε for which noise can be computed
LEAST_NOISE = 0.05  # smallest multiplier; the distributions of smaller ones exceed the memory


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
    check_delta(delta)
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
    check_delta(delta)
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
    """Refuse a δ outside [1e-12, 1), the precision of draws and distributions."""
    require_range("delta", delta, least=1e-12, below=1.0)
