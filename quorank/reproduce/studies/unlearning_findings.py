"""The findings of thesis chapter 6, counted over collections and click models: figures 6.2 and 6.3, table 6.2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.reproduce.studies.study import Chart, Line, Measured, Sheet, Verdict
from quorank.reproduce.studies.unlearning_cells import METHODS, Curve, mean_curve

NDCG = "offline nDCG@10"
ALIKE = 0.01
"""A rebuilt ranker may lose this share of the retrained one's nDCG@10 and counts as the same."""
TENTH = 0.1
"""The share of retraining's local updates within which unlearning is to stay."""


@dataclass(frozen=True)
class Effort:
    """What rebuildings are allowed to cost."""

    interactions: int  # n
    rounds: int  # T
    intervals: tuple[int, ...]  # Δt
    local_steps: tuple[int, ...]  # n′

    def share(self, interval: int, steps: int) -> float:
        """n′·⌈T/Δt⌉/(n·T): local updates of a rebuilding, of those of retraining."""
        return steps * -(-self.rounds // interval) / (self.interactions * self.rounds)


@dataclass(frozen=True, eq=False)
class Cell:
    """A collection and a click model, with the figures of all repetitions."""

    source: str
    preset: str
    figures: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        return f"{self.source}, {self.preset}"

    def curves(self, configuration: str) -> list[Curve]:
        return [figures[configuration] for figures in self.figures]

    def rebuilt(self, method: str, interval: int, steps: int) -> list[Curve]:
        return [figures["rebuilt"][f"{method} {interval} {steps}"] for figures in self.figures]


def _ends(curves: Sequence[Curve]) -> Doubles:
    return np.array([curve["y"][-1] for curve in curves])


def configurations(effort: Effort, cells: Sequence[Cell]) -> Measured:
    """Figure 6.2."""
    names = ("9H-1M", "10H-0M", "9H-0M")
    charts = tuple(
        Chart(cell.label, "rounds", NDCG, tuple(_line(name, cell.curves(name)) for name in names))
        for cell in cells
    )
    lost = [_mean(cell, "10H-0M", "9H-1M") for cell in cells]
    apart = [_mean(cell, "9H-0M", "10H-0M") for cell in cells]
    verdicts = (
        Verdict(
            "One malicious client lowers nDCG@10 (9H-1M below 10H-0M)",
            all(x > 0 for x in lost),
            f"below in {_count(x > 0 for x in lost)}, by {_range(lost)} of its worth",
        ),
        Verdict(
            "Without one honest client the ranker is the same (9H-0M like 10H-0M, within 1 %)",
            all(abs(x) <= ALIKE for x in apart),
            f"within 1 % in {_count(abs(x) <= ALIKE for x in apart)}; they differ by {_range(apart)}",
        ),
    )
    return Measured(charts, (_ends_sheet(cells, names),), verdicts, numbers=_numbers(cells, names))


def rebuilding(effort: Effort, cells: Sequence[Cell]) -> Measured:
    """Figure 6.3: rebuilding on its way, retraining as a level line."""
    interval, steps = effort.intervals[0], effort.local_steps[0]
    charts = []
    for cell in cells:
        curves = {method: cell.rebuilt(method, interval, steps) for method in METHODS}
        lines = [_line(f"U(9H-1M), {method}", found) for method, found in curves.items()]
        x = lines[0].x
        for name in ("9H-0M", "9H-1M"):
            ends = _ends(cell.curves(name))
            spread = None if len(ends) < 2 else (float(ends.std(ddof=1)),) * 2
            label = "9H-0M, retrained" if name == "9H-0M" else "9H-1M, not rebuilt"
            lines.append(Line(label, (x[0], x[-1]), (float(ends.mean()),) * 2, spread))
        charts.append(Chart(cell.label, "rounds of the rebuilding", NDCG, tuple(lines)))
    verdicts = [
        verdict
        for method in METHODS
        for verdict in (
            _above_malicious(cells, method, interval, steps),
            _like_retraining(cells, method, interval, steps),
        )
    ]
    share = effort.share(interval, steps)
    note = f"Δt = {interval}, n′ = {steps}: {share:.1%} of the local updates of retraining."
    return Measured(
        tuple(charts),
        (_rebuilt_sheet(cells, interval, steps),),
        tuple(verdicts),
        (note, _seed_noise(cells)),
        _numbers(cells, ("9H-1M", "9H-0M")),
    )


def efforts(effort: Effort, cells: Sequence[Cell]) -> Measured:
    """Table 6.2, with what each entry costs."""
    rows = []
    for cell in cells:
        rows.append(
            (
                cell.label,
                "9H-0M, retrained",
                "",
                *(_text(_ends(cell.curves("9H-0M"))) for _ in effort.intervals),
            )
        )
        for method in METHODS:
            for steps in effort.local_steps:
                entries = [
                    _text(_ends(cell.rebuilt(method, interval, steps))) for interval in effort.intervals
                ]
                rows.append((cell.label, method, f"n′ = {steps}", *entries))
    columns = ("", "ranker", "", *(f"Δt = {interval}" for interval in effort.intervals))
    verdicts = []
    fewest, most = min(effort.local_steps), max(effort.local_steps)
    often, seldom = min(effort.intervals), max(effort.intervals)
    for method in METHODS:
        gains = [
            _change(c.rebuilt(method, dt, most), c.rebuilt(method, dt, fewest))
            for c in cells
            for dt in effort.intervals
        ]
        verdicts.append(_gain(f"More local steps are better (n′ = {most} above {fewest}; {method})", gains))
        gains = [
            _change(c.rebuilt(method, often, n), c.rebuilt(method, seldom, n))
            for c in cells
            for n in effort.local_steps
        ]
        verdicts.append(_gain(f"A smaller Δt is better (Δt = {often} above {seldom}; {method})", gains))
    allowed = [
        (effort.share(dt, n), dt, n)
        for dt in effort.intervals
        for n in effort.local_steps
        if effort.share(dt, n) <= TENTH + 1e-12
    ]
    largest = max((share for share, _, _ in allowed), default=0.0)
    pairs = [(dt, n) for share, dt, n in allowed if share == largest]
    verdicts += [_like_retraining(cells, method, dt, n) for method in METHODS for dt, n in pairs]
    return Measured(
        (), (Sheet(f"{NDCG} after rebuilding", columns, tuple(rows)),), tuple(verdicts), (_seed_noise(cells),),
        _numbers(cells, ("9H-1M", "9H-0M")),
    )  # fmt: skip


def _above_malicious(cells: Sequence[Cell], method: str, interval: int, steps: int) -> Verdict:
    gains = [_change(cell.rebuilt(method, interval, steps), cell.curves("9H-1M")) for cell in cells]
    return _gain(f"The rebuilt ranker is better than the one with the leaver ({method})", gains)


def _like_retraining(cells: Sequence[Cell], method: str, interval: int, steps: int) -> Verdict:
    gaps = [_change(cell.rebuilt(method, interval, steps), cell.curves("9H-0M")) for cell in cells]
    return Verdict(
        f"Unlearning converges to retraining (within 1 %; {method}, Δt = {interval}, n′ = {steps})",
        all(gap >= -ALIKE for gap in gaps),
        f"at most 1 % below it in {_count(gap >= -ALIKE for gap in gaps)}; it ends {_range(gaps)} away",
    )


def _gain(claim: str, gains: Sequence[float]) -> Verdict:
    right = [gain > 0 for gain in gains]
    return Verdict(claim, all(right), f"better in {_count(right)}, by {_range(gains)}")


def _change(one: Sequence[Curve], other: Sequence[Curve]) -> float:
    """How far the first ends above the second, as a share of the second, in the mean over repetitions."""
    return float((_ends(one) / _ends(other) - 1.0).mean())


def _mean(cell: Cell, one: str, other: str) -> float:
    return -_change(cell.curves(other), cell.curves(one))


def _seed_noise(cells: Sequence[Cell]) -> str:
    """How far retrainings with other seeds lie apart, which no rebuilding can be nearer than."""
    if any(len(cell.figures) < 2 for cell in cells):
        return "One repetition: how much retrainings differ among themselves cannot be said."
    spreads = [float(ends.std(ddof=1) / ends.mean()) for ends in (_ends(c.curves("9H-0M")) for c in cells)]
    return f"Standard deviation of retraining over the repetitions (seeds, and folds): {_range(spreads)} of its nDCG@10."


def _line(label: str, curves: Sequence[Curve]) -> Line:
    return Line(label, *mean_curve(curves))


def _ends_sheet(cells: Sequence[Cell], names: Sequence[str]) -> Sheet:
    rows = tuple((cell.label, *(_text(_ends(cell.curves(name))) for name in names)) for cell in cells)
    return Sheet(f"{NDCG} at the end", ("", *names), rows)


def _rebuilt_sheet(cells: Sequence[Cell], interval: int, steps: int) -> Sheet:
    def row(cell: Cell) -> tuple[str, ...]:
        values = [_text(_ends(cell.curves(name))) for name in ("9H-1M", "9H-0M")]
        return (cell.label, *values, *(_text(_ends(cell.rebuilt(m, interval, steps))) for m in METHODS))

    columns = ("", "9H-1M", "9H-0M, retrained", *(f"U(9H-1M), {method}" for method in METHODS))
    return Sheet(f"{NDCG} at the end", columns, tuple(map(row, cells)))


def _numbers(cells: Sequence[Cell], names: Sequence[str]) -> dict[str, Any]:
    """The value at the end of every run."""
    return {
        cell.label: {name: _ends(cell.curves(name)).tolist() for name in names}
        | {
            "rebuilt": {
                key: [f["rebuilt"][key]["y"][-1] for f in cell.figures] for key in cell.figures[0]["rebuilt"]
            }
        }
        for cell in cells
    }


def _text(values: Doubles) -> str:
    spread = f" ±{values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"


def _range(shares: Sequence[float]) -> str:
    low, high = (f"{100.0 * value + 0.0:.1f}".replace("-", "−") for value in (min(shares), max(shares)))
    return f"{low} to {high} %"


def _count(right: Iterable[bool]) -> str:
    found = list(right)
    return f"{sum(found)} of {len(found)}"
