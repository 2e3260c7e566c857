"""Ctrl-C, kill and resume as a person meets them: with signals to a process, also to one of a grid with two jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import SMALL, Outcome, Quorank, as_process, command, environment
from quick_runs import run_quickly
from small_runs import files_of

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file

LONG = """\
[data]
source = "synthetic:mq2007"
queries = 60

[federation]
clients = 2
interactions = 2
rounds = 4000

[evaluation]
every = 400
"""
SHORTER = LONG.replace("4000", "1000")
# the same command line, but a round takes a millisecond, and lines of progress tell when rounds are under way
SLOWLY = """\
import time
from quorank.cli import display, main
from quorank.experiments.workload import UpdateRounds

play = UpdateRounds.play

def slowly(self, state, most=1):
    rounds = min(most, 20)
    time.sleep(0.001 * rounds)
    return play(self, state, rounds)

UpdateRounds.play = slowly
display.LINE_SECONDS = 0.05
main.main()
"""
LINES = 3
"""Lines of progress before a signal."""


def start(folder: Path, home: Path, *arguments: object) -> subprocess.Popen[str]:
    """`quorank run …` whose rounds take their time, but none of the processor's."""
    return subprocess.Popen(
        [sys.executable, "-c", SLOWLY, "run", *map(str, arguments)],
        cwd=folder,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stopped(folder: Path, home: Path, number: signal.Signals, *arguments: object) -> Outcome:
    """A run that gets a signal while its rounds go on."""
    process = start(folder, home, *arguments)
    assert process.stderr is not None
    try:
        for _ in range(LINES):
            line = process.stderr.readline()
            assert line.startswith("run: round "), line + process.stderr.read()
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return Outcome(process.returncode, out, err)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def played(text: str, folder: Path) -> Path:
    """A run from its beginning to its end."""
    run_quickly(Experiment.read(parse_experiment_file(text, "long.toml")), folder, threads=1)
    return folder


def test_a_run_that_is_still_going_is_neither_resumed_nor_replaced(own_folder: Path, tmp_path: Path) -> None:
    Path("long.toml").write_text(LONG)
    longer = ("--set", "federation.rounds=200000", "--set", "evaluation.every=100000")
    process = start(own_folder, tmp_path, "long.toml", *longer, "--out", "made", "--threads", 1)
    assert process.stderr is not None
    try:
        for _ in range(LINES):
            process.stderr.readline()
        before = {path.name: path.read_bytes() for path in Path("made").iterdir()}
        for how in (("--resume", "made"), ("long.toml", "--out", "made", "--overwrite")):
            told = as_process(own_folder, tmp_path, "run", *how).refused()
            assert told == "made: another process plays this run; wait until it has ended, or stop it"
        assert {path.name: path.read_bytes() for path in Path("made").iterdir()} == before and process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(LONG, tmp_path_factory.mktemp("uninterrupted") / "run")


@pytest.mark.usefixtures("no_pages")
def test_ctrl_c_then_resume_then_kill_then_resume(
    own_folder: Path, tmp_path: Path, uninterrupted: Path, quorank: Quorank
) -> None:
    """Stopped by Ctrl-C, by a kill and by SIGTERM, the run still ends in the same bits."""
    Path("long.toml").write_text(LONG)
    made = own_folder / "made"
    first = stopped(own_folder, tmp_path, signal.SIGINT, "long.toml", "--out", "made", "--threads", 1, "--json")
    assert first.code == 130 and first.out == "" and "Traceback" not in first.err
    last = first.err.splitlines()[-1]
    assert last.startswith("quorank: stopped after round ") and last.endswith("quorank run --resume made")
    reached = int(last.split()[4])
    assert 1 <= reached < 4000 and "of 4000" in last
    assert names(made) == {"run.toml", "checkpoint.npz"}

    sentence = quorank("compare", "made").refused()
    assert "unfinished" in sentence and "--resume made" in sentence
    assert "--resume made" in quorank("run", "long.toml", "--out", "made").refused()

    second = stopped(own_folder, tmp_path, signal.SIGINT, "--resume", "made", "--threads", 1)
    assert second.code == 130
    further = int(second.err.splitlines()[-1].split()[4])
    assert reached < further < 4000
    kept = (made / "checkpoint.npz").read_bytes()

    killed = stopped(own_folder, tmp_path, signal.SIGKILL, "--resume", "made", "--threads", 1)
    assert killed.code == -signal.SIGKILL
    assert names(made) == {"run.toml", "checkpoint.npz", "run.lock"}
    assert (made / "checkpoint.npz").read_bytes() == kept

    ended = stopped(own_folder, tmp_path, signal.SIGTERM, "--resume", "made", "--threads", 1)
    assert ended.code == 130 and "--resume made" in ended.err

    outcome = quorank("run", "--resume", "made", "--json", "-q", "--threads", 1)
    assert outcome.code == 0
    assert json.loads(outcome.out)["rounds"] == 4000
    assert files_of(made) == files_of(uninterrupted)
    assert "checkpoint.npz" not in names(made)
    assert "finished" in quorank("run", "--resume", "made").refused()


@pytest.mark.usefixtures("no_pages")
def test_a_grid_stopped_by_ctrl_c_goes_on(own_folder: Path, tmp_path: Path, quorank: Quorank) -> None:
    grid = SHORTER + "[grid]\nseed = [1, 2]\n"
    Path("grid.toml").write_text(grid)
    process = start(own_folder, tmp_path, "grid.toml", "--out", "made", "--threads", 1)
    assert process.stderr is not None
    try:
        assert process.stderr.readline().startswith("2 runs")
        assert "1/2  seed=1" in process.stderr.readline()  # then the second cell begins
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "quorank run --resume made" in err
    assert not Path("made/seed=2/summary.json").exists()
    kept = Path("made/seed=1/summary.json").stat().st_mtime_ns
    outcome = quorank("run", "--resume", "made", "--json", "--threads", 1)
    assert outcome.code == 0
    assert [run["run"] for run in json.loads(outcome.out)] == ["seed=1", "seed=2"]
    assert [line.split()[1] for line in outcome.err.splitlines()[1:]] == ["seed=2"]
    assert Path("made/seed=1/summary.json").stat().st_mtime_ns == kept
    assert files_of(Path("made/seed=2")) == files_of(played("seed = 2\n" + SHORTER, Path("alone")))


@contextlib.contextmanager
def running_grid(tmp_path, text):
    """A grid with two jobs as a process, once both of them run."""
    Path("g.toml").write_text(SMALL.replace("rounds = 12", "rounds = 300000") + text)
    p = subprocess.Popen(
        command("run", "g.toml", "--jobs", 2, "--out", "made"),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not all(Path("made", f"seed={s}", "run.toml").exists() for s in (1, 2)):
            time.sleep(0.05)
        yield p
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGKILL)


@pytest.mark.nightly
def test_ctrl_c_with_jobs_stops_soon(tmp_path, own_folder):
    with running_grid(tmp_path, "[grid]\nseed = [1, 2, 3]\n") as p:
        time.sleep(0.2)
        os.killpg(p.pid, signal.SIGINT)  # what a terminal does
        p.communicate(timeout=15)
    assert p.returncode == 130
    assert not Path("made/seed=3").exists()


def workers_of(p: subprocess.Popen[str]) -> list[int]:
    """Process ids of a grid's workers."""
    kids = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(p.pid)], capture_output=True, text=True
    ).stdout
    return [int(line.split()[0]) for line in kids.splitlines() if "spawn_main" in line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_a_grid_is_the_end_of_its_workers(tmp_path, own_folder, number):
    """A signal to the grid's process alone, as a service manager sends it; SIGTERM does what Ctrl-C does."""
    with running_grid(tmp_path, "[grid]\nseed = [1, 2, 3]\n") as p:
        workers = workers_of(p)
        assert len(workers) == 2
        p.send_signal(number)
        _, err = p.communicate(timeout=60)  # returns only after no worker holds the pipe
        states = subprocess.run(
            ["ps", "-o", "stat=", "-p", ",".join(map(str, workers))], capture_output=True, text=True
        )
        assert {state[0] for state in states.stdout.split()} <= {"Z"}, "none runs; init may not have reaped them yet"
    if number == signal.SIGTERM:
        assert p.returncode == 130 and "quorank run --resume made" in err
        assert all(Path("made", f"seed={s}", "checkpoint.npz").is_file() for s in (1, 2))
    assert not Path("made/seed=3").exists()


def test_worker_killed(tmp_path, own_folder):
    with running_grid(tmp_path, "[grid]\nseed = [1, 2]\n") as p:
        os.kill(workers_of(p)[0], signal.SIGKILL)
        _, err = p.communicate(timeout=30)
    assert "Traceback" not in err, err[-300:]
