"""Scoring of whole arrays with NumPy alone, to the bits of the compiled kernels.

The kernels (`scoring`) add products in LANES partial sums, then the lanes pairwise. The same order over a block of rows at
once gives the same float32, so a ranker scores without loading Numba. Large arrays are scored by the
kernels, once that saves more than the time of loading Numba.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data.feature_tables import QUERY, check_columns
from quorank.data.normalisation import Normalisation
from quorank.data.ranking import LANES, grouped_rows, stride_of
from quorank.errors import BadInput, brief, require
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.rankers import Ranker, scores

BLOCK = 1024
"""Rows at a time: they stay in the processor's cache."""
COMPILED_FROM = 1_000_000_000
"""Products from which on the compiled kernels score."""


def raw_array(features: Any, group: Any, names: Sequence[str]) -> tuple[npt.NDArray[Any], Any]:
    """Return (rows, n) numbers in the order of `names`, and the groups of their rows."""
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


def filled(array: npt.NDArray[Any], missing: float, first: int = 0) -> Floats:
    """Return (rows, n) numbers as float32 with `missing` in place of NaN; what is beyond float32 is refused.

    `first` is the number of the first row, for the sentence.
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
    """Return the order that brings the rows of each list together, None where they stand so, and where lists begin.

    As many groups as rows are ids, one for each row; fewer are the sizes of lists one behind the other.
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
    """(rows,) f_θ of raw (rows, n) features: missing ones are filled, then they are normalised, then scored.

    The scores are float32, of trees float64: what the evaluator ranks by. `starts` (lists,) is where lists begin, which
    are then normalised each by its own minimum and maximum.
    """
    rows, n = features.shape
    ranker.check_size(theta, n)
    out: npt.NDArray[np.floating[Any]] = np.empty(rows, dtype=np.float64 if ranker.grown else np.float32)
    compiled = ranker.grown or rows * len(theta) > COMPILED_FROM
    packed = [] if compiled else _packed(ranker, theta, ranker.inputs(n))
    for at, lists in _blocks(rows, starts, BLOCK * 16 if compiled else BLOCK):
        block = filled(features[at], missing, at.start)
        block = normalisation.scaled(block) if lists is None else query_ranges_scaled(block, lists)
        if ranker.grown:
            out[at] = ranker.score_features(theta, block)
        elif compiled:
            out[at] = scores(ranker, theta, block)
        else:
            out[at] = _flat_scores(ranker, packed, ranker.transform(block))
    return out


def _blocks(rows: int, starts: Integers | None, size: int) -> Iterator[tuple[slice, Integers | None]]:
    """Pieces of the rows, of whole lists where there are any, with the places in a piece where lists begin."""
    if starts is None:
        yield from ((slice(at, min(at + size, rows)), None) for at in range(0, rows, size))
        return
    ends, first = np.append(starts[1:], rows), 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + size, side="right")))
        yield slice(int(starts[first]), int(ends[last - 1])), starts[first:last] - starts[first]
        first = last


def _packed(ranker: Ranker, theta: Doubles, inputs: int) -> list[Floats]:
    """θ in float32: weights (units, stride), and with a hidden layer its bias (units,) and its output (1, width)."""
    units = ranker.hidden
    weights = _padded(theta[: max(units, 1) * inputs].reshape(max(units, 1), inputs))
    if units == 0:
        return [weights]
    bias, output = theta[units * inputs :].reshape(2, units).astype(np.float32)
    return [weights, bias, _padded(output[None, :])]


def _padded(rows: npt.NDArray[Any]) -> Floats:
    out = np.zeros((len(rows), stride_of(rows.shape[1])), dtype=np.float32)
    out[:, : rows.shape[1]] = rows
    return out


def _flat_scores(ranker: Ranker, packed: list[Floats], block: Floats) -> Floats:
    with np.errstate(all="ignore"):  # as compiled code
        columns = _columns(block)
        if ranker.hidden == 0:
            return _dot(columns, packed[0][0])
        weights, bias, output = packed
        hidden = np.zeros((stride_of(ranker.hidden), len(block)), dtype=np.float32)
        for unit, row in enumerate(weights):
            reached = bias[unit] + _dot(columns, row)
            logistic = ranker.activation == "sigmoid"
            hidden[unit] = _sigmoid(reached) if logistic else np.maximum(reached, np.float32(0.0))
        return _dot(hidden.reshape(-1, LANES, len(block)), output[0])


def _columns(block: Floats) -> Floats:
    """(stride / LANES, LANES, rows) of (rows, n), zeros behind the n-th."""
    rows, n = block.shape
    out = np.zeros((stride_of(n), rows), dtype=np.float32)
    out[:n] = block.T
    return out.reshape(-1, LANES, rows)


def _dot(columns: Floats, weights: Floats) -> Floats:
    """(rows,) dot products: LANES sums over the stride, added up pairwise."""
    totals: Floats = np.zeros(columns.shape[1:], dtype=np.float32)
    for column, weight in zip(columns, weights.reshape(-1, LANES, 1), strict=True):
        totals += column * weight
    while len(totals) > 1:
        totals = totals[: len(totals) // 2] + totals[len(totals) // 2 :]
    return np.asarray(totals[0])


def _sigmoid(values: Floats) -> Floats:
    """1 / (1 + e^−x) in double by the C library, as compiled code has it; NumPy's exp differs between processors."""
    given = values.astype(np.float64)
    grown = np.fromiter(map(math.exp, -np.abs(given)), dtype=np.float64, count=len(given))
    return np.where(given >= 0.0, 1.0 / (1.0 + grown), grown / (1.0 + grown)).astype(np.float32)


def query_ranges_scaled(features: Floats, starts: Integers) -> Floats:
    """(rows, n) features brought to [0, 1] within each list by its minimum and maximum: the bits of `normalize_queries`.

    Lists begin at `starts` (lists,), which ascend from 0; each has at least one row.
    """
    if not len(features):
        return features
    low = np.minimum.reduceat(features, starts).astype(np.float64)
    scale = np.maximum.reduceat(features, starts) - low
    list_of = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(features))))
    wide = scale > 0.0
    found = features - low[list_of]
    found /= np.where(wide, scale, np.inf)[list_of]  # a feature that is constant in its list becomes 0
    return found.astype(np.float32)
