"""Grid of runs on several hosts, by the workers of a Dask cluster.

A worker starts a process for each run, which writes into a temporary directory; its files are returned as bytes and written
here, the summary last. Hosts share no disk, a killed run leaves its worker alive, and runs of a dead worker are given to
another. Files are those of a grid on one host, byte for byte.

Hosts must hold the same Quorank, which is checked, and the same data under the same paths, which is not.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from quorank import __version__
from quorank.errors import BadInput, Interrupted, require
from quorank.experiments.experiment_file import read_experiment_file, write_toml
from quorank.files.atomic import write_whole
from quorank.files.documents import parse_json

if TYPE_CHECKING:
    from quorank.experiments.grid import Cell, Grid
    from quorank.experiments.run_directory import ReportPage

CONNECT_SECONDS = 20.0
AGAIN = 2
"""Retries of a run whose process was killed; Dask itself allows three deaths of workers."""

_BAD, _STOPPED = 2, 130
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
    from quorank.experiments import run_directory as storage
    from quorank.experiments.run_directory import RunSummary

    if not resume:
        storage.check_new(folder, overwrite=overwrite)
    client = _connect(address)
    with client:
        check_workers(client)
        waiting = grid.open_folder(folder, resume=resume, overwrite=overwrite)
        if not (resume or overwrite):
            for _, target in waiting:
                storage.check_new(target)
        page = "" if report is None else f"{report.__module__}:{report.__name__}"
        for cell, target, files in _results(client, waiting, threads or 1, page):
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
    """Connect to the scheduler."""
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

    found = client.run(versions_there)
    start = "the cluster has no workers; start some with: dask worker ADDRESS, in an environment with Quorank"
    require(found, "cluster.without-workers", start)
    check_versions(versions(), found)


def check_versions(ours: Versions, found: Mapping[str, Versions]) -> None:
    """Refuse the first worker that differs from this host."""
    for worker, theirs in sorted(found.items()):
        for name, version in ours.items():
            found_there = theirs.get(name)
            sentence = (
                f"the worker {worker} has {name} {found_there}, and here it is {version}; install the same on both"
            )
            require(found_there == version, "cluster.other-version", sentence)


def _results(
    client: Any, waiting: list[tuple[Cell, Path]], threads: int, page: str
) -> Iterator[tuple[Cell, Path, Files]]:
    """Yield cells with the files of their runs, as they finish."""
    dask = _distributed()
    stop = dask.Event(client=client)
    futures = {}
    for cell, target in waiting:
        task = (write_toml(cell.experiment.tables()), target.name, threads, stop.name, page)
        futures[client.submit(run_cell, *task, pure=False, retries=AGAIN)] = cell, target
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
    from quorank.experiments import run_directory as storage

    target.mkdir(parents=True, exist_ok=True)
    storage.clear(target)
    for name in sorted(files, key=lambda name: (name == storage.SUMMARY, name)):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, files[name])


def run_cell(toml: str, name: str, threads: int, stop: str, page: str) -> Files | BadInput:
    """On a worker: play one run and return its files, or why it cannot be run; raise where it was killed or stopped.

    `stop` is the name of the event by which the run is told to stop, `page` that of the function for its report.
    """
    stopped = _distributed().Event(stop)
    with tempfile.TemporaryDirectory(prefix="quorank-") as folder:
        file, target = Path(folder, "cell.toml"), Path(folder, name)
        file.write_text(toml, encoding="utf-8")
        command = [sys.executable, "-m", "quorank.experiments.cluster", str(file), str(target), str(threads), page]
        with Path(folder, "stderr").open("w+b") as messages:
            # its input stays open for as long as this worker lives
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=messages)
            try:
                while (code := _wait(process)) is None:
                    if stopped.is_set():
                        raise Interrupted(0, 0)
            finally:
                process.kill()
                process.wait()
            messages.seek(0)
            text = messages.read().decode(errors="replace").strip()
        if code == _BAD:
            name, sentence, where = json.loads(text.splitlines()[-1])
            return BadInput(name, sentence, where)
        if code != 0:
            raise RuntimeError(f"the run's process ended with {code}: {text[-500:]}")
        return {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return None


def _end_with_parent() -> None:
    """End when the worker does, which holds the other end of this process's input."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(_STOPPED)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str]) -> int:
    """`cluster FILE FOLDER THREADS PAGE`: play one run in this process."""
    file, folder, threads, page = arguments
    _end_with_parent()
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.runner import run_experiment

    report = resolve_name(page) if page else None
    try:
        experiment = Experiment.read(read_experiment_file(Path(file)))
        run_experiment(experiment, Path(folder), threads=int(threads), report=report)
    except BadInput as error:
        print(json.dumps([error.code, error.sentence, error.where]), file=sys.stderr)
        return _BAD
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
