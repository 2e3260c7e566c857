"""Dashboard of the operator: a `Status` as HTML, kept live by server-sent events, protected by a token.

`page_routes(read, token)` are Starlette routes for `/`, `/events` and `/metrics`. They change nothing and load nothing from
elsewhere; one script, allowed by its digest, replaces changed sections, and without it the page reloads itself. The token
comes in a header, or once as `/?token=…`, which sets a cookie that does not hold the token itself.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from quorank.errors import BadInput, require
from quorank.reports.page import STYLE, environment, panel_svg
from quorank.reports.panels import Curve, Panel
from quorank.service.dashboard.access import PageToken, private_headers
from quorank.service.dashboard.event_log import EVENTS, add_refusals
from quorank.service.dashboard.numbers import ago, byte_count, count, duration, rate, small
from quorank.service.dashboard.status import Event, RoundFigures, Status, mean_seconds

PACKAGE = "quorank.service.dashboard"
TEMPLATES = Path(__file__).with_name("templates")
_SECTION = re.compile(r"<!--(\w+)-->(.*?)<!--/\1-->", re.DOTALL)
LIVE_SECONDS = 1.0  # minimum seconds between two reads of the status, for all viewers together
STREAM_SECONDS = 300.0  # maximum seconds of an event stream, after which the browser opens another one
MOST_STREAMS = 32
SHOWN_MEMBERS, SHOWN_EVENTS = 12, 14  # rows shown before the rest is opened

Read = Callable[[], Status]


def page_routes(read: Read, token: str, stopping: Callable[[], bool] = lambda: False) -> list[Route]:
    """Return the routes of page, event stream and metrics; `read` is called in a thread, at most once a second."""
    watch, guard = _Watch(read, stopping), PageToken(token)

    async def page(request: Request) -> Response:
        if "token" not in request.query_params:
            return HTMLResponse(await run_in_threadpool(draw_page, await watch.status()), headers=page_headers())
        require(guard.is_token(request.query_params["token"]), "operator.token", "this is not the operator's token")
        answer = RedirectResponse("./", status_code=303, headers=page_headers())
        guard.set_cookie(request, answer)
        return answer

    async def events(request: Request) -> Response:
        sentence = f"{MOST_STREAMS} viewers are connected already; close a window"
        require(watch.streams < MOST_STREAMS, "request.busy", sentence)
        headers = page_headers() | {"X-Accel-Buffering": "no"}
        return StreamingResponse(watch.stream(), media_type="text/event-stream", headers=headers)

    async def metrics(request: Request) -> Response:
        content = exposition(await watch.status())
        return Response(content, headers=page_headers() | {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    def guarded(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            sentence = "this page needs the operator's token: open the address that the service printed at its start"
            given = answer is page and "token" in request.query_params
            try:
                require(given or guard.knows(request), "operator.token", sentence)
                return await answer(request)
            except OSError:
                error = BadInput("status.unreadable", "the status cannot be read now; try again")
            except BadInput as refused:
                error = refused
            table = {"code": error.code, "sentence": error.sentence}
            return JSONResponse(table, 401 if error.code == "operator.token" else 503, headers=page_headers())

        return answered

    answers = {"/": page, "/events": events, "/metrics": metrics}
    return [Route(path, guarded(answer)) for path, answer in answers.items()]


def page_headers() -> dict[str, str]:
    """Return the headers of every answer: nothing is loaded, framed or cached; script and style are allowed by digest."""
    return private_headers(
        f"default-src 'none'; style-src {_allowed(style())}; script-src {_allowed(script())}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@cache
def _allowed(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@cache
def style() -> str:
    """Return the style sheet of reports plus the dashboard's own."""
    return f"\n{STYLE.strip()}\n{(TEMPLATES / 'dashboard.css').read_text(encoding='utf-8')}"


@cache
def script() -> str:
    """Return the script that replaces changed sections."""
    return (TEMPLATES / "dashboard.js").read_text(encoding="utf-8")


# ---------------------------------------------------------------- live


