"""Log of a service in JSON lines, and its rotation.

A log line is the name of an event, numbers, and for a refusal the code of its error, which is a literal in our source.
Events and fields are fixed lists; what is not a plain number is written as null, and what does not look like a code as
`reply.other`. So no path, query, document or name can get into a log, whatever a device sends and whatever the sentence
of an error says. Logging never raises: a full disk must not end a round.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TextIO

from quorank.service.live.status import Event

EVENTS: Mapping[str, tuple[str, ...]] = {
    "starting": ("round", "rounds", "clients"),
    "ready": ("round", "rounds", "seconds"),
    "round_closed": (
        "round",
        "replies",
        "cohort",
        "seconds",
        "update_norm",
        "noise",
        "sent_bytes",
        "received_bytes",
        "reported_ndcg",
        "reported_error",
    ),
    "round_short": ("round", "replies", "cohort", "seen"),
    "reply_refused": ("round", "client", "reason"),
    "request_refused": ("client", "reason"),
    "member_enrolled": ("client",),
    "members_enrolled": ("count", "client"),
    "enrolment_refused": ("reason",),
    "invitation_reused": ("client",),
    "identity_copied": ("client",),
    "member_admitted": ("client",),
    "member_not_admitted": ("client",),
    "member_removed": ("client",),
    "member_revoked": ("client",),
    "member_left": ("client", "round"),
    "service_restored": ("rounds",),
    "rebuilding_begun": ("round", "rounds"),
    "rebuilding_finished": ("round", "rounds", "epsilon", "delta"),
    "rebuilding_given_up": ("round", "rounds"),
    "rebuilding_refused": ("round", "epsilon", "budget", "delta"),
    "run_shortened": ("round", "rounds"),
    "budget_exceeded": ("round", "epsilon", "budget", "delta"),
    "version_published": ("round", "replies", "loss", "seconds"),
    "version_rolled_back": ("round", "to"),
    "phase_begun": ("phase", "round"),
    "checkpoint_failed": ("round", "code"),
    "disk_full": ("round",),
    "disk_back": ("round", "seconds"),
    "certificate_replaced": ("days",),
    "certificate_unreadable": (),
    "certificate_expires": ("days",),
    "holder_taken": ("epoch", "round"),
    "holder_lost": ("epoch", "round"),
    "worker_started": ("worker",),
    "worker_ended": ("worker", "code"),
    "holder_started": (),
    "holder_ended": ("code",),
    "engine_lost": ("round",),
    "engine_back": ("round", "seconds"),
    "engine_failed": ("round",),
    "stopped": ("round", "rounds", "seconds"),
    "finished": ("round", "rounds", "seconds"),
}
"""All events, and the fields that each may have."""

OTHER = "reply.other"
LARGEST = 2**53
LONGEST = 8 << 20
"""Bytes of a log before the next one begins."""
KEPT = 3
"""Older logs that are kept: NAME.1 is the youngest."""
_CODE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
_LONGEST_CODE = 40


def plain_code(value: object) -> str:
    """Return a code of an error that may be written (`reply.replayed`); `reply.other` for anything else."""
    if type(value) is str and len(value) <= _LONGEST_CODE and _CODE.fullmatch(value):
        return value
    return OTHER


def add_refusals(*counts: Mapping[str, int]) -> dict[str, int]:
    """Add up refusals by code."""
    total: dict[str, int] = {}
    for refused in counts:
        for code, count in refused.items():
            total[plain_code(code)] = total.get(plain_code(code), 0) + count
    return total


def plain(value: object) -> int | float | bool | None:
    """A number that is nothing but a number, or None: no subclass, no infinity, no integer long enough to spell with."""
    if type(value) is bool:
        return value
    if type(value) is int and abs(value) <= LARGEST:
        return value
    if type(value) is float and math.isfinite(value):
        return float(f"{value:.9g}")
    return None


def plain_event(at: float, event: str, facts: Mapping[str, object]) -> Event | None:
    """An event with nothing in it but its own fields, as plain numbers and codes; None for one that is not known."""
    if event not in EVENTS:
        return None
    known = {name: facts[name] for name in EVENTS[event] if name in facts}
    values = {name: plain_code(value) if name == "reason" else plain(value) for name, value in known.items()}
    return Event(at, event, values)


def plain_events(kept: Iterable[Mapping[str, object]]) -> tuple[Event, ...]:
    """Kept events, each with `at` and `code`, with nothing in them that a log could not have."""
    found = []
    for one in kept:
        facts = {name: value for name, value in one.items() if name not in ("at", "code")}
        found.append(plain_event(float(str(one["at"])), str(one["code"]), facts))
    return tuple(event for event in found if event is not None)


@dataclass(eq=False)
class EventLog:
    """Writes events to a stream, one JSON object a line."""

    stream: TextIO | None
    clock: Callable[[], float] = time.time
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def write(self, event: str, **facts: object) -> None:
        """Note an event; fields that it does not have are left out."""
        found = plain_event(round(self.clock(), 3), event, facts)
        if self.stream is None or found is None:
            return
        line = json.dumps({"time": found.time, "event": event, **found.fields})
        with self._lock, contextlib.suppress(OSError, ValueError):
            self.stream.write(line + "\n")
            self.stream.flush()


def turn_over(path: Path, longest: int = LONGEST, kept: int = KEPT) -> bool:
    """Begin a log anew where this process prints into the file and it is long enough; whether it did.

    Several processes print into it, each at its end (O_APPEND): so its content is copied to NAME.1 and the file is made
    empty, instead of moving it away under them. Where what is printed goes somewhere else, to a terminal or to systemd's
    journal, nothing is done.
    """
    aside = path.with_name(f".{path.name}.tmp")
    try:
        own, found = os.fstat(2), path.stat()
        if (own.st_dev, own.st_ino) != (found.st_dev, found.st_ino) or found.st_size <= longest:
            return False
        with path.open("r+b") as log, os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as copy:
            copy.truncate(0)  # of one that was killed here
            shutil.copyfileobj(log, copy)
            log.truncate(0)
        for number in range(kept - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        aside.replace(path.with_name(f"{path.name}.1"))
    except OSError:  # a full disk is no reason to end
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        return False
    return True
