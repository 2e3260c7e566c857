"""Targets of `quorank.export`: the model of each format as somebody else may have written it, and a whole export."""

from __future__ import annotations

from functools import cache

import numpy as np

from fuzz.target import as_folder, scratch, target
from quorank.data.normalisation import FixedRange
from quorank.export import TARGETS
from quorank.export.directory import check_vectors, read_export
from quorank.export.exported_ranker import ExportedRanker
from quorank.files.atomic import sha256
from quorank.files.documents import MANIFEST, write_manifest
from quorank.rankers import MLP, Linear, Ranker, Trees
from quorank.rankers.ranker_file import SavedRanker

NAMES = ("title", "body", "clicks")
MODELS = {
    "onnx": "model.onnx",
    "elasticsearch": "model.json",
    "solr": "model.json",
    "vespa": "quorank.profile",
    "ranklib": "model.txt",
    "lightgbm": "model.txt",
    "xgboost": "model.json",
}
"""The file that an input takes the place of."""
ROWS = np.array([[0.5, 1.0, -3.0], [np.nan, 0.0, 2.0], [np.nan, np.nan, np.nan]], dtype=np.float32)


@cache
def small_ranker(kind: str) -> ExportedRanker:
    """A ranker of three features with fixed constants: linear, a network of two units, or two trees."""
    split = [0, 1, 0.5, 0.25, 1, 0, 0, -1, 1.5, -0.5, 0.25]  # three leaves: feature, threshold, left, right, value
    split[6:8] = [-2, -1]
    made: dict[str, tuple[Ranker, list[float]]] = {
        "linear": (Linear(), [0.5, -1.5, 2.0]),
        "network": (MLP(2), [0.5, 1.0, -1.0, 0.25, -2.0, 3.0, 0.1, 0.2, 1.0, -1.0]),
        "trees": (Trees(3, 2), [*split, *[0.0] * 11]),
    }
    ranker, theta = made[kind]
    normal = FixedRange((0.0, -1.0, 0.0), (2.0, 1.0, 8.0))
    return ExportedRanker(SavedRanker(ranker, 3, np.array(theta), normal, NAMES))


@cache
def other_files(name: str) -> dict[str, bytes]:
    """The files beside the model."""
    return TARGETS[name].write(small_ranker("trees"))


def score(name: str, data: bytes) -> None:
    """Read a model and score three rows, features missing among them."""
    model = TARGETS[name].load(other_files(name) | {MODELS[name]: data}, NAMES)
    found = model(ROWS, np.array([0, 2, 3]))
    assert found.shape == (3,) and found.dtype == np.float64


@target(
    "export-onnx", words=(b"features", b"scores", b"MatMul", b"TreeEnsembleRegressor", b"Loop", b"nodes_truenodeids")
)
def export_onnx(data: bytes) -> None:
    """A graph, which onnxruntime runs where it is let through."""
    score("onnx", data)


@target("export-plugin", "json", (b"feature_normalizers", b"standard", b"children", b"leaf"))
def export_plugin(data: bytes) -> None:
    """A model of the plug-ins of Elasticsearch and OpenSearch."""
    score("elasticsearch", data)


@target("export-solr", "json", (b"norm", b"layers", b"matrix", b"trees", b"root", b"threshold"))
def export_solr(data: bytes) -> None:
    """A model of Solr."""
    score("solr", data)


@target(
    "export-vespa", words=(b"function ", b"expression: ", b"if (", b"isNan(", b"attribute(title)", b"first-phase {")
)
def export_vespa(data: bytes) -> None:
    """A rank profile."""
    score("vespa", data)


@target("export-ranklib", words=(b"<split>", b'<split pos="left">', b"<output>", b"0:", b"1e999"))
def export_ranklib(data: bytes) -> None:
    """A text model of RankLib."""
    score("ranklib", data)


@target("export-lightgbm", words=(b"Tree=", b"left_child=", b"decision_type=", b"leaf_value=", b"-1 -2"))
def export_lightgbm(data: bytes) -> None:
    """A text model of LightGBM."""
    score("lightgbm", data)


@target("export-xgboost", "json", (b"left_children", b"split_conditions", b"base_score"))
def export_xgboost(data: bytes) -> None:
    """A JSON model of XGBoost."""
    score("xgboost", data)


@target("export-folder", words=(b"=== ranker.json\n", b"=== vectors.json\n", b'"normalised": true', b"null"))
def export_folder(data: bytes) -> None:
    """A whole export whose manifest fits: what a person is handed."""
    folder = as_folder(data, scratch() / "export")
    files = [path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST]
    write_manifest(folder, {path.name: sha256(path.read_bytes()) for path in files})
    export = read_export(folder)
    check_vectors(export.model(), export.files, export.exported)
