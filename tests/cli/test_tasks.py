"""`tasks.py`, the file behind the README's two commands, in an environment that is there already."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and shell files")


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """This environment, as if tasks.py had made it."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    python = home / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    (home / "installed-plain").write_text(wanted)
    return os.environ | {"QUORANK_VENV": str(home)}


def tasks(environment, *arguments) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tasks.py"), *map(str, arguments)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_the_exit_code_and_the_sentence_are_those_of_the_command(environment, tmp_path) -> None:
    process = tasks(environment, "quorank", "run", "fpdgd", "--set", "federation.clients=0", "--out", tmp_path / "run")
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert told.splitlines()[-1].endswith("federation.clients: must be at least 1 and below 2^31, got 0")


def test_ctrl_c_stops_the_command_after_its_round(environment, tmp_path) -> None:
    """A terminal signals both processes; there must be one answer, and no traceback."""
    process = tasks(
        environment, "quorank", "run", "fpdgd", "--set", "federation.clients=10", "--set", "federation.rounds=300000",
        "--set", "federation.keep_every=0", "--set", "evaluation.every=1000", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    while not (tmp_path / "run" / "run.toml").exists() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(0.5)  # now it listens to signals
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert "continue with: quorank run --resume" in told
