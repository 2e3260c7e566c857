"""Source of an experiment's ranking data: a generated collection, a directory of LETOR files, an imported name, or arrays.

Parsed and generated data are cached in the user's cache directory as Arrow files, which are mapped into memory. An entry is
named by the digest of a file's path, size, times and inode, so that a changed file misses. A file that changed in the last
two seconds is not cached, since another change could have the same time.

Arrays that a program passes are named by their digest: `run.toml` then says `source = "arrays:…"`, and a resumed run needs
the same arrays again.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from quorank.data import synthetic
from quorank.data.intents import intent_collection
from quorank.data.layout import FOLDS, find_files
from quorank.data.letor.reader import READER_VERSION, read_letor
from quorank.data.library import folder_of
from quorank.data.logs.click_log import FILE as LOG_FILE
from quorank.data.logs.click_log import is_log, open_log
from quorank.data.logs.generated import LOG_SHAPES
from quorank.data.logs.records import UserSelection
from quorank.data.logs.splitting import generated_collection, log_collection
from quorank.data.normalisation import NORMALISATIONS, Normalisation, RawFeatures, WithinQuery
from quorank.data.ranking import Collection, RankingData, Strings, join_parts, stride_of, to_arrow, widen
from quorank.errors import BadInput, require, require_range, under
from quorank.files.atomic import atomically, remove_leftovers, write_whole
from quorank.files.untrusted import numbered_lines, read_bounded
from quorank.kernels.compiled import cache_root

FEATURE_NAMES = "features.txt"  # file with a feature's name in each line, in the directory of the data
_LARGEST_NAMES, _LONGEST_NAME = 1 << 20, 200  # bytes of that file, and of a name
SYNTHETIC = "synthetic:"  # prefix of the name of a generated collection
INTENTS = "intents:"  # prefix of a directory with a judgement per intent of a query
ARRAYS = "arrays:"  # prefix of the digest of arrays that a program passed
CACHE_VERSION = 1  # format of a cache entry
RECENT = 2_000_000_000  # age below which a file is not cached, nanoseconds


@dataclass(frozen=True)
class DataSource:
    """Collection of an experiment, its fold and its normalisation: section `[data]`.

    Args:
        source: `synthetic:NAME`, a directory, an imported name, or `intents:` and a directory with judgements per intent.
        fold: Fold of a collection in five folds, from 1; 0 for intents that are tested on their training queries.
        normalize: Normalisation of the features.
        queries: Number of training queries of generated data; None is the collection's own number.
        seed: Seed of the generator.

    Raises:
        BadInput: The source is empty, or has no such fold.

    >>> load(DataSource(queries=30, seed=2)).train.n_queries
    30
    """

    kind: ClassVar[str] = "data"

    source: str = "synthetic:mq2007"
    fold: int = 1
    normalize: Normalisation = WithinQuery()  # noqa: RUF009
    queries: int | None = None
    seed: int = 1

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

    Returns:
        The splits of the collection.

    Raises:
        BadInput: The source is missing, damaged, or does not fit its options.

    >>> load(DataSource("synthetic:mq2007", queries=60)).train.n_queries
    60
    """
    within = source.normalize.kind == WithinQuery.kind  # cached normalised; otherwise raw features are cached
    collection = _load(source, WithinQuery() if within else RawFeatures(), selection)
    return collection if within else normalised(collection, source.normalize)


def normalised(collection: Collection, normalize: Normalisation) -> Collection:
    """Return a collection with normalised features."""
    with under("data.normalize"):
        return collection.changed(normalize.applied)


def _load(source: DataSource, normalize: Normalisation, selection: UserSelection | None) -> Collection:
    name = source.source
    sentence = "these data were given as arrays, and no file holds them; give them again from Python, with data=…"
    require(not name.startswith(ARRAYS), "data.not-in-a-file", sentence, name)
    generated = name.removeprefix(SYNTHETIC) if name.startswith(SYNTHETIC) else None
    if generated in LOG_SHAPES:
        return normalised(generated_collection(generated, source.queries, source.seed, selection), normalize)
    if generated is None and not name.startswith(INTENTS) and is_log(folder_of(name)):
        given = f"got {source.queries} and {source.fold}"
        sentence = f"is for generated data and folds; a log is split by its time, {given}"
        require(source.queries is None and source.fold == 1, "option.conflict", sentence, "queries")
        return normalised(log_collection(open_log(folder_of(name)), name, selection), normalize)
    sentence = f'{name} names no users; partition.kind = "users" needs a log of clicks (docs/clicks.md)'
    require(selection is None, "log.no-users", sentence, "data.source")
    if generated is not None:
        return load_generated(generated, source.queries, source.seed, normalize)
    sentence = f"queries = {source.queries} is for generated data; {name} has its own"
    require(source.queries is None, "option.conflict", sentence)
    read = partial(load_letor, normalize=normalize)
    if name.startswith(INTENTS):
        return intent_collection(folder_of(name.removeprefix(INTENTS)), source.fold or None, read)
    files = find_files(folder_of(name), source.fold)
    splits = {split: join_parts([*map(read, paths)]) for split, paths in files.items() if paths}
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
    return normalised(replace(collection, name=source.source), source.normalize).resident()


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


