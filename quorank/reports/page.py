"""HTML pages from Jinja2 templates, and panels of curves as SVG, inside pages and as files.

Pages load and run nothing, and suit light, dark, print and phones. Panels are not drawn by matplotlib, which takes 0.22 s
to import and 42 ms for a panel that takes 2 ms here: every run has a page, and a service draws its page while it works. In
pages, colours are the CSS variables --ink, --faint, --grid and --curve-1 … -7, and text is in the page's font; a file has
its own. The same panel gives the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from quorank.files.atomic import write_whole
from quorank.kernels.arrays import Doubles
from quorank.reports.panels import DASHES, FEW_POINTS, PALETTE, Curve, Panel, compact, spread_out, thin

TEMPLATES = "quorank.reports"
STYLE = (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
"""Style sheet of all pages."""
UNITS = 72
"""Units to an inch, so that font sizes are points."""
LARGE, SMALL = (5.0, 3.1), (3.7, 2.7)  # inches; small without names of curves
ABOVE, BELOW = 0.36, 0.5  # inches for the title, and for the numbers and the label of the x axis
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LINE, THIN_LINE = 1.8, 1.2  # units
BARS = 1.2  # units, of error bars
LETTER = 0.65  # mean width of a bold letter, in font sizes
COLOURS = {"ink": "#1f2429", "faint": "#5c6570", "grid": "#dfe3e8"}
COLOURS |= {f"curve-{number}": colour for number, colour in enumerate(PALETTE, 1)}
"""Colours of files, which have a white ground."""


@cache
def environment(package: str = TEMPLATES) -> Environment:
    """Return the environment of a package's `templates` folder, which may extend and include those of reports."""
    loaders = [PackageLoader(name) for name in dict.fromkeys((package, TEMPLATES))]
    return Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, package: str = TEMPLATES, **values: Any) -> str:
    """Render a template; every value that is no Markup is escaped."""
    return environment(package).get_template(template).render(**values)


