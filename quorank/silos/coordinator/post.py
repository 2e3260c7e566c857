"""The letters of a group's session: the mailboxes through which its parties are asked.

Every party is asked one thing at a time: a letter in its mailbox, whose answer is taken as coming from the member that the
letter was for, and judged by the session (`silos.coordinator`). An empty answer says that a party cannot answer now: it is
asked again after a pause. A process that takes over, also on another host, finds state and letters and goes on to the same
bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from quorank.errors import BadInput
from quorank.protocol.transport import MailAnswer, Mailboxes
from quorank.silos.coordinator.server import SiloServer
from quorank.silos.protocol.stream_store import SiloStreams
from quorank.silos.protocol.terms import SiloTerms

SEARCHING = 0.5
"""Seconds before a party is asked again whether it has a search to send."""
PAUSE = 5.0
"""Seconds before a party that could not answer is asked again."""


class SiloPost:
    """The letters of a session; `turn` is called again and again by the holder."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        streams: SiloStreams,
        terms: SiloTerms,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mailboxes, self.terms, self.server = mailboxes, terms, SiloServer(streams, terms)
        self.sent = self.came = 0  # bytes
        self._pause, self._clock = pause, clock
        self._open: dict[str, tuple[int, ...]] = {}  # party with a letter → how far both were when it was sent
        self._rests: dict[str, float] = {}  # until when a party is not asked
        for _, number in mailboxes.unanswered():  # letters of an earlier holder: parties may be working on them
            self._open[terms.parties[number]] = ()

    def turn(self) -> bool:
        """Take the answers that came and ask what is due; whether anything was done."""
        answers = self.mailboxes.answers()
        for answer in answers:
            self._take(answer)
        if answers:
            self.mailboxes.forget([answer.letter for answer in answers])
        return bool(self._ask()) or bool(answers)

    def leave(self, member: int) -> None:
        """A party has left: what it was asked is not wanted any more."""
        party = self.terms.parties[member]
        self.server.leave(party)
        self.mailboxes.forget([letter for letter, whom in self.mailboxes.unanswered() if whom == member])
        self._open.pop(party, None)

    def _take(self, found: MailAnswer) -> None:
        party, answer = self.terms.parties[found.member], found.content
        self.came += len(answer)
        asked = self._open.pop(party, None)
        if party in self.server.gone:
            return
        try:
            if answer:
                self.server.receive(party, answer)
        except BadInput:
            answer = b""  # it is counted there
        if not answer or self.server.standing(party) == asked:
            self._rests[party] = self._clock() + (min(self._pause, SEARCHING) if self.server.done else self._pause)

    def _ask(self) -> int:
        now, letters = self._clock(), []
        for number, party in enumerate(self.terms.parties):
            rested = self._rests.get(party, now) <= now or (self.server.done and self.server.waits(party))
            if party not in self._open and rested:
                content = self.server.due(party)
                if content is not None:
                    letters.append((number, content))
        if letters:
            self.mailboxes.send(letters)
            for number, content in letters:
                party = self.terms.parties[number]
                self._open[party] = self.server.standing(party)
                self.sent += len(content)
        return len(letters)
