"""One panel of curves as SVG inside a page.

Written here and not by matplotlib, which takes 0.5 s to be imported and 0.2 s for a page: every run has a page, and this
takes 1 ms a panel. Colours are the page's variables --ink, --faint, --grid and --curve-1 … -7, text is in the page's font,
and the same panel gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from quorank.kernels.arrays import Doubles
from quorank.reports.page import Markup, element
from quorank.reports.panels import DASHES, FEW_POINTS, Curve, Panel, compact, spread_out, thin

UNITS = 72
"""Units to an inch, so that sizes of text are points."""

PANEL = (5.0, 3.1)  # inches: 360 × 223 units, so that text stays legible at the width of a phone
ABOVE, BELOW = 0.36, 0.5  # inches for the title, and for the numbers and the name of the x axis
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LINE = 1.8  # units


class _Frame(NamedTuple):
    """Where the axes are on the drawing, and which numbers they show."""

    left: float
    right: float
    top: float
    bottom: float
    last: float  # x goes from 0 to here
    low: float
    high: float

    def x(self, value: Doubles | float) -> Doubles:
        return self.left + np.asarray(value) * ((self.right - self.left) / self.last)

    def y(self, value: Doubles | float) -> Doubles:
        return self.bottom - (np.asarray(value) - self.low) * ((self.bottom - self.top) / (self.high - self.low))


def panel_svg(panel: Panel) -> Markup:
    """Write the panel as an <svg> element without ids."""
    left, right, below = (UNITS * inches for inches in _margins(panel))
    width, height = UNITS * PANEL[0], UNITS * (PANEL[1] - BELOW) + below
    curves = [_finite(thin(curve)) for curve in panel.curves]
    last = max((float(curve.x[-1]) for curve in curves if len(curve.x)), default=1.0) or 1.0
    frame = _Frame(left, width - right, UNITS * ABOVE, height - below, last, *(panel.y_range or _range(curves)))
    parts = [*_axes(panel, frame)]
    for number, curve in enumerate(curves):
        parts += _curve(frame, curve, number)
    parts += _names(frame, panel, curves) if panel.named_at_ends else _legend(frame, panel)
    box = f"0 0 {_number(width)} {_number(height)}"
    return element("svg", *parts, viewBox=box, font_size="10", fill="none", stroke_linejoin="round")


def _margins(panel: Panel) -> tuple[float, float, float]:
    """Inches to the left, to the right and below the axes: for numbers, names at the curves' ends, the legend.

    They are not measured in drawn text: a page sets the text in a font of its own.
    """
    direct = panel.named_at_ends
    longest = max((len(panel.end_text(curve)) for curve in panel.curves), default=0) if direct else 0
    lines = 0 if direct else -(-len(panel.curves) // _legend_columns(panel))
    return (0.8 if panel.y_label else 0.58), 0.16 + 0.1 * longest, BELOW + 0.2 * lines


def _legend_columns(panel: Panel) -> int:
    """How many names stand side by side in the legend."""
    longest = max(len(curve.label) for curve in panel.curves)
    return max(1, min(len(panel.curves), 50 // (longest + 6)))


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return multiples of a round step (1, 2, 2.5 or 5 times a power of ten) in low..high, at least two.

    The step is the smallest that divides the range into at most `most` parts, or a smaller one if that leaves a single
    multiple.
    """
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    steps = [step * power for step in STEPS]
    widest = next(at for at, step in enumerate(steps) if step >= least * (1 - 1e-12))
    for step in reversed(steps[: widest + 1]):
        found = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        if len(found) > 1:
            break
    return [float(at) * step for at in found]


def _finite(curve: Curve) -> Curve:
    """The points that every run has a number for."""
    return curve.at(np.asarray(np.isfinite(curve.runs).all(axis=0)))


def _range(curves: Sequence[Curve]) -> tuple[float, float]:
    """From a twentieth below the least number to a twentieth above the largest."""
    bands = [c.mean + sign * (0.0 if c.spread is None else c.spread) for c in curves for sign in (-1, 1)]
    shown = np.concatenate(bands)
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.0, 1.0)
    room = 0.05 * (high - low) if high - low > 1e-9 * max(abs(low), abs(high)) else 0.05 * (abs(high) or 1.0)
    return low - room, high + room


