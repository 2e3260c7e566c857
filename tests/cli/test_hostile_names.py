"""Names in files that somebody else wrote: no control character of them reaches the terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import Outcome, Quorank

from quorank.cli.display import print_text, progress_lines, table_of
from quorank.experiments.run_directory import load_run
from quorank.reports.comparison import RunGroup, compare_table
from quorank.tuning.models import Model, write_model

HOSTILE = "spring\x1b]0;owned\x07\x9b2J\r\u202e"
SHOWN = r"spring\u001b]0;owned\u0007\u009b2J \u202e"


def assert_escaped(outcome: Outcome) -> None:
    assert outcome.code in (0, 1), outcome.err
    printed = outcome.out + outcome.err
    assert "pring" in printed
    # str.splitlines would take some of the characters for line breaks
    assert all(line.replace("\t", "").isprintable() for line in printed.split("\n"))


def test_weights_and_their_heuristic(quorank: Quorank) -> None:
    write_model(Model(HOSTILE, 1, {HOSTILE: 1.0}, optimiser=HOSTILE), "weights.json")
    outcome = quorank("tune", "show", "weights.json")
    assert_escaped(outcome)
    assert outcome.out.startswith(f"{SHOWN}, version 1")
    assert json.loads(quorank("tune", "show", "weights.json", "--json").out)["heuristic"] == HOSTILE


@pytest.fixture
def study() -> str:
    arms = {HOSTILE: 0.6, "control": 0.4}
    table = "\n".join(f"{json.dumps(arm)} = {share}" for arm, share in arms.items())
    Path("study.toml").write_text(f"name = {json.dumps(HOSTILE)}\neffect = 0.5\n[arms]\n{table}\n")
    return "study.toml"


def test_arms_and_clients_of_a_study(quorank: Quorank, study: str) -> None:
    Path("ids.txt").write_text("\n".join(f"{n}\x1b[2J" for n in range(40)))
    listed = quorank("tune", "study", "assign", study, "--ids", "ids.txt")
    assert_escaped(listed)
    lines = [line.split("\t") for line in listed.out.splitlines()]
    assert {arm for _, arm in lines} == {SHOWN, "control"} and lines[0][0] == r"0\u001b[2J"
    assert_escaped(quorank("tune", "study", "assign", study, "--ids", "ids.txt", "--out", "arms.csv"))
    rows = [f"c{n % 50},{1 + n * 7 % 9},{n % 3}" for n in range(490)]
    Path("pilot.csv").write_text("client,characters,rank\n" + "\n".join(rows) + "\n")
    assert_escaped(quorank("tune", "study", "plan", "pilot.csv", study, "--simulations", 200))


@pytest.mark.parametrize("key", ["kind", "horizon", "unit", "method", HOSTILE], ids=ascii)
def test_a_ledger(quorank: Quorank, finished_run: tuple[Path, Outcome], key: str) -> None:
    stated = {"kind": "gaussian", "epsilon": None, "delta": 1e-5, "unit": "client", "horizon": "whole run", "rounds": 2}
    for name in ("one", "two"):
        shutil.copytree(finished_run[0], name)
        ledger = json.loads(Path(name, "ledger.json").read_text())
        Path(name, "ledger.json").write_text(json.dumps(ledger | {"privacy": stated | {key: HOSTILE}}))
    assert_escaped(quorank("privacy", "ledger", "one"))
    if key == "kind":
        assert_escaped(quorank("privacy", "ledger", "one", "two"))


def test_settings_of_runs_that_are_compared(
    finished_run: tuple[Path, Outcome], capfd: pytest.CaptureFixture[str]
) -> None:
    run = load_run(finished_run[0])
    print_text(compare_table([RunGroup("plain", {}, (run,)), RunGroup(HOSTILE, {}, (run,))]))
    assert_escaped(Outcome(0, *capfd.readouterr()))


def test_heads_and_titles_of_tables(capfd: pytest.CaptureFixture[str]) -> None:
    print_text(table_of(("arm", HOSTILE), [("a", "b")], title=HOSTILE))
    assert_escaped(Outcome(0, *capfd.readouterr()))


def test_progress_and_errors_of_libraries(
    quorank: Quorank, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((1.0, 100.0))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress = progress_lines(HOSTILE)
    progress(0, 3)
    progress(1, 3)
    assert_escaped(Outcome(0, *capfd.readouterr()))
    monkeypatch.undo()

    def fails(*_: object) -> None:
        raise OSError(HOSTILE)

    monkeypatch.setattr("quorank.tuning.models.read_model", fails)
    assert_escaped(quorank("tune", "show", "weights.json"))
