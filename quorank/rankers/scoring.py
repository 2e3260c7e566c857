"""Compiled scoring of candidate lists, and the gradient of a score, for linear rankers and networks.

Parameters are one flat float64 vector θ. Scoring reads a packed float32 copy whose rows are whole vectors:

    linear   packed = θ padded to the row stride
    mlp      packed = W (hidden × row stride), b (width), v (width), with width = hidden padded to whole vectors

Sums run over LANES partial sums in a fixed order, so a score has the same bits on any machine and in any batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quorank.data.ranking import LANES
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.kernels.compiled import Intrinsic, fixed_memory_kernel

TOGETHER = 4  # dot products that `dot_lanes_together` makes at a time: x is loaded once for all of them


@Intrinsic
def dot_lanes(x: Floats, x_start: int, w: Floats, w_start: int, length: int) -> Any:
    """Compute Σ_j x[x_start + j]·w[w_start + j] over `length` floats, in LANES partial sums that are added pairwise.

    Args:
        x: Contiguous float32 array of any shape, indexed flat.
        x_start: First index in x.
        w: Contiguous float32 array of any shape, indexed flat.
        w_start: First index in w.
        length: Number of products, a multiple of LANES.

    >>> float(dot_lanes(np.ones(8, dtype=np.float32), 0, np.arange(16, dtype=np.float32), 8, 8))  # 8 + 9 + … + 15
    92.0
    """
    left, right = x.reshape(-1)[x_start : x_start + length], w.reshape(-1)[w_start : w_start + length]
    products, totals = (left * right).reshape(-1, LANES), np.zeros(LANES, dtype=np.float32)
    for row in products:
        totals += row
    while len(totals) > 1:
        totals = totals[: len(totals) // 2] + totals[len(totals) // 2 :]
    return totals[0]


@dot_lanes.instructions("float32")
def _emit_dot(emit: Any) -> Any:
    _, x_start, _, w_start, length = emit.args
    return _emit_dots(emit, emit.pointer(0, x_start), [emit.pointer(2, w_start)], length)[0]


def _emit_dots(emit: Any, x: Any, rows: list[Any], count: Any) -> list[Any]:
    """Emit the dot products of one x with several w, each in LANES partial sums added up pairwise.

    These are vector instructions because LLVM does not vectorise a sum without permission to reassociate it,
    and that permission would make the bits depend on the machine's vector width.
    """
    from numba.core import cgutils

    build, ir = emit.builder, emit.ir
    wide = ir.VectorType(ir.FloatType(), LANES)
    totals = [cgutils.alloca_once_value(build, ir.Constant(wide, [0.0] * LANES)) for _ in rows]
    steps = cgutils.for_range_slice(build, emit.integer(0), count, emit.integer(LANES), ir.IntType(64))
    with steps as (j, _):
        left = emit.load(build.gep(x, [j]), wide)
        for total, row in zip(totals, rows, strict=True):
            right = emit.load(build.gep(row, [j]), wide)
            build.store(build.fadd(build.load(total), build.fmul(left, right)), total)
    sums = []
    for total in totals:
        value, lanes = build.load(total), LANES
        while lanes > 1:
            lanes //= 2
            value = build.fadd(*(emit.shuffle(value, value, range(at, at + lanes)) for at in (0, lanes)))
        sums.append(build.extract_element(value, emit.integer(0, 32)))
    return sums


@Intrinsic
def ask_for(array: Any, at: int) -> None:
    """Prefetch the cache line of array.flat[at] into the second-level cache."""


@ask_for.instructions("void")
def _emit_prefetch(emit: Any) -> Any:
    from numba.core import cgutils

    ir, word = emit.ir, emit.ir.IntType(32)
    address = emit.builder.bitcast(emit.pointer(0, emit.args[1]), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
    prefetch = cgutils.get_or_insert_function(emit.builder.module, kind, "llvm.prefetch.p0i8")
    emit.builder.call(prefetch, [address, word(0), word(2), word(1)])  # to read; second level; data
    return emit.nothing()


@Intrinsic
def dot_lanes_together(
    x: Floats,
    x_start: int,
    w: Floats,
    w_start: int,
    w_step: int,
    length: int,
    out: Floats,
    out_start: int,
    out_step: int,
) -> None:
    """Compute TOGETHER dot products of one x: out[out_start + i·out_step] = Σ_j x[x_start + j]·w[w_start + i·w_step + j].

    Each has the bits of `dot_lanes`.

    Args:
        x: Contiguous float32 array of any shape, indexed flat.
        x_start: First index in x.
        w: Contiguous float32 array of any shape, indexed flat.
        w_start: First index in w of the first product.
        w_step: Distance in w between two products.
        length: Number of terms, a multiple of LANES.
        out: Contiguous float32 output, indexed flat.
        out_start: Index of the first product.
        out_step: Distance between two products.
    """
    flat = out.reshape(-1)
    for i in range(TOGETHER):
        flat[out_start + i * out_step] = dot_lanes(x, x_start, w, w_start + i * w_step, length)


@dot_lanes_together.instructions("void")
def _emit_dots_together(emit: Any) -> Any:
    _, x_at, _, w_at, w_by, count, _, out_at, out_by = emit.args
    build = emit.builder
    steps = [emit.integer(i) for i in range(TOGETHER)]
    rows = [emit.pointer(2, build.add(w_at, build.mul(i, w_by))) for i in steps]
    for i, value in zip(steps, _emit_dots(emit, emit.pointer(0, x_at), rows, count), strict=True):
        build.store(value, emit.pointer(6, build.add(out_at, build.mul(i, out_by))))
    return emit.nothing()


SIGMOID = 1 << 16  # added to the units of a logistic hidden layer; no layer has as many units


@fixed_memory_kernel
def units_of(hidden: int) -> int:
    """Return the units of the hidden layer.

    >>> units_of(64 + SIGMOID)
    64
    """
    return hidden & (SIGMOID - 1)


@fixed_memory_kernel
def width_of(hidden: int) -> int:
    """Return the hidden units rounded up to whole vectors of LANES.

    >>> width_of(3)
    8
    """
    return (units_of(hidden) + LANES - 1) // LANES * LANES


@fixed_memory_kernel
def packed_size(hidden: int, stride: int) -> int:
    """Return the number of float32 of the packed parameters, for rows of `stride` features.

    >>> packed_size(2, 8)  # W 2·8, b 8, v 8
    32
    """
    return stride if hidden == 0 else units_of(hidden) * stride + 2 * width_of(hidden)


@fixed_memory_kernel
def sigmoid(x: float) -> float:
    """Compute 1 / (1 + e^−x) without overflow.

    >>> sigmoid(0.0), sigmoid(-1000.0)
    (0.5, 0.0)
    """
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    grown = math.exp(x)
    return grown / (1.0 + grown)


@fixed_memory_kernel
def pack(theta: Doubles, hidden: int, n_features: int, stride: int, packed: Floats) -> None:
    """Copy θ into the float32 layout that scoring reads.

    Args:
        theta: (parameters,) θ.
        hidden: `Ranker.layer`.
        n_features: Number of inputs, at most `stride`.
        stride: Floats of a padded row.
        packed: (packed_size,) output, zero before; padding stays zero.
    """
    units = units_of(hidden)
    for h in range(max(units, 1)):
        for j in range(n_features):
            packed[h * stride + j] = np.float32(theta[h * n_features + j])
    if units > 0:
        width = width_of(hidden)
        bias, output = units * n_features, units * n_features + units
        for h in range(units):
            packed[units * stride + h] = np.float32(theta[bias + h])
            packed[units * stride + width + h] = np.float32(theta[output + h])


@fixed_memory_kernel
def _activate(packed: Floats, hidden: int, padded: Floats, row: int, activation: Floats) -> None:
    """Compute activation = a(Wx + b) for one document."""
    stride, units = padded.shape[1], units_of(hidden)
    whole = units // TOGETHER * TOGETHER
    for h in range(0, whole, TOGETHER):
        dot_lanes_together(padded, row * stride, packed, h * stride, stride, stride, activation, h, 1)
    for h in range(whole, units):
        activation[h] = dot_lanes(padded, row * stride, packed, h * stride, stride)
    if hidden >= SIGMOID:
        for h in range(units):
            activation[h] = np.float32(sigmoid(np.float64(packed[units * stride + h] + activation[h])))
        return
    for h in range(units):
        activation[h] = max(packed[units * stride + h] + activation[h], np.float32(0.0))


@fixed_memory_kernel
def score_rows(
    packed: Floats, hidden: int, padded: Floats, start: int, stop: int, scores: Floats, activation: Floats
) -> None:
    """Compute scores[i] = f_θ(row start + i) for the rows start to stop − 1 of one candidate list.

    Args:
        packed: (packed_size,) parameters, from `pack`.
        hidden: `Ranker.layer`: units of the hidden layer, plus SIGMOID for the logistic function; 0 without one.
        padded: (rows, stride) float32 features, from `data.ranking.pad`.
        start: First row.
        stop: Row after the last.
        scores: (≥ stop − start,) float32 output.
        activation: (width,) float32 scratch, zero beyond the units.

    >>> packed, padded, out = np.zeros(8, np.float32), np.zeros((1, 8), np.float32), np.zeros(1, np.float32)
    >>> padded[0, :2] = 1.0, 2.0
    >>> pack(np.array([3.0, 4.0]), 0, 2, 8, packed)
    >>> score_rows(packed, 0, padded, 0, 1, out, np.zeros(0, np.float32))
    >>> out  # 3·1 + 4·2
    array([11.], dtype=float32)
    """
    stride = padded.shape[1]
    if hidden == 0:
        for row in range(start, stop):
            scores[row - start] = dot_lanes(padded, row * stride, packed, 0, stride)
        return
    units, width = units_of(hidden), width_of(hidden)
    for row in range(start, stop):
        _activate(packed, hidden, padded, row, activation)
        scores[row - start] = dot_lanes(activation, 0, packed, units * stride + width, width)


@fixed_memory_kernel
def score_lists(
    packed: Floats, hidden: int, padded: Floats, starts: Integers, lengths: Integers, scores: Floats, activation: Floats
) -> None:
    """Compute scores[g, i] = f of ranker g for row starts[g] + i: several lists, each by its own ranker.

    Lists lie anywhere in memory; reading several at once keeps more memory requests under way than one alone.

    Args:
        packed: (lists, packed_size) parameters of each list's ranker.
        hidden: `Ranker.layer` of all.
        padded: (rows, stride) features.
        starts: (lists,) first row of each list.
        lengths: (lists,) rows of each list.
        scores: (lists, ≥ longest) float32 output.
        activation: (width,) scratch.
    """
    stride = padded.shape[1]
    if hidden > 0:
        for g in range(len(starts)):
            score_rows(packed[g], hidden, padded, starts[g], starts[g] + lengths[g], scores[g], activation)
        return
    longest = 0
    for g in range(len(lengths)):
        longest = max(longest, lengths[g])
    for row in range(longest):
        for g in range(len(starts)):
            if row < lengths[g]:
                scores[g, row] = dot_lanes(padded, (starts[g] + row) * stride, packed, g * stride, stride)


@fixed_memory_kernel
def score_rows_of_all(
    packed: Floats, hidden: int, padded: Floats, start: int, stop: int, scores: Floats, activation: Floats
) -> None:
    """Compute scores[r, i] = f of ranker r for row start + i, to the bits of `score_rows`, reading each row once.

    Args:
        packed: (rankers, packed_size) parameters.
        hidden: `Ranker.layer` of all.
        padded: (rows, stride) features.
        start: First row.
        stop: Row after the last.
        scores: (rankers, ≥ stop − start) float32 output.
        activation: (width,) scratch.
    """
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


@fixed_memory_kernel
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
    """Add Σ_p amounts[p]·∇f(row start + documents[p]) to θ, with the gradients at the packed parameters.

    Args:
        theta: (parameters,) θ, changed in place.
        packed: (packed_size,) parameters of the gradients.
        hidden: `Ranker.layer`.
        n_features: Number of inputs.
        padded: (rows, stride) features.
        start: First row of the candidate list.
        documents: (≥ count,) positions in the list.
        amounts: (≥ count,) factor of each gradient.
        count: Number of documents.
        activation: (width,) scratch.
    """
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


@fixed_memory_kernel
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
    units, logistic = units_of(hidden), hidden >= SIGMOID
    output = units * padded.shape[1] + width_of(hidden)
    for h in range(units):
        if activation[h] > np.float32(0.0):
            theta[units * n_features + units + h] += amount * activation[h]
            slope = amount * packed[output + h]
            if logistic:
                slope *= activation[h] * (np.float32(1.0) - activation[h])
            theta[units * n_features + h] += slope
            for j in range(n_features):
                theta[h * n_features + j] += slope * padded[row, j]
