"""Compiled functions, cached on disk so that a second start does not compile.

Numba invalidates a cached function when its own file changes, but not when a function that it calls changes in
another file. The cache folder is therefore named after a digest of all sources that hold compiled functions: changed
code can never run an old kernel. Of processes that start together, one compiles a function and the others wait for it.

Whoever may write to the cache can run code as its reader. A folder that others may write to, or that belongs to somebody
else, is therefore not used: then, and where no folder can be written at all, a folder of the user's own below the system's
temporary one takes its place, or nothing is kept and every start compiles.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import shutil
import stat
import sys
import tempfile
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
_KEEP_SECONDS, _LEFT_SECONDS = 30 * 24 * 3600.0, 600.0
WAIT_SECONDS, LOOK_SECONDS = 60.0, 0.02
"""So long a process waits for another that compiles the same function, which might have been suspended."""


@cache
def _folder(chosen: str) -> Path | None:
    """The folder of compiled functions: the one that was chosen, or the usual one; None where none can be trusted."""
    sources = Path("compiled") / _digest()
    wanted = Path(chosen) if chosen else cache_root() / sources
    reason = unfit(wanted)
    if not reason:
        return wanted.resolve()
    told = logging.getLogger("quorank")
    with contextlib.suppress(OSError):
        own = Path(tempfile.gettempdir()).resolve() / f"quorank-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
        if not own.is_symlink() and not unfit(own) and not unfit(own / sources):
            told.warning("quorank: %s %s; compiled functions are kept in %s", wanted, reason, own)
            return own / sources
    told.warning("quorank: %s %s; every start compiles, set QUORANK_CACHE to a folder of your own", wanted, reason)
    return None


def unfit(folder: Path) -> str:
    """Return why compiled code must not be kept in a folder, which is made where it is not there; nothing where it may."""
    try:
        _make(folder)
        for place in (folder.resolve(), *folder.resolve().parents):
            if fault := _fault_in(place.stat()):
                return fault if place == folder.resolve() else f"lies in {place}, which {fault}"
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except (OSError, RuntimeError) as error:
        return f"cannot be written ({getattr(error, 'strerror', None) or type(error).__name__})"


def _make(folder: Path) -> None:
    """Make a folder; it and those above it that are new are their owner's alone."""
    for place in reversed([folder, *folder.parents]):
        with contextlib.suppress(FileExistsError):
            if not place.exists():
                place.mkdir(mode=0o700)


def _fault_in(found: os.stat_result) -> str:
    """Who else may put files into a folder: its owner, its group, or everybody, unless each may only touch their own."""
    if not stat.S_ISDIR(found.st_mode):
        return "is no folder"
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid not in (0, os.geteuid()):
        return "belongs to somebody else"
    if found.st_mode & stat.S_ISVTX:
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if found.st_mode & stat.S_IWGRP and found.st_gid != 0 and not _own_group(found.st_gid):
        return "can be written by its group"
    return ""


def _own_group(group: int) -> bool:
    """Whether a group is of this user alone, as many systems make one for each user."""
    import grp
    import pwd

    try:
        entry, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and user.pw_gid == group and set(entry.gr_mem) <= {user.pw_name}


@cache
def _digest() -> str:
    """Digest of all sources that hold compiled functions; folders of others that were not used for long are removed."""
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if b"@kernel" in text or b"@intrinsic" in text:
            digest.update(source.relative_to(package).as_posix().encode())
            digest.update(text)
    folder = cache_root() / "compiled" / digest.hexdigest()
    with contextlib.suppress(OSError):
        if not folder.exists() and folder.parent.exists():
            for old in folder.parent.iterdir():
                if time.time() - old.stat().st_mtime > _KEEP_SECONDS:
                    shutil.rmtree(old, ignore_errors=True)
        for left in folder.glob("*/*.tmp.*"):  # of a process that was killed while it wrote
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.unlink()
    return digest.hexdigest()


def is_cold() -> bool:
    """Nothing has been compiled for these sources yet: the first run will take some seconds longer."""
    folder = _folder(config.CACHE_DIR)
    return folder is None or not any(folder.rglob("*.nbi"))


def kernel(function: F) -> F:
    """Compile on first call, without the interpreter lock and without reassociating sums.

    No fastmath: a kernel gives the same bits on every machine that rounds as IEEE 754 says. Kernels that a kernel calls
    are merged into it: an array counts as seven arguments, so that calls would cost more than many of their bodies.

    Kernels copy arrays in loops: for the message of an error that `a[:] = b` might raise, Numba compiles 1.5 s longer.
    """
    compiled: Any = njit(nogil=True, error_model="numpy", forceinline=True, no_cfunc_wrapper=True)(function)
    before = config.CACHE_DIR
    folder = _folder(before)
    if folder is not None:
        config.CACHE_DIR = str(folder)
        try:
            compiled._cache = _CompiledOnce(function)
        except (OSError, RuntimeError):
            pass  # a function of no file, as in an interactive session, is compiled in every start
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
