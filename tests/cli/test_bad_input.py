"""Bad input: exit 2, one sentence that says where and what, no traceback, nothing left on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Quorank

EXPERIMENTS: dict[str, tuple[str, list[str]]] = {
    # what the file says → what the sentence must hold
    "unknown key": ("[federation]\nclints = 5\n", ["bad.toml line 2", "'clints'", "did you mean 'clients'"]),
    "negative eta": ("[learner]\neta = -1\n", ["bad.toml line 2", "eta", "above 0", "-1"]),
    "odd interactions": (
        '[federation]\ninteractions = 3\n[learner]\nkind = "evolution"\n',
        ["bad.toml line", "interactions: must be even", "got 3"],
    ),
    "cohort beyond the clients": (
        '[federation]\nclients = 20\nparticipation = { kind = "sampled", cohort = 21 }\n',
        ["bad.toml line", "cohort of 21", "20 clients"],
    ),
    "unknown collection": ('[data]\nsource = "nowhere"\n', ["'nowhere'", "no folder"]),
    "too few probabilities": ("[users]\nclick = [0.1]\nstop = [0.1]\n", ["click", "1 probabilities", "0..2"]),
    "steps that overflow": ("[learner]\neta = 1e30\n", ["update"]),
    "syntax": ("[federation]\nclients = \n", ["bad.toml", "TOML", "line 2"]),
}


def nothing_is_left(folder: Path) -> bool:
    return not folder.exists() and not Path("runs").exists()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_that_cannot_be_run_is_refused(quorank: Quorank, name: str) -> None:
    text, words = EXPERIMENTS[name]
    Path("bad.toml").write_text(text)
    sentence = quorank("run", "bad.toml", "--out", "made").refused()
    assert all(word in sentence for word in words), sentence
    assert nothing_is_left(Path("made"))


def write_bad_data(folder: Path) -> None:
    """LETOR files whose training split has a label that is no number."""
    good = "0 qid:1 1:0.5 7:1\n1 qid:1 1:0.25 7:2\n2 qid:2 1:0.5 7:3\n0 qid:2 1:1 7:4\n"
    folder.mkdir()
    (folder / "train.txt").write_text(good.replace("2 qid:2", "two qid:2"))
    (folder / "test.txt").write_text(good)


def test_data_that_cannot_be_read_are_refused(quorank: Quorank) -> None:
    write_bad_data(Path("label"))
    Path("bad.toml").write_text('[data]\nsource = "label"\n[federation]\nclients = 3\nrounds = 2\n')
    sentence = quorank("run", "bad.toml", "--out", "made").refused()
    assert all(word in sentence for word in ("label/train.txt:3:", "'two'", "integer")), sentence
    assert nothing_is_left(Path("made"))
    again = quorank("run", "bad.toml", "--out", "made").refused()  # nothing half-read was cached
    assert again == sentence


@pytest.mark.usefixtures("no_pages")
def test_only_what_is_accepted_is_said_to_be_compiled(quorank: Quorank, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is one sentence also where nothing is compiled yet."""
    monkeypatch.setattr("quorank.kernels.compiled.is_cold", lambda: True)
    write_bad_data(Path("label"))
    quorank("run", "small.toml", "--set", "data.source=label").refused()
    assert "compiling" not in quorank("demo", "--data", "label", "--clients", 3, "--rounds", 2).err
    assert quorank("run", "small.toml", "--out", "made").err.startswith("compiling for this machine")
    assert quorank("run", "small.toml", "--out", "again", "--quiet").err == ""


def test_a_process_ends_with_two_and_one_sentence(process: Quorank, own_folder: Path) -> None:
    Path("bad.toml").write_text("[federation]\nclints = 5\n")
    before = {path.name for path in own_folder.iterdir()}
    sentence = process("run", "bad.toml", "--out", "made").refused()
    assert "bad.toml line 2" in sentence and "'clints'" in sentence
    assert {path.name for path in own_folder.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "."], ["folder", "experiment.toml"]),
        (["run", "nowhere.toml"], ["nowhere.toml", "no such"]),
        (["run"], ["needs an experiment file"]),
        (["run", "small.toml", "--set", "federation.clients"], ["--set federation.clients", "KEY=VALUE"]),
        (["run", "small.toml", "--set", "federation.clients=none"], ["--set", "integer", "'none'"]),
        (["run", "small.toml", "--seed", "-1"], ["seed", "-1"]),
        (["run", "small.toml", "--out", "small.toml"], ["small.toml", "file"]),
        (["run", "small.toml", "--out", "small.toml/made"], ["small.toml/made", "cannot be created"]),
        (["run", "--resume", "nowhere"], ["nowhere", "no run to resume"]),
        (["run", "small.toml", "--resume", "."], ["--resume", "leave out the file"]),
        (["run", "--resume", ".", "--seed", "3"], ["--resume", "--seed"]),
        (["compare", "."], ["not a run", "run.toml"]),
        (["report", "."], ["not a run"]),
        (["evaluate", "nowhere", "--data", "synthetic:mq2007"], ["nowhere", "no ranker"]),
        (["evaluate", "small.toml", "--data", "synthetic:mq2007"], ["small.toml", "not a ranker file"]),
        (["data", "synthesize", "mq2009", "--out", "made"], ["mq2009"]),
        (["demo", "--data", "synthetic:mq", "--out", "made"], ["synthetic:mq"]),
    ],
)
def test_arguments_that_make_no_sense_are_refused(quorank: Quorank, arguments: list[str], words: list[str]) -> None:
    outcome = quorank(*arguments)
    assert outcome.code == 2 and outcome.out == "" and "Traceback" not in outcome.err
    *before, sentence = outcome.err.splitlines()
    assert sentence.startswith("quorank: ") and all(word in sentence for word in words), sentence
    assert not before or arguments[0] == "demo"
    assert nothing_is_left(Path("made"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["frobnicate"]),
        (["run", "small.toml", "--frobnicate"], ["--frobnicate"]),
        (["run", "small.toml", "--seed", "one"], ["--seed"]),
        (["run", "small.toml", "--threads", "0"], ["--threads"]),
        (["evaluate", "made"], ["--data"]),
        (["evaluate", "made", "--data", "x", "--split", "dev"], ["--split", "validation"]),
        (["compare"], ["RUN"]),
    ],
)
def test_unknown_verbs_and_options_end_with_two(quorank: Quorank, arguments: list[str], words: list[str]) -> None:
    outcome = quorank(*arguments)
    assert outcome.code == 2 and "Traceback" not in outcome.err
    assert all(word in outcome.err for word in words), outcome.err
    assert max(map(len, outcome.err.splitlines())) <= 80
