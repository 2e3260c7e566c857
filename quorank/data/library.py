"""The collections a person has: a name for each folder that was imported or fetched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from quorank.data.source import FOLDS, DataSource, count_folds, find_files, has_layout, load
from quorank.errors import BadInput, require
from quorank.files import write_whole

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DEPTH = 3


@dataclass(frozen=True)
class Imported:
    """An entry of the registry."""

    name: str
    path: str
    folds: int
    features: int
    queries: int  # of all splits of fold 1
    rows: int


def home() -> Path:
    """Where collections and their names are kept: QUORANK_HOME, or the user's data folder."""
    chosen = os.environ.get("QUORANK_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "quorank"


def imported() -> dict[str, Imported]:
    """All names that stand for a collection."""
    entries = {}
    for file in sorted((home() / "registry").glob("*.json")):
        try:
            entry = Imported(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # a damaged entry must not hide the sound ones; importing again repairs it
        entries[entry.name] = entry
    return entries


def import_path(path: Path, name: str | None = None, report: Callable[[str], None] | None = None) -> Imported:
    """Give the collection in a folder or an archive a name, after reading every fold of it into the cache."""
    from quorank.data.archive import is_archive, unpack

    path = Path(path).expanduser()
    require(path.exists(), f"there is no {path}; expected a folder or an archive that holds a collection")
    known_as = (
        name or re.sub(r"(\.tar)?\.\w+$", "", path.name) if path.is_file() else name or path.resolve().name
    )
    require(
        _NAME.fullmatch(known_as),
        f"{known_as!r} cannot name a collection; expected letters, digits, dots, dashes and underscores",
    )
    if path.is_file():
        require(
            is_archive(path), f"{path} is a file; expected a folder, a .zip or a .tar.gz with a collection"
        )
        path = unpack(path, home() / "collections" / known_as)
    folder = locate(path).resolve()
    folds = count_folds(folder)
    first = None
    for fold in range(1, folds + 1):
        if report:
            report(f"reading fold {fold} of {folds}")
        collection = load(DataSource(str(folder), fold=fold))
        first = first or collection
    assert first is not None
    splits = [split for split in (first.train, first.test, first.validation) if split is not None]
    entry = Imported(
        known_as,
        str(folder),
        folds,
        first.train.n_features,
        sum(split.n_queries for split in splits),
        sum(split.n_rows for split in splits),
    )
    try:
        (home() / "registry").mkdir(parents=True, exist_ok=True)
        write_whole(home() / "registry" / f"{known_as}.json", json.dumps(asdict(entry), indent=1) + "\n")
    except OSError as error:
        raise BadInput(f"{home()} cannot be written: {error.strerror}; set QUORANK_HOME") from None
    return entry


def locate(folder: Path) -> Path:
    """The folder itself, or the one folder inside it, that holds a collection: archives nest."""
    level = [folder]
    for _ in range(_DEPTH):
        found = [entry for entry in level if has_layout(entry)]
        if len(found) > 1:
            listed = ", ".join(str(entry.relative_to(folder)) for entry in found[:FOLDS])
            raise BadInput(
                f"{folder} holds several collections ({listed}); expected the folder of one of them"
            )
        if found:
            folder = found[0]
            break
        level = [entry for parent in level for entry in sorted(parent.iterdir()) if entry.is_dir()]
    for fold in range(1, count_folds(folder) + 1):
        find_files(folder, fold)
    return folder
