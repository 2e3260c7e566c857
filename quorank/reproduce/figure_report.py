"""Report of a figure whose curves are runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quorank.experiments.progress import DISCOUNT
from quorank.experiments.run_directory import ONLINE_DISCOUNTED, ONLINE_MAXRR
from quorank.metrics.significance import mark
from quorank.reports.comparison import p_text, tested_units
from quorank.reports.panels import Curve, Panel, paired_differences, thin
from quorank.reports.report import ReportTable, describe_no_relevant, describe_privacy, describe_run, privacy_fields
from quorank.reproduce.figure import Figure
from quorank.reproduce.report import FigureReport
from quorank.reproduce.results import PanelResult, Results, VariantResult, as_dict, learning_curve, measure_title

PRIVACY = ("privacy", "what the ledger states")
POINTS = 80  # of a curve: more than a panel of this size shows
START = 0.08  # share of the x axis that may leave the panel: the steep beginning would take all its height


def figure_report(results: Results) -> FigureReport:
    """Return the report of a figure's runs."""
    figure = results.figure
    tables = [
        ReportTable(
            f"{panels[0].collection}: {measure_title(panels[0].measure)}",
            ("", *(figure.column_label(panel.column) for panel in panels)),
            _table_rows(panels, figure),
        )
        for panels in panel_rows(results)
    ]
    compared = [
        (f"{panels[0].collection}, {entry.label}", entry)
        for panels in panel_rows(results)[:: len(figure.header.measures)]
        for entry in panels[0].variants
    ]
    if rows := [[name, _privacy_text(entry.privacy)] for name, entry in compared if entry.privacy is not None]:
        tables.append(ReportTable("Privacy", PRIVACY, rows))
    asked = " (as asked for, not as published)" if figure.asked_repetitions else ""
    settings = [("runs of each setting", f"{results.figure.header.repetitions}{asked}")]
    settings += [(name, describe_run(entry.runs[0])) for name, entry in compared]
    ends = [
        f"{panel.collection} {figure.column_label(panel.column)} {entry.label} {entry.mean:.3f}"
        for panel in results.panels
        for entry in panel.variants
    ]
    drawn = [row for panels in panel_rows(results) for row in _rows_of_panels(panels, results)]
    return FigureReport(
        figure,
        as_dict(results),
        [(finding.check.claim, finding.verdict, finding.seen) for finding in results.findings],
        tables,
        _notes(results),
        settings,
        drawn,
        f"{figure.title}; at the end: {', '.join(ends)}",
    )


def _rows_of_panels(panels: Sequence[PanelResult], results: Results) -> list[tuple[str, list[Panel]]]:
    """Return the titled panels of one collection and measure: values and, for several runs, paired differences."""
    figure, measure = results.figure, panels[0].measure
    values = [_curves(panel, results) for panel in panels]
    rows = [(measure_title(measure), values)]
    if figure.header.repetitions > 1 and measure != ONLINE_DISCOUNTED:  # whose differences the table has
        rows.append((f"difference from {figure.variants[0].label}", [paired_differences(curves) for curves in values]))
    # Clicks on one list differ from user to user, so that their measure has no common scale.
    shared = measure != ONLINE_MAXRR
    drawn = []
    for title, found in rows:
        row = []
        for panel, own in zip(panels, found, strict=True):
            name = figure.column_label(panel.column, clicks=" clicks")
            y_range = _y_range([*itertools.chain(*found)] if shared else own)
            if measure == ONLINE_DISCOUNTED:
                row.append(Panel(name, "", "", own, "marks", y_range=y_range))
            else:
                row.append(Panel(name, figure.header.x, "", own, "curves", y_range=y_range))
        drawn.append((f"{panels[0].collection}: {title}", row))
    return drawn


def _curves(panel: PanelResult, results: Results) -> tuple[Curve, ...]:
    found = []
    for number, (variant, entry) in enumerate(zip(results.figure.variants, panel.variants, strict=True)):
        if panel.measure == ONLINE_DISCOUNTED:
            # A sum over the run is a mark for each variant: its curves would lie on each other.
            curve = Curve(entry.label, np.array([float(number)]), entry.values[:, None])
        else:
            curve = thin(learning_curve(entry, panel.measure, results.figure.header.x), POINTS)
        found.append(replace(curve, colour=variant.colour - 1, dashes=variant.line))
    return tuple(found)


