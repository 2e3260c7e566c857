"""How Flower is started here: the app that is submitted, the environment, and the command lines of its processes.

Telemetry, update checks and the installation of packages at run time are off; every process has a home folder of its own
below the network's. The app is two references to modules of the installed Quorank and holds no code.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from quorank import __version__
from quorank.errors import BadInput, require
from quorank.files import write_whole

OLDEST, NEWEST = (1, 41), (1, 43)
"""Versions of Flower from the first to below the second are known to work."""

CONNECTION = "quorank"
EXECUTOR = "quorank.flower.executor"
ADMIN = "quorank.flower.admin"
CLIENT_PROCESS, SERVER_PROCESS = "quorank.flower.own_client", "quorank.flower.own_server"

POLL, POLL_VARIABLE = "0.2", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
"""Seconds between two looks of a node's SuperExec for a task; a coordinator's has but one, and looks as often as Flower
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
        raise BadInput(
            "engine.not-installed",
            f"the engine flower needs the package flwr, which is not installed; install quorank[flower] ({wanted})",
        ) from None
    version = tuple(int(part) for part in found.split(".")[:2] if part.isdecimal())
    require(
        OLDEST <= version < NEWEST,
        "engine.version",
        f"the engine flower works with {wanted}, and flwr {found} is installed; install quorank[flower]",
    )


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
    scripts = sysconfig.get_path("scripts")
    direct = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1,localhost"]))
    return {
        **os.environ,
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        POLL_VARIABLE: POLL,
        "NO_PROXY": direct,
        "no_proxy": direct,
        **variables,
    }


def write_app(folder: Path) -> None:
    """The app that is submitted: a `pyproject.toml` and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "pyproject.toml", _APP)


def write_connection(home: Path, address: str, certificate: Path) -> None:
    """Tell Flower's command line, which reads this home folder, where the SuperLink is."""
    home.mkdir(parents=True, exist_ok=True)
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{address}"\n'
    write_whole(home / "config.toml", text + f'root-certificates = "{certificate}"\n')


@dataclass(frozen=True)
class Commands:
    """The command lines of one SuperLink and its nodes."""

    address: str  # host:port of the SuperLink
    certificate: Path  # of the authority that everyone trusts
    secret: Path  # which SuperExecs must know to be given tasks

    def superlink(self, certificate: Path, key: Path, database: Path) -> list[str]:
        host, port = self.address.rsplit(":", 1)
        return [
            _script("flower-superlink"), "--host", host, "--port", port,
            "--ssl-ca-certfile", str(self.certificate), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key),
            "--enable-supernode-auth", "--database", str(database), "--isolation", "process",
            "--superexec-auth-secret-file", str(self.secret), "--disable-runtime-dependency-installation",
        ]  # fmt: skip

    def server_executor(self) -> list[str]:
        """Starts our ServerApp, and no other."""
        command = [sys.executable, "-m", EXECUTOR, "server", *self._executor(self.address)]
        return [*command, "--root-certificates", str(self.certificate)]

    def supernode(self, key: Path, port: int) -> list[str]:
        return [
            _script("flower-supernode"), "--superlink", self.address, "--root-certificates", str(self.certificate),
            "--auth-supernode-private-key", str(key), "--host", "127.0.0.1", "--port", str(port),
            "--isolation", "process", "--superexec-auth-secret-file", str(self.secret),
        ]  # fmt: skip

    def node_executor(self, port: int) -> list[str]:
        """Starts our ClientApp for every task, and no other; it reaches its SuperNode on the same machine, without TLS."""
        command = [sys.executable, "-m", EXECUTOR, "client"]
        return [*command, *self._executor(f"127.0.0.1:{port}"), "--insecure"]

    def _executor(self, address: str) -> list[str]:
        secret = ["--superexec-auth-secret-file", str(self.secret)]
        return ["--runtime-api-address", address, *secret]


def register(public_key: Path, name: str) -> list[str]:
    """For `admin`: let the SuperLink know a node's key; the answer holds "node-id"."""
    return ["supernode", "register", str(public_key), CONNECTION, "--name", name]


def submit(app: Path) -> list[str]:
    """For `admin`: start the ServerApp; the answer holds "run-id"."""
    return ["run", str(app), CONNECTION]


def withdraw(run: str) -> list[str]:
    """For `admin`: end a run whose ServerApp died."""
    return ["stop", run, CONNECTION]


def _script(name: str) -> str:
    return str(Path(sysconfig.get_path("scripts")) / name)


def names_of(nodes: int) -> Sequence[str]:
    """Stable names of so many nodes."""
    return [f"node-{number}" for number in range(nodes)]
