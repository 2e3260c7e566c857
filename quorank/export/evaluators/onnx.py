"""ONNX in `onnxruntime`, after the graph was found to be one that only computes scores of rows.

A graph of somebody else could name files beside it (external data), run for ever (cycles in trees) or grow without
bounds (broadcasting), so only the operators of our own graphs are let through, with constants of the shapes that they
have there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.export.evaluators.contents import content_of
from quorank.export.evaluators.forest import ParsedTree, check_trees
from quorank.export.target import Scorer
from quorank.files.untrusted import sound
from quorank.kernels.arrays import Doubles, Floats, Integers

INPUT = "features"
_FLOAT, _INT64, _DOUBLE = 1, 7, 11  # of TensorProto
_SIZES = {_FLOAT: 4, _INT64: 8, _DOUBLE: 8}
_PLAIN = {"IsNaN", "Cast", "Relu", "Sigmoid"}
_BY_COLUMN = {"Where", "Sub", "Div", "Add"}
_TREES = "TreeEnsembleRegressor"


def load_onnx(files: Mapping[str, bytes], file: str, n_features: int) -> Scorer:
    """Return the model of a file."""
    content = content_of(files, file)
    output = check_graph(content, file, n_features)
    try:
        import onnxruntime
    except ImportError:
        raise _not_installed() from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    with sound(file, "a model that onnxruntime reads"):
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def score(features: Floats, offsets: Integers) -> Doubles:
        with sound(file, "a model that onnxruntime runs"):
            (found,) = session.run([output], {INPUT: np.ascontiguousarray(features, dtype=np.float32)})
        rows = np.asarray(found, dtype=np.float64).reshape(-1)
        require(len(rows) == len(features), "export.damaged", f"gives {len(rows)} scores of {len(features)} rows", file)
        return rows

    return score


def _not_installed() -> BadInput:
    sentence = "checking ONNX needs onnx and onnxruntime; pip install 'quorank[export]'"
    return BadInput("export.not-installed", sentence, "onnx")


def check_graph(content: bytes, file: str, n_features: int) -> str:
    """Refuse a model that is more than a function of rows; return the name of its output."""
    try:
        import onnx
    except ImportError:
        raise _not_installed() from None
    model = onnx.ModelProto()
    with sound(file, "an ONNX model"):
        model.ParseFromString(content)
    graph = model.graph
    own = {"", "ai.onnx", "ai.onnx.ml"}
    foreign = model.functions or any(each.domain not in own for each in (*model.opset_import, *graph.node))
    require(not foreign, "export.damaged", "calls functions that are no part of ONNX", file)
    inputs, outputs = ([each.name for each in values] for values in (graph.input, graph.output))
    sentence = f'expected the input "{INPUT}" and one output'
    require(inputs == [INPUT] and len(outputs) == 1, "export.damaged", sentence, file)
    shape = [each.dim_value for each in graph.input[0].type.tensor_type.shape.dim]
    sentence = f"expected an input of {n_features} features"
    floats = graph.input[0].type.tensor_type.elem_type == _FLOAT
    require(floats and len(shape) == 2 and shape[1] == n_features, "export.damaged", sentence, file)
    constants = _constants(graph, file)
    widths = {INPUT: n_features}  # columns of each value
    for node in graph.node:
        widths[_output_of(node, widths, constants, file)] = _width(node, widths, constants, n_features, file)
    require(widths.get(outputs[0]) == 0, "export.damaged", "expected one score of a row", file)
    return str(outputs[0])


def _constants(graph: Any, file: str) -> dict[str, tuple[int, ...]]:
    """Shapes of the constants, which must lie in the file itself."""
    found = {}
    for tensor in graph.initializer:
        dims = tuple(tensor.dims)
        size = _SIZES.get(tensor.data_type, 0) * int(np.prod([max(dim, 0) for dim in dims], dtype=object))
        inside = not tensor.external_data and tensor.data_location == 0 and len(dims) <= 2
        sentence = "holds a constant that lies in another file, or is no plain array"
        require(inside and size and len(tensor.raw_data) == size, "export.damaged", sentence, file)
        found[tensor.name] = dims
    require(not graph.sparse_initializer, "export.damaged", "holds a constant that is no plain array", file)
    return found


def _output_of(node: Any, widths: dict[str, int], constants: dict[str, tuple[int, ...]], file: str) -> str:
    """The name of a node's one value, which is new; its inputs must be there, and no graph may be in it."""
    known = all(name in widths or name in constants for name in node.input)
    nested = any(each.HasField("g") or each.graphs or each.HasField("t") or each.tensors for each in node.attribute)
    new = len(node.output) == 1 and node.output[0] and node.output[0] not in (*widths, *constants)
    require(known and new and not nested, "export.damaged", f"holds a {node.op_type[:40]} that fits nothing", file)
    return str(node.output[0])


