"""The ranker with one hidden layer: f(x) = v·a(Wx + b), where a is the rectifier or the logistic function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import Purpose, normals
from quorank.parts import Numbers
from quorank.rankers.prior import Prior, Scale, Start, prior_of, wrong_size
from quorank.rankers.ranker import Ranker

OWN = ("scaled", "zero")
"""Starts that are not priors."""


@dataclass(frozen=True)
class MLP(Ranker):
    """Scores v·a(Wx + b), without an output bias, which would change no ranking.

    `activation = "sigmoid"` is the network of the code that was published with PDGD and FPDGD, "relu" trains faster.
    `start = "zero"` is what the published evolution strategies use; gradients need broken symmetry, so the default
    draws W and v from N(0, 1/inputs) and starts b at zero. A prior is a network of the same shape, or weights w of the
    features: two units pass relu(w·x) − relu(−w·x) = w·x on, to the bits of the linear ranker's scores, and the others
    are drawn as by default with v = 0, so that they say nothing until they have learned.
    """

    kind: ClassVar[str] = "mlp"

    hidden: int = 64  # units of the hidden layer
    start: Start = "scaled"  # or "zero", a ranker file, parameters, or weights by the feature
    start_scale: Scale | None = None  # factor of the start's scores
    activation: Literal["relu", "sigmoid"] = "relu"  # a: max(0, x), or 1 / (1 + e^−x)

    def __post_init__(self) -> None:
        require_range("hidden", self.hidden, least=1, most=4096)
        if isinstance(self.start, Mapping):
            object.__setattr__(self, "start", Numbers(self.start))
        try:
            self.prior  # noqa: B018  raises BadInput if it is invalid
        except BadInput as error:
            if error.code != "value.not-a-choice":
                raise
            words = ", ".join(map(repr, OWN))
            raise BadInput(error.code, f"{error.sentence}; or one of {words}", error.where) from None

    @cached_property
    def prior(self) -> Prior | None:
        return prior_of(None if self.start in OWN else self.start, self.start_scale)

    def with_prior(self, prior: Prior | None) -> MLP:
        if prior is None:
            return self if self.prior is None else replace(self, start=OWN[0], start_scale=None)
        return replace(self, start=prior.start, start_scale=prior.scale)

    @property
    def starts_flat(self) -> bool:
        return self.start == "zero" or (isinstance(self.start, tuple) and not any(self.start))

    def initial(self, n_features: int, seed: int) -> Doubles:
        if self.start == "zero":
            return np.zeros(self.size(n_features))
        weights, bias = n_features * self.hidden, (n_features + 1) * self.hidden
        if self.prior is None:
            theta = self._drawn(n_features, seed)
            theta[bias:] /= np.sqrt(self.hidden)
            return theta
        given = self.prior.vector(n_features)
        if len(given) == self.size(n_features):
            given[bias:] = self.prior.scaled(given[bias:])
            return given
        if len(given) != n_features:
            expected = f"expected {self.size(n_features)} of a network of {self.hidden} units and {n_features} features"
            raise wrong_size(len(given), f"{expected}, or a weight for each feature")
        sentence = 'weights of features pass through rectifiers only; set activation = "relu", or start from a network'
        require(self.activation == "relu", "ranker.start-of-sigmoids", sentence, "activation")
        sentence = "weights of features take two hidden units to pass them on; set hidden = 2 or more"
        require(self.hidden >= 2, "ranker.too-few-units", sentence, "hidden")
        theta = self._drawn(n_features, seed)
        theta[:n_features] = self.prior.scaled(given)
        theta[n_features : 2 * n_features] = -theta[:n_features]
        theta[weights:] = 0.0
        theta[bias : bias + 2] = 1.0, -1.0
        return theta

    def _drawn(self, n_features: int, seed: int) -> Doubles:
        """W from N(0, 1/inputs), b at zero, v from N(0, 1)."""
        theta = normals(seed, Purpose.INITIAL, self.size(n_features))
        weights, bias = n_features * self.hidden, (n_features + 1) * self.hidden
        theta[:weights] /= np.sqrt(n_features)
        theta[weights:bias] = 0.0
        return theta
