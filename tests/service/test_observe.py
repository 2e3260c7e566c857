"""The log holds names of events and numbers, whatever is put in; it rotates, and its newest events are read back."""

from __future__ import annotations

import ast
import io
import json
import math
import multiprocessing
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from devices import coordinator_of, simulator_of
from hypothesis import given
from hypothesis import strategies as st

import quorank
from quorank.federation import wire
from quorank.federation.coordinator import RoundLimits
from quorank.service.observe import EVENTS, OTHER, EventLog, LogFile, add_refusals, newest_events, plain, plain_code
from quorank.service.page import event_words
from quorank.service.status import KEPT_EVENTS, Event

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


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_no_hostile_value_gets_into_the_log(event) -> None:
    stream = io.StringIO()
    log = EventLog(stream, clock=lambda: 1e9)
    for value in HOSTILE:
        log.write(event, **dict.fromkeys(EVENTS[event], value), path=SECRET, **{SECRET: value})
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(HOSTILE)
    for line in lines:
        found = json.loads(line, parse_constant=lambda word: pytest.fail(word))
        assert found.pop("time") == 1e9 and found.pop("event") == event
        assert set(found) == set(EVENTS[event])
        assert found.pop("reason", OTHER) == OTHER
        assert set(found.values()) <= {None}
    spelled = str(int.from_bytes(SECRET.encode(), "big"))
    assert SECRET not in stream.getvalue() and spelled not in stream.getvalue()


def test_numbers_are_written_and_unknown_events_are_not() -> None:
    stream = io.StringIO()
    log = EventLog(stream, clock=lambda: 5.0)
    log.write(SECRET, round=3)
    log.write("reply_refused", round=3, client=8, reason="reply.norm", name=SECRET)
    log.write("ready", round=0, rounds=9, seconds=0.1 + 0.2)
    refused, ready = map(json.loads, stream.getvalue().splitlines())
    assert refused == {"time": 5.0, "event": "reply_refused", "round": 3, "client": 8, "reason": "reply.norm"}
    assert ready == {"time": 5.0, "event": "ready", "round": 0, "rounds": 9, "seconds": 0.3}


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
    found = plain(value)
    whole = not isinstance(value, float)
    if (whole and abs(value) > 2**53) or not (whole or math.isfinite(value)):
        assert found is None
    else:
        assert type(found) is type(value) and found == pytest.approx(value, rel=1e-8)


def test_each_refusal_of_the_coordinator_has_its_code(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection)
    coordinator = coordinator_of(simulator, RoundLimits(longest=10.0))
    size = simulator.simulation.parameters
    good = wire.Reply("run", 0, 0, np.zeros(size), 3)
    found = [coordinator.receive(good).code]
    coordinator.plan()
    assert coordinator.receive(good).accepted
    change = {
        "reply.other-run": {"run": "another"}, "reply.round-not-begun": {"round": 1},
        "reply.not-in-cohort": {"client": 77}, "reply.shape": {"release": np.zeros(size + 1)},
        "reply.not-finite": {"release": np.full(size, np.nan)}, "reply.weight": {"interactions": 400},
        "reply.norm": {"release": np.full(size, 100.0)}, "reply.replayed": {"client": 0},
    }  # fmt: skip
    for values in change.values():
        fields = {"run": "run", "round": 0, "client": 1, "release": np.zeros(size), "interactions": 3} | values
        found.append(coordinator.receive(wire.Reply(**fields)).code)
    found.append(coordinator.receive(SECRET.encode()).code)
    head = wire.encode_reply(good)
    found.append(coordinator.receive(head[:5] + b"\x63\x00" + head[7:]).code)
    assert found == ["reply.no-open-round", *change, "reply.malformed", "reply.protocol"]
    assert coordinator.refused == dict.fromkeys(found, 1)


def test_refusals_are_added_up_by_code() -> None:
    counts = {"reply.norm": 1, SECRET: 2}, {"reply.norm": 4, "": 1, "reply.clip": 5}
    assert add_refusals(*counts) == {"reply.norm": 5, OTHER: 3, "reply.clip": 5}


@given(st.text(alphabet="aZ0-._ \n/", max_size=50) | st.text())
def test_what_does_not_look_like_a_code_is_not_written(text) -> None:
    thing, _, wrong = text.partition(".")
    letters = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    is_code = bool(thing and wrong) and set(thing + wrong) <= letters and len(text) <= 40
    assert plain_code(text) == (text if is_code else OTHER)


def codes_of(files: Iterable[Path]) -> list[ast.expr]:
    """The codes of all errors that are raised in these files, as they stand there."""
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    raised = [call.args[:1] for call in calls if call.func.id == "BadInput" and len(call.args) > 1]
    required = [call.args[1:2] for call in calls if call.func.id == "require" and len(call.args) > 2]
    return [code for codes in raised + required for code in codes]


