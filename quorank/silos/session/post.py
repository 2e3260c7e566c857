"""Letters of a group's session: the coordinator's messages in the parties' mailboxes at the service.

Every party has at most one open letter. Its answer counts as coming from the member that the letter was for and is judged
by the coordinator. An empty answer means that the party cannot answer now: it is asked again after a pause. Another
process, also on another host, can take over with the stored session and letters and continues to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from quorank.errors import BadInput
from quorank.protocol.transport import Mailboxes, Message
from quorank.silos.session.coordinator import SiloServer
from quorank.silos.session.streams import SiloStreams
from quorank.silos.session.terms import SiloTerms

SEARCHING = 0.5
"""Polling interval for searches, seconds."""
PAUSE = 5.0
"""Pause before a party that could not answer is asked again, seconds."""


class SiloPost:
    """Letters of a session; the holder calls `turn` in a loop."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        streams: SiloStreams,
        terms: SiloTerms,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mailboxes, self.terms, self.server = mailboxes, terms, SiloServer(streams, terms)
        self.sent = self.received = 0  # bytes
        self._pause, self._clock = pause, clock
        self._open: dict[str, tuple[int, ...]] = {}  # party with a letter → stream positions when it was sent
        self._rests: dict[str, float] = {}  # party → time before which it is not asked
        for _, number in mailboxes.unanswered():  # letters of an earlier holder
            self._open[terms.parties[number]] = ()

    def turn(self) -> bool:
        """Process answers and send due letters; return whether there were any."""
        answers = self.mailboxes.answers()
        for answer in answers:
            self._take(answer)
        if answers:
            self.mailboxes.forget([answer.id for answer in answers])
        return bool(self._ask()) or bool(answers)

    def leave(self, member: int) -> None:
        """Continue without a party and withdraw its letter."""
        party = self.terms.parties[member]
        self.server.leave(party)
        self.mailboxes.forget([letter for letter, whom in self.mailboxes.unanswered() if whom == member])
        self._open.pop(party, None)

    def _take(self, found: Message) -> None:
        party, answer = self.terms.parties[found.member], found.content
        self.received += len(answer)
        asked = self._open.pop(party, None)
        if party in self.server.gone:
            return
        try:
            if answer:
                self.server.receive(party, answer)
        except BadInput:
            answer = b""  # the coordinator counts it
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
