"""Polling of a party's mailbox: letters are answered until the session is over.

Where the service cannot be reached, or withdraws a letter, the party polls again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from quorank.errors import require
from quorank.member.party import SiloParty
from quorank.protocol.http_client import PollingInterval, ServiceClient, ServiceRefusal
from quorank.protocol.messages import Declined
from quorank.silos.session.records import MOST_MESSAGE

LOOK_SECONDS = 0.25  # interval at which a waiting party checks whether to stop, seconds
SHORTEST = 0.02  # shortest polling interval, seconds
TASK_SECONDS = 2.0  # interval at which an idle party checks whether the session is over, seconds
LONGER, LONGEST = 1.15, 40.0  # growth and limit of the polling interval of an empty mailbox, in the service's intervals
QUIET_SECONDS = 180.0  # time without contact after which a party with the ranker regards the session as over, seconds


def take_part(
    party: SiloParty,
    line: ServiceClient,
    stop: Callable[[], bool],
    consent: Callable[[], bool] = lambda: True,
    seen: Callable[[str], None] = lambda fault: None,
    enrol: Callable[[Any], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Answer letters until the session is over or `stop` returns true; return whether it is over.

    `seen` is called after every poll, with a sentence while the service cannot be reached; `enrol` before the first one.

    Raises:
        ServiceRefusal: A permanent refusal, such as that of a revoked party.
        BadInput: `silo-run.ended` where the service has ended the session without a ranker.
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


def exchange(party: SiloParty, line: ServiceClient, pace: PollingInterval) -> float:
    """Fetch and answer one letter; return the seconds until the next poll, negative after the last answer."""
    mail = line.mail(MOST_MESSAGE)
    if mail.content is None:
        return pace.after_success(max(mail.next, SHORTEST))
    answer = party.answer(mail.content)
    if answer == Declined("waiting"):
        return LOOK_SECONDS  # stopped in the middle of its work; it answers after its next start
    line.answer(mail.id, b"" if isinstance(answer, Declined) else answer)
    pace.after_success(0.0)
    return -1.0 if party.said_all else 0.0


def _ends(seconds: float, stop: Callable[[], bool], clock: Callable[[], float], sleep: Callable[[float], None]) -> bool:
    """Wait, and return whether to stop."""
    until = clock() + seconds
    while not stop():
        left = until - clock()
        if left <= 0.0:
            return False
        sleep(min(left, LOOK_SECONDS))
    return True
