"""Reader of documents to be scored: rows of raw features in LETOR text, CSV or Parquet, with their queries.

CSV and Parquet have a column per feature, found by its name, and optionally `qid`, `docid` and `label`; an empty field is a
missing feature. LETOR text numbers features from 1 and omits those that are 0. Rows keep the order of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data.letor.reader import read_letor_lines
from quorank.data.ranking import select_strings, widen
from quorank.errors import BadInput, brief, first_line, require
from quorank.files.arrow import untrusted_batches
from quorank.files.untrusted import read_bounded, translate_errors
from quorank.kernels.arrays import Floats

QUERY, DOCUMENT, LABEL = "qid", "docid", "label"
ID_COLUMNS = (QUERY, DOCUMENT, LABEL)  # columns that are not features
LISTED = 8  # names listed in an error
MOST_FIELD = 1 << 20  # bytes of the first line of a CSV file
_BLOCK = 4096  # rows that are turned from columns at a time
_EMPTY = ["", "NaN", "nan", "NA", "null"]


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Rows of raw features, NaN where one is missing."""

    features: Floats  # (rows, n)
    queries: Sequence[str] | None = None  # of each row
    documents: Sequence[str] | None = None  # of each row


def read_feature_table(path: Path, names: Sequence[str], missing: float = 0.0) -> FeatureTable:
    """Read a file with these features: Parquet or CSV by the ending of its name, else LETOR text."""
    ending = "".join(path.suffixes[-2:]).lower()
    if ending.endswith((".parquet", ".pq")):
        import pyarrow as pa

        batches = [*untrusted_batches(path, "parquet", code="features.unreadable")]
        with translate_errors(path, "a table"):
            table = pa.Table.from_batches(batches)
        return _of_arrow(table, names, path)
    if ending.endswith((".csv", ".csv.gz")):
        return _of_arrow(_csv(path, names), names, path, "line", 2)
    return _letor(path, len(names), missing)


def _letor(path: Path, n_features: int, missing: float) -> FeatureTable:
    sentence = f"leaves out features that are 0, and the ranker takes missing ones for {missing:g}; use CSV or Parquet"
    require(missing == 0.0, "features.missing-is-zero", sentence, f"{path}")
    data, order = read_letor_lines(path)
    sentence = f"has {data.n_features} features, and the ranker {n_features}"
    require(data.n_features <= n_features, "ranker.features-differ", sentence, f"{path}")
    features: Floats = widen(data, n_features).features
    rows = np.arange(data.n_rows) if order is None else np.argsort(order)  # of the data, in the order of the file
    queries = [data.query_ids[query] for query in data.query_of_rows()[rows].tolist()]
    documents = None if data.document_ids is None else [*select_strings(data.document_ids, rows)]
    return FeatureTable(features if order is None else features[rows], queries, documents)


def _csv(path: Path, names: Sequence[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    content = read_bounded(path, expected="expected a CSV file")
    head = bytes(content[:MOST_FIELD]).partition(b"\n")[0]
    sentence = f"its first line has more than {MOST_FIELD:,} bytes; expected the names of columns"
    require(len(head) < MOST_FIELD and head.strip(), "features.unreadable", sentence if head else "is empty", f"{path}")
    options = csv.ConvertOptions(
        column_types={name: pa.float64() for name in names} | {name: pa.string() for name in ID_COLUMNS},
        null_values=_EMPTY,
        strings_can_be_null=False,
    )

    def parse(threads: bool) -> Any:
        return csv.read_csv(pa.py_buffer(content), csv.ReadOptions(use_threads=threads), convert_options=options)

    try:
        try:
            return parse(True)
        except pa.ArrowException:
            return parse(False)  # on one thread it says which row it cannot read
    except (pa.ArrowException, ValueError, MemoryError) as error:
        raise BadInput("features.unreadable", f"is no table of numbers ({first_line(error)})", f"{path}") from None


def _of_arrow(table: Any, names: Sequence[str], path: Path, place: str = "row", first_row: int = 1) -> FeatureTable:
    """Return the features and ids of a table; errors count its rows from `first_row` and call each a `place`."""
    import pyarrow as pa

    with translate_errors(path, "a table with names in UTF-8"):
        columns = table.column_names
    check_columns(columns, names, f"{path}")
    found = []
    for name in names:
        column = table.column(name)
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type)
        require(numeric, "features.not-numbers", "expected a column of numbers", f"{path}: column {brief(name)}")
        with translate_errors(path, "a table of numbers"):
            found.append((column if column.type == pa.float32() else column.cast(pa.float64())).to_numpy())
    out = np.empty((len(table), len(names)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for first in range(0, len(out), _BLOCK):
            rows = slice(first, first + _BLOCK)
            exact = np.array([column[rows] for column in found]).T
            out[rows] = exact
            for row, at in np.argwhere(np.isinf(out[rows]) & np.isfinite(exact))[:1].tolist():
                where = f"{path}: {place} {first + row + first_row}: column {brief(names[at])}"
                raise BadInput("features.too-large", f"{exact[row, at]:g} is beyond float32, ±3.4e+38", where)
    return FeatureTable(out, *(_texts(table, name, path) for name in (QUERY, DOCUMENT)))


def _texts(table: Any, name: str, path: Path) -> list[str] | None:
    import pyarrow as pa

    if name not in table.column_names:
        return None
    column = table.column(name)
    with translate_errors(path, "a table"):
        texts = column.cast(pa.string()).to_pylist()
    if None in texts or "" in texts:
        row = next(row for row, text in enumerate(texts, 1) if not text)
        raise BadInput("features.empty-id", f"column {name} is empty in row {row}; expected an id", f"{path}")
    return [str(text) for text in texts]


def check_columns(names: Sequence[str], wanted: Sequence[str], where: str = "columns") -> None:
    """Reject a table with a missing, an unknown or a repeated column; `ID_COLUMNS` are always allowed."""
    have = {*names}
    missing = [name for name in wanted if name not in have]
    sentence = f"the ranker's {_listed(missing)} not among the {len(names)} columns; rename columns, or add empty ones"
    require(not missing, "features.missing-columns", sentence, where)
    known = {*wanted, *ID_COLUMNS}
    further = [name for name in names if name not in known]
    sentence = f"{_listed(further)} no feature of the ranker; remove what it does not rank by"
    require(not further, "features.further-columns", sentence, where)
    require(len(have) == len(names), "features.columns-twice", "expected each column once", where)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(brief(name) for name in names[:LISTED]) + (", …" if len(names) > LISTED else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'}"
