"""One panel of learning curves as SVG inside a page, written directly.

A page has several panels and every run has a page: this takes a millisecond where matplotlib, which draws the files
(see `curves`), takes a third of a second to be loaded and twenty milliseconds for each. Colours are the page's variables
--ink, --faint, --grid and --curve-1 … -7, text is in the page's font, and the same panel gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from quorank.arrays import Doubles
from quorank.reports.curves import (
    ABOVE,
    BELOW,
    PANEL,
    STYLES,
    Curve,
    Panel,
    end_text,
    legend_columns,
    margins,
    named_at_ends,
    spread_out,
    thin,
)
from quorank.reports.drawings import PALETTE, compact

UNITS = 72
"""Units to an inch, so that sizes of text are points."""

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


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
        return self.bottom - (np.asarray(value) - self.low) * (
            (self.bottom - self.top) / (self.high - self.low)
        )


def panel_svg(panel: Panel) -> str:
    """The panel as an <svg> element without ids."""
    left, right, below = (UNITS * inches for inches in margins(panel))
    width, height = UNITS * PANEL[0], UNITS * (PANEL[1] - BELOW) + below
    curves = [_finite(thin(curve)) for curve in panel.curves]
    means = [curve.runs.mean(axis=0) for curve in curves]
    spreads = [curve.runs.std(axis=0, ddof=1) if len(curve.runs) > 1 else None for curve in curves]
    low, high = _range(means, spreads)
    last = max((float(curve.x[-1]) for curve in curves if len(curve.x)), default=1.0) or 1.0
    frame = _Frame(left, width - right, UNITS * ABOVE, height - below, last, low, high)
    parts = [*_axes(panel, frame)]
    for number, (curve, mean, spread) in enumerate(zip(curves, means, spreads, strict=True)):
        parts += _curve(frame, curve, mean, spread, number)
    parts += _names(frame, panel, means) if named_at_ends(panel) else _legend(frame, panel)
    return (
        f'<svg viewBox="0 0 {_number(width)} {_number(height)}" font-size="10" fill="none" '
        f'stroke-linejoin="round">{"".join(parts)}</svg>'
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of a round step (1, 2, 2.5 or 5 times a power of ten) in low..high, at least two.

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
    kept = np.isfinite(curve.runs).all(axis=0)
    return Curve(curve.label, curve.x[kept], curve.runs[:, kept])


def _range(means: Sequence[Doubles], spreads: Sequence[Doubles | None]) -> tuple[float, float]:
    """From a twentieth below the least number to a twentieth above the largest."""
    bands = [
        mean + sign * (0.0 if spread is None else spread)
        for mean, spread in zip(means, spreads, strict=True)
        for sign in (-1, 1)
    ]
    shown = np.concatenate(bands)
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.0, 1.0)
    room = 0.05 * (high - low) if high - low > 1e-9 * max(abs(low), abs(high)) else 0.05 * (abs(high) or 1.0)
    return low - room, high + room


def _axes(panel: Panel, frame: _Frame) -> Iterator[str]:
    bottom, middle = _number(frame.bottom), _number((frame.left + frame.right) / 2)
    lines, numbers = [], []
    for value in ticks(0.0, frame.last, 5):
        at = _number(frame.x(value))
        lines.append(f"M{at} {bottom}V{_number(frame.top)}")
        numbers.append(_text(at, _number(frame.bottom + 14), compact(value), "middle"))
    upright = ticks(frame.low, frame.high, 6)
    for value in upright:
        height = frame.y(value)
        lines.append(f"M{_number(frame.left)} {_number(height)}H{_number(frame.right)}")
        text = _like(value, upright[1] - upright[0])
        numbers.append(_text(_number(frame.left - 5), _number(height + 3.5), text, "end"))
    yield f'<path d="{"".join(lines)}" stroke="var(--grid)" stroke-width=".6"/>'
    yield f'<path d="M{_number(frame.left)} {bottom}H{_number(frame.right)}" stroke="var(--faint)" stroke-width=".8"/>'
    yield f'<g fill="var(--faint)">{"".join(numbers)}{_text(middle, _number(frame.bottom + 28), panel.x_label, "middle")}'
    if panel.y_label:
        place = f"translate(12 {_number((frame.top + frame.bottom) / 2)}) rotate(-90)"
        yield f'<text transform="{place}" text-anchor="middle">{escape(panel.y_label)}</text>'
    title = f'font-size="11.5" font-weight="bold">{escape(panel.title)}</text>'
    yield f'</g><text x="{_number(frame.left)}" y="{_number(frame.top - 9)}" fill="var(--ink)" {title}'


def _curve(frame: _Frame, curve: Curve, mean: Doubles, spread: Doubles | None, number: int) -> Iterator[str]:
    x, y = frame.x(curve.x), frame.y(mean)
    if spread is not None:
        around = _path(np.append(x, x[::-1]), np.append(frame.y(mean + spread), frame.y(mean - spread)[::-1]))
        yield f'<path d="{around}Z" fill="{_colour(number)}" fill-opacity=".16"/>'
    yield _line(_path(x, y), number)
    if len(x) <= 12:
        points = (f'<circle cx="{_number(a)}" cy="{_number(b)}" r="1.8"/>' for a, b in zip(x, y, strict=True))
        yield f'<g fill="{_colour(number)}">{"".join(points)}</g>'


def _names(frame: _Frame, panel: Panel, means: Sequence[Doubles]) -> Iterator[str]:
    """Each curve's name at its right end, moved apart where they would touch."""
    ended = [number for number, mean in enumerate(means) if len(mean)]
    ends = [float(means[number][-1]) for number in ended]
    places = spread_out(ends, (frame.high - frame.low) * 0.075, frame.low, frame.high)
    for number, place in zip(ended, places, strict=True):
        words = escape(end_text(panel, panel.curves[number]))
        at = f'x="{_number(frame.right + 5)}" y="{_number(frame.y(place) + 3.5)}"'
        yield f'<text {at} font-weight="bold" fill="{_colour(number)}">{words}</text>'


