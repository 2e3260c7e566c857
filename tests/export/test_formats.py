"""Every format against every ranker: what it holds scores as Quorank does, what it does not hold is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from exported_rankers import FEATURES, exported_ranker, fixed_range, rankers, saved_ranker
from refusals import refused

from quorank.data.normalisation import FixedRange, RawFeatures
from quorank.export import TARGETS, target_of
from quorank.export.directory import compare_lists, files_of, with_gaps
from quorank.export.exported_ranker import ExportedRanker
from quorank.rankers import Linear
from quorank.rankers.ranker_file import SavedRanker

HELD = {
    "onnx": {"linear", "relu", "sigmoid", "trees"},
    "elasticsearch": {"linear", "trees"},
    "opensearch": {"linear", "trees"},
    "solr": {"linear", "trees"},
    "vespa": {"linear", "trees"},
    "ranklib": {"linear", "trees"},
    "lightgbm": {"trees"},
    "xgboost": {"trees"},
}
ZERO = {"elasticsearch", "opensearch", "ranklib"}
"""Formats in which a missing feature is 0."""


def some_lists(normalisation: str = "fixed", rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Features as a ranker was trained on, thresholds of the trees among them, in lists of 1 to 12 documents."""
    rng = np.random.default_rng(3)
    features, thresholds = rng.normal(size=(rows, FEATURES)), []
    if normalisation == "fixed":
        low, high = (np.array(constants) for constants in (fixed_range().low, fixed_range().high))
        features = low + rng.random((rows, FEATURES)) * (high - low) * 1.4
    for tree in exported_ranker("trees", normalisation).trees:
        thresholds += [t for feature, t in zip(tree.feature, tree.threshold, strict=True) if feature == 0]
    features[::3, 0] = np.resize(thresholds, len(features[::3]))
    lengths = rng.integers(1, 13, rows)
    offsets = np.unique(np.concatenate(([0], np.minimum(np.cumsum(lengths), rows))))
    return features.astype(np.float32), offsets


@pytest.mark.parametrize("kind", rankers())
@pytest.mark.parametrize("name", HELD)
def test_a_format_scores_as_quorank_does_or_refuses(name: str, kind: str) -> None:
    target = TARGETS[name]
    for normalisation, missing in (("none", 0.0), ("fixed", 0.0), ("fixed", 1.5), ("none", -2.0)):
        exported = exported_ranker(kind, normalisation, missing)
        features, offsets = some_lists(normalisation)
        if kind not in HELD[name]:
            with refused("export.wrong-ranker", "here"):
                files_of(target, exported, "here")
            continue
        if missing and name in ZERO:
            with refused("export.missing-values", "here"):
                files_of(target, exported, "here")
            continue
        model = target.load(files_of(target, exported, "here"), exported.names)
        for given in (features, with_gaps(features)):
            compared = compare_lists(exported, model, given, offsets)
            assert compared.same, (normalisation, missing, compared)
        assert (compared.lists, compared.documents) == (len(offsets) - 1, len(features))
        assert compared.largest < 3e-6


@pytest.mark.parametrize("name", HELD)
def test_normalisation_within_a_list_is_refused_or_done_in_front(name: str) -> None:
    target, kind = TARGETS[name], "trees" if name in ("lightgbm", "xgboost") else "linear"
    features, offsets = some_lists("none")
    with refused("export.per-list", "here"):
        files_of(target, exported_ranker(kind, "query"), "here")
    front = exported_ranker(kind, "query", prenormalised=True)
    model = target.load(files_of(target, front, "here"), front.names)
    assert compare_lists(front, model, features, offsets).same


def test_a_ranker_that_computes_features_of_its_own_is_refused() -> None:
    class Squared(Linear):
        def transform(self, features):
            return features**2

    saved = SavedRanker(Squared(), 2, np.ones(2), RawFeatures())
    with refused("export.wrong-ranker", "here"):
        files_of(target_of("onnx"), ExportedRanker(saved), "here")
    with refused("export.unknown-target", "--to"):
        target_of("onxn")


def test_constants_that_float32_does_not_hold_are_refused_where_a_format_computes_in_float32() -> None:
    """A feature between 1e7 and 1e7 + 1: float32 knows no number between them but its ends."""
    saved = SavedRanker(Linear(), 1, np.array([5.0]), FixedRange((1e7 + 0.3,), (1e7 + 0.9,)))
    for name in ("elasticsearch", "solr"):
        with refused("export.not-the-same", "here"):
            files_of(target_of(name), ExportedRanker(saved), "here")
    files_of(target_of("onnx"), ExportedRanker(saved), "here")  # in double there


