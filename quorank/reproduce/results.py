"""Results of a figure's runs: final values, learning curves, and the paper's findings as counted comparisons."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.experiments.run_directory import ONLINE_DISCOUNTED, Run, load_run
from quorank.kernels.arrays import Doubles
from quorank.metrics.significance import Difference, Repetition, corrected, repeated_t
from quorank.reports.comparison import Spread
from quorank.reports.panels import OF_ONE_ROUND, TITLES, Curve, aligned, block_means
from quorank.reproduce.figure import Check, Figure

WINDOW = 0.1  # share of the run over which measures of single rounds are averaged
POINTS = 60  # of a curve of single rounds' measures


@dataclass(frozen=True, eq=False)
class VariantResult:
    """Runs of one variant in one panel, and their final values."""

    label: str
    runs: tuple[Run, ...]  # by repetition
    values: Doubles  # (runs,) at the end of each run
    against_first: Difference | None  # None for the first variant itself

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def spread(self) -> Spread:
        return Spread.of(self.values)

    @property
    def privacy(self) -> Mapping[str, Any] | None:
        """Privacy statement of its first run; None without privacy."""
        found: Mapping[str, Any] | None = self.runs[0].summary.get("privacy")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of results.json."""
        return {
            "label": self.label,
            **asdict(self.spread),
            "values": self.values.tolist(),
            "runs": [run.path.name for run in self.runs],
            "privacy": self.privacy,
            "against_first": self.against_first and self.against_first.as_dict(),
        }


@dataclass(frozen=True, eq=False)
class PanelResult:
    """Results of all variants on one collection, for one column of the grid, by one measure."""

    collection: str
    column: int
    measure: str
    variants: tuple[VariantResult, ...]


@dataclass(frozen=True)
class ComparedPair:
    """Two variants in one panel: how far the first lies above the second."""

    panel: str
    what: str
    difference: Difference
    agrees: bool  # with the paper

    @property
    def significant(self) -> bool:
        return self.difference.corrected_p is not None and self.difference.corrected_p < 0.05


@dataclass(frozen=True)
class Finding:
    """Check and its comparisons; none where the figure's panels do not include those of the check."""

    check: Check
    comparisons: tuple[ComparedPair, ...]

    @property
    def agree(self) -> int:
        return sum(c.agrees for c in self.comparisons)

    @property
    def significant(self) -> tuple[int, int]:
        """Numbers of comparisons that are significant as the paper says, and in the opposite direction."""
        sure = [c.agrees for c in self.comparisons if c.significant]
        return sure.count(True), sure.count(False)

    @property
    def verdict(self) -> str:
        """Verdict in words; only significant differences decide it."""
        total, (sure, opposite) = len(self.comparisons), self.significant
        if not total:
            return "not measured"
        if all(c.difference.p is None for c in self.comparisons):
            return "not tested"
        if self.check.similar:
            return "holds" if self.agree == total else "in part" if self.agree else "does not hold"
        if opposite:
            return "mixed" if sure else "opposite"
        return "undecided" if not sure else "holds" if sure == total else "in part"

    @property
    def seen(self) -> str:
        """Numbers of comparisons with the paper's sign, significant ones, and significant opposite ones."""
        if not self.comparisons:
            return "–"
        tested = not self.check.similar and any(c.difference.p is not None for c in self.comparisons)
        sure, opposite = self.significant
        words = f", {sure} significantly; {opposite} disagree significantly" if tested else ""
        return f"{self.agree} of {len(self.comparisons)} agree{words}"

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of results.json."""
        return {
            "claim": self.check.claim,
            "verdict": self.verdict,
            "agree": self.agree,
            "significant": self.significant[0],
            "significant_opposite": self.significant[1],
            "comparisons": [
                {"panel": c.panel, "what": c.what, "agrees": c.agrees, **c.difference.as_dict()}
                for c in self.comparisons
            ],
        }


@dataclass(frozen=True, eq=False)
class Results:
    """Results of all panels of a figure, and its findings."""

    figure: Figure
    panels: tuple[PanelResult, ...]  # by collection, then measure, then column
    findings: tuple[Finding, ...]


def read_results(figure: Figure, folder: Path) -> Results:
    """Read the finished runs of a figure from its directory."""
    runs: dict[tuple[str, int, str], list[Run]] = {}
    for cell in figure.cells:  # repetitions in order
        at = (cell.values["collection"], cell.values["column"], cell.values["variant"])
        runs.setdefault(at, []).append(load_run(folder / cell.name))
    labels = [variant.label for variant in figure.variants]
    panels = tuple(
        _panel(measure, column, collection.label, {label: runs[collection.label, column, label] for label in labels})
        for collection in figure.collections
        for measure in figure.header.measures
        for column in range(len(figure.columns))
    )
    return Results(figure, panels, tuple(_finding(check, figure, panels) for check in figure.checks))


def _panel(measure: str, column: int, collection: str, runs: Mapping[str, Sequence[Run]]) -> PanelResult:
    values = {label: values_at(found, measure) for label, found in runs.items()}
    first, *others = values
    differences = _tested([(_repeated(runs[x], values[x]), _repeated(runs[first], values[first])) for x in others])
    against = dict(zip(others, differences, strict=True))
    entries = (VariantResult(label, tuple(found), values[label], against.get(label)) for label, found in runs.items())
    return PanelResult(collection, column, measure, tuple(entries))


Repeated = list[tuple[Repetition, float]]
"""Values of runs, each with its run's seed and fold."""


