"""Grid of runs on several hosts, by the workers of a Dask cluster.

A worker plays a run in a temporary directory and returns its files as bytes, which are written here, the summary last.
Hosts share no disk, and runs of a dead worker are given to another. Files are those of a grid on one host, byte for byte.

Hosts must hold the same Quorank, which is checked, and the same data under the same paths, which is not.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from quorank import __version__
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file, write_toml
from quorank.experiments.grid import Cell, Grid
from quorank.experiments.run_directory import ReportPage, RunSummary
from quorank.experiments.runner import run_experiment
from quorank.files.atomic import write_whole
from quorank.files.documents import parse_json

CONNECT_SECONDS = 20.0
STOP_SECONDS = 1.0  # interval at which a run asks whether to stop
_LIBRARIES = ("numpy", "numba", "scipy", "pyarrow")
Files = dict[str, bytes]
Versions = dict[str, str]


def run_on_cluster(
    grid: Grid,
    folder: Path,
    address: str,
    *,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    finished: Callable[[Cell, dict[str, Any]], None] | None = None,
    report: ReportPage | None = None,
) -> list[Path]:
    """Run every cell of a grid on the workers of a Dask scheduler, as `run_grid` does on this host.

    Workers run as many cells at once as they have threads, each with one thread unless told otherwise. On resume finished
    cells are kept, and unfinished ones begin again. `report` is a function of a module, which workers find by its name.
    """
    if not resume:
        storage.check_new(folder, overwrite=overwrite)  # before any connection
    client = _connect(address)
    with client:
        check_workers(client)
        waiting = grid.open_folder(folder, resume=resume, overwrite=overwrite)
        if not (resume or overwrite):
            for _, target in waiting:
                storage.check_new(target)
        for cell, target, files in _results(client, waiting, threads or 1, report):
            _write(target, files)
            if finished is not None:
                finished(cell, parse_json(files[storage.SUMMARY], RunSummary, str(target)))
    return [folder / cell.name for cell in grid.cells]


def _distributed() -> Any:
    """Import Dask's package, which is not needed for anything else."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        sentence = "--cluster needs the package distributed, which is not installed; install quorank[cluster]"
        raise BadInput("package.missing", sentence) from None


def _connect(address: str) -> Any:
    dask = _distributed()
    try:
        return dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        sentence = f"no Dask scheduler answers there ({type(error).__name__}); start one with: dask scheduler"
        raise BadInput("cluster.unreachable", sentence, f"--cluster {address}") from None


def versions() -> Versions:
    """Return the versions that must be the same on all hosts for results to be the same bytes."""
    package, sources = Path(__file__).parents[1], hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith("benchmarks/"):  # these lie elsewhere in a checkout
            sources.update(name.encode() + b"\0" + path.read_bytes())
    found = {"quorank": f"{__version__} ({sources.hexdigest()})"}
    return found | {name: importlib.metadata.version(name) for name in _LIBRARIES}


def check_workers(client: Any) -> None:
    """Refuse a cluster without workers, or with one whose Quorank or libraries are not those of this host."""

    def versions_there() -> Any:  # goes to the workers as code, since Quorank may be absent there
        try:
            from quorank.experiments.cluster import versions as theirs
        except ImportError:
            return {"quorank": "none"}
        return theirs()

    found: Mapping[str, Versions] = client.run(versions_there)
    start = "the cluster has no workers; start some with: dask worker ADDRESS, in an environment with Quorank"
    require(found, "cluster.without-workers", start)
    for worker, theirs in sorted(found.items()):
        for name, version in versions().items():
            other = theirs.get(name)
            sentence = f"the worker {worker} has {name} {other}, and here it is {version}; install the same on both"
            require(other == version, "cluster.other-version", sentence)


def _results(
    client: Any, waiting: list[tuple[Cell, Path]], threads: int, report: ReportPage | None
) -> Iterator[tuple[Cell, Path, Files]]:
    """Yield cells with the files of their runs, as they finish."""
    dask = _distributed()
    stop = dask.Event(client=client)
    futures = {}
    for cell, target in waiting:
        task = (write_toml(cell.experiment.tables()), target.name, threads, stop.name, report)
        futures[client.submit(run_cell, *task, pure=False)] = cell, target
    try:
        for future in dask.as_completed(list(futures), loop=client.loop):
            cell, target = futures.pop(future)
            try:
                files = future.result()
            except dask.KilledWorker:
                sentence = "every worker that was given this run died of it; give workers more memory"
                raise BadInput("cluster.worker-died", sentence, cell.name) from None
            if isinstance(files, BadInput):
                raise files.at(cell.name)
            yield cell, target, files
    except BaseException:
        stop.set()
        client.cancel(list(futures))
        raise


def _write(target: Path, files: Files) -> None:
    """Write a run's files; the summary, which marks it as finished, comes last."""
    target.mkdir(parents=True, exist_ok=True)
    storage.clear(target)
    for name in sorted(files, key=lambda name: (name == storage.SUMMARY, name)):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, files[name])


def run_cell(toml: str, name: str, threads: int, stop: str, report: ReportPage | None) -> Files | BadInput:
    """On a worker: play one run and return its files, or why it cannot be run; `stop` names the event to stop it."""
    stopped, asked = _distributed().Event(stop), time.monotonic()

    def stopping() -> bool:
        nonlocal asked
        due = time.monotonic() - asked > STOP_SECONDS
        asked = time.monotonic() if due else asked
        return due and bool(stopped.is_set())

    with tempfile.TemporaryDirectory(prefix="quorank-") as folder:
        target = Path(folder, name)
        try:
            experiment = Experiment.read(parse_experiment_file(toml, name))
            run_experiment(experiment, target, threads=threads, stop=stopping, report=report)
        except BadInput as error:
            return error
        return {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
