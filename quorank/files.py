"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from quorank.errors import BadInput


def write_whole(path: Path | str, content: bytes) -> Path:
    """Write beside the target and rename: a reader, or a crash, never meets half a file."""
    target = Path(path)
    if not target.parent.is_dir():
        raise BadInput(f"{target}: the directory {target.parent} does not exist")
    if target.is_dir():
        raise BadInput(f"{target}: this is a directory; expected the name of a file")
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise BadInput(f"{target}: cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)  # mkstemp's files are for one person only; reports are for sharing
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target
