"""Normalisations of features, applied before a ranker reads them.

    query   within each query, each feature to [0, 1] by its minimum and maximum there
    none    raw features
    fixed   x' = (x − low) / (high − low) with constants agreed beforehand, so that a document is scored without its list

A missing feature is filled first, then normalised.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypedDict

import numpy as np

from quorank.data.ranking import RankingData
from quorank.errors import BadInput, require, require_range
from quorank.files.atomic import expand_home
from quorank.files.documents import decode_document, read_json
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.parts import Family


@dataclass(frozen=True)
class Normalisation(ABC):
    """Normalisation of features; `low` and `high` are the constants of a fixed one, empty for the others."""

    kind: ClassVar[str]
    low: ClassVar[tuple[float, ...]] = ()
    high: ClassVar[tuple[float, ...]] = ()
    epsilon: ClassVar[float | None] = None
    delta: ClassVar[float] = 0.0
    learns: ClassVar[bool] = False  # constants are learned before the first round

    def with_constants(self, low: Doubles, high: Doubles) -> Normalisation:
        """Return this normalisation with constants (n,), if it takes any."""
        return self

    @classmethod
    def decode_value(cls, spec: object) -> Normalisation:
        """Read the word or table of an experiment file."""
        return spec if isinstance(spec, Normalisation) else NORMALISATIONS.read(spec, "")

    def check_size(self, n_features: int) -> None:
        """Raise BadInput unless the constants are for `n_features`."""

    @property
    def known(self) -> Normalisation:
        """Return the constants alone, without their file or their privacy."""
        return self

    def scaled(self, features: Floats) -> Floats:
        """Return features (rows, n) scaled by the constants, if there are any."""
        return features

    def applied(self, data: RankingData) -> RankingData:
        """Return data with normalised features; unknown constants leave them raw."""
        return data.with_features(self.scaled(data.features)) if self.low else data


@dataclass(frozen=True)
class WithinQuery(Normalisation):
    """Minimum and maximum of each query's own list; a feature that is constant in it becomes 0."""

    kind: ClassVar[str] = "query"

    def applied(self, data: RankingData) -> RankingData:
        return normalize_queries(data)


@dataclass(frozen=True)
class RawFeatures(Normalisation):
    """Raw features."""

    kind: ClassVar[str] = "none"


@dataclass(frozen=True)
class FixedRange(Normalisation):
    """x' = (x − low) / (high − low), without clipping; a feature whose low and high are equal becomes 0."""

    kind: ClassVar[str] = "fixed"

    low: tuple[float, ...] = ()  # type: ignore[misc]  # a constant for each feature; none: from `file`, or learned
    high: tuple[float, ...] = ()  # type: ignore[misc]  # likewise, at least its low
    file: str = ""  # JSON with low and high, or a ranker file, whose constants are taken
    epsilon: float | None = None  # type: ignore[misc]  # ε of the private sum that constants are learned by before the first round
    delta: float = 1e-5  # type: ignore[misc]  # δ of that sum

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            require_range("epsilon", self.epsilon, above=0.0, most=1e6)
        require_range("delta", self.delta, above=0.0, below=1.0)
        sentence = "constants are either written down or taken from a file: leave one of them out"
        require(not (self.low and self.file), "option.conflict", sentence, "file")
        sentence = f"expected as many as low has, {len(self.low)}, got {len(self.high)}"
        require(len(self.low) == len(self.high), "normalisation.sizes-differ", sentence, "high")
        for name, values in (("low", self.low), ("high", self.high)):
            require(all(map(math.isfinite, values)), "value.not-finite", "expected finite numbers", name)
        for number, (low, high) in enumerate(zip(self.low, self.high, strict=True), 1):
            sentence = f"feature {number}: expected at least its low, {low:g}, got {high:g}"
            require(high >= low and math.isfinite(high - low), "normalisation.no-range", sentence, "high")

    @property
    def learns(self) -> bool:  # type: ignore[override]
        return not self.low and not self.file

    def with_constants(self, low: Doubles, high: Doubles) -> FixedRange:
        return replace(self, low=tuple(low.tolist()), high=tuple(high.tolist()), file="")

    @property
    def known(self) -> FixedRange:
        return FixedRange(self.low, self.high)

    def check_size(self, n_features: int) -> None:
        sentence = f"the constants are of {len(self.low)} features, and there are {n_features}"
        require(len(self.low) == n_features, "normalisation.wrong-size", sentence, "low")

    def scaled(self, features: Floats) -> Floats:
        """Return features (rows, n) scaled in double precision and rounded to float32 once."""
        self.check_size(features.shape[1])
        low, high = np.array(self.low), np.array(self.high)
        moved = features.astype(np.float64) - low
        ranges = high - low
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = np.where(ranges > 0.0, moved / ranges, 0.0).astype(np.float32)
        whole = np.isfinite(found).all(axis=0)
        number = int(np.argmin(whole)) + 1
        sentence = f"feature {number} leaves the range of float32 when it is divided by its high − low; widen them"
        require(whole.all(), "normalisation.overflow", sentence)
        return found


