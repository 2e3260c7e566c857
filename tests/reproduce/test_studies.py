"""Figures that are studies: files and reports of any, CS-F-LTR's table and figures, the figures of the Firefox paper."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from study_requests import study_request

from quorank.errors import BadInput, require_range
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.files.codec import decode
from quorank.parts import Family
from quorank.reports.panels import Curve, Panel
from quorank.reproduce import studies
from quorank.reproduce.figure import PAPERS, read_shipped
from quorank.reproduce.report import ReportTable
from quorank.reproduce.studies import read_study, study_report
from quorank.reproduce.studies.embedding import STRATEGIES, CountEstimator, SketchedFeatures, auc, separability
from quorank.reproduce.studies.firefox import (
    FirefoxStudy,
    FirefoxTuning,
    estimate_results,
    loss_results,
    scaled_losses,
    tune_weights,
)
from quorank.reproduce.studies.silos import SiloSweep, SiloTable, measure_by_parties
from quorank.reproduce.studies.sketches import SketchCurves
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults
from quorank.silos.generated import Generator
from quorank.silos.holdings import generated_holdings
from quorank.silos.sketch.augmentation import Augment
from quorank.silos.sketch.published import PublishedSetting
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.studies.address_bar import People

SQUARES_FILE = """
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


@pytest.fixture
def only_squares(monkeypatch):
    monkeypatch.setattr(studies, "study_family", lambda: Family("study", Squares))


def read(text=SQUARES_FILE, **options):
    return read_study(parse_experiment_file(text, "test/tiny.toml"), **options)


@pytest.mark.usefixtures("only_squares")
def test_quick_settings_replace_those_of_the_full_version():
    assert read().part == Squares(points=5)
    assert read().header.repetitions == 3
    assert read(quick=True).part == Squares(points=2)
    assert read(quick=True).header.repetitions == 1
    assert read(quick=True, repetitions=7).header.repetitions == 7


@pytest.mark.usefixtures("only_squares")
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
        read(SQUARES_FILE.replace(before, after))


@pytest.mark.usefixtures("only_squares")
def test_everything_is_written_and_nothing_is_markup(tmp_path):
    study = read()
    asked, seen = study_request(tmp_path, 3)
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


