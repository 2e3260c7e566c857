"""Personal parameters: rankers with a private offset per client.

A client ranks by θ + v with an offset v that never leaves it. After each round it sends a part of its update (`send`, per
parameter) and keeps a part: v ← (1 − decay)·v + keep·update.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles
from quorank.parts import Family
from quorank.rankers import Ranker


class Split(NamedTuple):
    """Shares of an update that are sent and kept, per parameter."""

    send: Doubles
    keep: Doubles
    decay: float


@dataclass(frozen=True)
class Personalisation(ABC):
    """Base class of divisions of an update between the shared ranker and the client's offset.

    >>> isinstance(LocalOffset(), Personalisation), LocalOffset().keeps_parameters
    (True, True)
    """

    kind: ClassVar[str]
    keeps_parameters: ClassVar[bool] = True  # clients keep an offset, so they must learn on the client
    METHODS: ClassVar[tuple[str, ...]] = ("split",)

    def split(self, ranker: Ranker, n_features: int) -> Split:
        """Return the division of an update of a part that `keeps_parameters`."""
        raise NotImplementedError(f"{self.kind} keeps no parameters")


@dataclass(frozen=True)
class Shared(Personalisation):
    """No personal parameters: every client sends its whole update and ranks by θ.

    >>> Shared().keeps_parameters
    False
    """

    kind: ClassVar[str] = "none"
    keeps_parameters: ClassVar[bool] = False


@dataclass(frozen=True)
class LocalOffset(Personalisation):
    """Offset that follows the client's own updates; the whole update is also sent.

    θ learns what clients have in common, v the preferences of one client: v ← (1 − decay)·v + rate·update.

    Args:
        rate: Share of its update that a client keeps, above 0.
        decay: Share of v forgotten per round, in [0, 1).

    Raises:
        BadInput: `value.out-of-range` if a field is outside its range.

    >>> from quorank.rankers import Linear
    >>> LocalOffset(rate=0.5).split(Linear(), n_features=2)
    Split(send=array([1., 1.]), keep=array([0.5, 0.5]), decay=0.0)
    """

    kind: ClassVar[str] = "offset"

    rate: float = 1.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        require_range("rate", self.rate, above=0.0)
        require_range("decay", self.decay, least=0.0, below=1.0)

    def split(self, ranker: Ranker, n_features: int) -> Split:
        ones = np.ones(ranker.size(n_features))
        return Split(ones, self.rate * ones, self.decay)


@dataclass(frozen=True)
class OutputLayer(Personalisation):
    """Shared hidden layer and personal output layer, which is never sent (FedPer, Arivazhagan et al. 2019).

    Of the parameters W, b and v of v·a(Wx + b) a client sends its update of W and b and adds that of v to its own v.

    Raises:
        BadInput: `personal.no-output-layer` from `split` for a ranker without a hidden layer.

    >>> from quorank.rankers import MLP
    >>> OutputLayer().split(MLP(hidden=2), n_features=1).send  # 1 for W and b, 0 for v
    array([1., 1., 1., 1., 0., 0.])
    """

    kind: ClassVar[str] = "fedper"

    def split(self, ranker: Ranker, n_features: int) -> Split:
        sentence = 'fedper keeps the output layer, and a linear ranker has none; use ranker mlp, or kind = "offset"'
        require(ranker.hidden > 0, "personal.no-output-layer", sentence, "personal")
        own = np.zeros(ranker.size(n_features))
        own[-ranker.hidden :] = 1.0  # parameters are W, b, v
        return Split(1.0 - own, own, 0.0)


PERSONALISATIONS: Family[Personalisation] = Family(
    "personalisation", Shared, LocalOffset, OutputLayer, base=Personalisation, word="personal"
)
