"""`quorank tune study`: plan a study, put clients into arms, rehearse it on made-up people, analyse what came in."""

from __future__ import annotations

import json as json_
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quorank.errors import BadInput, require

if TYPE_CHECKING:
    from quorank.tuning.histories.people import People
    from quorank.tuning.studies.arms import Study

app = typer.Typer(
    help="Studies: does the tuned heuristic help? Plan, assign, simulate, analyse.",
    no_args_is_help=True,
)

StudyFile = Annotated[
    Path | None,
    typer.Argument(metavar="[STUDY.toml]", help="The study; without it one like Firefox's, 60/20/20 %."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Out = Annotated[Path | None, typer.Option(help="Also write the result to this JSON file.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all draws.")]
Effect = Annotated[
    float | None, typer.Option(help="Fall of the metric's mean that must not be missed; else the file's.")
]
Alpha = Annotated[float | None, typer.Option(help="α of the whole study; else the file's.")]
Power = Annotated[float | None, typer.Option(help="Chance to find the effect; else the file's.")]
ShapeOption = Annotated[
    Literal["proportion", "shift"],
    typer.Option(help="How the effect falls on clients: in proportion to their mean, or on all alike."),
]


@app.command()
def plan(
    file: StudyFile = None,
    pilot: Annotated[
        Path | None,
        typer.Option(
            help="Searches of today's product: a CSV with client, characters, rank; else made-up people."
        ),
    ] = None,
    effect: Effect = None,
    alpha: Alpha = None,
    power: Power = None,
    shape: ShapeOption = "proportion",
    simulations: Annotated[int, typer.Option(help="Simulated studies for each size that is tried.")] = 2000,
    seed: Seed = 1,
    out: Out = None,
    json: Json = False,
) -> None:
    """How many clients each arm needs for an effect to be found.

    Studies are simulated from the pilot's clients; the Mann-Whitney U test is
    corrected for all pairs of arms in all metrics.
    """
    study, people = _study(file, effect, alpha, power)
    from quorank.tuning.studies.power import plan as make_plan

    means = _pilot(study, people, pilot, seed)
    found = make_plan(study, means, seed=seed, simulations=simulations, shape=shape)
    figures = {"study": study.name, **found.as_dict(), "pilot": str(pilot) if pilot else "made-up people"}
    _save(out, figures)
    if json:
        print(json_.dumps(figures))
        return
    from quorank.cli.tune_study_display import show_plan

    show_plan(study, found, figures["pilot"])


@app.command()
def assign(
    file: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study.", show_default=False)],
    clients: Annotated[
        list[str] | None, typer.Argument(metavar="[CLIENT]...", help="Ids of clients.", show_default=False)
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="A file with an id on each line; - is standard input.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write client,arm to this CSV file.")] = None,
    json: Json = False,
) -> None:
    """The arm of each client: it follows from the study's name and the id alone.

    No list is kept anywhere. Changed arms or shares need a new name of the study.
    """
    study, _ = _study(file)
    names = [*(clients or []), *(_ids(ids) if ids else [])]
    if not names:
        raise BadInput("no clients were given; name them, or give a file with --ids")
    arms = study.assign_all(names)
    counts = {arm: arms.count(arm) for arm in study.arms}
    if out is not None:
        import csv
        import io

        from quorank.files import write_whole

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
def simulate(
    file: StudyFile = None,
    repetitions: Annotated[int, typer.Option(help="Studies held, each with new people.")] = 200,
    clients: Annotated[
        int | None, typer.Option(help="Clients of each study; as many as are planned unless given.")
    ] = None,
    effect: Effect = None,
    alpha: Alpha = None,
    power: Power = None,
    shape: ShapeOption = "proportion",
    seed: Seed = 1,
    out: Out = None,
    results: Annotated[
        Path | None, typer.Option(help="Write the searches of the first study, a CSV for `analyse`.")
    ] = None,
    json: Json = False,
) -> None:
    """Rehearse the study: is its effect found, and is nothing found where there is none?

    Made-up people type into an address bar. The treatment is as good as the
    effect asks for; the same people without it are the A/A study.
    """
    study, people = _study(file, effect, alpha, power)
    require(repetitions >= 1, f"repetitions must be at least 1, got {repetitions}")
    require(clients is None or clients >= 10, f"clients must be at least 10, got {clients}")
    from quorank.cli.tune_study_display import progress_of
    from quorank.tuning.studies import rehearsal

    with progress_of("studies") as progress:
        found = rehearsal.rehearse(
            study, people, repetitions=repetitions, seed=seed, clients=clients, shape=shape, progress=progress
        )
    if results is not None:
        from quorank.tuning.studies.collected import write_collected

        write_collected(results, rehearsal.first_study(seed, study, people, found))
    figures = {"study": study.name, **found.as_dict()}
    _save(out, figures)
    if json:
        print(json_.dumps(figures))
        return
    from quorank.cli.tune_study_display import show_rehearsal

    show_rehearsal(study, found)


@app.command()
def analyse(
    file: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study.", show_default=False)],
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS.csv", help="Searches: client, arm, characters, rank.", show_default=False
        ),
    ],
    out: Out = None,
    json: Json = False,
) -> None:
    """Compare all arms: Mann-Whitney U over clients, Bonferroni, effect sizes."""
    study, _ = _study(file)
    from quorank.tuning.studies.analysis import analyse as compare
    from quorank.tuning.studies.collected import read_collected

    found = compare(study, read_collected(results, study))
    figures = found.as_dict()
    _save(out, figures)
    if json:
        print(json_.dumps(figures))
        return
    from quorank.cli.tune_study_display import show_analysis

    show_analysis(study, found)


def _study(
    file: Path | None, effect: float | None = None, alpha: float | None = None, power: float | None = None
) -> tuple[Study, People]:
    """The study and its people, from a file or the defaults, with what the command line changes."""
    from quorank.tuning.histories.people import People, read_people
    from quorank.tuning.studies.arms import Study, read_study

    study, people = (Study(), People()) if file is None else (None, None)
    if study is None or people is None:
        assert file is not None
        study, table = read_study(file)
        people = read_people(table, f"{file}: people")
    given: dict[str, Any] = {"effect": effect, "alpha": alpha, "power": power}
    return replace(study, **{name: value for name, value in given.items() if value is not None}), people


def _pilot(study: Study, people: People, file: Path | None, seed: int) -> Any:
    from quorank.tuning.studies.analysis import client_means

    if file is None:
        from quorank.tuning.studies.rehearsal import pilot

        return pilot(seed, people, study.metric)
    from quorank.tuning.studies.collected import read_pilot

    return client_means(read_pilot(file), study.metric)


def _ids(file: Path) -> list[str]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: cannot be read as a list of clients ({error})") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _save(out: Path | None, figures: dict[str, Any]) -> None:
    if out is not None:
        from quorank.files import write_whole

        write_whole(out, json_.dumps(figures, indent=2) + "\n")
