"""Solr's learning-to-rank module: a feature store, and a LinearModel or MultipleAdditiveTreesModel.

Solr scores in float32. A FieldValueFeature has a `defaultValue`, else 0, for documents without the field. MinMaxNormalizer
is (x − min) / (max − min). LinearModel is Σ x·weight, MultipleAdditiveTreesModel Σ weight·leaf, left where
x ≤ threshold + 1e-6.

The written threshold is therefore a number that becomes the right one when 1e-6 is added. Where no such number exists the
sum is the next one above: one float32 step for some negative thresholds, at most 1.2e-13 for those within 1e-6 of 0. A
feature between the two goes left in Solr and right in Quorank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.export.contents import (
    entry,
    fill_missing,
    finite,
    json_file,
    json_of,
    names_of,
    short_floats,
    sum_of_products,
)
from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree, check_trees, read_nested, sum_of_trees
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
    return {FEATURES: json_file(features), MODEL: json_file(model)}


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
    places = {name: at for at, name in enumerate(columns)}
    store = json_of(files, FEATURES)
    require(isinstance(store, list), "export.damaged", "expected a list of features", FEATURES)
    defaults = np.zeros(len(columns), dtype=np.float32)
    for feature, name in zip(store, names_of(store, places, FEATURES), strict=True):
        value = entry(feature, "params", dict, FEATURES).get("defaultValue", 0.0)
        defaults[places[name]] = finite(value, FEATURES, "defaultValue")
    model = json_of(files, MODEL)
    listed = entry(model, "features", list, MODEL)
    names = names_of(listed, places, MODEL)
    order = [places[name] for name in names]
    low, span = _read_normalisers(listed)
    kind, params = entry(model, "class", str, MODEL), entry(model, "params", dict, MODEL)
    readers = {f"{_MODELS}LinearModel": _read_linear, f"{_MODELS}MultipleAdditiveTreesModel": _read_trees}
    require(kind in readers, "export.damaged", f"expected a model of {_MODELS}*", MODEL)
    inner = readers[kind](params, names)

    def score(features: Floats) -> Any:
        with np.errstate(all="ignore"):
            return inner((fill_missing(features, defaults)[:, order] - low) / span)

    return score


def _read_normalisers(listed: list[Any]) -> tuple[Floats, Floats]:
    """Return (n,) constants subtracted from the features, and their divisors."""
    low, span = np.zeros(len(listed), dtype=np.float32), np.ones(len(listed), dtype=np.float32)
    for number, feature in enumerate(listed):
        if "norm" not in feature:
            continue
        norm = entry(feature, "norm", dict, MODEL)
        kind, params = entry(norm, "class", str, MODEL), entry(norm, "params", dict, MODEL)
        require(kind == f"{_NORMS}MinMaxNormalizer", "export.damaged", "expected a MinMaxNormalizer", MODEL)
        low[number], high = (finite(params.get(key), MODEL, key) for key in ("min", "max"))
        span[number] = high - low[number]
        require(span[number] != 0.0, "export.damaged", "a normaliser has no width", MODEL)
    return low, span


def _read_linear(params: dict[str, Any], names: list[str]) -> Callable[[Floats], Any]:
    weights_by_name = entry(params, "weights", dict, MODEL)
    require(set(weights_by_name) == set(names), "export.damaged", "expected a weight of each feature", MODEL)
    weights = np.array([finite(weights_by_name[name], MODEL, f"weight of {name}") for name in names])
    return lambda x: sum_of_products(x, weights)


def _read_trees(params: dict[str, Any], names: list[str]) -> Callable[[Floats], Any]:
    places = {name: at for at, name in enumerate(names)}
    listed = entry(params, "trees", list, MODEL)
    weights = [finite(entry(tree, "weight", str, MODEL), MODEL, "weight") for tree in listed]
    trees = [read_nested(tree.get("root"), lambda node: _read_node(node, places), MODEL) for tree in listed]
    check_trees(trees, len(names), MODEL)
    return lambda x: sum_of_trees(trees, x, np.less_equal, weights=weights)


def _read_node(node: object, places: dict[str, int]) -> tuple[int, float, tuple[object, ...]]:
    table = node if isinstance(node, dict) else {}
    if "feature" not in table:
        return -1, float(finite(table.get("value"), MODEL, "value")), ()
    name = entry(node, "feature", str, MODEL)
    require(name in places, "export.damaged", "splits by no feature of the model", MODEL)
    threshold = finite(table.get("threshold"), MODEL, "threshold") + _SLACK
    return places[name], float(threshold), (table.get("left"), table.get("right"))


def _instructions(exported: ExportedRanker) -> str:
    return f"""\
Each feature of `{FEATURES}` reads a field of the same name, as an example: **edit a copy** and put in the feature
class that computes it, with the same `defaultValue` ({exported.missing:g}, the value of a missing feature).

```
curl -X PUT localhost:8983/solr/CORE/schema/feature-store -H 'Content-Type: application/json' --data-binary @{FEATURES}
curl -X PUT localhost:8983/solr/CORE/schema/model-store   -H 'Content-Type: application/json' --data-binary @{MODEL}
curl localhost:8983/solr/CORE/query -d 'q=words of the query' -d 'fl=id,score' \\
  --data-urlencode 'rq={{!ltr model={MODEL_NAME} reRankDocs=100}}'
```

Solr needs the module `ltr` (`SOLR_MODULES=ltr`) and its query parser and transformer in solrconfig.xml:
https://solr.apache.org/guide/solr/latest/query-guide/learning-to-rank.html
"""


SOLR = ExportTarget("solr", "Solr", ("linear", "trees"), _write, _load, _instructions, deepest=300)
