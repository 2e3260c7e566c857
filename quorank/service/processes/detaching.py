"""Starts a service in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from quorank.documents import read_json
from quorank.errors import BadInput
from quorank.service.home import LOG, Home
from quorank.service.processes.supervisor import SUPERVISOR

START_SECONDS = 60.0


def detach(home: Home, module: str, *more: str) -> None:
    """Start `module` on a folder, and wait until its processes are up; what it prints goes into its log."""
    descriptor = os.open(home.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begun = os.fstat(descriptor).st_size
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(home.path), *more],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if _is_up(home, child.pid):
            return
        if child.poll() is not None:
            with (home.path / LOG).open("rb") as log:
                log.seek(begun)
                lines = log.read().decode(errors="replace").splitlines()
            said = [line.removeprefix("quorank: ") for line in lines if line.startswith("quorank: ")]
            if said:
                raise BadInput("coordinator.not-started", said[-1])
            sentence = f"the service did not start; see {home.path / LOG}"
            raise BadInput("coordinator.not-started", sentence, f"{home.path}")
        time.sleep(0.1)
    sentence = f"the service is not up after {START_SECONDS:g} s; see {home.path / LOG}"
    raise BadInput("coordinator.not-started", sentence, f"{home.path}")


def _is_up(home: Home, process: int) -> bool:
    try:
        told = read_json(home.path / SUPERVISOR)
    except BadInput:
        return False
    return bool(told.get("process") == process and told.get("state") == "running")
