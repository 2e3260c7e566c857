"""Where ranking data comes from: a generated collection, a folder of LETOR files, or an imported name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from quorank.data.ranking import LANES, Collection, RankingData
from quorank.data.strings import concatenate
from quorank.errors import BadInput, require
from quorank.parts import suggest

FOLDS = 5
SPLITS = {
    "train": ("train",),
    "validation": ("vali", "valid", "validation"),
    "test": ("test",),
}
ENDINGS = (".txt", ".txt.gz")
_FOLD = re.compile(r"fold\d+")


INTENTS = "intents:"
"""What stands before a folder whose documents are judged for each intent of a query."""


@dataclass(frozen=True)
class DataSource:
    """The collection of an experiment."""

    kind: ClassVar[str] = "data"
    # "synthetic:…", a folder, an imported name, or "intents:" and a folder with judgements per intent
    source: str = "synthetic:mq2007"
    fold: int = 1  # of a collection in five folds; 0 for intents that are tested on their training queries
    normalize: Literal["query", "none"] = "query"
    queries: int | None = None  # training queries of generated data; None is the collection's own number
    seed: int = 1  # of the generator

    def __post_init__(self) -> None:
        require(
            self.source, "the data source is empty; expected synthetic:mq2007, a folder or an imported name"
        )
        least = 0 if self.source.startswith(INTENTS) else 1
        require(least <= self.fold <= FOLDS, f"fold must be from {least} to {FOLDS}, got {self.fold}")
        require(
            self.fold == 1 or not self.source.startswith("synthetic:"),
            f"fold = {self.fold}, but {self.source} has one fold; another seed gives other data",
        )


@dataclass(frozen=True)
class Files:
    """The files of one collection and fold; several files are read one behind the other."""

    train: tuple[Path, ...]
    validation: tuple[Path, ...]  # may be empty
    test: tuple[Path, ...]


def load(source: DataSource) -> Collection:
    """Read or generate the collection; BadInput says what is missing."""
    if source.source.startswith("synthetic:"):
        return _load_synthetic(source)
    require(
        source.queries is None,
        f"queries = {source.queries} is for generated data; {source.source} has its own",
    )
    if source.source.startswith(INTENTS):
        from quorank.data.intents import intent_collection

        folder = folder_of(source.source.removeprefix(INTENTS))
        return intent_collection(folder, source.fold or None, source.normalize)
    files = find_files(folder_of(source.source), source.fold)
    train = _read(files.train, source.normalize)
    test = _read(files.test, source.normalize)
    validation = _read(files.validation, source.normalize) if files.validation else None
    width = max(s.n_features for s in (train, test, validation) if s is not None)
    return Collection(
        source.source, widen(train, width), widen(test, width), validation and widen(validation, width)
    )


def stamps_of(source: DataSource) -> tuple[object, ...]:
    """What tells whether files have changed since they were read; nothing for generated data."""
    if source.source.startswith("synthetic:"):
        return ()
    if source.source.startswith(INTENTS):
        folder = folder_of(source.source.removeprefix(INTENTS))
        found = sorted(path for path in folder.iterdir() if path.is_file())
        return tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in found)
    files = find_files(folder_of(source.source), source.fold)
    paths = [path.resolve() for path in (*files.train, *files.validation, *files.test)]
    return tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in paths)


def _load_synthetic(source: DataSource) -> Collection:
    from quorank.data.cache import load_generated

    name = source.source.removeprefix("synthetic:")
    return load_generated(name, source.queries, source.seed, source.normalize)


def _read(paths: Sequence[Path], normalize: str) -> RankingData:
    from quorank.data.cache import load_letor

    return join([load_letor(path, normalize) for path in paths])


def folder_of(source: str) -> Path:
    """The folder that a source names: a path first, then a name of the library."""
    from quorank.data.collections import PUBLIC
    from quorank.data.library import imported

    path = Path(source).expanduser()
    if path.is_dir():
        return path
    require(not path.exists(), f"{source} is a file; expected the folder that holds train.txt and test.txt")
    known = imported()
    if source in known:
        path = Path(known[source].path)
        require(
            path.is_dir(), f"the imported collection {source!r} was at {path}, which is gone; import it again"
        )
        return path
    if source.lower() in PUBLIC:
        name = source.lower()
        raise BadInput(
            f"{source} is not here yet; run `quorank data fetch {name}` or `quorank data import PATH`"
        )
    names = ", ".join(known) or "none"
    raise BadInput(
        f"there is no folder and no imported collection {source!r}{suggest(source, [*known, *PUBLIC])}; "
        f"imported: {names}"
    )


def has_layout(folder: Path) -> bool:
    """Whether a folder is laid out like a collection, complete or not."""
    entries = _entries(folder)
    parts = [f"{part}{i}" for part in ("s", "fold") for i in range(1, FOLDS + 1)]
    return (
        count_folds(folder) < FOLDS
        or _first(entries, parts) is not None
        or any(_FOLD.fullmatch(name) and entry.is_dir() for name, entry in entries.items())
    )


def count_folds(folder: Path) -> int:
    """How many folds a folder has by its layout; whether their files are all there is for `find_files`."""
    entries = _entries(folder)
    if _first(entries, SPLITS["train"]):
        return 1
    if any(_first(entries, (f"set{i}.train",)) for i in (1, 2)):
        return 2
    return FOLDS


def find_files(folder: Path, fold: int) -> Files:
    """The files of a fold, whichever of the known layouts the folder has."""
    entries = _entries(folder)
    folds = count_folds(folder)
    if folds < FOLDS:
        has = "one fold" if folds == 1 else f"{folds} folds"
        require(1 <= fold <= folds, f"{folder} has {has}, got fold = {fold}")
        return _split_files(folder, entries, "" if folds == 1 else f"set{fold}.")
    require(1 <= fold <= FOLDS, f"fold must be from 1 to {FOLDS}, got {fold}")
    for part in ("s", "fold"):
        found = [_first(entries, (f"{part}{i}",)) for i in range(1, FOLDS + 1)]
        if any(found):
            return _part_files(folder, part, found, fold)
    present = sorted(int(name[4:]) for name in entries if _FOLD.fullmatch(name))
    if present:
        chosen = entries.get(f"fold{fold}")
        if chosen is None:
            raise BadInput(f"{folder} has no Fold{fold}; it has {', '.join(f'Fold{i}' for i in present)}")
        return _split_files(chosen, _entries(chosen))
    raise BadInput(
        f"{folder} holds no collection: expected train.txt and test.txt (or .txt.gz), folders Fold1 to "
        f"Fold5, or parts S1.txt to S5.txt, found {_listing(entries)}"
    )


def _entries(folder: Path) -> dict[str, Path]:
    try:
        return {entry.name.lower(): entry for entry in sorted(folder.iterdir())}
    except OSError as error:
        raise BadInput(f"{folder} cannot be read as a folder: {error.strerror}") from None


def _listing(entries: dict[str, Path]) -> str:
    names = sorted(entry.name for entry in entries.values() if entry.name != ".quorank")
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "nothing"


def _names(stem: str) -> list[str]:
    return [stem + ending for ending in ENDINGS]


def _first(entries: dict[str, Path], stems: Sequence[str]) -> Path | None:
    return next((entries[name] for stem in stems for name in _names(stem) if name in entries), None)


def _split_files(folder: Path, entries: dict[str, Path], prefix: str = "") -> Files:
    found = {split: _first(entries, [prefix + stem for stem in stems]) for split, stems in SPLITS.items()}
    for split in ("train", "test"):
        name = prefix + split
        if found[split] is None:
            raise BadInput(f"{folder} has no {name}.txt or {name}.txt.gz; it holds {_listing(entries)}")
    paths = {split: (path,) if path else () for split, path in found.items()}
    return Files(paths["train"], paths["validation"], paths["test"])


def _part_files(folder: Path, part: str, found: Sequence[Path | None], fold: int) -> Files:
    """Fold i trains on parts i, i+1, i+2, validates on i+3 and tests on i+4, counted round (LETOR 4.0)."""
    name = "S" if part == "s" else part
    for i, path in enumerate(found, 1):
        require(
            path,
            f"{folder} has no {name}{i}.txt or {name}{i}.txt.gz; five parts {name}1 to {name}5 are needed",
        )
    parts = [path for path in found if path]
    turned = [parts[(fold - 1 + k) % FOLDS] for k in range(FOLDS)]
    return Files(tuple(turned[:3]), (turned[3],), (turned[4],))


def widen(data: RankingData, n_features: int) -> RankingData:
    """The same data with more features, all 0: a sparse file does not say how many there are."""
    stride = -(-n_features // LANES) * LANES
    if stride == data.padded.shape[1]:
        return data if n_features == data.n_features else replace(data, n_features=n_features)
    padded = np.zeros((data.n_rows, stride), np.float32)
    padded[:, : data.n_features] = data.features
    return replace(data, padded=padded, n_features=n_features)


def join(parts: Sequence[RankingData]) -> RankingData:
    """Several files as one split; a query that stands in two of them is refused: its list is one list."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.n_features for part in parts)
    wide = [widen(part, width) for part in parts]
    names = [name for part in parts for name in part.query_ids]
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadInput(
            f"query {twice} stands in two of the parts that make up one split; expected whole queries"
        )
    starts = np.cumsum([0] + [part.n_rows for part in parts])
    offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
    documents = None
    if any(part.document_ids is not None for part in parts):
        documents = concatenate([part.document_ids or [""] * part.n_rows for part in parts])
    return RankingData(
        np.concatenate([part.padded for part in wide]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([*offsets, starts[-1:]]).astype(np.int64),
        width,
        names,
        documents,
    )
