"""Metrics of a coordinator over Flower are what Prometheus reads."""

from __future__ import annotations

import http.client
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.service.flower_figures import CONTENT_TYPE, STALE_SECONDS, Figures, Health, exposition, monitor
from quorank.service.observe import OTHER

SECRET = "/anna/how to leave my job"

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