# ------------------------------------------------------------ cache


def load_letor(path: Path, normalize: Normalisation) -> RankingData:
    """Read and normalise a LETOR file through the cache."""
    if not path.is_file():
        return read_letor(path)  # raises the error
    before = _stamp(path)
    key = f"{path.resolve()} {before} {READER_VERSION}.{CACHE_VERSION} {normalize.kind}"
    file = cache_root() / f"{hashlib.blake2b(key.encode(), digest_size=20).hexdigest()}.arrow"
    data = _read_entry(file)
    if data is None:
        data = normalize.applied(read_letor(path))
        if _stamp(path) == before and time.time_ns() - max(before[:2]) > RECENT:
            _write_entry(file, data)
    return data


def load_generated(name: str, queries: int | None, seed: int, normalize: Normalisation) -> Collection:
    """Generate and normalise a synthetic collection through the cache."""
    number = synthetic.training_queries(name, queries, seed)
    folder = cache_root()
    key = f"{name}-{number}-{seed}-{synthetic.GENERATOR_VERSION}.{CACHE_VERSION}-{normalize.kind}"
    files = {split: folder / f"{key}-{split}.arrow" for split in ("train", "test", "validation")}
    kept: dict[str, Any] = {split: data for split, file in files.items() if (data := _read_entry(file)) is not None}
    if len(kept) < len(files):
        made = synthetic.generate(name, number, seed)
        kept = {split: normalize.applied(data) for split, data in made.splits.items()}
        for split, data in kept.items():
            _write_entry(files[split], data)
    return Collection(f"synthetic:{name}", kept["train"], kept["test"], kept["validation"])


def _read_entry(file: Path) -> RankingData | None:
    """Map the data of an intact entry, or return None."""
    import pyarrow as pa

    try:
        with file.open("rb") as handle:
            # copy on write: the arrays are writable like parsed ones, and the file stays as it is
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
        whole = pa.py_buffer(mapped)
        # a thread of Arrow that frees a Python buffer while the interpreter ends aborts the process
        options = pa.ipc.IpcReadOptions(use_threads=False)
        table = pa.ipc.open_file(pa.BufferReader(whole), options=options).read_all()
        table.validate(full=True)
        if (table.schema.metadata or {}).get(b"quorank") != str(CACHE_VERSION).encode():
            return None
        features, queries = table.column("features").chunk(0), table.column("query").chunk(0)
        rows, stride = len(table), features.type.list_size

        def view(array: Any, kind: Any, count: int) -> npt.NDArray[Any]:
            return np.frombuffer(mapped, kind, count, array.buffers()[1].address - whole.address)

        n_features, labels = int(table.schema.metadata[b"n_features"]), table.column("label").chunk(0)
        kinds = (features.type.value_type, labels.type, queries.type.index_type)
        # compiled code relies on all of this
        intact = kinds == (pa.float32(), pa.int8(), pa.int32()) and rows > 0 and stride == stride_of(n_features) > 0
        intact = intact and not any(column.null_count for column in (features, features.values, labels, queries))
        if not intact or np.min(view(labels, np.int8, rows)) < 0:
            return None
        changes = np.flatnonzero(np.diff(queries.indices.to_numpy())) + 1
        return RankingData(
            view(features.values, np.float32, rows * stride).reshape(rows, stride),
            view(labels, np.int8, rows),
            np.concatenate(([0], changes, [rows])).astype(np.int64),
            n_features,
            Strings(queries.dictionary),
            Strings(table.column("document").chunk(0)) if "document" in table.column_names else None,
        )
    except Exception:  # a damaged entry of any kind is replaced
        return None


def _write_entry(file: Path, data: RankingData) -> None:
    import pyarrow as pa

    stride = data.padded.shape[1]
    indices = np.repeat(np.arange(data.n_queries, dtype=np.int32), np.diff(data.offsets))
    columns = {
        "features": pa.FixedSizeListArray.from_arrays(pa.array(data.padded.reshape(-1)), stride),
        "label": pa.array(data.labels),
        "query": pa.DictionaryArray.from_arrays(pa.array(indices), to_arrow(data.query_ids)),
    }
    if data.document_ids is not None:
        columns["document"] = to_arrow(data.document_ids)
    metadata = {"quorank": str(CACHE_VERSION), "n_features": str(data.n_features)}
    batch = pa.record_batch(columns, metadata=metadata)

    def save(temporary: Path) -> None:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

    with suppress(OSError):  # a cache that cannot be written only costs time
        file.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(file.parent)
        atomically(file, save)


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino]
