"""A service with its real processes: supervisor, workers, holder."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from signed_calls import Caller, Got, folder_of, over_tls

from quorank.protocol.invitation import Invitation
from quorank.service.enrolment import invite
from quorank.service.home import Home


def free_port() -> int:
    """A port that nobody listens on, as far as one can know."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class RealService:
    """A folder and the process that watches over it."""

    def __init__(self, home: Home) -> None:
        self.home, self.log = home, home.path.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.home.settings.url

    def start(self) -> None:
        with self.log.open("ab") as log:
            words = [sys.executable, "-m", "quorank.service.supervisor", str(self.home.path)]
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        until(lambda: self.told().get("state") == "running" and self.told()["process"] == self.pid, self.log)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def told(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.home.path / "supervisor.json").read_bytes())
            return found
        return {}

    def children(self, kind: str = "") -> list[int]:
        return [pid for name, pid in self.told().get("children", {}).items() if name.startswith(kind)]

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Whatever is left, at the end of a test."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def call(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Got:
        return over_tls(self.url, self.home.path / "ca.pem", method, target, body, headers)

    def signed(self, caller: Caller, method: str, target: str, body: bytes = b"") -> Got:
        return self.call(method, target, body, caller.headers(method, target, body))

    def enrolled(self, name: str, folder: Path) -> Caller:
        """A device that was invited and has enrolled over the network."""
        store = self.home.store()
        invite(self.home, store, name, folder / f"{name}.json")
        store.close()
        invitation = Invitation.read(folder / f"{name}.json")
        caller = Caller(invitation.service)
        got = self.call("POST", "/v1/enrol", caller.enrolment(invitation.code))
        assert got.status == 200, got
        caller.number = got.table["member"]
        return caller


@contextmanager
def real_service(path: Path, **settings: Any) -> Iterator[RealService]:
    """A service that has started; everything of it is gone afterwards."""
    port = free_port()
    service = RealService(folder_of(path, **{"port": port, "address": f"127.0.0.1:{port}"} | settings))
    try:
        service.start()
        yield service
    finally:
        service.kill()


def until(ready: Callable[[], Any], told: Path | Callable[[], str] | None = None, seconds: float = 60.0) -> None:
    """Wait for something to be true; a log, or what is told, explains why it never was."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            pytest.fail(told.read_text() if isinstance(told, Path) else told() if told else "it never came")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children_of(pid: int) -> dict[int, str]:
    """Child processes, as the kernel knows them, with their command lines."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            found[int(child)] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def listening_sockets(pids: list[int]) -> set[str]:
    """The sockets that these processes listen on, over IPv4 and IPv6, by their inodes."""
    own = set()
    for pid in pids:
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                own.add(str(one.readlink()))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}
