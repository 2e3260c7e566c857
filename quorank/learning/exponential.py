"""e^x in plain arithmetic, for the weights of a list."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from quorank.compiled import kernel


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _as_double(_context: Any, bits: Any) -> Any:
    def codegen(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def _as_bits(_context: Any, value: Any) -> Any:
    def codegen(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@kernel
def fast_exp(x: float) -> float:
    """e^x for x ≤ 0 to within 2 units in the last place; never below e^−701, so that no weight is lost.

    Plain arithmetic, unlike the C library's, so that LLVM vectorises a loop over it and its bits are the same everywhere.
    """
    x = max(x, -701.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # adding 1.5·2^52 rounds to an integer
    n = shifted - 6755399441055744.0
    r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 1.984126984126984e-04
    p = p * r + 1.388888888888889e-03
    p = p * r + 8.333333333333333e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    scale: float = _as_double((_as_bits(shifted) + 1023) << 52)
    return p * scale