LARGEST = 1 << 26  # bytes of a file of constants
_BLOCK = 16_384  # rows that are normalised at once

NORMALISATIONS: Family[Normalisation] = Family(
    "normalisation", WithinQuery, RawFeatures, FixedRange, base=Normalisation
)


class _Constants(TypedDict):
    low: tuple[float, ...]
    high: tuple[float, ...]


def read_constants(normalisation: Normalisation) -> Normalisation:
    """Return a normalisation with the constants of its file, if it names one."""
    if not isinstance(normalisation, FixedRange) or not normalisation.file:
        return normalisation
    path = expand_home(Path(normalisation.file))
    content = read_json(path, most=LARGEST, code="normalisation.unreadable")
    table = content.get("normalisation", content)
    advice = "; expected low and high, a number for each feature, or a ranker file with fixed constants"
    table = decode_document(_Constants, table, str(path), code="normalisation.unreadable", advice=advice)
    try:
        return replace(normalisation, low=table["low"], high=table["high"], file="")
    except BadInput as error:
        raise error.at(str(path)) from None


def query_ranges_scaled(features: Floats, starts: Integers) -> Floats:
    """Return features (rows, n) scaled to [0, 1] within each list by its minimum and maximum.

    Lists begin at `starts` (lists,), which ascend from 0; each has at least one row.
    """
    if not len(features):
        return features
    low = np.minimum.reduceat(features, starts).astype(np.float64)
    scale = np.maximum.reduceat(features, starts) - low
    list_of = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(features))))
    wide = scale > 0.0
    found = features - low[list_of]
    found /= np.where(wide, scale, np.inf)[list_of]  # a feature that is constant in its list becomes 0
    return found.astype(np.float32)


def list_blocks(rows: int, starts: Integers | None) -> Iterator[tuple[slice, Integers | None]]:
    """Yield pieces of the rows, of whole lists if there are any, with the places in a piece where lists begin."""
    if starts is None:
        yield from ((slice(at, min(at + _BLOCK, rows)), None) for at in range(0, rows, _BLOCK))
        return
    ends, first = np.append(starts[1:], rows), 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + _BLOCK, side="right")))
        yield slice(int(starts[first]), int(ends[last - 1])), starts[first:last] - starts[first]
        first = last


def normalize_queries(data: RankingData) -> RankingData:
    """Return a copy of the data with (x − min) / (max − min) for each query and feature.

    LETOR publishes MQ2007 and MQ2008 in this form. A feature that is constant in a query becomes 0.
    """
    padded = data.padded.copy()
    for rows, starts in list_blocks(data.n_rows, data.offsets[:-1][np.diff(data.offsets) > 0]):
        assert starts is not None
        padded[rows] = query_ranges_scaled(padded[rows], starts)
    return replace(data, padded=padded)
