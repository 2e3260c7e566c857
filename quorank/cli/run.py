"""`quorank run FILE`: run an experiment file, or a grid of experiments, into a directory."""

from __future__ import annotations

import json as json_
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Argument, Option

from quorank.cli.display import compiling, print_result, print_summary, say, show_progress
from quorank.cli.options import Json, Quiet
from quorank.errors import BadInput, Interrupted, require
from quorank.experiments.experiment_file import shipped_names

ENGINES = ("process", "flower", "https")
SHIPPED = ", ".join(shipped_names())
T = TypeVar("T")

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
    port: Annotated[int, Option(min=0, max=65535, help="With --watch: port of the page; 0 takes any.")] = 0,
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

    known = f"expected {' or '.join(ENGINES)}, got {engine!r}"
    require(engine in ENGINES, "option.unknown-value", known, "--engine")
    options = _RunOptions(
        threads, jobs, resume is not None, overwrite, json, quiet, engine, nodes, cluster, workers, database,
        _Watched(port, stay) if watch else None, (*(log or ()),),
    )  # fmt: skip
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
    if grid is not None:
        _run_grid(grid, folder, options)
    else:
        _run_one(read_experiment(folder) if resume else Experiment.read(chosen), folder, options)


@dataclass(frozen=True)
class _Watched:
    """Port of a run's page, and true to serve it after the run too."""

    port: int
    stay: bool


@dataclass(frozen=True)
class _RunOptions:
    """Options of execution and output; none changes a result."""

    threads: int | None
    jobs: int
    resume: bool
    overwrite: bool
    json: bool
    quiet: bool
    engine: str
    nodes: int
    cluster: str | None
    workers: int = 2
    database: str = ""
    watched: _Watched | None = None
    log: tuple[str, ...] = ()


def _run_one(experiment: Experiment, folder: Path, options: _RunOptions) -> None:
    from quorank.experiments.kept_updates import WARNING
    from quorank.experiments.run_directory import CLIENTS, is_finished, tidy
    from quorank.experiments.runner import run_experiment
    from quorank.reports.report import report_page

    sentence = "--cluster is for grids; add a [grid] to the file, or leave the option out"
    require(options.cluster is None, "option.conflict", sentence)
    if options.jobs > 1:
        say(
            "quorank: --jobs is for grids and has no effect here: a single run uses all cores, or the number of --threads"
        )
    if options.resume:
        tidy(folder)
    done = options.resume and is_finished(folder)
    require(not done, "run.finished", "this run is finished; nothing to resume", str(folder))
    engine = None
    if experiment.keep_every and experiment.federation.privacy.protects:
        say(f"quorank: warning: {WARNING.format(folder / CLIENTS)}")
    if options.engine == "flower":
        from quorank.engines.flower import flower

        engine = flower(options.nodes)
    if options.engine == "https":
        from quorank.service.engine import https

        engine = https(options.workers, options.database)
    opened: list[Callable[[Runner], None]] = [compiling(quiet=options.quiet)]
    watchers: list[Callable[[Progress], None]] = []
    with ExitStack() as stack:
        if options.watched is not None:
            opened.append(stack.enter_context(_page(folder, options.watched)))
        try:
            with ExitStack() as shown:
                if options.log:
                    from quorank.experiments.run_logs import open_logs

                    logs = shown.enter_context(open_logs(options.log, folder, resume=options.resume))
                    opened.append(logs.opened)
                    watchers.append(logs.watch)
                progress = shown.enter_context(show_progress("run", experiment.rounds, quiet=options.quiet))
                watchers += [] if progress is None else [progress]
                summary = run_experiment(
                    experiment,
                    folder,
                    watch=_all_of(watchers),
                    threads=options.threads,
                    resume=options.resume,
                    overwrite=options.overwrite,
                    engine=engine,
                    report=report_page,
                    opened=_all_of(opened),
                )
        except Interrupted as stopped:
            reason = getattr(stopped, "reason", "")  # of a network that cannot continue
            again = f"quorank run --resume {folder}" + (f" --engine {options.engine}" if engine else "")
            where = f"after round {stopped.round} of {stopped.rounds}{reason and f' ({reason})'}"
            say(f"quorank: stopped {where}; continue with: {again}")
            raise typer.Exit(1 if reason else 130) from None
        print_result(summary, options.json, print_summary)
        if not options.json:
            print(f"report   {folder / 'report.html'}")


def _all_of(calls: Sequence[Callable[[T], None]]) -> Callable[[T], None]:
    """Return a function that calls all of them."""

    def call(argument: T) -> None:
        for each in calls:
            each(argument)

    return call


@contextmanager
def _page(folder: Path, watched: _Watched) -> Iterator[Callable[[Runner], None]]:
    """Serve the page of a run; yield a function that receives the run."""
    try:
        from quorank.cli.run_page import watched_run
    except ImportError as error:
        sentence = f"--watch needs {error.name}; install it with: pip install 'quorank[service]'"
        raise BadInput("option.not-installed", sentence, "--watch") from None
    with watched_run(folder.absolute().name, watched.port, stay=watched.stay) as (watch, address):
        say(f"watch it at {address}")
        yield watch.open


def _run_grid(grid: Grid, folder: Path, options: _RunOptions) -> None:
    from concurrent.futures.process import BrokenProcessPool

    from quorank.experiments.grid import run_grid
    from quorank.experiments.run_directory import is_finished
    from quorank.reports.report import report_page, write_comparison

    sentence = "--engine is for one run, and this file is a grid; run its cells one by one, or in process"
    require(options.engine == "process", "option.conflict", sentence)
    require(options.watched is None, "option.conflict", "--watch is for one run, and this file is a grid")
    require(not options.log, "option.conflict", "--log is for one run, and this file is a grid")
    sentence = "--jobs is for one host and --cluster for several; choose one"
    require(options.cluster is None or options.jobs == 1, "option.conflict", sentence)
    done = sum(is_finished(folder / cell.name) for cell in grid.cells) if options.resume else 0
    if not options.quiet:
        where = f"on {options.cluster}" if options.cluster is not None else f"{options.jobs} at a time"
        say(f"{len(grid.cells)} runs, {done} finished already, {where}")
    again = f"quorank run --resume {folder}" + (f" --cluster {options.cluster}" if options.cluster else "")

    def finished(cell: Cell, summary: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        if not options.quiet:
            say(f"{done}/{len(grid.cells)}  {cell.name}  nDCG@10 {summary['offline']['ndcg@10']:.4f}")

    try:
        chosen: dict[str, Any] = {
            "threads": options.threads,
            "resume": options.resume,
            "overwrite": options.overwrite,
            "finished": finished,
            "report": report_page,
        }
        if options.cluster is not None:
            from quorank.experiments.cluster import run_on_cluster

            folders = run_on_cluster(grid, folder, options.cluster, **chosen)
        else:
            folders = run_grid(grid, folder, jobs=options.jobs, **chosen)
    except (Interrupted, KeyboardInterrupt):
        say(f"quorank: stopped; continue with: {again}")
        raise typer.Exit(130) from None
    except BrokenProcessPool:
        say(f"quorank: a run was killed; continue with: {again}")
        raise typer.Exit(1) from None
    if options.json:
        from quorank.experiments.run_directory import load_run

        print(json_.dumps([{"run": f.name, **load_run(f).summary} for f in folders]))
        return
    from rich.console import Console

    from quorank.experiments.run_directory import load_runs
    from quorank.reports.comparison import compare_table, group_runs

    groups = group_runs(load_runs([folder]))
    Console().print(compare_table(groups))
    print(f"report   {write_comparison(groups, folder / 'report.html')}")
