"""The example applications of a device take part in a run of a real service."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_services import real_service, until

from quorank.member import local_socket
from quorank.service.enrolment import invite

EXAMPLES = Path(__file__).parents[2] / "examples" / "device"


@pytest.mark.slow
def test_the_example_applications_take_part(tmp_path: Path) -> None:
    with real_service(tmp_path / "home", clients=2, rounds=50) as service:
        store = service.home.store()
        for name in ("python", "script"):
            invite(service.home, store, name, tmp_path / f"{name}.json")
        store.close()
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
