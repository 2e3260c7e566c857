"""`quorank tune study` and `quorank tune import`: results as JSON and tables, and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from browser_files import make_places
from command_line import Quorank

from quorank.tuning.studies.study import read_study

STUDY = """\
name = "spring"
effect = 0.5
[arms]
treatment = 0.6
control = 0.2
control-no-decay = 0.2
"""


@pytest.fixture(autouse=True)
def study_file(own_folder: Path) -> None:
    Path("study.toml").write_text(STUDY)


@pytest.fixture
def pilot() -> str:
    rows = [f"c{n % 50},{1 + n * 7 % 9},{n % 3}" for n in range(490)]
    Path("pilot.csv").write_text("client,characters,rank\n" + "\n".join(rows) + "\n")
    return "pilot.csv"


def test_plan_json_file_and_table_agree(quorank: Quorank, pilot: str) -> None:
    few = ("study.toml", "--simulations", 200)
    outcome = quorank("tune", "study", "plan", pilot, *few, "--json")
    assert outcome.code == 0 and outcome.out.count("\n") == 1, outcome.err
    plan = json.loads(outcome.out)
    assert plan["clients"] == sum(plan["arms"].values()) and plan["study"] == "spring"
    assert plan["alpha"] == pytest.approx(0.05 / 6) and plan["achieved"] >= 0.9 and plan["metric"] == "characters"
    assert plan["pilot_clients"] == 50 and plan["pilot"] == pilot
    shown = quorank("tune", "study", "plan", pilot, *few).out
    assert f"{plan['clients']:,}" in shown and "Bonferroni" in shown
    assert max(map(len, shown.splitlines())) <= 80
    Path("study.toml").write_text(STUDY.replace("effect = 0.5", "effect = 0.9"))
    weaker = json.loads(quorank("tune", "study", "plan", pilot, *few, "--json").out)
    assert weaker["clients"] < plan["clients"]


def test_assign_says_the_same_each_time_and_everywhere(quorank: Quorank) -> None:
    Path("ids.txt").write_text("\n".join(f"client-{n}" for n in range(300)) + "\n")
    found = json.loads(quorank("tune", "study", "assign", "study.toml", "--ids", "ids.txt", "--json").out)
    assert sum(found["counts"].values()) == 300 and set(found["counts"]) == {"treatment", "control", "control-no-decay"}
    one = quorank("tune", "study", "assign", "study.toml", "client-7", "client-8").out.splitlines()
    assert one == [f"client-{n}\t{found['clients'][f'client-{n}']}" for n in (7, 8)]
    shown = quorank("tune", "study", "assign", "study.toml", "--ids", "ids.txt", "--out", "arms.csv").out
    assert "treatment" in shown and "client-7" not in shown
    with Path("arms.csv").open() as file:
        assert {row["client"]: row["arm"] for row in csv.DictReader(file)} == found["clients"]


def test_analyse(quorank: Quorank) -> None:
    study = read_study(Path("study.toml"))
    clients = [f"person-{number}" for number in range(400)]
    rows = [
        f"{client},{arm},{1 + number % 7 - (arm == 'treatment' and number % 7 > 3)},{number % 3}"
        for number, (client, arm) in enumerate(zip(clients, study.assign_all(clients), strict=True))
    ]
    Path("results.csv").write_text("client,arm,characters,rank\n" + "\n".join(rows) + "\n")
    analysis = json.loads(quorank("tune", "study", "analyse", "study.toml", "results.csv", "--json").out)
    assert len(analysis["comparisons"]) == 6
    assert sum(arm["clients"] for arm in analysis["arms"].values()) == 400
    first = analysis["comparisons"][0]
    assert (first["metric"], first["arm"], first["baseline"]) == ("characters", "treatment", "control")
    assert first["difference"] < 0 < first["error"]
    shown = quorank("tune", "study", "analyse", "study.toml", "results.csv").out
    assert "control-no-decay" in shown and "Mann-Whitney" in shown
    assert max(map(len, shown.splitlines())) <= 80

    Path("study.toml").write_text(STUDY.replace("0.6", "0.5").replace("\ncontrol = 0.2", "\ncontrol = 0.3"))
    assert "needs a new name" in quorank("tune", "study", "analyse", "study.toml", "results.csv").refused()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "study.toml", "missing.toml"), "missing.toml: no such file"),
        (("plan", "missing.csv"), "missing.csv: does not exist"),
        (("assign", "study.toml"), "no clients were given"),
        (("assign", "study.toml", "--ids", "missing.txt"), "missing.txt: cannot be read"),
        (("analyse", "study.toml", "missing.csv"), "missing.csv: does not exist"),
    ],
)
def test_bad_input_is_one_sentence(quorank: Quorank, arguments: tuple[str, ...], words: str) -> None:
    assert words in quorank("tune", "study", *arguments).refused()


@pytest.fixture
def places() -> Path:
    pages = [(number, f"https://secret-{number}.example/", "private") for number in (1, 2)]
    visits = [
        (page, (1_700_000_000 + 86_400 * day) * 10**6, kind) for day, page, kind in ((0, 1, 1), (1, 2, 1), (2, 1, 2))
    ]
    return make_places(Path("places.sqlite"), pages, visits)


def test_import_prints_counts_and_no_address(quorank: Quorank, places: Path) -> None:
    for flags in ((), ("--json",)):
        outcome = quorank("tune", "import", places, *flags)
        assert outcome.code == 0, outcome.err
        for word in ("secret", "private", "https"):
            assert word not in outcome.out + outcome.err
    found = json.loads(outcome.out)
    assert (found["browser"], found["pages"], found["visits"], found["searches"]) == ("firefox", 2, 3, 1)
    assert found["span_days"] == pytest.approx(2.0) and found["types"] == {"link": 2, "typed": 1}
    assert max(map(len, quorank("tune", "import", places).out.splitlines())) <= 80