class _Watch:
    """Newest status and its rendering, shared by all viewers."""

    def __init__(self, read: Read, stopping: Callable[[], bool]) -> None:
        self._read, self._stopping, self._lock = read, stopping, asyncio.Lock()
        self._status: Status | None = None
        self._drawn: dict[str, str] = {}
        self._read_at = self._drawn_at = -1e9
        self.streams = 0

    async def status(self) -> Status:
        """Return the status, at most LIVE_SECONDS old."""
        async with self._lock:
            if self._status is None or time.monotonic() - self._read_at >= LIVE_SECONDS * 0.9:
                self._status = await run_in_threadpool(self._read)
                self._read_at = time.monotonic()
            return self._status

    async def _sections(self) -> dict[str, str]:
        status = await self.status()
        if self._drawn_at != self._read_at:
            self._drawn, self._drawn_at = await run_in_threadpool(draw_sections, status), self._read_at
        return self._drawn

    async def stream(self) -> AsyncIterator[str]:
        """Yield the events of one browser: all sections first, then changed ones."""
        self.streams += 1
        try:
            shown: dict[str, str] = {}
            end, over = time.monotonic() + STREAM_SECONDS, False
            yield f"retry: {int(3000 * LIVE_SECONDS)}\n\n"
            while time.monotonic() < end and not over:
                over, changed = self._stopping(), {}
                if over:
                    self._read_at = -1e9  # read once more
                with suppress(BadInput, OSError):  # the page stays unchanged
                    changed = dict((await self._sections()).items() - shown.items())
                yield f"event: change\ndata: {json.dumps(changed)}\n\n" if changed else ": here\n\n"
                shown |= changed
                for _ in range(10):
                    if not over and not self._stopping():
                        await asyncio.sleep(LIVE_SECONDS / 10)
            if over:
                yield "event: over\ndata:\n\n"
        finally:
            self.streams -= 1


# ---------------------------------------------------------------- drawing


@cache
def _environment() -> Environment:
    found = environment(PACKAGE)
    found.filters |= {
        "duration": duration, "ago": ago, "count": count, "small": small, "event": event_sentence, "bytes": byte_count,
        "rate": rate,
    }  # fmt: skip
    found.globals["moment"] = lambda seconds: datetime.fromtimestamp(min(max(seconds, 0.0), 4e9), UTC)
    return found


def draw_page(status: Status) -> str:
    """Render the whole page."""
    return _environment().get_template("dashboard.html").render(_context(status))


def draw_sections(status: Status) -> dict[str, str]:
    """Return the content of each section by its id; `title` is the document's.

    The template marks sections with comments, which escaped text cannot contain.
    """
    page = draw_page(status)
    title = page.partition("<title>")[2].partition("</title>")[0]
    return {"title": title} | {name: content.strip() for name, content in _SECTION.findall(page)}


def _context(status: Status) -> dict[str, Any]:
    shown = sorted(status.members, key=lambda member: (not member.waiting, member.client))
    return {
        "status": status,
        "words": _WORDS[status.kind],
        "quality": status.quality.words() if status.quality else ("not measured", "devices do not report it"),
        "refused": sorted(((code, n) for code, n in status.refused.items() if n), key=lambda one: (-one[1], one[0])),
        "charts": charts(status),
        "share": _share(status.rounds, status.rounds_planned),
        "spent": _share(status.epsilon_spent, status.epsilon_planned),
        "seconds_a_round": mean_seconds(status.history),
        "shown_members": shown[:SHOWN_MEMBERS],
        "more_members": shown[SHOWN_MEMBERS:],
        "shown_events": status.events[:SHOWN_EVENTS],
        "more_events": status.events[SHOWN_EVENTS:],
        "phases": PHASES,
        "weight_places": [_place(weight.lower, weight.upper) for weight in status.weights],
        "style": Markup(style()),
        "script": Markup(script()),
    }


_WORDS: Mapping[str, Mapping[str, str]] = {
    "devices": {"member": "device", "members": "devices", "round": "round", "rounds": "rounds"},
    "parties": {"member": "party", "members": "parties", "round": "turn", "rounds": "turns"},
    "tuning": {"member": "device", "members": "devices", "round": "version", "rounds": "versions"},
    "simulation": {"member": "client", "members": "clients", "round": "round", "rounds": "rounds"},
}

