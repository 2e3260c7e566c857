"""Kernels: functions that Numba compiles at their first call, or that run as plain Python where so little is to be done
that loading Numba would cost more; both give the same bits.

Compiled functions are cached on disk so that a second start does not compile.

Numba invalidates a cached function when its own file changes, but not when a function that it calls changes in
another file. The cache folder is therefore named after a digest of all sources that hold compiled functions: changed
code can never run an old kernel. Of processes that start together, one compiles a function and the others wait for it.

Whoever may write to the cache can run code as its reader. A folder that others may write to, or that belongs to somebody
else, is therefore not used: then, and where no folder can be written at all, a folder of the user's own below the system's
temporary one takes its place, or nothing is kept and every start compiles.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
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
_KEEP_SECONDS, _LEFT_SECONDS = 30 * 24 * 3600.0, 600.0


class _Mode(local):
    """Of this thread."""

    plain = False


_mode, _mutex = _Mode(), RLock()


@contextmanager
def plainly(wanted: bool = True) -> Iterator[None]:
    """Run kernels as plain Python in this thread: a few hundred times slower, without loading Numba, the same bits."""
    import numpy as np

    before, _mode.plain = _mode.plain, wanted
    try:
        with np.errstate(all="ignore") if wanted else contextlib.nullcontext():
            yield
    finally:
        _mode.plain = before


class Kernel:
    """A function that is compiled when it is first called; `py_func` is its source."""

    def __init__(self, function: Callable[..., Any], *, allocates: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self.allocates = function, allocates

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args) if _mode.plain else self.dispatcher(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name != "dispatcher":
            return getattr(self.dispatcher, name)
        with _mutex:
            if "dispatcher" not in self.__dict__:
                from quorank.kernels.compiling import compiled_by_numba

                self.__dict__["dispatcher"] = compiled_by_numba(self.py_func, cache_folder, allocates=self.allocates)
        return self.__dict__["dispatcher"]

    @property
    def _numba_type_(self) -> Any:
        """What another kernel that calls this one takes it for."""
        return self.dispatcher._numba_type_

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self.__module__, self.__qualname__)


class VectorCode:
    """A function that kernels call: in Python it is what it says, compiled what the module `home` has under its name."""

    def __init__(self, function: Callable[..., Any], home: str) -> None:
        functools.update_wrapper(self, function)
        self.plain, self.home = function, home

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args)

    @property
    def _numba_type_(self) -> Any:
        from quorank.kernels.compiling import type_of

        return type_of(getattr(importlib.import_module(self.home), self.plain.__name__))


def kernel(function: F) -> F:
    """Compile on first call, without the interpreter lock and without reassociating sums."""
    return cast("F", Kernel(function, allocates=True))


def fixed_memory_kernel(function: F) -> F:
    """Compile as `kernel` does, without reference counts: for kernels that allocate no array.

    Counting the references of arrays in named tuples took half of the time of the client loop.
    """
    return cast("F", Kernel(function, allocates=False))


def vector_code(home: str) -> Callable[[F], F]:
    """Let kernels use, compiled, what another module has under this function's name: an intrinsic, or an overload."""

    def of(function: F) -> F:
        return cast("F", VectorCode(function, home))

    return of


def _found(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def cache_root() -> Path:
    """QUORANK_CACHE, else the user's cache folder."""
    chosen = os.environ.get("QUORANK_CACHE")
    if chosen:
        return _without_home(chosen)
    return _without_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "quorank"


def _without_home(text: str) -> Path:
    """A path with ~ replaced, where this process has a home at all."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # an account without a home
        return Path(text)


@cache
def cache_folder(chosen: str) -> Path | None:
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
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if any(mark in text for mark in (b"kernel\n", b"@intrinsic", b"@overload")):
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
    folder = cache_folder(os.environ.get("NUMBA_CACHE_DIR", ""))
    return folder is None or not any(folder.rglob("*.nbi"))
