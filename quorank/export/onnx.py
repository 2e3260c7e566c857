"""ONNX: `model.onnx`, with the input `features` (rows, n) float32 and the output `scores` (rows,) float32.

NaN is filled, a fixed normalisation is computed in double and rounded once as in Quorank, and the hidden layer is
inside. Trees are one TreeEnsembleRegressor over raw features. Operators are those of opset 13 and ai.onnx.ml 3, so
that old runtimes read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.errors import BadInput
from quorank.export.evaluators.onnx import load_onnx
from quorank.export.exported_ranker import ExportedRanker
from quorank.export.target import ExportTarget

if TYPE_CHECKING:
    import onnx

FILE, INPUT, OUTPUT = "model.onnx", "features", "scores"
OPSET, TREES_OPSET, IR_VERSION = 13, 3, 8
TREES_DOMAIN = "ai.onnx.ml"


def onnx_model(exported: ExportedRanker) -> bytes:
    """Return the model of a ranker."""
    try:
        from onnx import TensorProto, helper
    except ImportError:
        sentence = "writing ONNX needs its library; pip install 'quorank[export]'"
        raise BadInput("export.not-installed", sentence, "--to onnx") from None
    graph = _Graph()
    if exported.kind == "trees":
        column = graph.add("TreeEnsembleRegressor", INPUT, domain=TREES_DOMAIN, **_tree_attributes(exported))
    else:
        column = _product(graph, exported, _prepared(graph, exported))
    graph.add("Reshape", column, graph.constant("as_row", np.array([-1])), output=OUTPUT)
    n = exported.saved.n_features
    made = helper.make_graph(
        graph.nodes,
        "quorank",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["rows", n])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["rows"])],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    if exported.kind == "trees":
        opsets.append(helper.make_opsetid(TREES_DOMAIN, TREES_OPSET))
    model = helper.make_model(made, opset_imports=opsets, producer_name="quorank")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, {"ranker": exported.saved.digest})
    return bytes(model.SerializeToString())


class _Graph:
    """Nodes and constants of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, values: np.ndarray) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name


def _prepared(graph: _Graph, exported: ExportedRanker) -> str:
    """Fill what is missing, and normalise."""
    from onnx import TensorProto

    fill = graph.constant("missing", np.array([exported.missing], dtype=np.float32))
    filled = graph.add("Where", graph.add("IsNaN", INPUT), fill, INPUT)
    if not exported.rowwise.low:
        return filled
    moved = graph.add("Sub", graph.add("Cast", filled, to=TensorProto.DOUBLE), graph.constant("low", exported.low))
    span = graph.constant("span", np.where(exported.span > 0.0, exported.span, 1.0))
    return graph.add("Cast", graph.add("Div", moved, span), to=TensorProto.FLOAT)


def _product(graph: _Graph, exported: ExportedRanker, prepared: str) -> str:
    if exported.kind == "linear":
        return graph.add("MatMul", prepared, graph.constant("weights", exported.weights[:, None]))
    layer = exported.layer
    product = graph.add("MatMul", prepared, graph.constant("weights", np.ascontiguousarray(layer.weights.T)))
    units = graph.add("Add", product, graph.constant("bias", layer.bias))
    active = graph.add("Relu" if layer.activation == "relu" else "Sigmoid", units)
    return graph.add("MatMul", active, graph.constant("output", layer.output[:, None]))


def _tree_attributes(exported: ExportedRanker) -> dict[str, Any]:
    """Nodes of all trees in columns: first the splits of a tree, then its leaves."""
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in (*names, "missing_value_tracks_true")}
    targets: dict[str, list[Any]] = {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, tree in enumerate(exported.trees):
        inner, leaves = len(tree.feature), len(tree.value)

        def place(child: int, inner: int = inner) -> int:
            return child if child >= 0 else inner - child - 1

        nodes["nodes_treeids"] += [number] * (inner + leaves)
        nodes["nodes_nodeids"] += range(inner + leaves)
        nodes["nodes_featureids"] += [*tree.feature, *[0] * leaves]
        nodes["nodes_modes"] += [*["BRANCH_LEQ"] * inner, *["LEAF"] * leaves]
        nodes["nodes_values"] += [*tree.threshold, *[0.0] * leaves]
        nodes["nodes_truenodeids"] += [*map(place, tree.left), *[0] * leaves]
        nodes["nodes_falsenodeids"] += [*map(place, tree.right), *[0] * leaves]
        nodes["nodes_missing_value_tracks_true"] += [*map(int, tree.missing_left), *[0] * leaves]
        targets["target_treeids"] += [number] * leaves
        targets["target_nodeids"] += range(inner, inner + leaves)
        targets["target_ids"] += [0] * leaves
        targets["target_weights"] += tree.value
    return {**nodes, **targets, "n_targets": 1, "aggregate_function": "SUM", "post_transform": "NONE"}


def _calls(exported: ExportedRanker) -> str:
    n = exported.saved.n_features
    return f"""\
`{FILE}` takes `{INPUT}` (rows, {n}) in float32 and gives `{OUTPUT}` (rows,) in float32. A missing feature is NaN.

```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{FILE}")
rows = np.zeros((3, {n}), dtype=np.float32)
(scores,) = session.run(["{OUTPUT}"], {{"{INPUT}": rows}})
```
"""


ONNX = ExportTarget(
    "onnx",
    "ONNX",
    ("linear", "network", "trees"),
    write=lambda exported: {FILE: onnx_model(exported)},
    load=lambda files, names: load_onnx(files, FILE, len(names)),
    calls=_calls,
)
