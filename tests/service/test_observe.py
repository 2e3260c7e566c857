"""The log holds names of events and numbers, whatever is put in; it rotates, and its newest events are read back."""

from __future__ import annotations

import ast
import io
import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quorank
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


@cache
def calls_of(file: Path) -> list[ast.Call]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]


def codes_of(files: Iterable[Path]) -> list[ast.expr]:
    """The codes of all errors that are raised in these files, as they stand there."""
    calls = [call for file in files for call in calls_of(file)]
    raised = [call.args[:1] for call in calls if call.func.id == "BadInput" and len(call.args) > 1]
    required = [call.args[1:2] for call in calls if call.func.id == "require" and len(call.args) > 2]
    return [code for codes in raised + required for code in codes]


def test_codes_of_errors_are_literals_that_the_log_takes() -> None:
    package = Path(quorank.__file__).parent
    literals = {code.value for code in codes_of(package.rglob("*.py")) if isinstance(code, ast.Constant)}
    assert "reply.norm" in literals and {plain_code(code) for code in literals} == literals
    folders = [package / name for name in ("engines", "service", "member", "protocol")]
    assert all(folder.is_dir() for folder in folders)
    here = codes_of(
        [*(file for folder in folders for file in folder.rglob("*.py")), package / "federation" / "coordinator.py"]
    )
    names = {ast.unparse(code) for code in here if not isinstance(code, ast.Constant)}
    others = {name for name in names if not name.isupper()}  # constants of modules
    ours = {"code"}  # of `CohortSum.dropped` and `SecureRounds.liars`, which hold codes of secure sums
    assert others <= {"error.code", "verdict.code", "report.code", "outcome.code"} | ours, (
        "nothing of a message is part of a code"
    )


def test_every_event_is_said_in_words() -> None:
    for name, (fields, _) in EVENTS.items():
        values = {field: "reply.norm" if field == "reason" else 7 for field in fields}
        words = event_sentence(Event(0.0, name, values))
        assert words != name and "?" not in words and "_" not in words, name
        assert event_sentence(Event(0.0, name)), "also where numbers were withheld"
