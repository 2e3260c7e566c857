"""Runs from Python: `run`, `resume` and `open_run` return a `RunResult`, which reads the directory of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
import numpy.typing as npt

from quorank.api.data_frames import FrameKind, to_frame
from quorank.data import Collection, DataSource, RankingData
from quorank.data import load as load_source
from quorank.data.source import array_source_name
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import PART_KEYS, Experiment
from quorank.experiments.experiment_file import ExperimentFile, copied, find_experiment_file, set_value, with_seed
from quorank.experiments.grid import Grid
from quorank.experiments.progress import Progress
from quorank.experiments.run_directory import Run, RunSummary, load_run
from quorank.experiments.run_logs import open_logs
from quorank.experiments.runner import run_experiment
from quorank.files.arrow import read_columns
from quorank.files.documents import digest_of, read_manifest
from quorank.parts import is_part, to_table
from quorank.privacy.ledger import LedgerContent, read_ledger
from quorank.rankers.ranker_file import SavedRanker, read_ranker
from quorank.reports.report import report_page, write_report

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Named = str | Path | Mapping[str, Any] | Experiment
"""Name of a shipped experiment, path of a file, its tables, or an `Experiment`."""


@dataclass(frozen=True, eq=False, repr=False)
class RunResult:
    """Finished run: metrics, ranker and privacy ledger, read from its directory. `run` and `open_run` return it.

    >>> import quorank as qr
    >>> settings = {"data.queries": 60, "federation.clients": 10, "federation.rounds": 3}
    >>> result = qr.run("fpdgd", set=settings, out="runs/result", seed=3)
    >>> result.summary["rounds"], result.config["federation"]["clients"]
    (3, 10)
    >>> result.columns()["round"].tolist()
    [1, 2, 3]
    >>> result.ranker.n_features, result.ledger["privacy"]
    (46, None)
    """

    finished: Run  # files of the run

    @property
    def path(self) -> Path:
        """Directory of the run."""
        return self.finished.path

    @property
    def config(self) -> Mapping[str, Any]:
        """Content of `run.toml`, with every default written out."""
        return self.finished.config

    @property
    def summary(self) -> RunSummary:
        """Content of `summary.json`.

        Returns:
            `offline` and `online` metrics by name, such as "ndcg@10"; `rounds`; `interactions`; `seconds` of training
            ("train") and evaluation ("evaluate"); `interactions_per_second`; `privacy`, with ε, δ and their horizon, None
            without privacy; `seed`; `version`.
        """
        return cast("RunSummary", self.finished.summary)

    @property
    def ledger(self) -> LedgerContent:
        """Content of `ledger.json`.

        Returns:
            `mechanism` and `setting` of the run; `releases`, one entry per group of rounds with the same sensitivity and
            noise; `privacy`, the ε of all releases together, None if no ε is stated; `spent`, ε after each round.

        Raises:
            BadInput: The file is missing or was changed.
        """
        return cast("LedgerContent", read_ledger(self.path))

    @property
    def ranker(self) -> SavedRanker:
        """The final ranker, which scores raw features."""
        return read_ranker(self.path)

    @overload
    def history(self, frame: Literal["pandas"] = "pandas") -> pandas.DataFrame: ...

    @overload
    def history(self, frame: Literal["polars"]) -> polars.DataFrame: ...

    @overload
    def history(self, frame: Literal["pyarrow"]) -> pyarrow.Table: ...

    def history(self, frame: FrameKind = "pandas") -> Any:
        """Return a data frame with a row for every round, and the columns of `columns`.

        Args:
            frame: Library of the data frame: "pandas", "polars" or "pyarrow". pyarrow is always installed.

        Returns:
            A `pandas.DataFrame`, `polars.DataFrame` or `pyarrow.Table`.

        Raises:
            BadInput: The library is not installed, or a file of the run was changed.

        >>> import quorank as qr
        >>> settings = {"data.queries": 60, "federation.rounds": 4, "evaluation.every": 2}
        >>> table = qr.run("fpdgd", set=settings, out="runs/history").history("pyarrow")
        >>> table.num_rows, table.column_names[:4]
        (4, ['round', 'interactions', 'offline_ndcg@10', 'offline_maxrr'])
        """
        return to_frame(self.columns(), frame)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the history by name, (rounds,) each; NaN where a round was not evaluated.

        Returns:
            - `round`, `interactions`: int64; number of the round, from 1, and interactions so far.
            - `online_ndcg@10`, `online_maxrr`: means over the lists that were shown in the round; of queries without a
              relevant document as `evaluation.no_relevant` says.
            - `online_discounted`: Σ γ^(t−1) of the online nDCG@10 so far, γ = 0.9995.
            - `clicks`: clicks per interaction.
            - `update_norm`: L2 norm of the aggregated update.
            - `offline_ndcg@10`, `offline_maxrr`, and `offline_ndcg@K` for each further cutoff K: means over the test
              queries, in evaluated rounds.
            - `validation_ndcg@10`, `average`: choice of the published mean of rankers, if a validation split makes one.

            All but the first two are float64.
        """
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
        """Return the path of `report.html`, which is written if it is missing."""
        file = self.path / storage.REPORT
        return file if file.is_file() else write_report(self.path, file)

    def __repr__(self) -> str:
        metrics = ", ".join(
            f"{name} {value:.4f}" for name, value in self.summary["offline"].items() if value is not None
        )
        return f"RunResult({str(self.path)!r}: {self.summary['rounds']:,} rounds, {metrics})"


