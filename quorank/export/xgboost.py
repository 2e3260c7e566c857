"""XGBoost's JSON model, as `xgboost.Booster(model_file=…)` and the learning-to-rank plug-ins of search engines read it.

A score is base_score + Σ leaf in float32, left where x < split_condition; Quorank goes left where x ≤ t, which for float32
numbers is the same with the next number above t. Float32 leaves make scores differ from Quorank's in the seventh digit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree, sum_of_trees

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
        "split_conditions": tree.next_above[:splits].tolist() + values,
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
    learner = json.loads(files[FILE])["learner"]
    base = np.float32(learner["learner_model_param"]["base_score"])
    trees = [_read_tree(table) for table in learner["gradient_booster"]["model"]["trees"]]
    return lambda features: sum_of_trees(trees, features.astype(np.float32), np.less) + base


def _read_tree(table: dict[str, Any]) -> NodeTree:
    left, right = table["left_children"], table["right_children"]
    features = [-1 if child == -1 else feature for feature, child in zip(table["split_indices"], left, strict=True)]
    return NodeTree(features, table["split_conditions"], left, right, [*map(bool, table["default_left"])])


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


XGBOOST = ExportTarget("xgboost", "XGBoost", ("trees",), (FILE,), _write, _load, _instructions)
