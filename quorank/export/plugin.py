"""Learning-to-rank plug-ins of Elasticsearch and OpenSearch: a feature set and a `model/linear` or `model/xgboost+json`.

The plug-in scores in float32. Features stand in the order of the feature set, and are 0 where their query does not match a
document. Normalisers come first: `standard` is (x − mean) / standard_deviation, as which a fixed normalisation is written
with mean = low and standard_deviation = high − low (`min_max` takes no negative minimum). `model/linear` is Σ weight·x.
`model/xgboost+json` is a list of trees in the form of XGBoost's JSON dump, left ("yes") where x < split_condition;
"missing" is ignored.
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

FEATURES, MODEL = "featureset.json", "model.json"
SET_NAME, MODEL_NAME = "quorank_features", "quorank"


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    features = {"featureset": {"name": SET_NAME, "features": [_feature(name) for name in exported.names]}}
    inner = _tree_model(exported) if exported.family == "trees" else _linear_model(exported)
    return {FEATURES: json_bytes(features), MODEL: json_bytes({"model": {"name": MODEL_NAME, "model": inner}})}


def _feature(name: str) -> dict[str, Any]:
    value = {"query": {"match_all": {}}, "field_value_factor": {"field": name, "missing": 0}}
    return {"name": name, "params": [], "template_language": "mustache", "template": {"function_score": value}}


def _linear_model(exported: ExportedRanker) -> dict[str, Any]:
    weights = dict(zip(exported.names, short_floats(exported.weights), strict=True))
    inner: dict[str, Any] = {"type": "model/linear", "definition": json.dumps(weights)}
    if exported.normalisation.low:
        constants = zip(exported.names, short_floats(exported.low), short_floats(exported.span), strict=True)
        inner["feature_normalizers"] = {
            name: {"standard": {"mean": low, "standard_deviation": span}} for name, low, span in constants if span > 0.0
        }
    return inner


def _tree_model(exported: ExportedRanker) -> dict[str, Any]:
    dumped = [_dump(tree, exported.names) for tree in exported.trees]
    return {"type": "model/xgboost+json", "definition": json.dumps(dumped, allow_nan=False)}


def _dump(tree: NodeTree, names: tuple[str, ...]) -> dict[str, Any]:
    thresholds, values = short_floats(tree.next_above), short_floats(np.array(tree.threshold))
    depths = [0] * len(tree.feature)
    for node in range(tree.splits):
        depths[tree.left[node]] = depths[tree.right[node]] = depths[node] + 1

    def of_split(node: int, yes: dict[str, Any], no: dict[str, Any]) -> dict[str, Any]:
        return {
            "nodeid": node,
            "depth": depths[node],
            "split": names[tree.feature[node]],
            "split_condition": thresholds[node],
            "yes": yes["nodeid"],
            "no": no["nodeid"],
            "missing": (yes if tree.missing_left[node] else no)["nodeid"],
            "children": [yes, no],
        }

    dumped: dict[str, Any] = tree.fold(lambda leaf: {"nodeid": leaf, "leaf": values[leaf]}, of_split)
    return dumped


def _load(files: Mapping[str, bytes], columns: Sequence[str]) -> Scorer:
    names = [feature["name"] for feature in json.loads(files[FEATURES])["featureset"]["features"]]
    order = [columns.index(name) for name in names]
    model = json.loads(files[MODEL])["model"]["model"]
    definition = json.loads(model["definition"])
    normalisers = model.get("feature_normalizers", {})
    tables = [normalisers.get(name, {"standard": {"mean": 0.0, "standard_deviation": 1.0}}) for name in names]
    centre, scale = (
        np.array([table["standard"][key] for table in tables], dtype=np.float32)
        for key in ("mean", "standard_deviation")
    )
    linear = model["type"] == "model/linear"
    weights = np.array([definition.get(name, 0.0) for name in names] if linear else [], dtype=np.float32)
    trees = [] if linear else [read_nested(root, lambda node: _read_node(node, names)) for root in definition]

    def score(features: Floats) -> Any:
        with np.errstate(all="ignore"):
            x = (fill_missing(features)[:, order] - centre) / scale
        return sum_of_products(x, weights) if linear else sum_of_trees(trees, x, np.less)

    return score


def _read_node(node: dict[str, Any], names: list[str]) -> tuple[int, float, tuple[Any, ...]]:
    if "leaf" in node:
        return -1, node["leaf"], ()
    children = {child["nodeid"]: child for child in node["children"]}
    return names.index(node["split"]), node["split_condition"], (children[node["yes"]], children[node["no"]])


def _instructions(exported: ExportedRanker, server: str, page: str) -> str:
    negative = f"add a constant to a feature with negative values, and the same to its `mean` in `{MODEL}`"
    if exported.family == "trees" or not exported.normalisation.low:
        negative = "train on features without negative values"
    return f"""\
As an example, each feature of `{FEATURES}` reads a field of the same name: **edit a copy**, and replace it by the query
whose score is the feature. A query that does not match gives 0, the value of a missing feature. Scores of queries in
{server} are never negative: {negative}.

```
curl -X PUT  localhost:9200/_ltr
curl -X POST localhost:9200/_ltr/_featureset/{SET_NAME} -H 'Content-Type: application/json' -d @{FEATURES}
curl -X POST localhost:9200/_ltr/_featureset/{SET_NAME}/_createmodel -H 'Content-Type: application/json' -d @{MODEL}
curl localhost:9200/INDEX/_search -H 'Content-Type: application/json' -d '{{
  "query": {{"match": {{"title": "words of the query"}}}},
  "rescore": {{"window_size": 100, "query": {{
    "query_weight": 0, "rescore_query": {{"sltr": {{"params": {{}}, "model": "{MODEL_NAME}"}}}}}}}}}}'
```

The model's scores may be negative, and documents outside of the window keep their first scores: set `window_size` to
at least the number of shown results. The plug-in: {page}
"""


def _target(name: str, server: str, page: str) -> ExportTarget:
    return ExportTarget(
        name,
        f"the learning-to-rank plug-in of {server}",
        ("linear", "trees"),
        (FEATURES, MODEL),
        _write,
        _load,
        lambda exported: _instructions(exported, server, page),
        any_missing=False,
        deepest=300,
    )


ELASTICSEARCH = _target("elasticsearch", "Elasticsearch", "https://elasticsearch-learning-to-rank.readthedocs.io")
OPENSEARCH = _target("opensearch", "OpenSearch", "https://docs.opensearch.org/latest/search-plugins/ltr/index/")
