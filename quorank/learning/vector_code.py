"""Intrinsics of this package as LLVM code; `plackett_luce` and `own_learner` have them in plain Python."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def as_double(_context: Any, bits: Any) -> Any:
    """The float64 of these 64 bits."""

    def codegen(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def as_bits(_context: Any, value: Any) -> Any:
    """The 64 bits of a float64."""

    def codegen(_c: Any, builder: Any, _s: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_back(_context: Any, address: Any) -> Any:
    """Call a C function without arguments."""

    def codegen(context: Any, builder: Any, _s: Any, args: Any) -> Any:
        builder.call(builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), []).as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), codegen