def _width(node: Any, widths: dict[str, int], constants: dict[str, tuple[int, ...]], n_features: int, file: str) -> int:
    """Columns of a node's value; 0 for one number a row."""
    operator, shapes = node.op_type, [constants[name] for name in node.input if name in constants]
    given = {widths[name] for name in node.input if name in widths}
    width = min(given, default=0)
    fits = len(given) == 1 and width > 0
    if operator in _PLAIN:
        fits = fits and len(node.input) == 1
    elif operator in _BY_COLUMN:
        fits = fits and len(node.input) == (3 if operator == "Where" else 2)
        fits = fits and len(shapes) == 1 and len(shapes[0]) == 1 and shapes[0][0] in (1, width)
    elif operator == "MatMul":
        fits = fits and len(node.input) == 2 and len(shapes) == 1 and len(shapes[0]) == 2 and shapes[0][0] == width
        fits = fits and node.input[1] in constants
        width = shapes[0][1] if fits else 0
    elif operator == "Reshape":
        fits, width = fits and width == 1 and len(shapes) == 1 and shapes[0] == (1,) and len(node.input) == 2, 0
    elif operator == _TREES:
        fits, width = fits and list(node.input) == [INPUT] and _sound_trees(node, n_features, file), 1
    else:
        fits = False
    require(fits, "export.damaged", f"holds a {operator[:40]} that no ranker of Quorank has", file)
    return width


def _sound_trees(node: Any, n_features: int, file: str) -> bool:
    """Whether a TreeEnsembleRegressor has whole trees, every child behind its parent."""
    named = {each.name: each for each in node.attribute}
    columns = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    if not all(f"nodes_{name}" in named for name in (*columns, "modes", "values")):
        return False
    trees, numbers, features, yes, no, _ = (list(named[f"nodes_{name}"].ints) for name in columns)
    modes = list(named["nodes_modes"].strings)
    alike = {len(trees), len(numbers), len(features), len(yes), len(no), len(modes)}
    alike |= {len(named["nodes_values"].floats), len(named["nodes_missing_value_tracks_true"].ints)}
    if len(alike) != 1 or not trees or set(modes) - {b"BRANCH_LEQ", b"LEAF"}:
        return False
    parsed: list[ParsedTree] = []
    for tree, number, feature, left, right, mode in zip(trees, numbers, features, yes, no, modes, strict=True):
        if number == 0:
            parsed.append(ParsedTree())
        if not parsed or tree != len(parsed) - 1 or number != len(parsed[-1].feature) or not 0 <= feature < n_features:
            return False
        at = parsed[-1].add(feature if mode != b"LEAF" else -1, 0.0)
        parsed[-1].left[at], parsed[-1].right[at] = left, right
    check_trees(parsed, n_features, file)
    return _sound_targets(named, parsed)


def _sound_targets(named: dict[str, Any], parsed: list[ParsedTree]) -> bool:
    """Whether each leaf has one weight of the one target."""
    if not all(f"target_{name}" in named for name in ("treeids", "nodeids", "ids", "weights")):
        return False
    found = list(zip(named["target_treeids"].ints, named["target_nodeids"].ints, strict=False))
    leaves = [(t, n) for t, tree in enumerate(parsed) for n, feature in enumerate(tree.feature) if feature < 0]
    sizes = {len(named[f"target_{name}"].ints) for name in ("treeids", "nodeids", "ids")}
    sizes.add(len(named["target_weights"].floats))
    one = named.get("n_targets") is not None and named["n_targets"].i == 1
    return sizes == {len(leaves)} and sorted(found) == leaves and one and not any(named["target_ids"].ints)
