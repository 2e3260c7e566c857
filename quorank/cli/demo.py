"""`quorank demo`: federated learning on generated data or your own files, with live progress."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from quorank.cli.display import compiling, print_text, say, show_progress
from quorank.cli.options import Fold

RECOMMENDED = "recommended: sharper lists, mean of rankers"
DIFFERS = ("learner.temperature", "federation.server")
"""Keys in which the two runs differ."""


def demo(
    data: Annotated[
        str, Option(help="Generated data, a folder with train.txt and test.txt, or an imported name.")
    ] = "synthetic:mq2007",
    fold: Fold = 1,
    clients: Annotated[int, Option(min=1, help="Number of clients.")] = 1000,
    rounds: Annotated[int, Option(min=1, help="Number of rounds.")] = 500,
    seed: Annotated[int, Option(help="Random seed.")] = 1,
    out: Annotated[Path, Option(help="Output directory of runs, plot and report.")] = Path("runs/demo"),
) -> None:
    """Learn a ranker from clicks, with the published and with the recommended settings.

    Both runs, a plot of their learning curves and a report are written to --out.
    """
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import find_experiment_file, set_value
    from quorank.experiments.run_directory import load_run
    from quorank.experiments.runner import run_experiment
    from quorank.reports.comparison import RunGroup, compare_table, write_comparison
    from quorank.reports.page import write_picture
    from quorank.reports.panels import panels_of
    from quorank.reports.report import report_page

    say(f"{clients:,} clients search {data} on their own machines and click.")
    say("In each round every client learns from 4 searches and sends only its update,\nthe change of its parameters.")
    groups = []
    for name, label in (("fpdgd", "FPDGD as published"), ("recommended", RECOMMENDED)):
        chosen = find_experiment_file(name)
        for key, value in {
            "data.source": data,
            "data.fold": fold,
            "federation.clients": clients,
            "federation.rounds": rounds,
            "seed": seed,
        }.items():
            chosen = set_value(chosen, key, value, f"--{key.rsplit('.', 1)[-1]} {value}")
        experiment = Experiment.read(chosen)
        run_experiment(
            experiment, out / name, watch=show_progress(name), opened=compiling(), overwrite=True, report=report_page
        )
        run = load_run(out / name)
        groups.append(RunGroup(label, {key: run.setting(key) for key in DIFFERS}, (run,)))
    print_text(compare_table(groups))
    panels = panels_of([group.runs for group in groups], [group.label for group in groups])
    print(f"plot     {write_picture(out / 'learning-curves.svg', [('', panels)])}")
    print(f"report   {write_comparison(groups, out / 'report.html')}")
