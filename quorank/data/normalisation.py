"""Normalisations: how features are brought to a common scale before a ranker reads them, as values.

    query   within each query, each feature to [0, 1] by its minimum and maximum there (`normalize`)
    none    as they are
    fixed   x' = (x − low) / (high − low) with constants agreed beforehand, so that a document is scored without its list

A missing feature is filled first, then normalised.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.files.atomic import expand_home
from quorank.files.documents import Items, Number, Table, check_shape, read_json
from quorank.kernels.arrays import Doubles, Floats
from quorank.parts import Family


@dataclass(frozen=True)
class Normalisation(ABC):
    """How features are prepared; `low` and `high` are the constants of a fixed one, empty for the others."""

    kind: ClassVar[str]
    low: ClassVar[tuple[float, ...]] = ()
    high: ClassVar[tuple[float, ...]] = ()
    epsilon: ClassVar[float | None] = None
    delta: ClassVar[float] = 0.0

    @property
    def learns(self) -> bool:
        """Whether constants are to be learned before the first round."""
        return False

    def with_constants(self, low: Doubles, high: Doubles) -> Normalisation:
        """Return it with these constants (n,), where it has any."""
        return self

    @classmethod
    def decode_value(cls, spec: object) -> Normalisation:
        """Read the word or table of an experiment file."""
        return spec if isinstance(spec, Normalisation) else NORMALISATIONS.read(spec, "")

    def check_size(self, n_features: int) -> None:
        """Raise BadInput unless it is for documents of `n_features`."""

    @property
    def known(self) -> Normalisation:
        """What is left of it once it is known: the constants alone, without how they came about."""
        return self

    def scaled(self, features: Floats) -> Floats:
        """Return (rows, n) features by the constants, row by row; as they are where there are none."""
        return features


@dataclass(frozen=True)
class WithinQuery(Normalisation):
    """Minimum and maximum of each query's own list; a feature that is constant in it becomes 0."""

    kind: ClassVar[str] = "query"


@dataclass(frozen=True)
class RawFeatures(Normalisation):
    """Features as they are."""

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
    def learns(self) -> bool:
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
        """Return (rows, n) features by the constants: computed in double, rounded to float32 once."""
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


LARGEST = 1 << 26
"""Bytes of a file of constants."""

NORMALISATIONS: Family[Normalisation] = Family(
    "normalisation", WithinQuery, RawFeatures, FixedRange, base=Normalisation
)


_CONSTANTS = Table({"low": Items(Number()), "high": Items(Number())})


def with_file_read(normalisation: Normalisation) -> Normalisation:
    """Return a normalisation with the constants of its file in the file's place; the same where there is no file."""
    if not isinstance(normalisation, FixedRange) or not normalisation.file:
        return normalisation
    path = expand_home(Path(normalisation.file))
    content = read_json(path, most=LARGEST, code="normalisation.unreadable")
    table = content.get("normalisation", content)
    advice = "; expected low and high, a number for each feature, or a ranker file with fixed constants"
    check_shape(table, _CONSTANTS, str(path), code="normalisation.unreadable", advice=advice)
    try:
        low, high = (tuple(map(float, table[key])) for key in ("low", "high"))
        return replace(normalisation, low=low, high=high, file="")
    except BadInput as error:
        raise error.at(str(path)) from None
