"""Drawings as files and as parts of a page: their colours, their formats, and numbers in few characters.

Colours are written so that a page can restyle them for a dark background (see `svg`).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank.errors import BadInput
from quorank.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito's colour-blind-safe hues, darkened where they are too pale to read on white; yellow is left out.
PALETTE = ("#0072b2", "#d55e00", "#00855f", "#a8508a", "#b07800", "#2f7fb8", "#5b6470")
INK, FAINT, GRID = "#30363d", "#6b727b", "#d9dde2"
_VARIABLES = {INK: "ink", FAINT: "faint", GRID: "grid"} | {c: f"curve-{n}" for n, c in enumerate(PALETTE, 1)}
FORMATS = (".svg", ".png", ".pdf")


def compact(value: float) -> str:
    """A count in few characters: 4M, 2.5k, 750."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def checked_format(path: Path | str) -> str:
    """The file's ending, refused unless figures can be written in it."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise BadInput(
            f"{path}: figures are written as {', '.join(FORMATS)}, not {suffix or 'without ending'!r}"
        )
    return suffix


def save(figure: Figure, path: Path | str) -> None:
    """Write the figure in the format that the file's ending names."""
    kind = checked_format(path)[1:]
    # A file may be opened anywhere, so it brings its own white ground.
    write_whole(path, _rendered(figure, kind, facecolor="white", transparent=False))


def svg(figure: Figure, name: str = "plot") -> str:
    """The figure for a place inside an HTML page: the same bytes every time, no prolog, no address in it.

    `name` begins every id, so that several figures share a page. Text, grid and curves take their colours
    from the page's CSS variables --ink, --faint, --grid and --curve-1 … -7; text is text, in the page's font.
    """
    text = _rendered(figure, "svg", transparent=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # A style sheet inside the drawing would style the whole page around it.
    text = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    root, text = text.split(">", 1)
    root = re.sub(r'\s+(xmlns(:\w+)?|width|height)="[^"]*"', "", root) + ' style="stroke-linejoin: round"'
    # Only what stands in tags is rewritten, never the words and numbers that a reader sees.
    return root + ">" + re.sub(r"<[^>]*>", lambda tag: _for_page(tag.group(), name), text.strip())


def _for_page(tag: str, name: str) -> str:
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = tag.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    tag = re.sub(r"font-family: [^;\"]*; ", "", tag)
    tag = re.sub(r"(\d+\.\d\d)\d+", r"\1", tag)  # a hundredth of a unit is less than any screen shows
    tag = re.sub(r"\s*\n", " ", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(f": {colour}", f": var(--{variable}, {colour})")
    return tag


def _rendered(figure: Figure, kind: str, **options: Any) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(
        kind
    )  # a date would change the bytes
    with matplotlib.rc_context({"svg.hashsalt": "quorank", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, metadata=metadata, dpi=160, **options)
    return buffer.getvalue()
