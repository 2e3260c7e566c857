"""Clipped parameters and Laplace noise in shares, exactly as published (FPDGD algorithm 3, eqs 13 to 16).

The paper's ε understates the privacy loss:

- Laplace noise of scale Δ/ε gives ε for an L1 sensitivity Δ, but the clip bounds the L2 norm; in L1 two clipped
  vectors may be up to √d·Δ apart, so one round may cost up to √d·ε;
- each client adds only the n-th part of the noise, so it is complete only if all n clients are honest and present;
- ε is of one round, and nothing is added up: T rounds may cost T times as much;
- the bound is on the noisy sum. A single message carries almost no noise;
- the shares are floating-point numbers, whose possible values depend on the update, so exact rankers may leak more than any
  ε (Mironov 2012, "On significance of the least significant bits for differential privacy").

For the last reason no ε is stated. With exact noise: the parameters of a client lie in a ball of diameter Δ in L2, so
within √d·Δ in L1; the sum of n of them has Laplace noise of scale Δ/ε; so one round costs up to √d·ε, and T rounds up to
T·√d·ε, for one client whose data are replaced. This needs n shares and equal weights, so cohorts of varying size and
clients with different numbers of interactions are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose
from quorank.privacy.accounting import Setting
from quorank.privacy.mechanisms.mechanism import Mechanism, Memory, Privacy, Sum, incomplete_noise
from quorank.privacy.streams import Key, Seed, key_for, uniform_pair

NEGLIGIBLE = -48.0
"""Logarithm of the relative size below which a share is 0, as most are, since their shape 1/n is small."""


@dataclass(frozen=True)
class PublishedLaplace(Privacy):
    """FPDGD's mechanism: parameters clipped to Δ/2 after each local step, then γ − γ' on each number (eqs 13 to 16).

    γ and γ' are drawn from Gamma(1/n, Δ/ε) by each of the n clients of a cohort, so that their sum has Laplace noise of
    scale Δ/ε. The paper's ε understates the loss (see above), and no ε is stated.

    Args:
        epsilon: ε of the paper, of one round, above 0.
        sensitivity: Δ, twice the bound on the L2 norm of a client's parameters, above 0.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range; from `mechanism`, `option.conflict` for cohorts of
            unknown size.

    >>> PublishedLaplace(epsilon=4.5, sensitivity=3.0).longest_update
    1.5
    """

    kind: ClassVar[str] = "published"
    needs_client_parameters: ClassVar[bool] = True
    needs_equal_shares: ClassVar[bool] = True
    noise_on_sums: ClassVar[bool] = True

    epsilon: float = 4.5
    sensitivity: float = 5.0

    def __post_init__(self) -> None:
        require_range("epsilon", self.epsilon, above=0.0)
        require_range("sensitivity", self.sensitivity, above=0.0)

    @property
    def longest_update(self) -> float:  # type: ignore[override]
        return self.sensitivity / 2.0

    def mechanism(self, setting: Setting, seed: Seed) -> PublishedMechanism:
        require(setting.known_size, "option.conflict", incomplete_noise(self.kind), "privacy")
        return PublishedMechanism(self, setting, seed)


@dataclass(frozen=True, eq=False)
class PublishedMechanism(Mechanism):
    """Gamma shares of Laplace noise on every number of an update (eqs 15 and 16)."""

    part: PublishedLaplace
    setting: Setting
    seed: Seed

    weighted: ClassVar[bool] = True
    promise = (
        "a small share of noise added here: it protects the sum if all clients are honest and present; the "
        "coordinator can nearly read this update"
    )

    @property
    def bound(self) -> float:
        """Δ/2 (eq. 13)."""
        return self.part.sensitivity / 2.0

    @property
    def scale(self) -> float:
        """λ = Δ/ε, scale of the Laplace noise and of its gamma shares."""
        return self.part.sensitivity / self.part.epsilon

    def release(self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: Memory) -> int:
        """Add γ − γ' to each update: equivalent to sending θ + γ − γ', as all clients start from the same θ."""
        key = key_for(self.seed, Purpose.NOISE_SHARE)
        _add_shares(updates, 1.0 / self.setting.cohort, self.scale, key, round_, clients)
        return 0

    def finish(self, total: Doubles, weight: float, within: int, count: int, round_: int, memory: Memory) -> Sum:
        # Σ n_c·(γ − γ') over a mean weight n_c = weight/count: Laplace noise of scale Δ/ε times that weight
        deviation = math.sqrt(2.0) * self.scale * weight / max(count, 1)
        return Sum(total, weight, memory, self.part.sensitivity, deviation)

    def statement(self, rounds: int | None = None) -> dict[str, Any]:
        """Return the published ε and the cost of exact noise under their own names; no ε."""
        setting, part = self.setting, self.part
        done = setting.rounds if rounds is None else rounds
        root = math.sqrt(setting.parameters)
        return setting.stated(part.kind, "central", done, None, pairs="replace one client's data") | {
            "noise_multiplier": math.sqrt(2.0) / part.epsilon,
            "published_epsilon": part.epsilon,
            "exact_noise_epsilon": part.epsilon * root * done,
            "sensitivity": part.sensitivity,
            "warning": (
                f"the published ε = {part.epsilon:g} (at δ = 0, unit client) is of one round and takes an L2 clip for an "
                f"L1 sensitivity, which understates it by up to √{setting.parameters} = {root:.1f}; nothing is added up "
                "over rounds, and the noise is complete only if every client is honest and present; no ε is stated, "
                "because floating-point noise as published can be attacked: with exact noise, and every client honest and "
                f"present, the {setting.horizon(done)} would cost a client up to {part.epsilon * root * done:.4g} at δ = 0"
            ),
        }


@kernel
def gamma_share(
    shape: float, scale: float, key: Key, first: int, coordinate: int, client: int, round_: int
) -> tuple[float, int]:
    """Draw from Gamma(shape < 1, scale) (eq. 16); returns the draw and the address of the next one.

    Gamma(shape) is Gamma(shape + 1)·U^(1/shape), and Gamma(shape + 1) is drawn by Marsaglia and Tsang's rejection.
    """
    u, _ = uniform_pair(key, first, coordinate, client, round_)
    at = first + 1
    power = math.log(1.0 - u) / shape
    if power < NEGLIGIBLE:
        return 0.0, at
    d = shape + 1.0 - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        a, b = uniform_pair(key, at, coordinate, client, round_)
        w, _ = uniform_pair(key, at + 1, coordinate, client, round_)
        at += 2
        x = math.sqrt(-2.0 * math.log(1.0 - a)) * math.cos(2.0 * math.pi * b)
        root = 1.0 + c * x
        v = root * root * root  # not a power, whose bits differ between Numba and Python
        if v > 0.0 and math.log(1.0 - w) < 0.5 * x * x + d - d * v + d * math.log(v):
            return scale * d * v * math.exp(power), at


@kernel
def _add_shares(updates: Doubles, shape: float, scale: float, key: Key, round_: int, clients: Integers) -> None:
    """Add γ − γ' to every number (algorithm 3)."""
    for i in range(updates.shape[0]):
        for j in range(updates.shape[1]):
            plus, at = gamma_share(shape, scale, key, 0, j, clients[i], round_)
            minus, at = gamma_share(shape, scale, key, at, j, clients[i], round_)
            updates[i, j] += plus - minus
