"""A party at work over its line: it fetches what it is asked, answers, and ends when all has been said.

The party alone decides what leaves: a letter is answered with what `SiloParty.answer` gives, or with nothing. Where the
service cannot be reached, or takes a letter back meanwhile, the party asks again later; what it wanted to say is in its
folder, and is said in the next answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from quorank.errors import require
from quorank.member.party import SiloParty
from quorank.protocol.http_client import PollingInterval, ServedMail, ServedTask, ServiceRefusal
from quorank.protocol.messages import Declined
from quorank.silos.protocol.records import MOST_MESSAGE

LOOK_SECONDS = 0.25
"""So often a waiting party looks whether it is to end."""
SHORTEST = 0.02
"""However soon a service wants to be asked again, so many seconds pass."""
TASK_SECONDS = 2.0
"""So often a party that is asked nothing looks whether the session is over."""
LONGER, LONGEST = 1.15, 40.0
"""Each look at an empty mailbox is so many times as long after the last one, up to so many times the first pause."""
QUIET_SECONDS = 180.0
"""A party that has the ranker and reaches nobody for so long takes the session to be over."""


class PartyLine(Protocol):
    """A line to a service, as `ServiceClient` is one."""

    def mail(self, most: int = ...) -> ServedMail:
        """What is asked."""

    def answer(self, number: int, content: bytes) -> float:
        """What is said to it."""

    def task(self, etag: str = "") -> ServedTask:
        """Whether the session is over."""


def take_part(
    party: SiloParty,
    line: PartyLine,
    stop: Callable[[], bool],
    consent: Callable[[], bool] = lambda: True,
    seen: Callable[[str], None] = lambda fault: None,
    enrol: Callable[[Any], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Answer until the session is over or `stop` says so; whether it is over.

    `enrol` is called with the line before anything else is. `seen` is told of every look, with a sentence while the
    service cannot be reached. A refusal that will not pass, such as that of a revoked party, is raised.
    """
    pace, heard, looked = PollingInterval(most=60.0), clock(), clock()
    wait, idle, enrolled = 0.0, 1.0, False
    while not _ends(wait, stop, clock, sleep):
        fault = ""
        try:
            if not consent():
                wait = LOOK_SECONDS
            elif not enrolled:
                enrol(line)
                enrolled, wait = True, 0.0
            else:
                wait = exchange(party, line, pace)
                if wait < 0.0:
                    return True
                idle = min(LONGEST, LONGER * idle) if wait else 1.0
                wait *= idle
                ends = party.ranker is not None and party.terms.search is None
                if ends or clock() - looked > TASK_SECONDS:
                    looked = clock()
                    if line.task().kind == "over":
                        sentence = (
                            "the service ended the session before this party had the ranker; ask its operator why"
                        )
                        require(party.ranker is not None, "silo-run.ended", sentence)
                        return True
            heard = clock()
        except ServiceRefusal as error:
            if not (error.is_temporary or error.code in ("mail.unknown", "mail.repeated")):
                raise
            wait, fault = pace.after_failure(error), error.sentence
            if party.ranker is not None and party.terms.search is None and clock() - heard > QUIET_SECONDS:
                return True
        seen(fault)
    return False


def exchange(party: SiloParty, line: PartyLine, pace: PollingInterval) -> float:
    """Fetch one letter and answer it; seconds until the next look, negative where all has been said."""
    mail = line.mail(MOST_MESSAGE)
    if mail.content is None:
        return pace.after_success(max(mail.next, SHORTEST))
    answer = party.answer(mail.content)
    if answer == Declined("waiting"):
        return LOOK_SECONDS  # it was asked to stop in the middle of its work, and answers after its next start
    line.answer(mail.id, b"" if isinstance(answer, Declined) else answer)
    pace.after_success(0.0)
    return -1.0 if party.said_all else 0.0


def _ends(seconds: float, stop: Callable[[], bool], clock: Callable[[], float], sleep: Callable[[float], None]) -> bool:
    """Wait, and look now and then whether it is to end."""
    until = clock() + seconds
    while not stop():
        left = until - clock()
        if left <= 0.0:
            return False
        sleep(min(left, LOOK_SECONDS))
    return True
