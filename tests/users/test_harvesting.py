"""Propensities harvested from a log: exact on expected counts, near on a generated log, refused where it cannot be told."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from quorank.data.logs.generated import generated_log, true_propensities
from quorank.data.logs.splitting import log_collection
from quorank.users.harvesting import harvested_propensities, read_propensities, shown_pairs


def test_propensities_are_exact_where_clicks_are_as_expected() -> None:
    """Documents of relevance 0.5 and 0.25 shown n times at each of three ranks, with exactly p·relevance·n clicks."""
    propensities, rows = [1.0, 0.5, 0.25], []
    for pair, (relevance, times) in enumerate([(0.5, (16, 32, 64)), (0.25, (64, 64, 32)), (0.5, (0, 16, 0))]):
        for rank, (p, n) in enumerate(zip(propensities, times, strict=True), 1):
            clicks = p * relevance * n
            assert clicks == int(clicks)
            rows += [(pair, rank, place < clicks) for place in range(n)]
    pairs, ranks, clicked = (np.array(column) for column in zip(*rows, strict=True))
    found = harvested_propensities(pairs, ranks, clicked.astype(np.int8), 3)
    assert found == pytest.approx(propensities, abs=1e-12)
    assert len(harvested_propensities(pairs, ranks, clicked.astype(np.int8), 2, 9)) == 3  # nothing is told of rank 4
    assert harvested_propensities(pairs, ranks, clicked.astype(np.int8), 2) == pytest.approx(
        propensities[:2], abs=1e-12
    )


def test_propensities_of_a_generated_log_are_found() -> None:
    collection = log_collection(generated_log("clicks", 6000, 3), "x")
    assert collection.log is not None
    found = read_propensities("harvest", 6, collection.train, collection.log.train)
    assert len(found) == 10  # as deep as the log: a ranker may lift what stood there
    assert found[:6] == pytest.approx(true_propensities(6), rel=0.15)
    given = "1,0.5,0.25", "power=2"
    tables = [read_propensities(text, 3, collection.train, collection.log.train) for text in given]
    assert tables[0].tolist() == [1.0, 0.5, 0.25] and tables[1] == pytest.approx(1 / np.arange(1, 11) ** 2)


def test_what_a_log_does_not_tell_is_refused() -> None:
    never = np.array([0, 1]), np.array([1, 2]), np.array([1, 1], dtype=np.int8)
    with refused("propensities.not-identified"):
        harvested_propensities(*never, 2)
    collection = log_collection(generated_log("aol", 20, 1), "x")
    assert collection.log is not None
    records = collection.log.train
    assert (shown_pairs(collection.train, records) < 0).sum() == 19 * 16  # only what was clicked has a name
    for text, code in (
        ("1,0.5", "propensities.too-few"),
        ("half", "propensities.unknown"),
        ("2,1,1", "value.out-of-range"),
    ):
        with refused(code):
            read_propensities(text, 3, collection.train, records)
