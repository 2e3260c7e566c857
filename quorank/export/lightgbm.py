"""LightGBM's text model, version 4, as `lightgbm.Booster(model_file=…)`, OpenSearch and other engines read it.

A missing feature goes where 0 does: decision_type 8 is "missing is NaN", 2 more is "missing goes left".
"""

from __future__ import annotations

from quorank.export.target import ExportTarget
from quorank.export.tree_nodes import TreeNodes, trees_of
from quorank.rankers.ranker_file import SavedRanker

FILE = "model.txt"
NUMERICAL_NAN, DEFAULT_LEFT = 8, 2


def lightgbm_model(saved: SavedRanker) -> str:
    """Return the text model of a ranker of trees."""
    trees = [_tree(number, tree) for number, tree in enumerate(trees_of(saved))]
    n = saved.n_features
    head = [
        "tree",
        "version=v4",
        "num_class=1",
        "num_tree_per_iteration=1",
        "label_index=0",
        f"max_feature_idx={n - 1}",
        "objective=lambdarank",
        "feature_names=" + " ".join(f"Column_{f}" for f in range(n)),
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
        kinds = [NUMERICAL_NAN + (DEFAULT_LEFT if left else 0) for left in tree.zero_left]
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


def _files(saved: SavedRanker) -> dict[str, bytes]:
    return {FILE: lightgbm_model(saved).encode()}


LIGHTGBM = ExportTarget("lightgbm", "LightGBM", trees=True, flat=False, files=_files)
