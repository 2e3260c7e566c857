"""Aggregation rules: the mean, and robust rules that need single updates."""

from __future__ import annotations

from quorank.federation.rules.bulyan import Bulyan
from quorank.federation.rules.centred_clipping import CentredClipping
from quorank.federation.rules.geometric_median import GeometricMedian
from quorank.federation.rules.krum import Krum, MultiKrum
from quorank.federation.rules.mixing import Mixing
from quorank.federation.rules.rule import Aggregation, Mean
from quorank.federation.rules.spectral import SpectralFilter
from quorank.federation.rules.trimmed import Median, TrimmedMean
from quorank.parts import Family

AGGREGATIONS: Family[Aggregation] = Family(
    "aggregation",
    Mean,
    Krum,
    MultiKrum,
    TrimmedMean,
    Median,
    Bulyan,
    CentredClipping,
    GeometricMedian,
    Mixing,
    SpectralFilter,
    base=Aggregation,
)

__all__ = [
    "AGGREGATIONS", "Aggregation", "Bulyan", "CentredClipping", "GeometricMedian", "Krum", "Mean", "Median", "Mixing",
    "MultiKrum", "SpectralFilter", "TrimmedMean",
]  # fmt: skip
