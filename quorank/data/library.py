"""Library of a person's collections: a name for each folder that was imported or fetched."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from quorank.data.collections import PUBLIC
from quorank.errors import BadInput, require
from quorank.files import write_whole
from quorank.parts import suggest


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


def library_folder(name: str) -> Path:
    """Make a folder of the library and return it."""
    folder = library_home() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(error) from None
    return folder


def register_collection(entry: ImportedCollection) -> None:
    """Write an entry, in place of an earlier one of its name."""
    try:
        text = json.dumps(asdict(entry), indent=1) + "\n"
        write_whole(library_folder("registry") / f"{entry.name}.json", text)
    except OSError as error:
        raise _unwritable(error) from None


def _unwritable(error: OSError) -> BadInput:
    sentence = f"cannot be written: {error.strerror}; set QUORANK_HOME"
    return BadInput("file.unwritable", sentence, f"{library_home()}")


def imported_collections() -> dict[str, ImportedCollection]:
    """Return all entries by name."""
    entries = {}
    for file in sorted((library_home() / "registry").glob("*.json")):
        try:
            entry = ImportedCollection(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # a damaged entry must not hide the sound ones; importing again repairs it
        entries[entry.name] = entry
    return entries


def folder_of(source: str) -> Path:
    """Return the folder that a source names: a path first, then a name of the library."""
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    require(
        not path.exists(),
        "source.not-a-folder",
        "is a file; expected the folder that holds train.txt and test.txt",
        source,
    )
    known = imported_collections()
    if source in known:
        path = Path(known[source].path)
        require(
            path.is_dir(),
            "source.gone",
            f"the imported collection {source!r} was at {path}, which is gone; import it again",
        )
        return path
    name = source.lower()
    require(
        name not in PUBLIC,
        "source.not-fetched",
        f"is not here yet; run `quorank data fetch {name}` or `quorank data import PATH`",
        source,
    )
    raise BadInput(
        "source.unknown",
        f"there is no folder and no imported collection {source!r}{suggest(source, [*known, *PUBLIC])}; "
        f"imported: {', '.join(known) or 'none'}",
    )
