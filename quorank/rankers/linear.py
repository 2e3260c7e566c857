"""The linear ranker: f(x) = θ·x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from quorank.kernels.arrays import Doubles
from quorank.parts import Numbers
from quorank.rankers.prior import Prior, Scale, Start, prior_of, wrong_size
from quorank.rankers.ranker import Ranker


@dataclass(frozen=True)
class Linear(Ranker):
    """Scores θ·x, starting from zero as in FPDGD §4, or from a prior."""

    kind: ClassVar[str] = "linear"

    start: Start | None = None  # a ranker file, parameters, or weights by the feature; None is zero
    start_scale: Scale | None = None  # factor of the start's scores

    def __post_init__(self) -> None:
        if isinstance(self.start, Mapping):
            object.__setattr__(self, "start", Numbers(self.start))
        self.prior  # noqa: B018  raises BadInput if it is invalid

    @cached_property
    def prior(self) -> Prior | None:
        return prior_of(self.start, self.start_scale)

    def with_prior(self, prior: Prior | None) -> Linear:
        start, scale = (None, None) if prior is None else (prior.start, prior.scale)
        return replace(self, start=start, start_scale=scale)

    def initial(self, n_features: int, seed: int) -> Doubles:
        if self.prior is None:
            return np.zeros(n_features)
        theta = self.prior.vector(n_features)
        if len(theta) != self.size(n_features):
            raise wrong_size(len(theta), f"a linear ranker of {n_features} features has {self.size(n_features)}")
        return self.prior.scaled(theta)
