"""The study of thesis chapter 6: its runs are the thesis's, its curves end where the commands do, findings are counted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_requests import study_request

from quorank.errors import BadInput
from quorank.experiments.experiment_file import read_experiment_file
from quorank.experiments.unlearning.request import Unlearning
from quorank.federation.attacks import SignFlip
from quorank.files.codec import decode
from quorank.reproduce.figure import PAPERS
from quorank.reproduce.studies.unlearning import (
    METHODS,
    UnlearningCase,
    UnlearningRuns,
    UnlearningStudy,
    configuration_results,
    effort_results,
    rebuilding_results,
    stretched,
)

SMALL = UnlearningStudy(sources=("synthetic:mq2007",), queries=60, presets=("perfect",), clients=5, rounds=60, points=6)
FIGURES = {"figure6.2": "configurations", "figure6.3": "rebuilding", "table6.2": "effort"}


@pytest.mark.parametrize("name", FIGURES)
def test_files_are_the_thesis_s_settings(name: str) -> None:
    tables = read_experiment_file(PAPERS / "thesis" / f"{name}.toml").tables
    study = {k: v for k, v in tables["study"].items() if k != "kind"}
    part = decode(UnlearningStudy, study, "study")
    assert tables["study"]["kind"] == part.kind and part.shows == FIGURES[name]
    assert (part.clients, part.interactions, part.rounds, part.z) == (10, 5, 10_000, 2.0)
    assert part.presets == ("perfect", "navigational", "informational")
    if name == "table6.2":
        assert part.intervals == (5, 10, 20) and set(part.local_steps) >= {1, 2, 3, 4}
    else:
        assert (part.intervals, part.local_steps) == ((10,), (3,))
    quick = decode(UnlearningStudy, study | tables["quick"]["study"], "study")
    assert replace(quick, sources=part.sources, rounds=1, queries=1, points=1) == replace(
        part, rounds=1, queries=1, points=1
    )


def runs(folder: Path, repetition: int = 3, **changes: Any) -> UnlearningRuns:
    study = replace(SMALL, shows="configurations", intervals=(10, 20), local_steps=(1, 3))
    return UnlearningRuns(replace(study, **changes), "synthetic:mq2007", "perfect", repetition, 1, folder)


def test_the_leaver_sends_minus_z_theta_and_the_others_keep_what_is_needed(tmp_path: Path) -> None:
    malicious, honest = runs(tmp_path).experiment(True), runs(tmp_path).experiment(False)
    assert malicious.federation.attack == SignFlip(clients=1, z=2.0) and malicious.keep_every == 10
    assert honest.federation.attack is None and honest.keep_every == 0
    assert replace(malicious, federation=replace(malicious.federation, attack=None), keep_every=0) == honest


@pytest.mark.usefixtures("no_pages")
def test_curves_end_where_the_command_does(tmp_path: Path) -> None:
    comparison = runs(tmp_path / "cell")
    figures = comparison.figures()
    assert set(figures["rebuilt"]) == {f"{m} {dt} {n}" for m in METHODS for dt in (10, 20) for n in (1, 3)}
    run = tmp_path / "cell" / "9H-1M"
    for name in ("9H-1M", "10H-0M"):
        summary = json.loads((tmp_path / "cell" / name / "summary.json").read_text())
        assert figures[name]["y"][-1] == summary["offline"]["ndcg@10"]
    for name in ("9H-1M", "10H-0M", "9H-0M"):
        assert figures[name]["x"] == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    for method in METHODS:
        own = method == "stretched"
        request = Unlearning(run, (0,), 20, 3, method="published" if own else method)
        rebuilt = stretched(request) if own else request.rebuilt
        assert figures["rebuilt"][f"{method} 20 3"]["y"][-1] == request.ndcg(rebuilt.theta)[0]
        assert figures["rebuilt"][f"{method} 20 3"]["x"] == [1.0, 2.0, 3.0]
    retrained, _ = request.retrained()
    assert figures["9H-0M"]["y"][-1] == request.ndcg(retrained)[0]
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert runs(tmp_path / "cell").figures() == figures
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before, "done twice"
    other = runs(tmp_path / "cell", 4, intervals=(10,), local_steps=(1,)).figures()
    assert other["9H-1M"] != figures["9H-1M"], "runs of another setting must not be taken"


@pytest.mark.parametrize("shows", FIGURES.values())
@pytest.mark.usefixtures("no_pages")
def test_a_study_counts_its_work_and_shows_every_cell(tmp_path: Path, shows: str) -> None:
    study = replace(SMALL, shows=shows, intervals=(10, 30), local_steps=(1, 5))  # type: ignore[arg-type]
    task, seen = study_request(tmp_path, 2)
    measured = study.measure(task)
    assert [step[:2] for step in seen] == [(0, 2), (1, 2), (2, 2)]
    assert len(measured.charts) == (0 if shows == "effort" else 1) and len(measured.tables) == 1
    assert all(math.isfinite(y) for chart in measured.charts for line in chart.curves for y in line.mean)
    for line in (line for chart in measured.charts for line in chart.curves):
        assert line.spread is not None and len(line.spread) == len(line.mean)
    json.dumps(dict(measured.numbers), allow_nan=False)
    assert measured.findings and all(isinstance(v.holds, bool) for v in measured.findings)


def cell(before: float, honest: float, retrained: float, rebuilt: dict[str, float]) -> UnlearningCase:
    def curve(end: float) -> dict[str, list[float]]:
        return {"x": [1.0, 2.0], "y": [0.3, end]}

    figures = {"9H-1M": curve(before), "10H-0M": curve(honest), "9H-0M": curve(retrained)}
    return UnlearningCase("data", "perfect", ({**figures, "rebuilt": {k: curve(v) for k, v in rebuilt.items()}},))


def test_findings_follow_from_the_ends_of_the_curves() -> None:
    study = UnlearningStudy(rounds=1000)
    ends = {"published 10 3": 0.59, "stretched 10 3": 0.595, "fresh 10 3": 0.62}
    good, bad = cell(0.5, 0.6, 0.601, ends), cell(0.61, 0.6, 0.62, ends)
    assert [v.holds for v in configuration_results([good]).findings] == [True, True]
    assert [v.holds for v in configuration_results([good, bad]).findings] == [False, False]
    # published ends 1.8 % below 0.601, stretched 0.998 %, fresh above
    assert [v.holds for v in rebuilding_results(study, [good]).findings] == [True, False, True, True, True, True]
    assert "0 of 1; it ends −1.8 to −1.8 % away" in rebuilding_results(study, [good]).findings[1].seen
    assert [v.holds for v in rebuilding_results(study, [bad]).findings] == [False, False, False, False, True, True]


def test_the_table_compares_efforts_and_judges_those_that_stay_below_a_tenth() -> None:
    study = UnlearningStudy(rounds=1000, intervals=(5, 10, 20), local_steps=(1, 5))
    assert study.share(10, 5) == pytest.approx(0.1) and study.share(20, 1) == pytest.approx(0.01)
    ends = {f"{m} {dt} {n}": 0.6 + 0.01 * n - 0.001 * dt for m in METHODS for dt in (5, 10, 20) for n in (1, 5)}
    measured = effort_results(study, [cell(0.5, 0.6, 0.65, ends)])
    assert len(measured.findings) == 3 * 2 + 3
    assert all(v.holds for v in measured.findings[:6])
    assert [v.holds for v in measured.findings[6:]] == [False] * 3  # 0.64 is 1.5 % below 0.65
    assert all("Δt = 10, n′ = 5" in v.claim for v in measured.findings[6:])
    assert measured.tables[0].head[-3:] == ("Δt = 5", "Δt = 10", "Δt = 20")
    assert np.allclose([float(x) for x in measured.tables[0].rows[1][3:]], [0.605, 0.6, 0.59])


@pytest.mark.parametrize(
    "wrong", [{"local_steps": (6,)}, {"local_steps": []}, {"intervals": (0,)}, {"presets": ("lazy",)}, {"clients": 1}]
)
def test_studies_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        decode(UnlearningStudy, wrong)
