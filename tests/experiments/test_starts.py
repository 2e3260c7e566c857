"""Runs that start from a prior: every method from the same bits, and nothing needed but the run's own folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden_runs import RUNS
from quick_runs import run_quickly, stopped_run
from refusals import refused
from small_runs import document, experiment, files_of

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.run_directory import read_experiment
from quorank.experiments.runner import Runner
from quorank.experiments.unlearning.request import Unlearning
from quorank.rankers import Linear
from quorank.rankers.ranker_file import SavedRanker, ranker_bytes

WEIGHTS = "ranker.start={3=0.5,46=-0.25}"
FEW = ("federation.rounds=2", "federation.keep_every=0", "evaluation.every=2")


# runs that have a start already, whose ranker takes none, or with fewer features than WEIGHTS names
STARTED = ("start", '"trees"', "synthetic:clicks")


@pytest.mark.parametrize("name", [name for name in RUNS if not any(word in str(RUNS[name]) for word in STARTED)][::2])
def test_every_method_goes_on_from_the_start(name: str) -> None:
    """A run with a start is the run without one whose first state is changed by hand."""
    chosen = experiment(*RUNS[name], *FEW)
    if chosen.ranker.activation == "sigmoid":
        with refused("ranker.start-of-sigmoids"):
            Runner(experiment(*RUNS[name], *FEW, WEIGHTS), 1)
        return
    with_start, without = Runner(experiment(*RUNS[name], *FEW, WEIGHTS), 1), Runner(chosen, 1)
    theta = without.simulator.initial().theta
    if chosen.ranker.hidden:  # two units pass the weights on, and the others are as they were, but say nothing
        theta[46 * chosen.ranker.hidden :] = 0.0
        theta[47 * chosen.ranker.hidden :][:2] = 1.0, -1.0
        theta[:92] = 0.0
    theta[[2, 45]] = 0.5, -0.25
    if chosen.ranker.hidden:
        theta[46:92] = -theta[:46]
    assert with_start.simulator.initial().theta.tobytes() == theta.tobytes()
    without.state = replace(without.simulator.initial(), theta=theta)
    without.run()
    with_start.run()
    assert with_start.state is not None and without.state is not None
    assert with_start.state.theta.tobytes() == without.state.theta.tobytes() != theta.tobytes()
    assert with_start.summary()["online"] == without.summary()["online"]


def shipped(folder: Path) -> tuple[Path, np.ndarray]:
    """A ranker file of the kind that runs write."""
    theta = np.random.default_rng(1).normal(size=46)
    folder.mkdir(exist_ok=True)
    (folder / "prior.json").write_bytes(ranker_bytes(SavedRanker(Linear(), 46, theta)))
    return folder / "prior.json", theta


def test_a_run_needs_the_file_that_it_started_from_no_more(tmp_path: Path) -> None:
    file, theta = shipped(tmp_path / "elsewhere")
    chosen = experiment(f'ranker.start="{file}"', "federation.clients=6", "federation.keep_every=1")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run_quickly(chosen, whole, threads=1)
    stopped_run(chosen, cut, 4, threads=1)
    file.unlink()
    run_quickly(read_experiment(cut), cut, threads=1, resume=True)
    again = tmp_path / "again"
    run_quickly(Experiment.read(read_experiment_file(whole / "run.toml")), again, threads=1)
    assert files_of(whole) == files_of(cut) == files_of(again)
    assert read_experiment(whole).ranker == Linear(start=tuple(theta.tolist()))


@pytest.mark.parametrize("method", ["retrain", "fresh"])
def test_unlearning_begins_where_the_run_began(tmp_path: Path, method: str) -> None:
    file, theta = shipped(tmp_path / "elsewhere")
    chosen = experiment(f'ranker.start="{file}"', "federation.clients=6", "federation.keep_every=1")
    run_quickly(chosen, tmp_path / "run", threads=1)
    file.unlink()
    request = Unlearning(tmp_path / "run", (2,), method=method, threads=1)
    assert request.start.tobytes() == theta.tobytes()
    rebuilt = request.rebuilt.theta
    assert 0.0 < np.linalg.norm(rebuilt - theta) < np.linalg.norm(rebuilt)


@pytest.mark.parametrize(
    ("assignments", "code", "where"),
    [
        (("ranker.start.47=1",), "ranker.no-such-feature", "ranker.start.47"),
        (("ranker.start.bm25=1",), "ranker.no-such-feature", "ranker.start.bm25"),
        (("ranker.start=[1.0]",), "ranker.wrong-size", "ranker.start"),
        (("ranker.start.5=20", 'privacy="published"'), "ranker.start-too-long", "ranker.start"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, assignments: tuple[str, ...], code: str, where: str
) -> None:
    with refused(code, where):
        run_quickly(experiment(*assignments), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_mistake_is_found_at_its_place() -> None:
    with refused("ranker-file.missing", '--set ranker.start="no.json": ranker.start'):
        experiment('ranker.start="no.json"')
    with refused("option.conflict", "--set ranker.start_scale=2: ranker.start_scale"):
        Experiment.read(document("ranker.start_scale=2"))
