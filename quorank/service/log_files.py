"""Logs that do not grow without end: at a certain size the file is put aside, and the oldest one goes."""

from __future__ import annotations

import os
from pathlib import Path

LONGEST = 8 << 20
"""Bytes of a log before the next one begins."""

KEPT = 3
"""Older logs that are kept: NAME.1 is the youngest."""


def turn_over(path: Path, longest: int = LONGEST, kept: int = KEPT) -> bool:
    """Begin a new log where this process prints into the file and it is long enough; whether it did.

    Where what is printed goes somewhere else, to a terminal or to systemd's journal, nothing is done.
    """
    try:
        own, found = os.fstat(2), path.stat()
        if (own.st_dev, own.st_ino) != (found.st_dev, found.st_ino) or found.st_size <= longest:
            return False
        for number in range(kept - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # a full disk is no reason to end
        return False
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)
    return True
