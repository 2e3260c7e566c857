"""Numba's side of kernels: loaded when the first of them is called compiled, since it costs a quarter second and 60 MB."""

from __future__ import annotations

import contextlib
import importlib
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

WAIT_SECONDS, LOOK_SECONDS = 60.0, 0.02
"""So long a process waits for another that compiles the same function, which might have been suspended."""


def _trust_blas() -> None:
    """Let Numba take it on trust that there is a BLAS: SciPy has one, and loading it to see takes 0.2 s of every start.

    No kernel here multiplies matrices; one elsewhere that does loads it when it is compiled, as always.
    """
    if "scipy.linalg" in sys.modules or "numba.np.arraymath" in sys.modules:
        return
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    try:
        arraymath: Any = importlib.import_module("numba.np.arraymath")
        arraymath._HAVE_BLAS = True
    finally:
        del sys.modules["scipy.linalg"]


_trust_blas()


def compiled_by_numba(
    function: Callable[..., Any], folder_of: Callable[[str], Path | None], *, allocates: bool = True
) -> Any:
    """Return Numba's dispatcher of a kernel; `folder_of` says where it is kept, given Numba's own setting.

    No fastmath: a kernel gives the same bits on every machine that rounds as IEEE 754 says. Kernels that a kernel calls
    are merged into it: an array counts as seven arguments, so that calls would cost more than many of their bodies.

    Kernels copy arrays in loops: for the message of an error that `a[:] = b` might raise, Numba compiles 1.5 s longer.
    """
    options = {"nogil": True, "error_model": "numpy", "forceinline": True, "no_cfunc_wrapper": True}
    compiled: Any = njit(**options, _nrt=allocates)(function)
    compiled.get_call_template = partial(_template_without_literals, compiled.get_call_template)
    before = config.CACHE_DIR
    folder = folder_of(before)
    if folder is not None:
        config.CACHE_DIR = str(folder)
        try:
            compiled._cache = _CompiledOnce(function)
        except (OSError, RuntimeError):
            pass  # a function of no file, as in an interactive session, is compiled in every start
        finally:
            config.CACHE_DIR = before
    return compiled


def _template_without_literals(template_of: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
    """Return what a kernel takes when another calls it: Numba would compile it again for every constant among arguments.

    Kernels are merged into their callers, where constants are folded all the same.
    """
    plain = [types.unliteral(argument) for argument in arguments]
    return template_of(plain, {name: types.unliteral(argument) for name, argument in keywords.items()})


def type_of(function: Any) -> Any:
    """Return what Numba calls the type of an intrinsic, or of a function that it has an overload for."""
    cpu_target.typing_context.refresh()
    return cpu_target.typing_context.resolve_value_type(function)


class _CompiledOnce(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, and a lock for each function from when it is not found there until it is.

    Kernels call each other in one direction, so that processes never wait for each other in a circle. A lock ends with
    its process; a process that was forked does not have it, and one that has waited too long does without.
    """

    _lock: int | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._sound(sig, target_context)
        if found is None and self._take():
            found = self._sound(sig, target_context)
            if found is not None:
                self._give_back()
        return found

    def _sound(self, sig: Any, target_context: Any) -> Any:
        """A function from disk; None where there is none, or none that is whole, which is then forgotten."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged file may raise anything while it is read
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function; on a full disk the next start compiles it again."""
        try:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)
        finally:
            self._give_back()

    def _take(self) -> bool:
        """Wait for the lock; False if there is none to be had, as on Windows and some file systems."""
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
                    time.sleep(LOOK_SECONDS)
        self._give_back()
        return False

    def _give_back(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
