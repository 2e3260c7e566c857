"""How Flower is started here: the app that is submitted, the environment, and the command lines of its processes.

Telemetry, update checks and the installation of packages at run time are off; every process has a home folder of its own
below the network's. The app is two references to modules of the installed Quorank and holds no code.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from quorank import __version__
from quorank.errors import BadInput, require
from quorank.files.atomic import write_whole

OLDEST, NEWEST = (1, 41), (1, 43)
"""Versions of Flower from the first to below the second are known to work."""

CONNECTION = "quorank"
ADMIN, EXECUTOR, WORKER = "quorank.flower.admin", "quorank.flower.executor", "quorank.flower.worker"

RECORD, CONTENT = "quorank", "content"
"""Where the bytes are that a message of ours carries."""

POLLING = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
"""Seconds between two looks of a node's SuperExec for a task; the coordinator's has but one, and looks as often as Flower
has it."""

PUBLISHER, APP_NAME = "quorank", "quorank-app"
OWN_APP = f"{PUBLISHER}/{APP_NAME}"
_APP = f"""\
[project]
name = "{APP_NAME}"
version = "{__version__}"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "{PUBLISHER}"

[tool.flwr.app.components]
serverapp = "quorank.flower.server:app"
clientapp = "quorank.flower.client:app"
"""


def check_installed() -> None:
    """Refuse before anything starts where Flower is absent or of a version that was never tried."""
    wanted = f"flwr>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1]}"
    try:
        found = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        sentence = (
            f"the engine flower needs the package flwr, which is not installed; install quorank[flower] ({wanted})"
        )
        raise BadInput("engine.not-installed", sentence) from None
    version = tuple(int(part) for part in found.split(".")[:2] if part.isdecimal())
    sentence = f"the engine flower works with {wanted}, and flwr {found} is installed; install quorank[flower]"
    require(OLDEST <= version < NEWEST, "engine.version", sentence)


def check_own(name: str, digest: str) -> None:
    """Refuse an app that is not ours by its name, in the log of this machine too."""
    if name != OWN_APP:
        sentence = f"a foreign app ({name[:80]!r}, {digest[:8]}) was sent; this machine runs {OWN_APP} alone"
        print(f"refused app.foreign: {sentence}", file=sys.stderr, flush=True)
        raise BadInput("app.foreign", sentence)


def not_installed(*_: object, **__: object) -> NoReturn:
    """Refuse the installation of packages that an app asks for."""
    raise BadInput("app.foreign", "an app asked for packages to be installed; this machine installs none")


def put_in_place(module: ModuleType, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Replace functions that a module of Flower calls to load an app; one that loads it in another way is refused."""
    for name, ours in functions.items():
        sentence = f"this version of Flower loads apps in a way that is not known (no {name}); install quorank[flower]"
        require(hasattr(module, name), "engine.version", sentence)
        setattr(module, name, ours)


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment of Flower's processes that live in this home folder."""
    direct = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1,localhost"]))
    return {
        **os.environ,
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "NO_PROXY": direct,
        "no_proxy": direct,
        **variables,
    }


def write_app(app: Path, home: Path, address: str, certificate: Path) -> None:
    """The app, and in the home folder of Flower's command line where the SuperLink is that it is submitted to."""
    app.mkdir()
    write_whole(app / "pyproject.toml", _APP)
    home.mkdir()
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{address}"\n'
    write_whole(home / "config.toml", text + f'root-certificates = "{certificate}"\n')


@dataclass(frozen=True)
class Commands:
    """The command lines of one SuperLink and its nodes, whose scripts the `environment` finds."""

    address: str  # host:port of the SuperLink
    certificate: Path  # of the authority that everyone trusts
    secret: Path  # which SuperExecs must know to be given tasks

    def superlink(self, certificate: Path, key: Path, database: Path) -> list[str]:
        host, port = self.address.rsplit(":", 1)
        return [
            "flower-superlink", "--host", host, "--port", port,
            "--ssl-ca-certfile", str(self.certificate), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key),
            "--enable-supernode-auth", "--database", str(database), "--isolation", "process",
            *self._secret, "--disable-runtime-dependency-installation",
        ]  # fmt: skip

    def server_executor(self) -> list[str]:
        """Starts our ServerApp, and no other."""
        return [*self._executor("server", self.address), "--root-certificates", str(self.certificate)]

    def supernode(self, key: Path, port: int) -> list[str]:
        return [
            "flower-supernode", "--superlink", self.address, "--root-certificates", str(self.certificate),
            "--auth-supernode-private-key", str(key), "--host", "127.0.0.1", "--port", str(port),
            "--isolation", "process", *self._secret,
        ]  # fmt: skip

    def node_executor(self, port: int) -> list[str]:
        """Starts our ClientApp for every task, and no other; it reaches its SuperNode on the same machine, without TLS."""
        return [*self._executor("client", f"127.0.0.1:{port}"), "--insecure"]

    def _executor(self, app: str, address: str) -> list[str]:
        return [sys.executable, "-m", EXECUTOR, app, "--runtime-api-address", address, *self._secret]

    @property
    def _secret(self) -> list[str]:
        return ["--superexec-auth-secret-file", str(self.secret)]
