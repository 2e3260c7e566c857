"""Bad input: exit 2, one sentence that says where and what, no traceback, nothing left on disk."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from command_line import Outcome, Quorank

from quorank.rankers.ranker_file import ranker_digest

EXPERIMENTS: dict[str, tuple[str, list[str]]] = {
    # what the file says → what the sentence must hold
    "unknown key": ("[federation]\nclints = 5\n", ["bad.toml line 2", "'clints'", "did you mean 'clients'"]),
    "no clients": ("[federation]\nclients = 0\n", ["bad.toml line 2", "clients", "at least 1", "got 0"]),
    "negative eta": ("[learner]\neta = -1\n", ["bad.toml line 2", "eta", "above 0", "-1"]),
    "unknown learner": ('[learner]\nkind = "pdgt"\n', ["bad.toml line", "'pdgt'", "did you mean 'pdgd'"]),
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


DATA: dict[str, tuple[str, list[str]]] = {
    "label": ("train.txt", ["{file}:3:", "'two'", "integer"]),
    "cut off": ("train.txt.gz", ["{file}", "cut off"]),
    "no train": ("train.txt", ["{folder}", "train.txt"]),
}
ROWS = ["0 qid:1 1:0.5 7:1", "1 qid:1 1:0.25 7:2", "2 qid:2 1:0.5 7:3", "0 qid:2 1:1 7:4"]


def write_data(folder: Path, flaw: str) -> None:
    folder.mkdir()
    good = "\n".join(ROWS) + "\n"
    name = DATA[flaw][0]
    for split in ("train.txt", "test.txt"):
        (folder / split).write_text(good)
    if flaw == "cut off":
        (folder / "train.txt").unlink()
        (folder / name).write_bytes(gzip.compress(good.encode())[:-12])
    elif flaw == "label":
        (folder / name).write_text(good.replace("2 qid:2", "two qid:2"))
    else:
        (folder / name).unlink()


@pytest.mark.parametrize("flaw", DATA)
def test_data_that_cannot_be_read_are_refused(quorank: Quorank, flaw: str) -> None:
    write_data(Path(flaw), flaw)
    Path("bad.toml").write_text(f'[data]\nsource = "{flaw}"\n[federation]\nclients = 3\nrounds = 2\n')
    name, words = DATA[flaw]
    wanted = [word.format(file=f"{flaw}/{name}", folder=flaw) for word in words]
    sentence = quorank("run", "bad.toml", "--out", "made").refused()
    assert all(word in sentence for word in wanted), sentence
    assert nothing_is_left(Path("made"))
    again = quorank("run", "bad.toml", "--out", "made").refused()  # nothing half-read was cached
    assert again == sentence


@pytest.mark.usefixtures("no_pages")
def test_only_what_is_accepted_is_said_to_be_compiled(quorank: Quorank, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is one sentence also where nothing is compiled yet."""
    monkeypatch.setattr("quorank.kernels.compiled.is_cold", lambda: True)
    write_data(Path("label"), "label")
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
        (["data", "stats", "nowhere"], ["nowhere"]),
        (["data", "synthesize", "mq2009", "--out", "made"], ["mq2009"]),
        (["reproduce", "fpdgd/figure99"], ["figure99"]),
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


@pytest.fixture
def ranker(finished_run: tuple[Path, Outcome]) -> dict[str, object]:
    content: dict[str, object] = json.loads((finished_run[0] / "ranker.json").read_text())
    return content


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parameters": [float("nan")] * 46}, ["damaged", "NaN"]),
        ({"n_features": 5, "parameters": [0.0] * 5, "feature_names": [*"abcde"]}, ["5 features", "46"]),
        ({"format": "quorank-ranker/99"}, ["format", "quorank-ranker/2"]),
    ],
)
def test_a_damaged_ranker_is_refused(
    quorank: Quorank, ranker: dict[str, object], change: dict[str, object], words: list[str]
) -> None:
    changed = {**ranker, **change}
    changed["digest"] = ranker_digest(changed)
    Path("bad.json").write_text(json.dumps(changed))
    sentence = quorank("evaluate", "bad.json", "--data", "synthetic:mq2007").refused()
    assert sentence.startswith("bad.json") and all(word in sentence for word in words), sentence


@pytest.mark.parametrize(
    ("verb", "lost"), [("compare", "summary.json"), ("report", "run.toml"), ("report", "history.parquet")]
)
def test_a_run_that_lost_a_file_is_refused(
    quorank: Quorank, finished_run: tuple[Path, Outcome], verb: str, lost: str
) -> None:
    shutil.copytree(finished_run[0], "run")
    Path("run", lost).unlink()
    assert lost in quorank(verb, "run").refused()
