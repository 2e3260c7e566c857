"""List length and cut-offs apart: what is shown, and how deep it is judged."""

from __future__ import annotations

import json
from pathlib import Path

import equations
import numpy as np
import pyarrow.parquet as pq
import pytest
from quick_runs import run_quickly
from refusals import refused
from small_runs import experiment

from quorank.data import load
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.metrics.lists import ndcg
from quorank.rankers import scores
from quorank.rankers.ranker_file import read_ranker


def test_every_cutoff_is_named_and_is_what_it_says(tmp_path: Path) -> None:
    """Lists of four documents are shown, and judged at 1, 3, 10 and 20."""
    chosen = experiment("federation.rounds=4", "evaluation.every=2", "evaluation.k=4", "evaluation.cutoffs=[20,1,3]")
    summary = run_quickly(chosen, tmp_path / "run", threads=2)
    assert list(summary["offline"]) == ["ndcg@10", "maxrr", "ndcg@1", "ndcg@3", "ndcg@20"]
    assert list(summary["online"]) == ["ndcg@10", "discounted"]
    assert summary["evaluation"]["cutoffs"] == [1, 3, 10, 20]
    saved, test = read_ranker(tmp_path / "run"), load(chosen.data).test
    values = scores(saved.ranker, saved.theta, test)
    found: dict[str, list[float]] = {name: [] for name in summary["offline"]}
    for q in range(test.n_queries):
        rows = test.rows_of(q)
        labels = test.labels[rows]
        if labels.any():
            ranked = labels[np.argsort(-values[rows], kind="stable")]
            for k in (1, 3, 10, 20):
                found[f"ndcg@{k}"].append(ndcg(ranked, labels, k))
            found["maxrr"].append(equations.reciprocal_rank(ranked[:4] > 0))
    assert summary["offline"] == pytest.approx({name: np.mean(each) for name, each in found.items()}, rel=1e-9)
    history = pq.read_table(tmp_path / "run" / "history.parquet").to_pydict()
    for name, value in summary["offline"].items():
        assert len(history[f"offline_{name}"]) == 2 and history[f"offline_{name}"][-1] == value
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["offline"] == summary["offline"]


def test_cutoffs_change_nothing_else(tmp_path: Path) -> None:
    plain = run_quickly(experiment("federation.rounds=3"), tmp_path / "plain", threads=1)
    more = run_quickly(experiment("federation.rounds=3", "evaluation.cutoffs=[1,5]"), tmp_path / "more", threads=1)
    ranker = [(tmp_path / name / "ranker.json").read_bytes() for name in ("plain", "more")]
    assert ranker[0] == ranker[1] and plain["online"] == more["online"]
    assert {name: more["offline"][name] for name in plain["offline"]} == plain["offline"]


def test_depths_that_are_none_are_refused() -> None:
    assert EvaluationPlan(cutoffs=(1, 10)).further == (1,)
    for bad in ((0,), (3, 3), (-1,), (2000,)):
        with refused("value.out-of-range", "cutoffs"):
            EvaluationPlan(cutoffs=bad)
    with refused("value.wrong-type"):
        Experiment.read(parse_experiment_file("[evaluation]\ncutoffs = [1.5]\n", "file.toml"))
