"""Reader of Baidu-ULTR (Zou et al. 2022) as the University of Amsterdam released it again, with features: Feather files.

Each `.feather` file (`parts/part-0_split-0.feather`, …) is an Arrow table with a row for each document of a search, the
rows of a search together: `query_id`, `position` (from 1 on, with gaps at times), `click`, and as features those of the
lexical columns that it has (`LEXICAL`), and `query_document_embedding`, a list of numbers in half precision. `query_md5` is
kept as the query and `url_md5` as the document. There are no users and no times. Annotations (`validation.feather`), which
have a `label` and no clicks, are left out; the original token files hold no features and are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quorank.data.logs.click_log import HIGHEST_RANK, MOST_FEATURES, NO_TIME, SearchBlock
from quorank.errors import BadInput, brief, require
from quorank.files.arrow import arrow_batches
from quorank.files.untrusted import file_size
from quorank.kernels.arrays import Floats, Integers

LEXICAL = (
    "bm25", "title_bm25", "abstract_bm25", "tf_idf", "tf", "idf", "ql_jelinek_mercer_short", "ql_jelinek_mercer_long",
    "ql_dirichlet", "query_length", "document_length", "title_length", "abstract_length",
)  # fmt: skip
"""Columns of numbers about a document that later versions of the release have."""
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
    for batch in arrow_batches(path, lambda schema: _columns(path, schema, which)):
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
) -> Iterator[SearchBlock]:
    """Yield the searches of a folder's files, in the order of their names."""
    first: tuple[str, ...] | None = None
    for path in feather_files(folder):
        names = baidu_features(path, which)
        first = first or names
        require(names == first, "log.features-differ", "has other features than the first file", f"{path}")
        rest: dict[str, Any] | None = None
        row = 1
        for batch in arrow_batches(path, lambda schema, path=path: _columns(path, schema, which)):  # type: ignore[misc]
            table = _table(path, batch, len(names), row)
            row += batch.num_rows
            if rest is not None:
                table = {name: _joined(rest[name], table[name]) for name in table}
            starts = _starts(table["query_id"])
            cut = int(starts[-1]) if len(starts) else 0
            if cut:
                yield _searches(path, {name: column[:cut] for name, column in table.items()}, starts[:-1])
            rest = {name: column[cut:] for name, column in table.items()}
            sentence = "holds a search that is longer than there are ranks"
            require(len(rest["query_id"]) <= HIGHEST_RANK, "log.list-too-long", sentence, f"{path}, row {row - 1}")
        if rest is not None and len(rest["query_id"]):
            yield _searches(path, rest, np.zeros(1, dtype=np.int64))
        if counted:
            counted(file_size(path))


def _columns(path: Path, schema: Any, which: Which) -> list[str]:
    missing = next((name for name in NEEDED if name not in schema.names), None)
    sentence = f"has no column {missing}; {_EXPECTED}"
    require(missing is None, "arrow.no-column", sentence, f"{path}")
    wanted = [*NEEDED, *TEXTS]
    wanted += LEXICAL if which != "embedding" else ()
    wanted += (EMBEDDING,) if which != "lexical" else ()
    return [name for name in dict.fromkeys(wanted) if name in schema.names]


def _embeddings(path: Path, batch: Any, row: int) -> Floats:
    """The (rows, dimensions) of the embedding."""
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


def _table(path: Path, batch: Any, n_features: int, row: int) -> dict[str, Any]:
    """The columns of a batch as arrays and lists; what is no such column is refused."""
    import pyarrow as pa

    def numbers(name: str, kind: Any) -> Any:
        column = batch.column(name)
        fits = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
        sentence = f"has a column {name} that is no column of numbers, or with gaps, from row {row} on"
        require(fits and column.null_count == 0, "arrow.wrong-type", sentence, f"{path}")
        return column.to_numpy(zero_copy_only=False).astype(kind)

    def texts(name: str) -> list[str]:
        if name not in batch.schema.names:
            return [""] * batch.num_rows
        return [str(text) if text is not None else "" for text in batch.column(name).to_pylist()]

    features = np.empty((batch.num_rows, n_features), dtype=np.float32)
    lexical = [name for name in LEXICAL if name in batch.schema.names]
    for place, name in enumerate(lexical):
        features[:, place] = numbers(name, np.float32)
    if EMBEDDING in batch.schema.names:
        embedded = _embeddings(path, batch, row)
        fits = embedded.shape[1] == n_features - len(lexical)
        require(fits, "arrow.ragged", f"has embeddings of different lengths from row {row} on", f"{path}")
        features[:, len(lexical) :] = embedded
    return {
        "query_id": texts("query_id"),
        "position": numbers("position", np.int64),
        "click": numbers("click", np.int64),
        "query_md5": texts("query_md5"),
        "url_md5": texts("url_md5"),
        "features": features,
        "row": np.arange(row, row + batch.num_rows, dtype=np.int64),
    }


def _joined(before: Any, after: Any) -> Any:
    return before + after if isinstance(before, list) else np.concatenate([before, after])


def _starts(query_ids: Sequence[str]) -> Integers:
    changes = [at for at in range(len(query_ids)) if at == 0 or query_ids[at] != query_ids[at - 1]]
    return np.array(changes, dtype=np.int64)


def _searches(path: Path, table: dict[str, Any], starts: Integers) -> SearchBlock:
    rows = len(table["position"])
    for name, least, most in (("position", 1, HIGHEST_RANK), ("click", 0, 1)):
        wrong = (table[name] < least) | (table[name] > most)
        if wrong.any():
            at = int(np.argmax(wrong))
            sentence = f"found {name} {brief(table[name][at])}, expected {least} to {most:,}"
            raise BadInput(f"log.bad-{name}", sentence, f"{path}, row {table['row'][at]}")
    lengths = np.diff(np.append(starts, rows))
    order = np.lexsort((table["position"], np.repeat(np.arange(len(starts)), lengths)))
    return SearchBlock(
        [""] * len(starts),
        np.full(len(starts), NO_TIME, dtype=np.int64),
        [f"{path.stem}/{table['query_id'][start]}" for start in starts.tolist()],
        [table["query_md5"][start] for start in starts.tolist()],
        lengths.astype(np.int64),
        table["features"][order],
        table["click"][order].astype(np.int8),
        table["position"][order].astype(np.int16),
        [table["url_md5"][row] for row in order.tolist()],
        [f"{path}, row {table['row'][start]}" for start in starts.tolist()],
    )
