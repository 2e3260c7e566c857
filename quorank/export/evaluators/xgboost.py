"""XGBoost's JSON model in float32: base_score + Σ leaf, left where x < split_condition, missing by default_left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.export.evaluators.contents import entry, float32_of, json_of
from quorank.export.evaluators.forest import MOST_NODES, ParsedTree, check_trees, leaf_values, summed
from quorank.export.target import Scorer
from quorank.kernels.arrays import Doubles, Floats, Integers

_COLUMNS = ("left_children", "right_children", "split_indices", "default_left")


def load_xgboost(files: Mapping[str, bytes], file: str, n_features: int) -> Scorer:
    """Return the model of a file."""
    learner = entry(json_of(files, file), "learner", dict, file)
    base = float32_of(entry(learner, "learner_model_param", dict, file).get("base_score"), file, "base_score")
    booster = entry(learner, "gradient_booster", dict, file)
    require(booster.get("name") == "gbtree", "export.damaged", "expected a booster of trees", file)
    listed = entry(entry(booster, "model", dict, file), "trees", list, file)
    trees = check_trees([_parsed(each, file) for each in listed], n_features, file)

    def score(features: Floats, offsets: Integers) -> Doubles:
        x = features.astype(np.float32)
        return np.asarray(summed(leaf_values(trees, x, np.less), len(x), np.float32) + base, dtype=np.float64)

    return score


def _parsed(given: Any, file: str) -> ParsedTree:
    tree = ParsedTree()
    left, right, features, missing = (entry(given, name, list, file) for name in _COLUMNS)
    conditions = entry(given, "split_conditions", list, file)
    alike = len(left) == len(right) == len(features) == len(missing) == len(conditions) <= MOST_NODES
    whole = alike and all(type(value) is int for column in (left, right, features, missing) for value in column)
    require(whole, "export.damaged", "holds a tree whose lists do not fit each other", file)
    for node in range(len(left)):
        leaf = left[node] == -1
        require(leaf or features[node] >= 0, "export.damaged", "splits by no feature", file)
        tree.add(
            -1 if leaf else features[node], float(float32_of(conditions[node], file, "condition")), bool(missing[node])
        )
        tree.left[node], tree.right[node] = left[node], right[node]
    return tree
