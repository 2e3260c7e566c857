"""LightGBM's text model, version 4, as `lightgbm.Booster(model_file=…)`, OpenSearch and other engines read it.

A score is Σ leaf_value in double, left where x ≤ threshold. A missing feature follows decision_type: 8 is "missing is
NaN", 2 more is "missing goes left".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree, sum_of_trees

FILE = "model.txt"
NUMERICAL_NAN, DEFAULT_LEFT = 8, 2


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    trees = [_tree_section(number, tree) for number, tree in enumerate(exported.trees)]
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
        "feature_infos=" + _row(["[-inf:inf]"] * n),
        "tree_sizes=" + _row(len(tree.encode()) for tree in trees),
    ]
    tail = "end of trees\n\nfeature_importances:\n\nparameters:\nend of parameters\n\npandas_categorical:null\n"
    return {FILE: ("\n".join([*head, "", ""]) + "".join(trees) + tail).encode()}


def _tree_section(number: int, tree: NodeTree) -> str:
    """Write a tree: splits have their numbers from 0, a child c < 0 is the leaf −c − 1."""
    splits, values = tree.splits, tree.leaf_values
    lines = [f"Tree={number}", f"num_leaves={len(values)}", "num_cat=0"]
    zeros, leaf_zeros = _row([0] * splits), _row([0] * len(values))
    if splits:
        left, right = ([c if c < splits else splits - c - 1 for c in side[:splits]] for side in (tree.left, tree.right))
        lines += [
            f"split_feature={_row(tree.feature[:splits])}",
            f"split_gain={zeros}",
            f"threshold={_row(tree.threshold[:splits])}",
            f"decision_type={_row(NUMERICAL_NAN + DEFAULT_LEFT * to_left for to_left in tree.missing_left[:splits])}",
            f"left_child={_row(left)}",
            f"right_child={_row(right)}",
        ]
    lines.append(f"leaf_value={_row(values)}")
    if splits:
        lines += [f"leaf_weight={leaf_zeros}", f"leaf_count={leaf_zeros}"]
        lines += [f"internal_{statistic}={zeros}" for statistic in ("value", "weight", "count")]
    return "\n".join([*lines, "is_linear=0", "shrinkage=1", "", "", ""])


def _row(values: Iterable[object]) -> str:
    return " ".join(map(str, values))


def _load(files: Mapping[str, bytes], names: Sequence[str]) -> Scorer:
    _, *sections = files[FILE].decode().partition("\nend of trees")[0].split("\nTree=")
    trees = [_read_tree(section) for section in sections]
    return lambda features: sum_of_trees(trees, features.astype(np.float64), np.less_equal, np.float64)


def _read_tree(section: str) -> NodeTree:
    table = {key: value for key, _, value in (line.partition("=") for line in section.splitlines())}
    keys = ("split_feature", "decision_type", "left_child", "right_child")
    features, kinds, *sides = ([int(word) for word in table.get(key, "").split()] for key in keys)
    thresholds, values = ([float(word) for word in table.get(key, "").split()] for key in ("threshold", "leaf_value"))
    splits, none = len(features), [-1] * len(values)
    left, right = ([*(c if c >= 0 else splits - c - 1 for c in side), *none] for side in sides)
    missing_left = [kind == NUMERICAL_NAN + DEFAULT_LEFT for kind in [*kinds, *none]]
    return NodeTree([*features, *none], [*thresholds, *values], left, right, missing_left)


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
A missing feature is NaN.

```python
import lightgbm
import numpy as np

model = lightgbm.Booster(model_file="{FILE}")
scores = model.predict(np.zeros((3, {exported.saved.n_features}), dtype=np.float32))
```
"""


LIGHTGBM = ExportTarget("lightgbm", "LightGBM", ("trees",), (FILE,), _write, _load, _instructions)
