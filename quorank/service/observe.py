"""Log of a coordinator in JSON lines, and the figures that its status and metrics are made of.

A log line is the name of an event, numbers, and for a refusal the code of its error, which is a literal in our source.
Events and fields are fixed lists; what is not a plain number is written as null, and what does not look like a code as
`reply.other`. So no path, query, document or name can get into a log, whatever a device sends and whatever the sentence
of an error says. Logging never raises: a full disk must not end a round.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TextIO

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
    "reply_refused": ("round", "client", "reason"),
    "checkpoint_failed": ("round", "code"),
    "rebuilding_finished": ("round", "rounds", "epsilon", "delta"),
    "rebuilding_given_up": ("round", "rounds"),
    "rebuilding_refused": ("round", "epsilon", "budget", "delta"),
    "member_admitted": ("client",),
    "member_not_admitted": ("client",),
    "member_removed": ("client",),
    "engine_lost": ("round",),
    "engine_back": ("round", "seconds"),
    "engine_failed": ("round",),
    "stopped": ("round", "rounds", "seconds"),
    "finished": ("round", "rounds", "seconds"),
}
"""All events, and the fields that each may have."""

OTHER = "reply.other"
LARGEST = 2**53
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


@dataclass(eq=False)
class EventLog:
    """Writes events to a stream, one JSON object a line."""

    stream: TextIO | None
    clock: Callable[[], float] = time.time
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def write(self, event: str, **numbers: object) -> None:
        """Note an event; fields that it does not have are left out."""
        if self.stream is None or event not in EVENTS:
            return
        line: dict[str, Any] = {"time": round(self.clock(), 3), "event": event}
        for name in EVENTS[event]:
            if name in numbers:
                value = numbers[name]
                line[name] = plain_code(value) if name == "reason" else plain(value)
        with self._lock, contextlib.suppress(OSError, ValueError):
            self.stream.write(json.dumps(line) + "\n")
            self.stream.flush()


@dataclass(eq=False)
class Figures:
    """A coordinator in numbers, at one moment. Clients appear by number only."""

    rounds_planned: int = 0
    rounds: int = 0  # done
    cohort: int = 0  # asked in the open round
    waiting: list[int] = field(default_factory=list)  # of them, who has not answered
    present: list[int] = field(default_factory=list)  # whose device is there
    left: list[int] = field(default_factory=list)  # who has asked to leave
    invited: int = 0
    accepted: int | None = 0  # replies, in all rounds; None where their number is withheld
    refused: dict[str, int] = field(default_factory=dict)  # replies, by the code of the error
    round_seconds: float = 0.0  # of all rounds that this process has closed
    rounds_timed: int = 0
    last_round_seconds: float | None = None
    sent_bytes: int | None = 0  # of tasks, by this process; withheld like `accepted`
    received_bytes: int | None = 0  # of replies, by this process; withheld like `accepted`
    epsilon: float | None = None  # spent by all that was released so far, at `delta`; None where nothing is accounted
    checkpoint_at: float | None = None  # when the last checkpoint was written
    checkpoints_failed: int = 0
    connected: bool = False  # whether the engine is there
    started: float = 0.0
    beat: float = 0.0  # when the coordinator last looked at its network
    report_epsilon: float = 0.0  # of one report on the lists; 0 where devices make none
    reported: dict[str, float] | None = None  # what these say together (`private_figures.reported`)
    withheld: bool = False  # whether ε counts on nobody knowing who was in a round: `cohort` is then the planned size
    delta: float | None = None  # of `epsilon`
    method: str = ""  # how `epsilon` was counted
    rebuilding_rounds: int = 0  # whose sums were made, of finished rebuildings and of those that were given up
    rebuilding_refused: float | None = None  # the ε that the last rebuilding would have reached, beyond the budget
    budget: float | None = None  # ε that run, reports and rebuildings may reach together
