"""Lower bound on ε from right guesses about canaries (Steinke, Nasr and Jagielski 2023, main theorem for (ε, δ)).

The paper is "Privacy Auditing with One (1) Training Run".

m fair coins decide which canaries take part in a run. From the releases an auditor guesses r of the coins, v of them
rightly. If the run is (ε, δ)-differentially private, then

    P[v or more are right] ≤ β + 2mδ·α,    β = P[W ≥ v],    α = max over i = 1 … m of P[v > W ≥ v − i] / i,

for W ~ Binomial(r, e^ε/(1 + e^ε)): a guess is at best as good as ε-randomised response, except for failures, at most 2mδ
in expectation; i failures help an auditor who lacks at most i right guesses. All canaries count in the δ term, since the
auditor chooses which coins to guess after seeing the releases. An ε whose probability is below 1 − confidence is refuted,
and the largest such ε is a lower bound. It never shows that a run is private.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc

from quorank.errors import require_range

LARGEST_EPSILON = 64.0  # limit on ε that canaries in memory can refute


def guess_accuracy(epsilon: float) -> float:
    """Return e^ε / (1 + e^ε), the accuracy of the best guess about one coin under ε-differential privacy."""
    return 1.0 / (1.0 + math.exp(-epsilon))


def at_least(correct: int, guesses: int, accuracy: float) -> float:
    """Compute β, P[W ≥ v] of a binomial W, by the regularised incomplete beta function I_p(v, r − v + 1)."""
    return float(betainc(correct, guesses - correct + 1, accuracy)) if correct > 0 else 1.0


def failure_gain(guesses: int, correct: int, accuracy: float) -> float:
    """Compute α, the largest of P[v > W ≥ v − i] / i, where i beyond v adds nothing to the numerator."""
    from scipy.stats import binom  # imported late: a bound at δ = 0 does not need it, and it takes a second

    if correct == 0:
        return 0.0
    below = binom.pmf(np.arange(correct - 1, -1, -1), guesses, accuracy)
    return float(np.max(np.cumsum(below) / np.arange(1, correct + 1)))


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float, enough: float = 1.0) -> float:
    """Compute β + 2mδ·α, at most 1: the probability of this many right guesses if the run is (ε, δ)-differentially private.

    Decreases with `correct` and increases with `guesses` and ε as long as 2mδ ≤ 1; increases with δ. Returns β where that
    is at least `enough`.
    """
    accuracy = guess_accuracy(epsilon)
    beta = at_least(correct, guesses, accuracy)
    if beta >= enough or delta == 0.0:
        return min(1.0, beta)
    return min(1.0, beta + 2.0 * canaries * delta * failure_gain(guesses, correct, accuracy))


def epsilon_lower_bound(canaries: int, guesses: int, correct: int, delta: float, confidence: float = 0.95) -> float:
    """Return the largest ε, to within 1e-9, that these guesses refute at this confidence; 0 if they refute none.

    The bound of an (ε*, δ)-differentially private run exceeds ε* with probability at most 1 − confidence.
    """
    require_range("confidence", confidence, above=0.0, below=1.0)
    unlikely = 1.0 - confidence
    if p_value(canaries, guesses, correct, 0.0, delta) >= unlikely:
        return 0.0
    refuted, possible = 0.0, LARGEST_EPSILON
    while possible - refuted > 1e-9:
        middle = 0.5 * (refuted + possible)
        unlikely_at = p_value(canaries, guesses, correct, middle, delta, unlikely) < unlikely
        refuted, possible = (middle, possible) if unlikely_at else (refuted, middle)
    return refuted
