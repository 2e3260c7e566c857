"""Log of a service in JSON lines that rotate, and its newest events.

A log line is the name of an event, numbers, and for a refusal the code of its error, which is a literal in our source.
Events and fields are fixed lists; what is not a plain number is written as null, and what does not look like a code as
`reply.other`. So no path, query, document or name can get into a log, whatever a device sends and whatever the sentence
of an error says. Logging never raises: a full disk must not end a round.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from quorank.documents import parse_json
from quorank.errors import BadInput
from quorank.service.status import KEPT_EVENTS, Event

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
    "declined": ("round", "client", "reason"),
    "member_enrolled": ("client",),
    "enrolment_refused": ("reason",),
    "invitation_reused": ("client",),
    "identity_copied": ("client",),
    "member_admitted": ("client",),
    "member_not_admitted": ("client",),
    "member_removed": ("client",),
    "member_revoked": ("client",),
    "member_left": ("client", "round"),
    "rebuilding_begun": ("round", "rounds"),
    "rebuilding_finished": ("round", "rounds", "epsilon", "delta"),
    "rebuilding_given_up": ("round", "rounds"),
    "rebuilding_refused": ("round", "epsilon", "budget", "delta"),
    "budget_exceeded": ("round", "epsilon", "budget", "delta"),
    "version_published": ("round", "replies", "loss", "seconds"),
    "version_rolled_back": ("round", "to"),
    "phase_begun": ("phase", "round"),
    "checkpoint_failed": ("round", "code"),
    "disk_full": ("round",),
    "disk_back": ("round", "seconds"),
    "certificate_replaced": ("days",),
    "certificate_expires": ("days",),
    "holder_taken": ("epoch", "round"),
    "holder_lost": ("epoch", "round"),
    "worker_started": ("worker",),
    "worker_ended": ("worker", "code"),
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
_TAIL = 1 << 18  # bytes of a log in which its newest events are looked for


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


class LineStream(Protocol):
    """What a log writes into: a file, a terminal, or a `LogFile`."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


@dataclass(eq=False)
class EventLog:
    """Writes events to a stream, one JSON object a line, and keeps the newest."""

    stream: LineStream | None
    clock: Callable[[], float] = time.time
    _newest: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS), init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def write(self, event: str, **numbers: object) -> None:
        """Note an event; fields that it does not have are left out."""
        if event not in EVENTS:
            return
        found: dict[str, Any] = {}
        for name in EVENTS[event]:
            if name in numbers:
                value = numbers[name]
                found[name] = plain_code(value) if name == "reason" else plain(value)
        at = round(self.clock(), 3)
        with self._lock:
            self._newest.appendleft(Event(at, event, found))
            if self.stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    self.stream.write(json.dumps({"time": at, "event": event, **found}) + "\n")
                    self.stream.flush()

    @property
    def newest(self) -> tuple[Event, ...]:
        """The newest events of this process, the newest first."""
        with self._lock:
            return tuple(self._newest)


def newest_events(path: Path, most: int = KEPT_EVENTS) -> tuple[Event, ...]:
    """The newest events in a log that any number of processes write, the newest first; lines of others are left out."""
    found: list[Event] = []
    for file in (path, path.with_name(f"{path.name}.1")):
        lines = _last_lines(file)
        found += [event for line in reversed(lines) if (event := _event_of(line)) is not None]
        if len(found) >= most:
            break
    return tuple(found[:most])


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, io.SEEK_END) - _TAIL)
            file.seek(start)
            lines = file.read(_TAIL).split(b"\n")
    except OSError:
        return []
    return lines[1 if start else 0 : -1]  # neither begun in the middle nor still being written


def _event_of(line: bytes) -> Event | None:
    """The event of a line, with nothing in it that could not have been written here."""
    if not line.startswith(b"{") or len(line) > 4096:
        return None
    try:
        table = parse_json(line)
    except BadInput:
        return None
    at, event = plain(table.get("time")), table.get("event")
    if at is None or not isinstance(event, str) or event not in EVENTS:
        return None
    given = {name: table[name] for name in EVENTS[event] if name in table}
    values = {name: plain_code(value) if name == "reason" else plain(value) for name, value in given.items()}
    return Event(float(at), event, values)


class LogFile:
    """A log that does not grow without end, written by several processes: at a certain size the next file begins.

    Whoever finds it long enough moves it aside under a lock; the others notice that the file under the name is another
    one and open that.
    """

    def __init__(self, path: Path, longest: int = LONGEST, kept: int = KEPT) -> None:
        self.path, self.longest, self.kept = path, longest, kept
        self._descriptor: int | None = None

    def write(self, text: str) -> int:
        """Append a line, in one piece."""
        return os.write(self._opened(), text.encode())

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is not None:
            own = os.fstat(self._descriptor)
            same = _is_at(own, self.path)
            if same and own.st_size > self.longest:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # let go with the descriptor
                if _is_at(own, self.path):
                    put_aside(self.path, self.kept)
                same = False
            if not same:
                self.close()
        if self._descriptor is None:
            self._descriptor = os.open(self.path, _APPEND, 0o600)
        return self._descriptor


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def _is_at(own: os.stat_result, path: Path) -> bool:
    """Whether an open file is the one under this name."""
    try:
        found = path.stat()
    except OSError:
        return False
    return (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino)


def put_aside(path: Path, kept: int = KEPT) -> None:
    """Move a log to NAME.1, that one to NAME.2, and so on; the oldest goes."""
    _make_room(path, kept)
    path.replace(path.with_name(f"{path.name}.1"))


def _make_room(path: Path, kept: int) -> None:
    """Move NAME.1 to NAME.2, and so on."""
    for number in range(kept - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))


def turn_over(path: Path, longest: int = LONGEST, kept: int = KEPT) -> bool:
    """Begin a log anew where this process prints into it and it is long enough; whether it was.

    Its content is copied to NAME.1 and the file emptied in its place: other processes print into it too, and append. Where
    what is printed goes somewhere else, to a terminal or to systemd's journal, nothing is done.
    """
    try:
        own = os.fstat(2)
        if not _is_at(own, path) or own.st_size <= longest:
            return False
        _make_room(path, kept)
        aside = path.with_name(f"{path.name}.1")
        os.close(os.open(aside, _APPEND, 0o600))
        shutil.copyfile(path, aside)
        os.truncate(path, 0)
    except OSError:  # a full disk is no reason to end
        return False
    return True
