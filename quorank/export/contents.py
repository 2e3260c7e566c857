"""Numbers and JSON of exported files, and the arithmetic that evaluators of formats share."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from quorank.kernels.arrays import Doubles, Floats


def short_floats(values: Floats | Doubles) -> list[float]:
    """Return float32 numbers as doubles with few digits that round to them: 0.1 and not 0.10000000149011612."""
    return [float(str(value)) for value in np.asarray(values, dtype=np.float32).ravel()]


def next_float32(values: list[float]) -> Floats:
    """Return the next float32 above each value; x < that number is the same as x ≤ value."""
    return np.nextafter(np.array(values, dtype=np.float32), np.float32(np.inf))


def json_file(content: Any) -> bytes:
    """Encode an indented JSON file."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def fill_missing(features: Floats, missing: Floats | float) -> Floats:
    """Return features with NaN replaced, by one value or one for each column."""
    return np.where(np.isnan(features), np.asarray(missing, dtype=np.float32), features)


def sum_of_products(features: Any, weights: Any, start: Any = np.float32(0.0)) -> Any:  # noqa: B008 - immutable
    """Compute (rows,) start + Σ_i features[:, i]·weights[i] one product after the other, in the precision of `start`."""
    total = np.full(len(features), start)
    with np.errstate(all="ignore"):
        for column, weight in zip(features.T, weights, strict=True):
            total = total + column * weight
    return total
