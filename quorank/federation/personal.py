"""Personal parameters: rankers that are partly a client's own.

Every client may add an offset v of its own to the θ of all. It never leaves the client. After each round the client
sends a part of its update (`send`, per parameter) and keeps a part of it: v ← (1 − decay)·v + keep·update.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.parts import Family
from quorank.rankers import Ranker


class Split(NamedTuple):
    """What becomes of an update, per parameter."""

    send: Doubles
    keep: Doubles
    decay: float


@dataclass(frozen=True)
class Personalisation(ABC):
    """How a client's update is divided between the shared ranker and its own offset."""

    kind: ClassVar[str]
    keeps_parameters: ClassVar[bool] = True  # clients keep an offset, so they must learn on their side

    @abstractmethod
    def split(self, ranker: Ranker, n_features: int) -> Split | None:
        """Return what becomes of an update, per parameter; None if all of it is sent and nothing kept."""


@dataclass(frozen=True)
class Shared(Personalisation):
    """Nothing is personal: everyone ranks by the θ of all."""

    kind: ClassVar[str] = "none"
    keeps_parameters: ClassVar[bool] = False

    def split(self, ranker: Ranker, n_features: int) -> Split | None:
        return None


@dataclass(frozen=True)
class LocalOffset(Personalisation):
    """A client sends its whole update as ever, and also follows it by itself.

    So θ learns what all have in common, and v what a client's own people prefer; `decay` forgets v slowly.
    """

    kind: ClassVar[str] = "offset"

    rate: float = 1.0  # how much of its update a client keeps
    decay: float = 0.0  # share of v that a client forgets in a round

    def __post_init__(self) -> None:
        require_range("rate", self.rate, above=0.0)
        require_range("decay", self.decay, least=0.0, below=1.0)

    def split(self, ranker: Ranker, n_features: int) -> Split | None:
        ones = np.ones(ranker.size(n_features))
        return Split(ones, self.rate * ones, self.decay)


@dataclass(frozen=True)
class OutputLayer(Personalisation):
    """FedPer (Arivazhagan et al. 2019): the hidden layer is of all, the output layer of each client and never sent."""

    kind: ClassVar[str] = "fedper"

    def split(self, ranker: Ranker, n_features: int) -> Split | None:
        sentence = 'fedper keeps the output layer, and a linear ranker has none; use ranker mlp, or kind = "offset"'
        require(ranker.hidden > 0, "personal.no-output-layer", sentence, "personal")
        own = np.zeros(ranker.size(n_features))
        own[-ranker.hidden :] = 1.0  # parameters are W, b, v
        return Split(1.0 - own, own, 0.0)


PERSONALISATIONS: Family[Personalisation] = Family(
    "personalisation", Shared, LocalOffset, OutputLayer, base=Personalisation, word="personal"
)
