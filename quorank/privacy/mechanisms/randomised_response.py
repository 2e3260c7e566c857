"""Randomised response on metrics that clients send.

**`RandomisedResponse`** (FOLtR-ES §3.3): the metric of an evolution-strategies client takes n values. The true one is
sent with probability p, else one of the n − 1 others uniformly. A client sends two numbers a round (the antithetic halves),
and ε adds up over them and over the rounds.

**`MetricResponse`**: one metric x from 0 to 1 for means over a cohort. It is rounded randomly to one of the m + 1 values
0, 1/m, …, 1, keeping its mean, and that value is sent with probability p = e^ε/(e^ε + m), else one of the m others, each
with q = 1/(e^ε + m). (v − q·Σv)/(p − q) is unbiased for x, where v is the reported value. m minimises the variance at the
worst x. With m = 1 it is the one-bit mechanism of Duchi, Jordan and Wainwright (2013, "Local privacy and statistical
minimax rates"), which is best below ε = log 3. Worst variances:

| ε | 0.1 | 0.5 | 1 | 2 | 3 | 4 | 8 |
|---|---|---|---|---|---|---|---|
| Laplace noise of scale 1/ε: 2/ε² | 200 | 8 | 2 | 0.5 | 0.222 | 0.125 | 0.0312 |
| one bit | 100 | 4.17 | 1.17 | 0.431 | 0.305 | 0.269 | 0.250 |
| m + 1 values | 100 | 4.17 | 1.17 | 0.25 | 0.0970 | 0.0442 | 0.00278 |
| m | 1 | 1 | 1 | 2 | 3 | 4 | 16 |

Both are sent as one of few values, so low-order bits leak nothing and invalid numbers are noticed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose
from quorank.privacy.accounting import Setting, check_delta
from quorank.privacy.mechanisms.mechanism import AddingUp, Plain, Privacy
from quorank.privacy.streams import Key, Seed, key_for, uniform_pair

LEAST, MOST = 0.01, 10.0  # bounds on ε of a reported metric


@dataclass(frozen=True)
class RandomisedResponse(Privacy):
    """Randomised response on a client's metrics: ε = log(p(n − 1)/(1 − p)) per sent number of n values (FOLtR-ES eq. 6).

    Args:
        p: Probability of the true value, above 1/n and below 1; the others share the rest.
        per: "message" rounds the mean over the interactions to one of the n values (randomly, keeping its mean) and
            randomises it once; "interaction" randomises each interaction's metric and averages the results, as in the
            published code, which spends ε once for every interaction.

    Raises:
        BadInput: `value.out-of-range` if `p` is not within (0, 1); from `mechanism`, `privacy.p-too-small` if it is at most
            1/n.

    >>> round(RandomisedResponse(p=0.9).epsilon(11), 3)
    4.5
    """

    kind: ClassVar[str] = "randomised-response"
    protects_metric: ClassVar[bool] = True
    protects_messages: ClassVar[bool] = True

    p: float = 0.9
    per: Literal["message", "interaction"] = "message"

    def __post_init__(self) -> None:
        sentence = f'must lie between 0 and 1, got {self.p}; without noise use privacy.kind = "none"'
        require(0.0 < self.p < 1.0, "value.out-of-range", sentence, "p")

    def check_values(self, values: int) -> None:
        sentence = f"must be above 1/{values}, the probability of a uniform answer, got {self.p}"
        require(self.p > 1.0 / values, "privacy.p-too-small", sentence, "privacy.p")

    def epsilon(self, n: int) -> float:
        """Return ε = log(p(n − 1)/(1 − p)), eq. 6, of one number with n possible values."""
        return math.log(self.p * (n - 1) / (1.0 - self.p))

    def privatise(self, measured: Doubles, values: Doubles, seed: Seed, round_: int, clients: Integers) -> Doubles:
        """Return the sent values (clients, 2) for measured metrics (clients, 2, interactions / 2)."""
        self.check_values(len(values))
        raw = measured if self.per == "interaction" else measured.mean(axis=2, keepdims=True)
        sent = np.empty_like(raw)
        _respond(raw, values, self.p, key_for(seed, Purpose.RESPONSE), round_, clients, sent)
        return np.asarray(sent.mean(axis=2), dtype=np.float64)

    def mechanism(self, setting: Setting, seed: Seed) -> ResponseMechanism:
        self.check_values(setting.values)
        return ResponseMechanism(self, setting)


@dataclass(frozen=True, eq=False)
class ResponseMechanism(AddingUp, Plain):
    """Mechanism of clients that randomise their metrics; messages are summed unchanged."""

    part: RandomisedResponse
    setting: Setting

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        setting, part = self.setting, self.part
        done = setting.rounds if rounds is None else rounds
        each = part.epsilon(setting.values)
        releases = (setting.interactions if part.per == "interaction" else 2) * setting.participations(done)
        sent = {"epsilon_per_number_sent": each, "numbers_sent": releases, "p": part.p, "values": setting.values}
        return setting.stated(part.kind, "local", done, each * releases, by=", by adding up") | sent


def metric_values(metric: str, k: int) -> Doubles:
    """Return the n = k + 1 possible values of a metric: 0, 1/k, …, 1/2, 1 for MaxRR; evenly spaced for nDCG."""
    if metric == "maxrr":
        return np.concatenate(([0.0], 1.0 / np.arange(k, 0, -1)))
    return np.linspace(0.0, 1.0, k + 1)


@kernel
def randomised_response(index: int, n: int, p: float, u: float, v: float) -> int:
    """Return `index` with probability p (u < p), else one of the n − 1 others uniformly (chosen by v)."""
    if u < p:
        return index
    other = min(int(v * (n - 1)), n - 2)
    return other if other < index else other + 1


@kernel
def round_at_random(x: float, values: Doubles, u: float) -> int:
    """Return the index of one of the two values around x, with mean x."""
    low = 0
    while low < len(values) - 1 and values[low + 1] <= x:
        low += 1
    if low == len(values) - 1 or x <= values[low]:
        return low
    return low + 1 if u < (x - values[low]) / (values[low + 1] - values[low]) else low


@kernel
def _respond(raw: Doubles, values: Doubles, p: float, key: Key, round_: int, clients: Integers, sent: Doubles) -> None:
    for at in range(len(clients)):
        for side in range(raw.shape[1]):
            for j in range(raw.shape[2]):
                draw = side * raw.shape[2] + j
                u, v = uniform_pair(key, 0, draw, clients[at], round_)
                w, _ = uniform_pair(key, 1, draw, clients[at], round_)
                index = round_at_random(raw[at, side, j], values, w)
                sent[at, side, j] = values[randomised_response(index, len(values), p, u, v)]


@dataclass(frozen=True)
class MetricResponse:
    """Randomised response of one run's reports.

    Args:
        epsilon: ε of one report, 0.01 to 10.

    Raises:
        BadInput: `value.out-of-range` if ε is outside its range.

    >>> MetricResponse(epsilon=4.0).steps
    4
    """

    epsilon: float

    def __post_init__(self) -> None:
        sentence = f"the epsilon of a report must lie between {LEAST} and {MOST:g}, got {self.epsilon}"
        require(LEAST <= self.epsilon <= MOST, "value.out-of-range", sentence)

    @cached_property
    def steps(self) -> int:
        """m, number of steps from 0 to 1 with the least variance at the worst metric."""
        return min(range(1, 65), key=lambda m: worst_variance(self.epsilon, m))

    @property
    def values(self) -> Doubles:
        """0, 1/m, …, 1."""
        return metric_values("ndcg", self.steps)

    @cached_property
    def variance(self) -> float:
        """Largest variance of one unbiased report over all metrics."""
        return worst_variance(self.epsilon, self.steps)

    def respond(self, x: float, seed: Seed, round_: int, client: int) -> int:
        """Return the report of the metric x, a number of steps."""
        require_range("reported metric", x, least=0.0, most=1.0)
        return int(self.respond_all(np.array([x]), seed, round_, np.array([client], dtype=np.int64))[0])

    def respond_all(self, metrics: Doubles, seed: Seed, round_: int, clients: Integers) -> Integers:
        """Return the reports of these clients (clients,) for their metrics (clients,) in [0, 1]."""
        part = RandomisedResponse(true_probability(self.epsilon, self.steps))
        sent = part.privatise(metrics[:, None, None], self.values, seed, round_, clients)
        return np.rint(sent[:, 0] * self.steps).astype(np.int64)

    def unbiased(self, steps: float, count: int = 1) -> float:
        """Return the unbiased mean metric of `count` clients from the sum of their reports; it may lie outside [0, 1]."""
        p, q = true_probability(self.epsilon, self.steps), other_probability(self.epsilon, self.steps)
        return (steps / (self.steps * count) - q * (self.steps + 1) / 2.0) / (p - q)

    def error(self, count: int) -> float:
        """Return the largest standard error of the mean of `count` reports through their noise."""
        return math.sqrt(self.variance / count)

    def epsilon_of(self, rounds: int, delta: float) -> float:
        """Compute ε at δ of `rounds` reports exactly: each loses ε, 0 or −ε with probability p, 1 − p − q and q."""
        check_delta(delta)
        p, q = true_probability(self.epsilon, self.steps), other_probability(self.epsilon, self.steps)
        size = 2 * rounds + 1
        powers = np.fft.rfft([q, 1.0 - p - q, p], size) ** rounds
        chances = np.maximum(np.fft.irfft(powers, size), 0.0)
        losses = self.epsilon * np.arange(-rounds, rounds + 1)

        def passed(epsilon: float) -> float:
            above = losses > epsilon
            return float(np.sum(chances[above] * -np.expm1(epsilon - losses[above])))

        low, high = 0.0, self.epsilon * rounds
        while high - low > 1e-9 * (1.0 + high):
            middle = (low + high) / 2.0
            low, high = (middle, high) if passed(middle) > delta else (low, middle)
        return high

    def statement(self, rounds: int, delta: float) -> dict[str, Any]:
        """Return the statement of `rounds` reports of one client."""
        horizon = f"{rounds} report{'s' if rounds != 1 else ''}, one a round, by adding up"
        stated = {"kind": "metric", "model": "local", "unit": "client", "epsilon_per_report": self.epsilon}
        whole = {"epsilon": self.epsilon * rounds, "delta": 0.0, "horizon": horizon}
        composed = {"epsilon": self.epsilon_of(rounds, delta), "delta": delta}
        return stated | whole | {"composed": composed, "values": self.steps + 1}


def true_probability(epsilon: float, m: int) -> float:
    """Return p = e^ε/(e^ε + m), the probability of the true value."""
    return 1.0 / (1.0 + m * math.exp(-epsilon))


def other_probability(epsilon: float, m: int) -> float:
    """Return q = 1/(e^ε + m), the probability of each other value."""
    return 1.0 / (math.exp(epsilon) + m)


def variance_at(x: float, epsilon: float, m: int) -> float:
    """Compute Var((v − q·Σv)/(p − q)): with x·m = i + f, E[v²] = (p − q)(i² + (2i + 1)f)/m² + q·Σv²."""
    p, q = true_probability(epsilon, m), other_probability(epsilon, m)
    i = min(math.floor(x * m), m - 1)
    f = x * m - i
    squares = (m + 1) * (2 * m + 1) / (6.0 * m)
    mean = (p - q) * x + q * (m + 1) / 2.0
    return ((p - q) * (i * i + (2 * i + 1) * f) / m**2 + q * squares - mean * mean) / (p - q) ** 2


def worst_variance(epsilon: float, m: int) -> float:
    """Compute the largest `variance_at` any x: between two values it is a parabola, whose top is known."""
    p, q = true_probability(epsilon, m), other_probability(epsilon, m)
    tops = [((2 * i + 1) / 2.0 - m * q * (m + 1) / 2.0) / (p - q) for i in range(m)]
    return max(variance_at(min(max(top, i), i + 1) / m, epsilon, m) for i, top in enumerate(tops))