def _columns_of_rounds(folder: Path, rounds: int) -> dict[str, Any] | None:
    """Return the online metrics of every round; None if all rounds were evaluated."""
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
    """Load a collection of ranking data.

    Args:
        source: A generated collection such as "synthetic:mq2007", a folder of LETOR files, or an imported name.
        fold: Fold of a collection with five folds, from 1.
        normalize: "query" scales features within each list; "none" keeps them raw.
        queries: Number of queries of a generated collection; default: as many as the original has.
        seed: Seed of a generated collection.

    Returns:
        The splits of the collection.

    Raises:
        BadInput: The source is unknown, or a file is malformed.

    >>> import quorank as qr
    >>> collection = qr.load("synthetic:mq2007", queries=60)
    >>> collection.train.n_queries, collection.train.n_features
    (60, 46)
    """
    return load_source(DataSource(str(source), fold, normalize, queries, seed))  # type: ignore[arg-type]


def open_run(path: str | Path) -> RunResult:
    """Open the finished run in a directory.

    Args:
        path: Directory that `qr.run` or `quorank run` wrote.

    Returns:
        The run.

    Raises:
        BadInput: The directory holds no finished run, or a file of it was changed.

    >>> import quorank as qr
    >>> written = qr.run("fpdgd", set={"data.queries": 60, "federation.rounds": 2}, out="runs/opened")
    >>> qr.open_run("runs/opened").summary == written.summary
    True
    """
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
    """Run an experiment into a directory, as `quorank run` does, to the same bits unless the run is `processor_dependent`.

    Ctrl-C stops after the current round and raises `Interrupted`; `resume` continues the run.

    Args:
        experiment: Name of a shipped experiment, path of a file, its tables, or an `Experiment`.
        data: Arrays or the name of a source, in place of the experiment's data. A single split is both searched and
            evaluated.
        set: Values or parts by dotted key: {"federation.rounds": 50, "learner": MyLearner(eta=0.2)}. A part may be of your
            own class; `run.toml` records its kind, or `module:Class` if its module can be imported.
        seed: Seed of the run.
        out: Directory; default: a new one, `runs/NAME`.
        overwrite: Replace an earlier run in the directory.
        threads: Number of threads; default: all cores.
        watch: Called with the progress after each round, or after rounds up to the next evaluation played in one call.
        log: "mlflow:DIR" and "tensorboard:DIR".
        report: Write `report.html`.

    Returns:
        The finished run.

    Raises:
        BadInput: A setting, the data or the directory is invalid; nothing was written.
        Interrupted: Ctrl-C stopped the run.

    >>> import quorank as qr
    >>> settings = {"data.queries": 60, "federation.clients": 10, "federation.rounds": 2}
    >>> result = qr.run("fpdgd", set=settings, out="runs/mine", seed=3)
    >>> result.summary["interactions"], (result.path / "report.html").is_file()
    (80, True)
    """
    file, stem = experiment_file(experiment)
    for key, value in (set or {}).items():
        given = value if key in PART_KEYS and is_part(value) else plain_value(value)
        file = set_value(file, key, given, f"set[{key!r}]")
    if seed is not None:
        file = with_seed(file, seed, f"seed={seed}")
    arrays = _as_collection(data)
    if data is not None:
        file = set_value(file, "data.source", str(data) if arrays is None else array_source_name(arrays), "data")
    if arrays is not None:
        kept = {key: value for key, value in file.tables["data"].items() if key in ("source", "normalize")}
        file = ExperimentFile({**file.tables, "data": kept}, file.name, file.places)
    grid = Grid.read(file)
    if grid is not None:
        sentence = f"this file is a grid of {len(grid.cells)} runs; use `quorank run`, or remove its [grid]"
        raise BadInput("experiment.is-grid", sentence, file.name)
    folder = storage.new_folder(stem) if out is None else Path(out)
    chosen = Experiment.read(file)
    return _run(chosen, folder, arrays, overwrite=overwrite, threads=threads, watch=watch, log=log, report=report)


