"""Panels of curves drawn with matplotlib into files (.svg, .png, .pdf).

A curve is the mean over runs as a line, with one standard deviation to each side as a band. Figures are made with
matplotlib's objects only, never its global state, so that several threads can draw.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank.errors import require
from quorank.files.atomic import write_whole
from quorank.reports.panels import DASHES, FEW_POINTS, PALETTE, Curve, Panel, compact, spread_out, thin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#30363d", "#6b727b", "#d9dde2"
FORMATS = (".svg", ".png", ".pdf")
LARGE, SMALL = (5.0, 2.6), (3.4, 2.3)  # inches of a panel without text above and below it; small in titled figures
TITLED = 1.25  # scale of text in titled figures, which have many panels and are shown small
TEXT, LEGEND_LINE = 0.24, 0.21  # inches of a panel's title or x label, and of a line of a legend
NARROWEST = 5.6  # inches, so that a title fits above a single panel
MARKS = dict(zip(DASHES, "osD^v", strict=True))


def learning_curves(panels: Sequence[Panel], path: Path | str | None = None) -> Figure:
    """Draw one figure with a panel per measure, two to a row; write it to `path` (.svg, .png, .pdf) if given."""
    require(len(panels) > 0, "plot.empty", "there is nothing to plot: no run has a learning curve")
    if path is not None:
        checked_format(path)
    figure = draw(panels, min(2, len(panels)))
    if path is not None:
        save(figure, path)
    return figure


def draw(panels: Sequence[Panel], columns: int, title: str = "") -> Figure:
    """Draw panels in rows of `columns`, small ones below a title if there is one.

    Without a title, short names of curves stand at their ends. Other names stand in one legend below all panels, or in
    one below each where their curves differ.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    labels = [curve.label for curve in panels[0].curves]
    at_ends = not title and all(panel.named_at_ends for panel in panels)
    shared = not at_ends and all([curve.label for curve in panel.curves] == labels for panel in panels)
    own_legends = [] if at_ends or shared else [panel for panel in panels if len(panel.curves) > 1]
    size, scale = (SMALL, TITLED) if title else (LARGE, 1.0)
    width = max(size[0] * columns + 0.3, NARROWEST)
    side_by_side = _names_in_a_line(labels, width / scale)
    height = 0.5 if title else 0.1
    for row in (panels[i : i + columns] for i in range(0, len(panels), columns)):
        texts = any(panel.title for panel in row) + any(panel.x_label for panel in row)
        lines = max(len(panel.curves) if panel in own_legends else 0 for panel in row)
        height += size[1] + scale * (TEXT * texts + LEGEND_LINE * lines)
    height += scale * LEGEND_LINE * -(-len(labels) // side_by_side) + 0.1 if shared else 0.0
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.02, hspace=0.03)
    figure = Figure(figsize=(width, height), layout=layout)
    every = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).flat
    for axes, panel in zip(every, panels, strict=False):
        for number, curve in enumerate(panel.curves):
            _draw_curve(axes, thin(curve), number, panel)
        _style_axes(axes, panel, scale)
        if at_ends:
            _name_ends(axes, panel)
        elif panel in own_legends:
            place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.24), "borderaxespad": 0}
            _legend(axes, axes, panel, fontsize=8.5 * scale, labelspacing=0.25, **place)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    if shared and len(labels) > 1:
        style = {"ncols": side_by_side, "handlelength": 2.4, "fontsize": 9.5 * scale}
        _legend(figure, every[0], panels[0], loc="outside lower center", **style)
    if title:
        figure.suptitle(title, fontsize=14, color=INK, fontweight="bold", parse_math=False)
    return figure


