"""`quorank tune study`: plan a study, assign clients to arms, analyse its results."""

from __future__ import annotations

import json as json_
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.cli.display import print_rows, print_text, table_of
from quorank.cli.options import Json
from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.tuning.studies.analysis import Analysis
    from quorank.tuning.studies.power import Plan
    from quorank.tuning.studies.private_means import PrivateAnalysis
    from quorank.tuning.studies.study import Study

app = typer.Typer(help="Studies of a tuned heuristic: plan, assign, analyse.", no_args_is_help=True)

StudyFile = Annotated[Path, Argument(metavar="STUDY.toml", help="The study.")]
Out = Annotated[Path | None, Option(help="Also write the result to this JSON file.")]
Seed = Annotated[int, Option(min=0, help="Seed of all draws.")]


@app.command()
def plan(
    pilot: Annotated[
        Path, Argument(metavar="PILOT.csv", help="Searches of today's product: client, characters, rank.")
    ],
    file: Annotated[
        Path | None, Argument(metavar="[STUDY.toml]", help="The study; without it one like Firefox's, 60/20/20 %.")
    ] = None,
    effect: Annotated[
        float | None, Option(help="Fall of the metric's mean that must not be missed.", show_default="the study's")
    ] = None,
    alpha: Annotated[float | None, Option(help="α of the whole study.", show_default="the study's")] = None,
    power: Annotated[float | None, Option(help="Chance to find the effect.", show_default="the study's")] = None,
    shape: Annotated[
        Literal["proportion", "shift"],
        Option(help="Effect on a client: in proportion to its mean, or the same for all."),
    ] = "proportion",
    simulations: Annotated[int, Option(help="Simulated studies for each size that is tried.")] = 2000,
    seed: Seed = 1,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compute the number of clients that each arm needs for an effect to be found.

    Studies are simulated from the pilot's clients; the Mann-Whitney U test is
    corrected for all pairs of arms in all metrics.
    """
    from quorank.tuning.studies.analysis import client_means
    from quorank.tuning.studies.power import plan_study
    from quorank.tuning.studies.study import Study, read_pilot, read_study

    given: dict[str, Any] = {"effect": effect, "alpha": alpha, "power": power}
    study = Study() if file is None else read_study(file)
    study = replace(study, **{name: value for name, value in given.items() if value is not None})
    means = client_means(read_pilot(pilot), study.metric)
    found = plan_study(study, means, seed=seed, simulations=simulations, shape=shape)
    if not _saved_and_printed({"study": study.name, **asdict(found), "pilot": str(pilot)}, out, json):
        _show_plan(study, found)


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
    names = [*(clients or []), *(_ids(ids) if ids else [])]
    require(names, "option.missing", "no clients were given; name them, or give a file with --ids")
    arms = study.assign_all(names)
    counts = {arm: arms.count(arm) for arm in study.arms}
    if out is not None:
        import csv
        import io

        from quorank.files.atomic import write_whole

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("client", "arm"), *zip(names, arms, strict=True)])
        write_whole(out, text.getvalue())
    if json:
        figures = {"study": study.name, "counts": counts, "clients": dict(zip(names, arms, strict=True))}
        print(json_.dumps(figures))
    elif out is not None:
        print("\n".join(f"{arm:<20} {count:>10,}" for arm, count in counts.items()))
    else:
        print("\n".join(f"{name}\t{arm}" for name, arm in zip(names, arms, strict=True)))


@app.command()
def analyse(
    file: StudyFile,
    results: Annotated[Path, Argument(metavar="RESULTS.csv", help="Searches: client, arm, characters, rank.")],
    epsilon: Annotated[
        float | None,
        Option(help="Estimate from simulated answers by randomised response, with this ε for a device's report."),
    ] = None,
    seed: Seed = 1,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare all arms: Mann-Whitney U over clients, Bonferroni, effect sizes.

    With --epsilon, each client answers by randomised response and the arms'
    means are estimated from the answers alone, as a service would.
    """
    from quorank.tuning.studies.analysis import analyse as analyse_study
    from quorank.tuning.studies.private_means import PrivateMeans, simulate_answers
    from quorank.tuning.studies.study import read_collected, read_study

    study = read_study(file)
    collected = read_collected(results, study)
    if epsilon is not None:
        private = PrivateMeans(study, epsilon)
        estimated = private.analyse(simulate_answers(private, collected, seed))
        if not _saved_and_printed(asdict(estimated), out, json):
            _show_private(study, estimated)
        return
    found = analyse_study(study, collected)
    if not _saved_and_printed(found.as_dict(), out, json):
        _show_analysis(study, found)


def _ids(file: Path) -> list[str]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("file.unreadable", f"cannot be read as a list of clients ({error})", str(file)) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _saved_and_printed(figures: dict[str, Any], out: Path | None, json: bool) -> bool:
    """Write the figures where --out says, print them for --json; return whether they were printed."""
    if out is not None:
        from quorank.files.atomic import write_whole

        write_whole(out, json_.dumps(figures, indent=2) + "\n")
    if json:
        print(json_.dumps(figures))
    return json


def _show_plan(study: Study, found: Plan) -> None:
    """Print the clients of each arm."""
    sure = f"({found.achieved_low:.1%} to {found.achieved_high:.1%})"
    spread = f"standard deviation {found.pilot_deviation:.3f} between {found.pilot_clients:,} clients"
    print_rows(
        ("clients", f"{found.clients:,}", f"in all, to find {found.metric} lower by {found.effect:g}"),
        *(("", f"{count:,}", f"{arm}, {study.arms[arm]:.0%}") for arm, count in found.arms.items()),
        ("power", f"{found.achieved:.1%}", f"of {found.simulations:,} simulated studies {sure}"),
        ("alpha", f"{found.alpha:.4g}", f"{study.alpha:g} over {study.comparisons} comparisons (Bonferroni)"),
        ("pilot", f"{found.pilot_mean:.3f}", f"{found.metric}, {spread}"),
    )


def _show_private(study: Study, found: PrivateAnalysis) -> None:
    """Print every arm and comparison, as estimated from answers by randomised response."""
    heads = ("arm", "answers", *(f"mean {metric}" for metric in study.metrics))
    rows = [
        (name, f"{arm.clients:,}", *(f"{arm.mean[m]:.4f} ± {arm.error[m]:.4f}" for m in study.metrics))
        for name, arm in found.arms.items()
    ]
    print_text(table_of(heads, rows, "right", pad_edge=False))
    print_text(f"estimated from answers of ε = {found.epsilon:g} a device, ± standard error\n", style="dim")
    heads = ("comparison", "difference", "corrected p", "")
    rows = [
        (
            f"{c.metric}: {c.arm}\n  against {c.baseline}",
            f"{c.difference:+.3f} ± {c.error:.3f}",
            f"{c.corrected_p:.3g}",
            "found" if c.significant else "",
        )
        for c in found.comparisons
    ]
    print_text(table_of(heads, rows, "right", pad_edge=False, padding=(0, 1, 0, 0)))


def _show_analysis(study: Study, found: Analysis) -> None:
    """Print every arm, then every comparison."""
    heads = ("arm", "clients", "searches", *(f"mean {metric}" for metric in study.metrics))
    rows = []
    for name, arm in found.arms.items():
        means = (f"{arm.mean[m]:.4f} ± {arm.deviation[m] / arm.clients**0.5:.4f}" for m in study.metrics)
        rows.append((name, f"{arm.clients:,}", f"{arm.searches:,}", *means))
    print_text(table_of(heads, rows, "right", pad_edge=False))
    print_text("means over clients, ± standard error\n", style="dim")
    heads = ("comparison", "difference", "rank r", "corrected p", "")
    rows = [
        (
            f"{c.metric}: {c.arm}\n  against {c.baseline}",
            f"{c.difference:+.3f} ± {c.error:.3f}",
            f"{c.rank_biserial:+.3f}",
            f"{c.corrected_p:.3g}",
            "found" if c.significant else "",
        )
        for c in found.comparisons
    ]
    print_text(table_of(heads, rows, "right", pad_edge=False, padding=(0, 1, 0, 0)))
    shared = f"{study.comparisons} comparisons share α = {study.alpha:g}"
    print_text(f"difference of means and Mann-Whitney U between clients; {shared}", style="dim")
