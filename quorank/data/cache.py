"""Cache of parsed and generated data in the user's cache directory: Arrow files that are mapped into memory.

An entry is named by the digest of a file's path, size, modification and change time and inode, so that a changed file
misses. A file that changed in the last two seconds is not cached, since another change could have the same time.
"""

from __future__ import annotations

import hashlib
import mmap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
        if (table.schema.metadata or {}).get(b"quorank") != str(FORMAT_VERSION).encode():
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
