"""Learning curves: the mean over runs as a line, one standard deviation to each side as a band.

Figures are made with matplotlib's objects only, never its global state, so that several can be made at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import require
from quorank.reports.drawings import FAINT, GRID, INK, PALETTE, checked_format, compact, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = (
    "-",
    (0, (5, 2)),
    (0, (1.5, 1.5)),
)  # a second and third round through the palette stay distinguishable
PANEL = (5.0, 3.1)  # inches: 360 × 223 SVG units, so that text stays legible at the width of a phone
ABOVE, BELOW = 0.36, 0.5  # inches for the title, and for the numbers and the name of the x axis
MOST_POINTS = 250
LONGEST_DIRECT_LABEL = 16


@dataclass(frozen=True, eq=False)
class Curve:
    """One line: x is (points,), runs is (runs, points)."""

    label: str
    x: Doubles
    runs: Doubles

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

    require(len(panels) > 0, "there is nothing to plot: no run has a learning curve")
    if path is not None:
        checked_format(path)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    left, right, below = (max(sides) for sides in zip(*map(margins, panels), strict=True))
    width, height = PANEL[0], PANEL[1] + below - BELOW
    figure = Figure(figsize=(width * columns, height * rows))
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        place = (
            (column + left / width) / columns,
            1 - (row + 1 - below / height) / rows,
            (1 - (left + right) / width) / columns,
            (1 - (ABOVE + below) / height) / rows,
        )
        _draw(figure.add_axes(place), panel)
    if path is not None:
        save(figure, path)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    axes.patch.set_alpha(0)
    direct = named_at_ends(panel)
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
            ends.append((float(mean[-1]), end_text(panel, curve), colour))
    _dress(axes, panel)
    if direct:
        _label_ends(axes, ends)
    elif len(panel.curves) > 1:
        legend = axes.legend(
            handles=axes.get_lines(),
            ncols=legend_columns(panel),
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
        panel.title, y=1, loc="left", fontsize=11.5, color=INK, pad=9, fontweight="bold", parse_math=False
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


def named_at_ends(panel: Panel) -> bool:
    """Short names stand at the curves' ends; long ones would take the room of the plot."""
    return len(panel.curves) <= 8 and (
        len(panel.curves) == 1 or all(len(curve.label) <= LONGEST_DIRECT_LABEL for curve in panel.curves)
    )


def margins(panel: Panel) -> tuple[float, float, float]:
    """Inches to the left, to the right and below the axes: for numbers, names at the curves' ends and the legend.

    They are not measured in drawn text: a page sets the text in a font of its own.
    """
    direct = named_at_ends(panel)
    longest = max((len(end_text(panel, curve)) for curve in panel.curves), default=0) if direct else 0
    lines = 0 if direct else -(-len(panel.curves) // legend_columns(panel))
    return (0.8 if panel.y_label else 0.58), 0.16 + 0.1 * longest, BELOW + 0.2 * lines


def end_text(panel: Panel, curve: Curve) -> str:
    """What stands at the curve's right end: its name, or its last value if it is the only one."""
    if not len(curve.x):
        return ""
    return f"{curve.runs[:, -1].mean():.4f}" if len(panel.curves) == 1 else curve.label


def legend_columns(panel: Panel) -> int:
    longest = max(len(curve.label) for curve in panel.curves)
    return max(1, min(len(panel.curves), 50 // (longest + 6)))
