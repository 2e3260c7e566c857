"""A figure's panels, drawn like a paper's: a row per collection and measure, a column per grid value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.experiments.finished_run import ONLINE_DISCOUNTED, ONLINE_MAXRR
from quorank.reports.curves import FAINT, GRID, INK
from quorank.reports.panels import PALETTE, Curve, compact, thin
from quorank.reproduce.figure_parts import LINES, Choice
from quorank.reproduce.figure_results import PanelResult, Results, curve, measure_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PANEL = (3.1, 2.25)  # inches
NARROWEST = 5.6  # inches: a title wants room above a single panel too
DASHES: dict[str, Any] = dict(
    zip(LINES, ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2))), strict=True)
)
POINTS = 80  # of a curve: more than a panel of this size shows
MARKERS = dict(zip(LINES, ("o", "s", "D", "^", "v"), strict=True))
START = 0.08  # share of the x axis that may leave the panel: the steep beginning would take all its height


def draw(results: Results) -> Drawing:
    """The whole figure."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = results.figure
    columns = len(figure.columns)
    rows = len(results.panels) // columns
    per_line = _legend_columns([v.label for v in figure.variants], columns)
    lines = -(-len(figure.variants) // per_line)
    extra = 0.75 + 0.24 * lines
    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05, wspace=0.02, hspace=0.03)
    drawing = Drawing(
        figsize=(max(PANEL[0] * columns + 0.4, NARROWEST), PANEL[1] * rows + extra), layout=layout
    )
    grid = drawing.subplots(rows, columns, squeeze=False)
    for index, panel in enumerate(results.panels):
        row, column = divmod(index, columns)
        axes = grid[row][column]
        _panel(axes, panel, results)
        if row == 0:
            _text(axes.set_title(_heading(figure.columns[panel.column]), fontsize=10, color=INK, pad=5))
        if column == 0:
            label = f"{panel.collection}\n{measure_title(panel.measure)}"
            _text(axes.set_ylabel(label, fontsize=9.5, color=INK))
        if row == rows - 1 and panel.measure != ONLINE_DISCOUNTED:
            axes.set_xlabel(figure.header.x, fontsize=9, color=FAINT)
    for row in range(rows):
        # Clicks on one list differ from user to user, so that their measure has no common scale.
        shared = results.panels[row * columns].measure != ONLINE_MAXRR
        for group in [grid[row]] if shared else [[axes] for axes in grid[row]]:
            _limits(group)
        for axes in grid[row][1:]:
            axes.tick_params(labelleft=not shared)
    _text(drawing.suptitle(figure.title, fontsize=12, color=INK, fontweight="bold"))
    legend = drawing.legend(
        handles=grid[0][0].get_lines()[: len(figure.variants)],
        loc="outside lower center",
        ncols=per_line,
        frameon=False,
        fontsize=9.5,
        labelcolor=INK,
        handlelength=2.4,
    )
    for entry in legend.get_texts():
        _text(entry)
    return drawing


def _panel(axes: Axes, panel: PanelResult, results: Results) -> None:
    variants = {variant.label: variant for variant in results.figure.variants}
    if panel.measure == ONLINE_DISCOUNTED:
        _dots(axes, panel, variants)
        return
    for order, entry in enumerate(panel.entries):
        drawn = thin(curve(entry, panel.measure, results.figure.header.x), POINTS)
        # The first variants are what the figure is about: they lie on top.
        faint = min(0.14, 0.5 / len(panel.entries))  # bands that lie over each other stay readable
        _line(axes, drawn, variants[entry.label], 3 + 0.1 * (len(panel.entries) - order), faint)
    _dress(axes)


def _dots(axes: Axes, panel: PanelResult, variants: Mapping[str, Choice]) -> None:
    """A sum over the run as a mark for each variant: its curves would lie on each other."""
    colours = [PALETTE[(variants[e.label].colour - 1) % len(PALETTE)] for e in panel.entries]
    for at, (entry, colour) in enumerate(zip(panel.entries, colours, strict=True)):
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[variants[entry.label].line]}
        axes.plot([at], [entry.mean], label=entry.label, linestyle="none", markersize=5, zorder=3, **style)
    for at, (entry, colour) in enumerate(zip(panel.entries, colours, strict=True)):
        if entry.sd is not None:
            ends = [entry.mean - entry.sd, entry.mean + entry.sd]
            axes.plot([at, at], ends, color=colour, linewidth=1.2, zorder=2)
    _dress(axes)
    axes.set_xlim(-0.7, len(panel.entries) - 0.3)
    axes.set_xticks([])


def _line(axes: Axes, drawn: Curve, variant: Choice, order: float, faint: float) -> None:
    colour = PALETTE[(variant.colour - 1) % len(PALETTE)]
    mean = drawn.runs.mean(axis=0)
    style = {"color": colour, "linestyle": DASHES[variant.line], "linewidth": 1.5}
    axes.plot(drawn.x, mean, label=variant.label, zorder=order, **style)
    if len(drawn.runs) > 1:
        sd = drawn.runs.std(axis=0, ddof=1)
        axes.fill_between(
            drawn.x, mean - sd, mean + sd, color=colour, alpha=faint, linewidth=0, zorder=order - 1.5
        )


def _limits(panels: Any) -> None:
    """One y axis for these panels, that shows every curve from shortly after its beginning."""
    low, high = np.inf, -np.inf
    for axes in panels:
        for line in axes.get_lines():
            x, y = line.get_xdata(), line.get_ydata()
            later = y[x >= START * x[-1]]
            low, high = min(low, later.min()), max(high, later.max())
    margin = 0.06 * max(high - low, 1e-3)
    for axes in panels:
        axes.set_ylim(low - margin, high + margin)


def _dress(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.patch.set_alpha(0)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.tick_params(length=0, labelsize=8.5, labelcolor=FAINT, pad=4)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0)
    axes.set_xlim(left=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.spines["bottom"].set_linewidth(0.8)


def _heading(column: Mapping[str, Any]) -> str:
    words = (f"{value} clicks" if key == "users.preset" else str(value) for key, value in column.items())
    return ", ".join(words)


def _legend_columns(labels: list[str], columns: int) -> int:
    """As many entries to a line as fit, in lines of equal length."""
    room = int((PANEL[0] * columns) * 15)  # characters
    most = max(1, min(len(labels), room // (max(map(len, labels)) + 8)))
    lines = -(-len(labels) // most)
    return -(-len(labels) // lines)


def _text(text: Any) -> None:
    text.set_parse_math(False)  # a name with a $ in it is a name, not a formula
