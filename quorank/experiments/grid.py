"""Several runs from one file: every combination of a [grid]'s values, side by side."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, Interrupted
from quorank.experiments import run_directory as storage
from quorank.experiments.documents import Document, put, write_toml
from quorank.experiments.experiment import Experiment
from quorank.experiments.runner import run_experiment
from quorank.files import write_whole
from quorank.process import available_threads

LONGEST_NAME = 120  # of a sub-directory
INDEX, FILE = "grid.json", "grid.toml"
Task = tuple[Experiment, Path, int, bool, bool]
"""Experiment, directory, threads, resume, overwrite."""


@dataclass(frozen=True)
class Cell:
    """One combination of a grid."""

    name: str  # of its sub-directory
    values: Mapping[str, Any]  # dotted key → value
    experiment: Experiment


@dataclass(frozen=True)
class Grid:
    """An experiment file with a [grid]: dotted keys and the values that each is to take."""

    document: Document  # without the [grid]
    axes: dict[str, list[Any]]
    cells: list[Cell]

    @staticmethod
    def read(document: Document) -> Grid | None:
        """The grid of a file, None if it has none; every combination is checked before any is run."""
        tables = dict(document.tables)
        grid = tables.pop("grid", {})
        if not isinstance(grid, Mapping):
            raise BadInput(document.locate(f"grid: expected a section [grid], got {grid!r}"))
        axes: dict[str, list[Any]] = {}
        for key, values in _flatten(grid):
            if not isinstance(values, list) or not values:
                raise BadInput(document.locate(f"grid.{key}: expected a list of values, got {values!r}"))
            axes[key] = values
        if not axes:
            return None
        plain = Document(tables, document.name, document.places)
        return Grid(plain, axes, _cells(plain, axes))

    def toml(self) -> bytes:
        """The file again, so that a grid can be resumed."""
        return write_toml({**self.document.tables, "grid": self.axes}).encode()


def _cells(document: Document, axes: Mapping[str, list[Any]]) -> list[Cell]:
    """All combinations, the last axis running fastest."""
    found = []
    for combination in itertools.product(*axes.values()):
        values = dict(zip(axes, combination, strict=True))
        tables = _copied(document.tables)
        for key, value in values.items():
            put(tables, key, _copied(value))
        places = {
            **document.places,
            **{k: document.places.get(f"grid.{k}", f"{document.name} [grid]") for k in values},
        }
        name = ",".join(f"{key.rsplit('.', 1)[-1]}={_word(value)}" for key, value in values.items())
        found.append(Cell(name, values, Experiment.read(Document(tables, document.name, places))))
    names = [cell.name for cell in found]
    if len(set(names)) < len(names) or max(map(len, names)) > LONGEST_NAME:
        found = [
            Cell(f"{i:03d},{cell.name}"[:LONGEST_NAME], cell.values, cell.experiment)
            for i, cell in enumerate(found)
        ]
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
) -> list[Path]:
    """Run every cell into its own sub-directory; cells that are finished are not run again on resume."""
    if not resume:
        storage.check_new(folder, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        storage.clear(folder)
    folders = [folder / cell.name for cell in grid.cells]
    write_whole(folder / FILE, grid.toml())
    write_whole(folder / INDEX, storage.json_bytes({"axes": grid.axes, "runs": [f.name for f in folders]}))
    each = threads or max(1, available_threads() // jobs)
    waiting = {
        (cell.experiment, target, each, resume and (target / storage.CONFIG).is_file(), overwrite): cell
        for cell, target in zip(grid.cells, folders, strict=True)
        if not (resume and storage.is_finished(target))
    }
    for task, summary in _results(list(waiting), jobs):
        if finished is not None:
            finished(waiting[task], summary)
    return folders


def _results(tasks: list[Task], jobs: int) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Tasks with their summaries, as they finish."""
    if jobs == 1:
        for task in tasks:
            yield task, _run(task)
        return
    # separate processes: a run that fails or is stopped leaves the others alone
    context = get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_listen, initargs=(stop,)) as pool:
        futures = {pool.submit(_run, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            stop.set()  # running cells save and end after their round, waiting ones do not start
            pool.shutdown(wait=True, cancel_futures=True)
            raise


_stop: Event | None = None


def _listen(stop: Event) -> None:
    """In a worker: heed the word of the process that started it."""
    global _stop
    _stop = stop


def _run(task: Task) -> dict[str, Any]:
    experiment, folder, threads, resume, overwrite = task
    stop = _stop.is_set if _stop is not None else None
    if stop is not None and stop():
        raise Interrupted(0, experiment.rounds)
    return run_experiment(experiment, folder, threads=threads, resume=resume, overwrite=overwrite, stop=stop)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _copied(value: Any) -> Any:
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        value = "-".join(_word(v) for v in value.values())
    return re.sub(r"[^A-Za-z0-9_.+\-]+", "-", str(value)).strip("-") or "empty"
