"""Unlearning: rebuild a ranker without clients that have left, in a finished run or in a running service.

`methods` are the three algorithms, `departures` the service's procedure, `rebuilding` the coordinator of one rebuilding
and the ledger of its releases. Devices recognise a rebuilding by the name of its run, defined here.
"""

from __future__ import annotations

import re

from quorank.errors import BadInput
from quorank.federation.reply import decode_task

NOTHING = b"nothing"  # reply to a rebuilding of a client that holds nothing to learn from again

_NAME = re.compile(r"(.*) rebuilt [1-9][0-9]{0,8} every ([1-9][0-9]{0,8})", re.DOTALL)


def rebuilding_name(run: str, number: int, interval: int) -> str:
    """Return the run name of the `number`-th rebuilding of a run, each of whose rounds stands for `interval` rounds."""
    return f"{run} rebuilt {number} every {interval}"


def rebuilding_interval(name: str, run: str) -> int | None:
    """Return Δt if this is the name of a rebuilding of the run, else None."""
    found = _NAME.fullmatch(name)
    return int(found[2]) if found is not None and found[1] == run else None


def is_rebuilding(content: bytes, run: str) -> bool:
    """Return whether a message is a task of a rebuilding of this run."""
    try:
        return rebuilding_interval(decode_task(content).run, run) is not None
    except BadInput:
        return False
