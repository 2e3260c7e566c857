"""Vector instructions of scoring, as LLVM code: what `scoring` has in plain Python under the same names."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from quorank.data.ranking import LANES
from quorank.rankers.scoring import TOGETHER


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
    """Prefetch the cache line of array.flat[at] into the second-level cache."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        address = builder.bitcast(_data(context, builder, signature.args[0], *args), ir.IntType(8).as_pointer())
        hint = ir.FunctionType(ir.VoidType(), [address.type, i32, i32, i32])
        prefetch = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0i8")
        builder.call(prefetch, [address, i32(0), i32(2), i32(1)])  # to read; second level; data
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


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
