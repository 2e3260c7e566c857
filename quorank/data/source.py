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
from quorank.data.logs.click_log import FILE as LOG_FILE
from quorank.data.logs.click_log import is_log, open_log
from quorank.data.logs.generated import is_generated_log
from quorank.data.logs.splitting import generated_collection, log_collection
from quorank.data.normalisation import NORMALISATIONS, Normalisation, WithinQuery
from quorank.data.ranking import Collection, RankingData, join_parts, widen
from quorank.data.search_records import UserSelection
from quorank.errors import BadInput, require, require_range

SYNTHETIC = "synthetic:"
"""Prefix of a generated collection's name."""
INTENTS = "intents:"
"""Prefix of a folder whose documents are judged for each intent of a query."""
GIVEN = "arrays:"
"""Prefix of the digest of arrays that a program gave; no file holds them (`quorank.data.given`)."""


@dataclass(frozen=True)
class DataSource:
    """The collection of an experiment."""

    kind: ClassVar[str] = "data"
    # "synthetic:…", a folder, an imported name, or "intents:" and a folder with judgements per intent
    source: str = "synthetic:mq2007"
    fold: int = 1  # of a collection in five folds; 0 for intents that are tested on their training queries
    normalize: Normalisation = WithinQuery()  # noqa: RUF009  # how features are brought to a common scale
    queries: int | None = None  # training queries of generated data; None is the collection's own number
    seed: int = 1  # of the generator

    def __post_init__(self) -> None:
        if isinstance(self.normalize, str):
            object.__setattr__(self, "normalize", NORMALISATIONS.read(self.normalize, "normalize"))
        sentence = "the data source is empty; expected synthetic:mq2007, a folder or an imported name"
        require(self.source, "source.empty", sentence, "source")
        require_range("fold", self.fold, least=0 if self.source.startswith(INTENTS) else 1, most=FOLDS)
        sentence = f"{self.source} has one fold, got fold = {self.fold}; another seed gives other data"
        require(self.fold == 1 or not self.source.startswith(SYNTHETIC), "fold.missing", sentence, "fold")


def load(source: DataSource, selection: UserSelection | None = None) -> Collection:
    """Read or generate the collection, or of a log the searches of some users; BadInput says what is missing.

    Fixed constants that are not known yet leave the features as they are.
    """
    collection = _load(source, "query" if source.normalize.kind == WithinQuery.kind else "none", selection)
    return scaled_collection(collection, source.normalize)


def scaled_collection(collection: Collection, normalisation: Normalisation) -> Collection:
    """Return a collection by the constants of a normalisation; the same where there are none."""
    if not normalisation.low:
        return collection
    try:
        return collection.changed(lambda data: data.with_features(normalisation.scaled(data.features)))
    except BadInput as error:
        raise error.under("data.normalize") from None


def _load(source: DataSource, normalize: Literal["query", "none"], selection: UserSelection | None) -> Collection:
    name = source.source
    sentence = "these data were given as arrays, and no file holds them; give them again from Python, with data=…"
    require(not name.startswith(GIVEN), "data.not-in-a-file", sentence, name)
    generated = name.removeprefix(SYNTHETIC) if name.startswith(SYNTHETIC) else None
    if generated is not None and is_generated_log(generated):
        return generated_collection(generated, source.queries, source.seed, normalize, selection)
    if generated is None and not name.startswith(INTENTS) and is_log(folder_of(name)):
        given = f"got {source.queries} and {source.fold}"
        sentence = f"is for generated data and folds; a log is split by its time, {given}"
        require(source.queries is None and source.fold == 1, "option.conflict", sentence, "queries")
        return log_collection(open_log(folder_of(name)), name, normalize, selection)
    sentence = f'{name} names no users; partition.kind = "users" needs a log of clicks (docs/clicks.md)'
    require(selection is None, "log.no-users", sentence, "data.source")
    if generated is not None:
        return load_generated(generated, source.queries, source.seed, normalize)
    sentence = f"queries = {source.queries} is for generated data; {name} has its own"
    require(source.queries is None, "option.conflict", sentence)
    if name.startswith(INTENTS):
        folder = folder_of(name.removeprefix(INTENTS))
        return intent_collection(folder, source.fold or None, normalize)

    def read(paths: Sequence[Path]) -> RankingData:
        return join_parts([load_letor(path, normalize) for path in paths])

    files = find_files(folder_of(name), source.fold)
    splits = {split: read(paths) for split, paths in files.items() if paths}
    width = max(data.n_features for data in splits.values())
    wide = {split: widen(data, width) for split, data in splits.items()}
    return Collection(name, wide["train"], wide["test"], wide.get("validation"))


def stamps_of(source: DataSource) -> tuple[object, ...]:
    """Return the path, size and time of change of each file of a source; nothing for generated and given data."""
    name = source.source
    if name.startswith((SYNTHETIC, GIVEN)):
        return ()
    if name.startswith(INTENTS):
        entries = folder_of(name.removeprefix(INTENTS)).iterdir()
        paths = sorted(path for path in entries if path.is_file())
    elif is_log(folder_of(name)):
        paths = [folder_of(name) / LOG_FILE]
    else:
        files = find_files(folder_of(name), source.fold)
        paths = [path.resolve() for of_split in files.values() for path in of_split]
    return tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in paths)
