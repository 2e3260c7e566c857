"""Compilation of kernels by Numba; imported with the first compiled call, since Numba costs 0.15 s and 60 MB."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import config, njit, types
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload

from quorank.errors import require

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, lockf

WAIT_SECONDS, POLL_SECONDS = 60.0, 0.02  # wait for a process that compiles the same function and may be suspended


def compile_with_numba(
    function: Callable[..., Any], folder_for: Callable[[str], Path | None], *, allocates: bool = True
) -> Any:
    """Return Numba's dispatcher of a kernel.

    Args:
        function: Python source of the kernel.
        folder_for: Returns the cache folder for Numba's own setting, or None for no cache.
        allocates: Whether the kernel may allocate arrays, whose references are then counted.

    There is no fastmath, so that every IEEE 754 machine gives the same bits. Called kernels are inlined: an array counts as
    seven arguments, which cost more than many bodies. Kernels copy arrays in loops, because the error message of
    `a[:] = b` takes 1.5 s to compile.
    """
    sentence = "is set, and kernels are compiled; unset it"
    require(not config.DISABLE_JIT, "kernels.not-compiled", sentence, "NUMBA_DISABLE_JIT")
    dispatcher: Any = njit(nogil=True, error_model="numpy", forceinline=True, _nrt=allocates)(function)
    dispatcher.get_call_template = partial(_template_without_literals, dispatcher.get_call_template)
    before = config.CACHE_DIR
    folder = folder_for(before)
    if folder is not None:
        config.CACHE_DIR = str(folder)
        try:
            dispatcher._cache = _LockedCache(function)
        except (OSError, RuntimeError):
            pass  # a function of no file, as in an interactive session, is compiled in every start
        finally:
            config.CACHE_DIR = before
    return dispatcher


def _template_without_literals(template_of: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
    """Type a call between kernels without the values of constants, for each of which Numba would compile the callee again.

    The golden runs compile in 37.0 instead of 41.5 CPU-seconds; inlining folds constants anyway.
    """
    plain = [types.unliteral(argument) for argument in arguments]
    return template_of(plain, {name: types.unliteral(argument) for name, argument in keywords.items()})


class Emitter:
    """LLVM builder of one call of an intrinsic, with shorthands for vectors."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        self.ir, self.builder, self.args = ir, builder, args
        self._context, self._kinds = context, kinds.args

    def pointer(self, argument: int, at: Any) -> Any:
        """Return the address of element `at` of an argument that is an array, counted over all its axes."""
        array = self._context.make_array(self._kinds[argument])(self._context, self.builder, self.args[argument])
        return self.builder.gep(array.data, [at])

    def load(self, address: Any, vector: Any) -> Any:
        """Load a vector from the address of its first number."""
        return self.builder.load(self.builder.bitcast(address, vector.as_pointer()), align=4)

    def store(self, value: Any, address: Any) -> Any:
        """Store a vector at the address of its first number; return nothing, as intrinsics of type void do."""
        self.builder.store(value, self.builder.bitcast(address, value.type.as_pointer()), align=4)
        return self.nothing()

    def nothing(self) -> Any:
        """Return the value of an intrinsic of type void."""
        return self._context.get_dummy_value()

    def integer(self, value: int, bits: int = 64) -> Any:
        """Return a constant."""
        return ir.Constant(ir.IntType(bits), value)

    def shuffle(self, first: Any, second: Any, lanes: Iterable[int]) -> Any:
        """Return the numbered lanes of two vectors one behind the other."""
        chosen = list(lanes)
        return self.builder.shuffle_vector(
            first, second, ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
        )

    def spread(self, value: Any, lanes: int) -> Any:
        """Return a vector with a value in all lanes."""
        empty = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
        first = self.builder.insert_element(empty, value, self.integer(0, 32))
        return self.shuffle(first, first, [0] * lanes)


def define_instructions(function: Callable[..., Any], emit: Callable[[Emitter], Any], returns: str) -> Any:
    """Return Numba's type of an intrinsic; arrays are passed as they are, integers as int64."""
    names = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in ("_context", *signature(function).parameters)]

    def typed(_context: Any, *arguments: Any) -> Any:
        plain = [types.unliteral(argument) for argument in arguments]
        wide = [types.int64 if isinstance(argument, types.Integer) else argument for argument in plain]
        return getattr(types, returns)(*wide), lambda *call: emit(Emitter(*call))

    typed.__signature__ = Signature(names)  # type: ignore[attr-defined]
    return _type_of(intrinsic(typed))


def define_overload(function: Callable[..., Any], choose: Callable[..., Any]) -> Any:
    """Return Numba's type of a function that `choose` implements by the types of its arguments."""
    overload(function, strict=False)(choose)
    return _type_of(function)


def _type_of(function: Any) -> Any:
    cpu_target.typing_context.refresh()
    return cpu_target.typing_context.resolve_value_type(function)


class _LockedCache(FunctionCache):  # type: ignore[misc]
    """Numba's disk cache with a lock per function, so that of several starting processes one compiles.

    Four processes that start `run fpdgd` together need 13 CPU-seconds with the lock and 45 without it. Kernels call each
    other in one direction, so processes never wait in a circle. A lock ends with its process and is not inherited by a
    fork; after WAIT_SECONDS a process compiles without it.
    """

    _lock: int | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        loaded = self._load_intact(sig, target_context)
        if loaded is None and self._acquire():
            loaded = self._load_intact(sig, target_context)
            if loaded is not None:
                self._release()
        return loaded

    def _load_intact(self, sig: Any, target_context: Any) -> Any:
        """Return a function from disk, or None; damaged files are deleted."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged file may raise anything while it is read
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled function; on a full disk the next start compiles it again."""
        try:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)
        finally:
            self._release()

    def _acquire(self) -> bool:
        """Wait for the lock; return False where there are no locks, as on Windows and some file systems."""
        if sys.platform == "win32" or self._lock is not None:
            return False
        end = time.monotonic() + WAIT_SECONDS
        with contextlib.suppress(OSError):
            self._impl.locator.ensure_cache_path()
            path = Path(self.cache_path, f"{self._impl.filename_base}.lock")
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            while time.monotonic() < end:
                try:
                    lockf(self._lock, LOCK_EX | LOCK_NB)
                    return True
                except (BlockingIOError, PermissionError):  # another process holds it; the error depends on the system
                    time.sleep(POLL_SECONDS)
        self._release()
        return False

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
