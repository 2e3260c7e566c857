"""A run's directory: interrupted anywhere it goes on to the same bits, never half-made, and read back."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up_runs import load_run, load_runs
from quick_runs import run_quickly, stopped_run
from small_runs import experiment, files_of

from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments import runner
from quorank.experiments.experiment import Experiment
from quorank.experiments.progress import load_checkpoint
from quorank.experiments.run_directory import is_grid
from quorank.experiments.runner import run_experiment
from quorank.reports.report import report_page

ROUNDS = 40  # more than two groups of rankers that are evaluated together
OUTPUTS = ["ranker.json", "history.parquet", "ledger.json", "report.html", "summary.json"]


def run_in_pieces(chosen: Experiment, folder: Path, stops: list[int]) -> None:
    done = 0
    for stop in stops:
        stopped = stopped_run(chosen, folder, stop - done, resume=done > 0, threads=1)
        assert (stopped.round, stopped.rounds) == (stop, chosen.rounds)
        assert {path.name for path in folder.iterdir()} - {"clients"} == {"run.toml", "checkpoint.npz"}
        done = stop
    run_quickly(chosen, folder, resume=True, threads=2)
    assert not (folder / "checkpoint.npz").exists()


def test_interrupted_runs_go_on_to_the_same_bits(tmp_path: Path) -> None:
    parts = ["federation.server=adam", "ranker=mlp", "ranker.hidden=3", "evaluation.every=3"]
    chosen = experiment(*parts, f"federation.rounds={ROUNDS}")
    whole = run_quickly(chosen, tmp_path / "whole", threads=1)
    for number, stops in enumerate(([1], [16, 17], [3, 20, 21, 39])):
        folder = tmp_path / str(number)
        run_in_pieces(chosen, folder, stops)
        assert files_of(folder) == files_of(tmp_path / "whole"), stops
        summary = json.loads((folder / "summary.json").read_text())
        for key in ("offline", "online", "rounds", "interactions", "privacy", "seed", "version"):
            assert summary[key] == whole[key], key


def test_interrupted_between_rounds_that_are_played_together_it_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Calls hold up to 30 rounds, the evaluations' distance; each start begins with calls of 1, 2, 4, … rounds."""
    parts = ["federation.clients=1", "federation.interactions=1", "evaluation.every=30", "federation.rounds=100"]
    names = ["rounds.parquet", "history.parquet"]
    for server in ("add", "momentum"):
        chosen = experiment(*parts, f"federation.server={server}")
        folder, seen = tmp_path / server, list[int]()
        run_quickly(chosen, folder, watch=lambda progress, seen=seen: seen.append(progress.done))
        assert len(seen) < 20 and {30, 60, 90, 100} <= {*seen}
        broken = tmp_path / f"{server}, broken"
        stops = [stopped_run(chosen, broken, 3, threads=1).round]
        for calls in (2, 5):
            stops.append(stopped_run(chosen, broken, calls, resume=True, threads=1).round)
        assert 0 < stops[0] < stops[1] < stops[2] < 100 and any(stop % 30 for stop in stops)
        run_quickly(chosen, broken, resume=True, threads=2)
        assert files_of(broken) == files_of(folder)
        assert all((broken / name).read_bytes() == (folder / name).read_bytes() for name in names)


