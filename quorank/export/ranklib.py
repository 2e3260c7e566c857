"""RankLib's text models: "Coordinate Ascent" or "Linear Regression" for a linear ranker, "LambdaMART" for trees.

The first line names the kind. "Coordinate Ascent" is a line of `number:weight`, Σ weight·x in double; "Linear Regression"
has a constant as feature 0 too, so that a fixed normalisation Σ w·(x − low) / (high − low) = Σ w/(high − low)·x −
Σ w·low/(high − low) fits. "LambdaMART" is XML: Σ weight·leaf in float32, left where x ≤ threshold. Features are float32, 0
where they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from defusedxml.ElementTree import fromstring

from quorank.errors import require
from quorank.export.contents import damaged, fill_missing, finite, sum_of_products, text_of
from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree, check_trees, read_nested, sum_of_trees
from quorank.files.untrusted import translate_errors

FILE = "model.txt"
LINEAR, WITH_CONSTANT, TREES = "Coordinate Ascent", "Linear Regression", "LambdaMART"
MOST_TAGS = 8_000_000


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    if exported.family == "trees":
        lines = _ensemble(exported.trees)
    else:
        weights = exported.weights.astype(np.float64)
        lines = [f"## {LINEAR}", _row(weights)]
        if exported.normalisation.low:
            scale = np.where(exported.span > 0.0, exported.span, 1.0)
            constant = -float((weights * exported.low / scale).sum())
            lines = [f"## {WITH_CONSTANT}", f"0:{constant!r} {_row(weights / scale)}"]
    return {FILE: "\n".join([*lines, ""]).encode()}


def _row(weights: np.ndarray) -> str:
    return " ".join(f"{number}:{weight!r}" for number, weight in enumerate(weights.tolist(), 1))


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
    text = text_of(files, FILE)
    kind = text.partition("\n")[0].replace("## ", "").strip()
    require(kind in (LINEAR, WITH_CONSTANT, TREES), "export.damaged", "expected a linear model or LambdaMART", FILE)
    return _read_trees(text, len(names)) if kind == TREES else _read_linear(text, kind, len(names))


def _read_linear(text: str, kind: str, n_features: int) -> Scorer:
    lines = [line.strip() for line in text.splitlines()]
    row = next((line for line in lines if line and not line.startswith("##")), "")
    weights: dict[int, float] = {}
    for pair in row.split(" "):
        number, _, weight = pair.partition(":")
        known = number.isascii() and number.isdigit() and len(number) <= 9 and int(number) <= n_features
        known = known and int(number) not in weights and (int(number) > 0 or kind == WITH_CONSTANT)
        require(known, "export.damaged", "expected number:weight of each feature once", FILE)
        weights[int(number)] = finite(weight, FILE, "weight", np.float64)
    constant = np.float64(weights.pop(0, 0.0))
    columns = [weights.get(number, 0.0) for number in range(1, n_features + 1)]
    return lambda features: sum_of_products(fill_missing(features, 0.0).astype(np.float64), columns, constant)


def _read_trees(text: str, n_features: int) -> Scorer:
    require(text.count("<") <= MOST_TAGS, "export.damaged", "has more elements than a model", FILE)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    with translate_errors(FILE, "an XML document without a document type"):
        listed = fromstring(body.strip(), forbid_dtd=True).findall("tree")
    weights = [np.float64(finite(tree.get("weight"), FILE, "weight of a tree")) for tree in listed]
    trees = check_trees([read_nested(tree.find("split"), _read_split, FILE) for tree in listed], n_features, FILE)
    return lambda x: sum_of_trees(trees, fill_missing(x, 0.0), np.less_equal, weights=weights)


def _read_split(split: Any) -> tuple[int, float, tuple[object, ...]]:
    if split is None:
        raise damaged(FILE, "holds a tree without splits")
    output = split.findtext("output")
    if output is not None:
        return -1, float(finite(output, FILE, "output")), ()
    feature = split.findtext("feature", "").strip()
    known = feature.isascii() and feature.isdigit() and len(feature) < 9 and int(feature) > 0
    require(known, "export.damaged", "has a split without the number of a feature", FILE)
    children = {child.get("pos"): child for child in split.findall("split")}
    pair = len(split.findall("split")) == 2 and set(children) == {"left", "right"}
    require(pair, "export.damaged", "has a split without a left and a right child", FILE)
    threshold = finite(split.findtext("threshold"), FILE, "threshold")
    return int(feature) - 1, float(threshold), (children["left"], children["right"])


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
RankLib reads LETOR files: features by their number, from 1. A feature that a line leaves out is 0; always write the
last one (`{exported.saved.n_features}:0`), or say `-missingZero`.

```
java -jar RankLib.jar -load {FILE} -rank documents.txt -missingZero -score scores.txt
```

RankLib: https://sourceforge.net/p/lemur/wiki/RankLib/
"""


RANKLIB = ExportTarget("ranklib", "RankLib", ("linear", "trees"), _write, _load, _instructions, any_missing=False)
