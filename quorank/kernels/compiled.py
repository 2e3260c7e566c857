"""Kernels: functions that Numba compiles at their first call, or that run as plain Python with the same bits.

Compiled functions are cached on disk. Numba recompiles a function when its file changes, but not when a function that it
calls changes in another file; the cache directory is therefore named after a digest of all sources with kernels.

Cached code runs with the rights of its reader. A directory that other users can write to is therefore replaced by one below
the system's temporary directory, or by no cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import RLock, local
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
_KEEP_SECONDS, _LEFTOVER_SECONDS = 30 * 24 * 3600.0, 600.0


class _Mode(local):
    """Execution mode of this thread."""

    interpreted = False


_mode, _mutex = _Mode(), RLock()


@contextmanager
def interpreted(enabled: bool = True) -> Iterator[None]:
    """Run the block's kernels as plain Python in this thread: equal bits without loading Numba, some 300 times slower."""
    import numpy as np

    before, _mode.interpreted = _mode.interpreted, enabled
    try:
        with np.errstate(all="ignore") if enabled else contextlib.nullcontext():
            yield
    finally:
        _mode.interpreted = before


class Kernel:
    """Function that is compiled at its first call; `py_func` is its Python source."""

    def __init__(self, function: Callable[..., Any], *, allocates: bool = True, cached: bool = True) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self.allocates, self.cached = function, allocates, cached

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args) if _mode.interpreted else self.dispatcher(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name != "dispatcher":
            return getattr(self.dispatcher, name)
        with _mutex:
            if "dispatcher" not in self.__dict__:
                from quorank.kernels.compiling import compile_with_numba

                folder_of = cache_folder if self.cached else lambda _: None
                self.__dict__["dispatcher"] = compile_with_numba(self.py_func, folder_of, allocates=self.allocates)
        return self.__dict__["dispatcher"]

    @property
    def _numba_type_(self) -> Any:
        """Type of this kernel for the kernels that call it."""
        return self.dispatcher._numba_type_

    def __reduce__(self) -> str | tuple[Any, ...]:
        if cells := self.py_func.__closure__:  # Numba's cache tells kernels of one factory apart by these bytes
            return tuple, ((self.__qualname__, *(cell.cell_contents for cell in cells)),)
        return str(self.__qualname__)


class Intrinsic:
    """Function that compiled kernels call as registered LLVM instructions or overloads; plain Python elsewhere."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.plain = function
        self.define: Callable[[], Any] | None = None

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)

    def instructions(self, returns: str) -> Callable[[Callable[[Any], Any]], None]:
        """Register `emit(emitter) -> value` (`compiling.Emitter`), whose result has the Numba type named `returns`."""

        def register(emit: Callable[[Any], Any]) -> None:
            def define() -> Any:
                from quorank.kernels.compiling import define_instructions

                return define_instructions(self.plain, emit, returns)

            self.define = define

        return register

    def overload(self, choose: Callable[..., Any]) -> None:
        """Register the function that returns, for the Numba types of arguments, the function to compile."""

        def define() -> Any:
            from quorank.kernels.compiling import define_overload

            return define_overload(self.plain, choose)

        self.define = define

    @functools.cached_property
    def _numba_type_(self) -> Any:
        assert self.define is not None
        return self.define()


def kernel(function: F) -> F:
    """Make a kernel of a function or of a learner's method: Numba compiles it at its first call, and caches it on disk.

    A kernel runs without the interpreter lock, and adds numbers in the written order, so that results have the same bits on
    every machine.

    Args:
        function: Function in the subset of Python and NumPy that Numba compiles.

    Returns:
        The kernel; its attribute `py_func` is the function itself.

    >>> @kernel
    ... def square(x: float) -> float:
    ...     return x * x
    >>> with interpreted():
    ...     square(3.0)
    9.0
    """
    return cast("F", Kernel(function))


def fixed_memory_kernel(function: F) -> F:
    """Make a kernel without reference counts, for functions that allocate no array.

    Counting the references of arrays in named tuples takes half of the time of the client loop.
    """
    return cast("F", Kernel(function, allocates=False))


def cache_root() -> Path:
    """Return the directory QUORANK_CACHE, by default that of the operating system for a user's caches."""
    chosen = os.environ.get("QUORANK_CACHE")
    if not chosen:
        from platformdirs import user_cache_path

        return user_cache_path("quorank", appauthor=False)
    with contextlib.suppress(RuntimeError):  # an account without a home
        return Path(chosen).expanduser()
    return Path(chosen)


@cache
def cache_folder(chosen: str) -> Path | None:
    """Return the directory of compiled functions, `chosen` or the default; None if neither is safe to use."""
    sources = Path("compiled") / _digest()
    wanted = Path(chosen) if chosen else cache_root() / sources
    reason = unsafe_reason(wanted)
    if not reason:
        return wanted.resolve()
    logger = logging.getLogger("quorank")
    with contextlib.suppress(OSError):
        own = Path(tempfile.gettempdir()).resolve() / f"quorank-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
        if not own.is_symlink() and not unsafe_reason(own) and not unsafe_reason(own / sources):
            logger.warning("quorank: %s %s; compiled functions are kept in %s", wanted, reason, own)
            return own / sources
    logger.warning("quorank: %s %s; every start compiles, set QUORANK_CACHE to a folder of your own", wanted, reason)
    return None


def unsafe_reason(folder: Path) -> str:
    """Create a directory for compiled code; return why it must not be used, empty if it is safe."""
    try:
        _make_private(folder)
        for place in (folder.resolve(), *folder.resolve().parents):
            if fault := _foreign_access(place.stat()):
                return fault if place == folder.resolve() else f"lies in {place}, which {fault}"
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except (OSError, RuntimeError) as error:
        return f"cannot be written ({getattr(error, 'strerror', None) or type(error).__name__})"


def _make_private(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700."""
    for place in reversed([folder, *folder.parents]):
        with contextlib.suppress(FileExistsError):
            if not place.exists():
                place.mkdir(mode=0o700)


def _foreign_access(status: os.stat_result) -> str:
    """Return why other users may replace files in a directory; empty if they may not, as under the sticky bit."""
    if not stat.S_ISDIR(status.st_mode):
        return "is no folder"
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    if status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if status.st_mode & stat.S_IWGRP and status.st_gid != 0 and not _own_group(status.st_gid):
        return "can be written by its group"
    return ""


def _own_group(group: int) -> bool:
    """Return whether a group has this user as its only member, as user-private groups do."""
    import grp
    import pwd

    try:
        entry, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and user.pw_gid == group and set(entry.gr_mem) <= {user.pw_name}


@cache
def _digest() -> str:
    """Return the digest of all sources with kernels; remove cache folders that were not used for 30 days."""
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if source.parent == Path(__file__).parent or b"kernel\n" in text:
            digest.update(source.relative_to(package).as_posix().encode())
            digest.update(text)
    folder = cache_root() / "compiled" / digest.hexdigest()
    with contextlib.suppress(OSError):
        if not folder.exists() and folder.parent.exists():
            for old in folder.parent.iterdir():
                if time.time() - old.stat().st_mtime > _KEEP_SECONDS:
                    shutil.rmtree(old, ignore_errors=True)
        for left in folder.glob("*/*.tmp.*"):  # of a process that was killed while it wrote
            if time.time() - left.stat().st_mtime > _LEFTOVER_SECONDS:
                left.unlink()
    return digest.hexdigest()


def is_cold() -> bool:
    """Return whether no kernel of these sources is cached yet, so that the first run takes some seconds longer."""
    folder = cache_folder(os.environ.get("NUMBA_CACHE_DIR", ""))
    return folder is None or not any(folder.rglob("*.nbi"))
