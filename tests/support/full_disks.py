"""A small file system of one's own, which needs no rights of an administrator and is gone with the process that has it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

_MOUNT = 'mount -t tmpfs -o "size=$0" none "$1"'


def run_on_small_disk(script: Path, folder: Path, size: str) -> None:
    """Run `script DISK FOLDER` in a mount namespace where DISK is of this size; it must end without an error."""
    disk = folder / "disk"
    disk.mkdir()
    unshare = ["unshare", "-rm", "sh", "-c"]
    try:
        tried = subprocess.run([*unshare, _MOUNT, size, str(disk)], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    words = [
        *unshare,
        f'{_MOUNT} && exec "$2" "$3" "$1" "$4"',
        size,
        str(disk),
        sys.executable,
        str(script),
        str(folder),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr


def fill(disk: Path) -> Path:
    """Leave not one byte of room; what takes it all."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast
