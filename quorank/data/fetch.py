"""Download of a public collection by its name: fetch, check, unpack, import."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from quorank.data.collections import PublicCollection, public_collection
from quorank.data.importing import import_collection, unpack_archive
from quorank.data.library import ImportedCollection, library_folder
from quorank.errors import BadInput, require

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there and the bytes there will be."""

_BLOCK = 1 << 20
_PATIENCE = 60.0  # seconds without a byte


def fetch_collection(
    name: str, progress: Progress | None = None, report: Callable[[str], None] | None = None
) -> ImportedCollection:
    """Download a public collection into the library and import it under its name."""
    entry = public_collection(name)
    require(
        entry.address,
        "collection.needs-agreement",
        f"{entry.name} cannot be fetched without you ({entry.licence}): get {entry.archive} from "
        f"{entry.page}, unpack it, then run `quorank data import PATH --name {entry.name}`",
    )
    archive = library_folder("downloads") / entry.archive
    _download(entry, archive, progress)
    if report:
        report(f"unpacking {entry.archive}")
    folder = unpack_archive(archive, library_folder("collections") / entry.name)
    imported = import_collection(folder, entry.name, report)
    archive.unlink()
    return imported


def _download(entry: PublicCollection, archive: Path, progress: Progress | None) -> None:
    """Bring the archive; what an earlier attempt left behind is continued where the server can do that."""
    if not archive.exists():
        part = archive.with_name(archive.name + ".part")
        _transfer(entry, part, progress)
        _verify(entry, part)
        part.replace(archive)
    else:
        _verify(entry, archive)


def _transfer(entry: PublicCollection, part: Path, progress: Progress | None) -> None:
    assert entry.address is not None
    have = part.stat().st_size if part.exists() else 0
    if have and have == entry.bytes:
        return
    request = urllib.request.Request(entry.address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            continued = answer.status == 206
            have = have if continued else 0
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length else entry.bytes
            with part.open("ab" if continued else "wb") as file:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    have += len(block)
                    if progress:
                        progress(have, total)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            part.unlink(missing_ok=True)
        raise BadInput(
            "download.refused", f"{entry.address} answers {error.code}; get it from {entry.page}", entry.name
        ) from None
    except (OSError, HTTPException) as error:
        raise BadInput(
            "download.cut-off",
            f"the download from {entry.address} broke off after {have} bytes "
            f"({getattr(error, 'reason', error)}); run the same command again to continue",
            entry.name,
        ) from None
    require(
        total is None or have == total,
        "download.cut-off",
        f"the download ended after {have} of {total} bytes; run the same command again",
        entry.name,
    )


def _verify(entry: PublicCollection, file: Path) -> None:
    size = file.stat().st_size
    wrong = ""
    if entry.bytes is not None and size != entry.bytes:
        wrong = f"has {size} bytes, expected {entry.bytes}"
    elif entry.sha256 is not None:
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        if found != entry.sha256:
            wrong = f"has the SHA-256 sum {found}, expected {entry.sha256}"
    if wrong:
        file.unlink()  # continuing a wrong file would stay wrong
        raise BadInput("file.damaged", f"the archive {wrong}; it was removed, see {entry.page}", entry.name)
