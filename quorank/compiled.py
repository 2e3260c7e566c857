"""Compiled functions, cached on disk so that a second start does not compile.

Numba invalidates a cached function when its own file changes, but not when a function that it calls changes in
another file. The cache folder is therefore named after a digest of all sources that hold compiled functions: changed
code can never run an old kernel. Of processes that start together, one compiles a function and the others wait for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit
from numba.core.caching import FunctionCache

from quorank.files import cache_root

if sys.platform != "win32":
    from fcntl import LOCK_EX, LOCK_NB, lockf


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

F = TypeVar("F", bound=Callable[..., Any])
_KEEP_SECONDS = 30 * 24 * 3600.0
WAIT_SECONDS, LOOK_SECONDS = 60.0, 0.02
"""So long a process waits for another that compiles the same function, which might have been suspended."""


@cache
def _folder() -> str:
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if b"@kernel" in text or b"@intrinsic" in text:
            digest.update(source.relative_to(package).as_posix().encode())
            digest.update(text)
    folder = cache_root() / "compiled" / digest.hexdigest()
    if not folder.exists() and folder.parent.exists():
        for old in folder.parent.iterdir():
            if time.time() - old.stat().st_mtime > _KEEP_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    return str(folder)


def is_cold() -> bool:
    """Nothing has been compiled for these sources yet: the first run will take some seconds longer."""
    return not any(Path(config.CACHE_DIR or _folder()).rglob("*.nbi"))


def kernel(function: F) -> F:
    """Compile on first call, without the interpreter lock and without reassociating sums.

    No fastmath: a kernel gives the same bits on every machine that rounds as IEEE 754 says. Kernels that a kernel calls
    are merged into it: an array counts as seven arguments, so that calls would cost more than many of their bodies.

    Kernels copy arrays in loops: for the message of an error that `a[:] = b` might raise, Numba compiles 1.5 s longer.
    """
    compiled: Any = njit(nogil=True, error_model="numpy", forceinline=True, no_cfunc_wrapper=True)(function)
    before = config.CACHE_DIR
    config.CACHE_DIR = before or _folder()
    try:
        compiled._cache = _CompiledOnce(function)
    finally:
        config.CACHE_DIR = before
    return compiled  # type: ignore[no-any-return]


class _CompiledOnce(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, and a lock for each function from when it is not found there until it is.

    Kernels call each other in one direction, so that processes never wait for each other in a circle. A lock ends with
    its process; a process that was forked does not have it, and one that has waited too long does without.
    """

    _lock: int | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None and self._take():
            found = super().load_overload(sig, target_context)
            if found is not None:
                self._give_back()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
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
