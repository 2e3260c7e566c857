"""`quorank tune simulate` and `quorank tune show`: figures that are checked from outside, and refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from command_line import Quorank

from benchmarks.browsing import generate_visits, write_visits

QUICK = ("--iterations", 3, "--set", "held_out=300")


def test_the_checked_command(quorank: Quorank) -> None:
    flags = ("--start", "random", "--iterations", 48, "--seed", 1, "--json")
    outcome = quorank("tune", "simulate", *flags)
    assert outcome.code == 0 and outcome.out.count("\n") == 1
    figures = json.loads(outcome.out)
    assert figures["rank_accuracy"] >= 0.99 * figures["true_rank_accuracy"]
    assert figures["start_rank_accuracy"] < 0.95 * figures["rank_accuracy"]
    assert figures["violations"] == 0 and 0.0 <= figures["worst_drop"] <= 0.05
    assert figures["gradients_per_second"] > 0
    assert len(figures["weights"]) == 9 and figures["weights"]["recency.4-days"] >= figures["weights"]["recency.older"]
    assert figures["updates"] == 48 * 400 and len(figures["curve"]["loss"]) == 49
    assert figures["sigma"] == pytest.approx(math.sqrt(30))


@pytest.mark.parametrize("heuristic", ["decay", "firefox"])
def test_other_heuristics_releases_and_closings(quorank: Quorank, heuristic: str) -> None:
    flags = ("--heuristic", heuristic, "--release", "signs", "--close", "stable", "--traffic", "day-night")
    figures = json.loads(quorank("tune", "simulate", *flags, *QUICK, "--json").out)
    assert len(figures["weights"]) == {"decay": 4, "firefox": 22}[heuristic]
    assert figures["closing"].startswith("Stable(") and "swing=0.9" in figures["traffic"]
    assert figures["violations"] == 0


@pytest.mark.parametrize(
    ("setting", "shown"), [("optimiser=adam", "Adam(step=0.3"), ("optimiser.initial=0.5", "Rprop(initial=0.5")]
)
def test_an_optimiser_by_word_and_by_its_fields(quorank: Quorank, setting: str, shown: str) -> None:
    words = ("--set", setting) if "." not in setting else ("--set", "optimiser=rprop", "--set", setting)
    found = json.loads(quorank("tune", "simulate", *words, *QUICK, "--json").out)
    assert found["optimiser"].startswith(shown)


def test_versions_are_written_and_shown(quorank: Quorank, own_folder: Path) -> None:
    made = json.loads(quorank("tune", "simulate", *QUICK, "--out", "models", "--json").out)
    names = sorted(path.name for path in (own_folder / "models").iterdir())
    assert names == ["weights-000001.json", "weights-000002.json", "weights-000003.json"]
    shown = json.loads(quorank("tune", "show", "models/weights-000003.json", "--json").out)
    assert shown["weights"] == made["weights"] and shown["version"] == 3 and shown["updates"] == 400
    assert shown["shipped"]["type.typed"] == 2.0
    outcome = quorank("tune", "show", "models/weights-000003.json")
    assert outcome.code == 0 and "version 3" in outcome.out and "tuned" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--heuristic", "frecensy"), "did you mean 'frecency'"),
        (("--set", "margin=-3"), "margin"),
        (("--set", "keep=1"), "keep"),
        (("--close", "stable", "--set", "closing.most=1"), "least"),
        (("--set", "marginal=1"), "did you mean 'margin'"),
    ],
)
def test_refusals(quorank: Quorank, flags: tuple[str, ...], words: str) -> None:
    assert words in quorank("tune", "simulate", *flags).refused()


def test_visits_are_counted_and_tuned_on(quorank: Quorank, own_folder: Path) -> None:
    write_visits(Path("visits.csv"), generate_visits(1, 20, 40))
    counted = json.loads(quorank("tune", "import", "visits.csv", "--heuristic", "decay", "--json").out)
    assert counted["visits"] > 1000 and counted["people"] == 20 and counted["searches"] > 100
    assert counted["browser"] == "csv" and counted["span_days"] > 30
    figures = json.loads(quorank("tune", "simulate", "--visits", "visits.csv", *QUICK, "--json").out)
    assert figures["true_rank_accuracy"] is None and 0.0 < figures["rank_accuracy"] <= 1.0
    shown = quorank("tune", "simulate", "--visits", "visits.csv", "--set", "guard=immediate", *QUICK)
    assert shown.code == 0 and "follow no weights" in shown.out and "ImmediateGuard()" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_a_heuristic_of_ones_own(quorank: Quorank, own_folder: Path) -> None:
    (own_folder / "my_product.py").write_text(
        "from quorank.tuning.heuristics.frecency import FRECENCY\n"
        "from quorank.tuning.histories.generated import generate_suggestions\n"
        "from quorank.tuning.histories.scenarios import Scenario\n"
        "from dataclasses import replace\n"
        'mine = replace(FRECENCY, name="mine")\nscenario = Scenario(mine, generate_suggestions, 30.0)\n'
    )
    flags = ("--heuristic", "my_product:scenario", *QUICK, "--out", "models", "--json")
    figures = json.loads(quorank("tune", "simulate", *flags).out)
    assert figures["heuristic"] == "mine" and len(figures["weights"]) == 9
    file = "models/weights-000003.json"
    assert json.loads(quorank("tune", "show", file, "--json").out)["shipped"] is None
    shown = json.loads(quorank("tune", "show", file, "--heuristic", "my_product:mine", "--json").out)
    assert shown["shipped"]["type.typed"] == 2.0
    refused = quorank("tune", "show", file, "--heuristic", "decay")
    assert refused.code == 2 and "expected those of 'decay'" in refused.err
