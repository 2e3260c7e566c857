"""XGBoost's JSON model, as `xgboost.Booster(model_file=…)` and the learning-to-rank plug-ins of search engines read it.

A score is base_score + Σ leaf in float32, left where x < split_condition; Quorank goes left where x ≤ t, which for float32
numbers is the same with the next number above t. Float32 leaves make scores differ from Quorank's in the seventh digit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.export.contents import entry, finite, json_of, next_float32
from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree, check_trees, sum_of_trees

FILE = "model.json"
NO_PARENT = 2147483647


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    n_features = exported.saved.n_features
    trees = [_tree_table(number, tree, n_features) for number, tree in enumerate(exported.trees)]
    model = {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {
                "model": {
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(len(trees) + 1)),
                    "tree_info": [0] * len(trees),
                    "trees": trees,
                },
                "name": "gbtree",
            },
            "learner_model_param": {
                "base_score": "0E0",
                "boost_from_average": "1",
                "num_class": "0",
                "num_feature": str(n_features),
                "num_target": "1",
            },
            "objective": {"name": "rank:pairwise", "lambdarank_param": {"lambdarank_pair_method": "topk"}},
        },
        "version": [2, 1, 0],
    }
    return {FILE: (json.dumps(model) + "\n").encode()}


def _tree_table(number: int, tree: NodeTree, n_features: int) -> dict[str, Any]:
    splits, size = tree.splits, len(tree.feature)
    parents = [NO_PARENT] * size
    for node in range(splits):
        parents[tree.left[node]] = parents[tree.right[node]] = node
    values = np.array(tree.leaf_values, dtype=np.float32).tolist()
    return {
        "base_weights": [0.0] * splits + values,
        **dict.fromkeys(("categories", "categories_nodes", "categories_segments", "categories_sizes"), ()),
        "default_left": [int(to_left) for to_left in tree.missing_left],
        "id": number,
        "left_children": tree.left,
        "loss_changes": [0.0] * size,
        "parents": parents,
        "right_children": tree.right,
        "split_conditions": next_float32(tree.threshold[:splits]).tolist() + values,
        "split_indices": [max(feature, 0) for feature in tree.feature],
        "split_type": [0] * size,
        "sum_hessian": [0.0] * size,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(size),
            "size_leaf_vector": "1",
        },
    }


def _load(files: Mapping[str, bytes], names: Sequence[str]) -> Scorer:
    learner = entry(json_of(files, FILE), "learner", dict, FILE)
    base = finite(entry(learner, "learner_model_param", dict, FILE).get("base_score"), FILE, "base_score")
    booster = entry(learner, "gradient_booster", dict, FILE)
    require(booster.get("name") == "gbtree", "export.damaged", "expected a booster of trees", FILE)
    listed = entry(entry(booster, "model", dict, FILE), "trees", list, FILE)
    trees = check_trees([_read_tree(each) for each in listed], len(names), FILE)
    return lambda features: sum_of_trees(trees, features.astype(np.float32), np.less) + base


def _read_tree(table: Any) -> NodeTree:
    keys = ("split_indices", "left_children", "right_children", "default_left", "split_conditions")
    *integers, conditions = (entry(table, key, list, FILE) for key in keys)
    valid = all(type(value) is int for column in integers for value in column)
    features, left, right, missing = integers
    valid = valid and len(features) == len(left) and min(features, default=0) >= 0
    require(valid, "export.damaged", "holds a tree whose lists do not fit each other", FILE)
    features = [-1 if child == -1 else feature for feature, child in zip(features, left, strict=True)]
    thresholds = [float(finite(condition, FILE, "condition")) for condition in conditions]
    return NodeTree(features, thresholds, left, right, [*map(bool, missing)])


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
A missing feature is NaN.

```python
import numpy as np
import xgboost

model = xgboost.Booster(model_file="{FILE}")
scores = model.predict(xgboost.DMatrix(np.zeros((3, {exported.saved.n_features}), dtype=np.float32)))
```
"""


XGBOOST = ExportTarget("xgboost", "XGBoost", ("trees",), _write, _load, _instructions)
