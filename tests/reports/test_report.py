"""Reports as pages: well formed, self-contained, complete, and harmless whatever a run is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from html_pages import Seen
from made_up_runs import load_run, load_runs

from quorank.reports.comparison import group_runs, write_comparison
from quorank.reports.report import write_report

PRIVATE = {"kind": "gaussian", "epsilon": 2.0, "delta": 1e-5, "unit": "client", "horizon": "whole run", "clip": 0.05}


def page_of(path: Path) -> Seen:
    """A page that loads nothing from anywhere."""
    text = path.read_text(encoding="utf-8")
    page = Seen(text)
    assert page.is_sound
    assert "http:" not in text and "https:" not in text and "url(http" not in text and "@import" not in text
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    for name, value in (pair for _, attributes in page.elements for pair in attributes.items()):
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href"):
            assert (value or "").startswith("#")
    return page


def test_a_report_says_everything(make_run, tmp_path: Path) -> None:
    folder = make_run("my-run", seed=7, fold=2)
    path = write_report(folder, tmp_path / "report.html")
    page = page_of(path)
    run = load_run(folder)
    for words in (
        "my-run",
        "1,000 clients with 4 interactions each per round learned a linear ranker",
        f"{run.figure('offline', 'ndcg@10'):.4f}",
        f"{run.figure('offline', 'maxrr'):.4f}",
        f"{run.figure('online', 'ndcg@10'):.4f}",
        f"{run.figure('online', 'discounted'):.2f}",
        "312,346 interactions per second",
        "12.3 s",
        "queries without a relevant document are skipped",
        "Offline nDCG@10",
        "Online nDCG@10",
        "No privacy mechanism: updates were sent unprotected.",
        "/run.toml --out again",
        "Quorank 0.1.0, seed 7",
        'source = "synthetic:mq2007"',
    ):
        assert words in page.words
    assert page.tags.count("figure") == 4
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_bytes(make_run, tmp_path: Path) -> None:
    run = load_run(make_run())
    one, other = write_report(run, tmp_path / "1.html"), write_report(run, tmp_path / "2.html")
    assert one.read_bytes() == other.read_bytes()
    page_of(one)


def test_privacy_is_stated_with_unit_delta_and_horizon(make_run, tmp_path: Path) -> None:
    page = page_of(write_report(make_run(privacy=PRIVATE), tmp_path / "r.html"))
    assert "Gaussian: ε = 2 at δ = 1e-05 (unit: client; horizon: whole run)." in page.words
    assert "clip 0.05" in page.words


def test_nasty_names_are_only_names(make_run, tmp_path: Path) -> None:
    nasty = "<script>alert(1)</script>&\\\" onload='x'"
    privacy = PRIVATE | {"kind": "<img src=x onerror=alert(1)>", "<b>": "<i>"}
    folder = make_run("<script>alert('run')<", source=nasty, privacy=privacy)
    path = write_report(folder, tmp_path / "r.html")
    page = page_of(path)
    assert "<script" not in path.read_text(encoding="utf-8")
    assert "<script>alert(1)</script>" in page.words
    groups = group_runs(load_runs([folder, make_run("other", source="$\\\\frac")]))
    comparison = write_comparison(groups, tmp_path / "c.html")
    page_of(comparison)
    assert "<script" not in comparison.read_text(encoding="utf-8")


def test_a_comparison_shows_settings_figures_and_runs(make_grid, tmp_path: Path) -> None:
    groups = group_runs(load_runs([make_grid(seeds=3)]))
    path = write_comparison(groups, tmp_path / "c.html")
    page = page_of(path)
    for words in (
        "2 settings, 6 runs",
        "users.preset=navigational",
        "B − A",
        "Bonferroni-corrected for 1 comparison",
        "queries without a relevant document are skipped",
        "bands one standard deviation",
        "perfect-1 (seed 1, fold 1)",
        "No privacy mechanism",
    ):
        assert words in page.words
    assert page.tags.count("figure") == 4


def test_a_comparison_of_one_setting_has_no_differences(make_grid, tmp_path: Path) -> None:
    groups = group_runs(load_runs([make_grid(presets=("perfect",), seeds=2)]))
    page = page_of(write_comparison(groups, tmp_path / "c.html"))
    assert "1 setting, 2 runs" in page.words
    assert "Differences" not in page.words


def test_a_report_appears_whole_or_not_at_all(make_run, tmp_path: Path, monkeypatch) -> None:
    folder, target = make_run(), tmp_path / "r.html"
    write_report(folder, target)
    before = target.read_bytes()

    def broken(self: Path, other: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_report(folder, target)
    assert target.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "run"]