def _y_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the range of every curve after its steep beginning, and of every mark with its deviation."""
    values: list[float] = []
    for curve in curves:
        if len(curve.x) == 1:
            sd = 0.0 if curve.spread is None else curve.spread
            values += [*(curve.mean - sd), *(curve.mean + sd)]
        else:
            values += curve.mean[curve.x >= START * curve.x[-1]].tolist()
    margin = 0.06 * max(max(values) - min(values), 1e-3)
    return min(values) - margin, max(values) + margin


def panel_rows(results: Results) -> list[Sequence[PanelResult]]:
    """Return the panels of each row of the figure."""
    columns = len(results.figure.columns)
    return [results.panels[i : i + columns] for i in range(0, len(results.panels), columns)]


def _table_rows(panels: Sequence[PanelResult], figure: Figure) -> list[list[str]]:
    """Return a row per variant: its label, then per panel the final value, the difference and the paper's number."""
    variants = zip(*(panel.variants for panel in panels), strict=True)
    return [
        [entries[0].label, *(_value_text(entry, panel, figure) for entry, panel in zip(entries, panels, strict=True))]
        for entries in variants
    ]


def _value_text(entry: VariantResult, panel: PanelResult, figure: Figure) -> str:
    digits, difference = 2 if panel.measure == ONLINE_DISCOUNTED else 4, entry.against_first
    lines = [entry.spread.text(digits)]
    if difference is not None:
        value = f"{difference.difference:+.{digits}f}".replace("-", "−")
        p = "" if difference.corrected_p is None else p_text(difference.corrected_p).replace(" ", "")
        lines.append(" ".join(filter(None, (value, p, mark(difference)))))
    if panel.measure == ONLINE_DISCOUNTED:
        lines.append(f"{a_round(entry.mean, entry.runs[0].summary['rounds']):.3f} a round")
    found = figure.published_number(panel.collection, panel.measure, entry.label, panel.column)
    if found is not None:
        table, number = found
        mean = f", {a_round(number, table.rounds):.3f} a round" if table.rounds else ""
        lines.append(f"paper {table.text(number)}{mean}")
    return "\n".join(lines)


def a_round(total: float, rounds: int) -> float:
    """Return the mean whose discounted sum Σ γ^(t−1)·mean over the rounds is `total`, which compares runs of any length."""
    return total * (1.0 - DISCOUNT) / (1.0 - DISCOUNT**rounds)


def _privacy_text(stated: Mapping[str, Any]) -> str:
    single = [f"{value}." for key, value in privacy_fields(stated) if key.startswith("epsilon")]
    return " ".join([describe_privacy(stated), *single])


def _notes(results: Results) -> list[str]:
    figure, repetitions = results.figure, results.figure.header.repetitions
    variants, measures, first = results.panels[0].variants, figure.header.measures, figure.variants[0].label
    lines = [f"One run each: no test. Second line: difference from {first}."]
    if repetitions > 1:
        folds = len({run.setting("data.fold") for run in variants[0].runs})
        spread = f"{folds} folds" if folds > 1 else "one fold"
        units = tested_units([e.against_first for panel in results.panels for e in panel.variants if e.against_first])
        lines = [
            f"Mean ± standard deviation of {repetitions} runs (a seed each, {spread}). "
            f"Second line: difference from {first}; two-tailed t-test{f' over {units}' if units else ''}, p "
            "Bonferroni-corrected within a panel; △▽ p < .05, ▲▼ p < .01."
        ]
    warnings = [e.privacy["warning"] for e in variants if e.privacy and "warning" in e.privacy][:1]
    papers = " and ".join(dict.fromkeys(table.where for table in figure.published))
    notes = {
        f"Offline: the last ranker on the test queries; {describe_no_relevant(variants[0].runs[0])}.": any(
            measure.startswith("offline") for measure in measures
        ),
        "Online: lists and clicks of the last tenth of the run.": any(
            measure.startswith("online") and measure != ONLINE_DISCOUNTED for measure in measures
        ),
        "Discounted: Σ over rounds t of 0.9995ᵗ⁻¹ × the mean nDCG@10 of the lists shown in round t, from the first; a "
        "round: that sum over Σ 0.9995ᵗ⁻¹, so that runs of different length compare.": ONLINE_DISCOUNTED in measures,
        f"Paper: published numbers ({papers}), on the paper's collections and at its size.": figure.published,
        f"Differences: each variant minus {first}, paired by seed and fold; the band is a standard error of "
        "their mean. Bands of values are a standard deviation over runs.": repetitions > 1
        and {*measures} != {ONLINE_DISCOUNTED},
        f"Privacy: {''.join(warnings)}.": warnings,
        "Findings: number of comparisons that agree with the paper, of those with p < .05 (Bonferroni over the finding), "
        "and of those with p < .05 that disagree. Similar: difference within the margin, not tested.": results.findings,
        f"{figure.collections[0].label} stands for the figure's first collection, also in its findings.": figure.data,
    }
    return [*lines, *(note for note, applies in notes.items() if applies)]
