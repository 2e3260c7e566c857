"""Aggregation rules: the mean, and robust rules that need single updates."""

from __future__ import annotations

from quorank.federation.rules.centres import CentredClipping, GeometricMedian, Median, TrimmedMean
from quorank.federation.rules.neighbours import Bulyan, Krum, Mixing, MultiKrum
from quorank.federation.rules.rule import Aggregation, Mean
from quorank.federation.rules.spectral import SpectralFilter
from quorank.parts import Family

ROBUST = (Krum, MultiKrum, TrimmedMean, Median, Bulyan, CentredClipping, GeometricMedian, Mixing, SpectralFilter)
AGGREGATIONS: Family[Aggregation] = Family("aggregation", Mean, *ROBUST, base=Aggregation)

__all__ = [
    "AGGREGATIONS", "Aggregation", "Bulyan", "CentredClipping", "GeometricMedian", "Krum", "Mean", "Median", "Mixing",
    "MultiKrum", "SpectralFilter", "TrimmedMean",
]  # fmt: skip
