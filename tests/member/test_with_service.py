"""Devices and the example applications with a real service: its processes, its store, its coordinator."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from real_services import real_service, until

from quorank.member import Client, local_socket
from quorank.service.enrolment import invite

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples" / "device"
ROWS = np.random.default_rng(2).normal(size=(6, 5))


def invited(service, tmp_path, *names):
    store = service.home.store()
    for name in names:
        invite(service.home, store, name, tmp_path / f"{name}.json")
    store.close()


def joined(tmp_path, name):
    client = Client.open(tmp_path / name, tmp_path / f"{name}.json")
    client.consent(True)
    return client


def search(client, times=3):
    for number in range(times):
        shown = client.rank(ROWS + number)
        client.record(shown, shown.order == number)


def synced(client, outcome, seconds=60.0):
    """Sync until it comes to this, as a service does it that is asked again when it says."""
    end = time.monotonic() + seconds
    while (report := client.sync(force=True)).outcome != outcome and report.code != outcome:
        assert time.monotonic() < end, report
        time.sleep(0.1)
    return report


def test_two_devices_play_a_run_and_one_leaves(tmp_path) -> None:
    with real_service(tmp_path / "home", clients=2, rounds=2) as service:
        invited(service, tmp_path, "anna", "ben")
        anna, ben = joined(tmp_path, "anna"), joined(tmp_path, "ben")
        assert {anna.sync().outcome, ben.sync().outcome} <= {"nothing"}
        for round_ in (1, 2):
            for client in (anna, ben):
                search(client)
                synced(client, "sent")
                assert client.status()["last_round"] == round_
        synced(anna, "over")
        synced(ben, "over")
        assert anna.store.ranker.round == 2
        assert anna.store.ranker.theta.tobytes() == ben.store.ranker.theta.tobytes()
        assert anna.leave().outcome in ("leaving", "left")
        seen, end = set(), time.monotonic() + 60.0
        while not anna.closed:  # ben learns again from what he holds, so that the ranker is built without anna
            seen.add(ben.sync(force=True).outcome)
            anna.sync(force=True)
            assert time.monotonic() < end
            time.sleep(0.1)
        assert "sent" in seen and [r.run for r in ben.store.releases()][-1] == "run rebuilt 1 every 10"
        assert [path.name for path in (tmp_path / "anna").iterdir()] == ["left.json"]
        ben.close()


def test_secure_sums_by_the_service_s_mailbox(tmp_path) -> None:
    with real_service(tmp_path / "home", clients=3, rounds=1, privacy="secure-sum") as service:
        names = ("anna", "ben", "cleo")
        invited(service, tmp_path, *names)
        clients = [joined(tmp_path, name) for name in names]
        for client in clients:
            search(client)
        end = time.monotonic() + 60.0
        while {client.sync(force=True).outcome for client in clients} != {"over"}:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert [client.status()["releases"] for client in clients] == [1, 1, 1]
        assert clients[0].store.ranker.theta.any()
        for client in clients:
            client.close()


def test_the_example_applications_take_part(tmp_path) -> None:
    with real_service(tmp_path / "home", clients=2, rounds=50) as service:
        invited(service, tmp_path, "python", "script")
        words = [sys.executable, str(EXAMPLES / "application.py"), str(tmp_path / "one"), str(tmp_path / "python.json")]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.startswith(("sent: ", "nothing: "))
        if shutil.which("node") is None:
            pytest.skip("no node here")
        join = [sys.executable, "-m", "quorank.cli.main", "join", "--data", str(tmp_path / "two")]
        with subprocess.Popen([*join, "--bundle", str(tmp_path / "script.json")], stderr=subprocess.DEVNULL) as child:
            try:
                until(lambda: local_socket.call(tmp_path / "two", "status") is not None)
                script = ["node", str(EXAMPLES / "application.mjs"), str(tmp_path / "two"), "agree"]
                done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=60)
                assert done.returncode == 0, done.stderr
                assert "1 releases so far" in done.stdout
            finally:
                child.terminate()
                child.wait(30)
