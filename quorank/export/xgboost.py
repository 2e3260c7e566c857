"""XGBoost's JSON model, as `xgboost.Booster(model_file=…)` and the learning-to-rank plug-ins of search engines read it.

XGBoost goes left where x < t, Quorank where x ≤ t: for float32 numbers that is the same with the next number above t.
Its leaves are float32, so that scores differ from Quorank's in the seventh digit. A missing feature goes where what
it counts as does.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from quorank.export.evaluators.xgboost import load_xgboost
from quorank.export.exported_ranker import ExportedRanker
from quorank.export.target import ExportTarget
from quorank.export.tree_nodes import TreeNodes

FILE = "model.json"
NO_PARENT = 2147483647


def xgboost_model(exported: ExportedRanker) -> dict[str, Any]:
    """Return the JSON model of a ranker of trees."""
    n_features = exported.saved.n_features
    trees = [_tree(number, tree, n_features) for number, tree in enumerate(exported.trees)]
    return {
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


def _tree(number: int, tree: TreeNodes, n_features: int) -> dict[str, Any]:
    inner, size = len(tree.feature), len(tree.feature) + len(tree.value)

    def place(child: int) -> int:
        """Nodes first, then leaves."""
        return child if child >= 0 else inner - child - 1

    left, right, parents = [-1] * size, [-1] * size, [NO_PARENT] * size
    for node in range(inner):
        left[node], right[node] = place(tree.left[node]), place(tree.right[node])
        parents[left[node]] = parents[right[node]] = node
    above = np.nextafter(np.array(tree.threshold, dtype=np.float32), np.float32(np.inf)).astype(np.float64).tolist()
    values = np.array(tree.value, dtype=np.float32).astype(np.float64).tolist()
    leaves = len(tree.value)
    return {
        "base_weights": [0.0] * inner + values,
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": [int(left_) for left_ in tree.missing_left] + [0] * leaves,
        "id": number,
        "left_children": left,
        "loss_changes": [0.0] * size,
        "parents": parents,
        "right_children": right,
        "split_conditions": above + values,
        "split_indices": tree.feature + [0] * leaves,
        "split_type": [0] * size,
        "sum_hessian": [0.0] * size,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(size),
            "size_leaf_vector": "1",
        },
    }


def _calls(exported: ExportedRanker) -> str:
    return f"""\
A missing feature is NaN.

```python
import numpy as np
import xgboost

model = xgboost.Booster(model_file="{FILE}")
scores = model.predict(xgboost.DMatrix(np.zeros((3, {exported.saved.n_features}), dtype=np.float32)))
```
"""


XGBOOST = ExportTarget(
    "xgboost",
    "XGBoost",
    ("trees",),
    write=lambda exported: {FILE: (json.dumps(xgboost_model(exported)) + "\n").encode()},
    load=lambda files, names: load_xgboost(files, FILE, len(names)),
    calls=_calls,
)