def _repeated(runs: Sequence[Run], values: Doubles) -> Repeated:
    return [(run.repetition, float(value)) for run, value in zip(runs, values, strict=True)]


def _tested(pairs: Sequence[tuple[Repeated, Repeated]]) -> list[Difference]:
    """Return the differences of pairs of settings, tested over folds or seeds, with p corrected over all pairs."""
    found = [repeated_t(a, b) for a, b in pairs]
    sentence = "a run of this figure has no finite value of its measure: it was not evaluated"
    require(all(d is not None for d in found), "significance.not-finite", sentence)
    return corrected([d for d in found if d is not None])


def values_at(runs: Sequence[Run], measure: str, at: float = 1.0) -> Doubles:
    """Return (runs,) the measure at this share of each run; a single round's as the mean over WINDOW up to there."""
    found = []
    for run in runs:
        x, y = run.curve(measure)
        until = x <= at * x[-1] + 0.5
        until[0] = True
        span = until & (x > (at - WINDOW) * x[-1]) if measure in OF_ONE_ROUND else until
        found.append(y[span if span.any() else until].mean() if measure in OF_ONE_ROUND else y[until][-1])
    return np.array(found)


def learning_curve(entry: VariantResult, measure: str, x_axis: str) -> Curve:
    """Return the learning curve of a variant over interactions or rounds."""
    x, values = aligned(entry.runs, measure)
    if x_axis == "rounds":
        x = x * (entry.runs[0].summary["rounds"] / entry.runs[0].summary["interactions"])
    drawn = Curve(entry.label, x, values)
    return block_means(drawn, POINTS)[0] if measure in OF_ONE_ROUND else drawn


def _finding(check: Check, figure: Figure, panels: Sequence[PanelResult]) -> Finding:
    measure = check.measure or figure.header.measures[0]
    pairs = []
    for panel in panels:
        words = {panel.collection, *map(str, figure.columns[panel.column].values())}
        if panel.measure == measure and words.issuperset(check.only):
            name = ", ".join(filter(None, (panel.collection, figure.column_label(panel.column))))
            runs = {entry.label: entry.runs for entry in panel.variants}
            pairs += [(name, what, a, b) for what, a, b in compared_values(check, runs, measure)]
    compared = []
    for (name, what, _, b), d in zip(pairs, _tested([(a, b) for _, _, a, b in pairs]), strict=True):
        alike = is_similar(check, d.difference, np.array([value for _, value in b]))
        compared.append(ComparedPair(name, what, d, alike if check.similar else d.difference > 0))
    return Finding(check, tuple(compared))


def is_similar(check: Check, difference: float, second: Doubles) -> bool:
    """Return whether a variant whose mean differs by this much from that of `second` (runs,) counts as similar."""
    scale = abs(float(second.mean())) if check.relative else 1.0
    return abs(difference) <= check.within * scale


def compared_values(
    check: Check, runs: Mapping[str, Sequence[Run]], measure: str
) -> Iterator[tuple[str, Repeated, Repeated]]:
    """Yield for each comparison of a check what is compared, and the two sides' values by seed and fold."""

    def value(found: Sequence[Run], at: float = 1.0) -> Repeated:
        return _repeated(found, values_at(found, measure, at))

    for label in check.falls:
        yield (f"{label}: at {check.at:g} of the run − at its end", value(runs[label], at=check.at), value(runs[label]))
    pairs = [*itertools.product(check.above, check.below), *itertools.combinations(check.similar, 2)]
    if check.matched:
        pairs = [*zip(check.above, check.below, strict=True)]
    if check.to_first:
        pairs = [(check.similar[0], other) for other in check.similar[1:]]
    for a, b in pairs:
        yield f"{a} − {b}", value(runs[a], at=check.at), value(runs[b], at=check.at)


def as_dict(results: Results) -> dict[str, Any]:
    """Return the content of `results.json`."""
    figure, header = results.figure, results.figure.header
    runs = [run for panel in results.panels for entry in panel.variants for run in entry.runs]
    return figure.identity() | {
        "title": figure.title,
        "paper": header.paper,
        "claim": header.claim,
        "differs": header.differs,
        "repetitions": header.repetitions,
        "measures": list(header.measures),
        "baseline": figure.variants[0].label,
        "panels": [
            {
                "collection": panel.collection,
                "panel": dict(figure.columns[panel.column]),
                "measure": panel.measure,
                "variants": [entry.as_dict() for entry in panel.variants],
            }
            for panel in results.panels
        ],
        "checks": [finding.as_dict() for finding in results.findings],
        "seconds": sum({run.path: run.figure("seconds", "train") for run in runs}.values()),
    }


def measure_title(measure: str) -> str:
    """Return the title of a measure for people."""
    if measure == ONLINE_DISCOUNTED:
        return "Discounted online nDCG@10"
    return TITLES.get(measure, measure.replace("_", " "))
