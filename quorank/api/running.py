"""Runs from Python: an experiment becomes a run with a directory, as `quorank run` makes it, and an object to look at it.

run = quorank.run("fpdgd", set={"federation.rounds": 50}, out="runs/mine", seed=3)
run.history()  # a DataFrame with a row for every round
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.api.data_frames import FrameKind, to_frame
from quorank.data import Collection, DataSource, RankingData
from quorank.data import load as load_source
from quorank.data.given import source_of
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile, copied, find_experiment_file, set_value, with_seed
from quorank.experiments.finished_run import Run, load_run
from quorank.experiments.grid import Grid
from quorank.experiments.progress import Progress
from quorank.experiments.run_logs import open_logs
from quorank.experiments.runner import run_experiment
from quorank.files.arrow import read_columns
from quorank.files.manifest import digest_of, read_manifest
from quorank.parts import to_table
from quorank.privacy.ledger import read_ledger
from quorank.rankers.ranker_file import SavedRanker, read_ranker
from quorank.reports.report import report_page, write_report

Named = str | Path | Mapping[str, Any] | Experiment
"""An experiment: the name of a shipped file, a path, tables, or the value itself."""


@dataclass(frozen=True, eq=False, repr=False)
class RunResult:
    """One finished run: its figures, its ranker and what left its clients, read from its directory."""

    finished: Run

    @property
    def path(self) -> Path:
        """The directory of the run."""
        return self.finished.path

    @property
    def config(self) -> Mapping[str, Any]:
        """`run.toml`, complete: every default is written out."""
        return self.finished.config

    @property
    def summary(self) -> Mapping[str, Any]:
        """`summary.json`: final figures, interactions, seconds, privacy."""
        return self.finished.summary

    @property
    def ledger(self) -> dict[str, Any]:
        """`ledger.json`: what left the clients, and what ε that is worth."""
        return read_ledger(self.path)

    @property
    def ranker(self) -> SavedRanker:
        """The ranker that the run hands out."""
        return read_ranker(self.path)

    def history(self, frame: FrameKind = "pandas") -> Any:
        """Return a DataFrame with a row for every round: online figures of all, offline ones where it was evaluated."""
        return to_frame(self.columns(), frame)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the history, (rounds,) each; NaN where a round was not evaluated."""
        evaluated = self.finished.history
        rounds = _columns_of_rounds(self.path, int(self.summary["rounds"]))
        columns = dict(evaluated)
        if rounds is not None:
            at = evaluated["round"].astype(np.int64) - 1
            columns = {name: np.full(len(rounds["round"]), np.nan) for name in evaluated}
            for name, values in evaluated.items():
                columns[name][at] = values
            columns |= rounds
        counters = {name: columns.pop(name).astype(np.int64) for name in ("round", "interactions")}
        return counters | columns

    def report(self) -> Path:
        """Return the path of `report.html`, written anew where it is missing."""
        file = self.path / storage.REPORT
        return file if file.is_file() else write_report(self.path, file)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in self.summary["offline"].items() if value is not None)
        return f"RunResult({str(self.path)!r}: {self.summary['rounds']:,} rounds, {shown})"


def _columns_of_rounds(folder: Path, rounds: int) -> dict[str, Any] | None:
    """The online figures of every round; None where all rounds were evaluated, and of earlier versions."""
    file, digests = folder / storage.ROUNDS, read_manifest(folder)
    if not file.is_file() and storage.ROUNDS not in (digests or {}):
        return None
    digest = digest_of(digests, folder, storage.ROUNDS)
    columns = read_columns(file, ("round", "interactions"), digest=digest)
    counted = np.array_equal(columns["round"], np.arange(1, rounds + 1))
    require(counted, "file.damaged", "damaged: expected a row for every round", str(file))
    return dict(columns)


def load(
    source: str | Path, *, fold: int = 1, normalize: str = "none", queries: int | None = None, seed: int = 1
) -> Collection:
    """Return a collection: "synthetic:mq2007", a folder of LETOR files, or an imported name; raw unless told."""
    return load_source(DataSource(str(source), fold, normalize, queries, seed))  # type: ignore[arg-type]


