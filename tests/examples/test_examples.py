"""The examples run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import python

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, read_experiment_file
from quorank.experiments.grid import Grid

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
FILES = sorted((ROOT / "examples").glob("*.toml"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_program_runs_and_says_something(program: Path, tmp_path: Path) -> None:
    done = python(tmp_path, "-W", "error::RuntimeWarning", program, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.strip() and done.err == ""
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_experiment_file_is_valid(file: Path) -> None:
    document = read_experiment_file(file)
    grid = Grid.read(document)
    experiments = [cell.experiment for cell in grid.cells] if grid else [Experiment.read(document)]
    assert experiments
    for experiment in experiments:
        assert Experiment.read(parse_experiment_file("", "")) != experiment  # it changes something
        assert experiment.rounds * experiment.federation.clients <= 1_000_000  # seconds, not hours
