"""The simulated clients of an experiment in secure sums: each is a member of its own, with keys in this process's memory.

A client's numbers are those of the in-process run, rounded and noised by draws that the experiment's seed addresses, so
the sum is the same. Beside its keys a client's node tells how often its simulated user searched and what came of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from quorank.engines.process import Simulator
from quorank.engines.secure_driver import single
from quorank.errors import BadInput, require
from quorank.experiments.carried_updates import OVER
from quorank.federation.reply import Reply, Task, decode_task, encode_reply
from quorank.kernels.arrays import Integers
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.privacy.secure_sum.masks import Occasion
from quorank.protocol import frames
from quorank.protocol.keys import MemberKey
from quorank.protocol.secure_round import SecureMember, invitation

Learn = Callable[[Task, Integers], list[Reply]]


class SimulatedMembers:
    """Answers what the nodes of a simulated experiment are sent for secure sums; `learn` is how clients reply."""

    def __init__(self, simulator: Simulator, mechanism: IntegerSums, learn: Learn) -> None:
        self.simulator, self.mechanism, self.learn = simulator, mechanism, learn
        self._members: dict[int, tuple[Occasion, SecureMember]] = {}
        self._facts: dict[int, bytes] = {}

    def respond(self, content: bytes) -> bytes:
        """The answers of the clients in their order; empty where a client has left the round."""
        messages, opened, task = single(content), {}, b""
        for client, message in messages:
            found = invitation(message)
            if found is not None:
                opened[client], task = found
        new = [c for c, occasion in opened.items() if self._occasion(c) != occasion]
        if new:
            try:
                self._begin(decode_task(task), {client: opened[client] for client in new})
            except BadInput as error:
                if error.code != OVER:
                    raise
                return frames.pack([b"" for _ in messages])
        return frames.pack([self._answer(client, message, client in opened) for client, message in messages])

    def _occasion(self, client: int) -> Occasion | None:
        found = self._members.get(client)
        return None if found is None else found[0]

    def _begin(self, task: Task, opened: dict[int, Occasion]) -> None:
        """Let these clients learn, and wait with what they have learned for the others."""
        clients = np.array(sorted(opened), dtype=np.int64)
        known = int(clients.max()) < self.simulator.federation.clients
        require(known, "task.unknown-client", "the task asks for clients that this experiment does not have")
        for reply in self.learn(task, clients):
            words = reply.release.astype(np.int64).astype(np.uint32)
            occasion = opened[reply.client]
            member = SecureMember(
                reply.client,
                occasion,
                lambda own=words: own,  # type: ignore[misc]
                MemberKey.create(),
                self.mechanism.signed_by,
                agreed=self.mechanism.plan,
            )
            self._members[reply.client] = occasion, member
            told = Reply(
                reply.run, reply.round, reply.client, np.zeros(0), reply.interactions, reply.within, reply.statistics
            )
            self._facts[reply.client] = encode_reply(told)

    def _answer(self, client: int, message: bytes, opening: bool) -> bytes:
        found = self._members.get(client)
        if found is None:
            return b""
        try:
            reply = found[1].answer(message)
        except BadInput:
            logging.getLogger(__name__).exception("a client has left a secure sum")
            return b""
        return frames.pack([reply, self._facts[client]] if opening else [reply])
