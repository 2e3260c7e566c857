"""Planning of a study: the clients that it needs, by simulated power (Hartmann et al. 2019, §6.2).

A pilot gives the distribution of clients' means. Studies are drawn from it: the controls as they are, the treatment
with the effect that must not be missed, both analysed with the Mann-Whitney U test at the corrected α. The smallest
study that rejects often enough is the plan. An effect lowers a client's mean x in proportion to its distance from the
least possible value a: a + (x − a)·(1 − δ/(mean − a)). Nobody types fewer letters than one, so a lower mean affects
mostly those who type much.

Draws are addressed by (study, arm, client), so a larger study contains the smaller one, and the search for the smallest
compares sizes on the same draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.tuning.studies.analysis import mann_whitney
from quorank.tuning.studies.study import Study

LEAST = {"characters": 1.0, "rank": 0.0}  # a: the least value that a metric can take

MOST_CLIENTS = 5_000_000
BLOCK = 128  # studies that are drawn at once
MOST_DRAWS = 20_000_000  # clients drawn for one size: larger studies are simulated less often


@dataclass(frozen=True)
class Plan:
    """Size of a study, with the power that was simulated for it."""

    metric: str
    effect: float
    alpha: float  # of one comparison, after correction
    power: float  # asked for
    clients: int  # of all arms together
    arms: dict[str, int]  # clients of each
    achieved: float  # share of simulated studies that reject
    simulations: int
    pilot_clients: int
    pilot_mean: float
    pilot_deviation: float


def with_effect(pilot: Doubles, effect: float, least: float) -> Doubles:
    """Return the pilot's values (clients,) with their mean lowered by `effect`."""
    room = float(pilot.mean()) - least
    wrong = f"an effect of {effect:g} cannot be had: the pilot's mean is only {room:g} above the least value {least:g}"
    require(0 < effect < room, "study.effect-too-large", wrong)
    return least + (pilot - least) * (1.0 - effect / room)


def count_rejections(
    treated: Doubles, pilot: Doubles, n: int, m: int, alpha: float, *, seed: int, simulations: int
) -> int:
    """Count the studies, of `simulations` with n treated and m control clients, that reject at α, two-sided."""
    from scipy.stats import mannwhitneyu

    found = 0
    for start in range(0, simulations, BLOCK):
        studies = range(start, min(start + BLOCK, simulations))
        a = np.array([treated[_resampled(seed, study, 0, n, len(treated))] for study in studies])
        b = np.array([pilot[_resampled(seed, study, 1, m, len(pilot))] for study in studies])
        found += int(np.sum(mannwhitneyu(a, b, axis=1, method="asymptotic").pvalue < alpha))
    return found


def _resampled(seed: int, study: int, side: int, size: int, values: int) -> Integers:
    """Draw the rows (size,) of the clients of one arm, with replacement; a larger arm begins with the smaller one."""
    return (uniforms(seed, Purpose.STUDY, size, round_=side, client=study) * values).astype(np.int64)


def noether_clients(larger: float, share: float, alpha: float, power: float) -> float:
    """Compute the clients of two arms, (z_{1−α/2} + z_power)² / (12·c·(1 − c)·(P − 1/2)²) (Noether, JASA 1987).

    larger: P, the chance that a value of the one arm is above one of the other; share: c, of the first arm.
    """
    from scipy.special import ndtri

    away = (larger - 0.5) ** 2
    z = float(ndtri(1 - alpha / 2) + ndtri(power))
    return math.inf if away == 0 else z * z / (12.0 * share * (1.0 - share) * away)


def arm_sizes(study: Study, clients: int) -> dict[str, int]:
    """Return the clients of each arm, rounded up."""
    return {arm: max(1, math.ceil(share * clients - 1e-9)) for arm, share in study.arms.items()}


def plan_study(study: Study, pilot: npt.ArrayLike, *, seed: int = 1, simulations: int = 2000) -> Plan:
    """Find the fewest clients with which the study's first arm differs from each other arm with the wanted power.

    pilot: the means of clients in the study's metric, as they are without a treatment.
    """
    values = np.asarray(pilot, dtype=np.float64)
    enough = values.ndim == 1 and len(values) >= 20 and np.isfinite(values).all()
    require(enough, "pilot.too-small", f"a pilot needs the means of at least 20 clients, got {values.size}")
    require(values.std() > 0, "pilot.no-spread", "all clients of the pilot have the same mean: nothing can be planned")
    require_range("simulations", simulations, least=100)
    treated = with_effect(values, study.effect, LEAST[study.metric])
    first, *others = study.arms
    smallest = min(others, key=lambda arm: study.arms[arm])

    both = study.arms[first] + study.arms[smallest]
    larger = mann_whitney(treated, values)[0] / len(values) ** 2
    share = study.arms[first] / both
    guess = noether_clients(larger, share, study.corrected_alpha, study.power) / both
    many = f"an effect of {study.effect:g} would need more than {MOST_CLIENTS:,} clients; plan for a larger one"
    require(guess < MOST_CLIENTS, "study.effect-too-small", many)
    times = min(simulations, max(100, int(MOST_DRAWS / guess)))

    @cache
    def rejected(clients: int) -> int:
        sizes, alpha = arm_sizes(study, clients), study.corrected_alpha
        return count_rejections(treated, values, sizes[first], sizes[smallest], alpha, seed=seed, simulations=times)

    wanted = study.power * times
    high = max(2 * math.ceil(1 / study.arms[smallest]), math.ceil(1.25 * guess))
    while rejected(high) < wanted:
        high *= 2
    low = min(high // 2, math.floor(0.75 * guess))
    while low > 1 and rejected(low) >= wanted:
        low, high = low // 2, low
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if rejected(middle) >= wanted else (middle, high)
    arms = arm_sizes(study, high)
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    return Plan(
        study.metric, study.effect, study.corrected_alpha, study.power, sum(arms.values()), arms, rejected(high) / times,
        times, len(values), mean, deviation,
    )  # fmt: skip
