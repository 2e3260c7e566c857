"""Trust by direction (FLTrust: Cao et al. 2021, "FLTrust: Byzantine-robust federated learning via trust bootstrapping").

An update counts by the cosine of its angle to a reference, nothing if it points away from it, and all updates are
brought to the length of the reference first: neither a reversed nor an inflated update does harm. The reference is an
update that the coordinator trusts, learned from clicks of its own; one as noisy as a client's is enough.

There is no part of this kind: a rule sees only what the cohort sent, and a reference made from that is as far as the
malicious clients could bend it. (With the geometric median for a reference the rule is no better than the geometric
median itself, and shorter.)
"""

from __future__ import annotations

import numpy as np

from quorank.arrays import Doubles
from quorank.compiled import kernel
from quorank.federation.rules.distances import distances_to, weighted_sum


def trust_scores(rows: Doubles, reference: Doubles) -> Doubles:
    """TS_i = max(0, cos(x_i, reference)); an update or a reference of length 0 has no direction and no trust."""
    lengths = distances_to(rows, np.zeros(rows.shape[1]))
    length = float(np.sqrt(np.sum(reference**2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = products(rows, reference) / lengths / length
    return np.where(np.isfinite(cosines), np.maximum(cosines, 0.0), 0.0)


def trusted_mean(rows: Doubles, reference: Doubles) -> Doubles:
    """Σ TS_i·(‖reference‖ / ‖x_i‖)·x_i / Σ TS_i; zero, if nobody is trusted."""
    trust = trust_scores(rows, reference)
    if not trust.any():
        return np.zeros(rows.shape[1])
    lengths = distances_to(rows, np.zeros(rows.shape[1]))
    length = float(np.sqrt(np.sum(reference**2)))
    share = np.where(trust > 0.0, trust / np.where(trust > 0.0, lengths, 1.0), 0.0) * (length / trust.sum())
    return np.asarray(weighted_sum(rows, share), dtype=np.float64)


@kernel
def products(rows: Doubles, vector: Doubles) -> Doubles:
    """⟨x_i, vector⟩ for every row, in a fixed order of summation."""
    out = np.zeros(len(rows))
    for i in range(len(rows)):
        for k in range(rows.shape[1]):
            out[i] += rows[i, k] * vector[k]
    return out
