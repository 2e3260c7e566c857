"""Solr's learning-to-rank module: a feature store, and a LinearModel or MultipleAdditiveTreesModel.

Solr scores in float32. A FieldValueFeature has a `defaultValue`, else 0, for documents without the field. MinMaxNormalizer
is (x − min) / (max − min). LinearModel is Σ x·weight, MultipleAdditiveTreesModel Σ weight·leaf, left where
x ≤ threshold + 1e-6.

The written threshold is therefore a number that becomes the right one when 1e-6 is added. Where no such number exists the
sum is the next one above: one float32 step for some negative thresholds, at most 1.2e-13 for those within 1e-6 of 0. A
feature between the two goes left in Solr and right in Quorank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorank.export.exported_ranker import (
    ExportedRanker,
    ExportTarget,
    Scorer,
    fill_missing,
    short_floats,
    sum_of_products,
)
from quorank.export.trees import NodeTree, read_nested, sum_of_trees
from quorank.files.documents import json_bytes
from quorank.kernels.arrays import Floats

FEATURES, MODEL = "features.json", "model.json"
STORE, MODEL_NAME = "quorank", "quorank"
_SLACK = np.float32(1e-6)
_MODELS, _NORMS = "org.apache.solr.ltr.model.", "org.apache.solr.ltr.norm."


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    (missing,) = short_floats(np.array([exported.missing]))
    features = [
        {
            "store": STORE,
            "name": name,
            "class": "org.apache.solr.ltr.feature.FieldValueFeature",
            "params": {"field": name, "defaultValue": missing},
        }
        for name in exported.names
    ]
    kind, params = _model(exported)
    normalised = exported.family != "trees" and exported.normalisation.low
    model = {
        "store": STORE,
        "class": f"{_MODELS}{kind}",
        "name": MODEL_NAME,
        "features": _normalised_features(exported) if normalised else [{"name": name} for name in exported.names],
        "params": params,
    }
    return {FEATURES: json_bytes(features), MODEL: json_bytes(model)}


def _normalised_features(exported: ExportedRanker) -> list[dict[str, Any]]:
    """Features with their normalisers; constant features need none, since their weight is 0."""
    listed: list[dict[str, Any]] = []
    low, high = exported.low.astype(np.float32), (exported.low + exported.span).astype(np.float32)
    for number, name in enumerate(exported.names):
        params = {"min": str(low[number]), "max": str(high[number])}
        norm = {"class": f"{_NORMS}MinMaxNormalizer", "params": params}
        listed.append({"name": name, "norm": norm} if exported.span[number] > 0.0 else {"name": name})
    return listed


def _model(exported: ExportedRanker) -> tuple[str, dict[str, Any]]:
    if exported.family == "linear":
        return "LinearModel", {"weights": dict(zip(exported.names, short_floats(exported.weights), strict=True))}
    trees = [{"weight": "1.0", "root": _root(tree, exported.names)} for tree in exported.trees]
    return "MultipleAdditiveTreesModel", {"trees": trees}


def _root(tree: NodeTree, names: tuple[str, ...]) -> dict[str, Any]:
    values = np.array(tree.threshold, dtype=np.float32)
    thresholds = written_thresholds(values)

    def of_split(node: int, left: object, right: object) -> dict[str, Any]:
        name = names[tree.feature[node]]
        return {"feature": name, "threshold": str(thresholds[node]), "left": left, "right": right}

    root: dict[str, Any] = tree.fold(lambda leaf: {"value": str(values[leaf])}, of_split)
    return root


def written_thresholds(thresholds: Floats) -> Floats:
    """Return t' with t' + 1e-6 = t in float32 or, where no such number exists, the smallest sum above t."""
    written = thresholds - _SLACK
    for _ in range(4):  # the rounded difference is at most two steps off
        written = np.where(written + _SLACK > thresholds, np.nextafter(written, np.float32(-np.inf)), written)
    for _ in range(4):
        written = np.where(written + _SLACK < thresholds, np.nextafter(written, np.float32(np.inf)), written)
    return written.astype(np.float32)


def _load(files: Mapping[str, bytes], columns: Sequence[str]) -> Scorer:
    store, model = json.loads(files[FEATURES]), json.loads(files[MODEL])
    values = {feature["name"]: feature["params"].get("defaultValue", 0.0) for feature in store}
    defaults = np.array([values[name] for name in columns], dtype=np.float32)
    names = [feature["name"] for feature in model["features"]]
    order = [columns.index(name) for name in names]
    ranges = [feature.get("norm", {"params": {"min": 0.0, "max": 1.0}})["params"] for feature in model["features"]]
    low, high = (np.array([each[end] for each in ranges], dtype=np.float32) for end in ("min", "max"))
    if model["class"] == f"{_MODELS}LinearModel":
        weights = [np.float32(model["params"]["weights"][name]) for name in names]
    else:
        listed = model["params"]["trees"]
        weights = [np.float32(tree["weight"]) for tree in listed]
        trees = [read_nested(tree["root"], lambda node: _read_node(node, names)) for tree in listed]

    def score(features: Floats) -> Any:
        with np.errstate(all="ignore"):
            x = (fill_missing(features, defaults)[:, order] - low) / (high - low)
        if model["class"] == f"{_MODELS}LinearModel":
            return sum_of_products(x, weights)
        return sum_of_trees(trees, x, np.less_equal, weights=weights)

    return score


def _read_node(node: dict[str, Any], names: list[str]) -> tuple[int, float, tuple[Any, ...]]:
    if "feature" not in node:
        return -1, float(node["value"]), ()
    threshold = np.float32(node["threshold"]) + _SLACK
    return names.index(node["feature"]), float(threshold), (node["left"], node["right"])


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
As an example, each feature of `{FEATURES}` reads a field of the same name: **edit a copy**, and replace it by the
feature class that computes it, with the same `defaultValue` ({exported.missing:g}, the value of a missing feature).

```
curl -X PUT localhost:8983/solr/CORE/schema/feature-store -H 'Content-Type: application/json' --data-binary @{FEATURES}
curl -X PUT localhost:8983/solr/CORE/schema/model-store   -H 'Content-Type: application/json' --data-binary @{MODEL}
curl localhost:8983/solr/CORE/query -d 'q=words of the query' -d 'fl=id,score' \\
  --data-urlencode 'rq={{!ltr model={MODEL_NAME} reRankDocs=100}}'
```

Solr needs the module `ltr` (`SOLR_MODULES=ltr`) and its query parser and transformer in solrconfig.xml:
https://solr.apache.org/guide/solr/latest/query-guide/learning-to-rank.html
"""


SOLR = ExportTarget("solr", "Solr", ("linear", "trees"), (FEATURES, MODEL), _write, _load, _instructions, deepest=300)
