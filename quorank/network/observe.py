"""What a coordinator tells about itself: a log in JSON lines, and figures that the status and the metrics are made of.

A log line is the name of an event and numbers. Events, fields and reasons are fixed lists, and what is not a plain number
is written as null, so that no path, query, document or name can get into a log, whatever a device sends and whatever an
error says. Logging never raises: a full disk must not end a round.
"""

from __future__ import annotations

import contextlib
import json
import math
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

REASONS: Mapping[str, str] = {
    "no_open_round": "there is no open round",
    "other_run": "the reply belongs to another run",
    "round_not_begun": "the reply is of a round that has not begun",
    "round_over": "the reply is of a round that is over",
    "not_in_cohort": "this client is not in the round's cohort",
    "repeated": "this client has replied to this task already",
    "shape": "the release must be",
    "not_finite": "the release holds a number that is not finite",
    "weight": "the reply claims more or fewer interactions",
    "clip": "the release is longer than the clip",
    "norm": "the release is longer than",
    "malformed": "a reply is malformed",
    "too_long": "a reply of ",
    "protocol": "a reply speaks protocol",
    "other_client": "the reply names another client",
    "revoked": "the node's key was revoked",
    "several": "the node sent several replies",
    "bundle": "a bundle is malformed",
    "figure": "the reported figure is none",
    "leaving": "the request",
    "secure_other_client": "the reply names another client than the one that sent it",
    "secure_malformed": "a message of a secure sum is",
    "secure_version": "a message of a secure sum is of another version",
    "secure_phase": "the reply is not of the phase of",
    "secure_not_asked": "this client was asked nothing in this phase",
    "secure_repeated": "this client has replied already",
    "secure_told": "what a node told of a client is false",
}
"""Why replies are refused, by code, with how the sentence begins; where several fit, the longest beginning says it."""

_INSIDE: Mapping[str, str] = {
    "secure_shares": " sent shares ",
    "secure_unsigned": " are not signed by it",
    "secure_identity": " comes with another identity than before",
    "secure_other_round": " is for another session or for round ",
    "secure_shape": " numbers, expected ",
    "secure_phase": " came in the phase of ",
    "secure_repeated": " came twice or without the message before",
    "secure_agreement": "; drop its signature",
    "secure_malformed": " cannot be read",
    "leaving": "asked to leave already",
    "leaving_malformed": "a request to leave is malformed",
}
"""Sentences of a secure sum that begin with the number of a client, by what stands in them."""

CODES = frozenset(REASONS) | frozenset(_INSIDE)

OTHER = "other"
LARGEST = 2**53


def reason_code(sentence: str) -> str:
    """The code of a refusal's sentence; what is not in the list is `other`, never quoted."""
    begins = [code for code, beginning in REASONS.items() if sentence.startswith(beginning)]
    if begins:
        return max(begins, key=lambda code: len(REASONS[code]))
    return next((code for code, words in _INSIDE.items() if words in sentence), OTHER)


def counted(refused: Mapping[str, int]) -> dict[str, int]:
    """Refusals by code, of refusals by sentence."""
    found: dict[str, int] = {}
    for sentence, count in refused.items():
        code = reason_code(sentence)
        found[code] = found.get(code, 0) + count
    return found


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
                if name == "reason":
                    line[name] = value if type(value) is str and value in CODES else OTHER
                else:
                    line[name] = plain(value)
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
    accepted: int = 0  # replies, in all rounds
    refused: dict[str, int] = field(default_factory=dict)  # replies, by reason
    round_seconds: float = 0.0  # of all rounds that this process has closed
    rounds_timed: int = 0
    last_round_seconds: float | None = None
    sent_bytes: int = 0  # of tasks, by this process
    received_bytes: int = 0  # of replies, by this process
    epsilon: float | None = None  # spent by the rounds that are done; None where nothing is accounted
    checkpoint_at: float | None = None  # when the last checkpoint was written
    checkpoints_failed: int = 0
    connected: bool = False  # whether the engine is there
    started: float = 0.0
    beat: float = 0.0  # when the coordinator last looked at its network
    report_epsilon: float = 0.0  # of one report on the lists; 0 where devices make none
    reported: dict[str, float] | None = None  # what these say together (`private_figures.reported`)
