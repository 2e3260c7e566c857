"""Server optimisers: steps of θ by the mean update (Reddi et al. 2021).

An update ascends, so every step adds. `memory` is the optimiser's explicit state, saved with the run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Booleans, Doubles
from quorank.parts import Family

Memory = dict[str, Doubles]

AVERAGE = "average"  # key of the published ranker in the memory, if that is not θ
NOISE = "noise"  # key of the noise on each number of θ in the memory (`noise_of_means`)


class Recursion(NamedTuple):
    """Steps m ← β·m + u and θ ← θ + step·m."""

    step: float
    beta: float  # β
    momentum: Doubles  # m
    stacks: bool = False  # m is all that `advance` remembers, and it also takes (rounds, size) arrays


@dataclass(frozen=True)
class Server(ABC):
    """Base class of server optimisers.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Decaying(Server):
    ...     kind = "decaying"
    ...
    ...     def start(self, size):
    ...         return {"rounds": np.zeros(1)}
    ...
    ...     def advance(self, theta, update, memory):
    ...         rounds = memory["rounds"] + 1
    ...         return theta + update / rounds, {"rounds": rounds}
    >>> theta, memory = Decaying().advance(np.zeros(2), np.ones(2), {"rounds": np.ones(1)})
    >>> theta
    array([0.5, 0.5])
    """

    kind: ClassVar[str]

    @abstractmethod
    def start(self, size: int) -> Memory:
        """Return the memory before the first round, for θ of `size` parameters."""

    @abstractmethod
    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        """Return θ and the memory after a round.

        Args:
            theta: (size,) θ before the round.
            update: (size,) mean update u of the round, in the direction of ascent.
            memory: State of the optimiser after the round before.
        """

    def with_noise(self, memory: Memory, noise: float) -> Memory:
        """Return the memory before a round whose mean update has noise of this standard deviation on each number."""
        return memory

    def suited_to_noise(self, step: float) -> Server:
        """Return the server recommended for accounted noise and this step; by default itself."""
        return self

    def shorten(self, memory: Memory, which: Booleans) -> Memory:
        """Return the memory with shorter steps of the masked parameters (size,), for a step per parameter."""
        return memory

    def recursion(self, size: int, memory: Memory) -> Recursion | None:
        """Return the next steps as a recursion of momentum, or None."""
        return None

    def choices(self, theta: Doubles, memory: Memory) -> dict[float, Doubles]:
        """Return the candidates for publication by γ (∞ is θ itself), the default first; a validation split decides."""
        return {}


@dataclass(frozen=True)
class Add(Server):
    """Constant step θ ← θ + step·u: federated averaging for step 1 (FPDGD algorithm 2), SGD on the server otherwise.

    The published ranker may be a mean of all θ, in which round t counts t^γ, while clients still learn from θ. γ = 0 is
    the plain mean (Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging"); γ < 0 favours
    early rounds, against overfitting to a few repeated queries. A shrunk mean moves each number towards its first value
    by λ standard deviations of its noise, where that is known (`soft_threshold`). Both are post-processing and cost no
    privacy.

    With ρ above 0 each update is u − ρ·(θ − θ_first), the ascent with a penalty ρ/2·‖θ − θ_first‖²: it keeps a good
    start and bounds the accumulated noise.

    Args:
        step: Step size, above 0; 1 is federated averaging.
        average: γ in [−10, 10] of the published mean; None publishes θ.
        among: Up to 16 other γ; a validation split publishes the best of all, θ included.
        shrink: λ in [0, 100], standard deviations of its noise by which each number of the mean shrinks.
        pull: ρ, strength of the pull towards the first θ, at least 0 and below 1/step.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range; `add.pull-overshoots` if step·pull ≥ 1;
            `add.no-mean` for `among` or `shrink` without `average`; `add.twice` if a γ occurs twice.

    >>> Add(step=2.0).advance(np.zeros(1), np.array([0.5]), {})[0]
    array([1.])
    """

    kind: ClassVar[str] = "add"

    step: float = 1.0
    average: float | None = None
    among: tuple[float, ...] = ()
    shrink: float = 0.0
    pull: float = 0.0

    def __post_init__(self) -> None:
        require_range("step", self.step, above=0.0)
        require_range("pull", self.pull, least=0.0)
        overshoots = f"must be below 1/step, or steps overshoot, got {self.pull} with step {self.step}"
        require(self.step * self.pull < 1.0, "add.pull-overshoots", overshoots, "pull")
        require_range("shrink", self.shrink, least=0.0, most=100.0)
        sentence = "needs a mean of rankers: set average too, 0.0 for equal weights of all rounds"
        for name, given in (("among", self.among), ("shrink", self.shrink)):
            require(not given or self.average is not None, "add.no-mean", sentence, name)
        for at, gamma in enumerate(self._gammas):
            require_range("among" if at else "average", gamma, least=-10.0, most=10.0)
        require_range("among", len(self.among), most=16)
        require(len({*self._gammas}) == len(self._gammas), "add.twice", "a γ occurs twice", "among")

    def suited_to_noise(self, step: float) -> Add:
        """Return the server that publishes a shrunk mean of all rankers (measurements: docs/results/privacy.md)."""
        return replace(self, step=float(f"{step:.3g}"), average=-0.5, among=(3.0, 0.0, -0.9), shrink=1.0)

    @property
    def _gammas(self) -> tuple[float, ...]:
        return () if self.average is None else (self.average, *self.among)

    def start(self, size: int) -> Memory:
        means, memory = len(self._gammas), Memory()
        if means:
            memory |= {AVERAGE: np.zeros(size), "means": np.zeros((means, size)), "total": np.zeros(means)}
        if self.shrink > 0.0:
            memory |= {NOISE: np.zeros(2), "shared": np.zeros(means), "spread": np.zeros(means)}
        if self.shrink > 0.0 or self.pull > 0.0:
            memory["first"] = np.zeros(size)
        return memory | {"count": np.zeros(1)} if memory else memory

    def with_noise(self, memory: Memory, noise: float) -> Memory:
        if self.shrink == 0.0:
            return memory
        return memory | {NOISE: np.array([self.step * noise if math.isfinite(noise) else 0.0, memory[NOISE][1]])}

    def recursion(self, size: int, memory: Memory) -> Recursion | None:
        return None if self.pull > 0.0 else Recursion(self.step, 0.0, np.zeros(size), self.average is None)

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        after = theta + self.step * update
        if self.average is None and self.pull == 0.0:
            return after, memory
        count = memory["count"] + 1.0
        if "first" in memory and count[0] == 1.0:
            memory = memory | {"first": theta.copy()}
        if self.pull > 0.0:
            after = after - self.step * self.pull * (theta - memory["first"])
        if self.average is None:
            return after, memory | {"count": count}
        weights = np.array([float(count[0]) ** gamma for gamma in self._gammas])
        total = memory["total"] + weights
        share = weights / total
        means = memory["means"] + share[:, None] * (after - memory["means"])
        found = memory | {"means": means, "total": total, "count": count}
        if self.shrink > 0.0:
            found |= noise_of_means(memory, share, self.step * self.pull)
        return after, found | {AVERAGE: self._shrunk(means[0], found, 0)}

    def _shrunk(self, mean: Doubles, memory: Memory, number: int | None) -> Doubles:
        """Return a mean by its number, or θ for None, shrunk by its noise."""
        if self.shrink == 0.0:
            return mean
        variance = memory[NOISE][1] if number is None else memory["spread"][number]
        return memory["first"] + soft_threshold(mean - memory["first"], self.shrink * math.sqrt(variance))

    def choices(self, theta: Doubles, memory: Memory) -> dict[float, Doubles]:
        if not self.among or memory["count"][0] == 0.0:
            return {}
        means = enumerate(zip(self._gammas, memory["means"], strict=True))
        found = {gamma: self._shrunk(mean, memory, number) for number, (gamma, mean) in means}
        return found | {math.inf: self._shrunk(theta, memory, None)}


def noise_of_means(memory: Memory, share: Doubles, pull: float = 0.0) -> Memory:
    """Return the noise on one number of θ and of its means after a round with weight `share` (means,) in each mean.

    "noise" is (σ, Var θ), "shared" Cov(mean, θ) and "spread" Var mean, (means,) each. The noise of a round, of standard
    deviation σ, stays in every later θ, decaying by `pull` per round; a mean becomes (1 − w)·mean + w·θ.
    """
    (sigma, walk), shared, spread = memory[NOISE].tolist(), (1.0 - pull) * memory["shared"], memory["spread"]
    walk, rest = (1.0 - pull) ** 2 * walk + sigma * sigma, 1.0 - share
    return {
        NOISE: np.array([sigma, walk]),
        "shared": rest * shared + share * walk,
        "spread": rest**2 * spread + 2.0 * share * rest * shared + share**2 * walk,
    }


def soft_threshold(x: Doubles, threshold: float) -> Doubles:
    """Return x (size,) moved towards 0 by at most the threshold (Donoho and Johnstone 1994)."""
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0), dtype=np.float64)


@dataclass(frozen=True)
class Momentum(Server):
    """Momentum: m ← β·m + u, θ ← θ + step·m (FedAvgM, Hsu, Qi and Brown 2019).

    Args:
        step: Step size, above 0.
        beta: Decay β of m, in [0, 1).

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> Momentum(step=1.0, beta=0.9).advance(np.zeros(1), np.ones(1), {"momentum": np.ones(1)})[0]
    array([1.9])
    """

    kind: ClassVar[str] = "momentum"

    step: float = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        require_range("step", self.step, above=0.0)
        require_range("beta", self.beta, least=0.0, below=1.0)

    def start(self, size: int) -> Memory:
        return {"momentum": np.zeros(size)}

    def recursion(self, size: int, memory: Memory) -> Recursion:
        return Recursion(self.step, self.beta, memory["momentum"].copy(), stacks=True)

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        momentum = self.beta * memory["momentum"] + update
        return theta + self.step * momentum, {"momentum": momentum}


@dataclass(frozen=True)
class Adam(Server):
    """Adam on the mean update as a gradient (Kingma and Ba 2015, algorithm 1; FedAdam of Reddi et al. 2021).

    The defaults are those of FOLtR-ES.

    Args:
        step: Step size, α of the paper, above 0.
        beta1: Decay β₁ of the mean of updates, in [0, 1).
        beta2: Decay β₂ of the mean of their squares, in [0, 1).
        tiny: ϵ of the paper against division by 0, above 0; unrelated to privacy.

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> theta, _ = Adam().advance(np.zeros(1), np.ones(1), Adam().start(1))
    >>> theta.round(6)
    array([0.001])
    """

    kind: ClassVar[str] = "adam"

    step: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    tiny: float = 1e-8

    def __post_init__(self) -> None:
        require_range("step", self.step, above=0.0)
        require_range("beta1", self.beta1, least=0.0, below=1.0)
        require_range("beta2", self.beta2, least=0.0, below=1.0)
        require_range("tiny", self.tiny, above=0.0)

    def start(self, size: int) -> Memory:
        return {"first": np.zeros(size), "second": np.zeros(size), "count": np.zeros(1)}

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        count = memory["count"] + 1.0
        first = self.beta1 * memory["first"] + (1.0 - self.beta1) * update
        second = self.beta2 * memory["second"] + (1.0 - self.beta2) * update * update
        t = float(count[0])
        corrected = first / (1.0 - self.beta1**t)
        scale = np.sqrt(second / (1.0 - self.beta2**t)) + self.tiny
        return theta + self.step * corrected / scale, {"first": first, "second": second, "count": count}


@dataclass(frozen=True)
class Rprop(Server):
    """Rprop: θ ← θ + η·sgn(u) with one η per parameter (Riedmiller and Braun 1993; Hartmann et al. 2019, eqs 1, 2).

    A coordinate's step grows while its sign stays and shrinks when it changes, so a round changes a parameter by at
    most η_max for any updates. The factors are those of the original paper, as in Igel and Hüsken (2003). The Firefox
    study's server code had α = 2, β = 0.6 and steps of 1 to 3 points, 2 at first, and adapts from the second iteration
    on; the paper's text adapts from the third on, which is followed here.

    Args:
        initial: η(0) = η(1), the first steps.
        alpha: Growth α > 1 of a step while the sign stays.
        beta: Shrinkage β in (0, 1) when the sign changes.
        least: η_min, the shortest step.
        most: η_max, the longest step.

    Raises:
        BadInput: `rprop.bad-steps` unless 0 < η_min ≤ η(0) ≤ η_max; `rprop.bad-factors` unless 0 < β < 1 < α.

    >>> Rprop().advance(np.zeros(2), np.array([3.0, -0.1]), Rprop().start(2))[0]
    array([ 0.05, -0.05])
    """

    kind: ClassVar[str] = "rprop"

    initial: float = 0.05
    alpha: float = 1.2
    beta: float = 0.5
    least: float = 0.01
    most: float = 1.0

    def __post_init__(self) -> None:
        sentence = f"expected 0 < least ≤ initial ≤ most, got {self.least}, {self.initial}, {self.most}"
        require(0.0 < self.least <= self.initial <= self.most < math.inf, "rprop.bad-steps", sentence)
        sentence = f"expected beta < 1 < alpha, got {self.beta} and {self.alpha}"
        require(0.0 < self.beta < 1.0 < self.alpha < math.inf, "rprop.bad-factors", sentence)

    def start(self, size: int) -> Memory:
        return {"step": np.full(size, self.initial), "sign": np.zeros(size), "count": np.zeros(1)}

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        sign = np.sign(update)
        count = memory["count"] + 1.0
        step = memory["step"]
        if count[0] > 2:
            step = adapt(step, sign * memory["sign"], self.alpha, self.beta, self.least, self.most)
        return theta + step * sign, {"step": step, "sign": sign, "count": count}

    def shorten(self, memory: Memory, which: Booleans) -> Memory:
        step = np.where(which, np.maximum(memory["step"] * self.beta, self.least), memory["step"])
        return memory | {"step": step, "sign": np.where(which, 0.0, memory["sign"])}


def adapt(step: Doubles, agreement: Doubles, alpha: float, beta: float, least: float, most: float) -> Doubles:
    """Return η(t), eq. 2: longer where two signs agree, shorter where they differ, unchanged for a sign of 0."""
    longer, shorter = np.minimum(step * alpha, most), np.maximum(step * beta, least)
    return np.where(agreement > 0.0, longer, np.where(agreement < 0.0, shorter, step))


SERVERS: Family[Server] = Family("server optimiser", Add, Momentum, Adam, Rprop, base=Server, word="server")
