"""Logs of runs: what MLflow and TensorBoard read back is the history of the run; a log that fails ends no run."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick_runs import run_quickly
from refusals import refused
from small_runs import experiment

from quorank.errors import Interrupted
from quorank.experiments import run_logs
from quorank.experiments.experiment_file import flatten
from quorank.experiments.run_directory import load_run
from quorank.experiments.run_logs import Metrics, open_logs

NAMES = {
    "offline_ndcg_10", "offline_maxrr", "offline_ndcg_5", "online_ndcg_10", "online_maxrr", "clicks", "update_norm",
}  # fmt: skip
CHOSEN = experiment("evaluation.every=5", "evaluation.cutoffs=[5]", "federation.server=add")


def logged_run(folder: Path, *specs: str, resume: bool = False, **options: Any) -> None:
    with open_logs(specs, folder, resume=resume) as logs:
        run_quickly(CHOSEN, folder, resume=resume, watch=logs.watch, opened=logs.opened, threads=1, **options)


def figures_of(folder: Path) -> dict[tuple[str, int], float]:
    """What a log of a run must hold: offline figures of rounds 5, 10 and 12, online ones of all twelve."""
    from quorank.api.running import RunResult

    columns = RunResult(load_run(folder)).columns()
    return {
        (name.replace("@", "_"), int(round_)): float(value)
        for name, values in columns.items()
        if name.replace("@", "_") in NAMES
        for round_, value in zip(columns["round"], values, strict=True)
        if np.isfinite(value)
    }


def records(file: Path) -> Iterator[bytes]:
    """Records of an event file: length and its checksum, content and its checksum."""
    content, at = file.read_bytes(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        yield content[at + 12 : at + 12 + length]
        at += 12 + length + 4


def test_tensorboard_reads_back_the_history(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    from tensorboardX.proto.event_pb2 import Event

    logged_run(tmp_path / "mine", f"tensorboard:{tmp_path / 'board'}")
    found, texts = {}, []
    for file in (tmp_path / "board" / "mine").glob("events.out.tfevents.*"):
        for record in records(file):
            event = Event.FromString(record)
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found[value.tag, event.step] = value.simple_value
                else:
                    texts.append(value.tensor.string_val[0].decode())
    expected = figures_of(tmp_path / "mine")
    assert {name for name, _ in found} == NAMES and found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(value, rel=1e-6) for key, value in expected.items())
    assert len(texts) == 1 and 'source = "synthetic:mq2007"' in texts[0]


@pytest.mark.slow
def test_mlflow_reads_back_history_settings_and_files(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from mlflow.tracking import MlflowClient

    folder, spec = tmp_path / "mine", f"mlflow:{tmp_path / 'store'}"
    rounds = iter(range(1, 100))
    with pytest.raises(Interrupted):
        logged_run(folder, spec, stop=lambda: next(rounds) >= 7)
    client = MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}")
    (run,) = client.search_runs(["1"])
    assert run.info.status == "KILLED"
    logged_run(folder, spec, resume=True)
    (run,) = client.search_runs(["1"])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "mine")
    assert run.data.params == {key: str(value) for key, value in flatten(load_run(folder).config).items()}
    found = {(m.key, m.step): m.value for name in NAMES for m in client.get_metric_history(run.info.run_id, name)}
    assert found == figures_of(folder)
    files = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert files == {"run.toml", "ranker.json", "history.parquet", "rounds.parquet", "ledger.json", "summary.json"}


class Unreliable:
    """A log whose disk is full from the start, from the first figures, or at the end."""

    def __init__(self, target: str) -> None:
        self.fails, self.calls = target, 0

    def _call(self, name: str) -> None:
        self.calls += 1
        if name == self.fails:
            raise OSError(28, "No space left on device")

    def begin(self, folder: Path, tables: Mapping[str, Any], *, resume: bool) -> int:
        self._call("begin")
        return 0

    def record(self, metrics: Metrics) -> None:
        self._call("record")

    def end(self, folder: Path | None) -> None:
        self._call("end")


@pytest.mark.parametrize("when", ["begin", "record", "end"])
def test_a_log_that_fails_is_told_once_and_ends_no_run(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(run_logs.TARGETS, "unreliable", Unreliable)
    monkeypatch.setattr(run_logs, "FLUSH_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "quorank"):
        logged_run(tmp_path / "run", f"unreliable:{when}", "unreliable:never")
    assert load_run(tmp_path / "run").summary["rounds"] == 12
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "No space left on device" in told[0]


def test_what_is_unknown_or_not_installed_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spec in ("mlflow", "mlflow:", "papers:x", ""):
        with refused("option.unknown-value", f"--log {spec}"):
            open_logs([spec], tmp_path / "run")
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with refused("option.not-installed", "--log tensorboard:x"):
        open_logs(["tensorboard:x"], tmp_path / "run")
    (tmp_path / "file").write_text("")
    monkeypatch.undo()
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    with refused("folder.unwritable"):
        open_logs([f"tensorboard:{tmp_path / 'file'}"], tmp_path / "run")
