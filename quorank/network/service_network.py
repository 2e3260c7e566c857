"""Flower for a coordinator that stays: its SuperLink in the coordinator's folder, the devices elsewhere.

The engine listens on the loopback interface only; before it stands the proxy (`proxy`, or one of the owner's). Keys of
members are registered, and dropped when they are revoked, while the network runs (`reconcile`). After a kill the same
folder comes up again with the same state: nodes keep their numbers, and the ServerApp's old run is withdrawn.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quorank.certificates import CERTIFICATE
from quorank.documents import Each, Items, read_json
from quorank.errors import BadInput
from quorank.files import write_whole
from quorank.flower import app as flower_app
from quorank.flower.network import FlowerNetwork
from quorank.flower.processes import Processes
from quorank.flower.transport import FlowerTransport
from quorank.service import members as service_members
from quorank.service.home import SECRET, SERVER_CERTIFICATE, SERVER_KEY, Home
from quorank.service.members import InvitedMember
from quorank.service.observe import EventLog

ENGINE = "engine"
"""The folder inside the coordinator's where Flower keeps its state and its logs."""

LOOK_SECONDS, RETRY_SECONDS = 0.5, 30.0
"""Between two looks at the list of members, and before an order that Flower refused is given again."""

LONGEST_SOCKET = 100
LONGEST_LOG = 8 << 20
GRACE_SECONDS = 2.0
_VARIABLE = "QUORANK_COORDINATOR"


def _no_worker(path: Path) -> list[str]:
    raise AssertionError("devices have workers of their own")


