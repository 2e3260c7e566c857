"""Regression tests of defects that were once found by hand."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import SMALL, command, environment


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


def test_ctrl_c_with_jobs_stops_soon(tmp_path, own_folder):
    with running_grid(tmp_path, "[grid]\nseed = [1, 2, 3]\n") as p:
        time.sleep(0.2)
        os.killpg(p.pid, signal.SIGINT)  # what a terminal does
        p.communicate(timeout=15)
    assert p.returncode == 130
    assert not Path("made/seed=3").exists()


def test_worker_killed(tmp_path, own_folder):
    with running_grid(tmp_path, "[grid]\nseed = [1, 2]\n") as p:
        kids = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(p.pid)], capture_output=True, text=True
        ).stdout
        kid = next(int(line.split()[0]) for line in kids.splitlines() if "spawn_main" in line)
        os.kill(kid, signal.SIGKILL)
        _, err = p.communicate(timeout=30)
    assert "Traceback" not in err, err[-300:]


@pytest.mark.usefixtures("no_pages")
def test_stale_collection(quorank, monkeypatch):
    """library: collection_of is cached by the source's text"""
    for d in ("x", "y"):
        Path(d).mkdir()
        quorank("data", "synthesize", "mq2007", "--queries", 30, "--seed", 1 if d == "x" else 2, "--out", f"{d}/mine24")
    r = []
    for d in ("x", "y"):
        monkeypatch.chdir(d)
        quorank("run", "../small.toml", "--set", "data.source=mine24", "--out", "made", "-q")
        r.append(Path("made/ranker.json").read_bytes())
        monkeypatch.chdir("..")
    assert r[0] != r[1]
