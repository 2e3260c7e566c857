"""Whole tunings on made-up people, heuristics of one's own, the code of docs/tuning.md, and files of weights."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from refusals import refused
from scipy import stats

from docsite.markdown import blocks
from quorank.errors import BadInput
from quorank.files.codec import decode
from quorank.tuning.coordinator import OPTIMISER_DEFAULTS
from quorank.tuning.heuristics.constraints import violations
from quorank.tuning.heuristics.frecency import DECAY_FRECENCY, FRECENCY
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.histories.scenarios import SCENARIOS, Scenario, find_heuristic, find_scenario
from quorank.tuning.models import Model, model_file_name, read_model, write_model
from quorank.tuning.rules import Count, ImmediateGuard, SignRelease, Stable, Time
from quorank.tuning.searches import slice_searches
from quorank.tuning.simulation import DAY, SearchTimes, Traffic, Tuning, simulate_tuning


@pytest.mark.parametrize("name", ["frecency", "decay"])
def test_random_weights_become_as_good_as_the_true_ones(name: str) -> None:
    course = simulate_tuning(Tuning(name, start="random", held_out=4000))
    assert course.accuracy[0] < 0.9 * course.true_accuracy
    assert course.accuracy[-1] >= 0.99 * course.true_accuracy
    assert course.violations == 0 and len(course.weights) == 49
    heuristic = SCENARIOS[name].heuristic
    for before, after in zip(course.weights[:-1], course.weights[1:], strict=True):
        assert violations(heuristic, after, before) == []


@pytest.mark.parametrize("name", ["frecency", "decay"])
def test_shipped_weights_that_are_right_stay_right(name: str) -> None:
    course = simulate_tuning(Tuning(name, held_out=4000, seed=2))
    assert course.accuracy[0] == course.true_accuracy
    assert course.worst_drop() <= 0.01


def test_where_people_follow_other_weights_the_product_gets_better() -> None:
    course = simulate_tuning(Tuning(people="others", held_out=4000, seed=3))
    assert course.accuracy[-1] > 1.1 * course.accuracy[0]
    assert course.accuracy[-1] >= 0.98 * course.true_accuracy
    assert course.worst_drop() <= 0.01


@pytest.mark.parametrize(
    ("tuning", "digest"),
    [
        (Tuning(iterations=20), "c06c12f14d51c088"),
        (Tuning("decay", people="others", release=SignRelease(), iterations=20), "295747fdb85bda7a"),
        (Tuning("firefox", people="others", iterations=12), "bf749432a2418964"),
    ],
    ids=["frecency", "decay-signs", "firefox"],
)
def test_published_versions_have_the_bits_that_they_always_had(tuning: Tuning, digest: str) -> None:
    course = simulate_tuning(replace(tuning, held_out=50, guard=ImmediateGuard()))
    assert hashlib.sha256(np.array(course.weights).tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("word", OPTIMISER_DEFAULTS)
def test_every_optimiser_lowers_the_loss_and_breaks_nothing(word: str) -> None:
    course = simulate_tuning(Tuning(start="random", optimiser=OPTIMISER_DEFAULTS[word], iterations=15, held_out=1000))
    assert course.loss[-1] < 0.7 * course.loss[0]
    assert course.violations == 0


def test_stable_iterations_need_fewer_updates_than_half_hours() -> None:
    shares = []
    for seed in (1, 2, 3):
        common = Tuning(start="random", seed=seed, traffic=Traffic(swing=0.9), held_out=2000)
        fixed = simulate_tuning(replace(common, closing=Time()))
        loss, budget = 1.1 * fixed.loss[-1], sum(fixed.updates)
        adaptive = replace(common, closing=Stable(), iterations=999)
        course = simulate_tuning(adaptive, lambda c: c.loss[-1] <= loss or sum(c.updates) >= budget)  # noqa: B023
        assert len(course.models) < 999
        first = int(np.flatnonzero(np.array(fixed.loss) <= loss)[0])
        shares.append(sum(course.updates) / sum(fixed.updates[: first + 1]))
    assert np.median(shares) <= 0.7


@pytest.mark.parametrize("traffic", [Traffic(500.0), Traffic(900.0, swing=1.0, peak=3.0)], ids=str)
def test_arrivals_are_a_poisson_process_of_the_stated_rate(traffic: Traffic) -> None:
    when = SearchTimes(traffic, 1).upcoming(50_000)
    assert np.all(np.diff(when) >= 0)
    hours = np.arange(24 * int(when[-1] // DAY) + 1) * 3600.0
    counts, _ = np.histogram(when, hours)
    middle = np.linspace(0, 3600.0, 60, endpoint=False) + 30.0
    expected = np.array([traffic.rate(middle + hour).mean() * 3600.0 for hour in hours[:-1]])
    busy = expected > 5
    statistic = (((counts - expected) ** 2) / np.maximum(expected, 1e-9))[busy].sum()
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], busy.sum())
    assert low < statistic < high  # Poisson: as far from the mean as chance, and no nearer


def test_iterations_close_as_configured() -> None:
    common = {"iterations": 3, "held_out": 50, "guard": ImmediateGuard()}
    assert simulate_tuning(Tuning(closing=Count(37), **common)).updates[1:] == [37, 37, 37]
    course = simulate_tuning(Tuning(closing=Time(600.0), **common))
    assert course.hours == pytest.approx([0.0, 1 / 6, 1 / 3, 1 / 2])
    assert sum(course.updates) == course.gradients
    assert 300 < sum(course.updates) < 500  # 800 an hour, for half an hour
    assert all(50 <= n <= 400 for n in simulate_tuning(Tuning(closing=Stable(), **common)).updates[1:])


@pytest.mark.parametrize("name", SCENARIOS)
def test_any_part_of_a_world_can_be_made_alone(name: str) -> None:
    here = find_scenario(name)
    whole = here.searches(9, 40, 100, here.heuristic.shipped)
    some = here.searches(9, 7, 120, here.heuristic.shipped)
    for one, other in zip(some, slice_searches(whole, 20, 27), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    "fields",
    [
        {"start": "zero"}, {"iterations": 0}, {"margin": -1.0}, {"sigma": float("nan")}, {"held_out": 0}, {"loss": "hinge"},
        {"traffic": {"per_hour": 0.0}}, {"traffic": {"swing": 1.5}}, {"traffic": {"peak": 25.0}},
    ],
    ids=str,
)  # fmt: skip
def test_refusals(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(fields))):
        decode(Tuning, fields)


MODULE = """
from quorank.tuning.heuristics.heuristic import Heuristic, Weight
from quorank.tuning.histories.generated import generate_suggestions
from quorank.tuning.histories.scenarios import Scenario

