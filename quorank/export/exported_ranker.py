"""A ranker prepared for writers of formats: names for engines, float32 parameters, constants, trees over raw features."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from quorank.data.normalisation import Normalisation, RawFeatures, WithinQuery
from quorank.export.trees import NodeTree, trees_of
from quorank.kernels.arrays import Doubles, Floats
from quorank.rankers.ranker_file import SavedRanker

LONGEST_NAME = 60
"""Characters of an exported feature's name."""


class HiddenLayer(NamedTuple):
    """The network v·a(Wx + b)."""

    weights: Floats  # W (hidden, n)
    bias: Floats  # b (hidden,)
    output: Floats  # v (hidden,)
    activation: Literal["relu", "sigmoid"]


@dataclass(frozen=True, eq=False)
class ExportedRanker:
    """A ranker for another system.

    Args:
        saved: The ranker with its normalisation and feature names.
        prenormalised: The system receives features that are already filled and normalised within their list.
    """

    saved: SavedRanker
    prenormalised: bool = False

    @property
    def family(self) -> Literal["linear", "network", "trees"]:
        """Family of functions that the ranker belongs to."""
        if self.saved.ranker.grown:
            return "trees"
        return "network" if self.saved.ranker.hidden else "linear"

    @cached_property
    def effective(self) -> SavedRanker:
        """The ranker as a function of the features that the system receives."""
        return replace(self.saved, normalisation=RawFeatures(), missing=0.0) if self.prenormalised else self.saved

    @property
    def per_list(self) -> bool:
        """True if a score depends on the other documents of the list."""
        return self.effective.normalisation.kind == WithinQuery.kind

    @property
    def normalisation(self) -> Normalisation:
        """The part of the normalisation that is done row by row."""
        return RawFeatures() if self.per_list else self.effective.normalisation

    @property
    def missing(self) -> float:
        """Value of a missing feature, in float32; 0 where the system receives filled features."""
        return float(np.float32(self.effective.missing))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features for engines."""
        return engine_names(self.saved.feature_names)

    @cached_property
    def low(self) -> Doubles:
        """(n,) constants subtracted from the features."""
        return np.array(self.normalisation.low or [0.0] * self.saved.n_features)

    @cached_property
    def span(self) -> Doubles:
        """(n,) high − low, divisors of the features; 0 where a feature is constant, 1 without normalisation."""
        high = self.normalisation.high
        return np.array(high) - self.low if high else np.ones(self.saved.n_features)

    @cached_property
    def weights(self) -> Floats:
        """(n,) weights of a linear ranker; 0 where a feature is constant."""
        return np.where(self.span > 0.0, self.saved.theta, 0.0).astype(np.float32)

    @cached_property
    def layer(self) -> HiddenLayer:
        """Parameters of a network; weights are 0 where a feature is constant."""
        hidden, n = self.saved.ranker.hidden, self.saved.n_features
        theta = self.saved.theta.astype(np.float32)
        weights = np.where(self.span > 0.0, theta[: hidden * n].reshape(hidden, n), np.float32(0.0))
        bias, output = theta[hidden * n : hidden * (n + 1)], theta[hidden * (n + 1) :]
        return HiddenLayer(weights, bias, output, self.saved.ranker.activation)

    @cached_property
    def trees(self) -> list[NodeTree]:
        """The trees, over features that are not normalised."""
        return trees_of(self.effective, self.normalisation)


def engine_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return distinct names of letters, digits and underscores that begin with a letter.

    >>> engine_names(("BM25 of title", "bm25-of-title", "3rd", "f4"))
    ('BM25_of_title', 'bm25_of_title', 'f_3rd', 'f4')
    >>> engine_names(("a b", "a-b"))
    ('a_b', 'a_b_2')
    """
    renamed: dict[str, None] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:LONGEST_NAME] or "f"
        plain = plain if plain[0].isalpha() else f"f_{plain}"
        chosen, number = plain, 2
        while chosen in renamed:
            chosen, number = f"{plain}_{number}", number + 1
        renamed[chosen] = None
    return tuple(renamed)
