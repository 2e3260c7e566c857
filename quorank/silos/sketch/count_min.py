"""Count-Min sketch of one document (Cormode and Muthukrishnan 2005), which CS-F-LTR §IV-A names as the other choice.

C(a, h_a(t)) grows by one for each occurrence of t, and the estimate is min_a C(a, h_a(t)): never less than the count, and
more only if other terms of the document fell into the term's cell in every row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quorank.arrays import Doubles, Int32s
from quorank.silos.sketch import count_sketch


def count_min_table(columns: Int32s, counts: npt.ArrayLike, width: int) -> Int32s:
    """The (z, w) sketch of a document from its terms' (terms, z) columns and their counts."""
    return count_sketch.count_sketch_table(columns, np.ones(columns.shape, dtype=np.int8), counts, width)


def count_min_estimate(values: npt.ArrayLike) -> Doubles:
    """min_a C(a, h_a(t)), for (…, z) cells."""
    return np.asarray(np.min(np.asarray(values), axis=-1), dtype=np.float64)
