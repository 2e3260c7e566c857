"""Source of an experiment's ranking data: a generated collection, a folder of LETOR files, or an imported name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from quorank.data.cache import load_generated, load_letor
from quorank.data.intents import intent_collection
from quorank.data.layout import FOLDS, find_files
from quorank.data.library import folder_of
from quorank.data.ranking import Collection, RankingData, join_parts, widen
from quorank.errors import require, require_range

SYNTHETIC = "synthetic:"
"""Prefix of a generated collection's name."""
INTENTS = "intents:"
"""Prefix of a folder whose documents are judged for each intent of a query."""


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
        sentence = "the data source is empty; expected synthetic:mq2007, a folder or an imported name"
        require(self.source, "source.empty", sentence, "source")
        require_range("fold", self.fold, least=0 if self.source.startswith(INTENTS) else 1, most=FOLDS)
        sentence = f"{self.source} has one fold, got fold = {self.fold}; another seed gives other data"
        require(self.fold == 1 or not self.source.startswith(SYNTHETIC), "fold.missing", sentence, "fold")


def load(source: DataSource) -> Collection:
    """Read or generate the collection; BadInput says what is missing."""
    name = source.source
    if name.startswith(SYNTHETIC):
        return load_generated(name.removeprefix(SYNTHETIC), source.queries, source.seed, source.normalize)
    sentence = f"queries = {source.queries} is for generated data; {name} has its own"
    require(source.queries is None, "option.conflict", sentence)
    if name.startswith(INTENTS):
        folder = folder_of(name.removeprefix(INTENTS))
        return intent_collection(folder, source.fold or None, source.normalize)

    def read(paths: Sequence[Path]) -> RankingData:
        return join_parts([load_letor(path, source.normalize) for path in paths])

    files = find_files(folder_of(name), source.fold)
    splits = {split: read(paths) for split, paths in files.items() if paths}
    width = max(data.n_features for data in splits.values())
    return Collection(name, **{split: widen(data, width) for split, data in splits.items()})


def stamps_of(source: DataSource) -> tuple[object, ...]:
    """Return the path, size and time of change of each file of a source; nothing for generated data."""
    name = source.source
    if name.startswith(SYNTHETIC):
        return ()
    if name.startswith(INTENTS):
        entries = folder_of(name.removeprefix(INTENTS)).iterdir()
        paths = sorted(path for path in entries if path.is_file())
    else:
        files = find_files(folder_of(name), source.fold)
        paths = [path.resolve() for of_split in files.values() for path in of_split]
    return tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in paths)
