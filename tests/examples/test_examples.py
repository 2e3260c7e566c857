"""The examples run as they stand, and the README's experiment is one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from quorank.cli.main import app
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, read_experiment_file
from quorank.experiments.grid import Grid

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
FILES = sorted((ROOT / "examples").glob("*.toml"))


def test_there_are_examples() -> None:
    assert len(PROGRAMS) >= 2 and FILES


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_program_runs_and_says_something(program: Path, tmp_path: Path) -> None:
    import os

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and done.stderr == ""
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


def test_the_experiment_in_the_readme_is_valid() -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        Experiment.read(parse_experiment_file(block, "README.md"))


def test_commands_of_the_readme_exist_with_their_options() -> None:
    text = (ROOT / "README.md").read_text()
    lines = [line for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    commands = [line.split("#")[0].split()[1:] for line in lines if line.startswith("quorank ")]
    assert len(commands) >= 5
    for words in commands:
        command = get_command(app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        assert not hasattr(command, "commands"), words
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words
