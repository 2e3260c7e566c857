"""Calls of members to a service: in process through its ASGI application, or over a real connection."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.federation.reply import Reply, ReplyLimits, Task, encode_reply, encode_task
from quorank.files.documents import json_bytes
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey, enrolment_content, task_content
from quorank.protocol.messages import Kind, Publication
from quorank.protocol.requests import signed_headers
from quorank.service.enrolment import invite
from quorank.service.home import Home, Settings
from quorank.service.intake.intake import Intake
from quorank.service.intake.limits import IntakeTraffic
from quorank.service.store.sql_store import SqlStore


class Got(NamedTuple):
    """What was answered."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def table(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def code(self) -> str:
        return str(self.table.get("code", "")) if self.body.startswith(b"{") else ""


NOISY = {"kind": "gaussian", "noise_multiplier": 1.0}
"""Noise that is given: to plan it for an ε takes a second."""


def folder_of(
    path: Path,
    clients: int = 5,
    rounds: int = 100,
    privacy: Any = "none",
    features: int = 5,
    federation: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> Home:
    """A service's folder for a small linear ranker, by default of five features."""
    tables: dict[str, Any] = {
        "federation": {"clients": clients, "interactions": 3, "rounds": rounds, **federation},
        "privacy": privacy,
    }
    experiment = Experiment.read(ExperimentFile(tables, "test"))
    chosen = {"address": "127.0.0.1:9092", "enrolments": 0} | settings
    return Home.create(path, experiment, Settings("run", features, **chosen))


def publish(home: Home, store: SqlStore, round_: int = 0, kind: Kind = "round", **more: Any) -> Publication:
    """The task of a round, as a holder publishes it."""
    body = encode_task(Task("run", round_, np.zeros(5)))
    limits = ReplyLimits("run", round_, 5, home.terms(0).setting.interactions, 1e6, 1000)
    more = {"limits": b"" if kind in ("secure", "over") else json_bytes(limits)} | more
    return store.publish(Publication(kind, "run", round_, body, home.key.sign(task_content(kind, body)), 7.0, **more))


def reply_of(member: int, round_: int = 0, value: float = 0.1, **more: Any) -> bytes:
    """A device's reply."""
    fields: dict[str, Any] = {"run": "run", "interactions": 3, "release": np.full(5, value)} | more
    return encode_reply(Reply(round=round_, client=member, **fields))


@dataclass
class Caller:
    """A member's key and number, and how it signs."""

    service: bytes
    key: MemberKey = field(default_factory=MemberKey.create)
    number: int = -1
    ahead: int = 0  # seconds that its clock is wrong by

    def headers(self, method: str, target: str, body: bytes = b"", nonce: bytes | None = None) -> dict[str, str]:
        now = int(time.time()) + self.ahead
        return signed_headers(self.key, self.service, self.number, method, target, body, now, nonce or os.urandom(16))

    def enrolment(self, secret: bytes | str, **changed: Any) -> bytes:
        """The body of its enrolment with a code or a token."""
        code = secret if isinstance(secret, bytes) else secret.encode()
        proof = self.key.sign(enrolment_content(self.service, code, self.key.public))
        told = {"code": code.hex()} if isinstance(secret, bytes) else {"token": secret}
        return json.dumps(
            {"protocol": 1, "key": self.key.public.hex(), "proof": base64.b64encode(proof).decode()} | told | changed
        ).encode()


class Desk:
    """A service's application in this process; it remembers nothing between calls but its store."""

    def __init__(self, home: Home, traffic: IntakeTraffic | None = None) -> None:
        self.home, self.loop = home, asyncio.new_event_loop()
        self.intake = Intake(home, traffic)
        self.store, self.writer = self.intake.store, self.intake.writer
        self.pieces: list[bytes] = []  # of the last body, that were read

    def stop(self) -> None:
        """Write everything that is still to be written."""
        self.intake.close()
        self.loop.run_until_complete(self.writer.stop())

    def close(self) -> None:
        self.stop()
        self.loop.close()
        self.store.close()

    def call(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        address: str = "192.0.2.1",
    ) -> Got:
        """One request; a body in pieces has no Content-Length."""
        self.intake._looked = -1e9
        return self.loop.run_until_complete(self.ask(method, target, body, headers, address))

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        address: str = "192.0.2.1",
    ) -> Got:
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        if isinstance(body, bytes) and body and not any(name.lower() == "content-length" for name, _ in pairs):
            pairs.append(("Content-Length", str(len(body))))
        pieces = iter([body] if isinstance(body, bytes) else body)
        self.pieces = []
        path, _, query = target.partition("?")
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            piece = next(pieces, None)
            if piece is None:
                return {"type": "http.request", "body": b"", "more_body": False}
            self.pieces.append(piece)
            return {"type": "http.request", "body": piece, "more_body": not isinstance(body, bytes)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(), "client": (address, 1),
            "headers": [(name.lower().encode(), value.encode()) for name, value in pairs],
        }  # fmt: skip
        await self.intake(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Got(sent[0]["status"], sent[1].get("body", b""), found)

    def signed(self, caller: Caller, method: str, target: str, body: bytes = b"", **more: str) -> Got:
        """One signed request, with more headers."""
        return self.call(method, target, body, caller.headers(method, target, body) | more)

    def invited(self, name: str, folder: Path) -> Invitation:
        """A new device's invitation."""
        invite(self.home, self.store, name, folder / f"{name}.json")
        return Invitation.read(folder / f"{name}.json")

    def enrolled(self, name: str, folder: Path) -> Caller:
        """A device that has enrolled."""
        caller = Caller(self.home.key.public)
        got = self.call("POST", "/v1/enrol", caller.enrolment(self.invited(name, folder).code))
        assert got.status == 200, got
        caller.number = got.table["member"]
        return caller


def over_tls(
    url: str,
    authority: Path | str,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Got:
    """The same over a new connection."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(host, int(port), timeout=20, context=context)
    try:
        connection.request(method, target, body or None, dict(headers or {}))
        answer = connection.getresponse()
        return Got(answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()})
    finally:
        connection.close()
