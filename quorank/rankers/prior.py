"""Prior of a ranker: parameters known before learning, and the scale of its scores.

An experiment file names it under `[ranker]` as `start`: a ranker file, a list of parameters, or a table of weights by the
feature's number, counted from 1 as in LETOR files, or by its name. `starting` reads files, finds names and measures scales,
and leaves numbers only: the part is then self-contained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles
from quorank.parts import Numbers

Start = str | tuple[float, ...] | Numbers
"""A file, parameters, or weights by the feature."""
Scale = float | Literal["rule"]
"""Factor of the start's scores, or "rule": derived from their spread (`starting.measured_scale`)."""
ENDING = ".json"
SIZE = "ranker.wrong-size"
MOST = 50_000
"""Numbers of a start: `run.toml` holds them all."""


@dataclass(frozen=True)
class Prior:
    """A start and its scale; None leaves the scores as they are."""

    start: Start
    scale: Scale | None = None

    def __post_init__(self) -> None:
        if isinstance(self.start, str):
            is_file = self.start.endswith(ENDING) or "/" in self.start
            sentence = f"expected a ranker file (NAME{ENDING}), the folder of a run (with a /), parameters or weights"
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
    return BadInput(SIZE, f"the start has {given} parameters; {expected}", "start")
