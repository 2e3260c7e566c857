"""Solr's learning-to-rank module: a feature store, and a LinearModel, NeuralNetworkModel or MultipleAdditiveTreesModel.

Solr scores in float32. A FieldValueFeature has a `defaultValue` for documents without the field. A fixed normalisation is
a MinMaxNormalizer. Solr adds 1e-6 to every threshold of a tree, so that what is written is a number that becomes the
threshold by that. Where there is none it becomes the next one above: one float32 step for some negative thresholds, at
most 1.2e-13 for those within 1e-6 of 0. A feature between the two goes left in Solr and right in Quorank.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from quorank.export.evaluators.solr import load_solr
from quorank.export.exported_ranker import ExportedRanker, short_floats
from quorank.export.target import ExportTarget
from quorank.export.tree_nodes import TreeNodes
from quorank.kernels.arrays import Floats

FEATURES, MODEL = "features.json", "model.json"
STORE, MODEL_NAME = "quorank", "quorank"
_SLACK = np.float32(1e-6)


def _files(exported: ExportedRanker) -> dict[str, bytes]:
    features = [
        {
            "store": STORE,
            "name": name,
            "class": "org.apache.solr.ltr.feature.FieldValueFeature",
            "params": {"field": name, "defaultValue": short_floats(np.array([exported.missing]))[0]},
        }
        for name in exported.names
    ]
    kind, params = _model(exported)
    normalised = exported.kind != "trees" and exported.rowwise.low
    model = {
        "store": STORE,
        "class": f"org.apache.solr.ltr.model.{kind}",
        "name": MODEL_NAME,
        "features": _normalised(exported) if normalised else [{"name": name} for name in exported.names],
        "params": params,
    }
    return {FEATURES: _encoded(features), MODEL: _encoded(model)}


def _encoded(content: Any) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _normalised(exported: ExportedRanker) -> list[dict[str, Any]]:
    """Features with their normalisers; without one where low and high are equal, since its weight is 0."""
    found: list[dict[str, Any]] = []
    low, high = exported.low.astype(np.float32), (exported.low + exported.span).astype(np.float32)
    for number, name in enumerate(exported.names):
        params = {"min": str(low[number]), "max": str(high[number])}
        norm = {"class": "org.apache.solr.ltr.norm.MinMaxNormalizer", "params": params}
        found.append({"name": name, "norm": norm} if exported.span[number] > 0.0 else {"name": name})
    return found


def _model(exported: ExportedRanker) -> tuple[str, dict[str, Any]]:
    if exported.kind == "linear":
        return "LinearModel", {"weights": dict(zip(exported.names, short_floats(exported.weights), strict=True))}
    if exported.kind == "trees":
        trees = [{"weight": "1.0", "root": _nested(tree, exported.names)} for tree in exported.trees]
        return "MultipleAdditiveTreesModel", {"trees": trees}
    layer = exported.layer
    hidden = {
        "matrix": [short_floats(row) for row in layer.weights],
        "bias": short_floats(layer.bias),
        "activation": layer.activation,
    }
    output = {"matrix": [short_floats(layer.output)], "bias": [0.0], "activation": "identity"}
    return "NeuralNetworkModel", {"layers": [hidden, output]}


def _nested(tree: TreeNodes, names: tuple[str, ...]) -> dict[str, Any]:
    """A tree from its last node up: children have higher numbers than their parents."""
    thresholds = written_thresholds(np.array(tree.threshold, dtype=np.float32))
    values = np.array(tree.value, dtype=np.float32)
    made: dict[int, dict[str, Any]] = {-leaf - 1: {"value": str(value)} for leaf, value in enumerate(values)}
    for node in range(len(tree.feature) - 1, -1, -1):
        made[node] = {
            "feature": names[tree.feature[node]],
            "threshold": str(thresholds[node]),
            "left": made[tree.left[node]],
            "right": made[tree.right[node]],
        }
    return made[0] if tree.feature else made[-1]


def written_thresholds(thresholds: Floats) -> Floats:
    """Return t' with t' + 1e-6 = t in float32, or where none is, the smallest such sum above t."""
    found = thresholds - _SLACK
    for _ in range(4):  # the rounded difference is at most two steps off
        found = np.where(found + _SLACK > thresholds, np.nextafter(found, np.float32(-np.inf)), found)
    for _ in range(4):
        found = np.where(found + _SLACK < thresholds, np.nextafter(found, np.float32(np.inf)), found)
    return found.astype(np.float32)


def _calls(exported: ExportedRanker) -> str:
    return f"""\
Each feature of `{FEATURES}` reads a field of the same name, as an example: **edit a copy** and put in the feature
class that computes it, with the same `defaultValue` ({exported.missing:g}, what a missing feature counts as).

```
curl -X PUT localhost:8983/solr/CORE/schema/feature-store -H 'Content-Type: application/json' --data-binary @{FEATURES}
curl -X PUT localhost:8983/solr/CORE/schema/model-store   -H 'Content-Type: application/json' --data-binary @{MODEL}
curl localhost:8983/solr/CORE/query -d 'q=words of the query' -d 'fl=id,score' \\
  --data-urlencode 'rq={{!ltr model={MODEL_NAME} reRankDocs=100}}'
```

Solr needs the module `ltr` (`SOLR_MODULES=ltr`) and its query parser and transformer in solrconfig.xml:
https://solr.apache.org/guide/solr/latest/query-guide/learning-to-rank.html
"""


SOLR = ExportTarget(
    "solr",
    "Solr",
    ("linear", "network", "trees"),
    write=_files,
    load=lambda files, names: load_solr(files, FEATURES, MODEL, names),
    calls=_calls,
    deepest=300,
)