class ServiceNetwork(FlowerNetwork):
    """Used as a context, like the network that it is made of; `changed` is told of every change of the members."""

    def __init__(
        self,
        home: Home,
        log: EventLog,
        changed: Callable[[Sequence[InvitedMember]], None],
        stop: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(1, _no_worker, stop)
        self.home, self.log, self.changed = home, log, changed
        self._stamp, self._looked, self._again = -1, 0.0, 0.0
        self._given: list[tuple[str, InvitedMember]] = []
        self._sockets: tempfile.TemporaryDirectory[str] | None = None

    @property
    def names(self) -> Sequence[str]:
        return [member.label for member in service_members.members(self.home) if member.admitted]

    def alive(self, name: str) -> bool:
        """Devices are elsewhere: what Flower knows is all that is known."""
        return True

    def __enter__(self) -> ServiceNetwork:
        self.folder = self.home.path / ENGINE
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.processes = Processes(self.folder)
        try:
            self._write_files()
            self.transport = FlowerTransport(self._socket())
            self._bring_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def _socket(self) -> Path:
        """Sockets have short names: where the folder's is too long, one in a folder for temporary files."""
        path = self.folder / "coordinator.sock"
        if len(bytes(path)) <= LONGEST_SOCKET:
            return path
        self._sockets = tempfile.TemporaryDirectory(prefix="quorank-")
        return Path(self._sockets.name) / path.name

    def _write_files(self) -> None:
        settings, folder = self.home.settings, self.folder
        write_whole(folder / CERTIFICATE, self.home.authority)
        address = f"127.0.0.1:{settings.inside}"
        self.commands = flower_app.Commands(address, folder / CERTIFICATE, self.home.path / SECRET)
        flower_app.write_app(folder / "app")
        flower_app.write_connection(folder / "home", address, folder / CERTIFICATE)

    def _bring_up(self) -> None:
        home, folder = self.home.path, self.folder
        variables = flower_app.environment(folder / "home", **{_VARIABLE: str(self.transport.path)})
        certificate, key = home / SERVER_CERTIFICATE, home / SERVER_KEY
        self.start("superlink", self.commands.superlink(certificate, key, folder / "state.db"), variables)
        self.start("executor", self.commands.server_executor(), variables)
        if self.home.settings.proxy:
            self._start_proxy(variables)
        self._wait("superlink", self._healthy)
        lost = str(self._answers()[-1].get("run-id", ""))
        withdraw = [flower_app.withdraw(lost)] if lost else []
        self._look()
        known = self._orders()
        self.administrate([*withdraw, *known, flower_app.submit(folder / "app")])
        self._wait("the coordinator's app", lambda: not self.processes.running("admin"))
        self._note(self._answers()[len(withdraw) : len(withdraw) + len(known)])
        self._wait("the coordinator's app", lambda: self.transport.connected)
        self.reconcile()

    def _start_proxy(self, variables: dict[str, str]) -> None:
        home, settings = self.home.path, self.home.settings
        places = (home / SERVER_CERTIFICATE, home / SERVER_KEY, home / CERTIFICATE)
        words = (settings.host, settings.port, settings.inside, *places)
        self.start("proxy", [sys.executable, "-m", "quorank.service.proxy", *map(str, words)], variables)

    def tend(self) -> None:
        super().tend()
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            self._looked = now
            self.reconcile()
            for child in self.processes.children.values():
                if child.log.stat().st_size > LONGEST_LOG:
                    child.log.write_bytes(b"")  # they append, so they go on at its beginning

    def reconcile(self) -> None:
        """Let Flower know the keys of new members, and forget those of revoked ones."""
        if self._given and not self.processes.running("registrar"):
            self._note(self._answered())
        same = service_members.stamp(self.home) == self._stamp
        if self._given or (same and time.monotonic() < self._again):
            return
        self._look()
        orders = self._orders()
        if orders:
            out = self.folder / "registrar.json"
            out.unlink(missing_ok=True)
            words = [sys.executable, "-m", flower_app.ADMIN, str(out), *map(json.dumps, orders)]
            self.processes.start("registrar", words, flower_app.environment(self.folder / "home"))

    def _look(self) -> None:
        """Read the list of members, and see what Flower must be told."""
        self._stamp, self._again = service_members.stamp(self.home), float("inf")
        found = service_members.members(self.home)
        self.transport.ids = {
            member.label: member.node for member in found if member.admitted and member.node is not None
        }
        self.changed(found)
        self._given = [("register", m) for m in found if m.admitted and m.node is None]
        gone = [m for m in found if not m.admitted and m.node is not None and not m.removed]
        self._given += [("unregister", m) for m in gone]

    def _orders(self) -> list[list[str]]:
        orders = []
        for verb, member in self._given:
            if verb == "register":
                file = self.folder / f"{member.label}.pub"
                write_whole(file, member.public + "\n")
                orders.append(flower_app.register(file, member.label))
            else:
                orders.append(["supernode", "unregister", str(member.node), flower_app.CONNECTION])
        return orders

    def _answered(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = read_json(self.folder / "registrar.json", Items(Each()))
        except BadInput:
            return []
        return found

    def _note(self, answers: list[dict[str, Any]]) -> None:
        """Keep what Flower answered; what it refused is tried again later."""
        nodes: dict[str, int] = {}
        removed: set[str] = set()
        missing: list[dict[str, Any]] = [{}] * (len(self._given) - len(answers))
        for (verb, member), answer in zip(self._given, [*answers, *missing], strict=True):
            if verb == "register" and answer.get("success"):
                nodes[member.label] = int(answer["node-id"])
            elif verb == "unregister" and answer.get("success"):
                removed.add(member.label)
            done = member.label in nodes or member.label in removed
            event = "member_not_admitted" if not done else "member_admitted"
            self.log.write("member_removed" if member.label in removed else event, client=member.client)
        failed = len(nodes) + len(removed) < len(self._given)
        self._given = []
        service_members.note_nodes(self.home, nodes, removed)
        self._again = time.monotonic() + RETRY_SECONDS if failed else float("inf")

    def _take_down(self) -> None:
        if hasattr(self, "transport"):
            self.transport.close()
        self.processes.stop(GRACE_SECONDS)
        if self._sockets is not None:
            self._sockets.cleanup()
