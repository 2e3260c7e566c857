"""Grid of runs from one experiment file: every combination of the values of its section [grid]."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, Interrupted, brief
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile, copied, flatten, set_key, write_toml
from quorank.experiments.run_directory import ReportPage
from quorank.experiments.runner import run_experiment
from quorank.files.atomic import make_folder, write_whole
from quorank.files.documents import json_bytes
from quorank.kernels.process import available_threads, end_with_parent, terminated_by_interrupt, without_interrupts

LONGEST_NAME = 120  # of a sub-directory
MOST_CELLS = 100_000


Run = partial[dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """Combination of a grid."""

    name: str  # of its sub-directory
    values: Mapping[str, Any]  # dotted key → value
    experiment: Experiment


@dataclass(frozen=True)
class Grid:
    """An experiment file with a [grid]: dotted keys and the values that each is to take."""

    file: ExperimentFile  # without the [grid]
    axes: dict[str, list[Any]]
    cells: list[Cell]

    @staticmethod
    def read(file: ExperimentFile) -> Grid | None:
        """Read the grid of a file, None if it has none; every combination is checked before any is run."""
        tables = dict(file.tables)
        grid = tables.pop("grid", {})

        def check(ok: object, code: str, sentence: str, key: str) -> None:
            if not ok:
                raise file.located(BadInput(code, sentence, key))

        check(isinstance(grid, Mapping), "value.wrong-type", f"expected a section [grid], got {brief(grid)}", "grid")
        axes = flatten(grid)
        for key, values in axes.items():
            sentence = f"expected a list of values, got {brief(values)}"
            check(isinstance(values, list) and values, "value.wrong-type", sentence, f"grid.{key}")
        if not axes:
            return None
        count = math.prod(len(values) for values in axes.values())
        sentence = f"has {count:,} combinations; expected at most {MOST_CELLS:,}"
        check(count <= MOST_CELLS, "value.out-of-range", sentence, "grid")
        plain = ExperimentFile(tables, file.name, file.places)
        return Grid(plain, axes, _cells(plain, axes))

    def toml(self) -> bytes:
        """Encode the file with its [grid], so that a grid can be resumed.

        The parameters of a ranker file that all cells start from are included, since that file may be moved.
        """
        tables, ranker = dict(self.file.tables), self.file.tables.get("ranker")
        prior = self.cells[0].experiment.ranker.prior
        shared = not {"ranker", "ranker.start"} & {*self.axes}
        if isinstance(ranker, Mapping) and isinstance(ranker.get("start"), str) and prior is not None and shared:
            tables["ranker"] = {**ranker, "start": prior.start}
        return write_toml({**tables, "grid": self.axes}).encode()

    def open_folder(self, folder: Path, *, resume: bool, overwrite: bool) -> list[tuple[Cell, Path]]:
        """Make the grid's folder with the files about it; return the cells that are to be run, and where.

        On resume the finished cells are left out; elsewhere what an earlier grid left in the folder is deleted.
        """
        if not resume:
            storage.check_new(folder, overwrite=overwrite)
        make_folder(folder)
        storage.tidy(folder)
        if not resume:
            storage.clear(folder)
        names = [cell.name for cell in self.cells]
        write_whole(folder / storage.GRID_FILE, self.toml())
        write_whole(folder / storage.GRID_INDEX, json_bytes({"axes": self.axes, "runs": names}))
        targets = [(cell, folder / cell.name) for cell in self.cells]
        for _, target in targets:
            storage.tidy(target)
        return [(cell, target) for cell, target in targets if not (resume and storage.is_finished(target))]


def _cells(file: ExperimentFile, axes: Mapping[str, list[Any]]) -> list[Cell]:
    """All combinations, the last axis running fastest."""
    found = []
    for combination in itertools.product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        tables = copied(file.tables)
        for key, value in values.items():
            set_key(tables, key, copied(value))
        places = {**file.places, **{k: file.places.get(f"grid.{k}", f"{file.name} [grid]") for k in values}}
        name = ",".join(f"{key.rsplit('.', 1)[-1]}={_word(value)}" for key, value in values.items())
        found.append(Cell(name, values, Experiment.read(ExperimentFile(tables, file.name, places))))
    names = [cell.name for cell in found]
    if len(set(names)) < len(names) or max(map(len, names)) > LONGEST_NAME:
        found = [replace(cell, name=f"{i:03d},{cell.name}"[:LONGEST_NAME]) for i, cell in enumerate(found)]
    return found


def run_grid(
    grid: Grid,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    finished: Callable[[Cell, dict[str, Any]], None] | None = None,
    report: ReportPage | None = None,
) -> list[Path]:
    """Run every cell into its own sub-directory; cells that are finished are not run again on resume."""
    cells = grid.open_folder(folder, resume=resume, overwrite=overwrite)
    each = threads or max(1, available_threads() // jobs)
    waiting = {}
    for cell, to in cells:
        old = resume and (to / storage.CONFIG).is_file()
        run = partial(run_experiment, cell.experiment, to, threads=each, resume=old, overwrite=overwrite, report=report)
        waiting[run] = cell
    for run, summary in _results([*waiting], jobs):
        if finished is not None:
            finished(waiting[run], summary)
    return [folder / cell.name for cell in grid.cells]


def _results(runs: list[Run], jobs: int) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Runs with their summaries, as they finish."""
    if jobs == 1:
        for run in runs:
            yield run, _play(run)
        return
    # separate processes: a run that fails or is stopped leaves the others alone
    context = get_context("spawn")
    stop = context.Event()
    told = stop, os.getpid()
    with terminated_by_interrupt(), ProcessPoolExecutor(jobs, context, initializer=_listen, initargs=told) as pool:
        with without_interrupts():  # inherited by workers: Ctrl-C and SIGTERM reach them by `stop`, not in an import
            futures = {pool.submit(_play, run): run for run in runs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            stop.set()  # running cells save and end after their round, waiting ones do not start
            pool.shutdown(wait=True, cancel_futures=True)
            raise


_stop: Event | None = None


def _listen(stop: Event, parent: int) -> None:
    """In a worker: remember the event by which the process that started it asks it to stop, and end with that process."""
    global _stop
    _stop = stop
    end_with_parent(parent)


def _play(run: Run) -> dict[str, Any]:
    if _stop is not None and _stop.is_set():
        raise Interrupted(0, run.args[0].rounds)
    return run(stop=None if _stop is None else _stop.is_set)


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        value = "-".join(_word(v) for v in value.values())
    return re.sub(r"[^A-Za-z0-9_.+\-]+", "-", str(value)).strip("-") or "empty"
