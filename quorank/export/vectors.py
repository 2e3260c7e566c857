"""Test vectors of an export: rows of features in lists, with Quorank's scores of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.export.comparison import expected_scores, normalise_lists
from quorank.export.contents import content_of, short_floats
from quorank.export.exported_ranker import ExportedRanker
from quorank.files.codec import Length, Range
from quorank.files.documents import json_bytes, parse_json
from quorank.kernels.arrays import Doubles, Floats, Integers

FILE, FORMAT = "vectors.json", "quorank-vectors/1"
LISTS, DOCUMENTS = 12, 6
MOST_NUMBERS = 200_000
"""Features of all rows together: rankers with many features get fewer rows."""
_SEED = 2027
_NEAREST = np.float32(2.0**-42)
"""Least distance of a number next to a threshold: Solr cannot distinguish all closer ones."""


@dataclass(frozen=True)
class _VectorsFile:
    """Content of the file: rows of features, the list of each row, and its score."""

    format: Literal["quorank-vectors/1"]
    features: Annotated[
        list[Annotated[list[Annotated[float | None, Range(-3.5e38, 3.5e38)]], Length(1 << 20)]], Length(10_000)
    ]
    lists: Annotated[list[Annotated[int, Range(0, 10_000)]], Length(10_000)]
    scores: Annotated[list[Annotated[float, Range(-1e300, 1e300)]], Length(10_000)]


class ScoredVectors(NamedTuple):
    """Rows in lists with their expected scores."""

    features: Floats  # (rows, n), NaN where one is missing
    offsets: Integers  # (lists + 1,)
    scores: Doubles  # (rows,)


def vectors_of(exported: ExportedRanker) -> ScoredVectors:
    """Sample vectors for a ranker: common values, missing ones, all zeros, and values at thresholds and next to them."""
    n = exported.saved.n_features
    lists = max(2, min(LISTS, MOST_NUMBERS // (n * DOCUMENTS)))
    offsets = np.arange(lists + 1) * DOCUMENTS
    random = np.random.Generator(np.random.Philox(_SEED))
    share = random.random((lists * DOCUMENTS, n))
    x = (share * 1.5 - 0.25) if exported.normalisation.low else share
    features = (exported.low + x * exported.span).astype(np.float32)
    if exported.family == "trees":
        _insert_thresholds(features, exported, random)
    features[1] = 0.0
    if exported.prenormalised:
        features = normalise_lists(features, offsets)
    else:
        missing = random.random(features.shape) < 0.1
        missing[: (lists // 2) * DOCUMENTS] = False
        missing[-1] = True
        features[missing] = np.nan
    return ScoredVectors(features, offsets, expected_scores(exported, features, offsets))


def _insert_thresholds(features: Floats, exported: ExportedRanker, random: np.random.Generator) -> None:
    """Replace most features that trees split by with thresholds, and with numbers next to them."""
    limits: dict[int, list[float]] = {}
    for tree in exported.trees:
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            if feature >= 0:
                limits.setdefault(feature, []).append(threshold)
    for feature, thresholds in limits.items():
        chosen = np.array(thresholds, dtype=np.float32)[random.integers(0, len(thresholds), len(features))]
        beside = chosen
        for _ in range(2):
            beside = np.nextafter(beside, np.float32(np.inf))
        beside = np.maximum(beside, chosen + _NEAREST)
        kind = random.random(len(features))
        features[:, feature] = np.where(kind < 0.4, chosen, np.where(kind < 0.7, beside, features[:, feature]))


def vectors_bytes(vectors: ScoredVectors) -> bytes:
    """Encode vectors; a missing feature is null."""
    rows = [[None if value != value else value for value in short_floats(row)] for row in vectors.features]
    lists = np.repeat(np.arange(len(vectors.offsets) - 1), np.diff(vectors.offsets)).tolist()
    content: dict[str, Any] = {"format": FORMAT, "features": rows, "lists": lists, "scores": vectors.scores.tolist()}
    return json_bytes(content)


def read_vectors(files: Mapping[str, bytes], n_features: int) -> ScoredVectors:
    """Read the vectors of an export."""
    content = parse_json(content_of(files, FILE), _VectorsFile, FILE, code="export.damaged")
    rows, lists = content.features, content.lists
    complete = len(rows) == len(lists) == len(content.scores) > 0 and all(len(row) == n_features for row in rows)
    consecutive = lists[:1] == [0] and all(b - a in (0, 1) for a, b in pairwise(lists))
    values = np.array([[np.nan if value is None else value for value in row] for row in rows]) if complete else np.inf
    with np.errstate(over="ignore"):
        features = np.asarray(values, dtype=np.float32)
    sentence = f"expected rows of {n_features} features, the list of each from 0, and its score"
    require(complete and consecutive and not np.isinf(features).any(), "export.damaged", sentence, FILE)
    offsets = np.searchsorted(np.array(lists), np.arange(lists[-1] + 2))
    return ScoredVectors(features, offsets, np.array(content.scores, dtype=np.float64))
