"""Templates of the pages, the words and figures in them, and the files that they load."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from quorank.errors import BadInput, printable
from quorank.reports.page import STYLE
from quorank.search.pages.opening import web_address
from quorank.search.sources.file_names import opened_path, shown_name
from quorank.service.live.spoken_figures import ago, byte_count, duration, small

HERE = Path(__file__).parent
KIND_NAMES = {"folder": "Files", "mail": "Mail", "firefox": "Firefox", "chromium": "Chromium"}
"""Names of the kinds of sources for people; that of another package has its own."""
DAY = 86400.0


def draw(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Answer with a template; whatever is put into it is text."""
    return HTMLResponse(environment().get_template(template).render(**values), status)


@cache
def environment() -> Environment:
    """Return the templates with their filters; all values are escaped."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
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
    """Return the files that the pages load, by name: content and type."""
    style = f"{STYLE.strip()}\n{(HERE / 'static' / 'pages.css').read_text(encoding='utf-8')}"
    return {
        "pages.css": (style.encode(), "text/css; charset=utf-8"),
        "pages.js": ((HERE / "static" / "pages.js").read_bytes(), "text/javascript; charset=utf-8"),
        "icon.svg": ((HERE / "static" / "icon.svg").read_bytes(), "image/svg+xml"),
    }


def static_answer(name: str) -> Response | None:
    """Answer with a file that the pages load; None where there is none of this name."""
    found = static_files().get(name)
    return None if found is None else Response(found[0], media_type=found[1])


# ---------------------------------------------------------------- words


def kind_name(kind: str) -> str:
    """Return the name of a kind of source for people."""
    return KIND_NAMES.get(kind, kind.replace("-", " ").capitalize())


def moment(at: float) -> datetime:
    """Return a time of this machine; one that its calendar does not know is its first."""
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
    """Return a stored path or address as people read it: the person's own folder as ~, and nothing that acts as script."""
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
    """Bars of signed numbers beside each other: the longest is 100 long, to the right of the axis where it is above 0."""

    rows: tuple[tuple[str, float, tuple[float, ...]], ...]  # name, number, and whatever else stands in the row
    smallest: float = 0.005
    """Numbers below this are summed in `others`."""

    @cached_property
    def shown(self) -> list[tuple[str, float, tuple[float, ...], float, float]]:
        """(name, number, the rest, where its bar begins, how long it is), in the order that was given."""
        large = [row for row in self.rows if abs(row[1]) >= self.smallest]
        most = max((abs(number) for _, number, _ in large), default=1.0)
        return [(name, n, more, 100 * min(n, 0.0) / most, 100 * abs(n) / most) for name, n, more in large]

    @cached_property
    def left(self) -> float:
        """Where the drawing begins: at the axis, unless a bar lies left of it."""
        return min((start for *_, start, _ in self.shown), default=0.0)

    @cached_property
    def width(self) -> float:
        """How wide the drawing is."""
        return max((start + length for *_, start, length in self.shown), default=100.0) - self.left or 100.0

    @cached_property
    def others(self) -> tuple[int, float]:
        """How many numbers are not shown, and their sum."""
        small_ones = [number for _, number, _ in self.rows if abs(number) < self.smallest]
        return len(small_ones), sum(small_ones)


def problem_status(error: BadInput) -> int:
    """Return the status of HTTP that stands for an error."""
    return 404 if error.code in ("document.missing", "source.unknown", "source.missing") else 400
