"""Simulated clients behind a network: the simulator's clients answer tasks, in plain rounds and in secure sums.

Updates that clients keep for unlearning, and those that they carry into the next round, stay on this side; they are on
file before anything of the round leaves.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np

from quorank.engines.carried_updates import OVER, CarriedUpdates
from quorank.engines.driver import single
from quorank.engines.process import Simulator
from quorank.errors import BadInput, require
from quorank.federation.reply import Reply, Task, decode_task, encode_reply
from quorank.kernels.arrays import Doubles, Integers
from quorank.privacy import Mechanism
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.secure_sum.masks import Occasion
from quorank.protocol import frames
from quorank.protocol.keys import MemberKey
from quorank.protocol.secure_round import SecureMember, invitation


class UpdateKeeper(Protocol):
    """Store of the updates that clients keep for unlearning, before privacy."""

    def due(self, done: int) -> bool:
        """Return whether the round after `done` rounds is kept."""

    def keep(self, round_: int, clients: Integers, updates: Doubles) -> None:
        """Keep updates (clients, parameters) of a round, counted from 1."""

    def write(self) -> object:
        """Write the clients' files."""


@dataclass(eq=False)
class _Keeping:
    """A mechanism whose clients keep their updates before it changes them."""

    mechanism: Mechanism
    keeper: UpdateKeeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mechanism, name)

    def release(
        self, updates: Doubles, theta: Doubles, round_: int, clients: Integers, memory: dict[str, Doubles]
    ) -> int:
        if self.keeper.due(round_) and len(clients):
            self.keeper.keep(round_ + 1, clients, updates)
        return self.mechanism.release(updates, theta, round_, clients, memory)


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
        self._mechanism = simulator.mechanism
        if self.keeper is not None:
            simulator.__dict__["mechanism"] = _Keeping(self._mechanism, self.keeper)
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
        if self.carried is None:
            replies = self.simulator.replies(task, clients)
        else:
            replies = self.carried.replies(self.simulator, task, clients)
        if self.keeper is not None and self.keeper.due(task.round):
            self.keeper.write()
        return replies

    # Secure sums: each client is a separate member, with keys in this process's memory.

    def _respond_secure(self, content: bytes) -> bytes:
        """Return the answers of the clients in their order; empty where a client has left the round."""
        require(isinstance(self._mechanism, IntegerSums), "secure-sum.none", "this experiment has no secure sum")
        messages, opened, task = single(content), {}, b""
        for client, message in messages:
            found = invitation(message)
            if found is not None:
                opened[client], task = found
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
        mechanism: Any = self._mechanism
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
