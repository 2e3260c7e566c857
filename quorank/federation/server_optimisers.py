"""Server optimisers: what the server does with the mean update (Reddi et al. 2021).

An update points uphill, so every step adds. `memory` is the optimiser's state: explicit, saved with the run.
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

AVERAGE = "average"
"""Where an optimiser keeps the ranker that is handed out, if that is not θ itself."""

NOISE = "noise"
"""Where it keeps what is known of the noise on each number of θ (`noise_of_means`)."""


@dataclass(frozen=True)
class Server(ABC):
    """A server optimiser: how the mean update moves θ."""

    kind: ClassVar[str]

    @abstractmethod
    def start(self, size: int) -> Memory:
        """Return the memory before the first round, for θ of `size` parameters."""

    @abstractmethod
    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        """Return θ and the memory after a round whose mean update is `update`, all of shape (size,)."""

    @property
    def counts_noise(self) -> bool:
        """Whether it takes the noise of each round into account, as independent of the others'."""
        return False

    def with_noise(self, memory: Memory, noise: float) -> Memory:
        """Return the memory before a round on each number of whose mean update lies noise of this standard deviation."""
        return memory

    def suited_to_noise(self, step: float) -> Server:
        """Return the recommended server for accounted noise and this step; itself if there is none."""
        return self

    def shorten(self, memory: Memory, which: Booleans) -> Memory:
        """Return the memory with the steps of these parameters (size,) shortened, where each has a step of its own."""
        return memory

    def recursion(self, size: int, memory: Memory) -> Recursion | None:
        """Return the next steps as a recursion of momentum, so that they can be computed ahead; None if they are none."""
        return None

    def choices(self, theta: Doubles, memory: Memory) -> dict[float, Doubles]:
        """Return the rankers that may be handed out after a round, by γ (∞ is θ itself), the rule's own first.

        Where a run has a validation split, that decides. Nothing where there is no choice.
        """
        return {}


class Recursion(NamedTuple):
    """The steps m ← β·m + u and θ ← θ + step·m."""

    step: float
    beta: float  # β
    momentum: Doubles  # m


@dataclass(frozen=True)
class Add(Server):
    """θ ← θ + step·u. With step 1 this is federated averaging (FPDGD algorithm 2); other steps are SGD on the server.

    With `average` = γ the ranker that is handed out is the mean of all θ so far in which round t counts t^γ; clients go on
    learning from θ itself, so no list changes. 0 is the plain mean (Polyak and Juditsky 1992, "Acceleration of stochastic
    approximation by averaging"). γ < 0 counts early rounds more: the longer a few queries are searched again and again, the
    more closely θ fits them. `among` holds other γ; a run with a validation split hands out the best, θ itself included.

    With `shrink` = λ each number of that mean goes back towards its first value by λ standard deviations of the noise that
    lies on it, where updates are released with noise of known size, and no farther than to that value (`soft_threshold`).
    Neither looks at anything new, so both cost no privacy.

    With `pull` = ρ each update is u − ρ·(θ − θ_first), the ascent of what clients gain less a penalty ρ/2·‖θ − θ_first‖²: a
    good start is left only for what clicks keep saying, and the noise of many rounds does not add up.
    """

    kind: ClassVar[str] = "add"

    step: float = 1.0  # times which the mean update moves θ; 1 is federated averaging
    average: float | None = None  # γ: hand out the mean of all θ in which round t counts t^γ; none hands out θ
    among: tuple[float, ...] = ()  # other γ, of which a validation split chooses
    shrink: float = 0.0  # λ standard deviations of its noise by which each number goes back
    pull: float = 0.0  # ρ, how strongly each update is pulled back towards the first θ

    def __post_init__(self) -> None:
        require_range("step", self.step, above=0.0)
        require_range("pull", self.pull, least=0.0)
        overshoots = f"must be below 1/step, or steps overshoot, got {self.pull} with step {self.step}"
        require(self.step * self.pull < 1.0, "add.pull-overshoots", overshoots, "pull")
        require_range("shrink", self.shrink, least=0.0, most=100.0)
        sentence = "is about a mean of rankers: set average too, 0.0 for one in which all rounds count alike"
        for name, given in (("among", self.among), ("shrink", self.shrink)):
            require(not given or self.average is not None, "add.no-mean", sentence, name)
        if self.average is None:
            return
        for name, gamma in (("average", self.average), *(("among", gamma) for gamma in self.among)):
            require_range(name, gamma, least=-10.0, most=10.0)
        require_range("among", len(self.among), most=16)
        require(len({*self._gammas}) == len(self._gammas), "add.twice", "a γ stands there twice", "among")

    def suited_to_noise(self, step: float) -> Add:
        """Return one that hands out a mean of all rankers; docs/results/privacy.md has the measurements.

        Each number is moved back by one standard deviation of its noise.
        """
        return replace(self, step=float(f"{step:.3g}"), average=-0.5, among=(3.0, 0.0, -0.9), shrink=1.0)

    @property
    def _gammas(self) -> tuple[float, ...]:
        return () if self.average is None else (self.average, *self.among)

    @property
    def _keeps_first(self) -> bool:
        return self.shrink > 0.0 or self.pull > 0.0

    def start(self, size: int) -> Memory:
        means = len(self._gammas)
        memory: Memory = {}
        if means:
            memory |= {AVERAGE: np.zeros(size), "means": np.zeros((means, size)), "total": np.zeros(means)}
        if self.shrink > 0.0:
            memory |= {NOISE: np.zeros(2), "shared": np.zeros(means), "spread": np.zeros(means)}
        if self._keeps_first:
            memory["first"] = np.zeros(size)
        return memory | {"count": np.zeros(1)} if memory else memory

    @property
    def counts_noise(self) -> bool:
        return self.shrink > 0.0

    def with_noise(self, memory: Memory, noise: float) -> Memory:
        if not self.counts_noise:
            return memory
        return memory | {NOISE: np.array([self.step * noise if math.isfinite(noise) else 0.0, memory[NOISE][1]])}

    def recursion(self, size: int, memory: Memory) -> Recursion | None:
        return None if self.pull > 0.0 else Recursion(self.step, 0.0, np.zeros(size))

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        after = theta + self.step * update
        if self.average is None and self.pull == 0.0:
            return after, memory
        count = memory["count"] + 1.0
        if self._keeps_first and count[0] == 1.0:
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
        if self.counts_noise:
            found |= noise_of_means(memory, share, self.step * self.pull)
        return after, found | {AVERAGE: self._shrunk(means[0], found, 0)}

    def _shrunk(self, mean: Doubles, memory: Memory, number: int | None) -> Doubles:
        """Return a mean by its number, or θ itself, less its noise."""
        if not self.counts_noise:
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
    """Return the noise on one number of θ and of its means after a round, of which θ counts `share` (means,) in each mean.

    "noise" is (σ, Var θ), "shared" Cov(mean, θ) and "spread" Var mean, (means,) each. The noise of a round, of standard
    deviation σ, is in every θ from then on, less the share `pull` that each round takes off: θ walks at random, and a
    mean, (1 − w)·mean + w·θ, with it.
    """
    (sigma, walk), shared, spread = memory[NOISE].tolist(), (1.0 - pull) * memory["shared"], memory["spread"]
    walk, rest = (1.0 - pull) ** 2 * walk + sigma * sigma, 1.0 - share
    return {
        NOISE: np.array([sigma, walk]),
        "shared": rest * shared + share * walk,
        "spread": rest**2 * spread + 2.0 * share * rest * shared + share**2 * walk,
    }


