"""LightGBM's text model, version 4, as `lightgbm.Booster(model_file=…)`, OpenSearch and other engines read it.

A missing feature goes where what it counts as does: decision_type 8 is "missing is NaN", 2 more is "missing goes
left".
"""

from __future__ import annotations

from quorank.export.evaluators.lightgbm import load_lightgbm
from quorank.export.exported_ranker import ExportedRanker
from quorank.export.target import ExportTarget
from quorank.export.tree_nodes import TreeNodes

FILE = "model.txt"
NUMERICAL_NAN, DEFAULT_LEFT = 8, 2


def lightgbm_model(exported: ExportedRanker) -> str:
    """Return the text model of a ranker of trees."""
    trees = [_tree(number, tree) for number, tree in enumerate(exported.trees)]
    n = exported.saved.n_features
    head = [
        "tree",
        "version=v4",
        "num_class=1",
        "num_tree_per_iteration=1",
        "label_index=0",
        f"max_feature_idx={n - 1}",
        "objective=lambdarank",
        "feature_names=" + " ".join(exported.names),
        "feature_infos=" + " ".join(["[-inf:inf]"] * n),
        "tree_sizes=" + " ".join(str(len(tree.encode())) for tree in trees),
    ]
    tail = [
        "end of trees",
        "",
        "feature_importances:",
        "",
        "parameters:",
        "end of parameters",
        "",
        "pandas_categorical:null",
    ]
    return "\n".join([*head, "", ""]) + "".join(trees) + "\n".join([*tail, ""])


def _tree(number: int, tree: TreeNodes) -> str:
    lines = [f"Tree={number}", f"num_leaves={len(tree.value)}", "num_cat=0"]
    if tree.feature:
        nothing = " ".join(["0"] * len(tree.feature))
        kinds = [NUMERICAL_NAN + (DEFAULT_LEFT if left else 0) for left in tree.missing_left]
        lines += [
            "split_feature=" + _row(tree.feature),
            f"split_gain={nothing}",
            "threshold=" + " ".join(map(repr, tree.threshold)),
            "decision_type=" + _row(kinds),
            "left_child=" + _row(tree.left),
            "right_child=" + _row(tree.right),
        ]
    lines.append("leaf_value=" + " ".join(map(repr, tree.value)))
    if tree.feature:
        empty = " ".join(["0"] * len(tree.value))
        lines += [f"leaf_weight={empty}", f"leaf_count={empty}"]
        lines += [f"internal_{what}={nothing}" for what in ("value", "weight", "count")]
    return "\n".join([*lines, "is_linear=0", "shrinkage=1", "", "", ""])


def _row(numbers: list[int]) -> str:
    return " ".join(map(str, numbers))


def _calls(exported: ExportedRanker) -> str:
    return f"""\
A missing feature is NaN.

```python
import lightgbm
import numpy as np

model = lightgbm.Booster(model_file="{FILE}")
scores = model.predict(np.zeros((3, {exported.saved.n_features}), dtype=np.float32))
```
"""


LIGHTGBM = ExportTarget(
    "lightgbm",
    "LightGBM",
    ("trees",),
    write=lambda exported: {FILE: lightgbm_model(exported).encode()},
    load=lambda files, names: load_lightgbm(files, FILE, names),
    calls=_calls,
)
