"""LightGBM's text model, version 4, in double: Σ leaf_value, left where x ≤ threshold, missing by decision_type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from quorank.errors import require
from quorank.export.evaluators.contents import damaged, text_of
from quorank.export.evaluators.forest import MOST_NODES, MOST_TREES, ParsedTree, check_trees, leaf_values, summed
from quorank.export.target import Scorer
from quorank.kernels.arrays import Doubles, Floats, Integers

_NUMERICAL_NAN, _DEFAULT_LEFT = 8, 2


def load_lightgbm(files: Mapping[str, bytes], file: str, names: Sequence[str]) -> Scorer:
    """Return the model of a file."""
    text = text_of(files, file)
    head, *sections = text.partition("\nend of trees")[0].split("\nTree=")
    require(len(sections) <= MOST_TREES, "export.damaged", "holds too many trees", file)
    table = _table(head)
    sentence = "expected a text model of version v4 over the features of the export"
    known = table.get("version") == "v4" and table.get("feature_names", "").split(" ") == list(names)
    require(known, "export.damaged", sentence, file)
    trees = check_trees([_parsed(_table(section), file) for section in sections], len(names), file)

    def score(features: Floats, offsets: Integers) -> Doubles:
        x = features.astype(np.float64)
        return np.asarray(summed(leaf_values(trees, x, np.less_equal, np.float64), len(x), np.float64))

    return score


def _table(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (line.partition("=") for line in text.splitlines())}


def _parsed(table: dict[str, str], file: str) -> ParsedTree:
    """A tree: splits first, then leaves, whose number −c − 1 a child c < 0 is."""
    tree = ParsedTree()
    features, kinds, left, right = (
        _whole(table.get(key, ""), file) for key in ("split_feature", "decision_type", "left_child", "right_child")
    )
    thresholds, values = (_doubles(table.get(key, ""), file) for key in ("threshold", "leaf_value"))
    inner, leaves = len(features), len(values)
    alike = {inner} == {len(kinds), len(left), len(right), len(thresholds)}
    plain = table.get("num_cat") == "0" and table.get("shrinkage") == "1" and table.get("is_linear") == "0"
    kinds_known = all(kind in (_NUMERICAL_NAN, _NUMERICAL_NAN + _DEFAULT_LEFT) for kind in kinds)
    sound = alike and plain and kinds_known and inner + leaves <= MOST_NODES and min(features, default=0) >= 0
    require(sound, "export.damaged", "holds a tree whose lists do not fit each other", file)
    for node in range(inner):
        tree.add(features[node], thresholds[node], bool(kinds[node] & _DEFAULT_LEFT))
        tree.left[node], tree.right[node] = (c if c >= 0 else inner - c - 1 for c in (left[node], right[node]))
    for value in values:
        tree.add(-1, value)
    return tree


def _whole(text: str, file: str) -> list[int]:
    words = text.split()
    if any(len(word) > 10 or not word.lstrip("-").isdecimal() or not word.isascii() for word in words):
        raise damaged(file, "holds something else in a list of whole numbers")
    try:
        return [int(word) for word in words]
    except ValueError:
        raise damaged(file, "holds something else in a list of whole numbers") from None


def _doubles(text: str, file: str) -> list[float]:
    try:
        found = [float(word) if len(word) <= 40 else math.nan for word in text.split()]
    except ValueError:
        found = [math.nan]
    if not all(map(math.isfinite, found)):
        raise damaged(file, "holds something else in a list of numbers")
    return found
