"""Writer of ranking data as LETOR text that reads back to the same bits."""

from __future__ import annotations

import gzip
import io
import re
from itertools import chain, repeat
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData
from quorank.errors import require
from quorank.files.atomic import export_file
from quorank.kernels.arrays import Floats

_BREAKS_ID = re.compile(r"[ \t\n\v\f\r#]")
_BREAKS_NAME = re.compile(r"[ \t\n\v\f\r]")
_ROWS = 2048


def write_letor(data: RankingData, path: Path) -> None:
    """Write a LETOR file.

    Args:
        data: Lists to write.
        path: The file, gzipped if its name ends in `.gz`.

    Raises:
        BadInput: `letor.cannot-say` for names or numbers that the format cannot express.

    >>> lists = RankingData.from_rows([[0.5, 2.0], [0.25, 1.0]], labels=[1, 0], group=["a", "a"])
    >>> write_letor(lists, Path("written.txt"))
    >>> Path("written.txt").read_text().splitlines()[0]
    '1 qid:a 1:0.5 2:2'
    """
    path = Path(path)
    _check(data, path)

    def save(temporary: Path) -> None:
        with temporary.open("wb") as raw:
            if path.suffix == ".gz":
                # no time and no name in the header: the same data gives the same file
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                    _write(data, packed)
            else:
                _write(data, raw)

    export_file(path, save)


def _check(data: RankingData, path: Path) -> None:
    def expect(condition: object, sentence: str) -> None:
        require(condition, "letor.cannot-say", sentence, f"{path}")

    expect(data.n_features > 0 and data.n_rows > 0, "there are no rows or no features to write")
    expect(np.all(np.diff(data.offsets) > 0), "a query without documents cannot be written")
    expect(data.labels.min() >= 0, f"label {data.labels.min()} cannot be written; expected 0 or more")
    expect(np.isfinite(data.features).all(), "a feature is not finite; expected finite numbers")
    seen = set()
    for name in data.query_ids:
        expect(name and not _BREAKS_ID.search(name), f"query id {name!r} is not one word without '#'")
        expect(name not in seen, f"query id {name!r} stands for two queries")
        seen.add(name)
    for name in data.document_ids or ():
        expect(not _BREAKS_NAME.search(name), f"document id {name!r} is not one word")


def _write(data: RankingData, file: IO[bytes] | gzip.GzipFile) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=False)
    row_format = "%s qid:%s " + " ".join(f"{f}:%s" for f in range(1, data.n_features + 1)) + "%s\n"
    queries = chain.from_iterable(map(repeat, data.query_ids, np.diff(data.offsets).tolist()))
    names = repeat("") if data.document_ids is None else data.document_ids
    comments = (f" #docid = {name}" if name else "" for name in names)
    for first in range(0, data.n_rows, _ROWS):
        block = data.features[first : first + _ROWS]
        numbers = shortest_texts(block).reshape(block.shape).tolist()
        labels = data.labels[first : first + _ROWS].tolist()
        for label, row in zip(labels, numbers, strict=True):
            text.write(row_format % (label, next(queries), *row, next(comments)))
    text.flush()
    text.detach()


def shortest_texts(values: Floats) -> npt.NDArray[np.object_]:
    """Return the shortest text of each number that reads back to the same float32 by way of a double."""
    import pyarrow as pa

    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    texts = pa.array(flat).cast(pa.string())
    back = texts.cast(pa.float64()).to_numpy().astype(np.float32)
    result: npt.NDArray[np.object_] = texts.to_numpy(zero_copy_only=False).copy()
    # the shortest text names the right float32; only the way through a double could round it twice
    for place in np.flatnonzero(back.view(np.int32) != flat.view(np.int32)):
        result[place] = repr(float(flat[place]))
    return result
