"""A whole Flower network on this machine: SuperLink with TLS and node authentication, its executor, N nodes.

`tend` keeps it alive: whatever process ends is started again. Flower refuses a node that comes back within a minute of
being killed, so a node is tried again until then. A ServerApp that died takes its run with it; a new run is submitted, and
the driver sends again what was lost.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from quorank.certificates import CERTIFICATE, Authority, node_keys, write_private
from quorank.documents import Each, Items, read_json
from quorank.errors import BadInput, require, require_range
from quorank.files import write_whole
from quorank.flower import app as flower_app
from quorank.flower.processes import Child, Processes, free_ports
from quorank.flower.transport import FlowerTransport
from quorank.flower.worker import SOCKET

_COORDINATOR = "QUORANK_COORDINATOR"
START_SECONDS = 300.0
"""No part of a network takes longer to start, also on a machine that is busy."""

AGAIN_SECONDS = 5.0
TRIES = 30
"""A process that ends is started again after some seconds, and so often in a row."""

STEADY_SECONDS = 60.0
"""What ran for so long has not failed in a row."""


class NetworkDown(Exception):
    """A process of the network ends whenever it is started; the sentence says which and what it said last."""


@dataclass(eq=False)
class FlowerNetwork:
    """Used as a context: inside it the network is up and `transport` carries messages; after it nothing is left.

    `worker` is the command of the process that plays the clients of all nodes, given the socket where it must listen;
    `stop` is called while the network starts, and raises to end that.
    """

    nodes: int
    worker: Callable[[Path], list[str]]
    stop: Callable[[], None] | None = None
    transport: FlowerTransport = field(init=False)
    processes: Processes = field(init=False)
    recipes: dict[str, tuple[list[str], dict[str, str]]] = field(default_factory=dict, init=False)
    _failures: dict[str, int] = field(default_factory=dict, init=False)
    _missing: float | None = field(default=None, init=False)  # since when there is no ServerApp

    def __post_init__(self) -> None:
        require_range("nodes", self.nodes, least=1, most=1000)
        flower_app.check_installed()

    @property
    def _worker(self) -> Path:
        return self.folder / "worker.sock"

    @property
    def names(self) -> Sequence[str]:
        return flower_app.names_of(self.nodes)

    def __enter__(self) -> FlowerNetwork:
        self.folder = Path(tempfile.mkdtemp(prefix="quorank-"))  # readable by its owner alone
        self.processes = Processes(self.folder, True)
        try:
            self._write_files()
            self.transport = FlowerTransport(self.folder / "coordinator.sock", alive=self.alive)
            self._bring_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()

    def alive(self, name: str) -> bool:
        """Whether a node's processes run; Flower itself misses a dead node after a minute only."""
        return self.processes.running(name) and self.processes.running(f"{name}-executor")

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> Child:
        """Start a process that `tend` keeps alive."""
        self.recipes[name] = command, environment
        return self.processes.start(name, command, environment)

    def tend(self) -> None:
        """Start again what has ended."""
        for name, (command, environment) in self.recipes.items():
            child = self.processes.children.get(name)
            now = time.monotonic()
            if child is not None and child.running:
                continue
            since = 0.0 if child is None else child.since
            if child is not None and now - since > STEADY_SECONDS:
                self._failures[name] = 0
            if now - since < AGAIN_SECONDS and self._failures.get(name, 0) > 0:
                continue
            self._failures[name] = self._failures.get(name, 0) + 1
            if self._failures[name] > TRIES:
                said = "" if child is None else child.last_words()
                raise NetworkDown(f"{name} ended {TRIES} times; it said last: {said}")
            self.processes.start(name, command, environment)
        self._tend_run()

    def _tend_run(self) -> None:
        """Submit the app again where its ServerApp has been away for a while."""
        if self.transport.connected:
            self._missing = None
            return
        now = time.monotonic()
        self._missing = self._missing or now
        if now - self._missing > AGAIN_SECONDS and not self.processes.running("admin"):
            self._missing = now + 4 * AGAIN_SECONDS
            lost = str(self._answers()[-1].get("run-id", ""))
            withdraw = [flower_app.withdraw(lost)] if lost else []
            self.administrate([*withdraw, flower_app.submit(self.folder / "app")])

    def _write_files(self) -> None:
        folder, port = self.folder, free_ports(1)[0]
        authority = Authority.create()
        write_whole(folder / CERTIFICATE, authority.pem)
        key, certificate = authority.server(["127.0.0.1", "localhost"])
        write_private(folder / "server.key", key)
        write_whole(folder / "server.pem", certificate)
        write_private(folder / "secret", secrets.token_bytes(32))
        for name in self.names:
            pair = node_keys()
            write_private(folder / f"{name}.key", pair.private)
            write_whole(folder / f"{name}.pub", pair.public)
        self.commands = flower_app.Commands(f"127.0.0.1:{port}", folder / CERTIFICATE, folder / "secret")
        flower_app.write_app(folder / "app")
        flower_app.write_connection(folder / "home", self.commands.address, folder / CERTIFICATE)

    def _bring_up(self) -> None:
        folder, commands = self.folder, self.commands
        home = flower_app.environment(folder / "home", **{_COORDINATOR: str(self.transport.path)})
        link = commands.superlink(folder / "server.pem", folder / "server.key", folder / "state.db")
        self.start("worker", self.worker(self._worker), dict(os.environ))
        self.start("superlink", link, home)
        self.start("executor", commands.server_executor(), home)
        self._wait("superlink", self._healthy)
        orders = [flower_app.register(folder / f"{name}.pub", name) for name in self.names]
        found = self.administrate([*orders, flower_app.submit(folder / "app")], wait=True)
        for name, answer in zip(self.names, found, strict=False):
            self.transport.ids[name] = int(answer["node-id"])
        for name, port in zip(self.names, free_ports(self.nodes), strict=True):
            self.start_node(name, folder / f"{name}.key", port)
        self._wait("worker", self._worker.exists)
        self._wait("nodes", lambda: len(self.transport.nodes()) == self.nodes)

    def start_node(self, name: str, key: Path, port: int) -> None:
        """A node and the executor that runs its tasks."""
        home = flower_app.environment(self.folder / f"{name}-home", **{SOCKET: str(self._worker)})
        self.start(name, self.commands.supernode(key, port), home)
        self.start(f"{name}-executor", self.commands.node_executor(port), home)

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait for a part of the network; a process that has ended meanwhile is the reason why it never comes."""
        end = time.monotonic() + START_SECONDS
        while not ready():
            if self.stop is not None:
                self.stop()
            for child in self.processes.children.values():
                if not child.running and child.code != 0:
                    raise BadInput(
                        "engine.not-started",
                        f"the network did not start: {child.name} ended with {child.code}; it said: {child.last_words()}",
                    )
            require(
                time.monotonic() < end,
                "engine.not-started",
                f"the network did not start: {name} took over {START_SECONDS:g} s",
            )
            time.sleep(0.1)

    def _healthy(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / CERTIFICATE))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(f"https://{self.commands.address}/health", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def administrate(self, orders: list[list[str]], *, wait: bool = False) -> list[dict[str, Any]]:
        """Give orders to the SuperLink, by Flower's own command line."""
        out = self.folder / "admin.json"
        command = [sys.executable, "-m", flower_app.ADMIN, str(out), *map(json.dumps, orders)]
        self.processes.start("admin", command, flower_app.environment(self.folder / "home"))
        if not wait:
            return []
        self._wait("registration", lambda: not self.processes.running("admin"))
        found = self._answers()
        for answer in found:
            said = " ".join(str(answer.get("error-message", "")).split())
            require(
                answer.get("success"),
                "engine.not-started",
                f"the network did not start: Flower refused an order: {said}",
            )
        return found

    def _answers(self) -> list[dict[str, Any]]:
        """What the last orders that ended were answered."""
        file = self.folder / "admin.json"
        found: list[dict[str, Any]] = read_json(file, Items(Each())) if file.is_file() else [{}]
        return found

    def _take_down(self) -> None:
        if hasattr(self, "transport"):
            self.transport.close()
        self.processes.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
