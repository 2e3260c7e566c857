"""Panels of curves: data, colours and dashes; `page.panel_svg` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from quorank.errors import require
from quorank.experiments.run_directory import OFFLINE_MAXRR, OFFLINE_NDCG, ONLINE_MAXRR, ONLINE_NDCG, Run
from quorank.kernels.arrays import Booleans, Doubles, Integers

# Okabe & Ito's colour-blind-safe hues, darkened where they are too pale to read on white; yellow is left out.
PALETTE = ("#0072b2", "#d55e00", "#00855f", "#a8508a", "#b07800", "#2f7fb8", "#5b6470")
DASHES: dict[str, tuple[float, ...]] = {
    "solid": (),
    "dashed": (5, 2),
    "dotted": (1.5, 1.5),
    "dash-dotted": (5, 1.5, 1, 1.5),
    "long": (9, 2),
}
"""Lengths of lines and gaps, in widths of the line."""
MOST_POINTS = 250
FEW_POINTS = 12  # up to here each point has a mark
LONGEST_DIRECT_LABEL = 16
MOST_CURVES = 8  # of one panel; more are drawn as small multiples
TITLES = {
    OFFLINE_NDCG: "Offline nDCG@10",
    ONLINE_NDCG: "Online nDCG@10",
    OFFLINE_MAXRR: "Offline MaxRR",
    ONLINE_MAXRR: "Online MaxRR",
}
OF_ONE_ROUND = (ONLINE_NDCG, ONLINE_MAXRR)


@dataclass(frozen=True, eq=False)
class Curve:
    """Curve of a panel: x is (points,), runs is (runs, points).

    Where only a mean and its standard deviation are known, `runs` holds the mean and `deviation` is set. A curve has the
    colour and dashes of its position in the panel unless its own are set.
    """

    label: str
    x: Doubles
    runs: Doubles
    deviation: Doubles | None = None  # (points,)
    colour: int | None = None  # index of PALETTE
    dashes: str | None = None  # key of DASHES
    level: bool = False  # a reference line: thin, and its ends are not marked

    @classmethod
    def of_means(
        cls, label: str, x: ArrayLike, mean: ArrayLike, spread: ArrayLike | None = None, **style: Any
    ) -> Curve:
        """Return a curve of means (points,) and their standard deviations (points,), if these are known."""
        deviation = None if spread is None else np.array(spread, dtype=np.float64)
        return cls(label, np.array(x, dtype=np.float64), np.array(mean, dtype=np.float64)[None], deviation, **style)

    def __post_init__(self) -> None:
        fits = self.runs.ndim == 2 and self.runs.shape[1:] == self.x.shape
        fits = fits and (self.deviation is None or self.deviation.shape == self.x.shape)
        sentence = f"expected a value per run and point, got {self.runs.shape} for {len(self.x)} points"
        require(fits, "curve.shape", sentence, f"curve {self.label!r}")

    @property
    def mean(self) -> Doubles:
        """(points,) mean over runs."""
        return np.asarray(self.runs.mean(axis=0))

    @property
    def spread(self) -> Doubles | None:
        """(points,) one standard deviation; None for a single run."""
        if self.deviation is None and len(self.runs) > 1:
            return np.asarray(self.runs.std(axis=0, ddof=1))
        return self.deviation

    def colour_as(self, number: int) -> int:
        """Return the index in PALETTE of its colour as the number-th curve of a panel."""
        return (number if self.colour is None else self.colour) % len(PALETTE)

    def line_as(self, number: int) -> str:
        """Return the key of its dashes as the number-th curve; curves of the same colour differ in their dashes."""
        return self.dashes or ("solid", "dashed", "dotted")[number // len(PALETTE) % 3]

    def at(self, points: Integers | Booleans) -> Curve:
        """Return the curve at some of its points, given by their indices or as a mask."""
        deviation = None if self.deviation is None else self.deviation[points]
        return replace(self, x=self.x[points], runs=self.runs[:, points], deviation=deviation)


@dataclass(frozen=True, eq=False)
class Panel:
    """Pair of axes.

    `curves` are learning curves from the start of a run, `lines` join measured points, `points` are scattered, and
    `marks` are one point per curve without an x axis.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    form: Literal["curves", "lines", "points", "marks"] = "lines"
    log: str = ""  # logarithmic axes: "x", "y", "xy"
    y_range: tuple[float, float] | None = None  # default: range of the curves

    @property
    def named_at_ends(self) -> bool:
        """True if names stand at the curves' ends; long ones would take the space of the plot."""
        short = all(len(curve.label) <= LONGEST_DIRECT_LABEL for curve in self.curves)
        return len(self.curves) <= MOST_CURVES and (len(self.curves) == 1 or short)

    def end_text(self, curve: Curve) -> str:
        """Return the text at the curve's right end: its name, or its last value if it is the only curve."""
        if not len(curve.x):
            return ""
        return f"{curve.runs[:, -1].mean():.4f}" if len(self.curves) == 1 else curve.label


