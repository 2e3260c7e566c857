"""The aggregation rules that see single updates, so that a few malicious clients cannot choose the ranker.

Every rule has `check(n)`, which refuses a cohort that it cannot protect, and `combine_all(updates, weights)`, the
aggregated update of the (n, d) updates of a cohort.
"""

from __future__ import annotations

from quorank.federation.rules.bulyan import Bulyan
from quorank.federation.rules.centred_clipping import CentredClipping
from quorank.federation.rules.geometric_median import GeometricMedian
from quorank.federation.rules.krum import Krum, MultiKrum
from quorank.federation.rules.mixing import Mixing
from quorank.federation.rules.trimmed import Median, TrimmedMean

Robust = Krum | MultiKrum | TrimmedMean | Median | Bulyan | CentredClipping | GeometricMedian | Mixing
AGGREGATION_RULES: tuple[type[Robust], ...] = (
    Krum, MultiKrum, TrimmedMean, Median, Bulyan, CentredClipping, GeometricMedian, Mixing,
)  # fmt: skip
