"""A whole Flower network on this machine: SuperLink with TLS and node authentication, its executor, N nodes.

The clients of a node that ends are played by the others. What there is once, the SuperLink, the ServerApp, their executor
and the worker, is not replaced: when one of them ends, the run stops with a reason, and goes on where it is resumed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorank.errors import require
from quorank.files.atomic import write_whole
from quorank.files.documents import Each, Items, read_json
from quorank.flower import app as flower_app
from quorank.flower import transport, worker
from quorank.flower.processes import Processes, free_ports
from quorank.protocol.certificates import CERTIFICATE, Authority, node_keys, write_private

START_SECONDS = 300.0
"""No part of a network takes longer to start, also on a machine that is busy."""

SINGLE = ("worker", "superlink", "executor")
"""Processes that no other can stand in for."""


class NetworkDown(Exception):
    """What is needed of a network has ended; the sentence says what, and what it said last."""


@dataclass(eq=False)
class FlowerNetwork:
    """Used as a context: inside it the network is up and `transport` carries messages; after it nothing is left.

    A worker plays the clients of the experiment file `run` for all nodes; `stop` is called while the network starts, and
    raises to end that.
    """

    nodes: int
    run: Path  # what the clients keep goes to the file's folder
    stop: Callable[[], None]

    def __post_init__(self) -> None:
        self.names = [f"node-{number}" for number in range(self.nodes)]

    def __enter__(self) -> FlowerNetwork:
        with contextlib.ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="quorank-", ignore_cleanup_errors=True)
            self.folder = Path(stack.enter_context(temporary))  # readable by its owner alone
            self.processes = Processes(self.folder)
            stack.callback(self.processes.stop)
            self.transport = transport.FlowerTransport(self.folder / "coordinator.sock", alive=self.alive)
            stack.callback(self.transport.close)
            self._bring_up(self._write_files())
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def alive(self, name: str) -> bool:
        """Whether a node's processes run; Flower itself misses a dead node after a minute only."""
        return self.processes.is_running(name) and self.processes.is_running(f"{name}-executor")

    def tend(self) -> None:
        """Look whether the network can go on."""
        for name in SINGLE:
            if not self.processes.is_running(name):
                raise NetworkDown(f"{name} ended; it said last: {self.processes.last_words(name)}")
        if not self.transport.connected:
            raise NetworkDown("Flower's ServerApp ended")
        if not any(map(self.alive, self.names)):
            raise NetworkDown(f"{self.names[-1]} ended too, and no node is left")

    def _write_files(self) -> flower_app.Commands:
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
        commands = flower_app.Commands(f"127.0.0.1:{port}", folder / CERTIFICATE, folder / "secret")
        flower_app.write_app(folder / "app", folder / "home", commands.address, folder / CERTIFICATE)
        return commands

    def _bring_up(self, commands: flower_app.Commands) -> None:
        folder, start, path = self.folder, self.processes.start, self.folder / "worker.sock"
        home = flower_app.environment(folder / "home", **{transport.SOCKET: str(self.transport.path)})
        start("worker", [sys.executable, "-m", flower_app.WORKER, str(self.run), str(path)], os.environ)
        start("superlink", commands.superlink(folder / "server.pem", folder / "server.key", folder / "state.db"), home)
        start("executor", commands.server_executor(), home)
        self._wait("superlink", lambda: _is_listening(commands.address))
        self._register(home)
        for name, port in zip(self.names, free_ports(self.nodes), strict=True):
            home = flower_app.environment(folder / f"{name}-home", **{worker.SOCKET: str(path)}, **flower_app.POLLING)
            start(name, commands.supernode(folder / f"{name}.key", port), home)
            start(f"{name}-executor", commands.node_executor(port), home)
        self._wait("worker", path.exists)
        self._wait("nodes", self._are_there)

    def _register(self, home: dict[str, str]) -> None:
        """Let the SuperLink know the nodes' keys and start the ServerApp, by Flower's own command line."""
        folder, out, link = self.folder, self.folder / "admin.json", flower_app.CONNECTION
        orders = [["supernode", "register", str(folder / f"{name}.pub"), link, "--name", name] for name in self.names]
        orders.append(["run", str(folder / "app"), link])
        command = [sys.executable, "-m", flower_app.ADMIN, str(out), *map(json.dumps, orders)]
        self.processes.start("admin", command, home)
        self._wait("registration", lambda: not self.processes.is_running("admin"))
        answers: list[dict[str, Any]] = read_json(out, Items(Each()))
        for answer in answers:
            said = " ".join(str(answer.get("error-message", "")).split())
            sentence = f"the network did not start: Flower refused an order: {said}"
            require(answer.get("success"), "engine.not-started", sentence)
        self.transport.ids = {name: int(found["node-id"]) for name, found in zip(self.names, answers, strict=False)}

    def _are_there(self) -> bool:
        self.transport.pull()
        return len(self.transport.nodes()) == self.nodes

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait for a part of the network; a process that has ended meanwhile is the reason why it never comes."""
        end = time.monotonic() + START_SECONDS
        while not ready():
            self.stop()
            for child, process in self.processes.children.items():
                sentence = f"{child} ended with {process.poll()}; it said: {self.processes.last_words(child)}"
                require(not process.poll(), "engine.not-started", f"the network did not start: {sentence}")
            sentence = f"the network did not start: {name} took over {START_SECONDS:g} s"
            require(time.monotonic() < end, "engine.not-started", sentence)
            time.sleep(0.1)


def _is_listening(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=2.0):
            return True
    except OSError:
        return False
