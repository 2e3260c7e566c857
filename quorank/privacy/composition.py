"""Composition of the losses of several mechanisms: one ε at one δ for all releases together.

A run's releases, its rebuildings, the reports of devices and other runs of the same clients add up to one loss, whose parts
are kept in the form that composes most tightly:

- Gaussian releases of full or open participation: the multipliers z₁ … z_k of a client's releases are one release
  with (Σ z_t⁻²)^(−1/2), whose ε is exact;
- Gaussian releases of drawn cohorts: privacy loss distributions, convolved with that one release (`dp-accounting`);
- Skellam noise: Rényi divergences, which add up at every order, those of the one Gaussian release included;
- discrete Gaussian noise is counted as Gaussian, and what discreteness adds (`epsilon_slack`) once for all of it;
- pure ε (randomised response, signs): it is added to the rest.

Rényi divergences and drawn cohorts together get half of δ each. The noise must be independent and the neighbouring relation
the same: a client whose updates count as zero. Adding or removing a client is equivalent, for sums divided by a planned
number, and replacing a client implies it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np

from quorank.errors import require
from quorank.privacy import accounting
from quorank.privacy.accounting import Setting
from quorank.privacy.mechanisms.discrete_gaussian import IntegerNoise, epsilon_slack, gaussian_delta
from quorank.privacy.mechanisms.skellam import ORDERS

NOTHING_COUNTS = "one client's updates count as zero, in all of them"
"""Neighbouring relation that every other one implies."""


class DrawnCohorts(NamedTuple):
    """Rounds of Gaussian releases whose cohorts are drawn."""

    setting: Setting  # its pattern: clients, cohort, participation
    noise_multiplier: float
    rounds: int


@dataclass(frozen=True)
class Loss:
    """Privacy loss of releases about one client, in the forms that compose tightly.

    >>> (Loss(pure=1.0) + Loss(pure=0.5)).pure
    1.5
    """

    gaussian: float = 0.0  # Σ z⁻² of releases that a client is known to be in
    drawn: tuple[DrawnCohorts, ...] = ()
    renyi: tuple[float, ...] = ()  # divergences at `skellam.ORDERS`; or empty
    pure: float = 0.0  # ε at δ = 0
    whole: tuple[IntegerNoise, ...] = ()  # discrete noise that is counted as Gaussian above

    def __add__(self, other: Loss) -> Loss:
        both = (self.renyi, other.renyi)
        renyi = tuple(a + b for a, b in zip(*both, strict=True)) if all(both) else self.renyi or other.renyi
        return Loss(
            self.gaussian + other.gaussian,
            self.drawn + other.drawn,
            renyi,
            self.pure + other.pure,
            self.whole + other.whole,
        )

    @property
    def needs_delta(self) -> bool:
        """True if there is an ε at δ > 0 only."""
        return bool(self.gaussian or self.drawn or self.renyi)


class Composed(NamedTuple):
    """ε of a loss at δ."""

    epsilon: float
    delta: float
    method: str  # of computation


def total_loss(losses: Iterable[Loss]) -> Loss:
    """Add up losses of releases with independent noise."""
    return reduce(Loss.__add__, losses, Loss())


def gaussian_loss(setting: Setting, noise_multiplier: float, rounds: int) -> Loss:
    """Return the loss of rounds of Gaussian releases under the participation of a setting."""
    if rounds == 0:
        return Loss()
    if not setting.draws_cohorts:
        return Loss(gaussian=setting.participations(rounds) / noise_multiplier**2)
    pattern = accounting.pattern_of(setting)
    return Loss(drawn=(DrawnCohorts(pattern, noise_multiplier, rounds),))


def compose(loss: Loss, delta: float) -> Composed:
    """Compute the ε of a loss at δ."""
    if not loss.needs_delta:
        return Composed(loss.pure, delta, "pure ε is added" if loss.pure > 0.0 else "nothing was released")
    sentence = f"the composed releases use up δ = 0: ask for a larger δ than {delta:g}"
    require(delta > 0.0, "privacy.delta-used-up", sentence, "delta")
    accounting.check_delta(delta)
    gaussian = gaussian_delta(delta) if loss.whole else delta
    epsilon, method = _noisy_sums(Loss(loss.gaussian, loss.drawn, loss.renyi), gaussian)
    if loss.whole:
        epsilon += epsilon_slack(loss.whole, epsilon, delta)
    return Composed(epsilon + loss.pure, delta, f"{method}; pure ε is added" if loss.pure > 0.0 else method)


@lru_cache(maxsize=512)
def _noisy_sums(loss: Loss, delta: float) -> tuple[float, str]:
    """Return the smallest ε of the noisy sums of a loss over all methods, and the method."""
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    everyone = math.fsum([loss.gaussian, *(_as_everyone(cohorts) for cohorts in loss.drawn)])
    if not loss.renyi:
        ways = [(float(get_epsilon_gaussian(everyone**-0.5, delta)), "as one Gaussian release")]
        if loss.drawn:
            ways.append((_distributions(loss, delta), "privacy loss distributions, dp-accounting"))
        return min(ways)
    ways = [(_renyi(loss.renyi, everyone, delta), "Rényi divergences, converted by dp-accounting")]
    if loss.drawn:
        halves = _renyi(loss.renyi, loss.gaussian, delta / 2.0) + _distributions(Loss(drawn=loss.drawn), delta / 2.0)
        ways.append((halves, "Rényi divergences and privacy loss distributions, dp-accounting, half of δ each"))
    return min(ways)


def _as_everyone(cohorts: DrawnCohorts) -> float:
    """Return Σ z⁻² for full participation; in cohorts of fixed size replacing a client moves the sum by two clips."""
    clips = 2.0 if cohorts.setting.participation == "sampled" else 1.0
    return cohorts.rounds * (clips / cohorts.noise_multiplier) ** 2


def _distributions(loss: Loss, delta: float) -> float:
    import dp_accounting as dp
    from dp_accounting import pld

    counting = pld.PLDAccountant(value_discretization_interval=accounting.FINE)
    with accounting.quiet_library():
        if loss.gaussian > 0.0:
            counting.compose(dp.GaussianDpEvent(loss.gaussian**-0.5))
        for setting, noise_multiplier, rounds in loss.drawn:
            counting.compose(accounting.event(setting, noise_multiplier), rounds)
        return float(counting.get_epsilon(delta))


def _renyi(divergences: tuple[float, ...], squares: float, delta: float) -> float:
    """Return ε of Rényi divergences at ORDERS and of one Gaussian release, α·z⁻²/2 at order α."""
    from dp_accounting.rdp import compute_epsilon

    together = np.asarray(divergences) + 0.5 * squares * np.asarray(ORDERS, dtype=np.float64)
    epsilon, _ = compute_epsilon(ORDERS, together, delta)
    return float(epsilon)
