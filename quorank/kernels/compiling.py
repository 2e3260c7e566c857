"""Compilation of kernels by Numba; imported with the first compiled call, since Numba costs 0.15 s and 60 MB."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from numba import config, njit, types
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, lockf

WAIT_SECONDS, POLL_SECONDS = 60.0, 0.02
"""Longest wait for another process that compiles the same function, which might be suspended, and its interval."""


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
    """Type the call of a kernel by another without the values of constants, for each of which Numba would compile it again.

    Without this the golden runs compile 12 % longer (41.5 instead of 37.0 CPU-seconds); inlining folds constants anyway.
    """
    plain = [types.unliteral(argument) for argument in arguments]
    return template_of(plain, {name: types.unliteral(argument) for name, argument in keywords.items()})


def type_of(function: Any) -> Any:
    """Return Numba's type of an intrinsic, or of a function with an overload."""
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
                except (BlockingIOError, PermissionError):  # another has it, in the words of either system
                    time.sleep(POLL_SECONDS)
        self._release()
        return False

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