def soft_threshold(x: Doubles, threshold: float) -> Doubles:
    """Return x (size,) moved towards 0 by the threshold and no farther than 0 (Donoho and Johnstone 1994)."""
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0), dtype=np.float64)


@dataclass(frozen=True)
class Momentum(Server):
    """m ← β·m + u; θ ← θ + step·m."""

    kind: ClassVar[str] = "momentum"

    step: float = 1.0  # times which m moves θ
    beta: float = 0.9  # β, how much of m stays

    def __post_init__(self) -> None:
        require_range("step", self.step, above=0.0)
        require_range("beta", self.beta, least=0.0, below=1.0)

    def start(self, size: int) -> Memory:
        return {"momentum": np.zeros(size)}

    def recursion(self, size: int, memory: Memory) -> Recursion:
        return Recursion(self.step, self.beta, memory["momentum"].copy())

    def advance(self, theta: Doubles, update: Doubles, memory: Memory) -> tuple[Doubles, Memory]:
        momentum = self.beta * memory["momentum"] + update
        return theta + self.step * momentum, {"momentum": momentum}


@dataclass(frozen=True)
class Adam(Server):
    """Adam (Kingma and Ba 2015) on the mean update as a gradient; its defaults are those of FOLtR-ES."""

    kind: ClassVar[str] = "adam"

    step: float = 0.001  # α of the paper, how far a step goes
    beta1: float = 0.9  # β₁, how much of the mean of updates stays
    beta2: float = 0.999  # β₂, how much of the mean of their squares stays
    tiny: float = 1e-8  # ϵ of the paper: keeps the division finite, no privacy figure

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
    """Rprop: θ ← θ + η·sgn(u), each parameter with its own η (Riedmiller and Braun 1993; Hartmann et al. 2019, eqs 1, 2).

    Only the sign of a coordinate moves it; its step grows while the sign stays and shrinks when it turns, so a round
    changes a parameter by at most `most`, whatever clients send. The factors are those of the original paper, which Igel
    and Hüsken (2003) keep. The Firefox study's public server code had α = 2, β = 0.6, steps of 1 to 3 points and 2 to
    begin with, and adapts from the second iteration on, where the paper's text says that the second step still has its
    first length; the text is followed.
    """

    kind: ClassVar[str] = "rprop"

    initial: float = 0.05  # η(0) = η(1), the first steps
    alpha: float = 1.2  # α, by which a step grows when the sign stays
    beta: float = 0.5  # β, by which it shrinks when the sign changes
    least: float = 0.01  # η_min, the shortest step
    most: float = 1.0  # η_max, the longest step

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
    """Return η(t), eq. 2: longer where two signs agree, shorter where they differ, the same where one of them is 0."""
    longer, shorter = np.minimum(step * alpha, most), np.maximum(step * beta, least)
    return np.where(agreement > 0.0, longer, np.where(agreement < 0.0, shorter, step))


SERVERS: Family[Server] = Family(
    "server optimiser", Add, Momentum, Adam, Rprop, base=Server, word="server"
)  # a new one: its class, and its name here
