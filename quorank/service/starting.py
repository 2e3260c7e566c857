"""Start of a service in a process of its own: it is waited for until its workers answer; what it prints is in its log."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from quorank.errors import BadInput
from quorank.files.documents import read_json
from quorank.service.home import LOG, Home
from quorank.service.supervisor import STATE

SUPERVISOR = "quorank.service.supervisor"
"""The module of the process that watches over a service."""
START_SECONDS = 60.0


def start_service(home: Home, *more: str, stays: bool = True) -> subprocess.Popen[bytes]:
    """Start the service of a folder and wait until it answers; unless it `stays`, it ends with this process.

    Either way it is in a session of its own, so that Ctrl-C in a terminal does not reach it.
    """
    bound = [] if stays else ["quorank.kernels.process", str(os.getpid())]
    descriptor = os.open(home.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begun = os.fstat(descriptor).st_size
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", *bound, SUPERVISOR, str(home.path), *more],
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
            return child
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
        told = read_json(home.path / STATE)
    except BadInput:
        return False
    return bool(told.get("process") == process and told.get("state") == "running")
