"""A device's line over Flower: a SuperNode and its executor beside it, kept alive for as long as the line is open.

Flower starts a shim (`flower_client`) for every task, which asks on a socket; there `FlowerLink` hands the task to the
device and the answer back. The coordinator's certificate and the node's key are written into a folder of their own inside
the device's, for its owner's eyes, and go when the line is closed or its process ends in any way.

A coordinator that is away is waited for: the engine is started when somebody answers at its address, since a SuperNode that
has waited long looks again after up to 20 s only. Flower refuses a node that comes back within a minute of being killed,
with the same words as one that it does not know, so a refusal is taken for good after some minutes only. An answer is on
its way for a moment after it was given: the line stays open until the SuperNode says that it was sent (`LINGER_SECONDS`
at most).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

from quorank import frames
from quorank.certificates import write_private
from quorank.errors import BadInput, require
from quorank.federation import notices
from quorank.federation.bundle import Bundle
from quorank.flower import app as flower_app
from quorank.flower import worker
from quorank.flower.processes import Processes, free_ports
from quorank.private_file import wipe

ENGINE = "engine"
"""The folder inside the device's that the engine lives in."""

NODE, EXECUTOR = "node", "executor"
LINGER_SECONDS = 20.0
"""An answer takes about 2 s to be sent, and on a busy machine longer."""

LOOK_SECONDS = 0.25
PROBE_SECONDS = 1.0
"""Between two tries to reach the coordinator, before the engine is started."""

SHORTEST_WAIT, LONGEST_WAIT = 1.0, 5.0
"""Seconds before a process that has ended is started again: they double from time to time."""

LONGEST_LOG = 4 << 20
"""Bytes of a log of the engine, which then begins anew."""

REFUSED_SECONDS = 300.0
"""A node that was refused for so long is refused for good."""

STUCK_SECONDS = 90.0
"""A SuperNode that has not sent an answer after so long waits for something that will not come."""

STEADY_SECONDS = 60.0
GRACE_SECONDS = 5.0
LEAVE_SECONDS = 900.0
"""How long a request to leave waits for its confirmation: the others build the ranker again meanwhile."""

_SETTLED = (b"Sent successfully", b"Ignoring reply message", b"Failed to send message")
_RECEIVED, _REFUSED = b"Received successfully", b"Exit Code: 305"


def reachable(address: str, seconds: float = 2.0) -> bool:
    """Whether somebody answers there; behind a proxy of the environment that cannot be known, and is taken for granted."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds):
            return True
    except OSError:
        return False


def connect(bundle: Bundle, folder: Path) -> FlowerLink:
    """A line to the coordinator of an invitation; `folder` is the device's."""
    flower_app.check_installed()
    link = FlowerLink(bundle, folder / ENGINE)
    link.open()
    return link


@dataclass(eq=False)
class Handed:
    """A link whose tasks are handed in by another thread, which waits for the answer: `respond` for a worker."""

    confirm: Callable[[bytes], bytes] | None = None  # how requests to leave reach the coordinator
    stop: Callable[[], bool] | None = None
    _tasks: Queue[tuple[bytes, Queue[bytes | None]] | None] = field(default_factory=Queue, init=False)
    _reply: Queue[bytes | None] | None = field(default=None, init=False)

    def respond(self, task: bytes) -> bytes | None:
        """The engine's side."""
        reply: Queue[bytes | None] = Queue()
        self._tasks.put((task, reply))
        return reply.get()

    def tasks(self) -> Iterator[bytes]:
        while not (self.stop and self.stop()):
            try:
                found = self._tasks.get(timeout=LOOK_SECONDS)
            except Empty:
                continue
            if found is None:
                return
            task, self._reply = found
            try:
                yield task
            finally:
                self.send(None)  # whoever waits is not left waiting

    def send(self, answer: bytes | None) -> None:
        if self._reply is not None:
            self._reply.put(answer)
            self._reply = None

    def leave(self, request: bytes) -> bytes:
        if self.confirm is None:
            raise BadInput("leaving.not-carried", "this line carries no requests to leave; ask the coordinator's owner")
        return self.confirm(request)

    def close(self) -> None:
        self._tasks.put(None)


