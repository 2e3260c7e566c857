"""Constants of fixed normalisation by one private sum: medians, how far one client moves it, and its ε in the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from quick_runs import run_quickly
from refusals import refused
from small_runs import experiment, files_of

from quorank.data import DataSource, load
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.runner import Runner
from quorank.experiments.workload import with_learned_ranges
from quorank.federation.feature_ranges import (
    CELLS,
    FIRST,
    learned_ranges,
    noise_part,
    range_cells,
    range_mechanism,
    range_shares,
)
from quorank.privacy.composition import compose
from quorank.privacy.ledger import loss_of, read_ledger, recount
from quorank.rankers.ranker_file import read_ranker

LEARNED = 'data.normalize={ kind = "fixed" }'
PRIVATE = 'data.normalize={ kind = "fixed", epsilon = 6.0 }'
GAUSSIAN = ("privacy.kind=gaussian", "privacy.epsilon=50.0", "federation.clients=60", "data.queries=120")


def lists(*ranges: float) -> tuple[np.ndarray, np.ndarray]:
    """One feature, a list of two documents for each range."""
    features = np.array([[value] for width in ranges for value in (7.0, 7.0 + width)], dtype=np.float32)
    return features, np.arange(0, len(features) + 1, 2)


def test_cells_are_decades_of_the_range_within_a_list() -> None:
    cells = range_cells(*lists(0.0, 1.0, 9.0, 10.0, 2e6, 3e12, 1e-5))
    assert cells[:, 0].tolist() == [-1, *(power - FIRST for power in (0, 0, 1, 6)), CELLS - 1, 0 - FIRST - 5]


def test_a_client_moves_the_sum_by_no_more_than_the_clip() -> None:
    random = np.random.default_rng(1)
    cells = random.integers(-1, CELLS, size=(50, 7)).astype(np.int8)
    own = [np.arange(0), np.arange(1), np.arange(50), random.integers(0, 50, size=9)]
    rows = range_shares(cells, own)
    assert np.linalg.norm(rows, axis=1).max() <= 1.0 + 1e-12 and np.linalg.norm(rows[0]) == 0.0
    one = np.full((1, 7), 3, dtype=np.int8)
    assert np.linalg.norm(range_shares(one, [np.arange(1)])) == pytest.approx(1.0)  # nobody's is longer


def test_the_range_is_the_median_within_its_decade() -> None:
    """Five clients in [1, 10), five in [100, 1000), one without any range: the middle is where the first decade ends."""
    cells = range_cells(*lists(*[2.0] * 5, *[300.0] * 5, 0.0))
    assert learned_ranges(cells, [np.array([i]) for i in range(11)], None).tolist() == [10.0]
    cells = range_cells(*lists(*[2.0] * 9))
    assert learned_ranges(cells, [np.array([i]) for i in range(9)], None).tolist() == [3.16]  # the middle of 1 … 10


def test_noise_keeps_the_decade_where_there_are_clients_enough_and_refuses_otherwise() -> None:
    random = np.random.default_rng(2)
    cells = (random.random((2000, 4)) < 0.9).astype(np.int8) + np.arange(4, 8, dtype=np.int8)
    own = [np.array([i]) for i in range(2000)]
    exact = learned_ranges(cells, own, None)
    noisy = learned_ranges(cells, own, range_mechanism(noise_part(1.0, 1e-5), 2000, 4, 1))
    assert not np.array_equal(exact, noisy) and np.abs(np.log10(noisy / exact)).max() < 0.2
    cells = random.integers(0, CELLS, size=(100, 4)).astype(np.int8)
    for clients in (100, 20):  # no cell stands out; nothing ever could
        with refused("normalisation.too-much-noise", "data.normalize"):
            mechanism = range_mechanism(noise_part(1.0, 1e-5), clients, 4, 1)
            learned_ranges(cells[:clients], own[:clients], mechanism)


def test_a_run_learns_the_constants_writes_them_down_and_repeats_itself(tmp_path: Path) -> None:
    run_quickly(experiment(LEARNED), tmp_path / "run")
    written = read_experiment_file(tmp_path / "run" / "run.toml")
    saved = read_ranker(tmp_path / "run")
    assert saved.normalisation.kind == "fixed" and len(saved.normalisation.high) == 46
    assert written.tables["data"]["normalize"]["high"] == list(saved.normalisation.high)
    run_quickly(Experiment.read(written), tmp_path / "again")
    assert files_of(tmp_path / "run") == files_of(tmp_path / "again")
    raw = load(DataSource("synthetic:mq2007", queries=60, normalize="none")).test
    scaled = load(DataSource("synthetic:mq2007", queries=60, normalize=saved.normalisation)).test
    assert np.array_equal(scaled.features, saved.normalisation.scaled(raw.features))


def test_what_constants_cost_is_in_the_ledger_and_in_the_ranker(tmp_path: Path) -> None:
    run_quickly(experiment(PRIVATE, *GAUSSIAN), tmp_path / "run")
    book = read_ledger(tmp_path / "run")
    entry, stated = book["normalisation"], book["altogether"]
    assert entry["privacy"]["epsilon"] == pytest.approx(6.0, abs=1e-3) and entry["privacy"]["delta"] == 1e-5
    assert recount(entry) == pytest.approx(entry["privacy"]["epsilon"])
    assert entry["releases"][0]["noise"] == pytest.approx(entry["privacy"]["noise_multiplier"])
    alone, loss = book["privacy"]["epsilon"], loss_of(book)
    assert loss is not None and stated["epsilon"] == pytest.approx(compose(loss, stated["delta"]).epsilon)
    assert alone < stated["epsilon"] < alone + 6.0 and "ranges of features" in stated["horizon"]
    told = read_ranker(tmp_path / "run").origin.privacy
    assert told["epsilon"] == pytest.approx(stated["epsilon"], rel=1e-5) and told["horizon"] == stated["horizon"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["privacy"]["epsilon"] == stated["epsilon"]


def test_the_noise_is_none_of_the_runs_own() -> None:
    """Two releases with the same draws would tell their difference without any noise."""
    chosen = with_learned_ranges(experiment(PRIVATE, *GAUSSIAN))
    other = with_learned_ranges(experiment(PRIVATE, *GAUSSIAN, "seed=2"))
    assert chosen.data.normalize.high != other.data.normalize.high
    ours = range_mechanism(noise_part(6.0, 1e-5), 60, 46, 1)
    runs = Runner(chosen, threads=1).mechanism
    assert ours.seed != runs.seed  # type: ignore[attr-defined]


def test_constants_come_from_a_file_or_from_another_ranker(tmp_path: Path) -> None:
    given = {"low": [0.0] * 46, "high": [2.0] * 46}
    (tmp_path / "constants.json").write_text(json.dumps(given))
    chosen = experiment(f'data.normalize={{ kind = "fixed", file = "{tmp_path}/constants.json" }}')
    assert chosen.data.normalize.high == (2.0,) * 46 and chosen.data.normalize.file == ""
    run_quickly(chosen, tmp_path / "run")
    again = experiment(f'data.normalize={{ kind = "fixed", file = "{tmp_path}/run/ranker.json" }}')
    assert again.data.normalize == chosen.data.normalize
    with refused("normalisation.wrong-size"):
        Runner(experiment('data.normalize={ kind = "fixed", low = [0.0], high = [1.0] }'), threads=1)
