"""Import of a folder or an archive into the library, under a name that experiments use as their source."""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from quorank.data.layout import FOLDS, count_folds, find_files, has_layout
from quorank.data.library import ImportedCollection, library_folder, register_collection
from quorank.data.source import DataSource, load
from quorank.errors import BadInput, require

ZIP = (".zip",)
TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tar")
RAR = (".rar", ".7z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DEPTH = 3


def import_collection(
    path: Path, name: str | None = None, report: Callable[[str], None] | None = None
) -> ImportedCollection:
    """Give the collection in a folder or an archive a name, after reading every fold of it into the cache."""
    path = Path(path).expanduser()
    require(
        path.exists(), "file.missing", f"there is no {path}; expected a folder or an archive that holds a collection"
    )
    stem = re.sub(r"(\.tar)?\.\w+$", "", path.name) if path.is_file() else path.resolve().name
    known_as = name or stem
    require(
        _NAME.fullmatch(known_as),
        "collection.bad-name",
        f"{known_as!r} cannot name a collection; expected letters, digits, dots, dashes and underscores",
    )
    if path.is_file():
        require(
            path.name.lower().endswith(ZIP + TAR + RAR),
            "archive.unknown",
            "is a file; expected a folder, a .zip or a .tar.gz with a collection",
            f"{path}",
        )
        path = unpack_archive(path, library_folder("collections") / known_as)
    folder = find_collection(path).resolve()
    folds = count_folds(folder)
    first = None
    for fold in range(1, folds + 1):
        if report:
            report(f"reading fold {fold} of {folds}")
        collection = load(DataSource(str(folder), fold=fold))
        first = first or collection
    assert first is not None
    splits = [split for split in (first.train, first.test, first.validation) if split is not None]
    entry = ImportedCollection(
        known_as,
        str(folder),
        folds,
        first.train.n_features,
        sum(split.n_queries for split in splits),
        sum(split.n_rows for split in splits),
    )
    register_collection(entry)
    return entry


def find_collection(folder: Path) -> Path:
    """Return the folder itself, or the one folder inside it, that holds a collection: archives nest."""
    level = [folder]
    for _ in range(_DEPTH):
        found = [entry for entry in level if has_layout(entry)]
        if len(found) > 1:
            listed = ", ".join(str(entry.relative_to(folder)) for entry in found[:FOLDS])
            raise BadInput(
                "folder.several-collections",
                f"holds several collections ({listed}); expected the folder of one of them",
                f"{folder}",
            )
        if found:
            folder = found[0]
            break
        level = [entry for parent in level for entry in sorted(parent.iterdir()) if entry.is_dir()]
    for fold in range(1, count_folds(folder) + 1):
        find_files(folder, fold)
    return folder


def unpack_archive(archive: Path, folder: Path) -> Path:
    """Unpack into `folder`, which is replaced; it appears when it is complete, or not at all.

    No member may land outside of it, and only ordinary files are unpacked.
    """
    name = archive.name.lower()
    require(
        not name.endswith(RAR),
        "archive.unsupported",
        f"is a {archive.suffix} archive, which cannot be unpacked here; unpack it with another "
        "program, then run `quorank data import FOLDER`",
        f"{archive}",
    )
    temporary = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for member, content in _zip_members(archive) if name.endswith(ZIP) else _tar_members(archive):
            target = temporary / _safe_path(member, archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise BadInput("file.damaged", f"is not a sound archive ({error}); fetch it again", f"{archive}") from None
    except OSError as error:
        raise BadInput(
            "archive.not-unpacked", f"cannot be unpacked into {folder}: {error.strerror or error}", f"{archive}"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            if not member.is_dir():
                kind = member.external_attr >> 28  # the file type of a Unix mode; 0 where none is given
                if kind not in (0, 8):
                    raise _not_ordinary(archive, member.filename)
                yield member.filename, packed.open(member)


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as packed:
        for member in packed:
            if not member.isdir():
                content = packed.extractfile(member) if member.isreg() else None
                if content is None:
                    raise _not_ordinary(archive, member.name)
                yield member.name, content


def _not_ordinary(archive: Path, member: str) -> BadInput:
    return BadInput("archive.unsafe-member", f"holds {member}, which is not an ordinary file", f"{archive}")


def _safe_path(member: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(member.replace("\\", "/"))
    inside = not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]
    require(
        inside,
        "archive.unsafe-member",
        f"holds {member}, which would land outside its folder; nothing was unpacked",
        f"{archive}",
    )
    return path
