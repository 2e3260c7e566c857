"""`quorank run` from outside, also with a [grid]: what it writes, what it prints, where it writes, and what is compared."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import SMALL, Outcome, Quorank

from quorank.cli import display
from quorank.experiments.experiment import SECTIONS, Experiment
from quorank.experiments.experiment_file import read_experiment_file

WRITTEN = {"run.toml", "history.parquet", "ranker.json", "ledger.json", "report.html", "summary.json", "manifest.json"}
SHAPE = {
    "offline": {"ndcg@10": float, "maxrr": float},
    "online": {"ndcg@10": float, "discounted": float},
    "rounds": int,
    "interactions": int,
    "seconds": {"train": float, "evaluate": float},
    "interactions_per_second": float,
    "privacy": type(None),
    "seed": int,
    "version": str,
}


def shape_of(value: object) -> object:
    return {k: shape_of(v) for k, v in value.items()} if isinstance(value, dict) else type(value)


def history_of(folder: Path) -> dict[str, np.ndarray]:
    table = pq.read_table(folder / "history.parquet")
    return {name: table.column(name).to_numpy() for name in table.column_names}


def test_a_run_leaves_exactly_its_files(finished_run: tuple[Path, Outcome]) -> None:
    folder, _ = finished_run
    assert {path.name for path in folder.iterdir()} == WRITTEN


def test_the_summary_has_the_documented_shape(finished_run: tuple[Path, Outcome]) -> None:
    summary = json.loads((finished_run[0] / "summary.json").read_text())
    told = summary.pop("evaluation")  # how the figures were measured, beside what the contract lists
    assert shape_of(summary) == SHAPE
    assert set(told) == {"k", "cutoffs", "no_relevant", "test_queries", "counted_queries"}
    assert summary["rounds"] == 12 and summary["interactions"] == 20 * 4 * 12 and summary["seed"] == 1
    assert 0 < summary["offline"]["ndcg@10"] < 1 and 0 < summary["offline"]["maxrr"] <= 1
    per_second = summary["interactions"] / summary["seconds"]["train"]
    assert summary["interactions_per_second"] == pytest.approx(per_second)


def test_json_is_the_summary_alone_on_stdout(finished_run: tuple[Path, Outcome]) -> None:
    folder, outcome = finished_run
    assert json.loads(outcome.out) == json.loads((folder / "summary.json").read_text())
    assert outcome.out.count("\n") == 1
    assert all(line.startswith("run: round ") for line in outcome.err.splitlines()), outcome.err


def test_progress_goes_to_stderr_and_the_table_to_stdout(quorank: Quorank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LINE_SECONDS", 0.0)
    outcome = quorank("run", "small.toml", "--out", "made")
    progress = outcome.err.splitlines()
    assert progress and all(line.startswith("run: round ") and "nDCG@10" in line for line in progress)
    assert "round 12/12" in progress[-1] and "0 s left" in progress[-1]
    assert "round" not in outcome.out.replace("rounds", "") and "offline" in outcome.out
    assert outcome.out.splitlines()[-1] == "report   made/report.html"
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_the_written_experiment_is_complete_and_reads_back(finished_run: tuple[Path, Outcome]) -> None:
    folder, _ = finished_run
    document = read_experiment_file(folder / "run.toml")
    again = Experiment.read(document)
    assert set(document.tables) == {"seed", *SECTIONS} - {"attack"}  # nobody attacks
    assert again == Experiment.read(read_experiment_file(folder.parent / "small.toml"))
    assert again.tables() == document.tables
    assert document.tables["federation"]["server"] == {
        "kind": "add",
        "step": 1.0,
        "among": [],
        "shrink": 0.0,
        "pull": 0.0,
    }
    assert document.tables["evaluation"] == {"every": 1, "no_relevant": "skip", "k": 10, "cutoffs": [10]}


@pytest.mark.usefixtures("no_pages")
def test_the_written_experiment_gives_the_same_bytes(finished_run: tuple[Path, Outcome], quorank: Quorank) -> None:
    folder, _ = finished_run
    assert quorank("run", folder / "run.toml", "--out", "again", "--threads", 2, "-q").code == 0
    for name in ("run.toml", "ranker.json", "history.parquet", "ledger.json"):
        assert Path("again", name).read_bytes() == (folder / name).read_bytes(), name


def test_the_history_agrees_with_the_summary(finished_run: tuple[Path, Outcome]) -> None:
    folder, _ = finished_run
    history, summary = history_of(folder), json.loads((folder / "summary.json").read_text())
    assert history["round"].tolist() == list(range(1, 13))
    assert history["interactions"].tolist() == [80 * t for t in range(1, 13)]
    assert history["offline_ndcg@10"][-1] == summary["offline"]["ndcg@10"]
    assert history["offline_maxrr"][-1] == summary["offline"]["maxrr"]
    online = history["online_ndcg@10"]
    assert summary["online"]["ndcg@10"] == pytest.approx(online.mean(), rel=1e-12)
    running = [sum(0.9995 ** (t - 1) * online[t - 1] for t in range(1, n + 1)) for n in range(1, 13)]
    assert summary["online"]["discounted"] == pytest.approx(running[-1], rel=1e-12)
    assert history["online_discounted"] == pytest.approx(running, rel=1e-12)
    assert all(np.isfinite(column).all() for column in history.values())


@pytest.mark.usefixtures("no_pages")
def test_runs_get_a_new_folder_each(quorank: Quorank) -> None:
    for _ in range(3):
        assert quorank("run", "small.toml", "-q").code == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["small", "small-2", "small-3"]


def test_a_run_is_not_written_over_unasked_nor_are_files_of_others(quorank: Quorank) -> None:
    Path("theirs").mkdir()
    Path("theirs/report.html").write_text("mine")
    assert "report.html" in quorank("run", "small.toml", "--out", "theirs", "-q").refused()
    assert Path("theirs/report.html").read_text() == "mine"
    quorank("run", "small.toml", "--out", "made", "-q")
    before = {str(path): path.read_bytes() for path in Path("made").rglob("*") if path.is_file()}
    sentence = quorank("run", "small.toml", "--seed", 2, "--out", "made", "-q").refused()
    assert sentence.startswith("made: ") and "--overwrite" in sentence and "--resume made" in sentence
    assert {str(path): path.read_bytes() for path in Path("made").rglob("*") if path.is_file()} == before
    assert quorank("run", "small.toml", "--seed", 2, "--out", "made", "--overwrite", "-q").code == 0
    assert Path("made/ranker.json").read_bytes() != before[str(Path("made/ranker.json"))]
    assert {path.name for path in Path("made").iterdir()} == WRITTEN


@pytest.mark.usefixtures("no_pages")
def test_the_seed_of_the_command_line_wins_and_is_recorded(quorank: Quorank) -> None:
    Path("seeded.toml").write_text("seed = 3\n" + Path("small.toml").read_text())
    quorank("run", "seeded.toml", "--out", "three", "-q")
    quorank("run", "seeded.toml", "--seed", 4, "--out", "four", "-q")
    for folder, seed in (("three", 3), ("four", 4)):
        assert json.loads(Path(folder, "summary.json").read_text())["seed"] == seed
        assert tomllib.loads(Path(folder, "run.toml").read_text())["seed"] == seed
    assert Path("three/ranker.json").read_bytes() != Path("four/ranker.json").read_bytes()


@pytest.mark.usefixtures("no_pages")
def test_set_reaches_nested_keys_and_turns_words_into_tables(quorank: Quorank) -> None:
    Path("words.toml").write_text(Path("small.toml").read_text() + 'server = "momentum"\n')
    values = [
        "federation.server.beta=0.5",  # the word "momentum" becomes { kind = "momentum", beta = 0.5 }
        "ranker=mlp",
        "ranker.hidden=3",
        "users.preset=navigational",
        'federation.participation={ kind = "sampled", cohort = 5 }',
        "evaluation.no_relevant=zero",
        "learner.eta=2e-1",
        "federation.rounds=3",
        "federation.rounds=4",
    ]
    flags = [part for value in values for part in ("--set", value)]
    assert quorank("run", "words.toml", *flags, "--out", "made", "-q").code == 0
    written = tomllib.loads(Path("made/run.toml").read_text())
    assert written["federation"]["server"] == {"kind": "momentum", "step": 1.0, "beta": 0.5}
    assert written["federation"]["participation"] == {"kind": "sampled", "cohort": 5}
    assert written["ranker"] == {"kind": "mlp", "hidden": 3, "start": "scaled", "activation": "relu"}
    assert written["users"] == {"kind": "cascade", "preset": "navigational"}
    assert (written["learner"]["eta"], written["federation"]["rounds"]) == (0.2, 4)
    assert json.loads(Path("made/summary.json").read_text())["interactions"] == 4 * 5 * 4


@pytest.mark.parametrize(
    ("name", "clients", "momentum"), [("fpdgd", 3, 0.0), ("recommended", 3, 0.0), ("private", 99, 0.95)]
)
@pytest.mark.usefixtures("no_pages")
def test_shipped_experiments_run_by_name(quorank: Quorank, name: str, clients: int, momentum: float) -> None:
    flags = ("--set", f"federation.clients={clients}", "--set", "federation.rounds=2", "-q")
    assert quorank("run", name, *flags).code == 0
    written = tomllib.loads(Path("runs", name, "run.toml").read_text())
    step = written["federation"]["server"]["step"]
    assert step > 1.0 if name == "private" else step == 1.0
    assert written["learner"]["temperature"] == {"recommended": 0.1, "private": 0.5}.get(name, 1.0)
    assert written["federation"]["client_momentum"] == momentum
    assert (written["learner"]["kind"], written["learner"]["eta"]) == ("pdgd", 0.1)


def test_a_misspelt_experiment_is_answered_with_those_that_are_shipped(quorank: Quorank) -> None:
    outcome = quorank("run", "fpgdd")
    assert outcome.code == 2 and len(outcome.err.strip().splitlines()) == 1
    assert "did you mean 'fpdgd'?" in outcome.err
    for name in ("fpdgd", "private", "recommended", "search", "trees", "trees-private"):
        assert name in outcome.err
    assert "silo-group" not in outcome.err


def test_logs_are_for_single_runs_and_known_tools(quorank: Quorank, own_folder: Path) -> None:
    assert quorank("run", "small.toml", "--log", "papers:x", "--out", "made").code == 2
    (own_folder / "grid.toml").write_text("[grid]\nseed = [1, 2]\n")
    assert quorank("run", "grid.toml", "--log", "tensorboard:x", "--out", "made").code == 2
    assert not Path("made").exists()


GRID = (
    SMALL.replace("rounds = 12", "rounds = 3")
    + '\n[grid]\nseed = [1, 2]\n"users.preset" = ["perfect", "informational"]\n'
)


@pytest.fixture
def grid_file(own_folder: Path) -> Path:
    (own_folder / "grid.toml").write_text(GRID)
    return Path("grid.toml")


@pytest.mark.usefixtures("no_pages")
def test_a_line_per_run_then_a_table_then_a_page(quorank: Quorank, grid_file: Path) -> None:
    outcome = quorank("run", grid_file)
    assert outcome.code == 0
    first, *lines = outcome.err.splitlines()
    assert first.startswith("4 runs")
    assert [line.split()[0] for line in lines] == ["1/4", "2/4", "3/4", "4/4"]
    assert all("nDCG@10" in line for line in lines)
    assert "users.preset=informational" in outcome.out and max(map(len, outcome.out.splitlines())) <= 80
    assert outcome.out.splitlines()[-1] == "report   runs/grid/report.html"
    table = quorank("compare", "runs/grid")
    assert table.code == 0 and table.out.splitlines() == outcome.out.splitlines()[:-1]
    compared = json.loads(quorank("compare", "runs/grid", "--json").out)
    assert [setting["n"] for setting in compared["settings"]] == [2, 2]
    assert [Path(run).name for run in compared["settings"][0]["runs"]] == [
        "seed=1,preset=perfect",
        "seed=2,preset=perfect",
    ]
    assert quorank("report", "runs/grid", "--out", "page.html").out == "page.html\n"
    assert "users.preset" in Path("page.html").read_text()
    one = quorank("report", "runs/grid/seed=1,preset=perfect")
    assert one.code == 0 and Path(one.out.strip()).name == "report.html"


@pytest.mark.usefixtures("no_pages")
def test_json_is_a_list_of_named_summaries(quorank: Quorank, grid_file: Path) -> None:
    outcome = quorank("run", grid_file, "--json", "-q", "--out", "made")
    assert outcome.err == ""
    found = json.loads(outcome.out)
    assert [run["run"] for run in found] == json.loads(Path("made/grid.json").read_text())["runs"]
    for run in found:
        summary = json.loads(Path("made", run.pop("run"), "summary.json").read_text())
        assert run == summary


@pytest.mark.usefixtures("no_pages")
def test_the_seed_of_the_command_line_replaces_the_seeds_of_the_grid(quorank: Quorank, grid_file: Path) -> None:
    found = json.loads(quorank("run", grid_file, "--seed", 7, "--json", "-q").out)
    assert [(run["run"], run["seed"]) for run in found] == [("preset=perfect", 7), ("preset=informational", 7)]


@pytest.mark.usefixtures("no_pages")
def test_one_name_of_two_collections_is_read_anew(quorank: Quorank, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection is kept by the text of its source, which means another one in another folder."""
    for d in ("x", "y"):
        Path(d).mkdir()
        quorank("data", "synthesize", "mq2007", "--queries", 30, "--seed", 1 if d == "x" else 2, "--out", f"{d}/mine24")
    rankers = []
    for d in ("x", "y"):
        monkeypatch.chdir(d)
        quorank("run", "../small.toml", "--set", "data.source=mine24", "--out", "made", "-q")
        rankers.append(Path("made/ranker.json").read_bytes())
        monkeypatch.chdir("..")
    assert rankers[0] != rankers[1]
