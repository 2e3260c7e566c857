"""Rankers prepared for writers of formats, the formats themselves, and the arithmetic that their checkers share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from quorank.data.normalisation import Normalisation, RawFeatures, WithinQuery
from quorank.errors import require
from quorank.export.trees import NodeTree, trees_of
from quorank.kernels.arrays import Doubles, Floats
from quorank.rankers.ranker_file import SavedRanker

LONGEST_NAME = 60  # characters of an exported feature's name
Family = Literal["linear", "network", "trees"]
FAMILIES: dict[Family, str] = {
    "linear": "a linear ranker; choose onnx, elasticsearch, opensearch, solr, vespa or ranklib",
    "network": "a network; choose onnx",
    "trees": "trees; choose another format",
}
"""Families of functions that rankers belong to, and the formats that hold them."""


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
    def family(self) -> Family:
        """Family of functions that the ranker belongs to."""
        if self.saved.ranker.grown:
            return "trees"
        return "network" if self.saved.ranker.hidden else "linear"

    @cached_property
    def effective(self) -> SavedRanker:
        """The ranker as a function of the features that the system receives."""
        return replace(self.saved, normalisation=RawFeatures(), missing=0.0) if self.prenormalised else self.saved

    @property
    def normalisation(self) -> Normalisation:
        """Normalisation of the features that the system receives."""
        return self.effective.normalisation

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
    def trees(self) -> list[NodeTree]:
        """The trees, over features that are not normalised."""
        return trees_of(self.effective)


Scorer = Callable[[Floats], Any]
"""Model read from exported files: (rows,) scores of raw (rows, n) features, NaN where one is missing."""


@dataclass(frozen=True)
class ExportTarget:
    """Format that rankers are written in.

    `load` reads what `write` wrote by the format's published description alone, and so checks it. It trusts the files:
    only the writer's own bytes are loaded.
    """

    name: str
    system: str  # the system that reads the files
    families: tuple[Family, ...]  # rankers that the format can hold
    files: tuple[str, ...]  # names of the model's files
    write: Callable[[ExportedRanker], dict[str, bytes]]  # content by file name
    load: Callable[[Mapping[str, bytes], Sequence[str]], Scorer]  # from the files and the names of the columns
    instructions: Callable[[ExportedRanker], str]  # installation of the files, in Markdown
    any_missing: bool = True  # a missing feature may have a value other than 0
    deepest: int | None = None  # splits on a path of a tree

    def check(self, exported: ExportedRanker, where: str) -> None:
        """Raise BadInput if the format cannot hold a ranker."""
        saved = exported.saved
        sentence = f"{self.system} holds {' and '.join(self.families)} rankers, and this is {FAMILIES[exported.family]}"
        require(exported.family in self.families, "export.wrong-ranker", sentence, where)
        largest = np.finfo(np.float32).max / 2
        fits = all(np.abs(values).max(initial=0.0) <= largest for values in (saved.theta, exported.low, exported.span))
        sentence = "has parameters or constants beyond float32, in which systems compute"
        require(fits, "export.wrong-ranker", sentence, where)
        sentence = "transforms features before it scores, which no format can hold; export a ranker without that"
        require(not saved.ranker.transforms, "export.wrong-ranker", sentence, where)
        sentence = (
            f"its features are normalised within each list, which {self.system} cannot do; train with "
            'normalize = "fixed", or normalise the features yourself and say --normalised'
        )
        require(exported.normalisation.kind != WithinQuery.kind, "export.per-list", sentence, where)
        sentence = (
            f"a missing feature counts as {exported.missing:g} here and as 0 in {self.system}; train with missing = 0, or "
            "choose onnx, solr or vespa"
        )
        require(self.any_missing or exported.missing == 0.0, "export.missing-values", sentence, where)
        if exported.family == "trees" and self.deepest is not None:
            depth = max(tree.depth for tree in exported.trees)
            sentence = f"a tree of {depth} levels is deeper than {self.system} reads ({self.deepest}); choose onnx"
            require(depth <= self.deepest, "export.too-deep", sentence, where)


def short_floats(values: Floats | Doubles) -> list[float]:
    """Return float32 numbers as the shortest doubles that round to them: 0.1 and not 0.10000000149011612."""
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32).ravel()]


def fill_missing(features: Floats, missing: Floats | float = 0.0) -> Floats:
    """Return features with NaN replaced, by one value or one for each column."""
    return np.where(np.isnan(features), np.asarray(missing, dtype=np.float32), features)


def sum_of_products(features: Any, weights: Any, start: Any = np.float32(0.0)) -> Any:  # noqa: B008 - immutable
    """Compute (rows,) start + Σ_i features[:, i]·weights[i] one product after the other, in the precision of `start`."""
    total = np.full(len(features), start)
    with np.errstate(all="ignore"):
        for column, weight in zip(features.T, weights, strict=True):
            total = total + column * weight
    return total


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