PHASES: Mapping[str, str] = {  # of a group's session, in order
    "agreement": "every party sends its keys and contribution",
    "statistics": "masked tables of all parties are summed",
    "training": "the ranker is trained in turns",
    "end": "every party receives and stores the ranker",
    "done": "every party has the ranker",
}


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)


def _place(lower: float, upper: float) -> Callable[[float], str]:
    """Return a function that maps a value between its bounds to 0 … 100."""
    return lambda value: f"{100.0 * min(1.0, max(0.0, (value - lower) / ((upper - lower) or 1.0))):.1f}"


class _StatusPanel(Panel):
    """Panel that labels the end of its only curve with a short value."""

    def end_text(self, curve: Curve) -> str:
        if not len(curve.x) or len(self.curves) > 1:
            return super().end_text(curve)
        value = float(curve.runs[0, -1])
        return f"{value:.3f}" if abs(value) < 1.0 else f"{value:.3g}" if abs(value) < 100.0 else count(value)


def charts(status: Status) -> list[tuple[str, Markup, str]]:
    """Return (title, drawing, caption) of every series with data."""
    words, history, found = _WORDS[status.kind], status.history, []

    def points(name: str) -> tuple[list[int], list[float], list[RoundFigures]]:
        known = [point for point in history if getattr(point, name) is not None]
        return [point.round for point in known], [getattr(point, name) for point in known], known

    def add(title: str, below: str, *curves: Curve, y_range: tuple[float, float] | None = None) -> None:
        panel = _StatusPanel(title, words["round"], "", curves, "curves", y_range=y_range)
        alt = f"{title}: {panel.end_text(curves[0])} after {words['round']} {int(curves[0].x[-1])}"
        found.append((title, panel_svg(panel, alt), below))

    x, y, known = points("quality")
    if x:
        spread = [2.0 * (point.error or 0.0) for point in known] if any(p.error is not None for p in known) else None
        measure = "Quality" if status.quality is None else status.quality.measure
        below = "band: two standard errors of the reports' noise" if spread else _UNDER.get(status.kind, "")
        add(measure, below, Curve.of_means("", x, y, spread))
    x, y, _ = points("epsilon")
    if x and status.epsilon_planned is not None:
        last = max(status.rounds_planned or x[-1], x[-1])
        planned = [status.epsilon_planned] * 2
        limit = Curve.of_means("planned", [0, last], planned, colour=6, dashes="dashed", level=True)
        top = 1.08 * max(*planned, *y, 1e-9)
        delta = "" if status.epsilon_delta is None else f"δ = {small(status.epsilon_delta)}, "
        below = f"{delta}unit: {status.epsilon_unit or 'client'}"
        add("ε spent", below, Curve.of_means("spent", [0, *x], [0.0, *y]), limit, y_range=(0.0, top))
    for name, title, below in (
        ("seconds", f"Seconds per {words['round']}", "from opening to close"),
        ("replies", f"Accepted replies per {words['round']}", ""),
    ):
        x, y, _ = points(name)
        if x:
            add(title, below, Curve.of_means("", x, y), y_range=(0.0, 1.08 * max(*y, 1e-9)))
    return found


# captions of a quality curve without a band
_UNDER = {"simulation": "of the test queries", "tuning": "mean over the updates that made the version"}


# ---------------------------------------------------------------- sentences of events


