"""Logs of a run for other people's tools: MLflow and TensorBoard, written while the run goes on.

`mlflow:DIR` keeps a run in the SQLite database DIR/mlflow.db (or on the tracking server that an address names), with the
keys of `run.toml` as parameters, a metric a column, and the run's files as artifacts. `tensorboard:DIR` writes event files
into DIR/RUN. A log that fails is said once and left alone: it never ends a run. Usage statistics of these packages are
switched off.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, first_line, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment_file import flatten, write_toml
from quorank.experiments.progress import COLUMNS, ONLINE, Progress
from quorank.experiments.runner import Runner
from quorank.files.atomic import make_folder

FLUSH_SECONDS = 1.0
LONGEST_VALUE = 6000  # characters of a parameter that MLflow takes
ARTIFACTS = (
    storage.CONFIG, storage.RANKER, storage.HISTORY, storage.ROUNDS, storage.LEDGER, storage.SUMMARY, storage.REPORT,
)  # fmt: skip

_logger = logging.getLogger("quorank")

Metrics = Sequence[tuple[int, str, float]]  # (round, name, value) of some rounds


class MLflowLog:
    """Run in MLflow's tracking store; `target` is a directory or the address of a tracking server."""

    def __init__(self, target: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "true")
        self._entities, tracking = import_module("mlflow.entities"), import_module("mlflow.tracking")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._artifacts: str | None = None
        if "://" not in target:
            make_folder(Path(target))
            home = Path(target).absolute()
            target, self._artifacts = f"sqlite:///{home / 'mlflow.db'}", (home / "artifacts").as_uri()
        self._client = tracking.MlflowClient(tracking_uri=target)
        self._run = ""

    def begin(self, folder: Path, tables: Mapping[str, Any], *, resume: bool) -> int:
        """Start with the settings of a run; return the round up to which it was logged before."""
        client, tag = self._client, str(folder.absolute())
        found = client.get_experiment_by_name("quorank")
        where = {} if self._artifacts is None else {"artifact_location": self._artifacts}
        experiment = client.create_experiment("quorank", **where) if found is None else found.experiment_id
        if resume:
            name = tag.replace("'", "''")
            mine = client.search_runs([experiment], f"tags.`quorank.folder` = '{name}'", max_results=1)
            if mine:
                self._run = mine[0].info.run_id
                client.update_run(self._run, status="RUNNING")
                return max((metric.step for metric in client.get_metric_history(self._run, ONLINE[2])), default=0)
        self._run = client.create_run(experiment, run_name=folder.name, tags={"quorank.folder": tag}).info.run_id
        parameters = [(key, str(value)[:LONGEST_VALUE]) for key, value in flatten(tables).items()]
        for first in range(0, len(parameters), 100):
            some = [self._entities.Param(*each) for each in parameters[first : first + 100]]
            client.log_batch(self._run, params=some)
        return 0

    def record(self, metrics: Metrics) -> None:
        """Log metrics of rounds."""
        now = int(time.time() * 1000)
        for first in range(0, len(metrics), 1000):
            some = [self._entities.Metric(n, value, now, step) for step, n, value in metrics[first : first + 1000]]
            self._client.log_batch(self._run, metrics=some)

    def end(self, folder: Path | None) -> None:
        """Close the log: of a finished run with its directory, of a broken one without."""
        for name in ARTIFACTS:
            if folder is not None and (folder / name).is_file():
                self._client.log_artifact(self._run, str(folder / name))
        self._client.set_terminated(self._run, "KILLED" if folder is None else "FINISHED")


