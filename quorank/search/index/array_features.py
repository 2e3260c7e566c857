"""The sixteen text features of many documents at once, as array operations.

The equations are those of `quorank.text.features` with their default parameters, whose kernel would load Numba (half a
second and 105 MB in a process that answers a person who types), or take 7 ms as plain Python, for 200 documents and
three terms; here they take 0.2 ms. Both agree to rounding.
"""

from __future__ import annotations

import numpy as np

from quorank.kernels.arrays import Doubles
from quorank.text.features import FIELD_FEATURES, Features, FieldStatistics, background

PARAMETERS = Features()


def bm25_weights(counts: Doubles, lengths: Doubles, mean_length: float) -> Doubles:
    """Compute c·(k1 + 1) / (c + k1·(1 − b + b·L/mean L)) for counts above 0."""
    k1, b = PARAMETERS.k1, PARAMETERS.b
    relative = lengths / mean_length if mean_length > 0.0 else np.ones_like(lengths)
    return np.asarray(counts * (k1 + 1.0) / (counts + k1 * (1.0 - b + b * relative)))


def array_features(counts: Doubles, lengths: Doubles, distinct: Doubles, statistics: FieldStatistics) -> Doubles:
    """Compute (documents, 8) the features of one field from (documents, terms) counts, in the order of FIELD_FEATURES."""
    part = PARAMETERS
    idf = part.inverse_document_frequency(statistics)
    p = background(statistics.collection_length, statistics.collection_frequency)
    length, unique = lengths[:, None], distinct[:, None]
    empty = length <= 0.0
    over = np.where(empty, 1.0, length)
    tf = counts / over
    held = counts > 0.0
    bm25 = np.where(held, bm25_weights(np.where(held, counts, 1.0), length, statistics.mean_length), 0.0)
    discounted = (np.maximum(counts - part.delta, 0.0) + part.delta * unique * p) / over
    absolute = np.where(empty, p, np.minimum(discounted, 1.0))
    dirichlet = (counts + part.mu * p) / (length + part.mu)
    jelinek = np.where(empty, p, (1.0 - part.lambda_) * counts / over + part.lambda_ * p)
    terms = (tf, held * idf, tf * idf, idf * bm25, np.log(absolute), np.log(dirichlet), np.log(jelinek))
    out = np.empty((len(lengths), len(FIELD_FEATURES)))
    out[:, 0] = lengths
    for column, values in enumerate(terms, 1):
        out[:, column] = values.sum(axis=1)
    return out
