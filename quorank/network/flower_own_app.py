"""Flower's ClientApp process with Quorank's app in it, and no other.

Flower's own process (`flwr-clientapp`) unpacks the app that its SuperLink hands out, imports it and runs it with all that
the account may do. Whoever can submit an app there could so read a device's store or a party's documents. Here nothing
that came over the wire is unpacked, installed or imported: what runs is `flower_client` of the installed Quorank. An app of
another name is refused; one that bears our name is not looked at.

`python -m quorank.network.flower_own_app` takes the arguments of `flwr-clientapp`.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from flwr.clientapp import ClientApp
from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
from flwr.supernode.runtime import run_clientapp

from quorank.errors import BadInput, require
from quorank.network.flower_app import APP_NAME, PUBLISHER

OWN_APP = f"{PUBLISHER}/{APP_NAME}"
FOREIGN = "app.foreign"


def own_app(name: str, version: str, digest: str) -> ClientApp:
    """The installed ClientApp, in place of the app that a SuperLink names; the name of any other is refused."""
    if name != OWN_APP:
        sentence = f"a foreign app ({name[:80]!r}, {digest[:8]}) was sent; this node runs {OWN_APP} alone"
        print(f"refused {FOREIGN}: {sentence}", file=sys.stderr, flush=True)
        raise BadInput(FOREIGN, sentence)
    from quorank.network.flower_client import app

    return app


def not_installed(*_: object, **__: object) -> NoReturn:
    """In place of the installation of packages."""
    raise BadInput(FOREIGN, "an app asked for packages to be installed; this node installs none")


IN_PLACE = {
    "install_from_fab": lambda *_, **__: None,  # the app stays packed
    "get_load_client_app_fn": lambda *_, **__: own_app,
    "install_app_dependencies": not_installed,
}
"""Functions that Flower's process calls to unpack, load and equip an app, and what is called instead."""


def close_process() -> None:
    """Put ours in their place; a Flower that loads apps in another way is refused before it does."""
    for name, ours in IN_PLACE.items():
        sentence = f"this version of Flower loads apps in a way that is not known (no {name}); install quorank[network]"
        require(hasattr(run_clientapp, name), "engine.version", sentence)
        setattr(run_clientapp, name, ours)


def main() -> None:
    """Be Flower's ClientApp process."""
    close_process()
    flwr_clientapp()


if __name__ == "__main__":
    main()
