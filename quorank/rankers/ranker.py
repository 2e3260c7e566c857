"""Rankers with one flat parameter vector θ: their base class, the linear one, and the network with one hidden layer.

A prior is a start known before learning, and the scale of its scores. An experiment file names it under `[ranker]` as
`start`: a ranker file, a list of parameters, or a table of weights by the feature's number, counted from 1 as in LETOR
files, or by its name. `starting` reads files, finds names and measures scales, and leaves numbers only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from quorank.data.ranking import RankingData
from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Floats
from quorank.kernels.draws import Purpose, normals
from quorank.parts import Numbers
from quorank.rankers.scoring import SIGMOID

Start = str | tuple[float, ...] | Numbers  # a file, parameters, or weights by the feature
Scale = float | Literal["rule"]  # factor of the start's scores, or "rule": derived from their spread
MOST = 50_000  # numbers of a start: `run.toml` holds them all


@dataclass(frozen=True)
class Prior:
    """Start of a ranker that is known before learning, and the scale of its scores.

    Args:
        start: Ranker file or folder of a run, parameters, or weights by the number or name of a feature.
        scale: Factor of the start's scores, above 0, or "rule"; None leaves them unchanged.

    Raises:
        BadInput: `value.not-a-choice`, `value.out-of-range`, `value.not-finite` or `ranker.empty-start`.

    >>> Prior(Numbers({"2": 0.5})).vector(n_features=3)
    array([0. , 0.5, 0. ])
    """

    start: Start
    scale: Scale | None = None

    def __post_init__(self) -> None:
        if isinstance(self.start, str):
            is_file = self.start.endswith(".json") or "/" in self.start
            sentence = "expected a ranker file (NAME.json), the folder of a run (with a /), parameters or weights"
            require(is_file, "value.not-a-choice", f"{sentence}, got {self.start[:100]!r}", "start")
        else:
            values = self.start.values() if isinstance(self.start, Numbers) else self.start
            sentence = f"has {len(values):,} numbers, and a run's file holds at most {MOST:,}"
            require(len(values) <= MOST, "value.out-of-range", sentence, "start")
            require(len(values) > 0, "ranker.empty-start", "there is no number in it; name a feature's weight", "start")
            require(all(map(math.isfinite, values)), "value.not-finite", "expected finite numbers", "start")
        if isinstance(self.scale, float | int):
            require_range("start_scale", self.scale, above=0.0)

    def vector(self, n_features: int) -> Doubles:
        """Return the parameters of the start, or its weights as (n_features,), unscaled.

        Raises:
            BadInput: `ranker.start-unknown` if a file, a name or a measured scale remains: a received part never causes a
                file to be read; `ranker.no-such-feature` for a number that no feature has.
        """
        named = isinstance(self.start, Numbers) and not all(is_number(key) for key in self.start)
        known = not isinstance(self.start, str) and not named and self.scale != "rule"
        sentence = "the start is a file, names features or asks for a measured scale: write it as numbers"
        require(known, "ranker.start-unknown", sentence, "start")
        if not isinstance(self.start, Numbers):
            return np.array(self.start, dtype=np.float64)
        weights = np.zeros(n_features)
        for key, weight in self.start.items():
            sentence = f"there is no feature {key}; the data has features 1 to {n_features}"
            require(0 < int(key) <= n_features, "ranker.no-such-feature", sentence, f"start.{key}")
            weights[int(key) - 1] = weight
        return weights

    def scaled(self, parameters: Doubles) -> Doubles:
        """Return the parameters times the scale, bit for bit unchanged without a numeric scale."""
        return parameters * self.scale if isinstance(self.scale, float | int) else parameters


def is_number(key: str) -> bool:
    """Return whether a key of weights is the number of a feature and not a name.

    >>> is_number("12"), is_number("bm25")
    (True, False)
    """
    return key.isascii() and key.isdecimal() and len(key) < 10 and key == str(int(key))


def wrong_size(given: int, expected: str) -> BadInput:
    """Return the error for a start of `given` parameters where another size is `expected`."""
    return BadInput("ranker.wrong-size", f"the start has {given} parameters; {expected}", "start")


@dataclass(frozen=True)
class Ranker(ABC):
    """Base class of scoring functions f_θ(x): linear, or with one hidden layer, of features that `transform` may compute.

    θ is one vector: for `hidden` = 0 the weights, else W (hidden × inputs), b (hidden) and v (hidden) of v·a(Wx + b), where
    a is the `activation`.

    >>> from quorank.rankers import MLP, Linear
    >>> Linear().size(46), MLP(hidden=8).size(46)  # 8·46 weights, 8 biases and 8 output weights
    (46, 384)
    """

    kind: ClassVar[str]
    grown: ClassVar[bool] = False  # an ensemble of trees, scored by `score_features`, without gradient

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
        """True if all gradients are zero at `initial`, so that gradient learners cannot begin."""
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
        """Return the inputs (rows, inputs) of the score, computed from features (rows, n_features) row by row."""
        return features

    @property
    def transforms(self) -> bool:
        """True if the class overrides `transform`."""
        return type(self).transform is not Ranker.transform

    def prepared(self, data: RankingData) -> RankingData:
        """Return data with `transform` applied to its features; the same object where a ranker has no transform."""
        return data.with_features(self.transform(data.features)) if self.transforms else data

    def size(self, n_features: int) -> int:
        """Return the number of parameters for documents with `n_features`."""
        inputs = self.inputs(n_features)
        return (inputs + 2) * self.hidden if self.hidden else inputs

    def check_size(self, theta: Doubles, n_features: int) -> None:
        """Raise BadInput `ranker.wrong-size` unless θ has the parameters for documents with `n_features`."""
        size, given = self.size(n_features), np.shape(theta)
        require(given == (size,), "ranker.wrong-size", f"this ranker has {size} parameters, got {given}")

    @property
    def tree_leaves(self) -> int:
        """Largest number of leaves of a tree; 0 without trees."""
        return 0

    def with_trees(self, trees: int) -> Ranker:
        """Return the ranker for a run that grows this many trees; rankers without trees return themselves."""
        return self

    def score_features(self, theta: Doubles, features: Floats) -> Doubles:
        """Return the scores (rows,) of a `grown` ranker for features (rows, n_features); others: `rankers.scores`."""
        raise NotImplementedError(f"{self.kind} rankers are scored by their packed parameters")

    @abstractmethod
    def initial(self, n_features: int, seed: int) -> Doubles:
        """Return the (size,) parameters before the first round."""


class StartedRanker(Ranker):
    """Base class of rankers that may begin from a prior."""

    OWN: ClassVar[tuple[str | None, ...]]  # starts that are not priors; the first is the default
    start: Start | None
    start_scale: Scale | None

    def __post_init__(self) -> None:
        if isinstance(self.start, Mapping):
            object.__setattr__(self, "start", Numbers(self.start))
        try:
            self.prior  # noqa: B018  raises BadInput if it is invalid
        except BadInput as error:
            words = " or ".join(repr(word) for word in self.OWN if word)
            if error.code != "value.not-a-choice" or not words:
                raise
            raise BadInput(error.code, f"{error.sentence}; or {words}", error.where) from None

    @cached_property
    def prior(self) -> Prior | None:
        if self.start is not None and self.start not in self.OWN:
            return Prior(self.start, self.start_scale)
        sentence = "scales the scores of a start, and there is none; give a start too"
        require(self.start_scale is None, "option.conflict", sentence, "start_scale")
        return None

    def with_prior(self, prior: Prior | None) -> Self:
        if prior is None and self.prior is None:
            return self
        start, scale = (self.OWN[0], None) if prior is None else (prior.start, prior.scale)
        changed: dict[str, Any] = {"start": start, "start_scale": scale}
        return replace(self, **changed)


@dataclass(frozen=True)
class Linear(StartedRanker):
    """Linear ranker f_θ(x) = θ·x, starting from zero as in FPDGD §4, or from a prior.

    Args:
        start: Ranker file, parameters, or weights by feature; None starts from zero.
        start_scale: Factor of the start's scores, above 0; "rule" derives it from their spread.

    Raises:
        BadInput: `option.conflict` for a scale without a start; for an invalid start the errors of `Prior`.

    >>> Linear(start=(1.0, 2.0), start_scale=0.5).initial(n_features=2, seed=1)
    array([0.5, 1. ])
    """

    kind: ClassVar[str] = "linear"
    OWN: ClassVar[tuple[str | None, ...]] = (None,)

    start: Start | None = None
    start_scale: Scale | None = None

    def initial(self, n_features: int, seed: int) -> Doubles:
        if self.prior is None:
            return np.zeros(n_features)
        theta = self.prior.vector(n_features)
        if len(theta) != self.size(n_features):
            raise wrong_size(len(theta), f"a linear ranker of {n_features} features has {self.size(n_features)}")
        return self.prior.scaled(theta)


@dataclass(frozen=True)
class MLP(StartedRanker):
    """Network with one hidden layer, f_θ(x) = v·a(Wx + b); an output bias would change no ranking.

    A prior is a network of the same shape, or weights w of the features: two units compute relu(w·x) − relu(−w·x) = w·x,
    to the bits of the linear ranker's scores, and the others are drawn as by default with v = 0, so that they contribute
    nothing until they have learned.

    Args:
        hidden: Units of the hidden layer, 1 to 4096.
        start: "scaled" draws W from N(0, 1/inputs) and v from N(0, 1/hidden), with b = 0; "zero" is that of the published
            evolution strategies, without a gradient; else a ranker file, parameters, or weights by feature.
        start_scale: Factor of the start's scores, above 0; "rule" derives it from their spread.
        activation: a: "relu", max(0, x), which trains faster, or "sigmoid", 1/(1 + e^−x), as in the published code of PDGD
            and FPDGD.

    Raises:
        BadInput: `value.out-of-range` for `hidden`; for an invalid start the errors of `Prior`.

    >>> MLP(hidden=2, start=(1.0, 2.0)).initial(n_features=2, seed=1)  # W = (w, −w), b = 0, v = (1, −1)
    array([ 1.,  2., -1., -2.,  0.,  0.,  1., -1.])
    """

    kind: ClassVar[str] = "mlp"
    OWN: ClassVar[tuple[str | None, ...]] = ("scaled", "zero")

    hidden: int = 64
    start: Start = "scaled"
    start_scale: Scale | None = None
    activation: Literal["relu", "sigmoid"] = "relu"

    def __post_init__(self) -> None:
        require_range("hidden", self.hidden, least=1, most=4096)
        super().__post_init__()

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
        """Draw W from N(0, 1/inputs) and v from N(0, 1), with b = 0."""
        theta = normals(seed, Purpose.INITIAL, self.size(n_features))
        weights, bias = n_features * self.hidden, (n_features + 1) * self.hidden
        theta[:weights] /= np.sqrt(n_features)
        theta[weights:bias] = 0.0
        return theta
