"""Engine `flower`: the rounds of a run over a Flower network on this machine, to the same bits as in process.

A SuperLink, its SuperExec, and a SuperNode with a SuperExec per node are started by Flower's own commands. The
coordinator and the simulated clients stay in the run's process; Flower carries tasks and replies between them, through
the two apps of `flower_apps`. Flower's administration has no login: every account of this machine can submit an app, so
that the engine suits machines whose accounts are trusted. `https` is the engine for the others.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from quorank import __version__
from quorank.engines.driver import Driver
from quorank.engines.engine import Engine, EngineRun, Play, SharedNodes, Stopped
from quorank.errors import BadInput, Interrupted, require, require_range
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report
from quorank.files.atomic import write_whole
from quorank.protocol.transport import FAILED, Arrival, Failure

OLDEST, NEWEST = (1, 41), (1, 43)
"""Tested versions of Flower: from the first to below the second."""
MOST_NODES = 100
PATIENCE = 120.0
"""Seconds after which the clients of a node that does not answer are given to another node."""
START_SECONDS = 300.0
"""Timeout for the start of each part of the network."""
SOCKET, NODE = "QUORANK_FLOWER_SOCKET", "QUORANK_FLOWER_NODE"
"""Environment variables of `flower_apps`, which only processes with Flower import."""
CONNECTION = "quorank"
APP = f"""\
[project]
name = "quorank-app"
version = "{__version__}"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "quorank"

