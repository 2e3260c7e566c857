"""Pages and pictures of docs/results/ that are drawn from measured data: the papers' figures, and tables of benchmarks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from quorank.reproduce.record import read_record, read_tables
from quorank.reproduce.report import FigureReport, index_markdown

ROOT = Path(__file__).parents[1]
FIGURES = "results/figures"
TABLES = {
    "results/robustness-tables.md": (
        "# Robustness: all tables",
        "",
        "Losses under every measured attack, and the thesis's figures at full size, with the commands that print them. "
        "[Robustness](robustness.md) says what follows from them.",
        "",
    )
}
"""First lines of each page of tables; its data file has the same name and ends in .json."""


@cache
def reports() -> tuple[FigureReport, ...]:
    """Return the reports of all measured figures, sorted by name."""
    return tuple(read_record(path) for path in sorted((ROOT / "docs" / FIGURES).glob("*.json")))


def result_pages() -> dict[str, str]:
    """Return the generated pages of results by their path below docs/."""
    figures = {f"{FIGURES}/{report.page_name}.md": report.markdown() for report in reports()}
    tables = {path: _tables_page(path) for path in TABLES}
    return {f"{FIGURES}/README.md": index_markdown(reports()), **figures, **tables}


def result_pictures() -> list[str]:
    """Return the paths below docs/ of the pictures that `write_pictures` writes."""
    return [f"{FIGURES}/{report.page_name}.svg" for report in reports() if report.panels]


def write_pictures(docs: Path) -> None:
    """Write the pictures of all figures below a copy of docs/."""
    for report in reports():
        report.write_panels(docs / FIGURES)


def _tables_page(path: str) -> str:
    file = (ROOT / "docs" / path).with_suffix(".json")
    return "\n".join([*TABLES[path], *(line for table in read_tables(file) for line in table.markdown())])
