"""The log holds names of events and numbers, whatever is put in; it rotates, and its newest events are read back."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.service.dashboard.event_log import (
    EVENTS,
    OTHER,
    EventLog,
    add_refusals,
    plain_code,
    plain_event,
    plain_number,
)
from quorank.service.dashboard.page import event_sentence
from quorank.service.dashboard.status import Event

SECRET = "/anna/how to leave my job"


class Loud(int):
    """A number that says something."""

    def __repr__(self) -> str:
        return SECRET

    __str__ = __repr__


class Word(str):
    """Equal to every code, and longer."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("reply.norm")


HOSTILE = [
    SECRET, SECRET.encode(), Loud(7), Word(SECRET), [SECRET], {SECRET: 1}, OSError(28, "full", SECRET), None,
    int.from_bytes(SECRET.encode(), "big"), math.nan, math.inf, np.array([1.0]), 1 + 2j, "reply.norm\n" + SECRET,
    "reply.norm\n", "Reply.norm", "reply", "reply.norm.more", "a." + 39 * "b",
]  # fmt: skip


def test_no_hostile_value_gets_into_the_log() -> None:
    for event, kind in EVENTS.items():
        stream = io.StringIO()
        log = EventLog(stream, clock=lambda: 1e9)
        for value in HOSTILE:
            log.write(event, **dict.fromkeys(kind.fields, value), path=SECRET, **{SECRET: value})
        lines = stream.getvalue().splitlines()
        assert len(lines) == len(HOSTILE)
        for line in lines:
            found = json.loads(line, parse_constant=lambda word: pytest.fail(word))
            assert found.pop("time") == 1e9 and found.pop("event") == event
            assert set(found) == set(kind.fields)
            assert found.pop("reason", OTHER) == OTHER
            assert set(found.values()) <= {None}
        spelled = str(int.from_bytes(SECRET.encode(), "big"))
        assert SECRET not in stream.getvalue() and spelled not in stream.getvalue()


def test_numbers_are_written_and_unknown_events_are_not() -> None:
    stream = io.StringIO()
    log = EventLog(stream, clock=lambda: 5.0)
    log.write(SECRET, round=3)
    log.write("reply_refused", round=3, client=8, reason="reply.norm", name=SECRET)
    log.write("disk_back", round=0, seconds=0.1 + 0.2)
    refused, back = map(json.loads, stream.getvalue().splitlines())
    assert refused == {"time": 5.0, "event": "reply_refused", "round": 3, "client": 8, "reason": "reply.norm"}
    assert back == {"time": 5.0, "event": "disk_back", "round": 0, "seconds": 0.3}
    assert plain_event(1.0, SECRET, {}) is None


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "no space left on device")

    EventLog(Full()).write("ready", round=1)
    closed = io.StringIO()
    closed.close()
    EventLog(closed).write("ready", round=1)
    EventLog(None).write("ready", round=1)


@given(st.one_of(st.integers(), st.floats(), st.booleans()))
def test_plain_numbers_stay_what_they_are(value) -> None:
    found = plain_number(value)
    whole = not isinstance(value, float)
    if (whole and abs(value) > 2**53) or not (whole or math.isfinite(value)):
        assert found is None
    else:
        assert type(found) is type(value) and found == pytest.approx(value, rel=1e-8)


@given(st.text(alphabet="aZ0-._ \n/", max_size=50) | st.text())
def test_what_does_not_look_like_a_code_is_not_written(text) -> None:
    thing, _, wrong = text.partition(".")
    letters = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    is_code = bool(thing and wrong) and set(thing + wrong) <= letters and len(text) <= 40
    assert plain_code(text) == (text if is_code else OTHER)
    counts = {"reply.norm": 1, SECRET: 2}, {"reply.norm": 4, "": 1, "reply.clip": 5}
    assert add_refusals(*counts) == {"reply.norm": 5, OTHER: 3, "reply.clip": 5}


def test_every_event_is_said_in_words() -> None:
    for name, (fields, _) in EVENTS.items():
        values = {field: "reply.norm" if field == "reason" else 7 for field in fields}
        words = event_sentence(Event(0.0, name, values))
        assert words != name and "?" not in words and "_" not in words, name
        assert event_sentence(Event(0.0, name)), "also where numbers were withheld"
