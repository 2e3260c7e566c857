"""Conversion of data frames: pandas, polars and pyarrow, of which only pyarrow is always installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require

FrameKind = Literal["pandas", "polars", "pyarrow"]
FRAMES: tuple[FrameKind, ...] = get_args(FrameKind)


def to_frame(columns: Mapping[str, npt.NDArray[Any]], kind: FrameKind = "pandas") -> Any:
    """Return a `pandas.DataFrame`, `polars.DataFrame` or `pyarrow.Table` of columns.

    Args:
        columns: (rows,) values by name of the column.
        kind: Library of the result.

    Raises:
        BadInput: `package.missing` if the library is not installed, `option.unknown-value` for another name.

    >>> to_frame({"round": np.array([1, 2])}, "pyarrow").to_pydict()
    {'round': [1, 2]}
    """
    require(kind in FRAMES, "option.unknown-value", f"expected {' or '.join(FRAMES)}, got {kind!r}", "frame")
    try:
        library = import_module(kind)
    except ImportError:
        sentence = f"this needs {kind}, which is not installed; install it with: pip install 'quorank[frames]'"
        raise BadInput("package.missing", sentence, f"frame={kind!r}") from None
    return library.table(dict(columns)) if kind == "pyarrow" else library.DataFrame(dict(columns))


def columns_of(table: Any) -> list[str] | None:
    """Return the names of a data frame's columns; None for arrays and for columns without names."""
    names = getattr(table, "columns", None)
    if names is None or not hasattr(table, "shape"):
        return None
    listed = list(names)
    return listed if all(isinstance(name, str) for name in listed) else None


def take_columns(table: Any, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Split a data frame into the other columns and those named; anything else is returned unchanged."""
    own = columns_of(table) or []
    taken = {name: np.asarray(table[name]) for name in names if name in own}
    rest = [name for name in own if name not in taken]
    return (table[rest] if taken else table), taken


def to_matrix(table: Any) -> npt.NDArray[Any]:
    """Return the (rows, columns) numbers of a data frame or an array; raise BadInput for a sparse matrix."""
    sentence = "this is a sparse matrix; convert it to dense features, for example with .toarray()"
    require(not hasattr(table, "toarray"), "ranking-data.sparse", sentence, "features")
    try:
        return np.asarray(table.to_numpy() if hasattr(table, "to_numpy") else table)
    except ValueError:
        raise BadInput("ranking-data.shape", "expected rows of the same length", "features") from None