def _axes(panel: Panel, frame: _Frame) -> Iterator[Markup]:
    left, right, bottom = _number(frame.left), _number(frame.right), _number(frame.bottom)
    lines, numbers = "", []
    for value in ticks(0.0, frame.last, 5):
        lines += f"M{_number(frame.x(value))} {bottom}V{_number(frame.top)}"
        numbers.append(_text(frame.x(value), frame.bottom + 14, compact(value), text_anchor="middle"))
    upright = ticks(frame.low, frame.high, 6)
    for value in upright:
        height = frame.y(value)
        lines += f"M{left} {_number(height)}H{right}"
        words = _like(value, upright[1] - upright[0])
        numbers.append(_text(frame.left - 5, height + 3.5, words, text_anchor="end"))
    middle = (frame.left + frame.right) / 2
    numbers.append(_text(middle, frame.bottom + 28, panel.x_label, text_anchor="middle"))
    if panel.y_label:
        place = f"translate(12 {_number((frame.top + frame.bottom) / 2)}) rotate(-90)"
        numbers.append(element("text", panel.y_label, transform=place, text_anchor="middle"))
    yield element("path", d=lines, stroke="var(--grid)", stroke_width=".6")
    yield element("path", d=f"M{left} {bottom}H{right}", stroke="var(--faint)", stroke_width=".8")
    yield element("g", *numbers, fill="var(--faint)")
    title = {"fill": "var(--ink)", "font_size": "11.5", "font_weight": "bold"}
    yield _text(frame.left, frame.top - 9, panel.title, **title)


def _curve(frame: _Frame, curve: Curve, number: int) -> Iterator[Markup]:
    x, mean, spread = frame.x(curve.x), curve.mean, curve.spread
    y, colour = frame.y(mean), _colour(curve, number)
    if spread is not None:
        around = _path(np.append(x, x[::-1]), np.append(frame.y(mean + spread), frame.y(mean - spread)[::-1]))
        yield element("path", d=f"{around}Z", fill=colour, fill_opacity=".16")
    yield _line(_path(x, y), curve, number)
    if len(x) <= FEW_POINTS:
        places = zip(x, y, strict=True)
        points = (element("circle", cx=_number(a), cy=_number(b), r="1.8") for a, b in places)
        yield element("g", *points, fill=colour)


def _names(frame: _Frame, panel: Panel, curves: Sequence[Curve]) -> Iterator[Markup]:
    """Each curve's name at its right end, moved apart where they would touch."""
    ended = [number for number, curve in enumerate(curves) if len(curve.x)]
    ends = [float(curves[number].mean[-1]) for number in ended]
    places = spread_out(ends, (frame.high - frame.low) * 0.075, frame.low, frame.high)
    for number, place in zip(ended, places, strict=True):
        curve = panel.curves[number]
        style = {"font_weight": "bold", "fill": _colour(curve, number)}
        yield _text(frame.right + 5, frame.y(place) + 3.5, panel.end_text(curve), **style)


def _legend(frame: _Frame, panel: Panel) -> Iterator[Markup]:
    columns = _legend_columns(panel)
    wide = (frame.right - frame.left + UNITS * 0.1) / columns
    for number, curve in enumerate(panel.curves):
        x, y = frame.left + wide * (number % columns), frame.bottom + 43 + 14.4 * (number // columns)
        yield _line(f"M{_number(x)} {_number(y - 3)}h15", curve, number)
        yield _text(x + 20, y, curve.label, font_size="9", fill="var(--ink)")


def _line(path: str, curve: Curve, number: int) -> Markup:
    dashes = " ".join(f"{LINE * length:g}" for length in DASHES[curve.line_as(number)])
    own = {"stroke_dasharray": dashes} if dashes else {}
    return element("path", d=path, stroke=_colour(curve, number), stroke_width=f"{LINE:g}", **own)


def _path(x: Doubles, y: Doubles) -> str:
    """Lines from point to point."""
    points = (f"{_number(a)} {_number(b)}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return "M" + "L".join(points) if len(x) else ""


def _text(x: float | Doubles, y: float | Doubles, words: str, **style: str) -> Markup:
    return element("text", words, x=_number(x), y=_number(y), **style)


def _colour(curve: Curve, number: int) -> str:
    return f"var(--curve-{curve.colour_as(number) + 1})"


def _like(value: float, step: float) -> str:
    """The number with as many decimals as the step between its neighbours needs."""
    if not 1e-4 <= step < 1e4:
        return f"{value:.3g}"
    decimals = next(d for d in range(7) if abs(round(step, d) - step) < 1e-9 * step)
    return f"{value:.{decimals}f}"


def _number(value: float | Doubles) -> str:
    """To a hundredth of a unit, which is less than any screen shows."""
    return f"{float(value):.2f}".rstrip("0").rstrip(".")
