"""The figures of the Firefox paper: small versions run, and their findings come from what was measured."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from quorank.errors import BadInput
from quorank.files.codec import decode
from quorank.parts import Family
from quorank.reproduce.figure import PAPERS
from quorank.reproduce.studies.firefox import (
    MARGIN,
    FirefoxStudy,
    FirefoxTuning,
    estimate_results,
    generate_searches,
    loss_and_accuracy,
    loss_results,
    rolling,
    scaled_losses,
    tune_weights,
)
from quorank.reproduce.studies.study import StudyRequest
from quorank.tuning.heuristics.frecency import FRECENCY
from quorank.tuning.studies.address_bar import People

FILES = [PAPERS / "firefox" / f"{name}.toml" for name in ("figure4", "figure5", "figure7")]
SMALL = {"iterations": 6, "updates": 300, "sample": 100, "samples": 4, "clients": 300}


def asked(folder: Path, data: str | None = None) -> tuple[StudyRequest, list[tuple[int, int, str]]]:
    seen: list[tuple[int, int, str]] = []
    return StudyRequest(data, 1, folder, lambda *step: seen.append(step)), seen


def test_rolling_by_hand() -> None:
    assert rolling([5.0, 1.0, 3.0, 3.0, 3.0, 0.0]).tolist() == [5, 3, 3, 3, 3, 2]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_small_version_of_every_figure(file: Path, tmp_path: Path) -> None:
    table = tomllib.loads(file.read_text())
    for settings in (table["study"], table["study"] | table["quick"]["study"], table["study"] | SMALL):
        part = Family("study", FirefoxStudy).read(settings, "study")
    question, seen = asked(tmp_path)
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


def test_a_report_by_hand() -> None:
    items, idle = generate_searches(1, 0, 50, People())
    assert len(idle) == len(items.visits)
    scores = np.random.default_rng(0).normal(0, 100, len(idle))
    total = right = 0.0
    for a, b, chosen in zip(items.offsets, items.offsets[1:], items.chosen, strict=False):
        block = scores[a:b]
        total += sum(max(0.0, s + MARGIN - block[chosen]) for j, s in enumerate(block) if j != chosen)
        right += block.argmax() == chosen
    assert loss_and_accuracy(scores, items) == pytest.approx((total / 50, right / 50))


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
        FirefoxStudy().measure(asked(tmp_path, "mq2008")[0])
