"""Scoring of raw arrays and data frames by a saved ranker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data.feature_tables import QUERY, check_columns
from quorank.data.normalisation import Normalisation, list_blocks, query_ranges_scaled
from quorank.data.ranking import grouped_rows
from quorank.errors import BadInput, brief, require
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.kernels.compiled import interpreted
from quorank.rankers import Ranker, scores

FEW = 10_000  # rows times hidden units that interpreted kernels score: loading Numba takes longer


def raw_array(features: Any, group: Any, names: Sequence[str]) -> tuple[npt.NDArray[Any], Any]:
    """Return the features as (rows, n) numbers in the order of `names`, and the groups of their rows.

    Args:
        features: Array, or data frame with a column for each name.
        group: Groups of the rows; default: the column `qid` of a data frame.
        names: Names of the ranker's features.

    Raises:
        BadInput: `features.not-numbers` or `ranker.features-differ`.
    """
    columns = getattr(features, "columns", None)
    if columns is not None and hasattr(features, "__getitem__"):
        check_columns([str(name) for name in columns], names)
        if group is None and QUERY in columns:
            group = np.asarray(features[QUERY])
        dense = np.empty((len(features), len(names)), dtype=np.float64)
        for number, name in enumerate(names):
            dense[:, number] = _column(features[name], name)
        features = dense
    return _numbers(features, len(names)), group


def _column(column: Any, name: str) -> Doubles:
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        pass
    try:  # pandas has its own missing number
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
    except (TypeError, ValueError, AttributeError):
        raise BadInput("features.not-numbers", "expected a column of numbers", f"column {brief(name)}") from None


def _numbers(values: Any, n_features: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufb":
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput("features.not-numbers", "expected rows of numbers, all of the same length", "features") from None
    sentence = f"expected an array of the shape (rows, {n_features}), got {array.shape}"
    require(array.ndim == 2 and array.shape[1] == n_features, "ranker.features-differ", sentence, "features")
    return array


def fill_missing(array: npt.NDArray[Any], missing: float, first: int = 0) -> Floats:
    """Return (rows, n) float32 with `missing` in place of NaN.

    Args:
        array: (rows, n) numbers.
        missing: Value of a missing number.
        first: Number of the first row, for errors.

    Raises:
        BadInput: `features.not-finite` for a number beyond float32.

    >>> fill_missing(np.array([[1.0, np.nan]]), missing=-1.0)
    array([[ 1., -1.]], dtype=float32)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        dense = np.ascontiguousarray(array, dtype=np.float32)
        whole = np.isfinite(dense.sum())
    if whole:  # nothing is missing, nothing is infinite
        return dense
    dense = np.where(np.isnan(dense), np.float32(missing), dense)
    wrong = ~np.isfinite(dense)
    if wrong.any():
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        sentence = f"feature {column + 1} is {array[row, column]}; expected numbers within ±3.4e38, or NaN"
        raise BadInput("features.not-finite", sentence, f"row {first + row}")
    return dense


def list_starts(group: Any, rows: int) -> tuple[Integers | None, Integers]:
    """Return the order that groups the rows by list, None if they are grouped, and the first row (lists,) of each list.

    Args:
        group: One id per row, or the sizes of consecutive lists.
        rows: Number of rows.

    Raises:
        BadInput: `features.no-group` without a group; the errors of `grouped_rows` for another one.

    >>> list_starts([2, 1], rows=3)
    (None, array([0, 2]))
    """
    if group is None:
        sentence = (
            "this ranker's features are normalised within each query's list: say by group which rows are one list, "
            'by an id for each row or by the sizes; or train with data.normalize = "fixed"'
        )
        raise BadInput("features.no-group", sentence, "group")
    order, offsets, _ = grouped_rows(group, rows)
    together = bool((order[1:] > order[:-1]).all())
    return None if together else order, offsets[:-1]


def scored_arrays(
    ranker: Ranker,
    theta: Doubles,
    features: npt.NDArray[Any],
    missing: float,
    normalisation: Normalisation,
    starts: Integers | None = None,
) -> npt.NDArray[np.floating[Any]]:
    """Fill, normalise and score raw features.

    Args:
        ranker: Scoring function.
        theta: (size,) θ.
        features: (rows, n) raw features.
        missing: Value of a missing feature.
        normalisation: Normalisation of all rows.
        starts: (lists,) first row of each list, if lists are normalised by their own minimum and maximum.

    Returns:
        (rows,) float32 scores, of trees float64, as the evaluator ranks by.
    """
    rows, n = features.shape
    ranker.check_size(theta, n)
    out: npt.NDArray[np.floating[Any]] = np.empty(rows, dtype=np.float64 if ranker.grown else np.float32)
    few = rows * max(1, ranker.hidden, ranker.size(n) if ranker.grown else 0) <= FEW
    with interpreted() if few else nullcontext():
        for at, lists in list_blocks(rows, starts):
            block = fill_missing(features[at], missing, at.start)
            block = normalisation.scaled(block) if lists is None else query_ranges_scaled(block, lists)
            out[at] = ranker.score_features(theta, block) if ranker.grown else scores(ranker, theta, block)
    return out
