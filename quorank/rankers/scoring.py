"""Compiled scoring of candidate lists, and the gradient of a score, for both rankers.

Parameters are one flat float64 vector θ. Scoring reads a packed float32 copy whose rows are whole vectors:

    linear   packed = θ padded to the row stride
    mlp      packed = W (hidden × row stride), b (width), v (width), with width = hidden padded to whole vectors

Sums run over LANES partial sums in a fixed order, so a score has the same bits on any machine and in any batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from quorank.compiled import kernel
from quorank.data.ranking import LANES

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def dot_lanes(_context: Any, x: Any, x_start: Any, w: Any, w_start: Any, length: Any) -> Any:
    """Σ x[x_start + j]·w[w_start + j] over `length` floats (a multiple of LANES) in LANES partial sums.

    Written as vector instructions because LLVM does not vectorise a sum without permission to reassociate it,
    and that permission would make the bits depend on the machine's vector width.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x_array, x_at, w_array, w_at, count = args
        index, wide = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        x_data = builder.gep(context.make_array(signature.args[0])(context, builder, x_array).data, [x_at])
        w_data = builder.gep(context.make_array(signature.args[2])(context, builder, w_array).data, [w_at])
        total = cgutils.alloca_once_value(builder, ir.Constant(wide, [0.0] * LANES))
        zero, step = ir.Constant(index, 0), ir.Constant(index, LANES)
        with cgutils.for_range_slice(builder, zero, count, step, index) as (j, _):
            left = builder.load(builder.bitcast(builder.gep(x_data, [j]), wide.as_pointer()), align=4)
            right = builder.load(builder.bitcast(builder.gep(w_data, [j]), wide.as_pointer()), align=4)
            builder.store(builder.fadd(builder.load(total), builder.fmul(left, right)), total)
        value = builder.load(total)
        lanes = LANES
        while lanes > 1:
            lanes //= 2
            mask = ir.VectorType(ir.IntType(32), lanes)
            undefined = ir.Constant(value.type, ir.Undefined)
            low = builder.shuffle_vector(value, undefined, ir.Constant(mask, list(range(lanes))))
            high = builder.shuffle_vector(value, undefined, ir.Constant(mask, list(range(lanes, 2 * lanes))))
            value = builder.fadd(low, high)
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return types.float32(x, types.int64, w, types.int64, types.int64), codegen


def width_of(hidden: int) -> int:
    """Hidden units rounded up to whole vectors."""
    return -(-hidden // LANES) * LANES


def packed_size(hidden: int, stride: int) -> int:
    return stride if hidden == 0 else hidden * stride + 2 * width_of(hidden)


@kernel
def pack(theta: Doubles, hidden: int, n_features: int, stride: int, packed: Floats) -> None:
    """Copy θ into the float32 layout that scoring reads; padding stays zero."""
    for h in range(max(hidden, 1)):
        for j in range(n_features):
            packed[h * stride + j] = np.float32(theta[h * n_features + j])
    if hidden > 0:
        width = (hidden + LANES - 1) // LANES * LANES
        bias, output = hidden * n_features, hidden * n_features + hidden
        for h in range(hidden):
            packed[hidden * stride + h] = np.float32(theta[bias + h])
            packed[hidden * stride + width + h] = np.float32(theta[output + h])


@kernel
def _activate(packed: Floats, hidden: int, padded: Floats, row: int, activation: Floats) -> None:
    """activation = relu(Wx + b) for one document."""
    stride = padded.shape[1]
    for h in range(hidden):
        value = packed[hidden * stride + h] + dot_lanes(padded, row * stride, packed, h * stride, stride)
        activation[h] = max(value, np.float32(0.0))


@kernel
def score_rows(
    packed: Floats, hidden: int, padded: Floats, start: int, stop: int, scores: Floats, activation: Floats
) -> None:
    """scores[i] = f_θ(row start + i) for the rows of one candidate list; `activation` is scratch, zero past `hidden`."""
    stride = padded.shape[1]
    if hidden == 0:
        for row in range(start, stop):
            scores[row - start] = dot_lanes(padded, row * stride, packed, 0, stride)
        return
    width = (hidden + LANES - 1) // LANES * LANES
    for row in range(start, stop):
        _activate(packed, hidden, padded, row, activation)
        scores[row - start] = dot_lanes(activation, 0, packed, hidden * stride + width, width)


@kernel
def add_gradient(
    theta: Doubles, packed: Floats, hidden: int, n_features: int, padded: Floats, row: int, amount: float, activation: Floats
) -> None:
    """θ += amount · ∇f(row), with the gradient taken at the packed parameters."""
    if hidden == 0:
        for j in range(n_features):
            theta[j] += amount * padded[row, j]
        return
    _activate(packed, hidden, padded, row, activation)
    width = (hidden + LANES - 1) // LANES * LANES
    output = hidden * padded.shape[1] + width
    for h in range(hidden):
        if activation[h] > np.float32(0.0):
            theta[hidden * n_features + hidden + h] += amount * activation[h]
            slope = amount * packed[output + h]
            theta[hidden * n_features + h] += slope
            for j in range(n_features):
                theta[h * n_features + j] += slope * padded[row, j]