def test_trees_too_deep_for_an_engine_are_refused() -> None:
    from quorank.rankers import Trees
    from quorank.rankers.trees import TreeArrays, tree_parameters

    leaves = 400
    nodes = np.arange(leaves - 1, dtype=np.int32)[None, :]
    right = nodes + 1
    right[0, -1] = -(leaves - 1)
    chain = TreeArrays(nodes * 0, nodes.astype(np.float32), -nodes, right, np.arange(leaves)[None, :] * 1.0)
    saved = SavedRanker(Trees(leaves, 1), 1, tree_parameters(chain), RawFeatures())
    for name in ("solr", "vespa", "elasticsearch"):
        with refused("export.too-deep", "here"):
            files_of(target_of(name), ExportedRanker(saved), "here")
    for name in ("onnx", "ranklib", "lightgbm", "xgboost"):
        assert files_of(target_of(name), ExportedRanker(saved), "here")


# ------------------------------------------------------------ other readers of the same files


def test_lightgbm_reads_the_text_model(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    for normalisation, missing in (("none", 0.0), ("fixed", 1.5)):
        features = with_gaps(some_lists(normalisation)[0])
        exported = exported_ranker("trees", normalisation, missing)
        (tmp_path / "model.txt").write_bytes(TARGETS["lightgbm"].write(exported)["model.txt"])
        model = lightgbm.Booster(model_file=tmp_path / "model.txt")
        assert model.feature_name() == list(exported.names)
        assert model.predict(features).tolist() == exported.saved.score(features).tolist()


def test_xgboost_reads_the_json_model_and_dumps_what_the_plug_in_reads(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="pip install xgboost, which is large")
    exported = exported_ranker("trees", "fixed", 0.0)
    (tmp_path / "model.json").write_bytes(TARGETS["xgboost"].write(exported)["model.json"])
    model = xgboost.Booster(model_file=tmp_path / "model.json")
    features = with_gaps(some_lists()[0])
    assert model.predict(xgboost.DMatrix(features)) == pytest.approx(exported.saved.score(features), abs=1e-5)
    model.feature_names = list(exported.names)
    dumped = [json.loads(tree) for tree in model.get_dump(dump_format="json")]
    written = json.loads(TARGETS["elasticsearch"].write(exported)["model.json"])["model"]["model"]["definition"]
    assert [_walked(tree) for tree in dumped] == [_walked(tree) for tree in json.loads(written)]


def _walked(node: dict) -> tuple:
    """A dumped tree with its numbers in float32."""
    if "leaf" in node:
        return (node["nodeid"], np.float32(node["leaf"]))
    told = tuple(node[key] for key in ("nodeid", "split", "yes", "no", "missing"))
    return (*told, np.float32(node["split_condition"]), *map(_walked, node["children"]))


@pytest.mark.parametrize("kind", rankers())
def test_the_reference_implementation_of_onnx_agrees(kind: str) -> None:
    """Python code of the ONNX project, which shares nothing with onnxruntime or with us."""
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    exported = exported_ranker(kind, "fixed", 1.5)
    content = TARGETS["onnx"].write(exported)["model.onnx"]
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert [each.name for each in model.graph.input] == ["features"]
    features = with_gaps(some_lists(rows=40)[0])
    (found,) = ReferenceEvaluator(model).run(None, {"features": features})
    assert found.shape == (40,) and found.dtype == np.float32
    assert found == pytest.approx(exported.saved.score(features), rel=1e-5, abs=1e-5)


def test_names_are_those_that_engines_take() -> None:
    exported = exported_ranker("linear", "fixed")
    assert exported.names == ("BM25_of_title", "BM25_of_body", "clicks", "f4", "age_in_days", "length")
    files = files_of(TARGETS["solr"], exported, "here")
    assert [feature["name"] for feature in json.loads(files["features.json"])] == list(exported.names)
    readme = files["README.md"].decode()
    assert "| BM25 of title | `BM25_of_title` |" in readme and "| /length/ | `length` |" in readme
    assert saved_ranker("linear", "fixed").digest in readme
