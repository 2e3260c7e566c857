"""Charts of reproduced figures as values, and the one function that draws them.

A chart is one pair of axes with its series. Figures whose curves are runs and figures that a study measures are drawn
alike: charts in rows, ± one standard deviation as a band or a bar, one legend below if all charts have the same series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from quorank.reports.curves import FAINT, GRID, INK
from quorank.reports.panels import PALETTE, compact

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PANEL = (3.2, 2.2)  # inches of a chart without the texts above and below it
TEXT, LEGEND_LINE = 0.24, 0.21  # inches of a chart's title or name of the x axis, and of a line of a legend
NARROWEST = 5.6  # inches: a title wants room above a single chart too
MOST_MARKED = 15  # points of a line that are marked
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (4, 1.6)),
    "dotted": (0, (1.2, 1.2)),
    "dash-dotted": (0, (5, 1.5, 1, 1.5)),
    "long": (0, (9, 2)),
}
MARKERS = dict(zip(DASHES, ("o", "s", "D", "^", "v"), strict=True))


@dataclass(frozen=True)
class Series:
    """Line, level or set of points of a chart; x, y and spread have one value per point."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None  # ± one standard deviation over repetitions
    colour: int | None = None  # of the palette, from 1; None: by its place in the chart
    line: str | None = None  # a name in DASHES; None: by its place in the chart
    level: bool = False  # a reference line: its ends are not marked


@dataclass(frozen=True)
class Chart:
    """One pair of axes.

    `curves` are learning curves from the start of a run, `lines` join measured points, `points` are scattered, and
    `marks` are one point per series without an x axis.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    form: Literal["curves", "lines", "points", "marks"] = "lines"
    log_x: bool = False
    log_y: bool = False
    y_range: tuple[float, float] | None = None  # None: what the series need
    y_numbers: bool = True  # False where the chart to the left has the same range


def draw_charts(title: str, charts: Sequence[Chart], columns: int) -> Drawing:
    """Draw the charts in rows of `columns`, with one legend below them or one below each chart."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = -(-len(charts) // columns)
    shared = len({tuple(series.label for series in chart.series) for chart in charts}) == 1
    width = max(PANEL[0] * columns + 0.3, NARROWEST)
    per_line = _legend_columns([series.label for series in charts[0].series], width)
    height = 0.5 + sum(_height(charts[i : i + columns], shared) for i in range(0, len(charts), columns))
    height += LEGEND_LINE * -(-len(charts[0].series) // per_line) + 0.1 if shared else 0.0
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.02, hspace=0.03)
    drawing = Drawing(figsize=(width, height), layout=layout)
    grid = drawing.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index >= len(charts):
            axes.set_visible(False)
            continue
        chart = charts[index]
        _draw_series(axes, chart)
        _dress(axes, chart)
        if not shared and len(chart.series) > 1:
            place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.24), "borderaxespad": 0}
            _legend(axes, axes, fontsize=8.5, labelspacing=0.25, **place)
    if shared and len(charts[0].series) > 1:
        style: dict[str, Any] = {"ncols": per_line, "handlelength": 2.4, "fontsize": 9.5}
        _legend(drawing, grid.flat[0], loc="outside lower center", **style)
    drawing.suptitle(title, fontsize=12, color=INK, fontweight="bold", parse_math=False)
    return drawing


def _height(row: Sequence[Chart], shared: bool) -> float:
    texts = any(chart.title for chart in row) + any(chart.x for chart in row)
    below = 0 if shared else max(len(chart.series) if len(chart.series) > 1 else 0 for chart in row)
    return PANEL[1] + TEXT * texts + LEGEND_LINE * below


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """As many entries to a line as fit, in lines of equal length."""
    characters = int(width * 15)
    most = max(1, min(len(labels), characters // (max(map(len, labels)) + 8)))
    return -(-len(labels) // -(-len(labels) // most))


def _legend(owner: Any, axes: Axes, **style: Any) -> None:
    handles, _ = axes.get_legend_handles_labels()
    for entry in owner.legend(handles=handles, frameon=False, labelcolor=INK, **style).get_texts():
        entry.set_parse_math(False)  # a name with a $ in it is a name, not a formula


def _draw_series(axes: Axes, chart: Chart) -> None:
    faint = min(0.14, 0.5 / len(chart.series))  # bands that lie over each other stay readable
    for number, series in enumerate(chart.series):
        x, y = np.asarray(series.x, dtype=float), np.asarray(series.y, dtype=float)
        spread = None if series.spread is None else np.asarray(series.spread, dtype=float)
        colour = PALETTE[(number if series.colour is None else series.colour - 1) % len(PALETTE)]
        line = series.line or list(DASHES)[number // len(PALETTE) % len(DASHES)]
        order = 3 + 0.1 * (len(chart.series) - number)  # the first series are what the chart is about: on top
        style: dict[str, Any] = {"color": colour, "label": series.label, "zorder": order}
        if chart.form in ("points", "marks"):
            one = chart.form == "marks"
            style |= {"marker": MARKERS[line], "markersize": 5 if one else 3, "alpha": 1.0 if one else 0.7}
            axes.plot(x, y, linestyle="none", **style)
            if spread is not None:
                axes.errorbar(x, y, spread, fmt="none", ecolor=colour, linewidth=1.2, zorder=2)
            continue
        if chart.form == "lines" and not series.level and len(x) <= MOST_MARKED:
            style |= {"marker": "o", "markersize": 3.2}
        axes.plot(x, y, linestyle=DASHES[line], linewidth=1.1 if series.level else 1.6, **style)
        if spread is not None:
            band: dict[str, Any] = {"color": colour, "alpha": faint, "linewidth": 0, "zorder": order - 1.5}
            axes.fill_between(x, y - spread, y + spread, **band)


def _dress(axes: Axes, chart: Chart) -> None:
    axes.set_title(chart.title, loc="left", fontsize=10, color=INK, pad=6, parse_math=False)
    axes.set_xlabel(chart.x, fontsize=9, color=FAINT, parse_math=False)
    axes.set_ylabel(chart.y, fontsize=9, color=INK, parse_math=False)
    axes.patch.set_alpha(0)
    _scale(axes, axes.xaxis, chart.log_x)
    _scale(axes, axes.yaxis, chart.log_y)
    axes.tick_params(which="both", length=0, labelsize=8.5, labelcolor=FAINT, pad=4)
    axes.tick_params(labelleft=chart.y_numbers)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.spines["bottom"].set_linewidth(0.8)
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    if chart.form == "curves":
        axes.margins(x=0)
        axes.set_xlim(left=0)
    if chart.form == "marks":
        axes.set_xlim(-0.7, len(chart.series) - 0.3)
        axes.set_xticks([])


def _scale(axes: Axes, axis: Any, logarithmic: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

    if logarithmic:
        (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,), numticks=6))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if logarithmic or axis is axes.xaxis:
        axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    else:
        axis.set_major_formatter(ScalarFormatter(useOffset=False))
