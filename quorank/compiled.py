"""Compiled functions, cached on disk so that a second start does not compile.

Numba invalidates a cached function when its own file changes, but not when a function that it calls changes in
another file. The cache folder is therefore named after a digest of all sources that hold compiled functions: changed
code can never run an old kernel.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit

from quorank.files import cache_root

F = TypeVar("F", bound=Callable[..., Any])
_KEEP_SECONDS = 30 * 24 * 3600.0


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
    """
    before = config.CACHE_DIR
    config.CACHE_DIR = before or _folder()
    try:
        compiled: F = njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function)
    finally:
        config.CACHE_DIR = before
    return compiled
