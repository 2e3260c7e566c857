"""Learning-to-rank plug-ins of Elasticsearch and OpenSearch: a feature set and a `model/linear` or `model/xgboost+json`.

The plug-in scores in float32. A feature whose query does not match a document is 0. A fixed normalisation is the
plug-in's `standard` normaliser, (x − mean) / standard_deviation with mean = low and standard_deviation = high − low:
its `min_max` would be the same, and takes no negative low. Trees are in the form of XGBoost's JSON dump, left where x
< t, so t is the next float32 up.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from quorank.export.evaluators.plugin import load_plugin
from quorank.export.exported_ranker import ExportedRanker, short_floats
from quorank.export.target import ExportTarget
from quorank.export.tree_nodes import TreeNodes

FEATURES, MODEL = "featureset.json", "model.json"
SET_NAME, MODEL_NAME = "quorank_features", "quorank"


def _files(exported: ExportedRanker) -> dict[str, bytes]:
    features = {"featureset": {"name": SET_NAME, "features": [_feature(name) for name in exported.names]}}
    inner = _trees(exported) if exported.kind == "trees" else _linear(exported)
    model = {"model": {"name": MODEL_NAME, "model": inner}}
    return {FEATURES: _encoded(features), MODEL: _encoded(model)}


def _encoded(content: Any) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _feature(name: str) -> dict[str, Any]:
    value = {"query": {"match_all": {}}, "field_value_factor": {"field": name, "missing": 0}}
    return {"name": name, "params": [], "template_language": "mustache", "template": {"function_score": value}}


def _linear(exported: ExportedRanker) -> dict[str, Any]:
    weights = dict(zip(exported.names, short_floats(exported.weights), strict=True))
    inner: dict[str, Any] = {"type": "model/linear", "definition": json.dumps(weights)}
    if exported.rowwise.low:
        constants = zip(exported.names, short_floats(exported.low), short_floats(exported.span), strict=True)
        inner["feature_normalizers"] = {
            name: {"standard": {"mean": low, "standard_deviation": span}} for name, low, span in constants if span > 0.0
        }
    return inner


def _trees(exported: ExportedRanker) -> dict[str, Any]:
    dumped = [_nested(tree, exported.names) for tree in exported.trees]
    return {"type": "model/xgboost+json", "definition": json.dumps(dumped, allow_nan=False)}


def _nested(tree: TreeNodes, names: tuple[str, ...]) -> dict[str, Any]:
    """The dump of a tree, made from its last node up: children have higher numbers than their parents."""
    above = np.nextafter(np.array(tree.threshold, dtype=np.float32), np.float32(np.inf))
    thresholds, values = short_floats(above), short_floats(np.array(tree.value, dtype=np.float32))
    inner, depths = len(tree.feature), [0] * len(tree.feature)
    for node in range(inner):
        for child in (tree.left[node], tree.right[node]):
            if child >= 0:
                depths[child] = depths[node] + 1
    made: dict[int, dict[str, Any]] = {
        -leaf - 1: {"nodeid": inner + leaf, "leaf": value} for leaf, value in enumerate(values)
    }
    for node in range(inner - 1, -1, -1):
        yes, no = made[tree.left[node]], made[tree.right[node]]
        made[node] = {
            "nodeid": node,
            "depth": depths[node],
            "split": names[tree.feature[node]],
            "split_condition": thresholds[node],
            "yes": yes["nodeid"],
            "no": no["nodeid"],
            "missing": (yes if tree.missing_left[node] else no)["nodeid"],
            "children": [yes, no],
        }
    return made[0] if inner else made[-1]


def _calls(exported: ExportedRanker, server: str, page: str) -> str:
    negative = f"add a constant to one that can be, and the same to its `mean` in `{MODEL}`"
    if exported.kind == "trees" or not exported.rowwise.low:
        negative = "train on features that are not"
    return f"""\
Each feature of `{FEATURES}` reads a field of the same name, as an example: **edit a copy** and put in the query whose
score is the feature. A query that does not match gives 0, which is what a missing feature counts as. Scores of queries
in {server} are never negative: {negative}.

```
curl -X PUT  localhost:9200/_ltr
curl -X POST localhost:9200/_ltr/_featureset/{SET_NAME} -H 'Content-Type: application/json' -d @{FEATURES}
curl -X POST localhost:9200/_ltr/_featureset/{SET_NAME}/_createmodel -H 'Content-Type: application/json' -d @{MODEL}
curl localhost:9200/INDEX/_search -H 'Content-Type: application/json' -d '{{
  "query": {{"match": {{"title": "words of the query"}}}},
  "rescore": {{"window_size": 100, "query": {{
    "query_weight": 0, "rescore_query": {{"sltr": {{"params": {{}}, "model": "{MODEL_NAME}"}}}}}}}}}}'
```

The model's scores may be negative, and documents behind the window keep their first scores: let `window_size` be at
least as many as you show. The plug-in: {page}
"""


def _target(name: str, system: str, server: str, page: str) -> ExportTarget:
    return ExportTarget(
        name,
        system,
        ("linear", "trees"),
        write=_files,
        load=lambda files, names: load_plugin(files, FEATURES, MODEL, names),
        calls=lambda exported: _calls(exported, server, page),
        any_missing=False,
        deepest=300,
    )


ELASTICSEARCH = _target(
    "elasticsearch",
    "the learning-to-rank plug-in of Elasticsearch",
    "Elasticsearch",
    "https://elasticsearch-learning-to-rank.readthedocs.io",
)
OPENSEARCH = _target(
    "opensearch",
    "the learning-to-rank plug-in of OpenSearch",
    "OpenSearch",
    "https://docs.opensearch.org/latest/search-plugins/ltr/index/",
)
