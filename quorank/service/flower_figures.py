"""Figures, metrics and health of a coordinator over Flower, on a port of the loopback interface.

`/metrics` and `/health` are all there is. Whoever can log in to the machine can read them: they hold counts and seconds,
no names, and the coordinator's state changes by nothing that arrives here.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from quorank.errors import BadInput

STALE_SECONDS = 60.0
"""A coordinator that has not looked at its network for so long is not well."""

_REPORTED = (
    ("reported_ndcg", "value", "nDCG by clicks that devices reported privately in a round, unbiased."),
    ("reported_ndcg_error", "error", "Its standard error by the noise of the reports."),
    ("reported_ndcg_devices", "devices", "Devices that it is of."),
    ("reported_ndcg_round", "round", "Round that it is of."),
    ("reported_ndcg_smoothed", "smoothed", "The same over rounds, older ones weighing less."),
    ("reported_ndcg_smoothed_error", "smoothed_error", "Standard error of that."),
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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


def exposition(figures: Figures, now: float) -> str:
    """The figures as Prometheus reads them."""
    lines: list[str] = []

    def add(name: str, kind: str, meaning: str, *samples: tuple[str, float | int | None]) -> None:
        known = [(suffix, value) for suffix, value in samples if value is not None]
        if known:
            lines.extend((f"# HELP quorank_{name} {meaning}", f"# TYPE quorank_{name} {kind}"))
            lines.extend(f"quorank_{name}{suffix} {value!r}" for suffix, value in known)

    refused = [(f'{{reason="{code}"}}', count) for code, count in sorted(figures.refused.items())]
    age = None if figures.checkpoint_at is None else max(0.0, now - figures.checkpoint_at)
    add("rounds_total", "counter", "Rounds done.", ("", figures.rounds))
    add("rounds_planned", "gauge", "Rounds of the whole run.", ("", figures.rounds_planned))
    add("replies_accepted_total", "counter", "Replies accepted, in all rounds.", ("", figures.accepted))
    add("replies_refused_total", "counter", "Replies refused, by reason.", *(refused or [("", 0)]))
    add(
        "cohort_clients",
        "gauge",
        "Clients asked in the open round; the planned number where the true one is withheld.",
        ("", figures.cohort),
    )
    waiting = None if figures.withheld else len(figures.waiting)
    add("waiting_clients", "gauge", "Clients of the round without a reply.", ("", waiting))
    add("present_clients", "gauge", "Clients whose device is there.", ("", len(figures.present)))
    add("invited_clients", "gauge", "Clients with an invitation that is not revoked.", ("", figures.invited))
    add("left_clients", "gauge", "Clients that have asked to leave.", ("", len(figures.left)))
    add(
        "round_seconds",
        "summary",
        "Seconds from the opening to the end of a round.",
        ("_sum", float(figures.round_seconds)),
        ("_count", figures.rounds_timed),
    )
    add("last_round_seconds", "gauge", "Seconds that the last round took.", ("", figures.last_round_seconds))
    add("sent_bytes_total", "counter", "Bytes of tasks sent.", ("", figures.sent_bytes))
    add("received_bytes_total", "counter", "Bytes of replies received.", ("", figures.received_bytes))
    spent = "Epsilon of a client by all that was released, rebuildings and reports included, at epsilon_delta."
    add("epsilon_spent", "gauge", spent, ("", figures.epsilon))
    add("epsilon_delta", "gauge", "Delta of epsilon_spent.", ("", None if figures.epsilon is None else figures.delta))
    made = "Rounds of rebuildings whose sum was made, given up ones included."
    add("rebuilding_rounds_total", "counter", made, ("", figures.rebuilding_rounds))
    for name, key, meaning in _REPORTED:
        add(name, "gauge", meaning, ("", (figures.reported or {}).get(key)))
    add("checkpoint_age_seconds", "gauge", "Seconds since the last checkpoint.", ("", age))
    add("checkpoints_failed_total", "counter", "Checkpoints not written.", ("", figures.checkpoints_failed))
    add("engine_connected", "gauge", "Whether the engine is there.", ("", int(figures.connected)))
    add("uptime_seconds", "gauge", "Seconds since the start.", ("", max(0.0, now - figures.started)))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Health:
    """Whether a coordinator does its work."""

    well: bool
    reason: str  # one of this module's words

    @classmethod
    def of(cls, figures: Figures, now: float) -> Health:
        if now - figures.beat > STALE_SECONDS:
            return cls(False, "stalled")
        if not figures.connected:
            return cls(False, "engine away")
        return cls(True, "ok")


@contextlib.contextmanager
def monitor(
    port: int | None, figures: Callable[[], Figures], clock: Callable[[], float] = time.time
) -> Iterator[int | None]:
    """Answer on 127.0.0.1 while the context lasts; yields the port, or None where none was asked for."""
    if port is None:
        yield None
        return

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version, timeout = "quorank", "", 10.0

        def do_GET(self) -> None:
            now = clock()
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE, exposition(figures(), now))
            elif self.path == "/health":
                health = Health.of(figures(), now)
                body = json.dumps({"status": health.reason, "rounds": figures().rounds})
                self._answer(200 if health.well else 503, "application/json", body + "\n")
            else:
                self._answer(404, "text/plain", "there are /metrics and /health\n")

        def _answer(self, code: int, kind: str, text: str) -> None:
            content = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Requests are not logged: they may hold anything."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise BadInput(
            "port.unusable", f"cannot be used ({error.strerror}); choose another", f"--metrics-port {port}"
        ) from None
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
