"""Source of an experiment's ranking data: a generated collection, a directory of LETOR files, an imported name, or arrays.

Arrays that a program passes are named by their digest: `run.toml` then says `source = "arrays:…"`, and a resumed run needs
the same arrays again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from quorank.data.cache import load_generated, load_letor
from quorank.data.intents import intent_collection
from quorank.data.layout import FOLDS, find_files
from quorank.data.library import folder_of
from quorank.data.logs.click_log import FILE as LOG_FILE
from quorank.data.logs.click_log import is_log, open_log
from quorank.data.logs.generated import LOG_SHAPES
from quorank.data.logs.records import UserSelection
from quorank.data.logs.splitting import generated_collection, log_collection
from quorank.data.normalisation import NORMALISATIONS, Normalisation, WithinQuery, normalize_queries
from quorank.data.ranking import Collection, RankingData, join_parts, widen
from quorank.errors import BadInput, require, require_range
from quorank.files.atomic import write_whole
from quorank.files.untrusted import numbered_lines, read_bounded

FEATURE_NAMES = "features.txt"  # file with a feature's name in each line, in the directory of the data
_LARGEST_NAMES, _LONGEST_NAME = 1 << 20, 200  # bytes of that file, and of a name
SYNTHETIC = "synthetic:"  # prefix of the name of a generated collection
INTENTS = "intents:"  # prefix of a directory with a judgement per intent of a query
ARRAYS = "arrays:"  # prefix of the digest of arrays that a program passed


@dataclass(frozen=True)
class DataSource:
    """Collection of an experiment, its fold and its normalisation."""

    kind: ClassVar[str] = "data"
    # "synthetic:…", a directory, an imported name, or "intents:" and a directory with judgements per intent
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
    """Read or generate a collection.

    Args:
        source: Source and normalisation; unknown constants of a fixed one leave the features raw.
        selection: Users whose searches are read from a log; all by default.

    Raises:
        BadInput: The source is missing, damaged, or does not fit its options.
    """
    collection = _load(source, "query" if source.normalize.kind == WithinQuery.kind else "none", selection)
    return scaled_collection(collection, source.normalize)


def scaled_collection(collection: Collection, normalisation: Normalisation) -> Collection:
    """Return a collection scaled by the constants of a normalisation, if it has any."""
    if not normalisation.low:
        return collection
    try:
        return collection.changed(lambda data: data.with_features(normalisation.scaled(data.features)))
    except BadInput as error:
        raise error.under("data.normalize") from None


def _load(source: DataSource, normalize: Literal["query", "none"], selection: UserSelection | None) -> Collection:
    name = source.source
    sentence = "these data were given as arrays, and no file holds them; give them again from Python, with data=…"
    require(not name.startswith(ARRAYS), "data.not-in-a-file", sentence, name)
    generated = name.removeprefix(SYNTHETIC) if name.startswith(SYNTHETIC) else None
    if generated in LOG_SHAPES:
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


def file_stamps(source: DataSource) -> tuple[object, ...]:
    """Return path, size and modification time of each file of a source; empty for generated data and arrays."""
    name = source.source
    if name.startswith((SYNTHETIC, ARRAYS)):
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


def array_source_name(collection: Collection) -> str:
    """Return the `[data] source` of a collection in memory: a digest of all splits, features, labels and queries."""
    digest = hashlib.blake2b(digest_size=16)
    for name, data in collection.splits.items():
        digest.update(f"{name} {data.n_rows} {data.n_features} {data.n_queries}\n".encode())
        for array in (np.ascontiguousarray(data.features), data.labels, data.offsets):
            digest.update(array.view(np.uint8).data)
        digest.update("\0".join(data.query_ids).encode())
    return f"{ARRAYS}{digest.hexdigest()}"


def normalised_arrays(collection: Collection, source: DataSource) -> Collection:
    """Return a collection in memory normalised as its source says; reject one with another digest."""
    sentence = "these are other data than those that the run began with; give it the same arrays"
    require(array_source_name(collection) == source.source, "data.other-arrays", sentence, source.source)
    named = replace(collection, name=source.source)
    if source.normalize.kind == WithinQuery.kind:
        named = named.changed(normalize_queries)
    return scaled_collection(named, source.normalize).resident()


def feature_names(source: DataSource, n_features: int) -> tuple[str, ...]:
    """Return the names of a source's features, "" for an unnamed one; empty if the source has no `features.txt`."""
    name = source.source.removeprefix(INTENTS)
    path = None if name.startswith((SYNTHETIC, ARRAYS)) else folder_of(name) / FEATURE_NAMES
    if path is None or not path.is_file():
        return ()
    lines = [line for _, line in numbered_lines(read_bounded(path, _LARGEST_NAMES), path, _LONGEST_NAME)]
    try:
        names = [line.decode().strip() for line in lines]
    except UnicodeDecodeError as error:
        raise BadInput("file.unreadable", f"cannot be read as text ({error})", f"{path}") from None
    while names and not names[-1]:
        names.pop()
    sentence = f"names {len(names)} features, and the data has {n_features}; expected a name a line, in their order"
    require(len(names) <= n_features, "feature-names.too-many", sentence, f"{path}")
    return (*names, *("" for _ in range(n_features - len(names)))) if names else ()


def collection_feature_names(source: DataSource, collection: Collection) -> tuple[str, ...]:
    """Return the feature names of a collection, or else of its source."""
    return collection.feature_names or feature_names(source, collection.train.n_features)


def write_feature_names(folder: Path, names: tuple[str, ...]) -> None:
    """Write `features.txt` into the directory of a collection."""
    write_whole(folder / FEATURE_NAMES, "".join(f"{name}\n" for name in names))


def typed_name(name: str) -> str:
    """Return a feature's name as it is typed without quotes in a TOML file.

    >>> typed_name("LMIR.ABS of body")
    'lmir-abs-of-body'
    """
    return "-".join(re.findall(r"[^\W_]+", name.lower()))
