"""Load of a fleet on a real service of this machine: what a device and a round cost, and whether a reply is lost.

`quorank bench --fleet` prints the figures. The service runs as an operator starts it, in processes of its own, with TLS.
The devices are light: each has a key of its own, opens a new connection for every request, asks for the task and sends a
release of the right form; some send theirs twice. What they were told was accepted is held against what the service
counted. The load generator is a process of its own as well, so that neither's memory and processor time is the other's.

With `leavers` an hour passes in which so many members leave, each after a counted reply but every tenth, which never had
one. Rounds go on, with Gaussian noise, until all of them have a receipt. `faster` shortens what takes its time by the clock
only: the hour, the service's pause between two rebuildings, and the leavers' polling interval. Devices always answer at
once instead of waiting for their polling interval. Everything that is computed, sent or written takes its real time.
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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from quorank.errors import BadInput, require, require_range
from quorank.federation.reply import Reply, decode_task, encode_reply
from quorank.federation.unlearning import rebuilding_name
from quorank.federation.unlearning.departures import INTERVAL
from quorank.federation.unlearning.rebuilding import DOCUMENT, RebuildingLedger
from quorank.files.atomic import write_whole
from quorank.member.sync import LEAVING_PAUSE, TEMPORARY
from quorank.privacy import NoPrivacy
from quorank.protocol import requests
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import is_leaving_receipt, leaving_request
from quorank.protocol.terms import Terms
from quorank.service.dashboard.status import Status
from quorank.service.holders.rounds import KeptInStore
from quorank.service.home import STATUS
from quorank.service.store.sql_store import open_store

INTERACTIONS = 4
START_SECONDS = 60.0
ROUND_SECONDS = 1800.0
"""No round takes longer; a load that does is given up."""
TWICE = 20
"""Every so many-th device sends its reply twice, as one does whose confirmation was lost."""
TRIES = 10
"""How often a device sends a reply that was refused for the moment."""
IDLE = 10
"""Every so many-th leaver never had a counted reply: it enrols and leaves at once."""
HOUR, CLIP = 3600.0, 0.05

EXPERIMENT = """\
[data]
source = "synthetic:mq2007"

[federation]
clients = {devices}
interactions = {interactions}
rounds = {rounds}
"""
NOISE = f"""
[privacy]
kind = "gaussian"
noise_multiplier = 1.0
clip = {CLIP}
"""
MOST_ROUNDS = 1000
"""Planned rounds of a fleet that members leave, which ends earlier."""


@dataclass(frozen=True)
class FleetTraffic:
    """Size of a fleet, and number of its requests on their way at once.

    With `leavers`, so many members leave in an hour that is `faster` times as short, and rounds go on until all have left.
    """

    devices: int = 10_000
    rounds: int = 2
    features: int = 46
    at_once: int = 64
    workers: int = 1
    database: str = ""
    seed: int = 0
    leavers: int = 0
    faster: float = 1.0

    def __post_init__(self) -> None:
        require_range("devices", self.devices, least=1, most=1_000_000)
        require_range("rounds", self.rounds, least=1, most=MOST_ROUNDS)
        require_range("at_once", self.at_once, least=1, most=1000)
        require_range("leavers", self.leavers, least=0, most=self.devices // 2)
        require_range("faster", self.faster, least=1.0, most=HOUR)

    @property
    def members(self) -> int:
        """Number of members: the devices, and leavers that enrol later and never reply."""
        return self.devices + self.leavers // IDLE


def name_of(run: str, round_: int) -> str:
    """Return the name of a round of the run or of a rebuilding."""
    return f"{run}, round {round_ + 1}"


def _publication(headers: Mapping[str, str]) -> int:
    """Return the number of the published task from its tag."""
    return int(headers.get("etag", '"0-').split("-")[0].strip('"'))


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return number, median, 95th percentile and maximum."""
    if not seconds:
        return {"count": 0}
    median, most, longest = np.quantile(seconds, [0.5, 0.95, 1.0]).tolist()
    return {"count": len(seconds), "median": median, "p95": most, "longest": longest}


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
    """Play the rounds of a fleet through a real service; return its metrics."""
    with tempfile.TemporaryDirectory(prefix="quorank-fleet-") as folder, _service(Path(folder), traffic) as service:
        home = Path(folder) / "service"
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
        accepted: dict[str, list[int]] = told["accepted"]  # replies by round, and those of them whose senders left then
        counted = _counted(home, traffic, accepted)
        left = _departures(home, traffic, Path(folder) / "service.log") if traffic.leavers else {}
    each = sum(replies for replies, _ in accepted.values())
    pairs = [(*replies, counted.get(name, 0)) for name, replies in accepted.items()]
    return {
        **asdict(traffic),
        "lost": sum(max(0, accepted - leaving - heard) for accepted, leaving, heard in pairs),
        "counted_twice": sum(max(0, heard - accepted) for accepted, _, heard in pairs),
        "refused": told["refused"],
        "service_cpu_ms_per_device_round": 1000.0 * (after.cpu - before.cpu) / each,
        "service_memory_mb": after.megabytes,
        "seconds_per_round": seconds / len(accepted),
        "devices_cpu_ms_per_device_round": 1000.0 * told["cpu"] / each,
        "requests": told["requests"],
        "requests_tried_again": told["again"],
        "rounds_closed": len(accepted),
        "receipts": told["receipts"],
        **left,
    }


