"""Settings and process of a coordinator, of devices or of parties."""

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


def with_address(chosen: dict[str, Any], members: str) -> dict[str, Any]:
    """Add the address at which members reach the coordinator."""
    host, port = chosen.get("host", "127.0.0.1"), chosen.get("port", 9092)
    require(
        "address" in chosen or host not in ("0.0.0.0", "::", ""),
        "address.every",
        f"--host {host} is every address of this machine; name the one for {members} with --address",
    )
    return {"address": f"{host}:{port}", **chosen}


def change(home: Home, chosen: dict[str, Any], fixed: Mapping[str, object], members: str) -> None:
    """Change the settings of an existing folder; the options in `fixed` apply to new folders only."""
    home.check_stopped()
    refused = ", ".join(f"--{name}" for name, value in fixed.items() if value)
    sentence = "fixed when the folder was created; leave the option out, or choose another folder"
    require(not refused, "option.fixed", sentence, refused)
    settings = home.settings
    if ("host" in chosen or "port" in chosen) and settings.address == f"{settings.host}:{settings.port}":
        chosen = with_address({"host": settings.host, "port": settings.port, **chosen}, members)
    home.change(replace(settings, **chosen))


def stop(home: Home, folder: Path) -> None:
    """Stop the coordinator's process."""
    number = home.process()
    if number is None:
        raise BadInput("coordinator.not-running", "its coordinator is not running", f"{folder}")
    os.kill(number, signal.SIGTERM)
    end = time.monotonic() + STOP_SECONDS
    while home.process() is not None:
        late = f"process {number} has not ended within {STOP_SECONDS:g} s"
        require(time.monotonic() <= end, "coordinator.not-ended", late, f"{folder}")
        time.sleep(0.1)
