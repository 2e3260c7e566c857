"""Reader of Baidu-ULTR (Zou et al. 2022) as the University of Amsterdam released it again, with features: Feather files.

Each `.feather` file (`parts/part-0_split-0.feather`, …) is an Arrow table with a row for each document of a search, the
rows of a search together: `query_id`, `position` (from 1 on, with gaps at times), `click`, and as features those of the
lexical columns that it has (`LEXICAL`), and `query_document_embedding`, a list of numbers in half precision. `query_md5` is
kept as the query and `url_md5` as the document. There are no users and no times. Annotations (`validation.feather`), which
have a `label` and no clicks, are left out; the original token files hold no features and are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.data.logs.click_log import HIGHEST_RANK, MOST_FEATURES, NO_TIME, Search, joined_runs
from quorank.errors import BadInput, brief, require
from quorank.files.arrow import untrusted_batches
from quorank.files.untrusted import file_size
from quorank.kernels.arrays import Floats

LEXICAL = (  # columns of later versions of the release
    "bm25", "title_bm25", "abstract_bm25", "tf_idf", "tf", "idf", "ql_jelinek_mercer_short", "ql_jelinek_mercer_long",
    "ql_dirichlet", "query_length", "document_length", "title_length", "abstract_length",
)  # fmt: skip
EMBEDDING = "query_document_embedding"
NEEDED = ("query_id", "position", "click")
TEXTS = ("query_md5", "url_md5")
Which = Literal["all", "lexical", "embedding"]
_EXPECTED = f"expected the columns {', '.join(NEEDED)} of Baidu-ULTR"


def feather_files(folder: Path) -> list[Path]:
    """Return the Feather files of a folder, and of its folder `parts`, that hold clicks, in the order of their names."""
    places = [folder, folder / "parts"]
    found = sorted(path for place in places if place.is_dir() for path in place.glob("*.feather") if path.is_file())
    clicks = [path for path in found if "validation" not in path.name and "annotation" not in path.name]
    require(clicks, "file.missing", f"has no .feather file with clicks; {_EXPECTED}", f"{folder}")
    return clicks


def baidu_features(path: Path, which: Which = "all") -> tuple[str, ...]:
    """Return the names of the features of a file: its lexical columns, then e1, e2, … of the embedding."""
    for batch in _batches(path, which):
        lexical = [name for name in LEXICAL if name in batch.schema.names]
        width = 0
        if EMBEDDING in batch.schema.names and batch.num_rows:
            width = int(_embeddings(path, batch, 0).shape[1])
        names = (*lexical, *(f"e{number}" for number in range(1, width + 1)))
        sentence = f"has {len(names)} features of this kind; expected 1 to {MOST_FEATURES:,}"
        require(1 <= len(names) <= MOST_FEATURES, "log.features", sentence, f"{path}")
        return names
    raise BadInput("log.empty", "holds no rows", f"{path}")


def read_baidu_ultr(
    folder: Path, which: Which = "all", counted: Callable[[int], None] | None = None
) -> Iterator[Search]:
    """Yield the searches of a folder's files, in the order of their names."""
    first: tuple[str, ...] | None = None
    for path in feather_files(folder):
        names = baidu_features(path, which)
        first = first or names
        require(names == first, "log.features-differ", "has other features than the first file", f"{path}")
        for query, place, columns in joined_runs(_runs(path, which, len(names))):
            features, positions, clicks, texts, documents = columns
            for name, values, least, most in (("position", positions, 1, HIGHEST_RANK), ("click", clicks, 0, 1)):
                wrong = values[(values < least) | (values > most)]
                sentence = f"found {name} {brief(wrong[:1].tolist())}, expected {least} to {most:,}"
                require(not len(wrong), f"log.bad-{name}", sentence, place)
            order = np.argsort(positions, kind="stable")
            yield Search(
                "", NO_TIME, f"{path.stem}/{query}", str(texts[0]), features[order], clicks[order], positions[order],
                documents[order].tolist(), place,
            )  # fmt: skip
        if counted:
            counted(file_size(path))


def _runs(path: Path, which: Which, n_features: int) -> Iterator[tuple[str, str, tuple[npt.NDArray[Any], ...]]]:
    """Yield (query, place, columns) of the consecutive rows of each query within a batch."""
    row = 1
    for batch in _batches(path, which):
        queries, *columns = _table(path, batch, n_features, row)
        starts = [at for at in range(len(queries)) if at == 0 or queries[at] != queries[at - 1]]
        for first, last in zip(starts, [*starts[1:], len(queries)], strict=True):
            yield queries[first], f"{path}, row {row + first}", tuple(column[first:last] for column in columns)
        row += batch.num_rows


def _batches(path: Path, which: Which) -> Iterator[Any]:
    """Yield the batches of a file with the wanted columns that it has."""
    wanted = [*NEEDED, *TEXTS]
    wanted += LEXICAL if which != "embedding" else ()
    wanted += (EMBEDDING,) if which != "lexical" else ()
    for batch in untrusted_batches(path, "feather", wanted):
        names = batch.schema.names
        missing = next((name for name in NEEDED if name not in names), None)
        require(missing is None, "arrow.no-column", f"has no column {missing}; {_EXPECTED}", f"{path}")
        require(len({*names}) == len(names), "arrow.column-twice", "has two columns of one name", f"{path}")
        yield batch


def _embeddings(path: Path, batch: Any, row: int) -> Floats:
    """Return the embeddings (rows, dimensions) of a batch."""
    import pyarrow as pa

    column = batch.column(EMBEDDING)
    kind = column.type
    sentence = f"has a {EMBEDDING} that is no list of numbers"
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    require(listed and pa.types.is_floating(kind.value_type), "arrow.wrong-type", sentence, f"{path}")
    values = column.flatten()
    sound = column.null_count == 0 and values.null_count == 0 and len(values) % max(1, len(column)) == 0
    width = len(values) // max(1, len(column))
    if sound and not pa.types.is_fixed_size_list(kind):
        sound = bool((np.diff(column.offsets.to_numpy()) == width).all())
    require(sound, "arrow.ragged", f"has embeddings of different lengths, or none, from row {row} on", f"{path}")
    found: Floats = values.to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(column), width)
    return found


def _table(path: Path, batch: Any, n_features: int, row: int) -> list[Any]:
    """Return queries, features, positions, clicks, texts and documents of a batch; other types are refused."""
    import pyarrow as pa

    def numbers(name: str, kind: Any) -> Any:
        column = batch.column(name)
        fits = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
        sentence = f"has a column {name} that is no column of numbers, or with gaps, from row {row} on"
        require(fits and column.null_count == 0, "arrow.wrong-type", sentence, f"{path}")
        return column.to_numpy(zero_copy_only=False).astype(kind)

    def texts(name: str) -> npt.NDArray[Any]:
        values = batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows
        return np.array(["" if text is None else str(text) for text in values], dtype=object)

    lexical = [numbers(name, np.float32)[:, None] for name in LEXICAL if name in batch.schema.names]
    embedded = [_embeddings(path, batch, row)] if EMBEDDING in batch.schema.names else []
    features = np.concatenate([*lexical, *embedded], axis=1)
    fits = features.shape[1] == n_features
    require(fits, "arrow.ragged", f"has embeddings of different lengths from row {row} on", f"{path}")
    queries, searches, documents = (texts(name) for name in ("query_id", *TEXTS))
    return [queries, features, numbers("position", np.int64), numbers("click", np.int64), searches, documents]
