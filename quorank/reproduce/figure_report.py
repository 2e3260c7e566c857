"""Report of a figure whose curves are runs: its drawing, its tables for a terminal, and a page that loads nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.experiments.finished_run import ONLINE_DISCOUNTED, ONLINE_MAXRR
from quorank.metrics.significance import Difference
from quorank.reports import page, statement
from quorank.reports.comparison import p_text, tested_units
from quorank.reports.curves import draw
from quorank.reports.panels import Curve, Panel, thin
from quorank.reproduce.report import QUICK_NOTE, html_page, terminal_report, terminal_table, write_files
from quorank.reproduce.results import PanelResult, Results, VariantResult, as_dict, learning_curve, measure_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from rich.console import Group as Renderable

PRIVACY = ("privacy", "what the ledger states")
FINDINGS = ("the paper's findings", "here", "as said", "p < .05", "opposite\np < .05")
POINTS = 80  # of a curve: more than a panel of this size shows
START = 0.08  # share of the x axis that may leave the panel: the steep beginning would take all its height


def write_report(results: Results, folder: Path) -> None:
    """Write drawing, results and page into the figure's directory."""
    drawing = draw_results(results)
    write_files(folder, as_dict(results), html_report(results, drawing), drawing)


def draw_results(results: Results) -> Drawing:
    """Draw a row of panels for each collection and measure, a column for each combination of grid values."""
    rows, drawn = panel_rows(results), []
    for number, panels in enumerate(rows):
        measure, curves = panels[0].measure, [_curves(panel, results) for panel in panels]
        # Clicks on one list differ from user to user, so that their measure has no common scale.
        shared = measure != ONLINE_MAXRR
        every = list(itertools.chain(*curves))
        for column, (panel, own) in enumerate(zip(panels, curves, strict=True)):
            over_run = number == len(rows) - 1 and measure != ONLINE_DISCOUNTED
            drawn.append(
                Panel(
                    _heading(results.figure.columns[panel.column]) if number == 0 else "",
                    results.figure.header.x if over_run else "",
                    f"{panel.collection}\n{measure_title(measure)}" if column == 0 else "",
                    own,
                    "marks" if measure == ONLINE_DISCOUNTED else "curves",
                    y_range=_y_range(every if shared else own),
                    y_numbers=column == 0 or not shared,
                )
            )
    return draw(drawn, len(results.figure.columns), results.figure.title)


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
    """The range that shows every curve from shortly after its beginning, and every mark with its deviation."""
    values: list[float] = []
    for curve in curves:
        if len(curve.x) == 1:
            sd = 0.0 if curve.spread is None else curve.spread
            values += [*(curve.mean - sd), *(curve.mean + sd)]
        else:
            values += curve.mean[curve.x >= START * curve.x[-1]].tolist()
    margin = 0.06 * max(max(values) - min(values), 1e-3)
    return min(values) - margin, max(values) + margin


def _heading(column: Mapping[str, Any]) -> str:
    words = (f"{value} clicks" if key == "users.preset" else str(value) for key, value in column.items())
    return ", ".join(words)


def panel_rows(results: Results) -> list[Sequence[PanelResult]]:
    """Return the panels of each row of the figure."""
    columns = len(results.figure.columns)
    return [results.panels[i : i + columns] for i in range(0, len(results.panels), columns)]


def _table_rows(panels: Sequence[PanelResult]) -> list[list[str]]:
    """A row per variant: its label, then per panel the final value and below it the difference."""
    variants = zip(*(panel.variants for panel in panels), strict=True)
    digits = 2 if panels[0].measure == ONLINE_DISCOUNTED else 4
    return [[entries[0].label, *(_value_text(entry, digits) for entry in entries)] for entries in variants]


def _value_text(entry: VariantResult, digits: int) -> str:
    sd = "" if entry.sd is None else f" ±{entry.sd:.{digits}f}"
    below = "" if entry.against_first is None else f"\n{_difference_text(entry.against_first, digits)}"
    return f"{entry.mean:.{digits}f}{sd}{below}"


def _difference_text(difference: Difference, digits: int) -> str:
    """+0.0123 p=.003 ▲; no p where there was one run."""
    value = f"{difference.difference:+.{digits}f}".replace("-", "−")
    if difference.p is None:
        return value
    return f"{value} {p_text(difference).replace('p = ', 'p=').replace('p < ', 'p<')}"


