"""Pages of results that are drawn from data files."""

from __future__ import annotations

from pathlib import Path

from docsite.results import TABLES, reports, result_pages, result_pictures, write_pictures
from quorank.reproduce.figure import figure_names


def test_every_shipped_figure_has_measured_data_a_page_and_a_picture(tmp_path: Path) -> None:
    assert [report.figure.name for report in reports()] == sorted(
        figure_names(), key=lambda name: name.replace("/", "-")
    )
    pages = result_pages()
    listed = pages["results/figures/README.md"]
    for report in reports():
        page = pages[f"results/figures/{report.page_name}.md"]
        assert report.figure.command in page and f"[{report.figure.name}]({report.page_name}.md)" in listed
        assert all(f"## {table.title}\n" in page for table in report.all_tables if "*" not in table.title)
    (tmp_path / "results" / "figures").mkdir(parents=True)
    write_pictures(tmp_path)
    drawn = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.svg")
    }
    assert sorted(drawn) == sorted(result_pictures())
    assert all(text.count("<path") > 5 and "NaN" not in text and "nan" not in text for text in drawn.values())


def test_tables_show_their_commands() -> None:
    for path in TABLES:
        page = result_pages()[path]
        assert page.count("\n## ") > 10 and page.count("python benchmarks/") > 5
