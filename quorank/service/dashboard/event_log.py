"""Log of a service in JSON lines.

A line holds the name of an event, numbers, and for a refusal the code of its error, which is a literal of our source.
Events and fields are fixed lists; other values than plain numbers are written as null, and strings that do not look like a
code as `reply.other`. No path, query, document or name in a device's message or an error's sentence can therefore reach a
log. Logging never raises: a full disk must not end a round.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple, TextIO

from quorank.service.dashboard.status import Event


class EventKind(NamedTuple):
    """Fields of an event, and its sentence for people."""

    fields: tuple[str, ...]
    sentence: str


_EVENTS = """
round_closed | round replies cohort seconds update_norm noise received_bytes reported_ndcg reported_error \
    | round {round}: {replies} replies in {seconds}
reply_refused | round client reason | a reply to round {round} was rejected: {reason}
member_enrolled | client | client {client} enrolled
members_enrolled | count client | {count} members enrolled, client {client} last
invitation_reused | client | the invitation of client {client} was used a second time
identity_copied | client | client {client} seems to run twice
member_revoked | client | client {client} was revoked
member_left | client round | client {client} left
service_restored | rounds | restored from a backup; {rounds} later rounds were skipped
rebuilding_begun | round rounds | rebuilding the ranker without the members that left
rebuilding_finished | round rounds epsilon delta | the ranker was rebuilt in {rounds} rounds, ε = {epsilon}
rebuilding_refused | round epsilon budget delta | a rebuilding to ε = {epsilon} was refused: the budget is {budget}
run_shortened | round rounds | the run now has {rounds} rounds: a rebuilding replaced the others
budget_exceeded | round epsilon budget delta | ε = {epsilon} exceeds the plan of {budget}
version_published | round replies loss seconds | version {round}: {replies} updates, loss {loss}
version_rolled_back | round to | version {round} was rolled back to {to}
phase_begun | phase round | phase {phase} begins
checkpoint_failed | round code | the checkpoint of round {round} could not be written
disk_back | round seconds | the disk is writable again
certificate_replaced | days | the certificate was replaced; it is valid for {days} days
certificate_unreadable | | the certificate's files do not match; the old one stays in use
holder_taken | epoch round | this process holds the coordinator now
holder_lost | epoch round | another process holds the coordinator now
worker_started | worker | intake worker {worker} started
worker_ended | worker code | intake worker {worker} ended
holder_started | | the coordinator's process started
holder_ended | code | the coordinator's process ended
stopped | round rounds | stopped at round {round}
finished | round rounds | all {rounds} rounds are done
"""
EVENTS: Mapping[str, EventKind] = {
    name.strip(): EventKind(tuple(fields.split()), sentence.strip())
    for name, fields, sentence in (line.split("|") for line in _EVENTS.strip().splitlines())
}
"""All events of the log."""

OTHER = "reply.other"
LARGEST = 2**53
_CODE = re.compile(r"(?=.{3,40}\Z)[a-z0-9-]+\.[a-z0-9-]+")


def plain_code(value: object) -> str:
    """Return an error code that may be written (`reply.replayed`); `reply.other` for anything else."""
    return value if type(value) is str and _CODE.fullmatch(value) else OTHER


def add_refusals(*counts: Mapping[str, int]) -> dict[str, int]:
    """Sum refusals by code."""
    total = Counter[str]()
    for refused in counts:
        for code, count in refused.items():
            total[plain_code(code)] += count
    return dict(total)


def plain_number(value: object) -> int | float | bool | None:
    """Return a plain finite number, or None: no subclass, no infinity, no integer long enough to encode text."""
    if type(value) is bool or (type(value) is int and abs(value) <= LARGEST):
        return value
    if type(value) is float and math.isfinite(value):
        return float(f"{value:.9g}")
    return None


def plain_event(at: float, event: str, facts: Mapping[str, object]) -> Event | None:
    """Return an event with its own fields only, as plain numbers and codes; None for an unknown event."""
    if event not in EVENTS:
        return None
    known = {name: facts[name] for name in EVENTS[event].fields if name in facts}
    values = {name: plain_code(value) if name == "reason" else plain_number(value) for name, value in known.items()}
    return Event(at, event, values)


@dataclass(eq=False)
class EventLog:
    """Writer of events to a stream, one JSON object per line."""

    stream: TextIO | None
    clock: Callable[[], float] = time.time
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def write(self, event: str, **facts: object) -> None:
        """Write an event; unknown fields are dropped."""
        found = plain_event(round(self.clock(), 3), event, facts)
        if self.stream is None or found is None:
            return
        line = json.dumps({"time": found.time, "event": event, **found.fields})
        with self._lock, contextlib.suppress(OSError, ValueError):
            self.stream.write(line + "\n")
            self.stream.flush()
