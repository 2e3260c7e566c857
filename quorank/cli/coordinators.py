"""What starting and stopping a coordinator of devices and one of parties have in common."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.service.home import Home

STOP_SECONDS = 60.0


def with_address(chosen: dict[str, Any], whom: str) -> dict[str, Any]:
    """Return the chosen settings with the address under which devices or parties reach the coordinator."""
    host, port = chosen.get("host", "127.0.0.1"), chosen.get("port", 9092)
    require(
        "address" in chosen or host not in ("0.0.0.0", "::", ""),
        "address.every",
        f"--host {host} is every address of this machine; say with --address under which one {whom} reach it",
    )
    return {"address": f"{host}:{port}", **chosen}


def change(home: Home, chosen: dict[str, Any], once: Mapping[str, object], whom: str) -> None:
    """Change the settings of a folder for a later start; the options `once` were for the first alone."""
    home.check_stopped()
    fixed = ", ".join(f"--{name}" for name, value in once.items() if value)
    sentence = "fixed when the folder was made; leave it out to go on, or choose another folder"
    require(not fixed, "option.fixed", sentence, fixed)
    settings = home.settings
    if ("host" in chosen or "port" in chosen) and settings.address == f"{settings.host}:{settings.port}":
        chosen = with_address({"host": settings.host, "port": settings.port, **chosen}, whom)
    home.change(replace(settings, **chosen))


def stop(home: Home, folder: Path) -> None:
    """End the coordinator's process."""
    number = home.process()
    if number is None:
        raise BadInput("coordinator.not-running", "its coordinator does not run", f"{folder}")
    os.kill(number, signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while home.process() is not None:
        late = f"process {number} has not ended within {STOP_SECONDS:g} s"
        require(time.monotonic() <= end, "coordinator.not-ended", late, f"{folder}")
        time.sleep(0.1)
