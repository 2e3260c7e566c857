"""Compiled scoring of candidate lists, and the gradient of a score, for both rankers.

Parameters are one flat float64 vector θ. Scoring reads a packed float32 copy whose rows are whole vectors:

    linear   packed = θ padded to the row stride
    mlp      packed = W (hidden × row stride), b (width), v (width), with width = hidden padded to whole vectors

Sums run over LANES partial sums in a fixed order, so a score has the same bits on any machine and in any batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from quorank.arrays import Doubles, Floats, Integers
from quorank.compiled import kernel
from quorank.data.ranking import LANES


def _emit_dots(context: Any, builder: Any, x_data: Any, w_data: list[Any], count: Any) -> list[Any]:
    """LLVM code for the dot products of one x with several w, each in LANES partial sums added up pairwise.

    Written as vector instructions because LLVM does not vectorise a sum without permission to reassociate it,
    and that permission would make the bits depend on the machine's vector width.
    """
    index, wide = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
    totals = [cgutils.alloca_once_value(builder, ir.Constant(wide, [0.0] * LANES)) for _ in w_data]
    with cgutils.for_range_slice(builder, ir.Constant(index, 0), count, ir.Constant(index, LANES), index) as (j, _):
        left = builder.load(builder.bitcast(builder.gep(x_data, [j]), wide.as_pointer()), align=4)
        for total, data in zip(totals, w_data, strict=True):
            right = builder.load(builder.bitcast(builder.gep(data, [j]), wide.as_pointer()), align=4)
            builder.store(builder.fadd(builder.load(total), builder.fmul(left, right)), total)
    sums = []
    for total in totals:
        value, lanes = builder.load(total), LANES
        while lanes > 1:
            lanes //= 2
            mask = ir.VectorType(ir.IntType(32), lanes)
            undefined = ir.Constant(value.type, ir.Undefined)
            low = builder.shuffle_vector(value, undefined, ir.Constant(mask, list(range(lanes))))
            high = builder.shuffle_vector(value, undefined, ir.Constant(mask, list(range(lanes, 2 * lanes))))
            value = builder.fadd(low, high)
        sums.append(builder.extract_element(value, ir.Constant(ir.IntType(32), 0)))
    return sums


def _data(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def dot_lanes(_context: Any, x: Any, x_start: Any, w: Any, w_start: Any, length: Any) -> Any:
    """Σ x[x_start + j]·w[w_start + j] over `length` floats, a multiple of LANES."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x_data = _data(context, builder, signature.args[0], args[0], args[1])
        w_data = _data(context, builder, signature.args[2], args[2], args[3])
        return _emit_dots(context, builder, x_data, [w_data], args[4])[0]

    return types.float32(x, types.int64, w, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def ask_for(_context: Any, array: Any, at: Any) -> Any:
    """Ask memory for the cache line of array.flat[at] and go on: when it is read later, it is in the second-level cache."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        address = builder.bitcast(_data(context, builder, signature.args[0], *args), ir.IntType(8).as_pointer())
        hint = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
        prefetch = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0i8")
        builder.call(prefetch, [address, i32(0), i32(2), i32(1)])  # to read; second level; data
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


TOGETHER = 4
"""Dot products that `dot_lanes_together` makes at a time: x is loaded once for all of them."""


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def dot_lanes_together(
    _context: Any,
    x: Any,
    x_start: Any,
    w: Any,
    w_start: Any,
    w_step: Any,
    length: Any,
    out: Any,
    out_start: Any,
    out_step: Any,
) -> Any:
    """out[out_start + i·out_step] = dot_lanes(x, x_start, w, w_start + i·w_step, length) for i < TOGETHER, bit for bit."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x_array, x_at, w_array, w_at, w_by, count, out_array, out_at, out_by = args
        x_data = _data(context, builder, signature.args[0], x_array, x_at)
        steps = [ir.Constant(ir.IntType(64), i) for i in range(TOGETHER)]
        w_data = [
            _data(context, builder, signature.args[2], w_array, builder.add(w_at, builder.mul(i, w_by))) for i in steps
        ]
        for i, value in zip(steps, _emit_dots(context, builder, x_data, w_data, count), strict=True):
            at = builder.add(out_at, builder.mul(i, out_by))
            builder.store(value, _data(context, builder, signature.args[6], out_array, at))
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(x, i64, w, i64, i64, i64, out, i64, i64), codegen


def width_of(hidden: int) -> int:
    """Hidden units rounded up to whole vectors."""
    return -(-hidden // LANES) * LANES


def packed_size(hidden: int, stride: int) -> int:
    """Return how many float32 the packed parameters of a ranker take."""
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
    whole = hidden // TOGETHER * TOGETHER
    for h in range(0, whole, TOGETHER):
        dot_lanes_together(padded, row * stride, packed, h * stride, stride, stride, activation, h, 1)
    for h in range(whole, hidden):
        activation[h] = dot_lanes(padded, row * stride, packed, h * stride, stride)
    for h in range(hidden):
        activation[h] = max(packed[hidden * stride + h] + activation[h], np.float32(0.0))


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
def score_lists(
    packed: Floats, hidden: int, padded: Floats, starts: Integers, lengths: Integers, scores: Floats, activation: Floats
) -> None:
    """scores[g, i] = f of ranker g for row starts[g] + i: several lists, each by its own ranker, side by side.

    Lists lie anywhere in memory; reading some of them at once keeps more of its requests under way than one alone.
    """
    stride = padded.shape[1]
    if hidden > 0:
        for g in range(len(starts)):
            score_rows(packed[g], hidden, padded, starts[g], starts[g] + lengths[g], scores[g], activation)
        return
    for row in range(lengths.max()):
        for g in range(len(starts)):
            if row < lengths[g]:
                scores[g, row] = dot_lanes(padded, (starts[g] + row) * stride, packed, g * stride, stride)


@kernel
def score_rows_of_all(
    packed: Floats, hidden: int, padded: Floats, start: int, stop: int, scores: Floats, activation: Floats
) -> None:
    """scores[r, i] = f of ranker r (packed[r]) for row start + i: the bits of `score_rows`, with each row read once."""
    stride = padded.shape[1]
    whole = packed.shape[0] // TOGETHER * TOGETHER if hidden == 0 else 0
    step = scores.shape[1]
    for row in range(start, stop):
        for r in range(0, whole, TOGETHER):
            dot_lanes_together(
                padded, row * stride, packed, r * stride, stride, stride, scores, r * step + row - start, step
            )
    for r in range(whole, packed.shape[0]):
        score_rows(packed[r], hidden, padded, start, stop, scores[r], activation)


@kernel
def add_gradients(
    theta: Doubles,
    packed: Floats,
    hidden: int,
    n_features: int,
    padded: Floats,
    start: int,
    documents: Integers,
    amounts: Doubles,
    count: int,
    activation: Floats,
) -> None:
    """θ += Σ amounts[p] · ∇f(row start + documents[p]), with the gradients taken at the packed parameters."""
    if hidden == 0:
        for p in range(0, count, 4):  # four documents to each pass over θ
            left = count - p - 1
            a, b = start + documents[p], start + documents[p + min(1, left)]
            c, d = start + documents[p + min(2, left)], start + documents[p + min(3, left)]
            by_a, by_b = amounts[p], amounts[p + min(1, left)] if left >= 1 else 0.0
            by_c = amounts[p + min(2, left)] if left >= 2 else 0.0
            by_d = amounts[p + min(3, left)] if left >= 3 else 0.0
            for j in range(n_features):
                theta[j] += (by_a * padded[a, j] + by_b * padded[b, j]) + (by_c * padded[c, j] + by_d * padded[d, j])
        return
    for p in range(count):
        if amounts[p] != 0.0:
            _add_hidden_gradient(
                theta, packed, hidden, n_features, padded, start + documents[p], amounts[p], activation
            )


@kernel
def _add_hidden_gradient(
    theta: Doubles,
    packed: Floats,
    hidden: int,
    n_features: int,
    padded: Floats,
    row: int,
    amount: float,
    activation: Floats,
) -> None:
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
