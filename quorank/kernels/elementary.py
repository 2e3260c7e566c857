"""Elementary functions of arrays with the same bits on every processor that has fused multiply-add.

NumPy's exp, log, log1p and tanh have other last bits on processors with wider vectors. Here every value goes through the C
library, one at a time.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import kernel


def exp(values: npt.ArrayLike) -> Doubles:
    """Compute e^x of each value."""
    return _each(values, 0)


def log(values: npt.ArrayLike) -> Doubles:
    """Compute ln x of each value; they must be above 0."""
    return _each(values, 1)


def log1p(values: npt.ArrayLike) -> Doubles:
    """Compute ln(1 + x) of each value; they must be above −1."""
    return _each(values, 2)


def tanh(values: npt.ArrayLike) -> Doubles:
    """Compute the hyperbolic tangent of each value."""
    return _each(values, 3)


def _each(values: npt.ArrayLike, function: int) -> Doubles:
    array = np.asarray(values, dtype=np.float64)
    out = np.empty(array.size)
    _fill(np.ascontiguousarray(array).reshape(-1), function, out)
    return out.reshape(array.shape)


@kernel
def _fill(values: Doubles, function: int, out: Doubles) -> None:
    for i in range(len(values)):
        if function == 0:
            out[i] = math.exp(values[i])
        elif function == 1:
            out[i] = math.log(values[i])
        elif function == 2:
            out[i] = math.log1p(values[i])
        else:
            out[i] = math.tanh(values[i])
