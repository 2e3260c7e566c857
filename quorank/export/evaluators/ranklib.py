"""RankLib's text models, from its documentation and source: the first line names the kind.

"Coordinate Ascent" is a line of `number:weight`, Σ weight·x in double; "Linear Regression" the same with the constant
under number 0. "LambdaMART" is XML: Σ weight·leaf in float32, left where x ≤ threshold. Features are float32, and 0
where they are missing. `-norm linear` is (x − min) / (max − min) within a list, with the smallest positive float32 in
place of a max that is not positive.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping

import numpy as np

from quorank.errors import require
from quorank.export.evaluators.contents import damaged, filled, float32_of, text_of
from quorank.export.evaluators.forest import MOST_NODES, ParsedTree, check_trees, leaf_values
from quorank.export.target import Scorer
from quorank.files.untrusted import XmlReader
from quorank.kernels.arrays import Doubles, Floats, Integers

LINEAR, WITH_CONSTANT, TREES = "Coordinate Ascent", "Linear Regression", "LambdaMART"
NORM = "-norm linear"
"""The option that a comment of the model may ask for."""
MOST_ELEMENTS = 20_000_000
_SMALLEST = np.float32(1.4e-45)


def load_ranklib(files: Mapping[str, bytes], file: str, n_features: int) -> Scorer:
    """Return the model of a file, run with the option that a comment of it asks for."""
    text = text_of(files, file)
    inner = _model(text, file, n_features)
    if f"## {NORM}" not in text.splitlines():
        return inner
    return lambda features, offsets: inner(normalised_linear(features, offsets), offsets)


def _model(text: str, file: str, n_features: int) -> Scorer:
    kind = text.partition("\n")[0].replace("## ", "").strip()
    if kind == TREES:
        return _of_trees(text, file, n_features)
    require(kind in (LINEAR, WITH_CONSTANT), "export.damaged", "expected a linear model or LambdaMART", file)
    lines = [line.strip() for line in text.splitlines()]
    row = next((line for line in lines if line and not line.startswith("##")), "")
    weights, constant, seen = np.zeros(n_features), 0.0, set()
    for pair in row.split(" "):
        number, _, weight = pair.partition(":")
        known = number.isascii() and number.isdigit() and len(number) <= 9 and int(number) <= n_features
        known = known and number not in seen and (number != "0" or kind == WITH_CONSTANT)
        require(known, "export.damaged", "expected number:weight of each feature once", file)
        seen.add(number)
        value = _double(weight, file)
        if number == "0":
            constant = value
        else:
            weights[int(number) - 1] = value

    def score(features: Floats, offsets: Integers) -> Doubles:
        x = filled(features, 0.0).astype(np.float64)
        total = np.full(len(x), constant)
        with np.errstate(all="ignore"):
            for column, weight in zip(x.T, weights, strict=True):
                total = total + weight * column
        return total

    return score


def normalised_linear(features: Floats, offsets: Integers) -> Floats:
    """Return features after `-norm linear`, list by list."""
    x = filled(features, 0.0).astype(np.float32)
    lengths = np.diff(offsets)
    starts = offsets[:-1][lengths > 0]
    if not len(starts):
        return x
    low = np.repeat(np.minimum.reduceat(x, starts, axis=0), lengths[lengths > 0], axis=0)
    high = np.repeat(np.maximum.reduceat(x, starts, axis=0), lengths[lengths > 0], axis=0)
    high = np.maximum(high, _SMALLEST)
    with np.errstate(all="ignore"):
        return np.where(high > low, (x - low) / (high - low), np.float32(0.0))


def _double(text: str, file: str) -> float:
    try:
        value = float(text) if len(text) <= 40 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise damaged(file, "expected a number as weight")
    return value


def _of_trees(text: str, file: str, n_features: int) -> Scorer:
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    reader = _EnsembleReader(file)
    reader.read(io.BytesIO(body.strip().encode()))
    trees = check_trees(reader.trees, n_features, file)

    def score(features: Floats, offsets: Integers) -> Doubles:
        x = filled(features, 0.0)
        total = np.zeros(len(x), dtype=np.float32)
        with np.errstate(all="ignore"):
            for weight, value in zip(reader.weights, leaf_values(trees, x, np.less_equal), strict=True):
                total = (total + value.astype(np.float64) * weight).astype(np.float32)
        return total.astype(np.float64)

    return score


class _EnsembleReader(XmlReader):
    """Reader of an ensemble: trees of splits, each with feature, threshold and two splits, or with an output."""

    def __init__(self, file: str) -> None:
        super().__init__(file, MOST_ELEMENTS)
        self.file = file
        self.trees: list[ParsedTree] = []
        self.weights: list[np.float32] = []
        self._open: list[int] = []  # splits that are not closed yet
        self._said = ""

    def begin(self, name: str) -> None:
        self._said = ""
        if name == "tree":
            require(not self._open, "export.damaged", "a tree stands in another", self.file)
            self.trees.append(ParsedTree())
            self.weights.append(float32_of(self.attributes.get("weight"), self.file, "weight of a tree"))
        elif name == "split":
            self._begin_split()
        elif name not in ("ensemble", "feature", "threshold", "output"):
            raise damaged(self.file, "holds an element that is none of an ensemble")

    def _begin_split(self) -> None:
        require(self.trees, "export.damaged", "a split stands in no tree", self.file)
        tree = self.trees[-1]
        side = self.attributes.get("pos", "")
        fits = side in ("left", "right") if self._open else not tree.feature and not side
        require(
            fits and len(tree.feature) < MOST_NODES, "export.damaged", "a split has no place in its tree", self.file
        )
        number = tree.add(-1, math.nan)
        if self._open:
            children = tree.left if side == "left" else tree.right
            require(children[self._open[-1]] < 0, "export.damaged", "a split has three children", self.file)
            children[self._open[-1]] = number
        self._open.append(number)

    def text(self, characters: str) -> None:
        self._said = (self._said + characters)[:100]

    def end(self, name: str) -> None:
        said, self._said = self._said.strip(), ""
        if name == "split":
            self._open.pop()
            return
        if name not in ("feature", "threshold", "output"):
            return
        require(self._open, "export.damaged", f"a {name} stands in no split", self.file)
        tree, at = self.trees[-1], self._open[-1]
        if name == "feature":
            numbered = said.isascii() and said.isdigit() and len(said) < 9 and int(said) > 0
            require(numbered, "export.damaged", "has no number of a feature", self.file)
            tree.feature[at] = int(said) - 1
        else:
            tree.threshold[at] = float(float32_of(said, self.file, name))