def open_run(path: str | Path) -> RunResult:
    """Return the finished run in a directory."""
    return RunResult(load_run(path))


def run(
    experiment: Named = "recommended",
    *,
    data: Collection | RankingData | str | Path | None = None,
    set: Mapping[str, Any] | None = None,  # as the option is called
    seed: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    log: Sequence[str] = (),
    report: bool = True,
) -> RunResult:
    """Run an experiment into a directory, `runs/NAME` unless told, and return the finished run.

    `data` are arrays in place of the experiment's own (one split alone is searched and judged), or another source's name.
    `set` changes dotted keys, to values or parts: {"federation.rounds": 50, "privacy": ClippedGaussian(…)}. `log` lists
    "mlflow:DIR" and "tensorboard:DIR". `report` writes the page about the run. Ctrl-C
    stops after the round and raises Interrupted; `resume` goes on.
    """
    file, stem = experiment_file(experiment)
    for key, value in (set or {}).items():
        file = set_value(file, key, plain_value(value), f"set[{key!r}]")
    if seed is not None:
        file = with_seed(file, seed, f"seed={seed}")
    given = Collection("arrays", data, data) if isinstance(data, RankingData) else data
    if given is not None:
        source = source_of(given) if isinstance(given, Collection) else str(given)
        file = set_value(file, "data.source", source, "data")
        if isinstance(given, Collection):
            kept = {key: value for key, value in file.tables["data"].items() if key in ("source", "normalize")}
            file = ExperimentFile({**file.tables, "data": kept}, file.name, file.places)
    grid = Grid.read(file)
    if grid is not None:
        sentence = f"this file is a grid of {len(grid.cells)} runs; use `quorank run`, or take its [grid] out"
        raise BadInput("experiment.is-grid", sentence, file.name)
    folder = storage.new_folder(stem) if out is None else Path(out)
    chosen, arrays = Experiment.read(file), given if isinstance(given, Collection) else None
    return _run(chosen, folder, arrays, overwrite=overwrite, threads=threads, watch=watch, log=log, report=report)


def resume(
    path: str | Path,
    *,
    data: Collection | RankingData | None = None,
    threads: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    log: Sequence[str] = (),
) -> RunResult:
    """Go on with an interrupted run to the same bits, and return it; data that were given as arrays are given again."""
    folder = Path(path)
    storage.tidy(folder)
    done = storage.is_finished(folder)
    require(not done, "run.finished", "this run is finished; open it with open_run", str(folder))
    given = Collection("arrays", data, data) if isinstance(data, RankingData) else data
    chosen = storage.read_experiment(folder)
    return _run(chosen, folder, given, resume=True, threads=threads, watch=watch, log=log)


def _run(
    experiment: Experiment,
    folder: Path,
    given: Collection | None,
    *,
    threads: int | None,
    watch: Callable[[Progress], None] | None,
    log: Sequence[str],
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
) -> RunResult:
    logs = open_logs([log] if isinstance(log, str) else log, folder, resume=resume)

    def watched(progress: Progress) -> None:
        logs.watch(progress)
        if watch is not None:
            watch(progress)

    with logs:
        run_experiment(
            experiment,
            folder,
            watch=watched,
            threads=threads,
            resume=resume,
            overwrite=overwrite,
            opened=logs.opened,
            report=report_page if report else None,
            given=given,
        )
    return open_run(folder)


def experiment_file(experiment: Named) -> tuple[ExperimentFile, str]:
    """Return an experiment as the tables of its file, and what its directory is called."""
    if isinstance(experiment, Experiment):
        return ExperimentFile(experiment.tables(), "experiment"), "experiment"
    if isinstance(experiment, Mapping):
        return ExperimentFile(copied(experiment), "experiment"), "experiment"
    path = Path(experiment)
    return find_experiment_file(path), path.stem


def plain_value(value: Any) -> Any:
    """Return a value as an experiment file holds it: parts as tables, numbers of NumPy as Python's."""
    if hasattr(value, "__dataclass_fields__") and hasattr(value, "kind"):
        return to_table(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    return [plain_value(inner) for inner in value] if isinstance(value, list | tuple) else value