def test_codes_of_errors_are_literals_that_the_log_takes() -> None:
    package = Path(quorank.__file__).parent
    literals = {code.value for code in codes_of(package.rglob("*.py")) if isinstance(code, ast.Constant)}
    assert "reply.norm" in literals and {plain_code(code) for code in literals} == literals
    rooms = [file for room in ("flower", "service", "device", "party") for file in (package / room).rglob("*.py")]
    here = codes_of([*rooms, package / "federation" / "coordinator.py"])
    others = {ast.unparse(code) for code in here if not isinstance(code, ast.Constant)}
    ours = {"code"}  # of `CohortSum.dropped` and `SecureRounds.liars`, which hold codes of secure sums
    assert others <= {"error.code", "verdict.code", "report.code", "outcome.code"} | ours, (
        "nothing of a message is part of a code"
    )


# ---------------------------------------------------------------- newest events


def test_the_newest_events_are_kept_and_read_back_from_the_file(tmp_path) -> None:
    now = iter(range(10_000))
    log = EventLog(LogFile(tmp_path / "service.log"), clock=lambda: float(next(now)))
    for number in range(KEPT_EVENTS + 50):
        log.write("round_closed", round=number, seconds=0.5)
    log.write("reply_refused", round=7, reason="reply.norm")
    assert len(log.newest) == KEPT_EVENTS
    assert log.newest[0] == Event(250.0, "reply_refused", {"round": 7, "reason": "reply.norm"})
    assert newest_events(tmp_path / "service.log") == log.newest
    assert newest_events(tmp_path / "service.log", 3) == log.newest[:3]
    assert newest_events(tmp_path / "missing.log") == ()


def test_lines_of_others_are_left_out(tmp_path) -> None:
    good = b'{"time": 1.5, "event": "ready", "round": 2}\n'
    lines = [
        b"Traceback (most recent call last):\n", b"{not json}\n", b"[1]\n", b'{"time": "now", "event": "ready"}\n',
        b'{"time": 1, "event": "else"}\n', b'{"time": 1, "event": ["ready"]}\n', b"\xff\xfe{\n", b"{" * 5000 + b"\n",
        b'{"time": 1, "event": "reply_refused", "reason": "' + SECRET.encode() + b'", "path": "x", "client": "x"}\n',
    ]  # fmt: skip
    (tmp_path / "log").write_bytes(good + b"".join(lines) + b'{"time": 1, "event": "rea')
    refusal, ready = newest_events(tmp_path / "log")
    assert ready == Event(1.5, "ready", {"round": 2})
    assert refusal == Event(1.0, "reply_refused", {"client": None, "reason": OTHER})


def test_every_event_is_said_in_words() -> None:
    for name, fields in EVENTS.items():
        values = {field: "reply.norm" if field == "reason" else 7 for field in fields}
        words = event_words(Event(0.0, name, values))
        assert words != name and "?" not in words and "_" not in words, name
        assert event_words(Event(0.0, name)), "also where numbers were withheld"


# ---------------------------------------------------------------- rotation


def test_a_log_begins_anew_at_its_size(tmp_path) -> None:
    path = tmp_path / "service.log"
    log = LogFile(path, longest=1000, kept=2)
    for number in range(200):
        log.write(f"{number:04d} {'x' * 44}\n")
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["service.log", "service.log.1", "service.log.2"]
    assert all(file.stat().st_size <= 1100 and file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.iterdir())
    kept = [int(line.split()[0]) for name in reversed(names) for line in (tmp_path / name).read_text().splitlines()]
    assert kept == list(range(kept[0], 200))
    log.close()


def test_two_logs_on_one_file_lose_no_line(tmp_path) -> None:
    """Each notices when the other has moved the file aside."""
    path = tmp_path / "service.log"
    logs = [LogFile(path, longest=500, kept=100) for _ in range(2)]
    for number in range(300):
        logs[number % 2].write(f"{number} {'x' * 20}\n")
    numbers = sorted(int(line.split()[0]) for file in tmp_path.iterdir() for line in file.read_text().splitlines())
    assert numbers == list(range(300)) and len(list(tmp_path.iterdir())) > 5


def _fill(path: Path, name: int) -> None:
    log = LogFile(path, longest=2000, kept=1000)
    for number in range(500):
        log.write(f"{name}-{number}\n")


@pytest.mark.slow
def test_several_processes_write_one_log(tmp_path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(tmp_path / "log", name)) for name in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{name}-{number}" for name in range(3) for number in range(500))


def test_a_folder_that_is_gone_ends_nothing(tmp_path) -> None:
    log = EventLog(LogFile(tmp_path / "none" / "service.log"))
    log.write("ready", round=1)
    assert log.newest[0].event == "ready"
