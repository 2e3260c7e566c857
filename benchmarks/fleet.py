"""Load of a fleet on a real service of this machine: what a device and a round cost, and whether a reply is lost.

`quorank bench --fleet` prints the figures. The service runs as an operator starts it, in processes of its own, with TLS.
The devices are light: each has a key of its own, opens a new connection for every request, asks for the task and sends a
release of the right form; some send theirs twice. What they were told was accepted is held against what the service
counted. The load generator is a process of its own as well, so that neither's memory and processor time is the other's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.federation.reply import Reply, decode_task, encode_reply
from quorank.files.atomic import write_whole
from quorank.protocol import requests
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.service.store.sql_store import open_store

INTERACTIONS = 4
START_SECONDS = 60.0
ROUND_SECONDS = 1800.0
"""No round takes longer; a load that does is given up."""
TWICE = 20
"""Every so many-th device sends its reply twice, as one does whose confirmation was lost."""

EXPERIMENT = """\
[data]
source = "synthetic:mq2007"

[federation]
clients = {devices}
interactions = {interactions}
rounds = {rounds}
"""


@dataclass(frozen=True)
class FleetTraffic:
    """How many devices and rounds, and how many requests are on their way at once."""

    devices: int = 10_000
    rounds: int = 2
    features: int = 46
    at_once: int = 64
    workers: int = 1
    database: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        require_range("devices", self.devices, least=1, most=1_000_000)
        require_range("rounds", self.rounds, least=1, most=1000)
        require_range("at_once", self.at_once, least=1, most=1000)


def key_of_device(seed: int, number: int) -> MemberKey:
    """The key of a light device."""
    return MemberKey(hashlib.blake2b(f"{seed} {number}".encode(), digest_size=32).digest())


class Usage(NamedTuple):
    """What processes have used: seconds of processor time, and the most memory that each had, together."""

    cpu: float
    megabytes: float


def usage(root: int) -> Usage:
    """Of a process and all that it has started."""
    cpu = memory = 0.0
    for process in [root, *descendants(root)]:
        with contextlib.suppress(OSError):
            words = Path("/proc", str(process), "stat").read_text().rsplit(")", 1)[1].split()
            cpu += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            lines = Path("/proc", str(process), "status").read_text().splitlines()
            memory += sum(int(line.split()[1]) / 1024.0 for line in lines if line.startswith("VmHWM:"))
    return Usage(cpu, memory)


def descendants(root: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                children.setdefault(int(words[1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def measure(traffic: FleetTraffic) -> dict[str, Any]:
    """Rounds of a fleet through a real service; the figures."""
    with tempfile.TemporaryDirectory(prefix="quorank-fleet-") as folder, _service(Path(folder), traffic) as service:
        home = Path(folder) / "service"
        invitation = Invitation.read(Path(folder) / "invitation.json")
        _enrol(home, traffic)
        before, began = usage(service.pid), time.monotonic()
        orders = asdict(traffic) | {"invitation": str(Path(folder) / "invitation.json")}
        command = [sys.executable, __file__, json.dumps(orders)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ROUND_SECONDS * traffic.rounds, check=False
        )
        require(done.returncode == 0, "bench.failed", f"the devices ended with: {done.stderr.strip()[-300:]}")
        seconds, after = time.monotonic() - began, usage(service.pid)
        told: dict[str, Any] = json.loads(done.stdout)  # by a process of ours
        counted = _counted(home, traffic, invitation)
    each = traffic.devices * traffic.rounds
    return {
        **asdict(traffic),
        "lost": sum(max(0, accepted - heard) for accepted, heard in zip(told["accepted"], counted, strict=True)),
        "counted_twice": sum(
            max(0, heard - accepted) for accepted, heard in zip(told["accepted"], counted, strict=True)
        ),
        "refused": told["refused"],
        "service_cpu_ms_per_device_round": 1000.0 * (after.cpu - before.cpu) / each,
        "service_memory_mb": after.megabytes,
        "seconds_per_round": seconds / traffic.rounds,
        "devices_cpu_ms_per_device_round": 1000.0 * told["cpu"] / each,
        "requests": told["requests"],
        "requests_tried_again": told["again"],
    }


@contextlib.contextmanager
def _service(folder: Path, traffic: FleetTraffic) -> Iterator[subprocess.Popen[bytes]]:
    """A service as an operator starts it; it ends with this."""
    file, home = folder / "fleet.toml", folder / "service"
    values = {"devices": traffic.devices, "interactions": INTERACTIONS, "rounds": traffic.rounds}
    write_whole(file, EXPERIMENT.format(**values))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    quorank = [sys.executable, "-m", "quorank.cli.main", "coordinator"]
    words = ["--experiment", str(file), "--features", str(traffic.features), "--address", f"127.0.0.1:{port}"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--workers", str(traffic.workers)]
    words += ["--database", traffic.database] if traffic.database else []
    with (folder / "service.log").open("wb") as log:
        service = subprocess.Popen([*quorank, "start", str(home), *words], stdout=log, stderr=log)
    try:
        _wait(service, port, folder / "service.log")
        days = ["--quota", str(traffic.devices), "--days", "1", "--out", str(folder / "invitation.json")]
        opened = subprocess.run([*quorank, "open", str(home), *days], capture_output=True, text=True, check=False)
        require(
            opened.returncode == 0, "bench.failed", f"enrolment could not be opened: {opened.stderr.strip()[-300:]}"
        )
        yield service
    finally:
        service.send_signal(signal.SIGTERM)
        try:
            service.wait(30)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


def _wait(service: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        ended = service.poll()
        require(ended is None, "bench.failed", f"the service ended with {ended}: {log.read_text()[-300:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    raise BadInput("bench.failed", f"the service did not start within {START_SECONDS:g} s")


def _enrol(home: Path, traffic: FleetTraffic) -> None:
    """All devices at once, as enrolment over HTTPS would leave them in the store."""
    store = open_store(home, traffic.database)
    try:
        now, rows = store.now(), range(traffic.devices)
        with store.database.transaction():
            for number in rows:
                store.database.execute(
                    "INSERT INTO members (number, name, kind, key, invited, enrolled) VALUES (?, ?, 'device', ?, ?, ?)",
                    number, f"device-{number}", key_of_device(traffic.seed, number).public, now, now,
                )  # fmt: skip
            store.database.execute("UPDATE service SET version = version + 1 WHERE id = 1")
    finally:
        store.close()


def _counted(home: Path, traffic: FleetTraffic, invitation: Invitation) -> list[int]:
    """Replies that the service counted in each round."""
    store = open_store(home, traffic.database)
    try:
        end = time.monotonic() + START_SECONDS
        closed: dict[int, int] = {}
        while time.monotonic() < end and len(closed) < traffic.rounds:
            events = [event for event in store.events(1000) if event["code"] == "round_closed"]
            closed = {int(event["round"]): int(event["replies"]) for event in events}
            time.sleep(0.1)
    finally:
        store.close()
    return [closed.get(round_, 0) for round_ in sorted(closed)] + [0] * (traffic.rounds - len(closed))


# ------------------------------------------------------------ the devices


@dataclass(eq=False)
class LightFleet:
    """All light devices, in one process; a new connection for every request."""

    traffic: FleetTraffic
    invitation: Invitation
    made: int = 0  # requests
    again: int = 0  # requests that were made again, because a connection failed or the service was busy

    def __post_init__(self) -> None:
        parts = urlsplit(self.invitation.url)
        self.host, self.port = parts.hostname or "", parts.port or 443
        self.context = ssl.create_default_context(cadata=self.invitation.certificate or None)
        self.release = 0.001 * np.random.default_rng(self.traffic.seed).normal(size=self.traffic.features)
        self.refused: dict[str, int] = {}

    async def play(self) -> dict[str, Any]:
        """All rounds; how many replies of each were accepted."""
        accepted = []
        for round_ in range(self.traffic.rounds):
            room, counts = asyncio.Semaphore(self.traffic.at_once), [0]

            async def one(
                number: int, room: asyncio.Semaphore = room, round_: int = round_, counts: list[int] = counts
            ) -> None:
                async with room:
                    accepted = await self._take_part(number, round_)
                    counts[0] += accepted

            batch = 4 * self.traffic.at_once
            for first in range(0, self.traffic.devices, batch):
                numbers = range(first, min(first + batch, self.traffic.devices))
                await asyncio.gather(*(one(number) for number in numbers))
            accepted.append(counts[0])
        used = time.process_time()
        return {"accepted": accepted, "refused": self.refused, "cpu": used, "requests": self.made, "again": self.again}

    async def _take_part(self, number: int, round_: int) -> bool:
        """One device in one round: fetch the task, answer it; whether the answer was accepted."""
        key, end = key_of_device(self.traffic.seed, number), time.monotonic() + ROUND_SECONDS
        while True:
            status, headers, body = await self._ask(key, number, "GET", "/v1/task", b"", end)
            if status == 200 and headers.get(requests.ROUND) == str(round_):
                break
            require(time.monotonic() < end, "bench.too-slow", "a round did not open in time")
            await asyncio.sleep(min(0.2, float(headers.get(requests.NEXT, "0.2"))))
        task = decode_task(body)
        reply = encode_reply(Reply(task.run, task.round, number, self.release * (1 + number % 7), INTERACTIONS))
        status, headers, body = await self._ask(key, number, "POST", "/v1/reply", reply, end)
        if number % TWICE == 0:
            await self._ask(key, number, "POST", "/v1/reply", reply, end)
        if status != 200:
            code = str(json.loads(body).get("code", status))  # of our own service
            self.refused[code] = self.refused.get(code, 0) + 1
        return status == 200

    async def _ask(
        self, key: MemberKey, number: int, method: str, path: str, body: bytes, end: float
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own; again where it failed or the service was busy."""
        while True:
            nonce, now = os.urandom(requests.NONCE), int(time.time())
            signed = requests.signed_headers(key, self.invitation.service, number, method, path, body, now, nonce)
            lines = [f"{method} {path} HTTP/1.1", f"host: {self.host}:{self.port}", "connection: close"]
            lines += [f"{name}: {value}" for name, value in signed.items()]
            lines += [f"content-length: {len(body)}"] if method == "POST" else []
            self.made += 1
            try:
                async with asyncio.timeout(60.0):
                    answer = await self._exchange("\r\n".join([*lines, "", ""]).encode() + body)
                if answer[0] not in (429, 503):
                    return answer
            except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
                pass
            require(time.monotonic() < end, "bench.too-slow", "the service did not answer in time")
            self.again += 1
            await asyncio.sleep(0.2)

    async def _exchange(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.context)
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            return int(head[0].split()[1]), headers, body
        finally:
            writer.transport.abort()


def main(arguments: list[str]) -> None:
    """Be the devices: the traffic and the invitation's path as JSON; prints what they were told."""
    orders = json.loads(arguments[0])  # by the process that measures
    invitation = Invitation.read(Path(orders.pop("invitation")))
    print(json.dumps(asyncio.run(LightFleet(FleetTraffic(**orders), invitation).play())))


if __name__ == "__main__":
    main(sys.argv[1:])
