"""`quorank run FILE`: run an experiment file, or a grid of experiments, into a directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.cli.display import compiling, print_result, print_summary, print_text, say, show_progress
from quorank.cli.options import Json, Quiet
from quorank.errors import BadInput, Interrupted, require
from quorank.experiments.experiment_file import shipped_names

ENGINES = ("process", "flower", "https")
SHIPPED = ", ".join(shipped_names())

if TYPE_CHECKING:
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.grid import Cell, Grid
    from quorank.experiments.progress import Progress
    from quorank.experiments.runner import Runner


def run(
    file: Annotated[Path | None, Argument(help=f"Experiment file, or the name of a shipped one: {SHIPPED}.")] = None,
    assignments: Annotated[
        list[str] | None,
        Option(
            "--set", metavar="KEY=VALUE", help="Change a key of the file, such as federation.clients=100. Repeatable."
        ),
    ] = None,
    seed: Annotated[int | None, Option(help="Random seed.")] = None,
    out: Annotated[Path | None, Option(help="Directory of the run.", show_default="a new one below runs/")] = None,
    resume: Annotated[Path | None, Option(help="Continue the interrupted run or grid in a directory.")] = None,
    jobs: Annotated[int, Option(min=1, help="Number of parallel runs of a grid.")] = 1,
    threads: Annotated[
        int | None,
        Option(min=1, help="Threads of a run; the result does not depend on them.", show_default="all cores"),
    ] = None,
    engine: Annotated[
        str, Option(help="process, flower (a Flower network) or https (a service); the result is the same.")
    ] = "process",
    nodes: Annotated[int, Option(min=1, help="With --engine flower: number of nodes.")] = 4,
    workers: Annotated[int, Option(min=1, help="With --engine https: intake processes.")] = 2,
    database: Annotated[
        str, Option(metavar="URL", help="With --engine https: PostgreSQL database.", show_default="SQLite in the run")
    ] = "",
    cluster: Annotated[
        str | None, Option(metavar="ADDRESS", help="Run a grid on the workers of a Dask scheduler, host:port.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an earlier run in the directory.")] = False,
    watch: Annotated[bool, Option("--watch", help="Serve a live page of the run and print its address.")] = False,
    port: Annotated[int, Option(min=0, max=65535, help="With --watch: port of the page; 0 takes a free one.")] = 0,
    stay: Annotated[bool, Option("--stay", help="With --watch: serve the page until Ctrl-C.")] = False,
    log: Annotated[
        list[str] | None,
        Option(metavar="TOOL:DIR", help="Also log every round to mlflow:DIR or tensorboard:DIR. Repeatable."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment file and write the run's directory.

    The file holds only differences from the defaults. A section "grid" with
    lists under dotted keys runs every combination. Ctrl-C stops after the
    current round; --resume continues to the same result.
    """
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import find_experiment_file, read_experiment_file, set_values, with_seed
    from quorank.experiments.grid import Grid
    from quorank.experiments.run_directory import GRID_FILE, new_folder, read_experiment

    require(engine in ENGINES, "option.unknown-value", f"expected {' or '.join(ENGINES)}, got {engine!r}", "--engine")
    require(watch or not (port or stay), "option.conflict", "--port and --stay need --watch")
    if resume is not None:
        sentence = "--resume continues the run as it was started; leave out the file, --set, --seed and --out"
        alone = not assignments and all(given is None for given in (file, seed, out))
        require(alone, "option.conflict", sentence)
        folder, grid_file = resume, resume / GRID_FILE
        grid = Grid.read(read_experiment_file(grid_file)) if grid_file.is_file() else None
    else:
        sentence = f"quorank run needs an experiment file, the name of a shipped one ({SHIPPED}), or --resume DIR"
        if file is None:
            raise BadInput("option.missing", sentence)
        chosen = set_values(find_experiment_file(file), assignments or [])
        if seed is not None:
            chosen = with_seed(chosen, seed, f"--seed {seed}")
        grid, folder = Grid.read(chosen) if "grid" in chosen.tables else None, out or new_folder(file.stem)
    how: dict[str, Any] = {"threads": threads, "resume": resume is not None, "overwrite": overwrite}
    if grid is not None:
        for name, used in (("--engine", engine != "process"), ("--watch", watch), ("--log", log)):
            require(not used, "option.conflict", f"{name} is for one run, and this file is a grid")
        _run_grid(grid, folder, jobs, cluster, how, json=json, quiet=quiet)
        return
    sentence = "--cluster is for grids; add a [grid] to the file, or leave the option out"
    require(cluster is None, "option.conflict", sentence)
    if jobs > 1:
        say(
            "quorank: --jobs is for grids and has no effect here: a single run uses all cores, or the number of --threads"
        )
    experiment = read_experiment(folder) if resume else Experiment.read(chosen)
    if engine == "flower":
        from quorank.engines.flower import flower

        how["engine"] = flower(nodes)
    if engine == "https":
        from quorank.service.engine import https

        how["engine"] = https(workers, database)
    again = f"quorank run --resume {folder}" + (f" --engine {engine}" if "engine" in how else "")
    with _page(folder, port, stay=stay) if watch else nullcontext() as page:
        summary = _run_one(experiment, folder, how, log or (), page, again, quiet=quiet)
        print_result(summary, json, print_summary)
        if not json:
            print(f"report   {folder / 'report.html'}")


