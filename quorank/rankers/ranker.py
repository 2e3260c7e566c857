"""Base class of rankers: scoring functions with one flat parameter vector θ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from quorank.data.ranking import RankingData
from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles, Floats
from quorank.rankers.prior import Prior
from quorank.rankers.scoring import SIGMOID


@dataclass(frozen=True)
class Ranker(ABC):
    """A scoring function f_θ(x): linear, or with one hidden layer, in features that `transform` may compute first.

    θ is one vector: for `hidden` = 0 the weights, else W (hidden × inputs), b (hidden) and v (hidden) of v·a(Wx + b), where
    a is the `activation`.
    """

    kind: ClassVar[str]
    grown: ClassVar[bool] = (
        False  # an ensemble of trees: grown by histograms, scored by `score_features`, has no gradient
    )

    @property
    def hidden(self) -> int:
        """Units of the hidden layer; 0: the score is linear."""
        return 0

    @property
    def activation(self) -> Literal["relu", "sigmoid"]:
        """Activation function of the hidden layer."""
        return "relu"

    @property
    def layer(self) -> int:
        """Units and activation of the hidden layer in one integer, as compiled code reads them (`rankers.scoring`)."""
        return self.hidden + (SIGMOID if self.hidden and self.activation == "sigmoid" else 0)

    @property
    def starts_flat(self) -> bool:
        """All gradients are zero at `initial`, so that learners that follow them cannot begin."""
        return False

    @property
    def prior(self) -> Prior | None:
        """Given start; None for the ranker's own."""
        return None

    def with_prior(self, prior: Prior | None) -> Ranker:
        """Return the same ranker with this prior, or without one."""
        if prior is not None:
            raise BadInput("option.conflict", f"a {self.kind} ranker starts on its own; leave the start out", "start")
        return self

    def inputs(self, n_features: int) -> int:
        """Return the number of inputs that `transform` computes from n features."""
        return n_features

    def transform(self, features: Floats) -> Floats:
        """Return the (rows, inputs) numbers that are scored, computed from (rows, n_features) alone, row by row."""
        return features

    @property
    def transforms(self) -> bool:
        """The class overrides `transform`."""
        return type(self).transform is not Ranker.transform

    def prepared(self, data: RankingData) -> RankingData:
        """Return data with `transform` applied to its features; the same object where a ranker has no transform."""
        return data.with_features(self.transform(data.features)) if self.transforms else data

    def size(self, n_features: int) -> int:
        """Return the number of parameters for documents with `n_features`."""
        inputs = self.inputs(n_features)
        return (inputs + 2) * self.hidden if self.hidden else inputs

    def check_size(self, theta: Doubles, n_features: int) -> None:
        """Raise BadInput unless θ has the parameters of this ranker for documents with `n_features`."""
        size, given = self.size(n_features), np.shape(theta)
        require(given == (size,), "ranker.wrong-size", f"this ranker has {size} parameters, got {given}")

    @property
    def tree_leaves(self) -> int:
        """Leaves of a tree at most, where it is `grown`; else 0."""
        return 0

    def with_trees(self, trees: int) -> Ranker:
        """Return the ranker for a run that grows this many trees; rankers without trees return themselves."""
        return self

    def score_features(self, theta: Doubles, features: Floats) -> Doubles:
        """Return (rows,) scores of (rows, n_features), where a ranker is `grown`; others are scored by `rankers.scores`."""
        raise NotImplementedError(f"{self.kind} rankers are scored by their packed parameters")

    @abstractmethod
    def initial(self, n_features: int, seed: int) -> Doubles:
        """Return the (size,) parameters before the first round."""
