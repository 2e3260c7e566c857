"""Randomised response on the metric that an evolution-strategies client sends (FOLtR-ES §3.3).

The metric takes n values. The true one is sent with probability p, else one of the n − 1 others uniformly: ε-local
differential privacy with ε = log(p(n − 1)/(1 − p)) (eq. 6) per sent number. A client sends two numbers a round (the
antithetic halves), so ε adds up over them and over the rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose
from quorank.privacy.mechanisms.mechanism import AddingUp, Plain, Privacy
from quorank.privacy.setting import Setting
from quorank.privacy.streams import Key, Seed, key_for, uniform_pair


@dataclass(frozen=True)
class RandomisedResponse(Privacy):
    """Randomised response on a client's metrics.

    >>> round(RandomisedResponse(p=0.9).epsilon(11), 3)
    4.5

    `per = "message"`: the mean over the interactions is rounded (at random, keeping its mean) to one of the n values
    and privatised once. `per = "interaction"`: each interaction's metric is privatised and the results are averaged,
    as in the published code, which spends ε once for every interaction.
    """

    kind: ClassVar[str] = "randomised-response"
    protects_metric: ClassVar[bool] = True
    protects_messages: ClassVar[bool] = True

    p: float = 0.9  # p, probability of the true value
    per: Literal["message", "interaction"] = "message"  # privatise the mean over interactions, or the metric of each

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
