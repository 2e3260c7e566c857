"""`quorank run FILE --watch`: the page of a simulation is there while it goes on, changes no bit, and ends with it."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from command_line import command, environment
from refusals import refused
from small_runs import files_of

from quorank.cli.run import run
from quorank.cli.run_page import RunWatch, watched_run
from quorank.errors import Interrupted
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import run_experiment
from quorank.service.dashboard import page as page
from quorank.service.dashboard.status import Status

FILE = """
[data]
source = "synthetic:mq2007"
[federation]
clients = 40
rounds = 60
[privacy]
kind = "gaussian"
epsilon = 8.0
delta = 1e-5
clip = 0.3
[evaluation]
every = 4
"""


def experiment() -> Experiment:
    return Experiment.read(parse_experiment_file(FILE, "watched.toml"))


def browser(address: str):
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    return lambda path="": (
        opener.open(address.split("?")[0] + path, timeout=10) if path else opener.open(address, timeout=10)
    )


def test_the_page_is_there_and_no_bit_changes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(page, "LIVE_SECONDS", 0.0)
    run_experiment(experiment(), tmp_path / "plain")
    seen: list[tuple[int, str]] = []
    with watched_run("watched") as (watch, address):
        get = browser(address)
        before = get().read().decode()

        def look(progress) -> None:
            if progress.done in (1, 30, 59):
                seen.append((progress.done, get().read().decode()))

        run_experiment(experiment(), tmp_path / "watched", watch=look, opened=watch.open)
    assert files_of(tmp_path / "plain") == files_of(tmp_path / "watched")
    assert "starting" in before
    assert [done for done, _ in seen] == [1, 30, 59]
    assert all(f"Round {done + 1} of 60" in text for done, text in seen)
    with pytest.raises(OSError):
        get()


def test_the_status_is_the_progress(tmp_path) -> None:
    watch = RunWatch("demo")
    assert watch.status().state == "starting" and Status.read(watch.status().text()).rounds == 0
    found: list[Status] = []

    def look(progress) -> None:
        if progress.done in (30, 60):
            found.append(watch.status())

    summary = run_experiment(experiment(), tmp_path / "run", watch=look, opened=watch.open)
    half, whole = (Status.read(status.text()) for status in found)
    assert (half.rounds, half.rounds_planned, half.accepted, half.cohort) == (30, 60, 30 * 40, 40)
    assert half.seconds_left is not None and half.seconds_left > 0.0 and whole.seconds_left == pytest.approx(0.0)
    assert whole.quality is not None and whole.quality.value == pytest.approx(summary["offline"]["ndcg@10"])
    assert whole.epsilon_spent == pytest.approx(summary["privacy"]["epsilon"])
    assert whole.epsilon_planned == pytest.approx(8.0, rel=0.01) and whole.epsilon_delta == 1e-5
    assert half.epsilon_spent is None or half.epsilon_spent < whole.epsilon_spent
    judged = [point.round for point in whole.history if point.quality is not None]
    assert judged == list(range(4, 61, 4))
    spent = [point.epsilon for point in whole.history if point.epsilon is not None]
    assert spent == sorted(spent) and len(spent) > 10


def test_watchers_see_the_end(tmp_path) -> None:
    with watched_run("watched") as (_, address):
        get = browser(address)
        get().read()
        stream = get("events")
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.extend(stream))
        reader.start()
        time.sleep(0.3)
    reader.join(10.0)
    assert not reader.is_alive()
    text = b"".join(lines).decode()
    assert text.endswith("event: over\ndata:\n\n")
    assert '<b class=\\"state done\\">' in text


def test_a_run_that_is_stopped_is_not_done() -> None:
    with pytest.raises(Interrupted), watched_run("demo") as (watch, _):
        raise Interrupted(3, 9)
    assert watch.state == "stopped"


def test_only_this_machine_with_the_token_reads_it() -> None:
    with watched_run("demo") as (_, address):
        host, port = re.fullmatch(r"http://(127\.0\.0\.1):(\d+)/\?token=[\w-]{32}", address).groups()
        connection = http.client.HTTPConnection(host, int(port), timeout=5)
        connection.request("GET", "/")
        assert connection.getresponse().status == 401
        others = [socket.gethostbyname(socket.gethostname())]
        for other in others:
            if not other.startswith("127."):
                with pytest.raises(OSError):
                    socket.create_connection((other, int(port)), timeout=2)


def test_the_command_prints_an_address_that_works_and_stays_only_if_asked(tmp_path) -> None:
    (tmp_path / "file.toml").write_text(FILE)
    words = command("run", "file.toml", "--watch", "--stay", "--out", "run", "--json")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, env=environment(tmp_path), **pipes) as process:
        try:
            address = ""
            for line in process.stderr:
                if "live page: " in line:
                    address = line.split()[-1]
                    break
            get = browser(address)
            end = time.monotonic() + 100.0
            while 'class="state done"' not in (text := get().read().decode()):
                assert time.monotonic() < end and process.poll() is None
                time.sleep(0.2)
            assert "All 60 rounds are completed" in text and "run" in text
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert '"rounds": 60' in out and "Traceback" not in err
    assert (tmp_path / "run" / "ranker.json").is_file()


def test_options_of_the_page_need_the_page() -> None:
    with refused("option.conflict"):
        run(Path("small.toml"), port=9999)
