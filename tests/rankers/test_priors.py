"""Rankers that start from what somebody has: a file, parameters, or weights of features by number and name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from quorank.data.normalisation import RawFeatures, WithinQuery
from quorank.data.ranking import RankingData
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.run_directory import config_bytes
from quorank.parts import Numbers
from quorank.protocol.terms import Terms
from quorank.rankers import MLP, Linear, Ranker, scores
from quorank.rankers.ranker import MOST, Prior
from quorank.rankers.ranker_file import SavedRanker, ranker_bytes
from quorank.rankers.starting import SPREAD, read_start, with_start

QUERY = WithinQuery()
NAMES = ("BM25 of body", "", "LMIR.ABS of title", "length", "Length")


def lists(n_features: int = 5, seed: int = 1) -> RankingData:
    """Forty lists of one to nine documents, with features of both signs."""
    random = np.random.default_rng(seed)
    offsets = np.cumsum([0, *random.integers(1, 10, size=40)])
    features = random.normal(size=(offsets[-1], n_features)).astype(np.float32)
    return RankingData.from_arrays(features, random.integers(0, 3, size=offsets[-1]), offsets)


def saved(path: Path, ranker: Ranker, theta: Any, n_features: int = 5) -> str:
    path.write_bytes(ranker_bytes(SavedRanker(ranker, n_features, np.asarray(theta, dtype=np.float64))))
    return str(path)


def test_weights_count_features_from_one() -> None:
    ranker = Linear(start={5: 20.0, "2": -0.1})
    assert ranker.initial(5, 7).tobytes() == np.array([0.0, -0.1, 0.0, 0.0, 20.0]).tobytes()
    assert ranker.initial(6, 7).tolist() == [0.0, -0.1, 0.0, 0.0, 20.0, 0.0]
    assert Linear(start={2: 0.1}, start_scale=3.0).initial(2, 7).tolist() == [0.0, 0.1 * 3.0]


def test_a_network_begins_as_the_linear_ranker_to_the_last_bit() -> None:
    data, random = lists(), np.random.default_rng(4)
    weights = tuple(random.normal(size=5).tolist())
    linear = scores(Linear(start=weights), Linear(start=weights).initial(5, 1), data)
    for hidden in (2, 3, 64):
        ranker = MLP(hidden, start=weights, start_scale=None)
        assert scores(ranker, ranker.initial(5, 1), data).tobytes() == linear.tobytes()
    by_number = MLP(8, start=dict(enumerate(weights, 1)))
    assert by_number.initial(5, 1).tobytes() == MLP(8, start=weights).initial(5, 1).tobytes()


def test_the_rule_brings_the_middle_list_to_the_stated_spread() -> None:
    data, weights = lists(), np.random.default_rng(6).normal(size=5)
    ranker = with_start(Linear(start=tuple(weights.tolist()), start_scale="rule"), 5, QUERY, sample=data)
    theta = ranker.initial(5, 1)
    ranges = [np.ptp(data.features[data.rows_of(q)].astype(np.float64) @ theta) for q in range(data.n_queries)]
    assert np.median([r for r in ranges if r > 0.0]) == pytest.approx(SPREAD, rel=0.006)  # three digits
    assert ranker.start_scale == float(f"{ranker.start_scale:.3g}")


def test_features_are_found_by_their_names_however_they_are_typed() -> None:
    for key in ("BM25 of body", "bm25-of-body", "bm25_of_body", "BM25  OF body"):
        found = with_start(Linear(start={key: 20.0, "lmir-abs-of-title": 1.0, "2": 3.0}), 5, QUERY, NAMES)
        assert found == Linear(start={1: 20.0, 3: 1.0, 2: 3.0})


@pytest.mark.parametrize(
    ("start", "code", "where"),
    [
        ({"6": 1.0}, "ranker.no-such-feature", "start.6"),
        ({"0": 1.0}, "ranker.no-such-feature", "start.0"),
        ({"bm25": 1.0}, "ranker.no-such-feature", "start.bm25"),
        ({"-1": 1.0}, "ranker.no-such-feature", "start.-1"),
        ({"": 1.0}, "ranker.no-such-feature", "start."),
        ({"99999999999999999999": 1.0}, "ranker.no-such-feature", "start.99999999999999999999"),
        ({"length": 1.0}, "ranker.ambiguous-feature", "start.length"),
        ({"1": 1.0, "bm25-of-body": 1.0}, "ranker.feature-twice", "start.bm25-of-body"),
        ((1.0, 2.0), "ranker.wrong-size", "start"),
        ((1.0,) * 6, "ranker.wrong-size", "start"),
        ("absent.json", "ranker-file.missing", "start"),
    ],
)
@pytest.mark.parametrize("ranker", [Linear(), MLP(3)])
def test_a_start_that_the_data_does_not_have(ranker: Ranker, start: Any, code: str, where: str) -> None:
    given = Prior(Numbers(start) if isinstance(start, dict) else start)
    with refused(code, where):
        with_start(ranker.with_prior(given), 5, QUERY, NAMES)


def test_a_file_of_the_same_or_of_a_linear_ranker(tmp_path: Path) -> None:
    weights, network = [0.1, 0.2, -0.3, 0.0, 1 / 3], np.random.default_rng(7).normal(size=MLP(3).size(5))
    linear, mlp = saved(tmp_path / "l.json", Linear(), weights), saved(tmp_path / "m.json", MLP(3), network)
    assert with_start(Linear(start=linear), 5, QUERY).initial(5, 1).tolist() == weights
    assert with_start(MLP(3, start=mlp), 5, QUERY).initial(5, 1).tobytes() == network.tobytes()
    assert with_start(MLP(7, start=linear), 5, QUERY) == MLP(7, start=tuple(weights))
    for ranker in (Linear(start=mlp), MLP(4, start=mlp)):
        with refused("ranker-file.other-kind", "start"):
            read_start(ranker, QUERY)
    with refused("ranker-file.other-normalisation", "start"):
        read_start(Linear(start=linear), RawFeatures())
    with refused("ranker.wrong-size", "start"):
        with_start(Linear(start=linear), 6, QUERY)
    (tmp_path / "l.json").write_text("{}")
    with refused("ranker-file.other-format", "start"):
        read_start(Linear(start=linear), QUERY)


def test_the_longest_start_fits_into_the_file_of_its_run(tmp_path: Path) -> None:
    numbers = np.random.default_rng(8).normal(size=MOST) * 1e-20
    ranker = read_start(Linear(start=saved(tmp_path / "long.json", Linear(), numbers, MOST)), QUERY)
    text = config_bytes(Experiment(ranker=ranker)).decode()
    assert (
        Experiment.read(parse_experiment_file(text, "run.toml")).ranker.initial(MOST, 1).tobytes() == numbers.tobytes()
    )
    with refused("value.out-of-range", "start"):
        read_start(Linear(start=saved(tmp_path / "longer.json", Linear(), np.ones(MOST + 1), MOST + 1)), QUERY)


def test_a_ranker_file_says_nothing_of_where_its_ranker_began() -> None:
    theta, start = np.arange(5.0), {1: 20.0}
    for ranker in (Linear, MLP):
        size = ranker().size(5)
        began, own = (ranker_bytes(SavedRanker(r, 5, np.zeros(size))) for r in (ranker(start=start), ranker()))
        assert began == own
    assert json.loads(ranker_bytes(SavedRanker(Linear(), 5, theta)))["ranker"] == {"kind": "linear"}
    assert MLP(start="zero").with_prior(None).start == "zero"


def test_terms_carry_the_prior_and_never_a_file_to_read(tmp_path: Path) -> None:
    terms = Terms("run", 0, 5, 3, ranker=Linear(start={5: 20.0}, start_scale=0.5))
    told = json.loads(json.dumps(terms.table()))
    assert told["ranker"] == {"kind": "linear", "start": {"5": 20.0}, "start_scale": 0.5}
    assert Terms.read(told).ranker.initial(5, 0).tolist() == [0.0, 0.0, 0.0, 0.0, 10.0]
    path = saved(tmp_path / "secret.json", Linear(), np.ones(5))
    for ranker in ({"start": path}, {"start": {"BM25": 1.0}}, {"start": {"1": 1.0}, "start_scale": "rule"}):
        with refused("ranker.start-unknown", "start"):
            Terms.read(told | {"ranker": {"kind": "linear", **ranker}}).ranker.initial(5, 0)
