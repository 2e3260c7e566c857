"""Simulated clients behind a network: the simulator's clients answer tasks, in plain rounds and in secure sums.

Updates that clients keep for unlearning, and those that they carry into the next round (m of `client_momentum`), stay on
this side; they are on file before anything of the round leaves. In the file of carried updates each client has two slots: a
row m and its round. A round reads the newest row of an earlier round and writes the other slot: first its round is cleared,
then the row is written, then the new round. A process that is killed anywhere, started again and asked for the round again
comes to the same bits. The file is written from the checkpoint whenever a run starts or resumes, so that it need not
survive a power cut.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from quorank.engines.driver import single
from quorank.engines.process import Simulator
from quorank.errors import BadInput, require
from quorank.federation.reply import Reply, Task, decode_task, encode_reply
from quorank.files.atomic import atomically
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.secure_sum.masks import Occasion
from quorank.protocol import frames
from quorank.protocol.keys import MemberKey
from quorank.protocol.secure_round import SecureMember, parse_opening

NOTHING = -2
"""Round of an empty slot; rows before the first round have round -1."""
OVER = "task.over"
"""Error code: these clients have answered a later round."""


class CarriedUpdates:
    """The file, mapped into memory: rows (2, clients, parameters) and their rounds (2, clients), counted from 0."""

    def __init__(self, path: Path, clients: int, size: int) -> None:
        rounds = 2 * 8 * clients
        whole = path.is_file() and path.stat().st_size == rounds * (1 + size)
        sentence = "the updates that clients carry into the next round are missing or of another run; start it again"
        require(whole, "file.damaged", sentence, str(path))
        self._rounds = np.memmap(path, "<i8", "r+", 0, (2, clients))
        self._rows = np.memmap(path, "<f8", "r+", rounds, (2, clients, size))

    @classmethod
    def begin(cls, path: Path, done: int, carried: Doubles) -> CarriedUpdates:
        """Write the file of a run after `done` rounds; a process that has mapped an earlier file keeps that one."""
        clients, size = carried.shape

        def save(temporary: Path) -> None:
            with temporary.open("r+b") as file:
                length = 2 * 8 * clients * (1 + size)
                file.truncate(length)
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, length)  # a full disk is noticed here, not by a signal
                file.write(np.repeat([done - 1, NOTHING], clients).astype("<i8").tobytes())
                file.write(np.ascontiguousarray(carried, dtype="<f8").data)

        atomically(path, save, private=True)
        return cls(path, clients, size)

    def before(self, round_: int, clients: Integers) -> Doubles:
        """Return rows (clients, parameters) before a round; refuse a round that is over for these clients."""
        return np.array(self._rows[self._newest(round_ - 1, clients), clients])

    def write(self, round_: int, clients: Integers, rows: Doubles) -> None:
        """Write rows (clients, parameters) after a round."""
        slots = 1 - self._newest(round_ - 1, clients)
        self._rounds[slots, clients] = NOTHING
        self._rows[slots, clients] = rows
        self._rounds[slots, clients] = round_

    def after(self, round_: int) -> Doubles:
        """Return rows of all clients after a round; some may have begun the next one."""
        clients = np.arange(self._rounds.shape[1])
        return np.array(self._rows[self._newest(round_, clients), clients])

    def _newest(self, latest: int, clients: Integers) -> Integers:
        """Return slots of the newest rows up to a round; refuse if a client has answered one after the next."""
        rounds = np.array(self._rounds[:, clients])
        known = np.where(rounds <= latest, rounds, NOTHING)
        open_ = bool((rounds <= latest + 1).all() and (known.max(axis=0, initial=NOTHING) > NOTHING).all())
        require(open_, OVER, "the task is of a round that is over: its clients have answered a later one")
        return np.asarray(known.argmax(axis=0), dtype=np.int64)


class UpdateKeeper(Protocol):
    """Store of the updates that clients keep for unlearning, before privacy; rounds are counted from 1."""

    def due(self, done: int) -> bool: ...
    def keep(self, round_: int, clients: Integers, updates: Doubles) -> None: ...
    def write(self) -> object: ...


@dataclass(eq=False)
class SimulatedClients:
    """Clients of an experiment that answer tasks one at a time."""

    simulator: Simulator
    keeper: UpdateKeeper | None = None
    carried: CarriedUpdates | None = None  # with `client_momentum`
    _lock: Lock = field(default_factory=Lock, init=False)
    _members: dict[int, tuple[Occasion, SecureMember]] = field(default_factory=dict, init=False)
    _facts: dict[int, bytes] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        simulator = self.simulator
        size = simulator.simulation.parameters
        first = Task("", 0, simulator.initial().theta, simulator.mechanism.start())
        simulator.replies(first, np.empty(0, dtype=np.int64), np.empty((0, size)))  # compiles what it needs

    def respond(self, content: bytes) -> bytes:
        """Return the replies of a task's clients, or the answers of members of a secure sum, as one bundle."""
        with self._lock:
            if not content.startswith(b"QRNK"):
                return self._respond_secure(content)
            task = decode_task(content)
            replies = self._learn(task, np.array(task.clients, dtype=np.int64))
        return frames.pack([encode_reply(reply) for reply in replies])

    def _learn(self, task: Task, clients: Integers) -> list[Reply]:
        """Return the replies of these clients, after what they keep is on file."""
        known = len(clients) > 0 and int(clients.max()) < self.simulator.federation.clients
        require(known, "task.unknown-client", "the task asks for clients that this experiment does not have")
        keeper, keep = self.keeper, None
        if keeper is not None and keeper.due(task.round) and len(clients):
            keep = partial(keeper.keep, task.round + 1, clients)
        rows = None if self.carried is None else self.carried.before(task.round, clients)
        replies = self.simulator.replies(task, clients, rows, keep)
        if self.carried is not None and rows is not None:
            self.carried.write(task.round, clients, rows)
        if keeper is not None and keep is not None:
            keeper.write()
        return replies

    # Secure sums: each client is a separate member, with keys in this process's memory.

    def _respond_secure(self, content: bytes) -> bytes:
        """Return the answers of the clients in their order; empty where a client has left the round."""
        require(
            isinstance(self.simulator.mechanism, IntegerSums), "secure-sum.none", "this experiment has no secure sum"
        )
        messages, opened, task = single(content), {}, b""
        for client, message in messages:
            found = parse_opening(message)
            if found is not None:
                opened[client], task = found.occasion, found.task
        new = {client: occasion for client, occasion in opened.items() if self._occasion(client) != occasion}
        if new:
            try:
                self._begin(decode_task(task), new)
            except BadInput as error:
                if error.code != OVER:
                    raise
                return frames.pack([b"" for _ in messages])
        return frames.pack([self._answer(client, message, client in opened) for client, message in messages])

    def _occasion(self, client: int) -> Occasion | None:
        return self._members[client][0] if client in self._members else None

    def _begin(self, task: Task, opened: dict[int, Occasion]) -> None:
        """Train these clients, and hold their updates until the others of the sum are there."""
        mechanism: Any = self.simulator.mechanism
        for reply in self._learn(task, np.array(sorted(opened), dtype=np.int64)):
            words = reply.release.astype(np.int64).astype(np.uint32)
            member = SecureMember(
                reply.client,
                opened[reply.client],
                lambda own=words: own,  # type: ignore[misc]
                MemberKey.create(),
                mechanism.signed_by,
                agreed=mechanism.plan,
            )
            self._members[reply.client] = opened[reply.client], member
            self._facts[reply.client] = encode_reply(replace(reply, release=np.zeros(0)))

    def _answer(self, client: int, message: bytes, opening: bool) -> bytes:
        if client not in self._members:
            return b""
        try:
            reply = self._members[client][1].answer(message)
        except BadInput:
            logging.getLogger(__name__).exception("a client has left a secure sum")
            return b""
        return frames.pack([reply, self._facts[client]] if opening else [reply])
