"""Panels of curves drawn with matplotlib, as files (.svg, .png, .pdf) and as parts of a page.

A curve is the mean over runs as a line, with one standard deviation to each side as a band. Figures are made with
matplotlib's objects only, never its global state, so that several can be made at once.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quorank.errors import require
from quorank.files import write_whole
from quorank.reports.panels import (
    ABOVE,
    BELOW,
    DASHES,
    FEW_POINTS,
    PALETTE,
    PANEL,
    Curve,
    Panel,
    PanelGrid,
    compact,
    spread_out,
    thin,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

INK, FAINT, GRID = "#30363d", "#6b727b", "#d9dde2"
_VARIABLES = {INK: "ink", FAINT: "faint", GRID: "grid"} | {c: f"curve-{n}" for n, c in enumerate(PALETTE, 1)}
FORMATS = (".svg", ".png", ".pdf")
SMALL_PANEL = (3.3, 2.5)  # inches, of a grid with a title
NARROWEST = 5.6  # inches: a title wants room above a single panel too
STEPS = [1, 2, 2.5, 5, 10]  # round numbers: 1M, 2M rather than 800k, 1.6M
MARKS = dict(zip(DASHES, "osD^v", strict=True))


class _Sizes(NamedTuple):
    """Points of text, lines and marks."""

    title: float
    label: float
    numbers: float
    line: float
    mark: float
    x_ticks: int
    y_ticks: int


_LARGE, _SMALL = _Sizes(11.5, 10, 10, 1.8, 3.5, 5, 6), _Sizes(10, 9, 8.5, 1.6, 3.2, 5, 5)


def learning_curves(panels: Sequence[Panel], path: Path | str | None = None) -> Figure:
    """Draw one figure with a panel per measure, two to a row; write it to `path` (.svg, .png, .pdf) if given."""
    require(len(panels) > 0, "plot.empty", "there is nothing to plot: no run has a learning curve")
    if path is not None:
        checked_format(path)
    figure = draw(PanelGrid(tuple(panels), min(2, len(panels))))
    if path is not None:
        save(figure, path)
    return figure


def draw(grid: PanelGrid) -> Figure:
    """Draw the panels of a grid, row by row.

    Without a title each panel names its curves: short names at their ends, long ones in a legend below it. With a title
    the panels are smaller and share one legend below all of them, or have one each where their curves differ.
    """
    return _draw_titled(grid) if grid.title else _draw_plain(grid)


def _draw_plain(grid: PanelGrid) -> Figure:
    from matplotlib.figure import Figure

    columns, rows = grid.columns, -(-len(grid.panels) // grid.columns)
    left, right, below = (max(sides) for sides in zip(*(panel.margins for panel in grid.panels), strict=True))
    width, height = PANEL[0], PANEL[1] + below - BELOW
    figure = Figure(figsize=(width * columns, height * rows))
    for index, panel in enumerate(grid.panels):
        row, column = divmod(index, columns)
        place = (
            (column + left / width) / columns,
            1 - (row + 1 - below / height) / rows,
            (1 - (left + right) / width) / columns,
            (1 - (ABOVE + below) / height) / rows,
        )
        axes = figure.add_axes(place)
        _draw_panel(axes, panel, _LARGE)
        if panel.named_at_ends:
            _name_ends(axes, panel)
        elif len(panel.curves) > 1:
            legend = axes.legend(
                handles=axes.get_lines(),
                ncols=panel.legend_columns,
                loc="upper left",
                bbox_to_anchor=(0, -0.2),
                frameon=False,
                fontsize=9,
                labelcolor=INK,
                handlelength=1.6,
                borderaxespad=0,
                labelspacing=0.3,
            )
            _name_entries(legend, panel)
    return figure


def _draw_titled(grid: PanelGrid) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns, rows = grid.columns, -(-len(grid.panels) // grid.columns)
    first = grid.panels[0]
    shared = len({tuple(curve.label for curve in panel.curves) for panel in grid.panels}) == 1
    side_by_side = _names_in_a_line(first, columns)
    lines = -(-len(first.curves) // side_by_side) if shared else 0
    below = 0 if shared else max(len(panel.curves) for panel in grid.panels)
    size = (
        max(SMALL_PANEL[0] * columns + 0.4, NARROWEST),
        (SMALL_PANEL[1] + 0.19 * below) * rows + 0.75 + 0.24 * lines,
    )
    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05, wspace=0.02, hspace=0.03)
    figure = Figure(figsize=size, layout=layout)
    every = figure.subplots(rows, columns, squeeze=False).flat
    style: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 2.4}
    for axes, panel in zip(every, grid.panels, strict=False):
        _draw_panel(axes, panel, _SMALL)
        if not shared and len(panel.curves) > 1:
            place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.24), "borderaxespad": 0}
            handles = axes.get_lines()[: len(panel.curves)]
            _name_entries(axes.legend(handles=handles, labelspacing=0.25, **place, **style), panel)
    for axes in every[len(grid.panels) :]:
        axes.set_visible(False)
    figure.suptitle(grid.title, fontsize=12, color=INK, fontweight="bold", parse_math=False)
    if shared and len(first.curves) > 1:
        handles = every[0].get_lines()[: len(first.curves)]
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=side_by_side, **style)
        _name_entries(legend, first)
    return figure


def _names_in_a_line(panel: Panel, columns: int) -> int:
    """As many names to a line of the shared legend as fit, in lines of equal length."""
    room = int(SMALL_PANEL[0] * columns * 15)  # characters
    longest = max((len(curve.label) for curve in panel.curves), default=0)
    most = max(1, min(len(panel.curves), room // (longest + 8)))
    return max(1, -(-len(panel.curves) // -(-len(panel.curves) // most)))


def _draw_panel(axes: Axes, panel: Panel, sizes: _Sizes) -> None:
    axes.patch.set_alpha(0)
    band = 0.16 if sizes is _LARGE else min(0.14, 0.5 / max(len(panel.curves), 1))
    for number, curve in enumerate(panel.curves):
        # in a small panel the first curves are what it is about: they lie on top
        order = 3.0 if sizes is _LARGE else 3 + 0.1 * (len(panel.curves) - number)
        _draw_curve(axes, thin(curve), number, panel, sizes, order, band)
    _style_axes(axes, panel, sizes)


def _draw_curve(axes: Axes, curve: Curve, number: int, panel: Panel, sizes: _Sizes, order: float, band: float) -> None:
    colour, dashes = PALETTE[curve.colour_as(number)], curve.dashes_as(number)
    mean, spread = curve.mean, curve.spread
    style: dict[str, Any] = {"color": colour, "label": str(number), "zorder": order}
    if panel.form == "points":
        mark = MARKS[curve.dashes or "solid"]
        axes.plot(curve.x, mean, linestyle="none", marker=mark, markersize=sizes.mark + 1, **style)
        if spread is not None:
            axes.errorbar(curve.x, mean, spread, fmt="none", ecolor=colour, linewidth=1.2, zorder=order - 1)
        return
    marks: dict[str, Any] = {"marker": "o", "markersize": sizes.mark} if len(curve.x) <= FEW_POINTS else {}
    axes.plot(
        curve.x,
        mean,
        linestyle=(0, dashes) if dashes else "-",
        linewidth=sizes.line,
        clip_on=panel.y_range is not None,
        **style,
        **marks,
    )
    if spread is not None:
        axes.fill_between(
            curve.x, mean - spread, mean + spread, color=colour, alpha=band, linewidth=0, zorder=order - 1
        )


def _style_axes(axes: Axes, panel: Panel, sizes: _Sizes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set_title(
        panel.title,
        y=1,
        loc="left",
        fontsize=sizes.title,
        color=INK,
        pad=9 if sizes is _LARGE else 6,
        fontweight="bold" if sizes is _LARGE else "normal",
        parse_math=False,
    )
    axes.set_xlabel(panel.x_label, fontsize=sizes.label, color=FAINT)
    axes.set_ylabel(panel.y_label, fontsize=sizes.label, color=FAINT)
    for name, axis, most in (("x", axes.xaxis, sizes.x_ticks), ("y", axes.yaxis, sizes.y_ticks)):
        if name in panel.log:
            axes.set(**{f"{name}scale": "log"})
            axis.set_major_locator(LogLocator(10, numticks=6))
            axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
            axis.set_minor_formatter(NullFormatter())
        else:
            axis.set_major_locator(MaxNLocator(most, steps=STEPS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.tick_params(length=0, labelsize=sizes.numbers, labelcolor=FAINT, pad=5 if sizes is _LARGE else 4)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.form == "lines" and panel.x_from_zero and "x" not in panel.log:
        axes.margins(x=0)
        axes.set_xlim(left=0)
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    if not panel.x_numbers:
        axes.set_xticks([])
    if not panel.y_numbers:
        axes.tick_params(labelleft=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.spines["bottom"].set_linewidth(0.8)


def _name_ends(axes: Axes, panel: Panel) -> None:
    """Write each curve's name at its right end, moved apart where they would touch."""
    shown = [(number, curve) for number, curve in enumerate(panel.curves) if len(curve.x)]
    low, high = axes.get_ylim()
    ends = [float(curve.runs[:, -1].mean()) for _, curve in shown]
    places = spread_out(ends, gap=(high - low) * 0.075, low=low, high=high)
    for place, (number, curve) in zip(places, shown, strict=True):
        axes.annotate(
            panel.end_text(curve),
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=PALETTE[curve.colour_as(number)],
            fontweight="bold",
            parse_math=False,  # a name with a $ in it is a name, not a formula
        )


def _name_entries(legend: Legend, panel: Panel) -> None:
    for entry, curve in zip(legend.get_texts(), panel.curves, strict=True):
        entry.set_parse_math(False)
        entry.set_text(curve.label)


def checked_format(path: Path | str) -> str:
    """Return the file's ending, refused unless figures can be written in it."""
    suffix = Path(path).suffix.lower()
    sentence = f"figures are written as {', '.join(FORMATS)}, not {suffix or 'without ending'!r}"
    require(suffix in FORMATS, "plot.format", sentence, str(path))
    return suffix


def save(figure: Figure, path: Path | str) -> None:
    """Write the figure in the format that the file's ending names."""
    kind = checked_format(path)[1:]
    # A file may be opened anywhere, so it brings its own white ground.
    write_whole(path, _rendered(figure, kind, facecolor="white", transparent=False))


def svg(figure: Figure, name: str = "plot") -> str:
    """Return the figure for a place inside an HTML page: the same bytes every time, no prolog, no address in it.

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
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)  # a date would change the bytes
    with matplotlib.rc_context({"svg.hashsalt": "quorank", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, metadata=metadata, dpi=160, **options)
    return buffer.getvalue()