class FlowerLink(Handed):
    """A `Link`. Tasks are handed in by the engine's threads; one thread plays the device."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        super().__init__()
        self.bundle, self.folder = bundle, folder.absolute()  # the engine's processes work in it
        self.processes = Processes(self.folder, True, flower_app.OF_A_NODE)
        self._mutex = threading.Lock()
        self._closing, self._closed = threading.Event(), False
        self._fault: BadInput | None = None
        self._request: bytes | None = None  # to leave, while it is not confirmed
        self._receipts: Queue[bytes] = Queue()
        self._at_work = 0  # tasks that the device is answering
        self._touched = 0.0  # when one was handed in, or an answer given
        self._recipes: dict[str, tuple[list[str], dict[str, str]]] = {}
        self._waits: dict[str, float] = {}  # by process: the wait before its last start
        self._due: dict[str, float] = {}  # when it is started again
        self._refused: float | None = None  # since when the coordinator refuses this node
        self._watch: threading.Thread | None = None
        self._sockets: tempfile.TemporaryDirectory[str] | None = None

    @property
    def pinned(self) -> Mapping[int, bytes] | None:
        """The identities that a secure sum may be made with, where the invitation names them."""
        return self.bundle.identities or None

    def open(self) -> None:
        """Bring up the engine; the coordinator need not be there yet."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        certificate, key, secret = (self.folder / name for name in ("ca.pem", "node.key", "secret"))
        write_private(certificate, self.bundle.certificate.encode())
        write_private(key, self.bundle.key.encode())
        write_private(secret, secrets.token_bytes(32))
        sockets = self._sockets = tempfile.TemporaryDirectory(prefix="quorank-")  # a socket's name must be short
        path, ready = Path(sockets.name) / "device.sock", threading.Event()
        serving = threading.Thread(
            target=worker.serve, args=(path, self.respond, ready.set), daemon=True, name="device"
        )
        serving.start()
        require(
            ready.wait(10.0),
            "device.no-socket",
            "the device cannot listen on a socket of this machine; look into its log",
        )
        port = free_ports(1)[0]
        commands = flower_app.Commands(self.bundle.address, certificate, secret)
        home = flower_app.environment(self.folder / "home", **{worker.SOCKET: str(path)})
        self._recipes = {NODE: (commands.supernode(key, port), home), EXECUTOR: (commands.node_executor(port), home)}
        self._watch = threading.Thread(target=self._tend, daemon=True, name="engine")
        self._watch.start()

    # the engine's side

    def respond(self, task: bytes) -> bytes | None:
        """What a task or a notice is answered with, as a bundle; None where there is nothing to give."""
        if self._closing.is_set():
            return None
        with self._mutex:
            self._at_work += 1
            self._touched = time.monotonic()
        try:
            return self._answer(task)
        finally:
            with self._mutex:
                self._at_work -= 1
                self._touched = time.monotonic()

    def _answer(self, task: bytes) -> bytes | None:
        if task.startswith(notices.RECEIPT):
            self._receipts.put(task)
            return frames.pack([notices.HEARD])
        if self._request is not None:
            return frames.pack([self._request])
        if task == notices.OVER:
            super().close()
        if notices.is_notice(task):
            return frames.pack([notices.HEARD])
        answer = super().respond(task)
        return None if answer is None else frames.pack([answer])

    # the device's side

    def tasks(self) -> Iterator[bytes]:
        yield from super().tasks()
        if self._fault is not None:
            raise self._fault

    def leave(self, request: bytes) -> bytes:
        """Answer whatever comes next with the request, until it is confirmed; then the engine is taken down."""
        self._request = request
        try:
            end = time.monotonic() + LEAVE_SECONDS
            while time.monotonic() < end:
                if self._fault is not None:
                    raise self._fault
                try:
                    receipt = self._receipts.get(timeout=LOOK_SECONDS)
                except Empty:
                    continue
                self.close()
                return receipt
        finally:
            self._request = None
        raise BadInput(
            "leaving.not-confirmed",
            "the coordinator did not confirm that this client leaves; nothing was erased; try again later",
        )

    def close(self) -> None:
        """Let the last answer be sent, stop the engine, and delete the key with all that the engine wrote."""
        if self._closed:
            return
        self._closed = True
        super().close()
        end = time.monotonic() + LINGER_SECONDS
        while self._unsettled() and self.processes.running(NODE) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        self._closing.set()
        if self._watch is None or self._sockets is None:
            return
        self._watch.join()
        wipe([self.folder / "node.key"])  # before the folder goes with the processes
        self.processes.stop(grace=GRACE_SECONDS)
        self._sockets.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)

    # keeping the engine alive

    def _running(self) -> bool:
        return all(self.processes.running(name) for name in self._recipes)

    def _log(self) -> bytes:
        try:
            return (self.folder / f"{NODE}.log").read_bytes()
        except OSError:
            return b""

    def _unsettled(self) -> bool:
        """Whether the SuperNode has a message that it has not answered yet."""
        log = self._log()
        last = log.rfind(_RECEIVED)
        return last >= 0 and not any(word in log[last:] for word in _SETTLED)

    def _tend(self) -> None:
        while not self._closing.is_set():
            for name in self._recipes:
                if not self.processes.running(name):
                    self._restart(name)
            if self._running() and not self._at_work and self._stuck():
                self._end(NODE)
            self._shorten()
            self._closing.wait(LOOK_SECONDS)

    def _shorten(self) -> None:
        """Let a long log begin anew, but not while the node's is needed to see whether an answer was sent."""
        for name, child in self.processes.children.items():
            with contextlib.suppress(OSError):
                if child.log.stat().st_size > LONGEST_LOG and not (name == NODE and self._unsettled()):
                    child.log.write_bytes(b"")  # they append, so they go on at its beginning

    def _stuck(self) -> bool:
        child = self.processes.children[NODE]
        quiet = time.monotonic() - max(self._touched, child.since) > STUCK_SECONDS
        return quiet and self._unsettled()

    def _end(self, name: str) -> None:
        """Let a process end by itself, so that Flower lets it in again at once."""
        child, end = self.processes.children[name], time.monotonic() + GRACE_SECONDS
        child.signal(signal.SIGTERM)
        while child.running and time.monotonic() < end:
            time.sleep(0.05)
        self.processes.kill(name)

    def _restart(self, name: str) -> None:
        if name == EXECUTOR and NODE not in self.processes.children:
            return  # it would have nobody to ask
        now, child = time.monotonic(), self.processes.children.get(name)
        if name not in self._due:
            steady = child is None or now - child.since > STEADY_SECONDS
            wait = 0.0 if child is None else SHORTEST_WAIT if steady else self._waits.get(name, 0.0) * 2.0
            self._waits[name] = min(max(wait, 0.0 if child is None else SHORTEST_WAIT), LONGEST_WAIT)
            self._due[name] = now + self._waits[name]
            if name == NODE and child is not None:
                self._judge(now, steady)
        if now >= self._due[name]:
            if name == NODE and not reachable(self.bundle.address):
                self._due[name] = time.monotonic() + PROBE_SECONDS
                return
            del self._due[name]
            command, environment = self._recipes[name]
            (self.folder / f"{name}.log").write_bytes(b"")
            self.processes.start(name, command, environment)

    def _judge(self, now: float, steady: bool) -> None:
        """Give up where the coordinator refuses this node again and again."""
        if steady or _REFUSED not in self._log():
            self._refused = None
            return
        self._refused = self._refused or now
        if now - self._refused > REFUSED_SECONDS:
            self._fault = BadInput(
                "device.not-admitted",
                f"the coordinator at {self.bundle.address} does not let this device in: its key is unknown, was revoked "
                "or is in use elsewhere, or the authority is another one; ask for a new invitation",
            )
            super().close()