def _value_text(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if name == "phase":
        return next((word for number, word in enumerate(PHASES) if number == value), f"{value}")
    return duration(value) if name == "seconds" else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def event_sentence(event: Event) -> str:
    """Return an event as a sentence, `?` for missing values; its code if it is unknown."""
    kind = EVENTS.get(event.event)
    if kind is None:
        return event.event
    values = {name: _value_text(name, value) for name, value in event.fields.items() if value is not None}
    return kind.sentence.format_map(dict.fromkeys(kind.fields, "?") | values)


# ---------------------------------------------------------------- metrics


_METRICS = """
counter rounds               rounds                 Completed rounds.
counter replies_accepted     accepted               Replies accepted, in all rounds.
counter sent_bytes           sent_bytes             Bytes of tasks sent.
counter received_bytes       received_bytes         Bytes of replies received.
counter rebuilding_rounds    rebuilding_rounds      Rounds of rebuildings with a sum.
counter checkpoints_failed   checkpoints_failed     Failed writes of a checkpoint.
gauge   rounds_planned       rounds_planned         Planned rounds of the run.
gauge   cohort_clients       cohort                 Cohort of the open round; as planned where withheld.
gauge   round_replies        replies                Replies to the open round.
gauge   round_open_seconds   open_seconds           Seconds since the open round began.
gauge   last_round_seconds   last_round_seconds     Duration of the last round, seconds.
gauge   seconds_left         seconds_left           Estimated seconds until the end of the run.
gauge   enrolled_members     counts.enrolled        Enrolled members.
gauge   invited_members      counts.invited         Unused invitations.
gauge   seen_members         counts.seen            Members online.
gauge   waiting_members      counts.waiting         Members of the open round without a reply.
gauge   left_members         counts.left            Members that left.
gauge   revoked_members      counts.revoked         Revoked members.
gauge   epsilon_spent        epsilon_spent          Spent epsilon of a member, all releases.
gauge   epsilon_planned      epsilon_planned        Planned epsilon of the whole run.
gauge   epsilon_delta        epsilon_delta          Delta of epsilon_spent.
gauge   uptime_seconds       uptime_seconds         Seconds since the start of the service.
gauge   well                 is_healthy             1 without fatal problems.
gauge   stalled              is_stalled             1 if the open round takes three times as long as the latest ones.
counter requests             requests               Requests of members answered.
counter request_seconds      request_seconds        Seconds that these answers took.
gauge   quality              quality.value          Quality reported by members in a round.
gauge   quality_error        quality.error          Standard error of quality.
gauge   quality_round        quality.round          Round of quality.
gauge   quality_smoothed     quality.smoothed       Quality smoothed over rounds.
gauge   quality_smoothed_error quality.smoothed_error Standard error of quality_smoothed.
"""
"""Kind, name, field of the status and meaning of each number; unknown ones are left out."""


class StatusCollector(CollectorRegistry):
    """Registry with the numbers of one status."""

    def __init__(self, status: Status) -> None:
        super().__init__(auto_describe=False)
        self.status = status

    def collect(self) -> Iterator[Metric]:
        status = self.status
        for line in _METRICS.strip().splitlines():
            kind, name, path, meaning = line.split(None, 3)
            value: Any = status
            for part in path.split("."):
                value = getattr(value, part, None)
            if value is not None:
                family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                yield family(f"quorank_{name}", meaning, value=float(value))
        refused = CounterMetricFamily("quorank_refused", "Rejected requests and replies by code.", labels=["code"])
        for code, number in sorted(add_refusals(status.refused).items()):
            refused.add_metric([code], number)
        programs = GaugeMetricFamily(
            "quorank_member_programs", "Members by version of their program.", labels=["version"]
        )
        for version, number in sorted(status.versions.members.items()):
            programs.add_metric([version], number)
        service = GaugeMetricFamily(
            "quorank_service", "Version of service and protocol.", labels=["version", "protocol"]
        )
        service.add_metric([status.versions.service, f"{status.versions.protocol}"], 1)
        problems = GaugeMetricFamily("quorank_problem", "Current problems by code.", labels=["code"])
        for code in sorted({problem.code for problem in status.problems}):
            problems.add_metric([code], 1)
        state = GaugeMetricFamily("quorank_state", "The state, as a label.", labels=["kind", "state"])
        state.add_metric([status.kind, status.state], 1)
        yield from (refused, problems, state, programs, service)


def exposition(status: Status) -> bytes:
    """Return the status in Prometheus text format 0.0.4."""
    return generate_latest(StatusCollector(status))
