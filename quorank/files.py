"""Files that appear complete or not at all, and where Quorank keeps what it can make again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from quorank.errors import BadInput


def cache_root() -> Path:
    """QUORANK_CACHE, else the user's cache folder."""
    chosen = os.environ.get("QUORANK_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quorank"


def atomically(file: Path, save: Callable[[Path], object], *, durable: bool = False) -> None:
    """Let `save` fill a temporary file beside `file` that takes its place when it is complete.

    `durable`: when this returns, the file is on disk under its name, also if the power fails now.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        save(temporary)
        if durable:
            on_disk(temporary)
        temporary.replace(file)
        if durable:
            on_disk(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def on_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path | str, content: bytes | str, *, durable: bool = False) -> Path:
    """Write beside the target and rename: a reader, or a crash, never meets half a file.

    What was promised to somebody is written `durable`, which waits for the disk twice; what can be made again is not.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise BadInput("file.no-directory", f"the directory {target.parent} does not exist", str(target))
    if target.is_dir():
        raise BadInput("file.is-a-directory", "this is a directory; expected the name of a file", str(target))
    encoded = content if isinstance(content, bytes) else content.encode()
    try:
        atomically(target, lambda temporary: temporary.write_bytes(encoded), durable=durable)
    except PermissionError as error:
        raise BadInput("file.not-writable", f"cannot be written ({error.strerror})", str(target)) from None
    except OSError as error:  # a full disk does not say for which file
        raise OSError(error.errno, error.strerror or str(error), str(target)) from None
    return target
