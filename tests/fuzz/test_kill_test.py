"""The kill test notices other bits, leftovers and tracebacks, and `data import` survives it."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from benchmarks import pull_the_plug as plug

pytestmark = pytest.mark.nightly


def test_an_import_that_is_killed_ends_with_the_same_bits() -> None:
    found = plug.measure(4, ["import"], 3, watch=lambda line: None)["import"]
    assert found.kills >= 4
    assert found.journeys >= 2
    assert (found.other_bits, found.refused, found.tracebacks) == ([], [], [])


def a_command(name: str):
    """A command line that writes a file in three steps, as the planted fault wants it."""

    def main() -> None:
        temporary, target = Path(f".out.{os.getpid()}.tmp"), Path("out")
        temporary.write_text("whole")
        Path("step").mkdir(exist_ok=True)
        if name == "a traceback" and len(list(Path().glob(".out.*"))) > 1:
            raise KeyError("a leftover")
        temporary.replace(target)

    return main


@pytest.mark.parametrize(("name", "kind"), [("a leftover", "leftovers"), ("a traceback", "tracebacks")])
def test_planted_faults_are_counted(name, kind, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(plug.command_line, "main", a_command(name))
    job = plug.Job("planted", lambda folder: None, ["x"], (["x"],))
    outcome = plug.Outcome()
    for number in range(12):
        plug.journey(job, tmp_path, Random(number), (0.01, 3, 10), {"out": b"whole", "step": b""}, outcome, full=False)
    assert outcome.kills >= 6
    assert outcome.other_bits == []
    assert getattr(outcome, kind)


def test_other_bits_are_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(plug.command_line, "main", a_command("a leftover"))
    job = plug.Job("planted", lambda folder: None, ["x"], (["x"],))
    outcome = plug.Outcome()
    plug.journey(job, tmp_path, Random(1), (0.01, 3, 10), {"out": b"something else"}, outcome, full=False)
    assert len(outcome.other_bits) == 1


def test_a_full_disk_is_a_sentence(tmp_path) -> None:
    """The command says so in one line, and the next start succeeds."""
    found = plug.measure(3, ["import"], 1, full=True, watch=lambda line: None)["import"]
    assert found.full >= 3
    assert (found.other_bits, found.refused, found.tracebacks) == ([], [], [])
