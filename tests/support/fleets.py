"""Members of a service in this process: they read the task and commit their replies, as workers would."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from devices import coordinator_of

from quorank.engines.process import Simulator
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, Task, decode_task, encode_reply
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import Publication
from quorank.service.holders.rounds import Holder, KeptInStore
from quorank.service.store.group_commit import Call, Outcome
from quorank.service.store.sql_store import SqlStore, open_store

SERVICE = MemberKey(bytes(range(32)))


def enrolled(store: SqlStore, count: int, first: int = 0) -> dict[int, MemberKey]:
    """So many members with keys of their own."""
    keys = {}
    for number in range(first, first + count):
        code = number.to_bytes(32, "big")
        store.invite(f"member-{number}", "device", code, number)
        keys[number] = MemberKey(bytes([number + 1]) * 32)
        store.enrol(keys[number].public, code)
    return keys


def sent(store: SqlStore, member: int, what: Any = "look", number: int = 0, content: bytes = b"") -> Outcome:
    """One call of a member."""
    return store.take([Call(member, os.urandom(16), what, number, content)])[0]


def held_coordinator(holder: Holder, simulator: Simulator, **options: Any) -> Coordinator:
    """Coordinator whose checkpoints are in the store of a holder."""
    return coordinator_of(simulator, storage=KeptInStore(holder.store), clock=holder.clock, **options)


class Fleet:
    """The clients of a simulator as members; `step` is the holder's sleep, in which they do what there is to do."""

    def __init__(self, folder: Path, simulator: Simulator, database: str = "") -> None:
        self.folder, self.database, self.simulator = folder, database, simulator
        self.store = open_store(folder, database)
        self.now = 0.0
        self.away: set[int] = set()
        self.lies: dict[int, Callable[[Reply], bytes]] = {}
        self.outcomes: list[tuple[int, Outcome]] = []
        self.published: list[Publication] = []
        self.together = 1000  # replies that come between two looks of the holder
        self.then: Callable[[], None] = lambda: None  # called after each step

    def members(self) -> Iterable[int]:
        return [number for number in self.store.admitted() if number not in self.away]

    def holder(self, **options: Any) -> Holder:
        assert self.store.hold() is not None
        options = {"clock": lambda: self.now, "sleep": self.step, "soonest": 0.1} | options
        return Holder(self.store, SERVICE, **options)

    def step(self, seconds: float) -> None:
        self.now += seconds
        found = self.store.publication()
        if found is not None and found.kind not in ("secure", "over"):
            if not self.published or self.published[-1] != found:
                self.published.append(found)
            self.reply(found)
        self.then()

    def reply(self, found: Publication) -> None:
        """Those who have not answered do, so many together."""
        answered = {reply.member for reply in self.store.replies(found.run, found.round, most=100000)}
        asked = None if not found.asked else set(np.frombuffer(found.asked, "<u4").tolist())
        task = decode_task(found.content)
        due = [m for m in self.members() if m not in answered and (asked is None or m in asked)]
        for member in due[: self.together]:
            self.outcomes.append((member, sent(self.store, member, "reply", found.number, self.answer(member, task))))

    def answer(self, member: int, task: Task) -> bytes:
        """What a member replies to a task."""
        (reply,) = self.simulator.replies(task, np.array([member]))
        return self.lies.get(member, encode_reply)(reply)