def thin(curve: Curve, points: int = MOST_POINTS) -> Curve:
    """Return the curve at no more than `points` of its points, evenly spread, the first and the last among them."""
    return curve.at(spread_evenly(len(curve.x), points))


def spread_evenly(count: int, most: int) -> Integers:
    """Return no more than `most` of the indices 0 to count − 1, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def block_means(curve: Curve, points: int = 100) -> tuple[Curve, int]:
    """Return means over blocks of consecutive points, at each block's last x, and the block's length.

    For metrics of single rounds, whose noise would hide the trend. A last, shorter block is kept; NaN do not count.
    """
    length = -(-len(curve.x) // points) if len(curve.x) else 1
    if length == 1:
        return curve, 1
    starts = np.arange(0, len(curve.x), length)
    ends = np.append(starts[1:], len(curve.x))
    known = np.isfinite(curve.runs)
    counts = np.add.reduceat(known, starts, axis=1, dtype=np.int64)
    means = np.add.reduceat(np.where(known, curve.runs, 0.0), starts, axis=1) / np.where(counts == 0, np.nan, counts)
    return Curve(curve.label, curve.x[ends - 1], means), length


def aligned(runs: Sequence[Run], column: str) -> tuple[Doubles, Doubles]:
    """Return one column of several runs over shared x: (points,) interactions and (runs, points) values.

    Runs without the column are left out. If runs were measured at different interactions (people join and leave), values
    are interpolated at those of the first run that all of them reached.
    """
    curves = [(x, y) for x, y in (run.curve(column) for run in runs) if len(x)]
    if not curves:
        return np.empty(0), np.empty((0, 0))
    first = curves[0][0]
    if all(np.array_equal(x, first) for x, _ in curves):
        return first, np.stack([y for _, y in curves])
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    shared = first[(first >= low) & (first <= high)]
    return shared, np.stack([np.interp(shared, x, y) for x, y in curves])


def panels_of(
    groups: Sequence[Sequence[Run]], names: Sequence[str], columns: Sequence[str] = (OFFLINE_NDCG, ONLINE_NDCG)
) -> list[Panel]:
    """Return a panel per column that any run has, with a named curve per group of repeated runs."""
    panels = []
    for column in columns:
        curves, longest = [Curve(name, *aligned(runs, column)) for runs, name in zip(groups, names, strict=True)], 1
        if column in OF_ONE_ROUND:
            curves, blocks = map(list, zip(*map(block_means, curves), strict=True))
            longest = max(blocks)
        if any(len(curve.x) for curve in curves):
            note = f"mean of {longest} rounds" if longest > 1 else ""
            title = TITLES.get(column) or f"Offline nDCG@{column.partition('@')[2]}"
            panels.append(Panel(title, "interactions", note, tuple(curves), "curves"))
    return panels


def small_multiples(panel: Panel) -> list[Panel]:
    """Return the panel if its curves can be told apart, else one per further curve, with the first one for comparison.

    All have the same y axis.
    """
    first, *others = panel.curves
    if len(panel.curves) <= MOST_CURVES:
        return [panel]
    bands = [c.mean + sign * (0.0 if c.spread is None else c.spread) for c in panel.curves for sign in (-1, 1)]
    shown = np.concatenate(bands)
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    margin = 0.05 * (high - low) or 0.05 * (abs(high) or 1.0)
    reference = replace(first, level=True, dashes="dotted")
    return [
        replace(
            panel,
            title=f"{panel.title}: {curve.label}, {first.label} dotted",
            curves=(reference, replace(curve, colour=curve.colour_as(number), dashes="solid")),
            y_range=(low - margin, high + margin),
        )
        for number, curve in enumerate(others, 1)
        if len(curve.x)
    ]


def paired_differences(curves: Sequence[Curve]) -> tuple[Curve, ...]:
    """Return each curve minus the first one, run by run: the mean, and its standard error to each side as the band.

    Paired runs have the same seed and fold, whose effect cancels. The first curve is zero.
    """
    paired = []
    for curve in curves:
        gain = curve.runs - np.array([np.interp(curve.x, curves[0].x, run) for run in curves[0].runs])
        error = gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
        style = {"colour": curve.colour, "dashes": curve.dashes}
        paired.append(Curve.of_means(curve.label, curve.x, gain.mean(axis=0), error, **style))
    return tuple(paired)


def compact(value: float) -> str:
    """Format a count in few characters: 4M, 2.5k, 750."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def spread_out(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places to stand `gap` apart in the same order, within low..high if they fit."""
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
