"""Templates of the pages, their filters, and static files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.responses import HTMLResponse, Response

from quorank.errors import BadInput, printable
from quorank.reports.page import STYLE
from quorank.reports.page import environment as templates_of
from quorank.search.pages.opening import web_address
from quorank.search.sources.file_names import opened_path, shown_name
from quorank.service.dashboard.numbers import ago, byte_count, duration, small

HERE = Path(__file__).parent
KIND_NAMES = {"folder": "Files", "mail": "Mail", "firefox": "Firefox", "chromium": "Chromium"}
"""Displayed names of the kinds of sources."""
DAY = 86400.0


def draw(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template as a response; all values are escaped."""
    return HTMLResponse(environment().get_template(template).render(**values), status)


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
        "kind": kind_name,
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
    """Return (content, media type) of the static files by name."""
    style = f"{STYLE.strip()}\n{(HERE / 'static' / 'pages.css').read_text(encoding='utf-8')}"
    return {
        "pages.css": (style.encode(), "text/css; charset=utf-8"),
        "pages.js": ((HERE / "static" / "pages.js").read_bytes(), "text/javascript; charset=utf-8"),
        "icon.svg": ((HERE / "static" / "icon.svg").read_bytes(), "image/svg+xml"),
    }


def static_answer(name: str) -> Response | None:
    """Return the response for a static file; None for an unknown name."""
    found = static_files().get(name)
    return None if found is None else Response(found[0], media_type=found[1])


# ---------------------------------------------------------------- filters


def kind_name(kind: str) -> str:
    """Return the displayed name of a kind of source."""
    return KIND_NAMES.get(kind, kind.replace("-", " ").capitalize())


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
    """Return a number with its sign in few digits.

    >>> signed(1.234), signed(-0.0712), signed(0.0)
    ('+1.23', '−0.07', '0')
    """
    if abs(number) < 0.005:
        return "0"
    return f"{number:+.2f}".replace("-", "−")


@dataclass(frozen=True)
class ShareBars:
    """Bar chart of signed numbers; the longest bar has length 100, positive ones lie right of the axis."""

    rows: tuple[tuple[str, float, tuple[float, ...]], ...]  # name, number, further columns
    smallest: float = 0.005
    """Smaller numbers are summed in `others`."""

    @cached_property
    def shown(self) -> list[tuple[str, float, tuple[float, ...], float, float]]:
        """(name, number, further columns, begin and length of the bar) of each row."""
        large = [row for row in self.rows if abs(row[1]) >= self.smallest]
        most = max((abs(number) for _, number, _ in large), default=1.0)
        return [(name, n, more, 100 * min(n, 0.0) / most, 100 * abs(n) / most) for name, n, more in large]

    @cached_property
    def left(self) -> float:
        """Left edge of the chart: the axis, unless a bar lies left of it."""
        return min((start for *_, start, _ in self.shown), default=0.0)

    @cached_property
    def width(self) -> float:
        """Width of the chart."""
        return max((start + length for *_, start, length in self.shown), default=100.0) - self.left or 100.0

    @cached_property
    def others(self) -> tuple[int, float]:
        """Number and sum of the rows without a bar."""
        small_ones = [number for _, number, _ in self.rows if abs(number) < self.smallest]
        return len(small_ones), sum(small_ones)


def problem_status(error: BadInput) -> int:
    """Return the HTTP status of an error."""
    return 404 if error.code in ("document.missing", "source.unknown", "source.missing") else 400
