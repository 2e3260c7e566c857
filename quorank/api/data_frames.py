"""Data frames in and out: pandas and polars, each used where it is installed and asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require

FrameKind = Literal["pandas", "polars"]
FRAMES = ("pandas", "polars")


def to_frame(columns: Mapping[str, npt.NDArray[Any]], kind: FrameKind = "pandas") -> Any:
    """Return a DataFrame of these columns."""
    require(kind in FRAMES, "option.unknown-value", f"expected {' or '.join(FRAMES)}, got {kind!r}", "frame")
    try:
        library = import_module(kind)
    except ImportError:
        sentence = f"this needs {kind}, which is not installed; install it with: pip install 'quorank[frames]'"
        raise BadInput("package.missing", sentence, f"frame={kind!r}") from None
    return library.DataFrame(dict(columns))


def columns_of(table: Any) -> list[str] | None:
    """Return the names of a data frame's columns; None of what is no data frame, or has no names."""
    names = getattr(table, "columns", None)
    if names is None or not hasattr(table, "shape"):
        return None
    found = list(names)
    return found if all(isinstance(name, str) for name in found) else None


def take_columns(table: Any, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Return (the data frame without these columns, those of them that it has); anything else as it is."""
    own = columns_of(table) or []
    found = {name: np.asarray(table[name]) for name in names if name in own}
    rest = [name for name in own if name not in found]
    return (table[rest] if found else table), found


def to_matrix(table: Any) -> npt.NDArray[Any]:
    """Return a data frame's or an array's numbers, (rows, columns); sparse matrices are refused by name."""
    refused = hasattr(table, "toarray")
    sentence = "this is a sparse matrix; give dense features, for example with .toarray()"
    require(not refused, "ranking-data.sparse", sentence, "features")
    try:
        return np.asarray(table.to_numpy() if hasattr(table, "to_numpy") else table)
    except ValueError:
        raise BadInput("ranking-data.shape", "expected rows of the same length", "features") from None
