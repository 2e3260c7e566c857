"""The session of a group in a service's store: its state, and the mailboxes through which its parties are asked.

Every party is asked one thing at a time: a letter in its mailbox, whose answer is taken as coming from the member that the
letter was for, and judged by the session (`silos.coordinator`). An empty answer says that a party cannot answer now: it is
asked again after a pause. State and letters are in one store, and each change of the state is one transaction of the
holder. So another process, or another host, that becomes the holder goes on to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from quorank.errors import BadInput
from quorank.service.store.sql_store import Letter, SqlStore
from quorank.silos.coordinator.server import SiloServer
from quorank.silos.protocol.stream_store import SiloStreams
from quorank.silos.protocol.terms import SiloTerms

PAUSE = 5.0
"""Seconds before a party that could not answer is asked again."""


class SessionStreams(SiloStreams):
    """Facts and streams of a session in a service's store; only its holder writes them."""

    def __init__(self, store: SqlStore, epoch: int) -> None:
        self._service, self._epoch = store, epoch

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query finds."""
        return self._service.database.execute(query, *values)

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; HolderLost where another process holds the coordinator."""
        return self._service.holding(self._epoch)


class SiloPost:
    """The letters of a session; `turn` is called again and again by the holder."""

    def __init__(
        self,
        store: SqlStore,
        epoch: int,
        terms: SiloTerms,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.epoch, self.terms = store, epoch, terms
        self.server = SiloServer(SessionStreams(store, epoch), terms)
        self.sent = self.came = 0  # bytes
        self._pause, self._clock = pause, clock
        self._open: dict[str, tuple[int, ...]] = {}  # party with a letter → how far both were when it was sent
        self._rests: dict[str, float] = {}  # until when a party is not asked
        for _, number in store.unanswered():  # letters of an earlier holder: parties may be working on them
            self._open[terms.parties[number]] = ()

    def turn(self) -> bool:
        """Take the answers that came and ask what is due; whether anything was done."""
        answers = self.store.answers(self.epoch)
        for letter in answers:
            self._take(letter)
        if answers:
            self.store.forget(self.epoch, [letter.id for letter in answers])
        return bool(self._ask()) or bool(answers)

    def _take(self, letter: Letter) -> None:
        party, answer = self.terms.parties[letter.member], letter.answer or b""
        self.came += len(answer)
        asked = self._open.pop(party, None)
        try:
            if answer:
                self.server.receive(party, answer)
        except BadInput:
            answer = b""  # it is counted there
        if not answer or self.server.standing(party) == asked:
            self._rests[party] = self._clock() + self._pause

    def _ask(self) -> int:
        now, letters = self._clock(), []
        for number, party in enumerate(self.terms.parties):
            if party not in self._open and self._rests.get(party, now) <= now:
                content = self.server.due(party)
                if content is not None:
                    letters.append((number, content))
        if letters:
            self.store.send(self.epoch, letters)
            for number, content in letters:
                party = self.terms.parties[number]
                self._open[party] = self.server.standing(party)
                self.sent += len(content)
        return len(letters)
