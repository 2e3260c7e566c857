"""A party's line to its coordinator: a node of the engine as devices have it, and the loop that answers on it.

The engine's threads hand questions in, and one thread plays the party, so what the party keeps is touched by nobody else.
Between two questions the loop looks whether it was asked to stop and tells what the party is waiting for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Protocol, cast

from quorank.errors import require
from quorank.federation.bundle import Bundle
from quorank.federation.declined import Declined
from quorank.flower import app as flower_app
from quorank.network.flower_device import ENGINE, FlowerLink
from quorank.silos.protocol.invitation import SiloBundle

LOOK_SECONDS = 0.25
QUIET_SECONDS = 180.0
"""A party that has the ranker and was asked nothing for so long takes the session to be over."""


class AnsweringParty(Protocol):
    """A party, as the loop needs it."""

    def answer(self, content: bytes) -> bytes | Declined:
        """What a question is answered with."""


class PartyLine(Protocol):
    """A line whose questions are waited for."""

    def wait(self, seconds: float) -> bytes | None:
        """The next question; None where none came in that time. EOFError when the line has ended."""

    def send(self, answer: bytes | None) -> None:
        """The answer to the question that came last; None where there is nothing to give."""


class SiloLink(FlowerLink):
    """A node of Flower."""

    def __init__(self, bundle: SiloBundle, folder: Path) -> None:
        super().__init__(cast("Bundle", bundle), folder)  # it takes address, certificate and key from it
        self._leaving = False

    def respond(self, task: bytes) -> bytes | None:
        return None if self._leaving else super().respond(task)

    def wait(self, seconds: float) -> bytes | None:
        try:
            found = self._tasks.get(timeout=seconds)
        except Empty:
            return None
        if found is None:
            if self._fault is not None:
                raise self._fault
            raise EOFError
        task, self._reply = found
        return task

    def close(self) -> None:
        """Hang up; whoever still waits for an answer is told that there is none."""
        self._leaving = True
        self.send(None)
        with contextlib.suppress(Empty):
            while True:
                left = self._tasks.get_nowait()
                if left is not None:
                    left[1].put(None)
        super().close()


def connect(bundle: SiloBundle, folder: Path) -> SiloLink:
    """A line to the coordinator of an invitation; `folder` is the party's."""
    flower_app.check_installed()
    link = SiloLink(bundle, folder / ENGINE)
    link.open()
    return link


def take_part(
    party: AnsweringParty,
    line: PartyLine,
    finished: Callable[[], bool],
    stop: Callable[[], bool],
    seen: Callable[[bytes | Declined | None], None],
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Answer until the session is over or `stop` says so; whether it is over. `seen` is told of every answer and look."""
    quiet = clock()
    while not stop():
        seen(None)
        try:
            question = line.wait(LOOK_SECONDS)
        except EOFError:
            require(
                finished(),
                "silo-run.ended",
                "the coordinator ended the session before this party had the ranker; ask its owner why",
            )
            return True
        if question is None:
            if finished() and clock() - quiet > QUIET_SECONDS:
                return True
            continue
        try:
            answer = party.answer(question)
        except BaseException:
            line.send(None)  # whoever waits is not left waiting
            raise
        line.send(None if isinstance(answer, Declined) else answer)
        quiet = clock()
        seen(answer)
    return False