def resume(
    path: str | Path,
    *,
    data: Collection | RankingData | None = None,
    threads: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    log: Sequence[str] = (),
) -> RunResult:
    """Continue an interrupted run to the same bits as without the interruption.

    Args:
        path: Directory of the run.
        data: The arrays that the run was started with, if any; their digest is checked.
        threads: Number of threads; default: all cores.
        watch: Called with the progress after each round, or after rounds up to the next evaluation played in one call.
        log: "mlflow:DIR" and "tensorboard:DIR".

    Returns:
        The finished run.

    Raises:
        BadInput: The run is finished, the directory holds none, or the data are others.
        Interrupted: Ctrl-C stopped the run again.

    >>> import quorank as qr
    >>> def stop(progress):
    ...     if progress.done == 1:
    ...         raise KeyboardInterrupt
    >>> settings = {"data.queries": 60, "federation.clients": 10, "federation.rounds": 3}
    >>> try:
    ...     qr.run("fpdgd", set=settings, out="runs/stopped", watch=stop)
    ... except (KeyboardInterrupt, qr.Interrupted):
    ...     pass
    >>> qr.resume("runs/stopped").summary["rounds"]
    3
    """
    folder = Path(path)
    storage.tidy(folder)
    done = storage.is_finished(folder)
    require(not done, "run.finished", "this run is finished; open it with open_run", str(folder))
    chosen = storage.read_experiment(folder)
    return _run(chosen, folder, _as_collection(data), resume=True, threads=threads, watch=watch, log=log)


def _as_collection(data: Collection | RankingData | str | Path | None) -> Collection | None:
    """Return arrays as a collection; None for a source's name."""
    if isinstance(data, RankingData):
        return Collection("arrays", data, data)
    return data if isinstance(data, Collection) else None


def _run(
    experiment: Experiment,
    folder: Path,
    data: Collection | None,
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
            given=data,
        )
    return open_run(folder)


def experiment_file(experiment: Named) -> tuple[ExperimentFile, str]:
    """Return an experiment as the tables of its file, and the default name of its directory."""
    if isinstance(experiment, Experiment):
        return ExperimentFile(experiment.tables() | experiment.parts, "experiment"), "experiment"
    if isinstance(experiment, Mapping):
        return ExperimentFile(copied(experiment), "experiment"), "experiment"
    path = Path(experiment)
    return find_experiment_file(path), path.stem


def plain_value(value: Any) -> Any:
    """Return a value as an experiment file holds it: parts as tables, NumPy numbers as Python numbers."""
    if hasattr(value, "__dataclass_fields__") and hasattr(value, "kind") and not isinstance(value, type):
        return to_table(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    return [plain_value(inner) for inner in value] if isinstance(value, list | tuple) else value
