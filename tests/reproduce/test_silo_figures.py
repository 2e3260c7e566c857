"""CS-F-LTR's table and figures: their files, what small versions measure, and the numbers behind the pictures."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from quorank.errors import BadInput
from quorank.files.codec import decode
from quorank.parts import Family
from quorank.reproduce import studies
from quorank.reproduce.studies import load_study
from quorank.reproduce.studies.embedding import STRATEGIES, CountEstimator, SketchedFeatures, auc, separability
from quorank.reproduce.studies.silos import SiloSweep, SiloTable, measure_by_parties
from quorank.reproduce.studies.sketches import SketchCurves
from quorank.reproduce.studies.study import StudyRequest
from quorank.silos.generated import Generator
from quorank.silos.holdings import generated_holdings
from quorank.silos.sketch.augmentation import Augment
from quorank.silos.sketch.published import PublishedSetting

STUDIES = {
    "cs-f-ltr/table1": SiloTable,
    "cs-f-ltr/figure4": SketchCurves,
    "cs-f-ltr/figure5": SketchedFeatures,
    "cs-f-ltr/figure6": SiloSweep,
}


@pytest.fixture(autouse=True)
def _only_these(monkeypatch):
    monkeypatch.setattr(studies, "study_family", lambda: Family("study", *STUDIES.values()))


def asked(tmp_path, repetitions=1, seen=None) -> StudyRequest:
    return StudyRequest(None, repetitions, tmp_path, lambda *step: seen.append(step) if seen is not None else None)


@pytest.mark.parametrize("name", STUDIES)
def test_every_figure_has_a_full_and_a_quick_version(name):
    full, quick = load_study(name), load_study(name, quick=True)
    assert type(full.part) is type(quick.part) is STUDIES[name]
    assert quick.header.repetitions <= full.header.repetitions
    assert full.header.claim and full.header.differs


def test_the_table_compares_all_methods_on_the_same_parties(tmp_path):
    seen = []
    part = SiloTable(parties=3, documents=90, labelled=2, asked=2, noise=(0.0, 0.5))
    measured = part.measure(asked(tmp_path, 1, seen))
    assert seen[-1] == (2, 2, "done")
    assert len(measured.tables) == 4  # two kinds of labels, two kinds of instances
    for sheet in measured.tables:
        names = [row[0] for row in sheet.rows]
        assert names[:4] == ["Local, A", "Local, B", "Local, C", "Local, average"]
        assert names[-3:] == ["Global", "CS-F-LTR", "BM25 of title and body"]
        values = {row[0]: float(row[2]) for row in sheet.rows}
        mean = np.mean([values[f"Local, {p}"] for p in "ABC"])
        assert values["Local, average"] == pytest.approx(mean, abs=1.1e-3)
    judged = [s for s in measured.tables if "judgements" in s.title]
    assert judged[0].rows[:4] == judged[1].rows[:4]  # what is not augmented does not depend on instances
    assert len([v for v in measured.findings if v.claim.startswith("CS-F-LTR")]) == 4
    assert len([v for v in measured.findings if "low quality" in v.claim]) == 2


def test_the_sweep_over_budgets_and_parties(tmp_path):
    part = SiloSweep(parties=2, documents=60, labelled=2, asked=2, epsilons=(0.5,), strict=(20.0,))
    measured = part.measure(asked(tmp_path))
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
    measured = part.measure(asked(tmp_path))
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
    measured = SketchedFeatures(pairs=60, documents=150).measure(asked(tmp_path))
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
