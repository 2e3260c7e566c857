"""Flower's ServerApp process with Quorank's app in it, and no other (see `own_client`).

`python -m quorank.flower.own_server` takes the arguments of `flwr-serverapp`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from flwr.app import Context
from flwr.cli.config_utils import get_fab_metadata
from flwr.server.run_serverapp import run
from flwr.serverapp import Grid
from flwr.superlink.cli.flwr_serverapp import flwr_serverapp

from quorank.flower.app import check_own, not_installed, put_in_place
from quorank.flower.server import app

RUNTIME = importlib.import_module("flwr.superlink.runtime.run_serverapp")  # a function of its package has the same name


def own_metadata(content: bytes) -> tuple[str, str]:
    """Name and version in a packed app, which must be ours."""
    name, version = get_fab_metadata(content)
    check_own(name, "")
    return name, version


def own_run(grid: Grid, context: Context, **_: Any) -> Context:
    """Run the installed ServerApp, whatever was to be loaded."""
    return run(grid=grid, context=context, server_app_dir="", loaded_server_app=app)


IN_PLACE: dict[str, Callable[..., Any]] = {
    "install_from_fab": lambda *_, **__: None,  # the app stays packed
    "get_fab_metadata": own_metadata,
    "get_project_config": lambda *_: {"tool": {"flwr": {"app": {"components": {"serverapp": ""}}}}},
    "get_fused_config_from_dir": lambda *_: {},
    "install_app_dependencies": not_installed,
    "run_": own_run,
}
"""Functions that Flower's process calls to unpack, read, equip and run an app, and what is called instead."""


def main() -> None:
    """Be Flower's ServerApp process."""
    put_in_place(RUNTIME, IN_PLACE)
    flwr_serverapp()


if __name__ == "__main__":
    main()
