"""The learning-to-rank plug-in of Elasticsearch and OpenSearch, in float32, from its documented formats.

Features stand in the order of the feature set, and are 0 where they do not match. Normalisers come first: `min_max`
is (x − minimum) / (maximum − minimum), `standard` is (x − mean) / standard_deviation. `model/linear` is Σ weight·x in
the order of the features. `model/xgboost+json` is a list of trees, left ("yes") where x < split_condition; it ignores
"missing".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.export.evaluators.contents import damaged, entry, filled, float32_of, json_in, json_of, sum_of_products
from quorank.export.evaluators.forest import ParsedTree, check_trees, leaf_values, nested_tree, summed
from quorank.export.target import Scorer
from quorank.kernels.arrays import Doubles, Floats, Integers


def load_plugin(files: Mapping[str, bytes], features_file: str, model_file: str, columns: Sequence[str]) -> Scorer:
    """Return the model of a feature set and a model file; columns are the names of the features that are given."""
    listed = entry(
        entry(json_of(files, features_file), "featureset", dict, features_file), "features", list, features_file
    )
    names = [entry(each, "name", str, features_file) for each in listed]
    known = sorted(names) == sorted(columns) and len(set(names)) == len(names)
    require(known, "export.damaged", "expected the features of the export, each once", features_file)
    order = [list(columns).index(name) for name in names]
    model = entry(entry(json_of(files, model_file), "model", dict, model_file), "model", dict, model_file)
    places = {name: at for at, name in enumerate(names)}
    centre, scale = _normalisers(model, places, model_file)
    definition = json_in(entry(model, "definition", str, model_file), model_file)
    kind = model.get("type")
    trees: list[ParsedTree] | None = None
    weights = np.zeros(len(names), dtype=np.float32)
    if kind == "model/linear":
        for name in definition if isinstance(definition, dict) else ("",):
            require(name in places, "export.damaged", "has a weight of no feature", model_file)
            weights[places[name]] = float32_of(definition[name], model_file, f"weight of {name}")
    elif kind == "model/xgboost+json":
        found = definition if isinstance(definition, list) else []
        read = partial(_node, places=places, file=model_file)
        trees = check_trees([nested_tree(each, read, model_file) for each in found], len(names), model_file)
    else:
        raise damaged(model_file, "expected a model/linear or a model/xgboost+json")

    def score(features: Floats, offsets: Integers) -> Doubles:
        with np.errstate(all="ignore"):
            x = (filled(features, 0.0)[:, order] - centre) / scale
        if trees is None:
            return sum_of_products(x, weights).astype(np.float64)
        return np.asarray(summed(leaf_values(trees, x, np.less), len(x), np.float32), dtype=np.float64)

    return score


def _normalisers(model: dict[str, Any], places: dict[str, int], file: str) -> tuple[Floats, Floats]:
    """(n,) what is subtracted of each feature, and what it is divided by."""
    centre, scale = np.zeros(len(places), dtype=np.float32), np.ones(len(places), dtype=np.float32)
    given = model.get("feature_normalizers", {})
    for name, normaliser in given.items() if isinstance(given, dict) else [("", None)]:
        require(name in places, "export.damaged", "normalises no feature", file)
        kind, keys = "standard", ("mean", "standard_deviation")
        if isinstance(normaliser, dict) and "min_max" in normaliser:
            kind, keys = "min_max", ("minimum", "maximum")
        table = entry(normaliser, kind, dict, file)
        first, second = (float32_of(table.get(key), file, f"{key} of {name}") for key in keys)
        width = second - first if kind == "min_max" else second
        require(width > 0.0, "export.damaged", f"the normaliser of {name} has no width", file)
        centre[places[name]], scale[places[name]] = first, width
    return centre, scale


def _node(node: object, places: dict[str, int], file: str) -> tuple[int, float, tuple[object, ...]]:
    """A node of a dump, as `nested_tree` takes it."""
    table = node if isinstance(node, dict) else {}
    if "leaf" in table:
        return -1, float(float32_of(table["leaf"], file, "leaf")), ()
    name, children = entry(node, "split", str, file), entry(node, "children", list, file)
    require(name in places, "export.damaged", "splits by no feature", file)
    threshold = float32_of(table.get("split_condition"), file, "split_condition")
    named = [child.get("nodeid") if isinstance(child, dict) else None for child in children]
    sound = len(children) == 2 and named == [table.get("yes"), table.get("no")] and "depth" in table
    require(sound, "export.damaged", f"node {table.get('nodeid')} of a tree is not whole", file)
    return places[name], float(threshold), tuple(children)
