"""Ranking of a search: features by their definitions, bands that nothing leaves, habits, and the shipped ranker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quorank.experiments
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file
from quorank.parts import to_table
from quorank.search.index import SearchCandidates
from quorank.search.ranking.search_features import (
    DAY,
    SEARCH_FEATURES,
    PastChoices,
    habits,
    rank_candidates,
    search_features,
    share,
    shipped_parameters,
)

NOW = 1_800_000_000.0
TODAY = NOW // DAY * DAY


def found(bands: list[int], **columns: object) -> SearchCandidates:
    n = len(bands)
    random = np.random.default_rng(n)
    values: dict[str, object] = {
        "ids": np.arange(1, n + 1),
        "bands": np.array(bands),
        "features": random.random((n, 16)) * 30,
        "modified": np.full(n, TODAY - 60 * DAY),
        "sources": np.ones(n, dtype=np.int64),
        "kinds": ("folder",) * n,
        "keys": tuple(f"k{i}" for i in range(n)),
        "paths": ("/x",) * n,
        "depths": np.full(n, 3),
        "names": ("x",) * n,
        "titles": ("x",) * n,
        "visits": ((),) * n,
        "title_is_query": np.zeros(n, dtype=np.bool_),
        "first_match": np.full(n, -1),
        "likeness": random.random(n) * 5,
        "match_span": np.zeros(n, dtype=np.int64),
    }
    return SearchCandidates(**(values | columns))  # type: ignore[arg-type]


NONE = PastChoices({}, 0, {}, 0, {})


def test_features_are_those_of_the_definitions() -> None:
    candidates = found(
        [2, 2, 3],
        modified=np.array([TODAY - 30 * DAY, TODAY + DAY, TODAY - 90 * DAY]),
        kinds=("folder", "mail", "firefox"),
        depths=np.array([2, 25, 0]),
        visits=((), (), (TODAY, TODAY - 30 * DAY)),
        title_is_query=np.array([False, True, False]),
        first_match=np.array([0, 20, -1]),
        likeness=np.array([3.0, 7.0, 5.0]),
        match_span=np.array([2, 8, 0]),
    )
    past = PastChoices({(1, "k0"): 8}, 10, {(1, "k2"): 1}, 4, {(1, "k0"): (TODAY - 60 * DAY,)})
    features = search_features(candidates, past, 2, NOW)
    own = dict(zip(SEARCH_FEATURES[16:], features[:, 16:].T.tolist(), strict=True))
    assert own["recency"] == pytest.approx([0.5, 1.0, 0.125])
    assert own["frecency"] == pytest.approx([0.25 / 2.25, 0.0, 1.5 / 3.5])
    assert own["chosen for this query"] == pytest.approx([8 / 13, 0, 0])
    assert own["chosen for a longer query"] == pytest.approx([0, 0, 1 / 7])
    assert [own[kind] for kind in ("file", "mail", "page")] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert own["depth of path"] == pytest.approx([0.2, 1.0, 0.0])
    assert own["title is the query"] == [0, 1, 0]
    assert own["early match"] == pytest.approx([1.0, 0.5, 0.0])
    assert own["close match"] == pytest.approx([1.0, 0.25, 0.0])
    assert own["like the first results"] == pytest.approx([0.0, 1.0, 0.5])
    low, high = candidates.features.min(axis=0), candidates.features.max(axis=0)
    assert features[:, :16] == pytest.approx((candidates.features - low) / (high - low))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_nothing_leaves_its_band_whatever_was_learned(bands: list[int], seed: int) -> None:
    candidates, random = found(bands), np.random.default_rng(seed)
    past = PastChoices({(1, f"k{seed % len(bands)}"): 9}, 10, {}, 0, {})
    features = search_features(candidates, past, 1, NOW)
    order, scores = rank_candidates(candidates, features, random.normal(0, 100, len(SEARCH_FEATURES)))
    assert sorted(order.tolist()) == list(range(len(bands)))
    assert [bands[row] for row in order] == sorted(bands)
    usual = habits(features)
    assert usual.sum() == 1
    for band in set(bands):
        rows = [row for row in order.tolist() if bands[row] == band]
        rest = rows[1:] if usual[rows[0]] else rows
        assert not usual[rest].any(), "a habit is first in its band"
        assert (np.diff(scores[rest]) <= 0).all(), "the others by score"


def test_eight_of_ten_and_three_of_three_are_habits_and_fewer_are_not() -> None:
    assert share(8, 10) >= 0.5 and share(3, 3) >= 0.5 and share(7, 10) >= 0.5
    assert share(2, 2) < 0.5 and share(1, 1) < 0.5 and share(6, 10) < 0.5
    two = found([2, 2])
    past = PastChoices({(1, "k0"): 5, (1, "k1"): 5}, 10, {}, 0, {})
    assert not habits(search_features(two, past, 1, NOW)).any(), "no habit where two are chosen as often"


def test_ties_are_broken_by_age_then_id() -> None:
    candidates = found([2] * 3, modified=np.array([TODAY - DAY, TODAY, TODAY]), ids=np.array([3, 2, 1]))
    order, _ = rank_candidates(candidates, np.zeros((3, len(SEARCH_FEATURES))), shipped_parameters())
    assert order.tolist() == [2, 1, 0]


def test_a_federation_of_searches_starts_from_the_shipped_ranker() -> None:
    file = Path(quorank.experiments.__file__).parent / "files" / "search.toml"
    experiment = Experiment.read(read_experiment_file(file))
    start = experiment.ranker.initial(len(SEARCH_FEATURES), 1)
    assert start.tolist() == shipped_parameters().tolist()
    assert experiment.federation.learner.takes_any_list  # type: ignore[attr-defined]
    server = to_table(experiment.federation.server)
    assert server["pull"] == 0.0075 and server["step"] > 1.0 and server["shrink"] == 1.0, "the step suits the noise"