def _legend(frame: _Frame, panel: Panel) -> Iterator[str]:
    columns = legend_columns(panel)
    wide = (frame.right - frame.left + UNITS * 0.1) / columns
    for number, curve in enumerate(panel.curves):
        x, y = frame.left + wide * (number % columns), frame.bottom + 43 + 14.4 * (number // columns)
        words = f'font-size="9" fill="var(--ink)">{escape(curve.label)}</text>'
        yield _line(f"M{_number(x)} {_number(y - 3)}h15", number)
        yield f'<text x="{_number(x + 20)}" y="{_number(y)}" {words}'


def _line(path: str, number: int) -> str:
    style = STYLES[number // len(PALETTE) % len(STYLES)]
    dashes = (
        "" if isinstance(style, str) else f' stroke-dasharray="{" ".join(f"{1.8 * d:g}" for d in style[1])}"'
    )
    return f'<path d="{path}" stroke="{_colour(number)}" stroke-width="1.8"{dashes}/>'


def _path(x: Doubles, y: Doubles) -> str:
    """Lines from point to point."""
    points = (f"{_number(a)} {_number(b)}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return "M" + "L".join(points) if len(x) else ""


def _text(x: str, y: str, words: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def _colour(number: int) -> str:
    return f"var(--curve-{number % len(PALETTE) + 1})"


def _like(value: float, step: float) -> str:
    """The number with as many decimals as the step between its neighbours needs."""
    if not 1e-4 <= step < 1e4:
        return f"{value:.3g}"
    decimals = next(d for d in range(7) if abs(round(step, d) - step) < 1e-9 * step)
    return f"{value:.{decimals}f}"


def _number(value: float | Doubles) -> str:
    """To a hundredth of a unit, which is less than any screen shows."""
    return f"{float(value):.2f}".rstrip("0").rstrip(".")
