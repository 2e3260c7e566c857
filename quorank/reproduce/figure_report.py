"""A reproduced figure for people: the table of a terminal, and a page that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quorank import __version__
from quorank.experiments import run_directory as storage
from quorank.experiments.finished_run import ONLINE_DISCOUNTED
from quorank.files import write_whole
from quorank.metrics.significance import Difference
from quorank.reports import page, statement
from quorank.reports.comparison import p_text
from quorank.reports.curves import save, svg
from quorank.reproduce.figure_plot import draw
from quorank.reproduce.figure_results import Entry, PanelResult, Results, as_dict, measure_title

if TYPE_CHECKING:
    from rich.console import Group as Renderable

RESULTS, REPORT = "results.json", "report.html"
DRAWINGS = ("figure.png", "figure.svg")
PRIVACY = ("privacy", "what the ledger states")
FINDINGS = ("the paper's findings", "here", "as said", "p < .05", "opposite\np < .05")


def write_all(results: Results, folder: Path, command: str) -> None:
    """Figure, results and report into the figure's directory."""
    drawing = draw(results)
    for name in DRAWINGS:
        save(drawing, folder / name)
    write_whole(folder / RESULTS, storage.json_bytes(as_dict(results)))
    write_whole(folder / REPORT, html(results, svg(drawing, "figure"), command).encode())


def rows_of(results: Results) -> list[Sequence[PanelResult]]:
    """The panels of each row of the figure."""
    columns = len(results.figure.columns)
    return [results.panels[i : i + columns] for i in range(0, len(results.panels), columns)]


def cells_of(panels: Sequence[PanelResult]) -> list[list[str]]:
    """A row per variant: its label, then per panel the final value and below it the difference."""
    variants = zip(*(panel.entries for panel in panels), strict=True)
    digits = 2 if panels[0].measure == ONLINE_DISCOUNTED else 4
    return [[entries[0].label, *(_cell(entry, digits) for entry in entries)] for entries in variants]


def _cell(entry: Entry, digits: int) -> str:
    sd = "" if entry.sd is None else f" ±{entry.sd:.{digits}f}"
    value = f"{entry.mean:.{digits}f}{sd}"
    if entry.against_first is None:
        return value
    return f"{value}\n{difference_text(entry.against_first, digits)}"


def privacy_rows(results: Results) -> list[list[str]]:
    """A row per collection and variant with a privacy mechanism: what it gives one client, by the ledger."""
    figure, rows = results.figure, []
    for panels in rows_of(results)[:: len(figure.header.measures)]:
        for entry in panels[0].entries:
            if entry.privacy is not None:
                fields = statement.privacy_fields(entry.privacy)
                single = [f"{value}." for key, value in fields if key.startswith("epsilon")]
                words = " ".join([statement.privacy(entry.privacy), *single])
                rows.append([f"{panels[0].collection}, {entry.label}", words])
    return rows


def difference_text(difference: Difference, digits: int = 4) -> str:
    """+0.0123 p=.003 ▲; no p where there was one run."""
    value = f"{difference.difference:+.{digits}f}".replace("-", "−")
    return (
        value
        if difference.p is None
        else f"{value} {p_text(difference).replace('p = ', 'p=').replace('p < ', 'p<')}"
    )


def notes(results: Results) -> list[str]:
    """What a reader must know to read the figures."""
    figure, repetitions = results.figure, results.repetitions
    first = results.panels[0].entries[0].runs[0]
    summed = ONLINE_DISCOUNTED in figure.header.measures
    online = any(
        measure.startswith("online") for measure in figure.header.measures if measure != ONLINE_DISCOUNTED
    )
    offline = any(measure.startswith("offline") for measure in figure.header.measures)
    lines = []
    if repetitions > 1:
        folds = len({run.setting("data.fold") for run in results.panels[0].entries[0].runs})
        spread = f"{folds} folds" if folds > 1 else "one fold"
        lines.append(
            f"Mean ± standard deviation of {repetitions} runs (own seeds, {spread}). Below: difference from "
            f"{figure.variants[0].label}; two-tailed paired t-test, p Bonferroni-corrected within a panel; "
            "△▽ p < .05, ▲▼ p < .01."
        )
    else:
        lines.append(f"One run each: no test. Below: difference from {figure.variants[0].label}.")
    if offline:
        lines.append(f"Offline: the last ranker on the test queries; {statement.no_relevant(first)}.")
    if online:
        lines.append("Online: lists and clicks of the last tenth of the run.")
    if summed:
        lines.append(
            "Discounted: Σ over rounds t of 0.9995ᵗ⁻¹ × the mean nDCG@10 of the lists shown in round t, from the first."
        )
    warnings = [
        e.privacy["warning"] for e in results.panels[0].entries if e.privacy and "warning" in e.privacy
    ]
    lines += [f"Privacy: {warning}." for warning in warnings[:1]]
    if results.findings:
        lines.append(
            "Findings: comparisons that come out as the paper says, those of them with p < .05 (Bonferroni over the "
            "finding), and those significantly the other way. Similar means within the margin; it is no test."
        )
    if figure.data is not None:
        lines.append(
            f"{figure.collections[0].label} stands for the figure's first collection, also in its findings."
        )
    if figure.quick:
        lines.append("Quick version: smaller than the paper's experiment; trends, not results.")
    return lines


