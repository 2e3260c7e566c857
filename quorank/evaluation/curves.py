"""Learning curves: the mean over runs as a line, one standard deviation to each side as a band.

Figures are made with matplotlib's objects only, never its global state, so that several can be made at once.
Colours are written so that a page can restyle them for a dark background (see `svg`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's colour-blind-safe hues, darkened where they are too pale to read on white; yellow is left out.
PALETTE = ("#0072b2", "#d55e00", "#00855f", "#a8508a", "#b07800", "#2f7fb8", "#5b6470")
STYLES = (
    "-",
    (0, (5, 2)),
    (0, (1.5, 1.5)),
)  # a second and third round through the palette stay distinguishable
INK, FAINT, GRID = "#30363d", "#6b727b", "#d9dde2"
PANEL = (5.0, 3.1)  # inches: 360 × 223 SVG units, so that text stays legible at the width of a phone
_VARIABLES = {INK: "ink", FAINT: "faint", GRID: "grid"} | {c: f"curve-{n}" for n, c in enumerate(PALETTE, 1)}
FORMATS = (".svg", ".png", ".pdf")
MOST_POINTS = 250
LONGEST_DIRECT_LABEL = 16


@dataclass(frozen=True, eq=False)
class Curve:
    """One line: x is (points,), runs is (runs, points)."""

    label: str
    x: npt.NDArray[np.float64]
    runs: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        require(
            self.runs.ndim == 2 and self.runs.shape[1:] == self.x.shape,
            f"curve {self.label!r}: expected a value per run and point, "
            f"got {self.runs.shape} for {len(self.x)} points",
        )


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]


def compact(value: float) -> str:
    """A count in few characters: 4M, 2.5k, 750."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def thin(curve: Curve, points: int = MOST_POINTS) -> Curve:
    """The curve at no more than `points` of its points, evenly spread, the first and the last among them."""
    if len(curve.x) <= points:
        return curve
    kept = np.unique(np.linspace(0, len(curve.x) - 1, points).round().astype(int))
    return Curve(curve.label, curve.x[kept], curve.runs[:, kept])


def block_means(curve: Curve, points: int = 100) -> tuple[Curve, int]:
    """Means over blocks of consecutive points, at each block's last x, and the block's length.

    For measures of single rounds, whose luck would hide the course of the run. A last, shorter block is kept.
    """
    length = -(-len(curve.x) // points) if len(curve.x) else 1
    if length == 1:
        return curve, 1
    starts = np.arange(0, len(curve.x), length)
    ends = np.append(starts[1:], len(curve.x))
    means = np.add.reduceat(curve.runs, starts, axis=1) / (ends - starts)
    return Curve(curve.label, curve.x[ends - 1], means), length


def learning_curves(panels: Sequence[Panel], path: Path | str | None = None) -> Figure:
    """One figure with a panel per measure, two to a row; written to `path` (.svg, .png, .pdf) if given."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    require(len(panels) > 0, "there is nothing to plot: no run has a learning curve")
    if path is not None:
        checked_format(path)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    below = max(_legend_lines(panel) for panel in panels)
    width, height = PANEL
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(width * columns, (height + 0.2 * below) * rows), layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index < len(panels):
            _draw(axes, panels[index])
        else:
            axes.set_visible(False)
    if path is not None:
        save(figure, path)
    return figure


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


def _draw(axes: Axes, panel: Panel) -> None:
    axes.patch.set_alpha(0)
    direct = _direct(panel)
    ends: list[tuple[float, str, str]] = []
    for number, given in enumerate(panel.curves):
        curve = thin(given)
        colour, style = PALETTE[number % len(PALETTE)], STYLES[number // len(PALETTE) % len(STYLES)]
        mean = curve.runs.mean(axis=0)
        lone: dict[str, Any] = {"marker": "o", "markersize": 3.5} if len(curve.x) <= 12 else {}
        axes.plot(
            curve.x,
            mean,
            color=colour,
            linestyle=style,
            linewidth=1.8,
            label=str(number),
            zorder=3,
            clip_on=False,
            **lone,
        )
        if len(curve.runs) > 1:
            spread = curve.runs.std(axis=0, ddof=1)
            axes.fill_between(
                curve.x, mean - spread, mean + spread, color=colour, alpha=0.16, linewidth=0, zorder=2
            )
        if len(curve.x):
            text = f"{mean[-1]:.4f}" if len(panel.curves) == 1 else given.label
            ends.append((float(mean[-1]), text, colour))
    _dress(axes, panel)
    if direct:
        _label_ends(axes, ends)
    elif len(panel.curves) > 1:
        legend = axes.legend(
            handles=axes.get_lines(),
            ncols=_legend_columns(panel),
            loc="upper left",
            bbox_to_anchor=(0, -0.2),
            frameon=False,
            fontsize=9,
            labelcolor=INK,
            handlelength=1.6,
            borderaxespad=0,
            labelspacing=0.3,
        )
        for entry, curve in zip(legend.get_texts(), panel.curves, strict=True):
            entry.set_parse_math(False)
            entry.set_text(curve.label)


def _dress(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(
        panel.title, loc="left", fontsize=11.5, color=INK, pad=9, fontweight="bold", parse_math=False
    )
    axes.set_xlabel(panel.x_label, fontsize=10, color=FAINT)
    axes.set_ylabel(panel.y_label, fontsize=10, color=FAINT)
    steps = [1, 2, 2.5, 5, 10]  # round numbers: 1M, 2M rather than 800k, 1.6M
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=steps))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=steps))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.tick_params(length=0, labelsize=10, labelcolor=FAINT, pad=5)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0)
    axes.set_xlim(left=0)  # learning starts at nothing, also where the first point was measured later
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.spines["bottom"].set_linewidth(0.8)


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Each curve's name at its right end, moved apart where they would touch."""
    low, high = axes.get_ylim()
    places = spread_out([y for y, _, _ in ends], gap=(high - low) * 0.075, low=low, high=high)
    for place, (_, text, colour) in zip(places, ends, strict=True):
        axes.annotate(
            text,
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=colour,
            fontweight="bold",
            parse_math=False,  # a name with a $ in it is a name, not a formula
        )


def spread_out(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved to stand `gap` apart in the same order, within low..high if they fit."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    if order:
        excess = max(0.0, moved[order[-1]] - high)
        moved[order[-1]] -= excess
        for after, before in pairwise(order[::-1]):
            moved[before] = min(moved[before], moved[after] - gap)
        below = max(0.0, low - moved[order[0]])
        moved = [place + below for place in moved]
    return moved


def _direct(panel: Panel) -> bool:
    """Short names stand at the curves' ends; long ones would take the room of the plot."""
    return len(panel.curves) <= 8 and (
        len(panel.curves) == 1 or all(len(curve.label) <= LONGEST_DIRECT_LABEL for curve in panel.curves)
    )


def _legend_lines(panel: Panel) -> int:
    return 0 if _direct(panel) else -(-len(panel.curves) // _legend_columns(panel))


def _legend_columns(panel: Panel) -> int:
    longest = max(len(curve.label) for curve in panel.curves)
    return max(1, min(len(panel.curves), 50 // (longest + 6)))
