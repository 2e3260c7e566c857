"""Runs that grow trees: their files, resuming, what they refuse, and that they learn."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from quick_runs import run_quickly, stopped_run
from refusals import refused
from small_runs import files_of

from quorank.data import load
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, set_values
from quorank.experiments.runner import Runner, run_experiment
from quorank.experiments.tree_rounds import TreeRounds
from quorank.files.arrow import read_columns
from quorank.metrics.evaluator import Evaluator
from quorank.privacy.ledger import read_ledger, recount
from quorank.rankers.ranker_file import read_ranker
from quorank.reports.report import report_page

TREES = """
[data]
source = "synthetic:mq2007"
queries = 60
[ranker]
kind = "trees"
leaves = 8
[learner]
kind = "lambdamart"
depth = 3
least_lists = 20
[federation]
clients = 12
rounds = 8
[evaluation]
every = 2
"""
NOISY = (
    "learner.splits=random", "learner.batch=3", "learner.ridge=20.0", "learner.quantile_releases=2", "learner.bins=16",
    "privacy.kind=gaussian", "privacy.epsilon=200", "privacy.clip=1.0",
)  # fmt: skip


def experiment(*changes: str) -> Experiment:
    return Experiment.read(set_values(parse_experiment_file(TREES, "trees.toml"), list(changes)))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((), id="labels"),
        pytest.param(NOISY, id="noise"),
        pytest.param(("learner.feedback=clicks",), id="clicks", marks=pytest.mark.nightly),
    ],
)
def test_a_run_writes_the_usual_files_and_resumes_to_the_same_bits(tmp_path: Path, changes) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    summary = run_experiment(experiment(*changes), whole, threads=2, report=report_page)
    assert {"history.parquet", "manifest.json", "report.html", "summary.json"} <= {
        file.name for file in whole.iterdir()
    }
    history = read_columns(whole / "history.parquet", ("round", "offline_ndcg@10"))
    assert history["round"].tolist() == [2, 4, 6, 8]
    assert history["offline_ndcg@10"][-1] == summary["offline"]["ndcg@10"]
    saved = read_ranker(whole)
    evaluator = Evaluator(load(experiment().data).test, saved.ranker)
    assert evaluator.all_means([saved.theta])[0][0] == summary["offline"]["ndcg@10"]
    stopped_run(experiment(*changes), halves, 3, threads=1)
    again = run_quickly(experiment(*changes), halves, threads=1, resume=True)
    assert files_of(halves) == files_of(whole)
    timed = ("seconds", "interactions_per_second")
    assert {k: v for k, v in again.items() if k not in timed} == {k: v for k, v in summary.items() if k not in timed}


def test_secure_sums_give_the_same_ranker(tmp_path: Path) -> None:
    plain, masked = ["federation.clients=4", "federation.rounds=2"], ["privacy.kind=secure-sum", "learner.bins=16"]
    run_quickly(experiment(*plain, "learner.bins=16"), tmp_path / "plain")
    run_quickly(experiment(*plain, *masked), tmp_path / "masked")
    masked_theta, theta = (read_ranker(tmp_path / name).theta for name in ("masked", "plain"))
    assert masked_theta.tobytes() == theta.tobytes()


def test_noise_is_accounted_for_a_client_and_the_whole_run(tmp_path: Path) -> None:
    summary = run_quickly(experiment(*NOISY), tmp_path / "run")
    stated = summary["privacy"]
    assert stated["unit"] == "client" and stated["delta"] == 1e-5 and stated["epsilon"] <= 200.0
    assert stated["rounds"] == 8 + 2  # the trees', and those that bins were agreed from
    book = read_ledger(tmp_path / "run")
    assert recount(book) == pytest.approx(stated["epsilon"])
    assert book["releases"][-1]["last_round"] == 10 and book["setting"]["parameters"] == 46 * 16


def test_a_client_moves_a_release_by_the_clip_at_most() -> None:
    """Without a client all else that is released stays as it is but for one clip: what ε counts on."""
    runner = Runner(experiment(*NOISY), 1)
    assert runner.mechanism.unit_of(runner.rounds.initial().private) > 1.0
    rounds = runner.rounds
    assert isinstance(rounds, TreeRounds) and rounds.bins.most <= 16
    assert rounds.releases_before[1].tolist() == [1.0, 1.0]  # sensitivity


def test_logged_gains_are_clicks_over_propensities() -> None:
    runner = Runner(experiment("learner.feedback=clicks", "learner.power=1.0", "learner.clip=0.2"), 1)
    assert isinstance(runner.rounds, TreeRounds)
    logged = runner.rounds.logged
    assert logged is not None and len(logged.owners) == 12 * 4
    ranks = np.concatenate([np.arange(b - a) for a, b in pairwise(logged.offsets)])
    clicked = logged.gains > 0
    assert clicked.sum() == logged.clicks > 0
    assert logged.gains[clicked] == pytest.approx(np.minimum(ranks[clicked] + 1, 5.0))


@pytest.mark.parametrize(
    ("changes", "code", "where"),
    [
        (["learner.kind=pdgd", "learner.depth=3"], "part.unknown-key", None),
        (["ranker=linear"], "learner.needs-trees", "ranker"),
        (["ranker.trees=3"], "option.conflict", "ranker.trees"),
        (["attack.kind=sign-flip"], "option.conflict", "attack"),
        (["federation.aggregation=krum"], "option.conflict", "federation.aggregation"),
        (["federation.participation.kind=sampled", "federation.participation.cohort=5"], "option.conflict", None),
        (["federation.server.kind=momentum"], "option.conflict", "federation.server"),
        (["federation.client_momentum=0.5"], "option.conflict", "federation.client_momentum"),
        (["federation.keep_every=1"], "option.conflict", "federation.keep_every"),
        (["federation.personal=fedper"], "personal.nothing-to-keep", "federation.personal"),
        (["partition.kind=labels"], "option.conflict", "partition"),
        (["privacy=signs"], "privacy.no-histograms", "privacy"),
        (["privacy.kind=secure-sum", "privacy.dropouts=0.1"], "privacy.no-histograms", "privacy"),
        (["privacy=gaussian"], "privacy.noisy-histograms", "learner.splits"),
        (["learner.splits=random", "learner.depth=4"], "option.conflict", "ranker.leaves"),
        (["learner.feedback=clicks", "learner.propensities=[1.0]"], "lambdamart.too-few-propensities", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_trees_have_no_place_for_is_refused(changes, code, where) -> None:
    with pytest.raises(Exception) as caught:
        experiment(*changes)
    assert caught.value.code == code
    assert where is None or where in caught.value.where


def test_few_lists_raw_features_under_noise_and_other_engines_are_refused(tmp_path: Path) -> None:
    with refused("trees.too-few-lists", "learner.least_lists"):
        run_quickly(experiment("learner.least_lists=100"), tmp_path / "few")
    assert not (tmp_path / "few").exists()
    with refused("trees.raw-features", "data.normalize"):
        Runner(experiment(*NOISY, "data.normalize=none"), 1)
    with refused("lambdamart.no-updates", "learner"):
        run_quickly(experiment(), tmp_path / "other", engine=lambda *_: None)
    with refused("lambdamart.no-updates", "learner"):
        Runner(experiment(), 1).simulator  # noqa: B018