[tool.flwr.app.components]
serverapp = "quorank.engines.flower_apps:server"
clientapp = "quorank.engines.flower_apps:client"
"""
"""The submitted app: references to the installed package, and no code."""


def flower(nodes: int) -> Engine:
    """Return the engine with this number of nodes; refuse a missing or untested version of Flower."""
    require_range("--nodes", nodes, least=1, most=MOST_NODES)
    check_installed()

    @contextlib.contextmanager
    def start(run: EngineRun) -> Iterator[Play]:
        def stop_start() -> None:
            if run.stop():
                raise Interrupted(run.done, run.rounds)

        with FlowerNetwork(nodes, run.clients().respond) as network:
            network.start(stop_start)
            shared = SharedNodes(network.transport.nodes())
            driver = Driver(network.transport, shared, patience=PATIENCE, stop=run.stop, tend=network.check)

            def play(coordinator: Coordinator) -> Report:
                try:
                    return driver.round(coordinator)
                except NetworkDown as error:
                    raise Stopped(coordinator.state.round, coordinator.rounds, str(error)) from None

            yield play

    return start


def check_installed() -> None:
    """Refuse a missing or untested version of Flower."""
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


class NetworkDown(Exception):
    """A part of the network that cannot be replaced has ended."""


class FlowerNetwork:
    """Processes of a Flower network and the transport over it; a context at whose end both are gone."""

    def __init__(self, nodes: int, respond: Callable[[bytes], bytes]) -> None:
        self.names = [f"node-{number}" for number in range(nodes)]
        self.folder = Path(tempfile.mkdtemp(prefix="quorank-"))  # mode 0700
        self.processes = ProcessGroup(self.folder)
        self.transport = FlowerTransport(self.folder / "run.sock", respond, self.is_alive)

    def __enter__(self) -> FlowerNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.transport.close()
        self.processes.stop()

    def is_alive(self, node: str) -> bool:
        """Return whether both processes of a node run; Flower notices a dead node after a minute only."""
        return self.processes.is_running(node) and self.processes.is_running(f"{node}-executor")

    def check(self) -> None:
        """Raise NetworkDown if the network cannot go on."""
        for name in ("superlink", "executor"):
            if not self.processes.is_running(name):
                raise NetworkDown(f"{name} ended; its last message: {self.processes.last_line(name)}")
        if not self.transport.connected:
            raise NetworkDown("Flower's ServerApp ended")
        if not any(map(self.is_alive, self.names)):
            raise NetworkDown(f"{self.names[-1]} ended too, and no node is left")

    def start(self, stop: Callable[[], None]) -> None:
        """Start all processes and submit the app; `stop` is called while waiting and may raise."""
        port, *node_ports = free_ports(1 + len(self.names))
        link, start = f"127.0.0.1:{port}", self.processes.start
        insecure = ["--insecure", "--isolation", "process", "--host", "127.0.0.1"]
        superlink = ["flower-superlink", *insecure, "--port", str(port), "--disable-runtime-dependency-installation"]
        start("superlink", superlink, self._environment("server"))
        self._wait("superlink", lambda: _is_listening(port), stop)
        start("executor", self._executor(link), self._environment("server"))
        for name, own in zip(self.names, node_ports, strict=True):
            environment = self._environment(name, FLWR_SUPEREXEC_TASK_POLL_INTERVAL="0.2")
            start(name, ["flower-supernode", "--superlink", link, *insecure, "--port", str(own)], environment)
            start(f"{name}-executor", self._executor(f"127.0.0.1:{own}"), environment)
        self._submit(link)
        self._wait("submission", lambda: not self.processes.is_running("submission"), stop)
        self._wait("nodes", self._is_complete, stop)

    def _executor(self, address: str) -> list[str]:
        return ["flower-superexec", "--insecure", "--runtime-api-address", address]

    def _submit(self, link: str) -> None:
        app, environment = self.folder / "app", self._environment("server")
        app.mkdir()
        write_whole(app / "pyproject.toml", APP)
        settings = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{link}"\n'
        write_whole(Path(environment["FLWR_HOME"]) / "config.toml", settings + "insecure = true\n")
        self.processes.start("submission", ["flwr", "run", str(app), CONNECTION], environment)

    def _environment(self, node: str, **variables: str) -> dict[str, str]:
        """Environment of a process of Flower: own home directory, no telemetry, no proxies."""
        home = self.folder / f"{node}-home"
        home.mkdir(exist_ok=True)
        return {
            **os.environ,
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]),
            SOCKET: str(self.transport.path),
            NODE: node,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **variables,
        }

    def _is_complete(self) -> bool:
        self.transport.pull()
        return len(self.transport.nodes()) == len(self.names)

    def _wait(self, name: str, is_ready: Callable[[], bool], stop: Callable[[], None]) -> None:
        """Wait for a part of the network; refuse where a process failed meanwhile."""
        end = time.monotonic() + START_SECONDS
        while not is_ready():
            stop()
            for child, process in self.processes.children.items():
                sentence = f"{child} ended with {process.poll()}; its last message: {self.processes.last_line(child)}"
                require(not process.poll(), "engine.not-started", f"the network did not start: {sentence}")
            sentence = f"the network did not start: {name} took over {START_SECONDS:g} s"
            require(time.monotonic() < end, "engine.not-started", sentence)
            time.sleep(0.1)


class FlowerTransport:
    """Transport over the grid of one ServerApp, and the socket where ClientApps ask for the answers to their tasks.

    A node's name is Flower's random id. The name of its processes is known from its first task on.
    """

    def __init__(self, path: Path, respond: Callable[[bytes], bytes], is_alive: Callable[[str], bool]) -> None:
        self.path, self._respond, self._is_alive = path, respond, is_alive
        self._listener = Listener(str(path), "AF_UNIX")
        self._server: Connection | None = None
        self._processes: dict[int, str] = {}  # node id → name of its processes
        self._online: list[int] = []
        self._open: dict[str, str] = {}  # message → node
        self._pushed: list[tuple[str, int, bytes]] = []
        self._forgotten: set[str] = set()
        self._count, self._closed = 0, False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError, EOFError):
                connection = self._listener.accept()
                threading.Thread(target=self._welcome, args=(connection,), daemon=True).start()

    def _welcome(self, connection: Connection) -> None:
        """Keep the connection of the ServerApp, the first and only one; answer the task of a ClientApp."""
        with contextlib.suppress(OSError, EOFError):
            request = connection.recv()
            if request is None and self._server is None:
                self._server = connection
                return
            with connection:
                name, node, task = request
                self._processes[node] = name
                try:
                    content = self._respond(task)
                except Exception:  # its text could hold private data; it goes to the log of this process only
                    logging.getLogger(__name__).exception("a task could not be answered")
                    content = b""
                connection.send_bytes(content)

    @property
    def connected(self) -> bool:
        """Return whether the ServerApp was connected at the last `pull`."""
        return self._server is not None

    def nodes(self) -> Sequence[str]:
        names = self._processes
        return [str(node) for node in self._online if node not in names or self._is_alive(names[node])]

    def push(self, messages: Sequence[tuple[str, bytes]]) -> list[str]:
        first, self._count = self._count, self._count + len(messages)
        ids = [str(number) for number in range(first + 1, self._count + 1)]
        self._open |= {message: node for message, (node, _) in zip(ids, messages, strict=True)}
        self._pushed += [(message, int(node), content) for message, (node, content) in zip(ids, messages, strict=True)]
        return ids

    def forget(self, messages: Sequence[str]) -> None:
        self._forgotten.update(message for message in messages if self._open.pop(message, None) is not None)

    def pull(self) -> list[Arrival]:
        arrived = []
        try:
            if self._server is not None and self._server.poll():
                self._online, answers = self._server.recv()
                self._server.send((self._pushed, self._forgotten))
                self._pushed, self._forgotten = [], set()
                for message, content in answers:
                    node = self._open.pop(message, None)
                    if node is not None:
                        arrived.append(Arrival(message, node, content or Failure(FAILED)))
        except (OSError, EOFError):
            self._server, self._online = None, []
        return arrived

    def close(self) -> None:
        """Close both ends; the ServerApp sees the end of the socket and ends."""
        self._closed = True
        with contextlib.suppress(OSError):
            Client(str(self.path)).close()  # wakes the thread that accepts
        self._listener.close()
        if self._server is not None:
            self._server.close()


_WATCHDOG = """
import os, shutil, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.read()
group = os.getpgrp()
if os.fork() == 0:
    os.setpgid(0, 0)
    os.killpg(group, signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
else:
    signal.pause()  # keeps the group's id taken until the group is killed
"""


class ProcessGroup:
    """Child processes, with their own children, that end with this process.

    They are one process group. Its leader is a watchdog that holds the reading end of a pipe: when this process ends,
    also by SIGKILL, the pipe closes, and the watchdog kills the group and removes its folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.children = folder, dict[str, "subprocess.Popen[bytes]"]()
        command, none = [sys.executable, "-S", "-c", _WATCHDOG, str(folder)], subprocess.DEVNULL
        self._watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, process_group=0)

    def start(self, name: str, command: Sequence[str], environment: dict[str, str]) -> None:
        """Start a process whose output goes to `NAME.log`."""
        with (self.folder / f"{name}.log").open("wb") as output:
            self.children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
                process_group=self._watchdog.pid,
            )

    def is_running(self, name: str) -> bool:
        """Return whether a process was started and has not ended."""
        return name in self.children and self.children[name].poll() is None

    def last_line(self, name: str) -> str:
        """Return the last line of a process's log."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").split("\n")
        words = (line.strip("╭─╮│╰╯ ") for line in reversed(lines))  # Flower frames its errors
        return next((line for line in words if line), "nothing")

    def stop(self) -> None:
        """Kill the group."""
        os.killpg(self._watchdog.pid, signal.SIGKILL)
        for process in (self._watchdog, *self.children.values()):
            process.wait()
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0):
            return True
    except OSError:
        return False
