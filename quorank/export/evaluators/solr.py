"""Solr's learning-to-rank models in float32, from their documented JSON.

A feature is its `defaultValue`, else 0, where a document lacks it. MinMaxNormalizer is (x − min) / (max − min),
StandardNormalizer (x − avg) / std. LinearModel is Σ x·weight in the order of the model's features; NeuralNetworkModel
is layers a(Wx + b), each sum begun with its bias; MultipleAdditiveTreesModel is Σ weight·leaf, left where x ≤
threshold + 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.export.evaluators.contents import damaged, entry, filled, float32_of, json_of, sum_of_products
from quorank.export.evaluators.forest import check_trees, leaf_values, nested_tree
from quorank.export.target import Scorer
from quorank.kernels.arrays import Doubles, Floats, Integers

_SLACK = np.float32(1e-6)
_MODELS, _NORMS = "org.apache.solr.ltr.model.", "org.apache.solr.ltr.norm."
MOST_UNITS = 1 << 16


def load_solr(files: Mapping[str, bytes], features_file: str, model_file: str, columns: Sequence[str]) -> Scorer:
    """Return the model of a feature store and a model file; columns are the names of the features that are given."""
    store = json_of(files, features_file)
    places = {name: at for at, name in enumerate(columns)}
    defaults = np.zeros(len(columns), dtype=np.float32)
    for feature in store if isinstance(store, list) else [None]:
        name = entry(feature, "name", str, features_file)
        require(name in places, "export.damaged", "has a feature that is none of the export", features_file)
        value = entry(feature, "params", dict, features_file).get("defaultValue", 0.0)
        defaults[places[name]] = float32_of(value, features_file, "defaultValue")
    model = json_of(files, model_file)
    listed = entry(model, "features", list, model_file)
    names = [entry(each, "name", str, model_file) for each in listed]
    known = len(set(names)) == len(names) and set(names) <= set(places)
    require(known, "export.damaged", "expected features of the export, each once", model_file)
    order = [places[name] for name in names]
    low, delta = _normalisers(listed, model_file)
    kind, params = entry(model, "class", str, model_file), entry(model, "params", dict, model_file)
    readers = {"LinearModel": _linear, "NeuralNetworkModel": _network, "MultipleAdditiveTreesModel": _trees}
    reader = readers.get(kind.removeprefix(_MODELS)) if kind.startswith(_MODELS) else None
    if reader is None:
        raise damaged(model_file, f"expected a model of {_MODELS}*")
    inner = reader(params, names, model_file)

    def score(features: Floats, offsets: Integers) -> Doubles:
        with np.errstate(all="ignore"):
            found = inner((filled(features, defaults)[:, order] - low) / delta)
        return np.asarray(found, dtype=np.float64)

    return score


def _normalisers(listed: list[Any], file: str) -> tuple[Floats, Floats]:
    """(n,) what is subtracted of each feature, and what it is divided by."""
    low, delta = np.zeros(len(listed), dtype=np.float32), np.ones(len(listed), dtype=np.float32)
    for number, feature in enumerate(listed):
        if "norm" not in feature:
            continue
        norm = entry(feature, "norm", dict, file)
        kind, params = entry(norm, "class", str, file), entry(norm, "params", dict, file)
        keys = {f"{_NORMS}MinMaxNormalizer": ("min", "max"), f"{_NORMS}StandardNormalizer": ("avg", "std")}.get(kind)
        require(keys, "export.damaged", "expected a MinMaxNormalizer or a StandardNormalizer", file)
        first, second = (float32_of(params.get(key), file, key) for key in keys or ())
        low[number], delta[number] = first, second - first if kind.endswith("MinMaxNormalizer") else second
        require(delta[number] != 0.0, "export.damaged", "a normaliser has no width", file)
    return low, delta


def _linear(params: dict[str, Any], names: list[str], file: str) -> Callable[[Floats], Any]:
    given = entry(params, "weights", dict, file)
    require(set(given) == set(names), "export.damaged", "expected a weight of each feature", file)
    weights = np.array([float32_of(given[name], file, f"weight of {name}") for name in names])
    return lambda x: sum_of_products(x, weights)


def _network(params: dict[str, Any], names: list[str], file: str) -> Callable[[Floats], Any]:
    layers: list[tuple[Floats, Floats, str]] = []
    width = len(names)
    for layer in entry(params, "layers", list, file):
        rows, bias = entry(layer, "matrix", list, file), entry(layer, "bias", list, file)
        fits = 0 < len(rows) == len(bias) <= MOST_UNITS
        fits = fits and all(isinstance(row, list) and len(row) == width for row in rows)
        require(fits, "export.damaged", f"layer {len(layers)} has another shape than its input", file)
        matrix = np.array([[float32_of(value, file, "matrix") for value in row] for row in rows], dtype=np.float32)
        added = np.array([float32_of(value, file, "bias") for value in bias], dtype=np.float32)
        activation = entry(layer, "activation", str, file)
        require(activation in ("relu", "sigmoid", "identity"), "export.damaged", "unknown activation", file)
        layers.append((matrix, added, activation))
        width = len(rows)
    require(layers and width == 1, "export.damaged", "expected layers that end in one unit", file)

    def score(x: Floats) -> Any:
        for matrix, bias, activation in layers:
            units = [sum_of_products(x, row, float(start)) for row, start in zip(matrix, bias, strict=True)]
            x = _active(np.stack(units, axis=1), activation)
        return x[:, 0]

    return score


def _active(x: Floats, activation: str) -> Floats:
    if activation == "relu":
        return np.where(x < 0, np.float32(0.0), x)
    if activation == "sigmoid":
        return (1.0 / (1.0 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    return x


def _trees(params: dict[str, Any], names: list[str], file: str) -> Callable[[Floats], Any]:
    places = {name: at for at, name in enumerate(names)}
    trees, weights = [], []
    for given in entry(params, "trees", list, file):
        weights.append(float32_of(entry(given, "weight", str, file), file, "weight"))
        trees.append(nested_tree(given.get("root"), partial(_node, places=places, file=file), file))
    check_trees(trees, len(names), file)

    def score(x: Floats) -> Any:
        total = np.zeros(len(x), dtype=np.float32)
        for weight, value in zip(weights, leaf_values(trees, x, np.less_equal), strict=True):
            total = total + weight * value
        return total

    return score


def _node(node: object, places: dict[str, int], file: str) -> tuple[int, float, tuple[object, ...]]:
    """A node, as `nested_tree` takes it."""
    table = node if isinstance(node, dict) else {}
    if "feature" not in table:
        return -1, float(float32_of(table.get("value"), file, "value")), ()
    name = entry(node, "feature", str, file)
    require(name in places, "export.damaged", "splits by no feature of the model", file)
    threshold = float32_of(table.get("threshold"), file, "threshold") + _SLACK
    return places[name], float(threshold), (table.get("left"), table.get("right"))