def test_a_run_that_was_killed_starts_from_its_last_checkpoint_or_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Nothing is tidied up after it."""

    def kill(rounds: int) -> Callable[[object], None]:
        seen = iter(range(1, 1_000_000))

        def watch(progress: object) -> None:
            if next(seen) == rounds:
                raise Killed

        return watch

    chosen = experiment(f"federation.rounds={ROUNDS}")
    run_quickly(chosen, tmp_path / "whole")
    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        run_quickly(chosen, folder, watch=kill(5))
    assert {path.name for path in folder.iterdir()} == {"run.toml"}
    monkeypatch.setattr(runner, "CHECKPOINT_SECONDS", -1.0)  # after every round
    with pytest.raises(Killed):
        run_quickly(chosen, folder, watch=kill(9), resume=True)
    saved = load_checkpoint(folder, chosen, runner.Runner(chosen, threads=1).simulator.initial())
    assert saved is not None and saved[0].round == 8  # the round of the kill was not saved
    run_quickly(chosen, folder, resume=True)
    assert files_of(folder) == files_of(tmp_path / "whole")


def full_disk(monkeypatch: pytest.MonkeyPatch, when: str, name: str) -> None:
    """No space left, either while the bytes of `name` are written or when it is put in place."""
    refusal = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write, replace = Path.write_bytes, Path.replace

    def write_bytes(self: Path, data: bytes) -> int:
        if name in self.name:
            write(self, data[: len(data) // 2])
            raise refusal
        return write(self, data)

    def put(self: Path, target: Path) -> Path:
        if Path(target).name == name:
            raise refusal
        return replace(self, target)

    if when == "write":
        monkeypatch.setattr(Path, "write_bytes", write_bytes)
    else:
        monkeypatch.setattr(Path, "replace", put)


@pytest.fixture(scope="module")
def three_rounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_quickly(experiment("federation.rounds=3"), folder)
    return files_of(folder)


@pytest.mark.parametrize("when", ["write", "replace"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_full_disk_leaves_no_summary_and_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, three_rounds: dict[str, bytes], name: str, when: str
) -> None:
    folder, chosen = tmp_path / "run", experiment("federation.rounds=3")
    report = report_page if name == "report.html" else None
    with monkeypatch.context() as patched:
        full_disk(patched, when, name)
        with pytest.raises(OSError, match="No space left"):
            run_experiment(chosen, folder, report=report)
    left = {path.name for path in folder.iterdir()}
    assert "summary.json" not in left and name not in left
    assert left <= {"run.toml", "clients", "manifest.json", *OUTPUTS}  # nothing temporary
    assert not storage.is_finished(folder)
    run_experiment(chosen, folder, resume=True, report=report)
    assert files_of(folder) == three_rounds


def test_a_full_disk_while_the_checkpoint_is_written_keeps_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, chosen = tmp_path / "run", experiment()
    stopped_run(chosen, folder, 4)
    before = (folder / "checkpoint.npz").read_bytes()
    with monkeypatch.context() as patched:
        full_disk(patched, "write", "checkpoint.npz")
        with pytest.raises(OSError, match="No space left"):
            run_quickly(chosen, folder, resume=True, stop=lambda: True)
    assert (folder / "checkpoint.npz").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {"run.toml", "checkpoint.npz"}
    run_quickly(chosen, folder, resume=True)
    run_quickly(chosen, tmp_path / "whole")
    assert files_of(folder) == files_of(tmp_path / "whole")


@pytest.mark.parametrize("other", [["ranker=mlp"], ["federation.rounds=13"]])
def test_a_checkpoint_of_another_experiment_is_refused(tmp_path: Path, other: list[str]) -> None:
    stopped_run(experiment(), tmp_path / "run", 4)
    with pytest.raises(BadInput, match="another experiment"):
        run_quickly(experiment(*other), tmp_path / "run", resume=True)


CARRIERS = {
    "nothing": [],
    "momentum": ["federation.server=momentum"],
    "means, and what the validation split chose": [
        'federation.server={ kind = "add", average = 3.0, among = [0.0, -0.5] }'
    ],
    "the noise on a mean": [
        'federation.server={ kind = "add", average = 0.0, shrink = 1.0 }',
        'privacy={ kind = "gaussian", epsilon = 100.0 }',
    ],
    "each client's history": [
        'federation.aggregation={ kind = "nearest-neighbour-mixing", byzantine = 2, history = 0.9 }'
    ],
    "personal offsets": ["federation.personal=offset"],
    "momentum of clients": ["federation.client_momentum=0.9"],
    "the turns that were taken": [
        'federation.participation={ kind = "arrivals", enough = 6, least = 2, most = 5, rest = 1 }'
    ],
    "a clip that follows its quantile": ['privacy={ kind = "gaussian", epsilon = 100.0, quantile = 0.5, clip = 0.1 }'],
}


@pytest.mark.parametrize("what", CARRIERS)
def test_a_stopped_run_goes_on_to_the_same_bits(what: str, tmp_path: Path) -> None:
    chosen = experiment(*CARRIERS[what])
    run_quickly(chosen, tmp_path / "whole", threads=1)
    run_in_pieces(chosen, tmp_path / "stopped", [5])
    assert files_of(tmp_path / "stopped") == files_of(tmp_path / "whole")


def test_a_run_is_read_back(make_run) -> None:
    run = load_run(make_run(seed=7, fold=3))
    assert (run.seed, run.repetition) == (7, (7, "3"))
    assert run.setting("federation.server.step") == 1.0
    assert run.setting("federation.nothing.here", "default") == "default"
    assert run.figure("offline", "ndcg@10") == run.summary["offline"]["ndcg@10"]
    assert math.isnan(run.figure("online", "unknown"))


def test_a_curve_holds_only_what_was_measured(make_run) -> None:
    run = load_run(make_run(rounds=60, every=10))
    x, y = run.curve("offline_ndcg@10")
    assert x.tolist() == [4000 * r for r in (10, 20, 30, 40, 50, 60)]
    assert np.isfinite(y).all()
    assert len(run.curve("online_ndcg@10")[0]) == 60


def test_no_run_here(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such directory"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"not a run \(run.toml and summary.json missing\)"):
        load_run(tmp_path)


def test_an_unfinished_run_says_how_to_go_on(make_run) -> None:
    folder = make_run()
    (folder / "summary.json").unlink()
    with pytest.raises(BadInput, match="run it again"):
        load_run(folder)
    (folder / "checkpoint.npz").touch()
    with pytest.raises(BadInput, match=f"quorank run --resume {folder}"):
        load_run(folder)


def test_a_grid_stands_for_its_runs(make_grid, make_run) -> None:
    grid, lone = make_grid(seeds=2), make_run(preset="informational")
    assert is_grid(grid) and not is_grid(lone)
    runs = load_runs([grid, lone, lone, grid / "perfect-1"])
    assert [run.path.name for run in runs] == ["perfect-1", "perfect-2", "navigational-1", "navigational-2", "run"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not readable as JSON"),
        ('{"runs": "perfect-1"}', "runs: expected a list"),
        ('{"runs": []}', "no runs yet"),
        ('{"runs": ["gone", "perfect-1"]}', "1 of 2 runs are missing, the first is gone"),
    ],
)
def test_a_damaged_grid_is_refused(make_grid, content: str, says: str) -> None:
    grid = make_grid(seeds=1)
    (grid / "grid.json").write_text(content)
    with pytest.raises(BadInput, match=says):
        load_runs([grid])