def _run_one(
    experiment: Experiment,
    folder: Path,
    how: dict[str, Any],
    log: Sequence[str],
    page: Callable[[Runner], None] | None,
    again: str,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Run an experiment with progress, logs and a page; return its summary."""
    from quorank.experiments.kept_updates import WARNING
    from quorank.experiments.run_directory import CLIENTS, is_finished
    from quorank.experiments.run_logs import open_logs
    from quorank.experiments.runner import run_experiment
    from quorank.reports.report import report_page

    if how["resume"]:
        require(not is_finished(folder), "run.finished", "run is finished; there is nothing to resume", str(folder))
    if experiment.keep_every and experiment.federation.privacy.protects:
        say(f"quorank: warning: {WARNING.format(folder / CLIENTS)}")
    announce, show = compiling(quiet=quiet), None if quiet else show_progress("run")
    try:
        with open_logs(log, folder, resume=how["resume"]) as logs:

            def opened(runner: Runner) -> None:
                announce()
                logs.opened(runner)
                if page is not None:
                    page(runner)

            def watch(progress: Progress) -> None:
                logs.watch(progress)
                if show is not None:
                    show(progress)

            return run_experiment(experiment, folder, watch=watch, opened=opened, report=report_page, **how)
    except Interrupted as stopped:
        reason = getattr(stopped, "reason", "")  # of a network that cannot continue
        where = f"after round {stopped.round} of {stopped.rounds}{reason and f' ({reason})'}"
        say(f"quorank: stopped {where}; continue with: {again}")
        raise typer.Exit(1 if reason else 130) from None


@contextmanager
def _page(folder: Path, port: int, *, stay: bool) -> Iterator[Callable[[Runner], None]]:
    """Serve the page of a run; yield a function that receives the run."""
    try:
        from quorank.cli.run_page import watched_run
    except ImportError as error:
        sentence = f"--watch needs {error.name}; install it with: pip install 'quorank[service]'"
        raise BadInput("option.not-installed", sentence, "--watch") from None
    with watched_run(folder.absolute().name, port, stay=stay) as (watch, address):
        say(f"live page: {address}")
        yield watch.open


def _run_grid(
    grid: Grid, folder: Path, jobs: int, cluster: str | None, how: dict[str, Any], *, json: bool, quiet: bool
) -> None:
    from quorank.experiments.run_directory import load_run, load_runs
    from quorank.reports.comparison import compare_table, group_runs, write_comparison

    sentence = "--jobs is for one host and --cluster for several; choose one"
    require(cluster is None or jobs == 1, "option.conflict", sentence)
    again = f"quorank run --resume {folder}" + (f" --cluster {cluster}" if cluster else "")
    folders = run_cells(grid, folder, again, how, jobs=jobs, cluster=cluster, quiet=quiet)
    if json:
        print_result([{"run": f.name, **load_run(f).summary} for f in folders], json, print)
        return
    groups = group_runs(load_runs([folder]))
    print_text(compare_table(groups))
    print(f"report   {write_comparison(groups, folder / 'report.html')}")


def run_cells(
    grid: Grid,
    folder: Path,
    again: str,
    how: dict[str, Any],
    *,
    jobs: int = 1,
    cluster: str | None = None,
    quiet: bool = False,
) -> list[Path]:
    """Run the cells of a grid that are not finished, with a line for each; `again` is the command that continues."""
    from concurrent.futures.process import BrokenProcessPool

    from quorank.experiments.grid import run_grid
    from quorank.experiments.run_directory import is_finished
    from quorank.reports.report import format_seconds, report_page

    total, began = len(grid.cells), time.monotonic()
    before = sum(is_finished(folder / cell.name) for cell in grid.cells) if how["resume"] else 0
    numbers = count(before + 1)
    if not quiet:
        where = f"on {cluster}" if cluster is not None else f"{jobs} at a time"
        say(f"{total} runs, {before} already finished, {where}")

    def finished(cell: Cell, summary: dict[str, Any]) -> None:
        done = next(numbers)
        if not quiet:
            left = format_seconds((time.monotonic() - began) / (done - before) * (total - done))
            say(f"{done}/{total}  {cell.name}  nDCG@10 {summary['offline']['ndcg@10']:.4f}, {left} left")

    how = {**how, "finished": finished, "report": report_page}
    try:
        if cluster is None:
            return run_grid(grid, folder, jobs=jobs, **how)
        from quorank.experiments.cluster import run_on_cluster

        return run_on_cluster(grid, folder, cluster, **how)
    except (Interrupted, KeyboardInterrupt):
        say(f"quorank: stopped; continue with: {again}")
        raise typer.Exit(130) from None
    except BrokenProcessPool:
        say(f"quorank: a run was killed; continue with: {again}")
        raise typer.Exit(1) from None
