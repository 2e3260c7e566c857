"""quorank run: an experiment file becomes a run directory."""

from __future__ import annotations

import json as json_
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorank.errors import BadInput, Interrupted

ENGINES = ("process", "flower")

if TYPE_CHECKING:
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.grid import Cell, Grid


def run(
    file: Annotated[
        Path | None,
        typer.Argument(help="Experiment file, or the name of a shipped one (fpdgd, recommended)."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a key of the file, e.g. federation.clients=100. Repeatable.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random draw.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the run; by default a new one below runs/.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the interrupted run (or grid) in this directory.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs of a grid side by side.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of a run; by default all cores. The result is the same."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="What plays the rounds: this process, or flower on real nodes. Same result.")
    ] = "process",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of --engine flower, on this machine.")] = 4,
    asynchronous: Annotated[
        float | None,
        typer.Option(
            help="With --engine flower: share of a cohort whose replies, however old, end a round.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run a grid on the workers of this Dask scheduler, host:port."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run that is in the directory already.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, alone, on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run an experiment file and write the run's directory.

    A file holds only what differs from the defaults. With a section "grid",
    whose keys are dotted names and whose values are lists, every combination
    is run. Ctrl-C stops after the round; --resume goes on to the same result.
    """
    from quorank.experiments.documents import read_document, set_value, set_values
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.grid import FILE, Grid
    from quorank.experiments.library import shipped
    from quorank.experiments.run_directory import read_experiment

    if engine not in ENGINES:
        raise BadInput(f"--engine: expected {' or '.join(ENGINES)}, got {engine!r}")
    how = _How(
        threads, jobs, resume is not None, overwrite, json, quiet, engine, nodes, cluster, asynchronous
    )
    if resume is not None:
        if file is not None or assignments or not (seed is None and out is None and asynchronous is None):
            raise BadInput(
                "--resume goes on with the run as it was started; give it no file, --set, --seed, --out or --asynchronous"
            )
        grid = Grid.read(read_document(resume / FILE)) if (resume / FILE).is_file() else None
        if grid is not None:
            _grid(grid, resume, how)
        else:
            _one(read_experiment(resume), resume, how)
        return
    if file is None:
        raise BadInput("quorank run needs an experiment file, the name of a shipped one, or --resume DIR")
    document = set_values(read_document(shipped(file) or file), assignments or [])
    if seed is not None:
        document = set_value(document, "seed", seed, f"--seed {seed}")
        if isinstance(document.tables.get("grid"), dict):
            document.tables["grid"].pop("seed", None)
    grid = Grid.read(document)
    folder = out or _new_folder(file.stem)
    if grid is not None:
        _grid(grid, folder, how)
    else:
        _one(Experiment.read(document), folder, how)


@dataclass(frozen=True)
class _How:
    """How to run and what to print; nothing of it but the last changes a result."""

    threads: int | None
    jobs: int
    resume: bool
    overwrite: bool
    json: bool
    quiet: bool
    engine: str
    nodes: int
    cluster: str | None
    asynchronous: float | None  # this one does


def _one(experiment: Experiment, folder: Path, how: _How) -> None:
    from quorank.cli.display import compiling, summary_table, watching
    from quorank.experiments.run_directory import is_finished
    from quorank.experiments.runner import run_experiment
    from quorank.network.asynchronous_run import asynchronously, without_keeping

    if how.cluster is not None:
        raise BadInput("--cluster plays the runs of a grid; give the file a [grid], or leave --cluster out")
    if how.resume and is_finished(folder):
        raise BadInput(f"{folder}: this run is finished; nothing to resume")
    share, engine = _share(folder, how), None
    if share is not None and not how.resume:
        experiment = without_keeping(experiment)
    if how.engine == "flower":
        from quorank.network.loopback import flower

        engine = flower(experiment, how.nodes)
        if share is not None:
            engine = asynchronously(engine, experiment, share)
    try:
        with watching("run", experiment.rounds, quiet=how.quiet) as watch:
            summary = run_experiment(
                experiment,
                folder,
                watch=watch,
                accepted=compiling(quiet=how.quiet),
                threads=how.threads,
                resume=how.resume,
                overwrite=how.overwrite,
                engine=engine,
            )
    except Interrupted as stopped:
        reason = getattr(stopped, "reason", "")  # of a network that cannot go on
        again = f"quorank run --resume {folder}" + (f" --engine {how.engine}" if engine else "")
        print(
            f"quorank: stopped after round {stopped.round} of {stopped.rounds}{reason and f' ({reason})'}; "
            f"go on with: {again}",
            file=sys.stderr,
        )
        raise typer.Exit(1 if reason else 130) from None
    if how.json:
        print(json_.dumps(summary))
        return
    from rich.console import Console

    Console().print(summary_table(summary))
    print(f"report   {folder / 'report.html'}")


def _share(folder: Path, how: _How) -> float | None:
    """The share of replies that ends an asynchronous round, asked for now or when the run was started; None elsewhere."""
    from quorank.network.asynchronous_run import FILE, share_of

    if how.overwrite and not how.resume:
        (folder / FILE).unlink(missing_ok=True)
    share = share_of(folder) if how.resume else how.asynchronous
    if share is not None and how.engine == "process":
        raise BadInput(
            f"{folder / FILE if how.resume else '--asynchronous'}: in one process all clients answer at once, so no reply "
            "is late; use --engine flower"
        )
    return share


def _grid(grid: Grid, folder: Path, how: _How) -> None:
    from concurrent.futures.process import BrokenProcessPool

    from quorank.experiments.grid import run_grid
    from quorank.experiments.run_directory import is_finished

    if how.engine != "process":
        raise BadInput("--engine plays one run; run the cells of a grid one by one, or in process")
    if how.cluster is not None and how.jobs != 1:
        raise BadInput("--jobs is for one host, --cluster for several; give one of them")
    done = sum(is_finished(folder / cell.name) for cell in grid.cells) if how.resume else 0
    if not how.quiet:
        where = f"on {how.cluster}" if how.cluster is not None else f"{how.jobs} at a time"
        print(f"{len(grid.cells)} runs, {done} finished already, {where}", file=sys.stderr)
    again = f"quorank run --resume {folder}" + (f" --cluster {how.cluster}" if how.cluster else "")

    def finished(cell: Cell, summary: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        if not how.quiet:
            print(
                f"{done}/{len(grid.cells)}  {cell.name}  nDCG@10 {summary['offline']['ndcg@10']:.4f}",
                file=sys.stderr,
            )

    try:
        chosen: dict[str, Any] = {"threads": how.threads, "resume": how.resume, "overwrite": how.overwrite}
        if how.cluster is not None:
            from quorank.experiments.cluster import run_on_cluster

            folders = run_on_cluster(grid, folder, how.cluster, finished=finished, **chosen)
        else:
            folders = run_grid(grid, folder, jobs=how.jobs, finished=finished, **chosen)
    except (Interrupted, KeyboardInterrupt):
        print(f"quorank: stopped; go on with: {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    except BrokenProcessPool:
        print(f"quorank: a run was killed; go on with: {again}", file=sys.stderr)
        raise typer.Exit(1) from None
    if how.json:
        print(
            json_.dumps([{"run": f.name, **json_.loads((f / "summary.json").read_text())} for f in folders])
        )
        return
    from rich.console import Console

    from quorank.reports.report import write_comparison
    from quorank.reports.runs import group_runs, load_runs
    from quorank.reports.tables import compare_table

    groups = group_runs(load_runs([folder]))
    Console().print(compare_table(groups))
    print(f"report   {write_comparison(groups, folder / 'report.html')}")


def _new_folder(stem: str) -> Path:
    """runs/STEM, or the first runs/STEM-2, -3 … that is free."""
    base = Path("runs")
    names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1_000_000))
    return next(base / name for name in names if not (base / name).exists())