class Axis(NamedTuple):
    """Map from numbers to units of the drawing."""

    low: float
    high: float
    start: float  # units at low
    end: float  # units at high
    log: bool = False

    def at(self, values: Doubles | float) -> Doubles:
        """Return positions in units."""
        low, high, shown = (np.log10(each) if self.log else np.asarray(each) for each in (self.low, self.high, values))
        return np.asarray(self.start + (shown - low) * ((self.end - self.start) / (high - low)))

    def ticks(self, most: int) -> list[float]:
        """Return round numbers within the axis, at least two of a linear one.

        They are multiples of the smallest of STEPS that divides the axis into at most `most` parts, or of a smaller one.
        """
        if self.log:
            factors = (1.0, 2.0, 5.0) if self.high < 1000.0 * self.low else (1.0,)
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            marks = [factor * 10.0**power for power in powers for factor in factors]
            return [mark for mark in marks if self.low <= mark <= self.high]
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        steps = [step * power for step in STEPS]
        widest = next(at for at, step in enumerate(steps) if step >= least * (1 - 1e-12))
        for step in reversed(steps[: widest + 1]):
            multiples = np.arange(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
            if len(multiples) > 1:
                break
        return [float(at) * step for at in multiples]


def panel_svg(panel: Panel, alt: str, *, named: bool = True, place: str = "") -> Markup:
    """Draw a panel as an <svg> element without ids.

    Args:
        panel: Curves and axes.
        alt: Description for readers who do not see the drawing.
        named: Name the curves, at their ends or in a legend; otherwise the drawing is small and the page has a legend.
        place: Attributes that place the element in a larger drawing.
    """
    left, right, below = (UNITS * inches for inches in _margins(panel, named))
    width, height = panel_size(panel, named)
    curves = [_finite(thin(curve)) for curve in panel.curves]
    x = Axis(*_x_range(panel, curves), left, width - right, "x" in panel.log)
    y = Axis(*(panel.y_range or _y_range(curves, "y" in panel.log)), height - below, UNITS * ABOVE, "y" in panel.log)
    at_ends = named and panel.named_at_ends
    drawing = render(
        "panel.svg",
        width=_number(width),
        height=_number(height),
        place=Markup(place),
        alt=alt,
        title=_text(x.start, y.end - 9, panel.title),
        inside=" ".join(map(_number, (x.start - 4, y.end, x.end - x.start + 8, y.start - y.end))),
        **_grid(panel, x, y),
        curves=[_curve(panel, curve, number, x, y) for number, curve in enumerate(curves)],
        names=_end_names(panel, curves, x, y) if at_ends else [],
        legend=_legend(panel, x, y) if named and not at_ends else [],
    )
    return Markup(drawing.strip())


def panel_size(panel: Panel, named: bool = True) -> tuple[float, float]:
    """Return the width and height of a drawing."""
    size = LARGE if named else SMALL
    return UNITS * size[0], UNITS * (size[1] - BELOW + _margins(panel, named)[2])


def write_picture(path: Path, rows: Sequence[tuple[str, Sequence[Panel]]], title: str = "") -> Path:
    """Write titled rows of panels as an SVG file on a white ground; return its path."""
    placed, texts, down, width = [], [(12.0, 22.0, 14, title)] if title else [], 34.0 if title else 0.0, 0.0
    for heading, row in rows:
        if heading:
            texts.append((12.0, down + 14.0, 12, heading))
            down += 20.0
        across, sizes = 0.0, [panel_size(panel) for panel in row]
        for panel, size in zip(row, sizes, strict=True):
            place = f' x="{across:g}" y="{down:g}" width="{size[0]:g}" height="{size[1]:g}"'
            placed.append(panel_svg(panel, panel.title, place=place))
            across += size[0]
        width, down = max(width, across), down + max(height for _, height in sizes)
    width = max([width, *(24.0 + LETTER * size * len(words) for *_, size, words in texts)])
    drawn = render("picture.svg", width=_number(width), height=_number(down), texts=texts, panels=placed)
    return write_whole(path, re.sub(r"var\(--([\w-]+)\)", lambda found: COLOURS[found[1]], drawn).encode())


def _margins(panel: Panel, named: bool) -> tuple[float, float, float]:
    """Return inches to the left, to the right and below the axes.

    They are not measured in drawn text: a page chooses the font.
    """
    at_ends = named and panel.named_at_ends
    longest = max((len(panel.end_text(curve)) for curve in panel.curves), default=0) if at_ends else 0
    lines = -(-len(panel.curves) // _legend_columns(panel)) if named and not at_ends else 0
    return (0.8 if panel.y_label else 0.58), 0.16 + 0.1 * longest, BELOW + 0.2 * lines


def _legend_columns(panel: Panel) -> int:
    longest = max(len(curve.label) for curve in panel.curves)
    return max(1, min(len(panel.curves), 50 // (longest + 6)))


def _finite(curve: Curve) -> Curve:
    """Keep the points at which every run has a number."""
    return curve.at(np.asarray(np.isfinite(curve.runs).all(axis=0)))


def _x_range(panel: Panel, curves: Sequence[Curve]) -> tuple[float, float]:
    if panel.form == "marks":
        return -0.7, len(curves) - 0.3
    ends = [float(end) for curve in curves if len(curve.x) for end in (curve.x.min(), curve.x.max())]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if panel.form == "curves":
        return 0.0, high or 1.0
    return _widen(low, high, "x" in panel.log)


def _y_range(curves: Sequence[Curve], log: bool) -> tuple[float, float]:
    bands = [c.mean + sign * (0.0 if c.spread is None else c.spread) for c in curves for sign in (-1, 1)]
    shown = np.concatenate(bands)
    shown = shown[shown > 0.0] if log else shown
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.1, 1.0) if log else (0.0, 1.0)
    return _widen(low, high, log)


def _widen(low: float, high: float, log: bool) -> tuple[float, float]:
    """Add a twentieth of the range at each end."""
    if log:
        factor = (high / low) ** 0.05 if high > low else 1.05
        return low / factor, high * factor
    margin = 0.05 * (high - low) if high - low > 1e-9 * max(abs(low), abs(high)) else 0.05 * (abs(high) or 1.0)
    return low - margin, high + margin


def _grid(panel: Panel, x: Axis, y: Axis) -> dict[str, Any]:
    """Return grid lines, the base line, and the numbers and labels of the axes."""
    lines, numbers = "", []
    for value in x.ticks(5) if panel.form != "marks" else []:
        lines += f"M{_number(x.at(value))} {_number(y.start)}V{_number(y.end)}"
        numbers.append(_text(x.at(value), y.start + 14, compact(value), "middle"))
    marks = y.ticks(6)
    for value in marks:
        lines += f"M{_number(x.start)} {_number(y.at(value))}H{_number(x.end)}"
        words = compact(value) if y.log else _with_decimals(value, marks[1] - marks[0])
        numbers.append(_text(x.start - 5, y.at(value) + 3.5, words, "end"))
    numbers.append(_text((x.start + x.end) / 2, y.start + 28, panel.x_label, "middle"))
    if panel.y_label:
        numbers.append(_text(12, (y.start + y.end) / 2, panel.y_label, "middle") | {"turned": True})
    base = f"M{_number(x.start)} {_number(y.start)}H{_number(x.end)}"
    return {"grid": lines, "base": base, "numbers": numbers}


def _curve(panel: Panel, curve: Curve, number: int, x: Axis, y: Axis) -> dict[str, Any]:
    """Return the parts of a curve; those outside of the axes are clipped by the drawing."""
    across, mean, spread = x.at(curve.x), y.at(curve.mean), curve.spread
    low, high = (
        (y.at(np.maximum(curve.mean + sign * spread, y.low)) for sign in (-1, 1))
        if spread is not None
        else (mean, mean)
    )
    drawn: dict[str, Any] = {"colour": _colour(curve, number), "thickness": f"{THIN_LINE if curve.level else LINE:g}"}
    drawn |= {"dashes": "", "line": "", "band": "", "marks": ""}
    if panel.form in ("points", "marks"):
        drawn["marks"] = _marks(curve.line_as(number), across, mean, 3.0 if panel.form == "marks" else 2.0)
        if spread is not None:
            bars = zip(across, low, high, strict=True)
            drawn["line"] = "".join(f"M{_number(at)} {_number(start)}V{_number(end)}" for at, start, end in bars)
            drawn["thickness"] = f"{BARS:g}"
        return drawn
    drawn |= {"line": _path(across, mean), "dashes": _dashes(curve, number)}
    if spread is not None and len(across):
        drawn["band"] = f"{_path(np.append(across, across[::-1]), np.append(high, low[::-1]))}Z"
    if len(across) <= FEW_POINTS and not curve.level:
        drawn["marks"] = _marks("solid", across, mean, 1.8)
    return drawn


def _marks(line: str, x: Doubles, y: Doubles, radius: float) -> str:
    return "".join(_shape(line, *point, radius) for point in zip(x.tolist(), y.tolist(), strict=True))


def _shape(line: str, x: float, y: float, r: float) -> str:
    """Outline of a mark: disc, square, diamond and triangles in the order of DASHES."""
    shapes = {
        "solid": f"m{-r:g} 0a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z",
        "dashed": f"m{-r:g} {-r:g}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z",
        "dotted": f"m0 {-1.3 * r:g}l{1.3 * r:g} {1.3 * r:g}l{-1.3 * r:g} {1.3 * r:g}l{-1.3 * r:g} {-1.3 * r:g}z",
        "dash-dotted": f"m0 {-1.2 * r:g}l{1.2 * r:g} {2.2 * r:g}h{-2.4 * r:g}z",
        "long": f"m0 {1.2 * r:g}l{1.2 * r:g} {-2.2 * r:g}h{-2.4 * r:g}z",
    }
    return f"M{_number(x)} {_number(y)}{shapes[line]}"


def _end_names(panel: Panel, curves: Sequence[Curve], x: Axis, y: Axis) -> list[dict[str, str]]:
    """Return each curve's name at its right end, moved apart where they would touch."""
    ended = [number for number, curve in enumerate(curves) if len(curve.x)]
    ends = [float(y.at(curves[number].mean[-1])) for number in ended]
    places = spread_out([-end for end in ends], 0.075 * (y.start - y.end), -y.start, -y.end)
    return [
        _text(x.end + 5, 3.5 - place, panel.end_text(panel.curves[number]))
        | {"colour": _colour(panel.curves[number], number)}
        for number, place in zip(ended, places, strict=True)
    ]


def _legend(panel: Panel, x: Axis, y: Axis) -> list[dict[str, Any]]:
    columns = _legend_columns(panel)
    step = (x.end - x.start + UNITS * 0.1) / columns
    entries = []
    for number, curve in enumerate(panel.curves):
        left, down = x.start + step * (number % columns), y.start + 43 + 14.4 * (number // columns)
        filled = panel.form in ("points", "marks")
        sample = f"M{_number(left)} {_number(down - 3)}h15"
        if filled:
            sample = _shape(curve.line_as(number), left + 7.5, down - 3, 3.0)
        style = {"colour": _colour(curve, number), "filled": filled, "dashes": "" if filled else _dashes(curve, number)}
        entries.append(_text(left + 20, down, curve.label) | style | {"sample": sample})
    return entries


def _text(x: float | Doubles, y: float | Doubles, words: str, anchor: str = "start") -> dict[str, Any]:
    return {"x": _number(x), "y": _number(y), "words": words, "anchor": anchor, "turned": False}


def _colour(curve: Curve, number: int) -> str:
    return f"var(--curve-{curve.colour_as(number) + 1})"


def _dashes(curve: Curve, number: int) -> str:
    return " ".join(f"{LINE * length:g}" for length in DASHES[curve.line_as(number)])


def _path(x: Doubles, y: Doubles) -> str:
    points = (f"{_number(a)} {_number(b)}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return "M" + "L".join(points) if len(x) else ""


def _with_decimals(value: float, step: float) -> str:
    """Format a number with the decimals that the step between ticks needs."""
    if not 1e-4 <= step < 1e4:
        return f"{value:.3g}"
    decimals = next(d for d in range(7) if abs(round(step, d) - step) < 1e-9 * step)
    return f"{value:.{decimals}f}"


def _number(value: float | Doubles) -> str:
    """Format to a hundredth of a unit, which is less than any screen shows."""
    return f"{float(value):.2f}".rstrip("0").rstrip(".")
