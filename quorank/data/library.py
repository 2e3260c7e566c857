"""Library of a person's collections: a name for each folder that was imported or fetched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from quorank.data.collections import PUBLIC
from quorank.errors import BadInput, require, suggest
from quorank.files.atomic import expand_home, remove_leftovers, write_whole
from quorank.files.documents import read_json


@dataclass(frozen=True)
class ImportedCollection:
    """Entry of the library: a name, its folder, and what lies there."""

    name: str
    path: str
    folds: int
    features: int
    queries: int  # of all splits of fold 1
    rows: int


def library_home() -> Path:
    """Return where collections and their names are kept: QUORANK_HOME, or the user's data folder."""
    chosen = os.environ.get("QUORANK_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "quorank"


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        sentence = f"cannot be written: {error.strerror}; set QUORANK_HOME"
        raise BadInput("file.unwritable", sentence, f"{library_home()}") from None


def library_folder(name: str) -> Path:
    """Make a folder of the library and return it."""
    folder = library_home() / name
    with _writing():
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def register_collection(entry: ImportedCollection) -> None:
    """Write an entry, in place of an earlier one of its name."""
    with _writing():
        remove_leftovers(library_folder("registry"))
        write_whole(library_folder("registry") / f"{entry.name}.json", json.dumps(asdict(entry), indent=1) + "\n")


def imported_collections() -> dict[str, ImportedCollection]:
    """Return all entries by name."""
    entries = {}
    for file in sorted((library_home() / "registry").glob("*.json")):
        try:
            entry = read_json(file, ImportedCollection)
        except BadInput:
            continue  # a damaged entry must not hide the sound ones; importing again repairs it
        entries[entry.name] = entry
    return entries


def folder_of(source: str) -> Path:
    """Return the folder that a source names: a path first, then a name of the library."""
    path = expand_home(source)
    if os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises for a name that is too long
        return path
    sentence = "is a file; expected the folder that holds train.txt and test.txt"
    require(not os.path.exists(path), "source.not-a-folder", sentence, source)  # noqa: PTH110
    known = imported_collections()
    if source in known:
        path = Path(known[source].path)
        sentence = f"the imported collection {source!r} was at {path}, which is gone; import it again"
        require(path.is_dir(), "source.gone", sentence)
        return path
    sentence = f"is not here yet; run `quorank data fetch {source.lower()}` or `quorank data import PATH`"
    require(source.lower() not in PUBLIC, "source.not-fetched", sentence, source)
    meant, imported = suggest(source, [*known, *PUBLIC]), ", ".join(known) or "none"
    sentence = f"there is no folder and no imported collection {source!r}{meant}; imported: {imported}"
    raise BadInput("source.unknown", sentence)