def _names_in_a_line(labels: Sequence[str], width: float) -> int:
    """Return how many names fit in a line of the legend, in lines of equal length."""
    characters, count = int(width * 15), max(len(labels), 1)
    most = max(1, min(count, characters // (max(map(len, labels), default=0) + 8)))
    return -(-count // -(-count // most))


def _legend(owner: Any, axes: Axes, panel: Panel, **style: Any) -> None:
    handles = axes.get_lines()[: len(panel.curves)]
    legend = owner.legend(handles=handles, frameon=False, labelcolor=INK, **style)
    for entry, curve in zip(legend.get_texts(), panel.curves, strict=True):
        entry.set_parse_math(False)  # a name with a $ in it is a name, not a formula
        entry.set_text(curve.label)


def _draw_curve(axes: Axes, curve: Curve, number: int, panel: Panel) -> None:
    colour, line, mean, spread = PALETTE[curve.colour_as(number)], curve.line_as(number), curve.mean, curve.spread
    order = 3 + 0.1 * (len(panel.curves) - number)  # the first curves lie on top
    # labels are numbers here, since matplotlib leaves names that begin with _ out of legends
    style: dict[str, Any] = {"color": colour, "label": str(number), "zorder": order}
    if panel.form in ("points", "marks"):
        marks = panel.form == "marks"
        style |= {"marker": MARKS[line], "markersize": 5 if marks else 3, "alpha": 1.0 if marks else 0.7}
        axes.plot(curve.x, mean, linestyle="none", **style)
        if spread is not None:
            axes.errorbar(curve.x, mean, spread, fmt="none", ecolor=colour, linewidth=1.2, zorder=order - 1)
        return
    if len(curve.x) <= FEW_POINTS and not curve.level:
        style |= {"marker": "o", "markersize": 3.2}
    style |= {"linewidth": 1.1 if curve.level else 1.6, "clip_on": panel.y_range is not None}
    axes.plot(curve.x, mean, linestyle=(0, DASHES[line]) if DASHES[line] else "-", **style)
    if spread is not None:
        # overlapping bands stay readable
        band: dict[str, Any] = {"alpha": min(0.14, 0.5 / len(panel.curves)), "linewidth": 0, "zorder": order - 1.5}
        axes.fill_between(curve.x, mean - spread, mean + spread, color=colour, **band)


def _style_axes(axes: Axes, panel: Panel, scale: float) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10 * scale, color=INK, pad=6, parse_math=False)
    axes.set_xlabel(panel.x_label, fontsize=9 * scale, color=FAINT, parse_math=False)
    axes.set_ylabel(panel.y_label, fontsize=9 * scale, color=INK, parse_math=False)
    axes.patch.set_alpha(0)
    for name in "xy":
        _style_axis(axes, name, name in panel.log)
    axes.tick_params(which="both", length=0, labelsize=8.5 * scale, labelcolor=FAINT, pad=4)
    axes.tick_params(labelleft=panel.y_numbers)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=FAINT, linewidth=0.8)
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    if panel.form == "curves":
        axes.margins(x=0)
        axes.set_xlim(left=0)
    if panel.form == "marks":
        axes.set_xlim(-0.7, len(panel.curves) - 0.3)
        axes.set_xticks([])


def _style_axis(axes: Axes, name: str, logarithmic: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

    axis = axes.xaxis if name == "x" else axes.yaxis
    if logarithmic:
        axes.set(**{f"{name}scale": "log"})
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,), numticks=6))
        axis.set_minor_formatter(NullFormatter())
    else:  # round numbers: 1M, 2M rather than 800k, 1.6M
        axis.set_major_locator(MaxNLocator(5 if name == "x" else 6, steps=[1, 2, 2.5, 5, 10]))
    short = FuncFormatter(lambda value, _: compact(value))
    axis.set_major_formatter(short if logarithmic or name == "x" else ScalarFormatter(useOffset=False))


def _name_ends(axes: Axes, panel: Panel) -> None:
    """Write each curve's name at its right end, moved apart where they would touch."""
    shown = [(number, curve) for number, curve in enumerate(panel.curves) if len(curve.x)]
    low, high = axes.get_ylim()
    places = spread_out([float(curve.mean[-1]) for _, curve in shown], (high - low) * 0.075, low, high)
    for place, (number, curve) in zip(places, shown, strict=True):
        style: dict[str, Any] = {"color": PALETTE[curve.colour_as(number)], "fontsize": 9.5, "fontweight": "bold"}
        style |= {"xycoords": ("axes fraction", "data"), "xytext": (5, 0), "textcoords": "offset points"}
        axes.annotate(panel.end_text(curve), (1, place), va="center", parse_math=False, **style)


def checked_format(path: Path | str) -> str:
    """Return the file's suffix; raise BadInput if figures cannot be written in that format."""
    suffix = Path(path).suffix.lower()
    sentence = f"figures are written as {', '.join(FORMATS)}, not {suffix or 'without ending'!r}"
    require(suffix in FORMATS, "plot.format", sentence, str(path))
    return suffix


def save(figure: Figure, path: Path | str) -> None:
    """Write a drawing in the format of the file's suffix."""
    kind = checked_format(path)[1:]
    # A file may be opened on any background, so it has its own.
    write_whole(path, _rendered(figure, kind, facecolor="white", transparent=False))


def save_small(figure: Figure, path: Path | str) -> None:
    """Write a drawing as a PNG of at most 128 colours, a quarter of the bytes, for images in the repository."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(_rendered(figure, "png", facecolor="white", transparent=False))) as drawn:
        few = drawn.convert("RGB").quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(buffer, "png", optimize=True)
    write_whole(path, buffer.getvalue())


def _rendered(figure: Figure, kind: str, **options: Any) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)  # a date would change the bytes
    with matplotlib.rc_context({"svg.hashsalt": "quorank", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, metadata=metadata, dpi=160, **options)
    return buffer.getvalue()
