"""RankLib's text models: "Linear Regression" for a linear ranker, "LambdaMART" for trees.

The first line names the kind. "Linear Regression" is a line of `number:weight`, Σ weight·x in double with a constant as
feature 0, so that a fixed normalisation Σ w·(x − low) / (high − low) = Σ w/(high − low)·x − Σ w·low/(high − low) fits.
"LambdaMART" is XML: Σ weight·leaf in float32, left where x ≤ threshold. Features are float32, 0 where they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from defusedxml.ElementTree import fromstring

from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer, fill_missing, sum_of_products
from quorank.export.trees import NodeTree, read_nested, sum_of_trees

FILE = "model.txt"
LINEAR, TREES = "Linear Regression", "LambdaMART"


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    if exported.family == "trees":
        lines = _ensemble(exported.trees)
    else:
        scaled = exported.weights / np.where(exported.span > 0.0, exported.span, 1.0)
        constant = 0.0 - float((scaled * exported.low).sum())
        weights = " ".join(f"{number}:{weight!r}" for number, weight in enumerate(scaled.tolist(), 1))
        lines = [f"## {LINEAR}", f"0:{constant!r} {weights}"]
    return {FILE: "\n".join([*lines, ""]).encode()}


def _ensemble(trees: list[NodeTree]) -> list[str]:
    leaves = max(len(tree.leaf_values) for tree in trees)
    lines = [f"## {TREES}", f"## No. of trees = {len(trees)}", f"## No. of leaves = {leaves}", ""]
    lines.append("<ensemble>")
    for number, tree in enumerate(trees, 1):
        lines += [f'\t<tree id="{number}" weight="1.0">', *_split_lines(tree), "\t</tree>"]
    return [*lines, "</ensemble>"]


def _split_lines(tree: NodeTree) -> list[str]:
    lines: list[str] = []
    waiting = [(0, "", 2)]  # node, its side or "end", indentation
    while waiting:
        node, side, depth = waiting.pop()
        tabs = "\t" * depth
        if side == "end":
            lines.append(f"{tabs}</split>")
            continue
        lines.append(f'{tabs}<split pos="{side}">' if side else f"{tabs}<split>")
        value = np.float32(tree.threshold[node])
        if tree.feature[node] < 0:
            lines += [f"{tabs}\t<output> {value} </output>", f"{tabs}</split>"]
            continue
        lines.append(f"{tabs}\t<feature> {tree.feature[node] + 1} </feature>")
        lines.append(f"{tabs}\t<threshold> {value} </threshold>")
        waiting += [(0, "end", depth), (tree.right[node], "right", depth + 1), (tree.left[node], "left", depth + 1)]
    return lines


def _load(files: Mapping[str, bytes], names: Sequence[str]) -> Scorer:
    text = files[FILE].decode()
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("##")]
    if text.startswith(f"## {TREES}"):
        listed = fromstring("\n".join(lines)).findall("tree")
        weights = [np.float32(tree.get("weight")) for tree in listed]
        trees = [read_nested(tree.find("split"), _read_split) for tree in listed]
        return lambda x: sum_of_trees(trees, fill_missing(x), np.less_equal, weights=weights)
    constant, *columns = (np.float64(pair.partition(":")[2]) for pair in lines[0].split(" "))
    return lambda features: sum_of_products(fill_missing(features).astype(np.float64), columns, constant)


def _read_split(split: Any) -> tuple[int, float, tuple[Any, ...]]:
    output = split.findtext("output")
    if output is not None:
        return -1, float(output), ()
    children = {child.get("pos"): child for child in split.findall("split")}
    pair = children["left"], children["right"]
    return int(split.findtext("feature")) - 1, float(split.findtext("threshold")), pair


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
RankLib reads LETOR files: features by their number, from 1. A feature that a line leaves out is 0, except behind the
line's last one: write the last feature in every line (`{exported.saved.n_features}:0` for 0), or use `-missingZero`.

```
java -jar RankLib.jar -load {FILE} -rank documents.txt -missingZero -score scores.txt
```

The fork RankyMcRankFace has no `-missingZero` and stops with "Unknown command-line parameter". Leave the option out
there, and write the last feature in every line:

```
java -jar RankyMcRankFace.jar -load {FILE} -rank documents.txt -score scores.txt
```

RankLib: https://sourceforge.net/p/lemur/wiki/RankLib/ · RankyMcRankFace: https://github.com/o19s/RankyMcRankFace
"""


RANKLIB = ExportTarget(
    "ranklib", "RankLib", ("linear", "trees"), (FILE,), _write, _load, _instructions, any_missing=False
)
