"""Import of a folder, an archive or a public collection into the library, under a name that experiments use as source."""

from __future__ import annotations

import hashlib
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from quorank.data.layout import FOLDS, count_folds, find_files, has_layout
from quorank.data.library import (
    ImportedCollection,
    PublicCollection,
    library_folder,
    public_collection,
    register_collection,
)
from quorank.data.source import DataSource, load
from quorank.errors import BadInput, brief, require
from quorank.files.archives import archive_members
from quorank.files.atomic import expand_home

Report = Callable[[str], None]  # receives a line about the progress
Progress = Callable[[int, int | None], None]  # receives the bytes downloaded and the total, if known

ZIP = (".zip",)
TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
RAR = (".rar", ".7z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEPTH = 3
_BLOCK = 1 << 20
_PATIENCE = 60.0  # seconds without a byte


def import_collection(path: Path, name: str | None = None, report: Report = lambda _: None) -> ImportedCollection:
    """Give the collection in a folder or an archive a name, after reading every fold of it into the cache."""
    path = expand_home(path)
    sentence = f"there is no {path}; expected a folder or an archive that holds a collection"
    require(path.exists(), "file.missing", sentence)
    known_as = collection_name(path, name)
    if path.is_file():
        sentence = "is a file; expected a folder, a .zip or a .tar.gz with a collection"
        require(path.name.lower().endswith(ZIP + TAR + RAR), "archive.unknown", sentence, f"{path}")
        path = unpack_archive(path, library_folder("collections") / known_as)
    folder = find_collection(path).resolve()
    folds = count_folds(folder)
    for fold in range(1, folds + 1):
        report(f"reading fold {fold} of {folds}")
        collection = load(DataSource(str(folder), fold=fold))
        if fold == 1:
            first = collection
    splits = first.splits.values()
    queries, rows = sum(split.n_queries for split in splits), sum(split.n_rows for split in splits)
    entry = ImportedCollection(known_as, str(folder), folds, first.train.n_features, queries, rows)
    register_collection(entry)
    return entry


def collection_name(path: Path, name: str | None = None) -> str:
    """Return the name that the collection of a folder or an archive gets, if it can be one."""
    known_as = name or (re.sub(r"(\.tar)?\.\w+$", "", path.name) if path.is_file() else path.resolve().name)
    sentence = f"{brief(known_as)} cannot name a collection; expected letters, digits, dots, dashes, underscores"
    require(_NAME.fullmatch(known_as), "collection.bad-name", sentence)
    return known_as


def find_collection(folder: Path) -> Path:
    """Return the folder itself, or the one folder inside it, that holds a collection: archives nest."""
    level = [folder]
    for _ in range(_DEPTH):
        found = [entry for entry in level if has_layout(entry)]
        if len(found) > 1:
            listed = ", ".join(str(entry.relative_to(folder)) for entry in found[:FOLDS])
            sentence = f"holds several collections ({listed}); expected the folder of one of them"
            raise BadInput("folder.several-collections", sentence, f"{folder}")
        if found:
            folder = found[0]
            break
        level = [entry for parent in level for entry in sorted(parent.iterdir()) if entry.is_dir()]
    for fold in range(1, count_folds(folder) + 1):
        find_files(folder, fold)
    return folder


def unpack_archive(archive: Path, folder: Path) -> Path:
    """Unpack the regular files of an archive, within the limits of `files.untrusted`; `folder` is replaced as a whole."""
    name = archive.name.lower()
    sentence = f"is a {archive.suffix} archive, which cannot be unpacked here; unpack it with another program"
    remedy = "then run `quorank data import FOLDER`"
    require(not name.endswith(RAR), "archive.unsupported", f"{sentence}, {remedy}", f"{archive}")
    temporary = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for member, content in archive_members(archive):
            target = temporary / member
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                shutil.copyfileobj(content, file, _BLOCK)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        sentence = f"cannot be unpacked into {folder}: {error.strerror or error}"
        raise BadInput("archive.not-unpacked", sentence, f"{archive}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def fetch_collection(
    name: str, progress: Progress = lambda *_: None, report: Report = lambda _: None
) -> ImportedCollection:
    """Download a public collection into the library, check it, unpack it and import it under its name."""
    entry = public_collection(name)
    by_hand = f"get {entry.archive} from {entry.page}, unpack it, run `quorank data import PATH --name {entry.name}`"
    sentence = f"{entry.name} cannot be fetched without you ({entry.licence}): {by_hand}"
    require(entry.address, "collection.needs-agreement", sentence)
    archive = library_folder("downloads") / entry.archive
    if archive.exists():
        _verify(entry, archive)
    else:
        part = archive.with_name(archive.name + ".part")
        _transfer(entry, part, progress)
        _verify(entry, part)
        part.replace(archive)
    report(f"unpacking {entry.archive}")
    folder = unpack_archive(archive, library_folder("collections") / entry.name)
    imported = import_collection(folder, entry.name, report)
    archive.unlink()
    return imported


def _transfer(entry: PublicCollection, part: Path, progress: Progress) -> None:
    """Download the archive; continue an interrupted download if the server supports it."""
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
            total = have + int(length) if length and length.isdigit() else entry.bytes
            with part.open("ab" if continued else "wb") as file:
                while block := answer.read(_BLOCK):
                    file.write(block)
                    have += len(block)
                    progress(have, total)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            part.unlink(missing_ok=True)
        sentence = f"{entry.address} answers {error.code}; get it from {entry.page}"
        raise BadInput("download.refused", sentence, entry.name) from None
    except (OSError, HTTPException) as error:
        why = f"the download from {entry.address} broke off after {have} bytes ({getattr(error, 'reason', error)})"
        raise BadInput("download.cut-off", f"{why}; run the same command again to continue", entry.name) from None
    sentence = f"the download ended after {have} of {total} bytes; run the same command again"
    require(total is None or have == total, "download.cut-off", sentence, entry.name)


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
