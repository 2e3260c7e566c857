"""RankLib's text models: "Coordinate Ascent" or "Linear Regression" for a linear ranker, "LambdaMART" for trees.

A linear ranker with a fixed normalisation is Σ w·(x − low) / (high − low) = Σ w/(high − low)·x − Σ w·low/(high −
low): the second sum is the constant of a "Linear Regression", which RankLib keeps as feature 0. A missing feature is
0 in RankLib. Normalisation within a list is RankLib's own `-norm linear`.
"""

from __future__ import annotations

import numpy as np

from quorank.export.evaluators.ranklib import LINEAR, NORM, TREES, WITH_CONSTANT, load_ranklib
from quorank.export.exported_ranker import ExportedRanker
from quorank.export.target import ExportTarget
from quorank.export.tree_nodes import TreeNodes

FILE = "model.txt"


def ranklib_model(exported: ExportedRanker) -> str:
    """Return the text model of a ranker; a comment says which option of RankLib it needs."""
    comments = [f"## {NORM}"] if exported.per_list else []
    if exported.kind == "trees":
        return _ensemble(exported.trees, comments)
    weights = exported.weights.astype(np.float64)
    if not exported.rowwise.low:
        return "\n".join([f"## {LINEAR}", *comments, _row(weights), ""])
    scale = np.where(exported.span > 0.0, exported.span, 1.0)
    constant = -float((weights * exported.low / scale).sum())
    return "\n".join([f"## {WITH_CONSTANT}", f"0:{constant!r} {_row(weights / scale)}", ""])


def _row(weights: np.ndarray) -> str:
    return " ".join(f"{number}:{weight!r}" for number, weight in enumerate(weights.tolist(), 1))


def _ensemble(trees: list[TreeNodes], comments: list[str]) -> str:
    leaves = max(len(tree.value) for tree in trees)
    counts = [f"## No. of trees = {len(trees)}", f"## No. of leaves = {leaves}"]
    lines = [f"## {TREES}", *counts, *comments, "", "<ensemble>"]
    for number, tree in enumerate(trees, 1):
        lines += [f'\t<tree id="{number}" weight="1.0">', *_splits(tree), "\t</tree>"]
    return "\n".join([*lines, "</ensemble>", ""])


def _splits(tree: TreeNodes) -> list[str]:
    lines: list[str] = []
    waiting: list[tuple[int, str, int]] = [(0 if tree.feature else -1, "", 2)]  # child, its side, how far it is set in
    while waiting:
        child, side, deep = waiting.pop()
        tabs = "\t" * deep
        if side == "end":
            lines.append(f"{tabs}</split>")
            continue
        lines.append(f'{tabs}<split pos="{side}">' if side else f"{tabs}<split>")
        if child < 0:
            lines += [f"{tabs}\t<output> {np.float32(tree.value[-child - 1])} </output>", f"{tabs}</split>"]
            continue
        threshold = np.float32(tree.threshold[child])
        lines += [
            f"{tabs}\t<feature> {tree.feature[child] + 1} </feature>",
            f"{tabs}\t<threshold> {threshold} </threshold>",
        ]
        waiting += [(0, "end", deep), (tree.right[child], "right", deep + 1), (tree.left[child], "left", deep + 1)]
    return lines


def _calls(exported: ExportedRanker) -> str:
    norm = f" {NORM}" if exported.per_list else ""
    within = (
        f"\n`{NORM}` normalises within each list, as this ranker was trained, but for a feature that is negative in a\n"
        "whole list (RankLib's maximum begins above 0): check your data with `quorank export check`."
    )
    within = within if norm else ""
    return f"""\
RankLib reads LETOR files: features by their number, from 1. A feature that a line leaves out is 0; give the last one
(`{exported.saved.n_features}:0`) always, or say `-missingZero`.{within}

```
java -jar RankLib.jar -load {FILE} -rank documents.txt{norm} -missingZero -score scores.txt
```

RankLib: https://sourceforge.net/p/lemur/wiki/RankLib/
"""


RANKLIB = ExportTarget(
    "ranklib",
    "RankLib",
    ("linear", "trees"),
    write=lambda exported: {FILE: ranklib_model(exported).encode()},
    load=lambda files, names: load_ranklib(files, FILE, len(names)),
    calls=_calls,
    any_missing=False,
    per_list=True,
)
