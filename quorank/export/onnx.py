"""ONNX: `model.onnx`, with the input `features` (rows, n) float32 and the output `scores` (rows,) float32.

NaN is filled, a fixed normalisation is computed in double and rounded once as in Quorank, and the hidden layer is inside.
Trees are one TreeEnsembleRegressor over raw features. Operators are those of opset 13 and ai.onnx.ml 3, which old runtimes
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.errors import BadInput
from quorank.export.exported_ranker import ExportedRanker, ExportTarget, Scorer
from quorank.export.trees import NodeTree

if TYPE_CHECKING:
    import onnx

FILE, INPUT, OUTPUT = "model.onnx", "features", "scores"
OPSET, TREES_OPSET, IR_VERSION = 13, 3, 8
TREES_DOMAIN, TREES_OPERATOR = "ai.onnx.ml", "TreeEnsembleRegressor"


def _not_installed() -> BadInput:
    sentence = "needs onnx and onnxruntime; pip install 'quorank[export]'"
    return BadInput("export.not-installed", sentence, "onnx")


def _write(exported: ExportedRanker) -> dict[str, bytes]:
    try:
        from onnx import TensorProto, helper
    except ImportError:
        raise _not_installed() from None
    graph = _Graph()
    if exported.family == "trees":
        column = graph.add(TREES_OPERATOR, INPUT, domain=TREES_DOMAIN, **_tree_attributes(exported.trees))
    else:
        column = _add_layers(graph, _add_preparation(graph, exported), exported)
    graph.add("Reshape", column, graph.constant("as_row", np.array([-1])), output=OUTPUT)
    built = helper.make_graph(
        graph.nodes,
        "quorank",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["rows", exported.saved.n_features])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["rows"])],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    if exported.family == "trees":
        opsets.append(helper.make_opsetid(TREES_DOMAIN, TREES_OPSET))
    model = helper.make_model(built, opset_imports=opsets, producer_name="quorank")
    model.ir_version = IR_VERSION
    helper.set_model_props(model, {"ranker": exported.saved.digest})
    return {FILE: bytes(model.SerializeToString())}


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


def _add_preparation(graph: _Graph, exported: ExportedRanker) -> str:
    """Fill missing features and normalise."""
    from onnx import TensorProto

    fill = graph.constant("missing", np.array([exported.missing], dtype=np.float32))
    filled = graph.add("Where", graph.add("IsNaN", INPUT), fill, INPUT)
    if not exported.normalisation.low:
        return filled
    moved = graph.add("Sub", graph.add("Cast", filled, to=TensorProto.DOUBLE), graph.constant("low", exported.low))
    divided = graph.add("Div", moved, graph.constant("span", np.where(exported.span > 0.0, exported.span, 1.0)))
    return graph.add("Cast", divided, to=TensorProto.FLOAT)


def _add_layers(graph: _Graph, prepared: str, exported: ExportedRanker) -> str:
    """Multiply by the weights of a linear ranker, or compute v·a(Wx + b)."""
    if exported.family == "linear":
        return graph.add("MatMul", prepared, graph.constant("weights", exported.weights[:, None]))
    ranker, n, theta = exported.saved.ranker, exported.saved.n_features, exported.saved.theta.astype(np.float32)
    weights, bias, output = np.split(theta, [ranker.hidden * n, ranker.hidden * (n + 1)])
    weights = np.where(exported.span > 0.0, weights.reshape(ranker.hidden, n), np.float32(0.0))
    product = graph.add("MatMul", prepared, graph.constant("weights", np.ascontiguousarray(weights.T)))
    units = graph.add("Add", product, graph.constant("bias", bias))
    active = graph.add("Relu" if ranker.activation == "relu" else "Sigmoid", units)
    return graph.add("MatMul", active, graph.constant("output", output[:, None]))


def _tree_attributes(trees: list[NodeTree]) -> dict[str, Any]:
    """Nodes of all trees in columns."""
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in (*names, "missing_value_tracks_true")}
    targets: dict[str, list[Any]] = {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, tree in enumerate(trees):
        splits, size = tree.splits, len(tree.feature)
        leaves = size - splits
        nodes["nodes_treeids"] += [number] * size
        nodes["nodes_nodeids"] += range(size)
        nodes["nodes_featureids"] += [*tree.feature[:splits], *[0] * leaves]
        nodes["nodes_modes"] += [*["BRANCH_LEQ"] * splits, *["LEAF"] * leaves]
        nodes["nodes_values"] += [*tree.threshold[:splits], *[0.0] * leaves]
        nodes["nodes_truenodeids"] += [*tree.left[:splits], *[0] * leaves]
        nodes["nodes_falsenodeids"] += [*tree.right[:splits], *[0] * leaves]
        nodes["nodes_missing_value_tracks_true"] += map(int, tree.missing_left)
        targets["target_treeids"] += [number] * leaves
        targets["target_nodeids"] += range(splits, size)
        targets["target_ids"] += [0] * leaves
        targets["target_weights"] += tree.leaf_values
    return {**nodes, **targets, "n_targets": 1, "aggregate_function": "SUM", "post_transform": "NONE"}


def _load(files: Mapping[str, bytes], names: Sequence[str]) -> Scorer:
    try:
        import onnxruntime
    except ImportError:
        raise _not_installed() from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(files[FILE], options, providers=["CPUExecutionProvider"])
    return lambda features: session.run([OUTPUT], {INPUT: np.ascontiguousarray(features, dtype=np.float32)})[0]


def _instructions(exported: ExportedRanker) -> str:
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


ONNX = ExportTarget("onnx", "ONNX", ("linear", "network", "trees"), (FILE,), _write, _load, _instructions)
