"""A ranker as writers of formats need it: names for engines, parameters in float32, constants, trees over raw features."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from quorank.data.normalisation import Normalisation, RawFeatures, WithinQuery
from quorank.export.tree_nodes import TreeNodes, trees_of
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
    """A ranker on its way into another system; `in_front`: its features arrive filled and normalised within their list."""

    saved: SavedRanker
    in_front: bool = False

    @property
    def kind(self) -> Literal["linear", "network", "trees"]:
        """Which of the three families of functions it is."""
        if self.saved.ranker.grown:
            return "trees"
        return "network" if self.saved.ranker.hidden else "linear"

    @cached_property
    def taken(self) -> SavedRanker:
        """The ranker as the other system takes it: of features as they arrive there."""
        return replace(self.saved, normalisation=RawFeatures(), missing=0.0) if self.in_front else self.saved

    @property
    def per_list(self) -> bool:
        """Whether a score depends on the other documents of the list."""
        return self.taken.normalisation.kind == WithinQuery.kind

    @property
    def rowwise(self) -> Normalisation:
        """The part of the normalisation that is done row by row."""
        return RawFeatures() if self.per_list else self.taken.normalisation

    @property
    def missing(self) -> float:
        """What a missing feature counts as, in float32; 0 where it is filled in front."""
        return float(np.float32(self.taken.missing))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features for engines."""
        return engine_names(self.saved.feature_names)

    @cached_property
    def low(self) -> Doubles:
        """(n,) what is subtracted of a feature."""
        return np.array(self.rowwise.low or [0.0] * self.saved.n_features)

    @cached_property
    def span(self) -> Doubles:
        """(n,) high − low, what a feature is divided by; 0 where it counts nothing, 1 where nothing is normalised."""
        return np.array(self.rowwise.high) - self.low if self.rowwise.high else np.ones(self.saved.n_features)

    @cached_property
    def weights(self) -> Floats:
        """(n,) of a linear ranker; 0 where a feature counts nothing."""
        return np.where(self.span > 0.0, self.saved.theta, 0.0).astype(np.float32)

    @cached_property
    def layer(self) -> HiddenLayer:
        """The parameters of a network; weights are 0 where a feature counts nothing."""
        hidden, n = self.saved.ranker.hidden, self.saved.n_features
        theta = self.saved.theta.astype(np.float32)
        weights = np.where(self.span > 0.0, theta[: hidden * n].reshape(hidden, n), np.float32(0.0))
        bias, output = theta[hidden * n : hidden * (n + 1)], theta[hidden * (n + 1) :]
        return HiddenLayer(weights, bias, output, self.saved.ranker.activation)

    @cached_property
    def trees(self) -> list[TreeNodes]:
        """The trees, over features that are not normalised any more."""
        return trees_of(self.taken, self.rowwise)


def engine_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of letters, digits and underscores that begin with a letter, no two alike.

    >>> engine_names(("BM25 of title", "bm25-of-title", "3rd", "f4"))
    ('BM25_of_title', 'bm25_of_title', 'f_3rd', 'f4')
    >>> engine_names(("a b", "a-b"))
    ('a_b', 'a_b_2')
    """
    found: dict[str, None] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:LONGEST_NAME] or "f"
        plain = plain if plain[0].isalpha() else f"f_{plain}"
        chosen, number = plain, 2
        while chosen in found:
            chosen, number = f"{plain}_{number}", number + 1
        found[chosen] = None
    return tuple(found)


def short_floats(values: Floats | Doubles) -> list[float]:
    """Return float32 numbers as doubles of few digits that round to them: 0.1 and not 0.10000000149011612."""
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32).ravel()]
