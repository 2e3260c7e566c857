"""Vector instructions of `draws.fill_batch` and `draws.fill_clients`, as LLVM code for compiled kernels."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from quorank.kernels.draws import BATCH


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def fill_batch(_context: Any, key: Any, block: Any, interaction: Any, client: Any, round_: Any, out: Any) -> Any:
    """Write draws 2·block, 2·block + 1, … of an address to out[:BATCH], with the bits of `uniform_pair`.

    These are vector instructions because LLVM does not see that products of 32-bit words need no 64-bit factors.
    """
    lanes, low = BATCH // 2, 0xFFFFFFFF

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, half = ir.IntType(64), ir.IntType(32)
        words, real = ir.VectorType(word, lanes), ir.VectorType(ir.DoubleType(), lanes)

        def each(value: int) -> Any:
            return ir.Constant(words, [value] * lanes)

        def spread(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(words, ir.Undefined), value, half(0))
            return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(half, lanes), [0] * lanes))

        def word_of(value: Any) -> Any:
            return builder.and_(spread(value), each(low))

        def top_bits(value: Any, drop: int) -> Any:
            kept = builder.trunc(builder.lshr(value, each(drop)), ir.VectorType(half, lanes))
            return builder.sitofp(kept, real)

        def uniform(high: Any, rest: Any) -> Any:
            wide = builder.fmul(top_bits(high, 5), ir.Constant(real, [67108864.0] * lanes))
            scale = ir.Constant(real, [1.0 / 9007199254740992.0] * lanes)
            return builder.fmul(builder.fadd(wide, top_bits(rest, 6)), scale)

        at = context.make_array(signature.args[0])(context, builder, args[0]).data
        k0, k1 = (spread(builder.load(builder.gep(at, [word(i)]))) for i in range(2))
        numbers = builder.add(spread(args[1]), ir.Constant(words, list(range(lanes))))
        c0, (c1, c2, c3) = builder.and_(numbers, each(low)), (word_of(value) for value in args[2:5])
        for _ in range(10):
            p0, p1 = builder.mul(each(0xD2511F53), c0), builder.mul(each(0xCD9E8D57), c2)
            c0 = builder.xor(builder.xor(builder.lshr(p1, each(32)), c1), k0)
            c2 = builder.xor(builder.xor(builder.lshr(p0, each(32)), c3), k1)
            c1, c3 = builder.and_(p1, each(low)), builder.and_(p0, each(low))
            k0 = builder.and_(builder.add(k0, each(0x9E3779B9)), each(low))
            k1 = builder.and_(builder.add(k1, each(0xBB67AE85)), each(low))
        in_turn = [lane + pair for lane in range(lanes) for pair in (0, lanes)]
        mask = ir.Constant(ir.VectorType(half, BATCH), in_turn)
        drawn = builder.shuffle_vector(uniform(c0, c1), uniform(c2, c3), mask)
        data = context.make_array(signature.args[5])(context, builder, args[5]).data
        builder.store(drawn, builder.bitcast(data, drawn.type.as_pointer()), align=8)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(key, i64, i64, i64, i64, out), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def fill_clients(_context: Any, key: Any, client: Any, round_: Any, out: Any) -> Any:
    """Write the first draw of clients `client`, `client` + 1, … in a round to out[:BATCH]."""
    low = 0xFFFFFFFF

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, half = ir.IntType(64), ir.IntType(32)
        words, real = ir.VectorType(word, BATCH), ir.VectorType(ir.DoubleType(), BATCH)

        def each(value: int) -> Any:
            return ir.Constant(words, [value] * BATCH)

        def spread(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(words, ir.Undefined), value, half(0))
            return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(half, BATCH), [0] * BATCH))

        def top_bits(value: Any, drop: int) -> Any:
            kept = builder.trunc(builder.lshr(value, each(drop)), ir.VectorType(half, BATCH))
            return builder.sitofp(kept, real)

        at = context.make_array(signature.args[0])(context, builder, args[0]).data
        # all lanes have the same keys and constants: they are computed once, not in vectors
        k0, k1 = (builder.load(builder.gep(at, [word(i)])) for i in range(2))
        clients = builder.add(spread(args[1]), ir.Constant(words, list(range(BATCH))))
        c0, c1, c2 = each(0), each(0), builder.and_(clients, each(low))
        c3 = builder.and_(spread(args[2]), each(low))
        for _ in range(10):
            p0, p1 = builder.mul(each(0xD2511F53), c0), builder.mul(each(0xCD9E8D57), c2)
            c0 = builder.xor(builder.xor(builder.lshr(p1, each(32)), c1), spread(k0))
            c2 = builder.xor(builder.xor(builder.lshr(p0, each(32)), c3), spread(k1))
            c1, c3 = builder.and_(p1, each(low)), builder.and_(p0, each(low))
            k0 = builder.and_(builder.add(k0, word(0x9E3779B9)), word(low))
            k1 = builder.and_(builder.add(k1, word(0xBB67AE85)), word(low))
        wide = builder.fmul(top_bits(c0, 5), ir.Constant(real, [67108864.0] * BATCH))
        scale = ir.Constant(real, [1.0 / 9007199254740992.0] * BATCH)
        drawn = builder.fmul(builder.fadd(wide, top_bits(c1, 6)), scale)
        data = context.make_array(signature.args[3])(context, builder, args[3]).data
        builder.store(drawn, builder.bitcast(data, drawn.type.as_pointer()), align=8)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(key, i64, i64, out), codegen
