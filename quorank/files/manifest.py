"""Manifest of a directory: the SHA-256 of each of its files, written last.

It detects damaged, exchanged and added files, and does not protect against somebody who may write to the directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from quorank.errors import BadInput
from quorank.files.atomic import write_whole
from quorank.files.codec import Length
from quorank.files.documents import json_bytes, read_json

MANIFEST, FORMAT = "manifest.json", "quorank-manifest/1"


class _Manifest(TypedDict):
    format: Literal["quorank-manifest/1"]
    files: dict[str, Annotated[str, Length(64, 64)]]


def write_manifest(folder: Path, digests: Mapping[str, str]) -> None:
    """Write the manifest of files from their digests by name."""
    content = {"format": FORMAT, "files": dict(sorted(digests.items()))}
    write_whole(folder / MANIFEST, json_bytes(content))


def read_manifest(folder: Path) -> dict[str, str] | None:
    """Return the digests of a directory's files by name; None without a manifest."""
    path = folder / MANIFEST
    if not (path.exists() or path.is_symlink()):
        return None
    files: dict[str, str] = read_json(path, _Manifest)["files"]
    return files


def digest_of(digests: Mapping[str, str] | None, folder: Path, name: str) -> str | None:
    """Return the expected digest of a file; None without a manifest. A file that is not in the manifest is rejected."""
    if digests is None:
        return None
    if name not in digests:
        sentence = "is not in the manifest of its folder: it came from elsewhere; remove it"
        raise BadInput("file.damaged", sentence, str(folder / name))
    return digests[name]
