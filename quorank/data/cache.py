"""Cache of parsed and generated data in the user's cache directory: Arrow files.

An entry is named by the digest of a file's path, size, modification and change time and inode, so that a changed file
misses. A file that changed in the last two seconds is not cached, since another change could have the same time.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data import synthetic
from quorank.data.letor.reader import READER_VERSION, read_letor
from quorank.data.ranking import Collection, RankingData, stride_of
from quorank.data.strings import Strings, to_arrow
from quorank.files.atomic import atomically, remove_leftovers
from quorank.kernels.compiled import cache_root

FORMAT_VERSION = 1
_RECENT = 2_000_000_000  # nanoseconds


def load_letor(path: Path, normalize: str) -> RankingData:
    """Read and normalise a LETOR file through the cache."""
    if not path.is_file():
        return read_letor(path)  # raises the error
    before = _stamp(path)
    key = f"{path.resolve()} {before} {READER_VERSION}.{FORMAT_VERSION} {normalize}"
    file = cache_root() / f"{hashlib.blake2b(key.encode(), digest_size=20).hexdigest()}.arrow"
    data = _read(file)
    if data is None:
        data = _normalized(read_letor(path), normalize)
        if _stamp(path) == before and time.time_ns() - max(before[:2]) > _RECENT:
            _write(file, data)
    return data


def load_generated(name: str, queries: int | None, seed: int, normalize: str) -> Collection:
    """Generate and normalise a synthetic collection through the cache."""
    number = synthetic.training_queries(name, queries, seed)
    folder = cache_root()
    key = f"{name}-{number}-{seed}-{synthetic.GENERATOR_VERSION}.{FORMAT_VERSION}-{normalize}"
    files = {split: folder / f"{key}-{split}.arrow" for split in ("train", "test", "validation")}
    kept: dict[str, Any] = {split: data for split, file in files.items() if (data := _read(file)) is not None}
    if len(kept) < len(files):
        made = synthetic.generate(name, number, seed)
        kept = {split: _normalized(data, normalize) for split, data in made.splits.items()}
        for split, data in kept.items():
            _write(files[split], data)
    return Collection(f"synthetic:{name}", kept["train"], kept["test"], kept["validation"])


def _read(file: Path) -> RankingData | None:
    """Read the data of an intact entry, or return None."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as source:
            table = pa.ipc.open_file(source).read_all()
            table.validate(full=True)
            if table.schema.metadata[b"quorank"] != str(FORMAT_VERSION).encode():
                return None
            features, queries = table.column("features").chunk(0), table.column("query").chunk(0)
            data = RankingData(
                np.array(features.values).reshape(len(table), features.type.list_size),
                np.array(table.column("label").chunk(0)),
                np.concatenate(([0], np.flatnonzero(np.diff(queries.indices)) + 1, [len(table)])).astype(np.int64),
                int(table.schema.metadata[b"n_features"]),
                _copied(queries.dictionary),
                _copied(table.column("document").chunk(0)) if "document" in table.column_names else None,
            )
        # compiled code relies on this
        return data if data.padded.shape[1] == stride_of(data.n_features) > 0 and data.labels.min() >= 0 else None
    except Exception:  # a damaged entry of any kind is replaced
        return None


def _copied(strings: Any) -> Strings:
    """Return strings in memory of their own, since the file is closed."""
    import pyarrow as pa

    return Strings(pa.concat_arrays([strings, strings[:0]]))


def _write(file: Path, data: RankingData) -> None:
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
    metadata = {"quorank": str(FORMAT_VERSION), "n_features": str(data.n_features)}
    batch = pa.record_batch(columns, metadata=metadata)

    def save(temporary: Path) -> None:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

    with suppress(OSError):  # a cache that cannot be written only costs time
        file.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(file.parent)
        atomically(file, save)


def _normalized(data: RankingData, normalize: str) -> RankingData:
    from quorank.data.normalisation import normalize_queries

    return normalize_queries(data) if normalize == "query" else data


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino]
