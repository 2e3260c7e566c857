"""Figures that are studies: their files, what they write, and how mistakes are told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest

from quorank.errors import BadInput, require_range
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.parts import Family
from quorank.reports.panels import Curve, Panel
from quorank.reproduce import studies
from quorank.reproduce.report import ReportTable
from quorank.reproduce.studies import read_study, study_report
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults

FILE = """
[figure]
title = "Squares <of> $x$"
about = "squares"
paper = "Nobody, figure 1"
claim = "squares grow"
repetitions = 3
[study]
kind = "squares"
points = 5
[quick]
repetitions = 1
study = { points = 2 }
"""


@dataclass(frozen=True)
class Squares:
    """x² for a few x."""

    kind: ClassVar[str] = "squares"

    points: int = 3

    def __post_init__(self) -> None:
        require_range("points", self.points, above=0)

    def measure(self, asked: StudyRequest) -> StudyResults:
        x = [float(i) for i in range(self.points)]
        asked.progress(self.points, self.points, "squares")
        lines = (Curve.of_means("x²", x, [v * v for v in x], [0.1] * self.points), Curve.of_means("$x$", x, x))
        charts = (Panel("up", "x", "y", lines), Panel("marks", "x", "y", lines, form="points"))
        sheet = ReportTable("last", ("x", "x²"), ((str(x[-1]), str(x[-1] ** 2)),))
        return StudyResults(charts, (sheet,), (StudyFinding("they grow", True, "1 < 4"),), ("a note",), {"last": x[-1]})


@pytest.fixture(autouse=True)
def _only_squares(monkeypatch):
    monkeypatch.setattr(studies, "study_family", lambda: Family("study", Squares))


def read(text=FILE, **options):
    return read_study(parse_experiment_file(text, "tiny.toml"), "test/tiny", **options)


def test_quick_settings_replace_those_of_the_full_version():
    assert read().part == Squares(points=5)
    assert read().header.repetitions == 3
    assert read(quick=True).part == Squares(points=2)
    assert read(quick=True).header.repetitions == 1
    assert read(quick=True, repetitions=7).header.repetitions == 7


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("points = 5", "points = 0", "tiny.toml line 10: study.*points: must be above 0, got 0"),
        ("points = 5", "point = 5", "tiny.toml line 10"),
        ('kind = "squares"', 'kind = "cubes"', "unknown study 'cubes'"),
        ("[quick]", "[quack]", "unknown key 'quack'"),
        ("study = { points = 2 }", "studies = 1", "quick.studies: unknown key 'studies'"),
    ],
)
def test_mistakes_name_file_and_place(before, after, words):
    with pytest.raises(BadInput, match=words.replace("(", r"\(")):
        read(FILE.replace(before, after))


def test_everything_is_written_and_nothing_is_markup(tmp_path):
    study = read()
    seen = []
    asked = StudyRequest(None, 3, tmp_path, lambda *step: seen.append(step))
    measured = study.part.measure(asked)
    study_report(study, measured).write(tmp_path)
    assert seen == [(5, 5, "squares")]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["numbers"] == {"last": 4.0}
    assert results["charts"][0]["lines"][0]["y"] == [0.0, 1.0, 4.0, 9.0, 16.0]
    assert results["findings"] == [{"claim": "they grow", "holds": True, "seen": "1 < 4"}]
    page = (tmp_path / "report.html").read_text()
    assert "Squares &lt;of&gt; $x$" in page
    assert ">holds<" in page and "1 &lt; 4" in page
    assert "quorank reproduce test/tiny" in page
    assert (tmp_path / "figure.svg").stat().st_size > 4000


def test_a_terminal_of_80_columns_holds_the_tables():
    from rich.console import Console

    study = read(quick=True)
    console = Console(width=80, record=True)
    measured = study.part.measure(StudyRequest(None, 1, None, lambda *_: None))
    console.print(study_report(study, measured).terminal())
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "Quick version" in text