def _privacy_rows(results: Results) -> list[list[str]]:
    """A row per collection and variant with a privacy mechanism: what it gives one client, by the ledger."""
    rows = []
    for panels in panel_rows(results)[:: len(results.figure.header.measures)]:
        for entry in panels[0].variants:
            if entry.privacy is not None:
                fields = statement.privacy_fields(entry.privacy)
                single = [f"{value}." for key, value in fields if key.startswith("epsilon")]
                words = " ".join([statement.privacy(entry.privacy), *single])
                rows.append([f"{panels[0].collection}, {entry.label}", words])
    return rows


def _finding_rows(results: Results) -> list[list[str]]:
    return [[f.check.claim, f.verdict, *f.counts()] for f in results.findings]


def _notes(results: Results) -> list[str]:
    """What a reader must know to read the figures."""
    figure, repetitions = results.figure, results.repetitions
    variants, measures = results.panels[0].variants, figure.header.measures
    lines = []
    if repetitions > 1:
        folds = len({run.setting("data.fold") for run in variants[0].runs})
        spread = f"{folds} folds" if folds > 1 else "one fold"
        units = tested_units([e.against_first for panel in results.panels for e in panel.variants if e.against_first])
        over = f" over {units}" if units else ""
        lines.append(
            f"Mean ± standard deviation of {repetitions} runs (own seeds, {spread}). Below: difference from "
            f"{figure.variants[0].label}; two-tailed t-test{over}, p Bonferroni-corrected within a panel; "
            "△▽ p < .05, ▲▼ p < .01."
        )
    else:
        lines.append(f"One run each: no test. Below: difference from {figure.variants[0].label}.")
    if any(measure.startswith("offline") for measure in measures):
        skipped = statement.no_relevant(variants[0].runs[0])
        lines.append(f"Offline: the last ranker on the test queries; {skipped}.")
    if any(measure.startswith("online") and measure != ONLINE_DISCOUNTED for measure in measures):
        lines.append("Online: lists and clicks of the last tenth of the run.")
    if ONLINE_DISCOUNTED in measures:
        lines.append(
            "Discounted: Σ over rounds t of 0.9995ᵗ⁻¹ × the mean nDCG@10 of the lists shown in round t, from the first."
        )
    warnings = [e.privacy["warning"] for e in variants if e.privacy and "warning" in e.privacy]
    lines += [f"Privacy: {warning}." for warning in warnings[:1]]
    if results.findings:
        lines.append(
            "Findings: comparisons that come out as the paper says, those of them with p < .05 (Bonferroni over the "
            "finding), and those significantly the other way. Similar means within the margin; it is no test."
        )
    if figure.data is not None:
        lines.append(f"{figure.collections[0].label} stands for the figure's first collection, also in its findings.")
    return [*lines, QUICK_NOTE] if figure.quick else lines


def render_results(results: Results) -> Renderable:
    """Return the tables and notes for a terminal of 80 columns."""
    tables = []
    for panels in panel_rows(results):
        caption = f"{panels[0].collection}, {measure_title(panels[0].measure)}"
        labels = (results.figure.column_label(panel.column) for panel in panels)
        tables.append(terminal_table([caption, *labels], _table_rows(panels)))
    if rows := _privacy_rows(results):
        tables.append(terminal_table(PRIVACY, rows, left=(0, 1)))
    if results.findings:
        tables.append(terminal_table(FINDINGS, _finding_rows(results), left=(0, 1)))
    return terminal_report(results.figure, tables, _notes(results))


def html_report(results: Results, drawing: Drawing) -> str:
    """Return the page: paper, claim, what was measured, settings and data."""
    figure, body = results.figure, []
    if results.findings:
        body.append(page.section("Findings", page.table(FINDINGS, _finding_rows(results))))
    for panels in panel_rows(results):
        head = ["", *(figure.column_label(panel.column) for panel in panels)]
        name = f"{panels[0].collection}: {measure_title(panels[0].measure)}"
        body.append(page.section(name, page.table(head, _table_rows(panels))))
    if rows := _privacy_rows(results):
        body.append(page.section("Privacy", page.table(PRIVACY, rows)))
    body += [page.paragraph(note, "note") for note in _notes(results)]
    asked = " (as asked for, not as published)" if figure.asked_repetitions else ""
    settings = [("runs of each setting", f"{results.repetitions}{asked}")]
    for panels in panel_rows(results)[:: len(figure.header.measures)]:
        for entry in panels[0].variants:
            settings.append((f"{panels[0].collection}, {entry.label}", statement.what_was_run(entry.runs[0])))
    ends = [
        f"{panel.collection} {figure.column_label(panel.column)} {entry.label} {entry.mean:.3f}"
        for panel in results.panels
        for entry in panel.variants
    ]
    return html_page(figure, (f"{figure.title}; at the end: {', '.join(ends)}", drawing), body, settings)
