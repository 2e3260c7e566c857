"""Archives from elsewhere, unpacked so that nothing lands outside the folder meant for it."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from quorank.errors import BadInput, require

ZIP = (".zip",)
TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tar")
RAR = (".rar", ".7z")


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(ZIP + TAR + RAR)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack into `folder`, which is replaced; it appears when it is complete, or not at all."""
    name = archive.name.lower()
    require(
        not name.endswith(RAR),
        f"{archive} is a {archive.suffix} archive, which cannot be unpacked here; unpack it with another "
        "program, then run `quorank data import FOLDER`",
    )
    temporary = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for member, content in _zip(archive) if name.endswith(ZIP) else _tar(archive):
            target = temporary / _safe(member, archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise BadInput(f"{archive} is not a sound archive ({error}); fetch it again") from None
    except OSError as error:
        raise BadInput(f"{archive} cannot be unpacked into {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _zip(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            if not member.is_dir():
                kind = member.external_attr >> 28  # the file type of a Unix mode; 0 where none is given
                require(kind in (0, 8), f"{archive} holds {member.filename}, which is not an ordinary file")
                yield member.filename, packed.open(member)


def _tar(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive) as packed:
        for member in packed:
            if not member.isdir():
                content = packed.extractfile(member) if member.isreg() else None
                if content is None:
                    raise BadInput(f"{archive} holds {member.name}, which is not an ordinary file")
                yield member.name, content


def _safe(member: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(member.replace("\\", "/"))
    inside = not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]
    require(inside, f"{archive} holds {member}, which would land outside its folder; nothing was unpacked")
    return path
