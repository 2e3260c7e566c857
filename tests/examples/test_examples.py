"""The examples run as they stand; those of a device take part in a run of a real service."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import python
from real_services import real_service, until

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, read_experiment_file
from quorank.experiments.grid import Grid
from quorank.member import local_socket
from quorank.service.enrolment import invite

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEVICE = ROOT / "examples" / "device"
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


def test_the_example_applications_take_part(tmp_path: Path) -> None:
    with real_service(tmp_path / "home", clients=2, rounds=50) as service:
        store = service.home.store()
        for name in ("python", "script"):
            invite(service.home, store, name, tmp_path / f"{name}.json")
        store.close()
        words = [sys.executable, str(DEVICE / "application.py"), str(tmp_path / "one"), str(tmp_path / "python.json")]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.startswith(("sent: ", "nothing: "))
        if shutil.which("node") is None:
            pytest.skip("no node here")
        join = [sys.executable, "-m", "quorank.cli.main", "join", "--data", str(tmp_path / "two")]
        (tmp_path / "policy.toml").write_text("unstated = true\ncohort = 2\n")
        join += ["--bundle", str(tmp_path / "script.json"), "--policy", str(tmp_path / "policy.toml")]
        with subprocess.Popen(join, stderr=subprocess.DEVNULL) as child:
            try:
                until(lambda: local_socket.call(tmp_path / "two", "status") is not None)
                script = ["node", str(DEVICE / "application.mjs"), str(tmp_path / "two"), "agree"]
                done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
                assert done.returncode == 0, done.stderr
                assert "1 releases so far" in done.stdout
            finally:
                child.terminate()
                child.wait(30)
