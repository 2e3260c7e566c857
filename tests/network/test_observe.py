"""The log holds names of events and numbers, whatever is put in; the metrics are what Prometheus reads."""

from __future__ import annotations

import ast
import http.client
import io
import json
import math
import re
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
from quorank.service.metrics import CONTENT_TYPE, STALE_SECONDS, Health, exposition, monitor
from quorank.service.observe import EVENTS, OTHER, EventLog, Figures, add_refusals, plain, plain_code

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
    here = codes_of([*(package / "network").glob("*.py"), package / "federation" / "coordinator.py"])
    others = {ast.unparse(code) for code in here if not isinstance(code, ast.Constant)}
    ours = {"code"}  # of `CohortSum.dropped` and `SecureRounds.liars`, which hold codes of secure sums
    assert others == {"error.code", "verdict.code"} | ours, "nothing of a message is part of a code"


# metrics

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([a-z_]+)="([a-z.-]*)"\})? (\S+)')


def parsed(text: str) -> dict[tuple[str, str], float]:
    """A strict reader of the text format: (name, label) → value."""
    assert text.endswith("\n") and "\n\n" not in text
    kinds: dict[str, str] = {}
    values: dict[tuple[str, str], float] = {}
    helped, current = set(), ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, current, meaning = line.split(" ", 3)
            assert meaning.endswith(".") and current not in helped
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and name not in kinds and kind in ("counter", "gauge", "summary")
            assert (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, _, label, value = match.groups()
            family = re.sub(r"_(sum|count)$", "", name) if kinds[current] == "summary" else name
            assert family == current
            assert (name, label or "") not in values
            values[name, label or ""] = float(value)
    assert set(kinds) == helped
    return values


counts = st.integers(0, 2**40)
seconds = st.floats(0.0, 1e9)
clients = st.lists(st.integers(0, 10**6), max_size=5)
FIGURES = st.builds(
    Figures, counts, counts, counts, clients, clients, clients, counts, counts,
    st.dictionaries(st.sampled_from(["reply.norm", "secure-sum.phase", OTHER]), counts), seconds, counts,
    st.none() | seconds, counts, counts, st.none() | seconds, st.none() | seconds, counts, st.booleans(), seconds, seconds,
)  # fmt: skip


def test_what_is_withheld_is_in_no_metric() -> None:
    figures = Figures(5, 2, 10, [3, 4], accepted=None, sent_bytes=None, received_bytes=None, withheld=True)
    figures.epsilon, figures.delta, figures.rebuilding_rounds = 2.5, 1e-5, 7
    found = parsed(exposition(figures, 0.0))
    names = {name.removeprefix("quorank_") for name, _ in found}
    assert not names & {"waiting_clients", "replies_accepted_total", "sent_bytes_total", "received_bytes_total"}
    assert found["quorank_cohort_clients", ""] == 10, "as planned"
    assert (found["quorank_epsilon_spent", ""], found["quorank_epsilon_delta", ""]) == (2.5, 1e-5)
    assert found["quorank_rebuilding_rounds_total", ""] == 7


@given(FIGURES, seconds)
def test_the_metrics_are_the_figures(figures, now) -> None:
    found = parsed(exposition(figures, now))
    expected: dict[tuple[str, str], float] = {
        ("rounds_total", ""): figures.rounds,
        ("rounds_planned", ""): figures.rounds_planned,
        ("replies_accepted_total", ""): figures.accepted,
        ("cohort_clients", ""): figures.cohort,
        ("waiting_clients", ""): len(figures.waiting),
        ("present_clients", ""): len(figures.present),
        ("invited_clients", ""): figures.invited,
        ("left_clients", ""): len(figures.left),
        ("round_seconds_sum", ""): figures.round_seconds,
        ("round_seconds_count", ""): figures.rounds_timed,
        ("sent_bytes_total", ""): figures.sent_bytes,
        ("received_bytes_total", ""): figures.received_bytes,
        ("rebuilding_rounds_total", ""): 0,
        ("checkpoints_failed_total", ""): figures.checkpoints_failed,
        ("engine_connected", ""): figures.connected,
        ("uptime_seconds", ""): max(0.0, now - figures.started),
    }
    expected |= {("replies_refused_total", code): n for code, n in figures.refused.items()}
    if not figures.refused:
        expected["replies_refused_total", ""] = 0
    if figures.last_round_seconds is not None:
        expected["last_round_seconds", ""] = figures.last_round_seconds
    if figures.epsilon is not None:
        expected["epsilon_spent", ""] = figures.epsilon
    if figures.checkpoint_at is not None:
        expected["checkpoint_age_seconds", ""] = max(0.0, now - figures.checkpoint_at)
    assert found == {(f"quorank_{name}", label): value for (name, label), value in expected.items()}


def test_health_and_metrics_over_http() -> None:
    figures, now = Figures(9, rounds=4, connected=True, beat=100.0, refused={"reply.norm": 2}), [101.0]

    def get(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()

    with monitor(0, lambda: figures, lambda: now[0]) as port:
        assert port is not None
        status, kind, text = get(port, "/metrics")
        assert (status, kind) == (200, CONTENT_TYPE)
        assert parsed(text)["quorank_replies_refused_total", "reply.norm"] == 2
        assert get(port, "/health")[::2] == (200, '{"status": "ok", "rounds": 4}\n')
        now[0] = 101.0 + STALE_SECONDS
        assert get(port, "/health")[::2] == (503, '{"status": "stalled", "rounds": 4}\n')
        now[0], figures.connected = 101.0, False
        assert json.loads(get(port, "/health")[2])["status"] == "engine away"
        assert get(port, "/" + SECRET.replace(" ", "%20"))[::2] == (404, "there are /metrics and /health\n")
        assert get(port, "/metrics", "POST")[0] == 501
    with pytest.raises(OSError):
        get(port, "/health")
    with monitor(None, lambda: figures) as port:
        assert port is None
    assert Health.of(Figures(connected=True, beat=5.0), 6.0).well
