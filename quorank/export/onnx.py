"""ONNX: `model.onnx`, with the input `features` (rows, n) float32 and the output `scores` (rows,) float32.

NaN is filled, a fixed normalisation is computed in double and rounded once as in Quorank, and the hidden layer is inside.
Trees are one TreeEnsembleRegressor over raw features. Operators are those of opset 13 and ai.onnx.ml 3, which old runtimes
read.

A model is run in `onnxruntime` only after its graph has been checked. An untrusted graph could name other files (external
data), loop for ever (cycles in trees) or allocate without bounds (broadcasting), so the checker accepts only graphs
that the writer could have written, apart from the values of constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from quorank.errors import BadInput, require
from quorank.export.contents import content_of
from quorank.export.exported_ranker import ExportedRanker, ExportTarget, HiddenLayer, Scorer
from quorank.export.trees import NodeTree, check_trees
from quorank.files.untrusted import translate_errors
from quorank.kernels.arrays import Doubles, Floats

if TYPE_CHECKING:
    import onnx

FILE, INPUT, OUTPUT = "model.onnx", "features", "scores"
OPSET, TREES_OPSET, IR_VERSION = 13, 3, 8
TREES_DOMAIN, TREES_OPERATOR = "ai.onnx.ml", "TreeEnsembleRegressor"
_FLOAT, _INT64, _DOUBLE = 1, 7, 11  # of TensorProto
_SIZES = {_FLOAT: 4, _INT64: 8, _DOUBLE: 8}


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
        low, span = (exported.low, exported.span) if exported.normalisation.low else (None, None)
        prepared = _add_preparation(graph, exported.missing, low, span)
        column = _add_layers(graph, prepared, exported.weights if exported.family == "linear" else exported.layer)
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


def _add_preparation(graph: _Graph, missing: float, low: Doubles | None, span: Doubles | None) -> str:
    """Fill missing features and normalise."""
    fill = graph.constant("missing", np.array([missing], dtype=np.float32))
    filled = graph.add("Where", graph.add("IsNaN", INPUT), fill, INPUT)
    if low is None or span is None:
        return filled
    moved = graph.add("Sub", graph.add("Cast", filled, to=_DOUBLE), graph.constant("low", low))
    divided = graph.add("Div", moved, graph.constant("span", np.where(span > 0.0, span, 1.0)))
    return graph.add("Cast", divided, to=_FLOAT)


def _add_layers(graph: _Graph, prepared: str, layer: HiddenLayer | Floats) -> str:
    """Multiply by the weights of a linear ranker, or compute v·a(Wx + b)."""
    if not isinstance(layer, HiddenLayer):
        return graph.add("MatMul", prepared, graph.constant("weights", layer[:, None]))
    product = graph.add("MatMul", prepared, graph.constant("weights", np.ascontiguousarray(layer.weights.T)))
    units = graph.add("Add", product, graph.constant("bias", layer.bias))
    active = graph.add("Relu" if layer.activation == "relu" else "Sigmoid", units)
    return graph.add("MatMul", active, graph.constant("output", layer.output[:, None]))


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


# ------------------------------------------------------------ checker


def _load(files: Mapping[str, bytes], names: Sequence[str]) -> Scorer:
    """Check the model of an export and return it, run by `onnxruntime`."""
    content = content_of(files, FILE)
    check_graph(content, len(names))
    try:
        import onnxruntime
    except ImportError:
        raise _not_installed() from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    with translate_errors(FILE, "a model that onnxruntime reads"):
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def score(features: Floats) -> Doubles:
        with translate_errors(FILE, "a model that onnxruntime runs"):
            (column,) = session.run([OUTPUT], {INPUT: np.ascontiguousarray(features, dtype=np.float32)})
        rows = np.asarray(column, dtype=np.float64).reshape(-1)
        require(len(rows) == len(features), "export.damaged", f"gives {len(rows)} scores of {len(features)} rows", FILE)
        return rows

    return score


def check_graph(content: bytes, n_features: int) -> None:
    """Raise BadInput for a graph that differs from every graph of the writer in more than the values of constants."""
    try:
        import onnx
    except ImportError:
        raise _not_installed() from None
    model = onnx.ModelProto()
    with translate_errors(FILE, "an ONNX model"):
        model.ParseFromString(content)
    graph = model.graph
    foreign = model.functions or any(each.domain not in ("", "ai.onnx", TREES_DOMAIN) for each in model.opset_import)
    require(not foreign, "export.damaged", "calls functions that are no part of ONNX", FILE)
    inputs, outputs = ([each.name for each in values] for values in (graph.input, graph.output))
    sentence = f'expected the input "{INPUT}" and the output "{OUTPUT}"'
    require((inputs, outputs) == ([INPUT], [OUTPUT]), "export.damaged", sentence, FILE)
    tensor = graph.input[0].type.tensor_type
    shape = [each.dim_value for each in tensor.shape.dim]
    fits = tensor.elem_type == _FLOAT and len(shape) == 2 and shape[1] == n_features
    require(fits, "export.damaged", f"expected an input of {n_features} features", FILE)
    shapes = _constant_shapes(graph)
    written = _same_kind(graph, shapes, n_features)
    same = list(graph.node) == written.nodes and shapes == {each.name: _shape(each) for each in written.constants}
    require(same, "export.damaged", "holds a graph that no ranker of Quorank has", FILE)


def _shape(tensor: Any) -> tuple[int, ...]:
    return (tensor.data_type, *tensor.dims)


def _constant_shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    """Return type and shape of the constants, whose values must be in the file itself."""
    for tensor in graph.initializer:
        size = _SIZES.get(tensor.data_type, 0) * int(np.prod([max(dim, 0) for dim in tensor.dims], dtype=object))
        inside = not tensor.external_data and tensor.data_location == 0 and len(tensor.dims) <= 2
        sentence = "holds a constant that lies in another file, or is no plain array"
        require(inside and size and len(tensor.raw_data) == size, "export.damaged", sentence, FILE)
    require(not graph.sparse_initializer, "export.damaged", "holds a constant that is no plain array", FILE)
    return {tensor.name: _shape(tensor) for tensor in graph.initializer}


def _same_kind(graph: Any, shapes: dict[str, tuple[int, ...]], n_features: int) -> _Graph:
    """Write a graph of the same kind: trees, or the same normalisation, units and activation."""
    operators = [node.op_type for node in graph.node]
    written = _Graph()
    if operators[:1] == [TREES_OPERATOR]:
        trees = _read_trees(graph.node[0], n_features)
        column = written.add(TREES_OPERATOR, INPUT, domain=TREES_DOMAIN, **_tree_attributes(trees))
    else:
        low = np.zeros(n_features) if "Sub" in operators else None
        prepared = _add_preparation(written, 0.0, low, low)
        layer: HiddenLayer | Floats = np.zeros(n_features, dtype=np.float32)
        if "bias" in shapes:
            units = np.zeros(shapes["bias"][-1], dtype=np.float32)
            activation: Literal["relu", "sigmoid"] = "relu" if "Relu" in operators else "sigmoid"
            layer = HiddenLayer(np.zeros((len(units), n_features), dtype=np.float32), units, units, activation)
        column = _add_layers(written, prepared, layer)
    written.add("Reshape", column, written.constant("as_row", np.array([-1])), output=OUTPUT)
    return written


def _read_trees(node: Any, n_features: int) -> list[NodeTree]:
    """Read a TreeEnsembleRegressor; refuse cycles and nodes out of order."""
    named = {each.name: each for each in node.attribute}
    columns = ("treeids", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    columns_of_nodes = [list(named[f"nodes_{name}"].ints) if f"nodes_{name}" in named else [] for name in columns]
    modes, values = (named.get(f"nodes_{name}") for name in ("modes", "values"))
    weights = iter(named["target_weights"].floats if "target_weights" in named else ())
    trees: list[NodeTree] = []
    lists = (*columns_of_nodes, modes.strings if modes else [], values.floats if values else [])
    require(len(set(map(len, lists))) == 1, "export.damaged", "holds trees whose lists do not fit each other", FILE)
    for number, feature, left, right, missing, mode, value in zip(*lists, strict=True):
        if number == len(trees):
            trees.append(NodeTree())
        valid = number == len(trees) - 1 and 0 <= feature < n_features
        require(valid, "export.damaged", "holds trees whose nodes are out of order", FILE)
        is_leaf = mode == b"LEAF"
        at = trees[-1].add(-1 if is_leaf else feature, next(weights, 0.0) if is_leaf else value, bool(missing))
        trees[-1].left[at], trees[-1].right[at] = left, right
    return check_trees(trees, n_features, FILE)


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


ONNX = ExportTarget("onnx", "ONNX", ("linear", "network", "trees"), _write, _load, _instructions)
