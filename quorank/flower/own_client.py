"""Flower's ClientApp process with Quorank's app in it, and no other.

Flower's own process (`flwr-clientapp`) unpacks the app that its SuperLink hands out, imports it and runs it with all that
the account may do, and any account of the machine can submit one. Here nothing that came over the wire is unpacked,
installed or imported: what runs is `client` of the installed Quorank. An app of another name is refused; one that bears
our name is not looked at.

`python -m quorank.flower.own_client` takes the arguments of `flwr-clientapp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.clientapp import ClientApp
from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
from flwr.supernode.runtime import run_clientapp

from quorank.flower.app import check_own, not_installed, put_in_place
from quorank.flower.client import app


def own_app(name: str, version: str, digest: str) -> ClientApp:
    """The installed ClientApp, in place of the app that a SuperLink names."""
    check_own(name, digest)
    return app


IN_PLACE: dict[str, Callable[..., Any]] = {
    "install_from_fab": lambda *_, **__: None,  # the app stays packed
    "get_load_client_app_fn": lambda *_, **__: own_app,
    "install_app_dependencies": not_installed,
}
"""Functions that Flower's process calls to unpack, load and equip an app, and what is called instead."""


def main() -> None:
    """Be Flower's ClientApp process."""
    put_in_place(run_clientapp, IN_PLACE)
    flwr_clientapp()


if __name__ == "__main__":
    main()