def renderable(results: Results) -> Renderable:
    """All of it for a terminal of 80 columns."""
    from rich import box
    from rich.console import Group as Renderable
    from rich.console import RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    figure = results.figure
    parts: list[RenderableType] = [Text(f"{figure.name}: {figure.title}", style="bold")]
    for panels in rows_of(results):
        caption = f"{panels[0].collection}, {measure_title(panels[0].measure)}"
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        table.add_column(Text(caption), overflow="fold")
        for panel in panels:
            table.add_column(Text(figure.column_label(panel.column)), justify="right", overflow="fold")
        for row in cells_of(panels):
            table.add_row(*map(Text, row))
        parts.append(table)
    if rows := privacy_rows(results):
        told = Table(*PRIVACY, box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for row in rows:
            told.add_row(*map(Text, row))
        parts.append(told)
    if results.findings:
        found = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        found.add_column(FINDINGS[0])
        for name in FINDINGS[1:]:
            found.add_column(name, justify="left" if name == "here" else "right")
        for finding in results.findings:
            found.add_row(Text(finding.check.claim), finding.verdict, *finding.counts())
        parts.append(found)
    return Renderable(*parts, *[Padding(Text(note, style="dim"), (0, 1)) for note in notes(results)])


def html(results: Results, drawing: str, command: str) -> str:
    """The report: paper, claim, what was measured, settings and data."""
    figure, header = results.figure, results.figure.header
    title = f"{figure.name}: {figure.title}"
    body = [
        page.header("Quorank reproduces", title, header.claim),
        page.section(
            "The paper",
            page.paragraph(f"{header.paper}. The sentence above is what it found."),
            page.paragraph(header.differs, "note"),
        ),
        page.section("What we measured", page.plots([(_alt(results), drawing)])),
    ]
    if results.findings:
        rows = [[f.check.claim, f.verdict, *f.counts()] for f in results.findings]
        body.append(page.section("Findings", page.table(FINDINGS, rows)))
    for panels in rows_of(results):
        head = ["", *(figure.column_label(panel.column) for panel in panels)]
        name = f"{panels[0].collection}: {measure_title(panels[0].measure)}"
        body.append(page.section(name, page.table(head, cells_of(panels))))
    if rows := privacy_rows(results):
        body.append(page.section("Privacy", page.table(PRIVACY, rows)))
    body += [page.paragraph(note, "note") for note in notes(results)]
    body.append(page.section("Settings", page.facts(_settings(results))))
    body.append(page.section("Do it again", page.code(command)))
    body.append(page.footer(f"Run with Quorank {__version__}. This file loads nothing and runs no script."))
    return page.page(f"{title} · Quorank", body)


def _settings(results: Results) -> list[tuple[str, str]]:
    figure = results.figure
    size = "quick: smaller than published" if figure.quick else "as published"
    asked = " (as asked for, not as published)" if figure.asked else ""
    facts = [("size", size), ("runs of each setting", f"{results.repetitions}{asked}")]
    for panels in rows_of(results)[:: len(figure.header.measures)]:
        for entry in panels[0].entries:
            run = entry.runs[0]
            facts.append((f"{panels[0].collection}, {entry.label}", statement.what_was_run(run)))
    return facts


def _alt(results: Results) -> str:
    ends = [
        f"{panel.collection} {results.figure.column_label(panel.column)} {entry.label} {entry.mean:.3f}"
        for panel in results.panels
        for entry in panel.entries
    ]
    return f"{results.figure.title}; at the end: {', '.join(ends)}"
