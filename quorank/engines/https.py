"""Engine `https`, the members' side: the simulated clients of a run as members of its service, in one process.

Each client has its own key, enrols, polls for the round's task and replies over HTTPS as devices do. Keys follow from
the token of the invitation, and what clients carry from round to round is on file: a process that is killed is started
again and goes on, to the same bits. Lost requests are repeated; the service counts equal bytes once. The operator's side
is `quorank.service.engine`.

`python -m quorank.engines.https INVITATION FACTORY RUN`: FACTORY is the "module:function" that makes the clients of the run
in the directory RUN.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from threading import local
from typing import TypeVar

from quorank.engines.simulated_clients import OVER, SimulatedClients
from quorank.errors import BadInput
from quorank.federation.reply import Task, decode_task, encode_task
from quorank.protocol import frames
from quorank.protocol.http_client import ServedTask, ServiceClient, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey

TOGETHER = 256
"""Clients that learn in one call."""
CONNECTIONS = 16
LOOK_SECONDS, AGAIN_SECONDS = 0.03, 0.1
"""Polling interval of the task, and pause before a request is repeated."""
PATIENCE = 60.0
"""Timeout of a service that cannot be reached, seconds."""
LATE_SECONDS, QUIET_SECONDS = 1.0, 0.3
"""Time for which late replies are repeated; time without letters after which a secure round's task is polled again."""
_LATE = ("reply.other-round", "reply.no-open-round", "reply.unasked", "mail.unknown", "mail.repeated")
"""The answer is late, or the worker does not know the round yet."""
_PASSING = ("request.replayed", "request.unknown-member")
"""Temporary refusals of a repeated request, and by a worker that has not read the store again."""

Answered = TypeVar("Answered")


def key_of(token: str, number: int) -> MemberKey:
    """Return the key of one client."""
    word = b"quorank light client" + number.to_bytes(8, "little")
    return MemberKey(hashlib.blake2b(word, key=token.encode(), digest_size=32).digest())


class HttpsClients:
    """All clients of a run."""

    def __init__(self, invitation: Invitation, clients: SimulatedClients) -> None:
        self.invitation, self.clients = invitation, clients
        self.federation = clients.simulator.federation
        self.keys: dict[int, MemberKey] = {}
        self._lines, self._pool = local(), ThreadPoolExecutor(CONNECTIONS)

    def new_line(self) -> ServiceClient:
        """Open a connection to the service, for any of the clients."""
        return ServiceClient(self.invitation.url, self.invitation.service, self.invitation.certificate)

    def line(self, member: int | None = None) -> ServiceClient:
        """Return this thread's connection, signing as a member."""
        if not hasattr(self._lines, "line"):
            self._lines.line = self.new_line()
        line: ServiceClient = self._lines.line
        line.member, line.key = member, None if member is None else self.keys[member]
        return line

    def enrol(self) -> None:
        """Enrol all clients; the member number of a key is the client that it plays."""
        invitation, numbers = self.invitation, range(self.federation.clients)

        def enrolled(number: int) -> tuple[int, MemberKey]:
            key = key_of(invitation.token, number)
            return self._tried(lambda: self.line().enrol(invitation, key)).member, key

        self.keys = dict(self._pool.map(enrolled, numbers))
        assert sorted(self.keys) == list(numbers)

    def _tried(self, work: Callable[[], Answered]) -> Answered:
        """Retry temporary failures: a worker that died, a service that is busy or cannot write."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return work()
            except ServiceRefusal as error:
                if not (error.is_temporary or error.code in _PASSING) or time.monotonic() > end:
                    raise
            time.sleep(AGAIN_SECONDS)

    def play(self) -> None:
        """Answer tasks until all rounds are done."""
        seen, member = "", next(iter(self.keys))
        while True:
            served = self._tried(partial(self._look, member, seen))
            if served.content is None:
                time.sleep(LOOK_SECONDS)
                continue
            if served.kind == "over":
                return
            task = decode_task(served.content)
            whole = self._sum_up(task) if served.kind == "secure" else self._reply(task)
            seen = served.etag if whole else ""

    def _look(self, member: int, seen: str) -> ServedTask:
        return self.line(member).task(seen)

    def _cohort(self, task: Task) -> list[int]:
        """Return the cohort: sampled as in the experiment; with open arrivals, the clients that the service asks."""
        participation, clients = self.federation.participation, self.federation.clients
        if participation.open_arrivals:
            said = self._pool.map(lambda member: self._tried(lambda: self.line(member).task()), range(clients))
            return [member for member, served in enumerate(said) if served.asked]
        drawn = participation.members(clients, task.round, self.clients.simulator.simulation.seed)
        return list(range(clients)) if drawn is None else [int(client) for client in drawn]

    def _reply(self, task: Task) -> bool:
        """Send the replies of the cohort; return whether all were accepted."""
        cohort, taken = self._cohort(task), True
        for at in range(0, len(cohort), TOGETHER):
            chunk = tuple(cohort[at : at + TOGETHER])
            try:
                bundle = self.clients.respond(encode_task(replace(task, clients=chunk)))
            except BadInput as error:
                if error.code != OVER:
                    raise
                return False  # a worker that has not looked again yet still served it
            sent = zip(chunk, frames.unpack(bundle), strict=True)
            taken = all(list(self._pool.map(lambda one: self._sent(*one), sent))) and taken
        return taken

    def _sent(self, member: int, reply: bytes) -> bool:
        end = time.monotonic() + LATE_SECONDS
        while True:
            try:
                self._tried(lambda: self.line(member).reply(reply))
                return True
            except ServiceRefusal as error:
                if error.code not in _LATE:
                    raise
            if time.monotonic() > end:
                return False
            time.sleep(AGAIN_SECONDS)

    def _sum_up(self, task: Task) -> bool:
        """Answer the letters of a secure round until no letter is left."""
        cohort, quiet = self._cohort(task), time.monotonic()
        while time.monotonic() - quiet < QUIET_SECONDS:
            if any(list(self._pool.map(self._answer, cohort))):
                quiet = time.monotonic()
            else:
                time.sleep(LOOK_SECONDS)
        return False

    def _answer(self, member: int) -> bool:
        """Answer a member's oldest letter; return whether there was one."""
        letter = self._tried(lambda: self.line(member).mail())
        if letter.content is None:
            return False
        answer = self.clients.respond(letter.content)
        try:
            self._tried(lambda: self.line(member).answer(letter.id, answer))
        except ServiceRefusal as error:
            if error.code not in _LATE:
                raise
        return True


def main(arguments: list[str]) -> None:
    """Play the clients of a run, invited to its service."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    invitation, factory, folder = arguments
    clients = HttpsClients(Invitation.read(Path(invitation)), resolve_name(factory)(Path(folder)))
    clients.enrol()
    clients.play()


if __name__ == "__main__":
    main(sys.argv[1:])
