"""Heuristics of one's own by `module:object`: loaded for every verb, and only from what is typed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from refusals import refused

from quorank.parts import Family
from quorank.tuning.heuristics.heuristic import Heuristic
from quorank.tuning.histories.scenarios import Scenario, find_heuristic, find_scenario
from quorank.tuning.rules import (
    CLOSINGS,
    GUARDS,
    RELEASES,
    Count,
    GradientRelease,
    ImmediateGuard,
    JudgedGuard,
    SignRelease,
    Stable,
    Time,
)

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
def test_refusals(module: str, text: str, code: str) -> None:
    with refused(code):
        find_heuristic(text)


def test_a_simulation_needs_people(module: str) -> None:
    with refused("heuristic.no-scenario"):
        find_scenario(f"{module}:heuristic")


def test_a_module_that_fails_is_told_of(tmp_path: Path, module: str) -> None:
    (tmp_path / "my_broken_pages.py").write_text("1 / 0\n")
    with refused("heuristic.no-module"):
        find_heuristic("my_broken_pages:x")


@pytest.mark.parametrize(
    ("family", "part"),
    [
        *((CLOSINGS, part) for part in (Count(3), Time(60.0), Stable(known=2.0))),
        *((GUARDS, part) for part in (JudgedGuard(bound=0.02), ImmediateGuard())),
        *((RELEASES, part) for part in (GradientRelease(), SignRelease(bits=1))),
    ],
    ids=lambda value: getattr(value, "name", None) or str(value),
)
def test_a_part_prints_as_its_spec(family: Family, part: object) -> None:
    assert family.parse(str(part)) == part
