"""Layouts of a folder of LETOR files: which files make up the splits of a fold.

Four layouts are known: train.txt, vali.txt and test.txt; five parts S1.txt to S5.txt or fold1.txt to fold5.txt that
take turns; folders Fold1 to Fold5 with train, vali and test each; and Yahoo's set1.train.txt, set2.train.txt and so on.
Each file may be gzipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from quorank.errors import BadInput, printable, require, require_range

FOLDS = 5
VALIDATION = ("vali", "valid", "validation")
ENDINGS = (".txt", ".txt.gz")
_FOLD = re.compile(r"fold\d+")

SplitFiles = dict[str, tuple[Path, ...]]  # files of each split in reading order; validation may have none


def has_layout(folder: Path) -> bool:
    """Return whether a folder is laid out like a collection, complete or not."""
    entries = _entries(folder)
    parts = [f"{part}{i}" for part in ("s", "fold") for i in range(1, FOLDS + 1)]
    return (
        count_folds(folder) < FOLDS
        or _first(entries, parts) is not None
        or any(_FOLD.fullmatch(name) and entry.is_dir() for name, entry in entries.items())
    )


def count_folds(folder: Path) -> int:
    """Return the number of folds in a folder's layout, whose files `find_files` checks."""
    entries = _entries(folder)
    if _first(entries, ("train",)):
        return 1
    if any(_first(entries, (f"set{i}.train",)) for i in (1, 2)):
        return 2
    return FOLDS


def find_files(folder: Path, fold: int) -> SplitFiles:
    """Return the files of a fold in any of the known layouts; BadInput names a missing one."""
    entries = _entries(folder)
    folds = count_folds(folder)
    if folds < FOLDS:
        has = "one fold" if folds == 1 else f"{folds} folds"
        require(1 <= fold <= folds, "fold.missing", f"has {has}, got fold = {fold}", f"{folder}")
        return _split_files(folder, entries, "" if folds == 1 else f"set{fold}.")
    require_range("fold", fold, least=1, most=FOLDS)
    for part in ("S", "fold"):
        if _first(entries, [f"{part.lower()}{i}" for i in range(1, FOLDS + 1)]):
            parts = [_needed(folder, entries, f"{part}{i}") for i in range(1, FOLDS + 1)]
            # fold i trains on parts i, i+1, i+2, validates on i+3 and tests on i+4, counted round (LETOR 4.0)
            turned = parts[fold - 1 :] + parts[: fold - 1]
            return {"train": tuple(turned[:3]), "validation": (turned[3],), "test": (turned[4],)}
    present = sorted(int(name[4:]) for name in entries if _FOLD.fullmatch(name))
    if present:
        listed = ", ".join(f"Fold{i}" for i in present)
        require(f"fold{fold}" in entries, "fold.missing", f"has no Fold{fold}; it has {listed}", f"{folder}")
        chosen = entries[f"fold{fold}"]
        return _split_files(chosen, _entries(chosen))
    expected = "train.txt and test.txt (or .txt.gz), folders Fold1 to Fold5, or parts S1.txt to S5.txt"
    sentence = f"holds no collection: expected {expected}, found {_listing(entries)}"
    raise BadInput("folder.no-collection", sentence, f"{folder}")


def find_file(folder: Path, name: str) -> Path:
    """Return the file of this name that a directory has, plain or gzipped."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise BadInput("file.missing", f"has no {name} or {name}.gz", f"{folder}")


def _entries(folder: Path) -> dict[str, Path]:
    try:
        return {entry.name.lower(): entry for entry in sorted(folder.iterdir())}
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read as a folder: {error.strerror}", f"{folder}") from None


def _listing(entries: dict[str, Path]) -> str:
    names = sorted(printable(entry.name[:60]) for entry in entries.values())
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "nothing"


def _first(entries: dict[str, Path], stems: Sequence[str]) -> Path | None:
    names = (stem + ending for stem in stems for ending in ENDINGS)
    return next((entries[name] for name in names if name in entries), None)


def _needed(folder: Path, entries: dict[str, Path], name: str) -> Path:
    found = _first(entries, (name.lower(),))
    if found is None:
        sentence = f"has no {name}.txt or {name}.txt.gz; it holds {_listing(entries)}"
        raise BadInput("file.missing", sentence, f"{folder}")
    return found


def _split_files(folder: Path, entries: dict[str, Path], prefix: str = "") -> SplitFiles:
    train, test = (_needed(folder, entries, prefix + split) for split in ("train", "test"))
    validation = _first(entries, [prefix + stem for stem in VALIDATION])
    return {"train": (train,), "validation": (validation,) if validation else (), "test": (test,)}
