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
    """A start and its scale; None leaves the scores as they are."""

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

    @property
    def is_known(self) -> bool:
        """All of it is numbers: no file to read, no name to find, no scale to measure."""
        named = isinstance(self.start, Numbers) and not all(is_number(key) for key in self.start)
        return not isinstance(self.start, str) and not named and self.scale != "rule"

    def check_known(self) -> None:
        """Raise BadInput if a file, a name or a scale remains: a received part never causes a file to be read."""
        sentence = "the start is a file, names features or asks for a measured scale: write it as numbers"
        require(self.is_known, "ranker.start-unknown", sentence, "start")

    @property
    def factor(self) -> float:
        """The scale as a number."""
        return self.scale if isinstance(self.scale, float | int) else 1.0

    def vector(self, n_features: int) -> Doubles:
        """Return the numbers of the start, unscaled: its parameters as they are, weights in a row for all features."""
        self.check_known()
        if not isinstance(self.start, Numbers):
            return np.array(self.start, dtype=np.float64)
        weights = np.zeros(n_features)
        for key, weight in self.start.items():
            sentence = f"there is no feature {key}; the data has features 1 to {n_features}"
            require(0 < int(key) <= n_features, "ranker.no-such-feature", sentence, f"start.{key}")
            weights[int(key) - 1] = weight
        return weights

    def scaled(self, parameters: Doubles) -> Doubles:
        """Return the parameters times the scale: bit for bit unchanged without a scale."""
        return parameters if self.scale is None else parameters * self.factor


def prior_of(start: Start | None, scale: Scale | None) -> Prior | None:
    """Return the prior of a part's fields; None where it has no start."""
    if start is None:
        sentence = "scales the scores of a start, and there is none; give a start too"
        require(scale is None, "option.conflict", sentence, "start_scale")
        return None
    return Prior(start, scale)


def is_number(key: str) -> bool:
    """Return whether a key of weights is a feature's number and no name."""
    return key.isascii() and key.isdecimal() and len(key) < 10 and key == str(int(key))


def wrong_size(given: int, expected: str) -> BadInput:
    """Return the error about a start for other data."""
    return BadInput("ranker.wrong-size", f"the start has {given} parameters; {expected}", "start")


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
        return prior_of(None if self.start in self.OWN else self.start, self.start_scale)

    def with_prior(self, prior: Prior | None) -> Self:
        if prior is None and self.prior is None:
            return self
        start, scale = (self.OWN[0], None) if prior is None else (prior.start, prior.scale)
        changed: dict[str, Any] = {"start": start, "start_scale": scale}
        return replace(self, **changed)


@dataclass(frozen=True)
class Linear(StartedRanker):
    """Scores θ·x, starting from zero as in FPDGD §4, or from a prior."""

    kind: ClassVar[str] = "linear"
    OWN: ClassVar[tuple[str | None, ...]] = (None,)

    start: Start | None = None  # a ranker file, parameters, or weights by the feature; None is zero
    start_scale: Scale | None = None  # factor of the start's scores

    def initial(self, n_features: int, seed: int) -> Doubles:
        if self.prior is None:
            return np.zeros(n_features)
        theta = self.prior.vector(n_features)
        if len(theta) != self.size(n_features):
            raise wrong_size(len(theta), f"a linear ranker of {n_features} features has {self.size(n_features)}")
        return self.prior.scaled(theta)


@dataclass(frozen=True)
class MLP(StartedRanker):
    """Scores v·a(Wx + b), without an output bias, which would change no ranking.

    `activation = "sigmoid"` is the network of the code that was published with PDGD and FPDGD, "relu" trains faster.
    `start = "zero"` is what the published evolution strategies use; gradients need broken symmetry, so the default
    draws W and v from N(0, 1/inputs) and starts b at zero. A prior is a network of the same shape, or weights w of the
    features: two units pass relu(w·x) − relu(−w·x) = w·x on, to the bits of the linear ranker's scores, and the others
    are drawn as by default with v = 0, so that they say nothing until they have learned.
    """

    kind: ClassVar[str] = "mlp"
    OWN: ClassVar[tuple[str | None, ...]] = ("scaled", "zero")

    hidden: int = 64  # units of the hidden layer
    start: Start = "scaled"  # or "zero", a ranker file, parameters, or weights by the feature
    start_scale: Scale | None = None  # factor of the start's scores
    activation: Literal["relu", "sigmoid"] = "relu"  # a: max(0, x), or 1 / (1 + e^−x)

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
        """W from N(0, 1/inputs), b at zero, v from N(0, 1)."""
        theta = normals(seed, Purpose.INITIAL, self.size(n_features))
        weights, bias = n_features * self.hidden, (n_features + 1) * self.hidden
        theta[:weights] /= np.sqrt(n_features)
        theta[weights:bias] = 0.0
        return theta
