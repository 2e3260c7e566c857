"""Manifest of a folder: the SHA-256 of each file that belongs together, written when all of them are there.

A file that was damaged, exchanged for another one or added later is noticed before it is believed. Against somebody who may
write to the folder it protects nothing: such a person can write the manifest too. Folders of earlier versions have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from quorank.errors import BadInput
from quorank.files.atomic import write_whole
from quorank.files.documents import Each, Table, Text, read_json

MANIFEST, FORMAT = "manifest.json", "quorank-manifest/1"
_SHAPE = Table({"format": Text((FORMAT,)), "files": Each(Text(longest=64))})


def write_manifest(folder: Path, digests: Mapping[str, str]) -> None:
    """Write the manifest of files, given by their names in the folder and their digests."""
    content = {"format": FORMAT, "files": dict(sorted(digests.items()))}
    write_whole(folder / MANIFEST, json.dumps(content, indent=1) + "\n")


def read_manifest(folder: Path) -> dict[str, str] | None:
    """Read the digests of a folder's files; None where it has no manifest."""
    path = folder / MANIFEST
    if not (path.exists() or path.is_symlink()):
        return None
    files: dict[str, str] = read_json(path, _SHAPE)["files"]
    return files


def digest_of(digests: Mapping[str, str] | None, folder: Path, name: str) -> str | None:
    """Return the digest that a file must have, None where the folder has no manifest; refuse a file that is not in it."""
    if digests is None:
        return None
    if name not in digests:
        sentence = "is not in the manifest of its folder: it came from elsewhere; remove it"
        raise BadInput("file.damaged", sentence, str(folder / name))
    return digests[name]
