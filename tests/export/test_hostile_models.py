"""Models of somebody else: nothing in them reads a file, runs for ever or grows without bounds."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from exported_rankers import FEATURES, exported_ranker
from refusals import refused

from quorank.errors import BadInput
from quorank.export import TARGETS
from quorank.export.onnx import check_graph

onnx = pytest.importorskip("onnx")


def model(kind: str = "linear") -> onnx.ModelProto:
    return onnx.load_from_string(TARGETS["onnx"].write(exported_ranker(kind, "fixed"))["model.onnx"])


def refuse(changed: onnx.ModelProto) -> None:
    with refused("export.damaged", "model.onnx"):
        check_graph(changed.SerializeToString(), FEATURES)


def attribute(changed: onnx.ModelProto, name: str) -> onnx.AttributeProto:
    return next(each for each in changed.graph.node[0].attribute if each.name == name)


@pytest.mark.parametrize("kind", ["linear", "relu", "sigmoid", "trees"])
def test_our_own_graphs_are_let_through(kind: str) -> None:
    check_graph(model(kind).SerializeToString(), FEATURES)
    with refused("export.damaged", "model.onnx"):
        check_graph(model(kind).SerializeToString(), FEATURES + 1)


def test_constants_in_other_files_are_refused(tmp_path: Path) -> None:
    changed = model()
    secret = changed.graph.initializer[-2]
    onnx.external_data_helper.set_external_data(secret, "/etc/passwd", 0, 24)
    secret.ClearField("raw_data")
    refuse(changed)
    changed = model()
    changed.graph.initializer[0].dims[:] = [1 << 40]
    refuse(changed)


def test_other_operators_functions_and_graphs_in_graphs_are_refused() -> None:
    changed = model()
    changed.graph.node[0].op_type = "Loop"
    refuse(changed)
    changed = model()
    changed.graph.node[0].domain = "com.example"
    refuse(changed)
    changed = model()
    changed.graph.node[0].attribute.append(onnx.helper.make_attribute("body", onnx.GraphProto()))
    refuse(changed)
    changed = model()
    changed.functions.append(onnx.FunctionProto(name="f"))
    refuse(changed)
    changed = model()
    changed.graph.node[-1].input[0] = "nothing"
    refuse(changed)
    changed = model()
    changed.graph.output.append(changed.graph.output[0])
    refuse(changed)


def test_broadcasting_to_a_large_array_is_refused() -> None:
    changed = model()
    column = onnx.numpy_helper.from_array(np.ones((1000, 1)), "low")
    changed.graph.initializer[1].CopyFrom(column)
    refuse(changed)


def test_trees_in_a_ring_are_refused() -> None:
    for name, at, value in (
        ("nodes_truenodeids", 0, 0),
        ("nodes_falsenodeids", 0, 10**6),
        ("nodes_featureids", 0, FEATURES),
        ("nodes_featureids", 0, -1),
        ("target_nodeids", 0, 0),
        ("target_ids", 0, 3),
        ("nodes_treeids", 0, 5),
    ):
        changed = model("trees")
        attribute(changed, name).ints[at] = value
        refuse(changed)
    changed = model("trees")
    del attribute(changed, "nodes_values").floats[0]
    refuse(changed)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_end_in_a_sentence(name: str) -> None:
    """Each file of each export cut off, and with bytes changed: read, or refused, within a moment."""
    kind = "trees" if name in ("lightgbm", "xgboost", "ranklib", "elasticsearch", "vespa", "solr") else "relu"
    exported = exported_ranker("linear" if name == "opensearch" else kind)
    files = TARGETS[name].write(exported)
    features = np.zeros((2, FEATURES), dtype=np.float32)
    rng = np.random.default_rng(6)
    began, refusals = time.process_time(), 0
    for file, content in files.items():
        broken = [b"", content[: len(content) // 2], b"\xff" + content, b"[" * 100_000, b"{}", b"null"]
        for _ in range(20):
            changed = bytearray(content)
            changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
            broken.append(bytes(changed))
        for each in broken:
            try:
                TARGETS[name].load(files | {file: each}, exported.names)(features)
            except BadInput as error:
                assert error.code in ("export.damaged", "file.damaged") and "\n" not in f"{error}"
                refusals += 1
    assert refusals >= 5 and time.process_time() - began < 20


def test_a_model_of_numbers_that_are_none_is_refused() -> None:
    exported = exported_ranker("linear")
    files = TARGETS["solr"].write(exported)
    for value in ("abc", None, True, 10**400, "1e999", [1]):
        table = json.loads(files["model.json"])
        table["params"]["weights"][exported.names[0]] = value
        with refused("export.damaged", "model.json"):
            TARGETS["solr"].load(files | {"model.json": json.dumps(table).encode()}, exported.names)