class TensorBoardLog:
    """Run as TensorBoard's event files; same methods as `MLflowLog`."""

    def __init__(self, target: str) -> None:
        self._library, self._target = import_module("tensorboardX"), Path(target)
        make_folder(self._target)
        self._writer: Any = None

    def begin(self, folder: Path, tables: Mapping[str, Any], *, resume: bool) -> int:
        self._writer = self._library.SummaryWriter(str(self._target / folder.absolute().name))
        self._writer.add_text("run.toml", "\n".join(f"    {line}" for line in write_toml(tables).splitlines()), 0)
        return 0

    def record(self, metrics: Metrics) -> None:
        for step, name, value in metrics:
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self, folder: Path | None) -> None:
        self._writer.close()


LogTarget = MLflowLog | TensorBoardLog
TARGETS: dict[str, type[LogTarget]] = {"mlflow": MLflowLog, "tensorboard": TensorBoardLog}


@dataclass(eq=False)
class RunLogs:
    """Logs of one run, by the option's word; `watch` is called after each round."""

    targets: dict[str, LogTarget]
    folder: Path
    resume: bool
    _next: dict[str, list[int]] = field(default_factory=dict, init=False)  # rounds logged: online, offline
    _flushed: float = field(default=0.0, init=False)

    def opened(self, runner: Runner) -> None:
        """Start the logs with the settings of a run."""
        tables = runner.experiment.tables()
        for spec in [*self.targets]:
            self._next[spec] = [0, 0]
            self._next[spec][0] = self._try(spec, lambda it: it.begin(self.folder, tables, resume=self.resume)) or 0

    def watch(self, progress: Progress) -> None:
        """Log the rounds that are new, every second or so; all of them once the last one is done."""
        if progress.done < progress.rounds and time.monotonic() - self._flushed < FLUSH_SECONDS:
            return
        self._flushed = time.monotonic()
        for spec in [*self.targets]:
            new = _new_metrics(progress, self._next[spec])
            self._try(spec, lambda target, new=new: target.record(new))  # type: ignore[misc]

    def __enter__(self) -> RunLogs:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Close the logs, with the files of a finished run."""
        for spec in [*self.targets]:
            if spec in self._next:
                self._try(spec, lambda target: target.end(self.folder if kind is None else None))

    def _try(self, spec: str, work: Callable[[LogTarget], Any]) -> Any:
        """Report any error of a library once, and stop logging there."""
        try:
            return work(self.targets[spec])
        except Exception as error:
            del self.targets[spec]
            line = first_line(error)
            _logger.warning("quorank: --log %s: %s (%s); no more is logged", spec, type(error).__name__, line)


def _new_metrics(progress: Progress, done: list[int]) -> list[tuple[int, str, float]]:
    """Return new metrics; offline ones follow later than online ones, for several rounds at a time."""
    offline = [name for name in (*COLUMNS, *progress.further) if name not in ONLINE]
    found = []
    for at, names in enumerate((ONLINE, offline)):
        for row in range(done[at], progress.done):
            for name in names:
                value = float(progress.values[name][row])
                if math.isfinite(value):
                    found.append((row + 1, name.replace("@", "_"), value))
                    done[at] = row + 1
    done[0] = progress.done
    return found


def open_logs(specs: Sequence[str], folder: Path, *, resume: bool = False) -> RunLogs:
    """Return the logs of options such as `--log mlflow:DIR`; refuse unknown and missing libraries."""
    targets = {}
    for spec in specs:
        kind, _, target = spec.partition(":")
        where, expected = f"--log {spec}", f"expected {' or '.join(f'{name}:DIR' for name in TARGETS)}"
        require(kind in TARGETS and target, "option.unknown-value", expected, where)
        try:
            targets[spec] = TARGETS[kind](target)
        except ImportError as error:
            sentence = f"needs {error.name}; install it with: pip install 'quorank[{kind}]'"
            raise BadInput("option.not-installed", sentence, where) from None
        except BadInput:
            raise
        except Exception as error:  # any error of a tracking store
            sentence = f"cannot be opened ({type(error).__name__}: {first_line(error)})"
            raise BadInput("log.unusable", sentence, where) from None
    return RunLogs(targets, folder, resume)
