"""The clients of an experiment as members of a service on this machine: each with a key of its own, all in one process.

They enrol, look for the round's task and reply over HTTPS as devices do; what they reply is what the simulator's clients
send (`experiments.simulated_clients`). They remember nothing but their keys, which follow from a secret of the run's
service: a process that is killed is started again and goes on, to the same bits. What is lost on its way is sent again;
the service takes the same bytes twice as once.
`python -m quorank.service.light_clients DIR`, where DIR is the service's folder inside the run's.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import local
from typing import TypeVar

from quorank import frames
from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments.simulated_clients import SimulatedClients
from quorank.federation import wire
from quorank.federation.member_key import MemberKey
from quorank.federation.requests import ASKED, KIND, MAIL
from quorank.federation.service_line import ServiceAnswer, ServiceLine
from quorank.service.home import Home

TOGETHER = 256
"""Clients that learn in one call."""
CONNECTIONS = 16
LOOK_SECONDS, AGAIN_SECONDS = 0.03, 0.1
"""Between two looks at the task, and before what was not taken is sent again."""
PATIENCE = 60.0
"""So long a service that cannot be reached is tried again."""
LATE_SECONDS, QUIET_SECONDS = 1.0, 0.3
"""So long what a worker takes for late is sent again, and a secure round without letters is not looked at anew."""
_LATE = ("reply.other-round", "reply.no-open-round", "reply.unasked", "mail.unknown", "mail.repeated")
"""What was answered is not asked any more, or a worker does not know yet that it is."""
_PASSING = ("service.unreachable", "service.busy", "service.storage", "request.replayed", "request.unknown-member")
"""What passes: the last two are said of a request that was repeated, and by a worker that has not looked again yet."""

Answered = TypeVar("Answered")


def token_of(home: Home) -> str:
    """What the clients of a run enrol with."""
    return hashlib.blake2b(b"quorank light enrolment", key=home.secret, digest_size=24).hexdigest()


def key_of(home: Home, number: int) -> MemberKey:
    """The key of one of them."""
    word = b"quorank light client" + number.to_bytes(8, "little")
    return MemberKey(hashlib.blake2b(word, key=home.secret, digest_size=32).digest())


class LightClients:
    """All clients of the experiment of a run."""

    def __init__(self, home: Home, clients: SimulatedClients) -> None:
        self.home, self.clients = home, clients
        self.federation = clients.simulator.federation
        self.keys: dict[int, MemberKey] = {}
        self._lines, self._pool = local(), ThreadPoolExecutor(CONNECTIONS)

    def enrol(self) -> None:
        """Become members: whatever number a key is given is the client that it plays."""
        token = token_of(self.home)

        def enrolled(number: int) -> tuple[int, MemberKey]:
            key = key_of(self.home, number)
            line = self._line()
            line.key = key
            return int(line.enrol(b"", token)["member"]), key

        numbers = range(self.federation.clients)
        self.keys = dict(self._pool.map(lambda number: self._tried(lambda: enrolled(number)), numbers))
        assert sorted(self.keys) == list(range(self.federation.clients))

    def _line(self) -> ServiceLine:
        """This thread's connection."""
        if not hasattr(self._lines, "line"):
            home = self.home
            key = MemberKey(bytes(32))
            self._lines.line = ServiceLine(home.settings.url, home.key.public, key, home.authority.decode())
        line: ServiceLine = self._lines.line
        return line

    def call(self, member: int, method: str, target: str, body: bytes = b"", **options: object) -> ServiceAnswer:
        """One signed request of a member; a service that cannot be reached is tried again."""

        def once() -> ServiceAnswer:
            line = self._line()
            line.member, line.key = member, self.keys[member]
            return line.call(method, target, body, longest=wire.LARGEST, **options)  # type: ignore[arg-type]

        return self._tried(once)

    def _tried(self, work: Callable[[], Answered]) -> Answered:
        """Whatever passes is tried again: a worker that died, a service that is busy or cannot write for a moment."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return work()
            except BadInput as error:
                passes = error.code in _PASSING
                if not passes or time.monotonic() > end:
                    raise
            time.sleep(AGAIN_SECONDS)

    def play(self) -> None:
        """Answer whatever is asked until all rounds are done."""
        seen, member = "", next(iter(self.keys))
        while True:
            headers = {"if-none-match": seen} if seen else {}
            answer = self.call(member, "GET", "/v1/task", headers=headers)
            if answer.status != 200:
                time.sleep(LOOK_SECONDS)
                continue
            kind, task = answer.headers.get(KIND, ""), wire.decode_task(answer.content)
            if kind == "over":
                return
            whole = self._sum_up(task) if kind == "secure" else self._reply(task)
            seen = answer.headers.get("etag", "") if whole else ""

    def _cohort(self, task: wire.Task) -> Iterator[int]:
        """Who is asked: by the experiment's draws, or where they depend on who came before by what the service says."""
        participation, clients = self.federation.participation, self.federation.clients
        if participation.takes_whoever_comes:
            said = self._pool.map(lambda member: self.call(member, "GET", "/v1/task"), range(clients))
            return (member for member, answer in enumerate(said) if answer.headers.get(ASKED) != "0")
        drawn = participation.members(clients, task.round, self.clients.simulator.simulation.seed)
        return iter(range(clients) if drawn is None else drawn.tolist())

    def _reply(self, task: wire.Task) -> bool:
        """All of the cohort reply; whether all were taken."""
        cohort, taken = list(self._cohort(task)), True
        for at in range(0, len(cohort), TOGETHER):
            chunk = tuple(cohort[at : at + TOGETHER])
            bundle = self.clients.respond(wire.encode_task(replace(task, clients=chunk)))
            sent = zip(chunk, frames.unpack(bundle), strict=True)
            taken = all(list(self._pool.map(lambda one: self._sent(*one), sent))) and taken
        return taken

    def _sent(self, member: int, reply: bytes) -> bool:
        end = time.monotonic() + LATE_SECONDS
        while True:
            try:
                self.call(member, "POST", "/v1/reply", reply)
                return True
            except BadInput as error:
                if error.code not in _LATE:
                    raise
            if time.monotonic() > end:
                return False
            time.sleep(AGAIN_SECONDS)

    def _sum_up(self, task: wire.Task) -> bool:
        """Answer the letters of a secure round until another task is there."""
        cohort, quiet = list(self._cohort(task)), time.monotonic()
        while time.monotonic() - quiet < QUIET_SECONDS:
            if any(list(self._pool.map(self._answer, cohort))):
                quiet = time.monotonic()
            else:
                time.sleep(LOOK_SECONDS)
        return False

    def _answer(self, member: int) -> bool:
        """Answer a member's oldest letter; whether there was one."""
        letter = self.call(member, "GET", "/v1/mail")
        if letter.status != 200:
            return False
        answer = self.clients.respond(letter.content)
        try:
            self.call(member, "POST", f"/v1/mail?id={letter.headers.get(MAIL, '')}", answer)
        except BadInput as error:
            if error.code not in _LATE:
                raise
        return True


def main(arguments: list[str]) -> None:
    """Play the clients of the run whose service has this folder."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    home = Home.open(Path(arguments[0]))
    folder = home.path.parent
    clients = LightClients(home, SimulatedClients.of(folder / storage.CONFIG, folder))
    clients.enrol()
    clients.play()


if __name__ == "__main__":
    main(sys.argv[1:])
