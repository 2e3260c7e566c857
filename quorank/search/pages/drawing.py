"""Templates of the pages, their filters, and static files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.responses import HTMLResponse

from quorank.errors import printable
from quorank.reports.page import STYLE
from quorank.reports.page import environment as templates_of
from quorank.search.pages.changes import web_address
from quorank.search.sources.source import opened_path, shown_name
from quorank.service.dashboard.numbers import ago, byte_count, duration, small

KIND_NAMES = {"folder": "Files", "mail": "Mail", "firefox": "Firefox", "chromium": "Chromium"}
"""Displayed names of the kinds of sources."""
SMALLEST = 0.005  # number below which a share is shown as 0


def draw(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template as a response; all values are escaped."""
    return HTMLResponse(environment().get_template(f"{template}.html.jinja").render(**values), status)


@cache
def environment() -> Environment:
    """Return the environment of reports with the filters of these pages."""
    made = templates_of("quorank.search.pages")
    made.filters |= {
        "ago": lambda at: ago(None if at is None else max(0.0, time.time() - at)),
        "bytes": byte_count,
        "day": day,
        "duration": duration,
        "iso": lambda at: moment(at).isoformat(timespec="seconds"),
        "kind": lambda kind: KIND_NAMES.get(kind, kind.replace("-", " ").capitalize()),
        "line": lambda text: printable(" ".join(text.split())),
        "number": lambda number: f"{number:,}",
        "place": place,
        "signed": signed,
        "small": small,
        "moment": lambda at: f"{moment(at):%-d %b %Y, %H:%M}",
        "two": lambda number: f"{number:.2f}".replace("-", "−"),
        "web": web_address,
    }
    return made


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return (content, media type) of the static files by path."""
    folder = Path(__file__).parent / "static"
    return {
        "/static/pages.css": (f"{STYLE.strip()}\n".encode() + (folder / "pages.css").read_bytes(), "text/css"),
        "/static/pages.js": ((folder / "pages.js").read_bytes(), "text/javascript"),
        "/static/icon.svg": ((folder / "icon.svg").read_bytes(), "image/svg+xml"),
    }


# ---------------------------------------------------------------- filters


def moment(at: float) -> datetime:
    """Return a local time; 1970 for one outside the system's calendar."""
    try:
        return datetime.fromtimestamp(at)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0.0)


def day(at: float) -> str:
    """Return the day of a time: today, yesterday, 3 May, 3 May 2019."""
    then, now = moment(at).date(), datetime.now().date()
    days = (now - then).days
    if days in (0, 1):
        return ("today", "yesterday")[days]
    return f"{then:%-d %b}" if then.year == now.year else f"{then:%-d %b %Y}"


def place(path: str) -> str:
    """Return a stored path or address for display, with the home folder as ~ and control characters replaced."""
    shown = printable(path) if web_address(path) else shown_name(opened_path(path))
    try:
        home = str(Path.home())
    except RuntimeError:
        return shown
    return f"~{shown[len(home) :]}" if home != "/" and shown.startswith(f"{home}/") else shown


def signed(number: float) -> str:
    """Return a number with its sign in few digits."""
    return "0" if abs(number) < SMALLEST else f"{number:+.2f}".replace("-", "−")


def share_bars(rows: Sequence[tuple[str, float, tuple[float, ...]]]) -> dict[str, Any]:
    """Return a bar chart of (name, number, further columns); the longest bar has length 100, positive ones lie right.

    Numbers below `SMALLEST` are summed in `others`. `shown` has begin and length of the bar after the columns of a row.
    """
    large = [row for row in rows if abs(row[1]) >= SMALLEST]
    rest = [number for _, number, _ in rows if abs(number) < SMALLEST]
    most = max((abs(number) for _, number, _ in large), default=1.0)
    shown = [(name, n, more, 100 * min(n, 0.0) / most, 100 * abs(n) / most) for name, n, more in large]
    left = min((start for *_, start, _ in shown), default=0.0)
    width = max((start + length for *_, start, length in shown), default=100.0) - left or 100.0
    return {"shown": shown, "left": left, "width": width, "others": (len(rest), sum(rest)), "rows": rows}
