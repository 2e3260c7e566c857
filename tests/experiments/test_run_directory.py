"""A run's directory: interrupted anywhere it goes on to the same bits, and no failure leaves a half-made one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupted_runs import interrupted_run, stop_after
from quick_runs import run_quickly
from small_runs import experiment, files_of

from quorank.errors import BadInput
from quorank.experiments import run_directory as storage
from quorank.experiments import runner
from quorank.experiments.experiment import Experiment
from quorank.experiments.progress import load_checkpoint
from quorank.experiments.runner import Interrupted, run_experiment
from quorank.reports.report import report_page

ROUNDS = 40  # more than two groups of rankers that are evaluated together
OUTPUTS = ["ranker.json", "history.parquet", "ledger.json", "report.html", "summary.json"]


def run_in_pieces(chosen: Experiment, folder: Path, stops: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    done = 0
    for stop in stops:
        with monkeypatch.context() as patched:
            stop_after(patched, stop - done)
            with pytest.raises(Interrupted) as stopped:
                run_quickly(chosen, folder, resume=done > 0, threads=1)
        assert (stopped.value.round, stopped.value.rounds) == (stop, chosen.rounds)
        assert {path.name for path in folder.iterdir()} - {"clients"} == {"run.toml", "checkpoint.npz"}
        done = stop
    run_quickly(chosen, folder, resume=True, threads=2)
    assert not (folder / "checkpoint.npz").exists()


def test_interrupted_runs_go_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["federation.server=adam", "ranker=mlp", "ranker.hidden=3", "evaluation.every=3"]
    chosen = experiment(*parts, f"federation.rounds={ROUNDS}")
    whole = run_quickly(chosen, tmp_path / "whole", threads=1)
    for number, stops in enumerate(([1], [16, 17], [3, 20, 21, 39])):
        folder = tmp_path / str(number)
        run_in_pieces(chosen, folder, stops, monkeypatch)
        assert files_of(folder) == files_of(tmp_path / "whole"), stops
        summary = json.loads((folder / "summary.json").read_text())
        for key in ("offline", "online", "rounds", "interactions", "privacy", "seed", "version"):
            assert summary[key] == whole[key], key


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
    with monkeypatch.context() as patched:
        stop_after(patched, 4)
        with pytest.raises(Interrupted):
            run_quickly(chosen, folder)
    before = (folder / "checkpoint.npz").read_bytes()
    with monkeypatch.context() as patched:
        stop_after(patched, 3)
        full_disk(patched, "write", "checkpoint.npz")
        with pytest.raises(OSError, match="No space left"):
            run_quickly(chosen, folder, resume=True)
    assert (folder / "checkpoint.npz").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {"run.toml", "checkpoint.npz"}
    run_quickly(chosen, folder, resume=True)
    run_quickly(chosen, tmp_path / "whole")
    assert files_of(folder) == files_of(tmp_path / "whole")


@pytest.mark.parametrize("other", [["ranker=mlp"], ["federation.rounds=13"]])
def test_a_checkpoint_of_another_experiment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: list[str]
) -> None:
    interrupted_run(tmp_path / "run", monkeypatch)
    with pytest.raises(BadInput, match="another experiment"):
        run_quickly(experiment(*other), tmp_path / "run", resume=True)
