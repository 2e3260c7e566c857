"""`quorank tune study`: plan a study, assign clients to arms, analyse its results."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quorank.cli.display import print_result, print_rows, print_text, rows_of, table_of
from quorank.cli.options import Json
from quorank.errors import BadInput, printable, require

if TYPE_CHECKING:
    from quorank.tuning.studies.study import Study

app = typer.Typer(help="Studies of a tuned heuristic: plan, assign, analyse.", no_args_is_help=True)

StudyFile = Annotated[Path, Argument(metavar="STUDY.toml", help="The study.")]
Seed = Annotated[int, Option(min=0, help="Seed of all draws.")]


@app.command()
def plan(
    pilot: Annotated[
        Path, Argument(metavar="PILOT.csv", help="Searches of today's product: client, characters, rank.")
    ],
    file: Annotated[
        Path | None, Argument(metavar="[STUDY.toml]", help="The study; without it one like Firefox's, 60/20/20 %.")
    ] = None,
    simulations: Annotated[int, Option(help="Simulated studies for each size that is tried.")] = 2000,
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Compute the number of clients that each arm needs for an effect to be found.

    Studies are simulated from the pilot's clients; the Mann-Whitney U test is
    corrected for all pairs of arms in all metrics.
    """
    from quorank.tuning.studies.analysis import client_means
    from quorank.tuning.studies.power import plan_study
    from quorank.tuning.studies.study import Study, read_pilot, read_study

    study = Study("frecency") if file is None else read_study(file)
    means = client_means(read_pilot(pilot), study.metric)
    found = plan_study(study, means, seed=seed, simulations=simulations)
    figures = {"study": study.name, **asdict(found), "pilot": str(pilot), "comparisons": study.comparisons}
    print_result(figures, json, _show_plan)


@app.command()
def assign(
    file: StudyFile,
    clients: Annotated[list[str] | None, Argument(metavar="[CLIENT]...", help="Ids of clients.")] = None,
    ids: Annotated[Path | None, Option(help="File with an id on each line; - is standard input.")] = None,
    out: Annotated[Path | None, Option(help="Write client,arm to this CSV file.")] = None,
    json: Json = False,
) -> None:
    """Print the arm of each client, which follows from the study's name and the id alone.

    No list is kept anywhere. Changed arms or shares need a new name of the study.
    """
    from quorank.tuning.studies.study import read_study

    study = read_study(file)
    names = [*(clients or [])]
    if ids is not None:
        try:
            text = sys.stdin.read() if str(ids) == "-" else ids.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput("file.unreadable", f"cannot be read as a list of clients ({error})", str(ids)) from None
        names += [line.strip() for line in text.splitlines() if line.strip()]
    require(names, "option.missing", "no clients were given; name them, or give a file with --ids")
    arms = study.assign_all(names)
    counts = {arm: arms.count(arm) for arm in study.arms}
    if out is not None:
        import csv
        import io

        from quorank.files.atomic import write_whole

        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("client", "arm"), *zip(names, arms, strict=True)])
        write_whole(out, table.getvalue())
    figures = {"study": study.name, "counts": counts, "clients": dict(zip(names, arms, strict=True))}
    lines = [f"{printable(name)}\t{printable(arm)}" for name, arm in zip(names, arms, strict=True)]
    if out is not None:
        lines = [f"{printable(arm):<20} {count:>10,}" for arm, count in counts.items()]
    print_result(figures, json, lambda _: print("\n".join(lines)))


@app.command()
def analyse(
    file: StudyFile,
    results: Annotated[Path, Argument(metavar="RESULTS.csv", help="Searches: client, arm, characters, rank.")],
    json: Json = False,
) -> None:
    """Compare all arms: Mann-Whitney U over clients, Bonferroni, effect sizes."""
    from quorank.tuning.studies.analysis import analyse as analyse_study
    from quorank.tuning.studies.study import read_collected, read_study

    study = read_study(file)
    found = analyse_study(study, read_collected(results, study))
    print_result(asdict(found), json, lambda figures: _show_analysis(figures, study))


PLAN = """
clients | {clients:,} | in all, to find {metric} lower by {effect:g}
power | {achieved:.1%} | of {simulations:,} simulated studies
alpha | {alpha:.4g} | of each of {comparisons} comparisons (Bonferroni)
pilot | {pilot_mean:.3f} | {metric}, standard deviation {pilot_deviation:.3f} between {pilot_clients:,} clients
"""


def _show_plan(figures: dict[str, Any]) -> None:
    first, *rest = rows_of(PLAN, figures)
    print_rows(first, *(("", f"{count:,}", arm) for arm, count in figures["arms"].items()), *rest)


def _show_analysis(figures: dict[str, Any], study: Study) -> None:
    rows: list[tuple[str, ...]] = []
    for name, arm in figures["arms"].items():
        root = arm["clients"] ** 0.5
        means = (f"{arm['mean'][m]:.4f} ± {arm['deviation'][m] / root:.4f}" for m in study.metrics)
        rows.append((name, f"{arm['clients']:,}", *means))
    heads = ("arm", "clients", *(f"mean {metric}" for metric in study.metrics))
    print_text(table_of(heads, rows, "right", pad_edge=False))
    print_text("± standard error\n")
    rows = [
        (
            f"{c['metric']}: {c['arm']}\n  against {c['baseline']}",
            f"{c['difference']:+.3f} ± {c['error']:.3f}",
            f"{c['corrected_p']:.3g}",
            "found" if c["significant"] else "",
        )
        for c in figures["comparisons"]
    ]
    heads = ("comparison", "difference", "corrected p", "")
    print_text(table_of(heads, rows, "right", pad_edge=False, padding=(0, 1, 0, 0)))
    print_text(f"Mann-Whitney U between clients; {study.comparisons} comparisons share α = {study.alpha:g}")