@contextlib.contextmanager
def _service(folder: Path, traffic: FleetTraffic) -> Iterator[subprocess.Popen[bytes]]:
    """A service as an operator starts it; it ends with this."""
    file, home = folder / "fleet.toml", folder / "service"
    rounds = MOST_ROUNDS if traffic.leavers else traffic.rounds
    text = EXPERIMENT.format(devices=traffic.members, interactions=INTERACTIONS, rounds=rounds)
    write_whole(file, text + (NOISE if traffic.leavers else ""))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    quorank = [sys.executable, "-m", "quorank.cli.main", "coordinator"]
    words = ["--experiment", str(file), "--features", str(traffic.features), "--address", f"127.0.0.1:{port}"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--workers", str(traffic.workers)]
    words += ["--database", traffic.database] if traffic.database else []
    words += ["--set", f"leaving_pause={HOUR / traffic.faster}", "--set", "enrolments=0"]
    with (folder / "service.log").open("wb") as log:
        service = subprocess.Popen([*quorank, "start", str(home), *words], stdout=log, stderr=log)
    try:
        _wait(service, port, folder / "service.log")
        days = ["--quota", str(traffic.members), "--days", "1", "--out", str(folder / "invitation.json")]
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


def _counted(home: Path, traffic: FleetTraffic, accepted: Mapping[str, object]) -> dict[str, int]:
    """Return the replies that the service counted in each round, by `name_of`, once these rounds are closed."""
    store = open_store(home, traffic.database)
    try:
        end, counted = time.monotonic() + START_SECONDS, dict[str, int]()
        while time.monotonic() < end and not accepted.keys() <= counted.keys():
            if (saved := KeptInStore(store).load()) is not None:
                counted = {name_of(saved.run, report.round - 1): report.participants for report in saved.reports}
                for entry in RebuildingLedger(NoPrivacy(), store.document(DOCUMENT)).entries:
                    run = rebuilding_name(saved.run, entry.number, INTERVAL)
                    counted |= {name_of(run, round_): int(row[0]) for round_, row in enumerate(entry.releases)}
            time.sleep(0.1)
    finally:
        store.close()
    return counted


def _departures(home: Path, traffic: FleetTraffic, log: Path) -> dict[str, Any]:
    """Return the rebuildings in the service's log, and ε and problems of its status."""
    events = Counter(json.loads(line).get("event") for line in log.read_text().splitlines() if line.startswith("{"))
    store = open_store(home, traffic.database)
    try:
        status = Status.read(store.document(STATUS) or b"")
    finally:
        store.close()
    names = ("rebuilding_begun", "rebuilding_finished", "rebuilding_refused", "run_shortened")
    return {name: events[name] for name in names} | {
        "epsilon_spent": status.epsilon_spent,
        "epsilon_planned": status.epsilon_planned,
        "rebuilding_rounds": status.rebuilding_rounds,
        "problems": [problem.code for problem in status.problems],
    }


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
        self.terms = Terms.read(self.invitation.terms | {"client": 0})
        direction = np.random.default_rng(self.traffic.seed).normal(size=self.traffic.features)
        self.release = CLIP / 8.0 * direction / np.linalg.norm(direction)
        self.refused: dict[str, int] = {}
        self.accepted: dict[str, set[int]] = {}  # senders of the accepted replies of each round
        self.last: dict[int, str] = {}  # round of each device's last accepted reply
        self.busy: set[int] = set()  # devices between their two requests
        self.leaving: dict[int, str] = {}  # leavers, with the round of their last reply
        self.receipts: dict[int, float] = {}  # seconds from the request of a leaver to its receipt

    async def play(self) -> dict[str, Any]:
        """Play all rounds, until all leavers have a receipt; return the accepted replies of each round."""
        end, known = time.monotonic() + ROUND_SECONDS * self.traffic.rounds, 0
        leaving = asyncio.create_task(self._leave_in_turn())
        while not leaving.done() or len(self.accepted) < (0 if self.traffic.leavers else self.traffic.rounds):
            number = next(number for number in range(self.traffic.devices) if number not in self.leaving)
            _, headers, _ = await self._ask(number, "GET", "/v1/task", b"", end)
            if _publication(headers) <= known or requests.ASKED in headers or headers.get(requests.KIND) == "over":
                await asyncio.sleep(0.05)
                continue
            known, room = _publication(headers), asyncio.Semaphore(self.traffic.at_once)

            async def one(number: int, room: asyncio.Semaphore = room, known: int = known) -> None:
                async with room:
                    if number not in self.leaving:
                        self.busy.add(number)
                        await self._take_part(number, known, end)
                        self.busy.remove(number)

            batch = 4 * self.traffic.at_once
            for first in range(0, self.traffic.devices, batch):
                numbers = range(first, min(first + batch, self.traffic.devices))
                await asyncio.gather(*(one(number) for number in numbers))
        await leaving
        used = time.process_time()
        accepted = {
            name: (len(senders), sum(self.leaving.get(number) == name for number in senders))
            for name, senders in self.accepted.items()
        }
        names = {"contributed": lambda n: n < self.traffic.devices, "idle": lambda n: n >= self.traffic.devices}
        receipts = {name: _quantiles([s for n, s in self.receipts.items() if of(n)]) for name, of in names.items()}
        told = {"accepted": accepted, "refused": self.refused, "receipts": receipts, "cpu": used}
        return told | {"requests": self.made, "again": self.again}

    async def _take_part(self, number: int, known: int, end: float) -> None:
        """Fetch the task and answer it, unless a later one is published by now."""
        _, headers, body = await self._ask(number, "GET", "/v1/task", b"", end)
        while _publication(headers) < known and time.monotonic() < end:  # of a worker that has not looked again yet
            await asyncio.sleep(0.2)
            _, headers, body = await self._ask(number, "GET", "/v1/task", b"", end)
        if _publication(headers) > known or requests.ASKED in headers:
            return
        task = decode_task(body)
        unit = self.terms.client_mechanism.unit_of(task.private)
        release = self.release * (1 + number % 7)
        release = release if unit == 1.0 else np.trunc(release * unit)
        reply = encode_reply(Reply(task.run, task.round, number, release, INTERACTIONS))
        for _ in range(TRIES):
            status, _, body = await self._ask(number, "POST", "/v1/reply", reply, end)
            code = "" if status == 200 else str(json.loads(body).get("code", status))  # of our own service
            if code not in TEMPORARY:
                break
            await asyncio.sleep(0.2)  # until a worker has looked again
        if number % TWICE == 0:
            await self._ask(number, "POST", "/v1/reply", reply, end)
        if code:
            self.refused[code] = self.refused.get(code, 0) + 1
        else:
            self.last[number] = name_of(task.run, task.round)
            self.accepted.setdefault(self.last[number], set()).add(number)

    async def _leave_in_turn(self) -> None:
        """Let members leave at equal intervals, and wait for all their receipts."""
        interval = HOUR / self.traffic.faster / max(1, self.traffic.leavers)
        draw, waiting, idle = Random(self.traffic.seed), set[asyncio.Task[None]](), self.traffic.devices
        while self.traffic.leavers and len(self.accepted) < 2:  # one round is closed
            await asyncio.sleep(0.1)
        began = time.monotonic()
        for turn in range(self.traffic.leavers):
            await asyncio.sleep(max(0.0, began + turn * interval - time.monotonic()))
            if turn % IDLE == IDLE - 1:
                number, idle = idle, idle + 1
                key, end = key_of_device(self.traffic.seed, number), time.monotonic() + ROUND_SECONDS
                body = requests.enrolment_body(key, self.invitation.service, token=self.invitation.token)
                await self._ask(number, "POST", "/v1/enrol", body, end)  # the service numbers members in turn
            else:
                number = draw.choice(sorted(self.last.keys() - self.leaving.keys() - self.busy))
            self.leaving[number] = self.last.get(number, "")
            waiting.add(asyncio.create_task(self._leave(number)))
        await asyncio.gather(*waiting)

    async def _leave(self, number: int) -> None:
        """Ask to leave, and again for the receipt until it is there."""
        end, began = time.monotonic() + ROUND_SECONDS * self.traffic.rounds, time.monotonic()
        place, key = replace(self.terms, client=number), key_of_device(self.traffic.seed, number)
        request = leaving_request(place, key, time.time(), os.urandom(16))
        status, _, body = await self._ask(number, "POST", "/v1/leave", request, end)
        while status in (200, 202):
            status, _, body = await self._ask(number, "GET", "/v1/leave", b"", end)
            found = json.loads(body)
            if found.get("state") == "done":
                signed = is_leaving_receipt(self.invitation.service, request, found["receipt"])
                require(signed, "bench.failed", "a receipt is not signed by the service")
                self.receipts[number] = time.monotonic() - began
                return
            await asyncio.sleep(LEAVING_PAUSE / self.traffic.faster)
        raise BadInput("bench.failed", f"a request to leave was refused: {body.decode()}")

    async def _ask(
        self, number: int, method: str, path: str, body: bytes, end: float
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own; again where it failed or the service was busy."""
        key = key_of_device(self.traffic.seed, number)
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
