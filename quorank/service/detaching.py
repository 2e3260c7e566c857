"""Starts a coordinator as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from quorank.errors import BadInput
from quorank.service.home import LOG, Home

START_SECONDS = 300.0


def detach(home: Home, module: str, metrics_port: int | None, *more: str) -> None:
    """Start `module` on a folder, and wait until its engine is up; what it prints goes into its log."""
    words = [sys.executable, "-m", module, str(home.path)]
    words += [*([] if metrics_port is None else [str(metrics_port)]), *more]
    descriptor = os.open(home.path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        told = home.last_status()
        if told.get("process") == child.pid and told.get("state") in ("running", "done"):
            return
        if child.poll() is not None:
            lines = (home.path / LOG).read_text(errors="replace").splitlines()
            said = [line.removeprefix("quorank: ") for line in lines if line.startswith("quorank: ")]
            if said:
                raise BadInput("coordinator.not-started", said[-1])
            raise BadInput(
                "coordinator.not-started", f"the coordinator did not start; see {home.path / LOG}", f"{home.path}"
            )
        time.sleep(0.2)
    raise BadInput(
        "coordinator.not-started",
        f"the coordinator is not up after {START_SECONDS:g} s; see {home.path / LOG}",
        f"{home.path}",
    )
