"""What must survive a power cut is on disk, content first and then the name, before anybody is told that it is kept."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from quorank.files.atomic import write_whole
from quorank.files.npz import archive_bytes
from quorank.protocol.certificates import write_private

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(monkeypatch):
    """A disk that forgets what it was not waited for: (inode → its size when it was synced), (folder → names in it)."""
    kept: dict[int, int] = {}
    names: dict[str, set[str]] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        found = os.fstat(descriptor)
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            folder = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
            names[folder] = set(os.listdir(folder))  # noqa: PTH208
        else:
            kept[found.st_ino] = found.st_size

    monkeypatch.setattr(os, "fsync", fsync)

    def survives(path: Path) -> bool:
        """Whether the file would be there, whole and under its name, after a power cut now."""
        found = path.stat()
        whole = kept.get(found.st_ino) == found.st_size
        return whole and path.name in names.get(str(path.parent.resolve()), set())

    survives.kept = kept
    return survives


def checkpoint(path: Path) -> None:
    write_whole(path, archive_bytes({"theta": np.arange(5.0)}), durable=True, private=True)


def secret(path: Path) -> None:
    write_private(path, b"a private key")


def note(path: Path) -> None:
    write_whole(path, "a note", durable=True)


@pytest.mark.parametrize("write", [checkpoint, secret, note])
def test_it_survives(write, disk, tmp_path) -> None:
    write(tmp_path / "file")
    assert disk(tmp_path / "file")
    write(tmp_path / "file")  # in the place of the old one, or behind its end
    assert disk(tmp_path / "file")


def test_the_content_is_on_disk_before_the_name_is(monkeypatch, tmp_path) -> None:
    """A rename that reaches the disk first would leave an empty file in the place of the old one."""
    order, real_sync, real_replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: (order.append("sync"), real_sync(number)))
    monkeypatch.setattr(Path, "replace", lambda path, target: (order.append("rename"), real_replace(path, target)))
    write_whole(tmp_path / "file", "content", durable=True)
    assert order == ["sync", "rename", "sync"]