def score(weights, items):
    return weights[:, :1] * items.visits + weights[:, 1:] * (items.recency[:, 0] == 0)

heuristic = Heuristic("two", tuple(Weight(n, 10.0, 0.0, 40.0, 2.0) for n in ("visits", "new")), (), score)
scenario = Scenario(heuristic, generate_suggestions, 5.0)
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_tuned_pages.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_tuned_pages", raising=False)
    return "my_tuned_pages"


def test_scenarios_and_heuristics_are_loaded(module: str) -> None:
    assert isinstance(find_scenario(f"{module}:scenario"), Scenario)
    for name in ("scenario", "heuristic", "scenario.heuristic"):
        found = find_heuristic(f"{module}:{name}")
        assert isinstance(found, Heuristic) and found.name == "two"
    assert find_heuristic("decay").name == "decay"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("no_such_module_here:x", "heuristic.no-module"),
        ("my_tuned_pages:nothing", "heuristic.no-object"),
        ("../my_tuned_pages:scenario", "heuristic.unknown"),
        ("my_tuned_pages:number", "heuristic.wrong-type"),
    ],
)
def test_what_is_no_heuristic_is_refused(module: str, text: str, code: str) -> None:
    with refused(code):
        find_heuristic(text)


def test_a_simulation_needs_people(module: str) -> None:
    with refused("heuristic.no-scenario"):
        find_scenario(f"{module}:heuristic")