STUDIES = {
    "cs-f-ltr/table1": SiloTable,
    "cs-f-ltr/figure4": SketchCurves,
    "cs-f-ltr/figure5": SketchedFeatures,
    "cs-f-ltr/figure6": SiloSweep,
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_figure_has_a_full_and_a_quick_version(name):
    full, quick = read_study(read_shipped(name)), read_study(read_shipped(name), quick=True)
    assert type(full.part) is type(quick.part) is STUDIES[name]
    assert quick.header.repetitions <= full.header.repetitions
    assert full.header.claim and full.header.differs


def test_the_table_compares_all_methods_on_the_same_parties(tmp_path):
    request, seen = study_request(tmp_path)
    part = SiloTable(parties=3, documents=90, labelled=2, asked=2, noise=(0.0, 0.5))
    measured = part.measure(request)
    assert seen[-1] == (2, 2, "done")
    assert len(measured.tables) == 4  # two kinds of labels, two kinds of instances
    for sheet in measured.tables:
        names = [row[0] for row in sheet.rows]
        assert names[:4] == ["Local, party A", "Local, party B", "Local, party C", "Local, average"]
        assert names[-3:] == ["Global", "CS-F-LTR", "BM25 of title and body"]
        values = {row[0]: float(row[2]) for row in sheet.rows}
        mean = np.mean([values[f"Local, party {p}"] for p in "ABC"])
        assert values["Local, average"] == pytest.approx(mean, abs=1.1e-3)
    judged = [s for s in measured.tables if "judgements" in s.title]
    assert judged[0].rows[:4] == judged[1].rows[:4]  # what is not augmented does not depend on instances
    assert len([v for v in measured.findings if v.claim.startswith("CS-F-LTR")]) == 4
    assert len([v for v in measured.findings if "low quality" in v.claim]) == 2


@pytest.mark.nightly
def test_the_sweep_over_budgets_and_parties(tmp_path):
    part = SiloSweep(parties=2, documents=60, labelled=2, asked=2, epsilons=(0.5,), strict=(20.0,))
    measured = part.measure(study_request(tmp_path)[0])
    assert [chart.title for chart in measured.charts] == ["privacy budget", "number of parties"]
    assert list(measured.charts[1].curves[1].x) == [1.0, 2.0]
    assert [row[0] for row in measured.tables[0].rows] == ["no noise", "published, ε = 0.5", "strict, ε = 20"]
    assert {v.holds for v in measured.findings} == {None}  # one trial is no test


def test_all_parties_are_tested_however_many_train():
    parties = generated_holdings(Generator(parties=3, documents=100, queries=14), seed=1)
    found = measure_by_parties(parties, PublishedSetting(labelled=(2,), asked=2, augment=Augment()), seed=1)
    assert list(found) == [1, 2, 3]
    assert len({figures["ndcg@10"] for figures in found.values()}) == 3


def test_the_curves_of_sketches(tmp_path):
    part = SketchCurves(
        documents=200, length=40, terms=8, alpha=(1.0, 5.0), beta=(0.1, 0.9), k=(10,), columns=(200,), rows=(30,)
    )
    measured = part.measure(study_request(tmp_path)[0])
    assert [chart.title[-1] for chart in measured.charts] == ["α", "β", "K", "w", "z"]
    for chart in measured.charts:
        for line in chart.curves:
            assert all(0.0 <= y <= 1.0 for y in line.mean)
    ours = next(line for line in measured.charts[0].curves if line.label == "recommended")
    assert min(ours.mean) > 0.95


def test_separability_is_an_area_under_the_curve():
    random = np.random.default_rng(1)
    scores, positive = random.normal(size=300).round(1), random.random(300) < 0.4
    assert auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    features = random.normal(size=(400, 5))
    assert separability(features, features[:, 2] > 0.3) > 0.97
    assert abs(separability(features, random.random(400) < 0.5) - 0.5) < 0.1


def test_wide_sketches_estimate_exactly_and_narrow_ones_do_not(tmp_path):
    party = generated_holdings(Generator(parties=2, documents=30, queries=3), seed=1)[0]
    index, terms = party.documents.body, tuple(party.documents.body.vocabulary[:40])
    exact = index.counts_of([3], index.term_ids(terms))[0]
    titles = {s.title: s for s in STRATEGIES}
    assert CountEstimator(index, titles["without sketch"], 1).counts(3, terms).tolist() == exact.tolist()
    assert (CountEstimator(index, titles["Count-Min, w = 200"], 1).counts(3, terms) >= exact).all()
    errors = [
        np.abs(CountEstimator(index, titles[f"Count Sketch, {name}"], 1).counts(3, terms) - exact).mean()
        for name in ("w = 200, z1 = 30", "w = 10")
    ]
    assert errors[0] < errors[1]


def test_the_embedding_has_a_panel_and_a_number_for_each_strategy(tmp_path):
    measured = SketchedFeatures(pairs=60, documents=150).measure(study_request(tmp_path)[0])
    assert len(measured.charts) == len(measured.tables[0].rows) == len(STRATEGIES)
    for chart in measured.charts:
        assert sum(len(line.x) for line in chart.curves) == 60


@pytest.mark.parametrize(
    ("study", "fields", "words"),
    [
        (SiloTable, {"parties": 1}, "parties: must be at least 2"),
        (SiloTable, {"noise": []}, "noise"),
        (SiloSweep, {"epsilons": [0.0]}, "epsilons.0: must be"),
        (SketchCurves, {"documents": 10}, "documents: must be at least 100"),
        (SketchedFeatures, {"pairs": 3}, "pairs: must be at least 40"),
    ],
)
def test_settings_that_cannot_be(study, fields, words):
    with pytest.raises(BadInput, match=words):
        decode(study, fields)


FILES = [PAPERS / "firefox" / f"{name}.toml" for name in ("figure4", "figure5", "figure7")]
SMALL = {"iterations": 6, "updates": 300, "sample": 100, "samples": 4, "clients": 300}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_small_version_of_every_figure(file: Path, tmp_path: Path) -> None:
    table = tomllib.loads(file.read_text())
    for settings in (table["study"], table["study"] | table["quick"]["study"], table["study"] | SMALL):
        part = Family("study", FirefoxStudy).read(settings, "study")
    question, seen = study_request(tmp_path)
    found = part.measure(question)
    assert seen == [(n, 6, "iterations") for n in range(1, 7)]
    assert found.findings and (found.charts or found.tables)
    json.dumps(found.numbers, allow_nan=False)


def test_a_tuning_is_the_same_each_time_and_improves_on_the_shipped_weights() -> None:
    one, two = (tune_weights(3, People(), 12, 400) for _ in range(2))
    assert np.array_equal(one.weights, two.weights) and one.loss == two.loss
    assert one.accuracy["treatment"][-1] > one.accuracy["control"][-1] + 0.1
    assert np.array_equal(one.weights[0], FRECENCY.shipped) and len(one.weights) == 13


def test_multiplied_weights_lower_the_loss_and_change_no_list() -> None:
    (_, whole, same), _, (_, smaller, still) = scaled_losses(1, People(), 500)
    assert same == still and smaller < whole / 2


def test_samples_of_everything_are_everything() -> None:
    tuning = tune_weights(1, People(), 2, 200, sample=200, samples=2)
    assert tuning.distance == [0, 0] and tuning.agreement == [1, 1]


def made(loss: float, accuracy: float, distance: list[float], length: list[float]) -> FirefoxTuning:
    arms = {"treatment": loss, "control": 10.0, "control-no-decay": 10.0}
    return FirefoxTuning(
        [FRECENCY.shipped],
        {arm: [10.0, value] for arm, value in arms.items()},
        {arm: [accuracy, accuracy] for arm in arms},
        distance,
        [0.0, 0.0],
        length,
        [1.0, 1.0],
    )


def test_findings_follow_the_numbers() -> None:
    shrunk = [(1.0, 9.0, 0.5), (0.1, 1.0, 0.5)]
    better = loss_results([made(1.0, 0.5, [], [])], shrunk).findings
    assert [v.holds for v in better] == [True, True, False]
    worse = loss_results([made(30.0, 0.5, [], [])], [(1.0, 9.0, 0.5), (0.1, 9.0, 0.5)]).findings
    assert [v.holds for v in worse] == [False, False, True]
    steady = estimate_results([made(1, 1, [8.0, 2.0], [10.0, 10.0])], 5).findings
    assert [v.holds for v in steady] == [True, True]
    shrinking = estimate_results([made(1, 1, [8.0, 2.0], [10.0, 1.0])], 5).findings
    assert [v.holds for v in shrinking] == [True, False]


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    for fields in ({"iterations": 1}, {"updates": 2}, {"sample": 0}, {"samples": 1}, {"clients": 3}):
        with pytest.raises(BadInput, match=next(iter(fields))):
            decode(FirefoxStudy, fields)
    with pytest.raises(BadInput, match="--data"):
        FirefoxStudy().measure(study_request(tmp_path, data="mq2008")[0])