def test_a_module_that_fails_is_told_of(tmp_path: Path, module: str) -> None:
    (tmp_path / "my_broken_pages.py").write_text("1 / 0\n")
    with refused("heuristic.no-module"):
        find_heuristic("my_broken_pages:x")


PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"


def test_the_afternoon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(PAGE.read_text(encoding="utf-8"))
    parts = [f"{block.before}\n{block.text}" for block in found if block.language == "python"]
    assert len(parts) == 3
    names: dict[str, object] = {}
    exec(compile("\n".join(parts), str(PAGE), "exec"), names)
    assert names["model"].version == 1  # type: ignore[attr-defined]

    def loss(fresh: float, old: float, mine: float) -> float:
        """The fresh one was taken of 3·fresh, 9·old + mine and fresh."""
        scores = np.array([3 * fresh, 9 * old + mine, fresh])
        return float(np.maximum(0.0, (scores[1:] - scores[0]) / scores.std() + 0.2).sum())

    assert names["loss"] == pytest.approx([loss(10, 4, 3)])
    slopes = [loss(10.01, 4, 3) - loss(9.99, 4, 3), loss(10, 4.01, 3) - loss(10, 3.99, 3)]
    assert names["slopes"][0, :2] == pytest.approx(np.array(slopes) / 0.02)  # type: ignore[index]
    assert names["update"].values.tolist() == [[-1.0, 1.0, 1.0]]  # type: ignore[attr-defined]


MODEL = Model(
    "frecency", 7, FRECENCY.named(FRECENCY.shipped * (1 + 1e-16) / 1.0), 400, 12.5, "Rprop()", {"step": [0.1, 1 / 3]}
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_model(MODEL, tmp_path / model_file_name(7))


def test_a_file_is_read_back_to_the_last_bit(file: Path) -> None:
    assert read_model(file, FRECENCY) == MODEL
    assert [path.name for path in file.parent.iterdir()] == ["weights-000007.json"]


def test_the_checksum_is_sha256_of_the_rest(file: Path) -> None:
    content = json.loads(file.read_text())
    said = content.pop("checksum")
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert said == hashlib.sha256(text.encode()).hexdigest()


def test_every_damaged_byte_is_seen(file: Path) -> None:
    whole = file.read_bytes()

    @given(st.integers(0, len(whole) - 1), st.integers(0, 255))
    @hypothesis_settings(max_examples=120)
    def damage(at: int, byte: int) -> None:
        broken = whole[:at] + bytes([byte]) + whole[at + 1 :]
        file.write_bytes(broken)
        try:
            again = read_model(file, FRECENCY)
        except BadInput as error:
            assert str(file) in str(error)
        else:  # white space between tokens is not content
            assert again == MODEL and json.loads(broken) == json.loads(whole)

    damage()


def test_weights_of_another_heuristic_or_outside_of_the_constraints(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="heuristic 'frecency'; expected those of 'decay'"):
        read_model(file, DECAY_FRECENCY)
    wrong = dict(MODEL.weights) | {"recency.older": 60.0}
    other = write_model(Model("frecency", 8, wrong), tmp_path / "other.json")
    assert read_model(other).version == 8
    with pytest.raises(BadInput, match=r"recency\.older = 60 is above recency\.90-days = 30"):
        read_model(other, FRECENCY)
    short = write_model(Model("frecency", 8, {"recency.older": 1.0}), tmp_path / "short.json")
    with pytest.raises(BadInput, match="a value is missing"):
        read_model(short, FRECENCY)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_model(tmp_path / "none.json")
    for text, words in (
        ("[1, 2]", 'expected "format"'),
        ('{"format": "quorank-wei', "not a file of weights"),
        ("", "not a"),
    ):
        (tmp_path / "list.json").write_text(text)
        with pytest.raises(BadInput, match=words):
            read_model(tmp_path / "list.json")
    content = json.loads(write_model(MODEL, tmp_path / "m.json").read_text())
    del content["weights"]
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match="damaged file of weights"):
        read_model(tmp_path / "m.json")
