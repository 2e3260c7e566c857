"""`quorank tune`: better constants for a heuristic that is already in a product, from what people choose."""

from __future__ import annotations

import json as json_
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from quorank.cli import tune_study
from quorank.cli.tune_import import import_

if TYPE_CHECKING:
    from quorank.tuning.closing import Closing
    from quorank.tuning.releases import Release
    from quorank.tuning.simulation import Course, Tuning

app = typer.Typer(
    help="Tuning: better constants for a heuristic in production, from what people choose.",
    no_args_is_help=True,
)
app.add_typer(tune_study.app, name="study")
app.command(name="import")(import_)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command()
def simulate(
    heuristic: Annotated[str, typer.Option(help="frecency, mail or firefox (22 weights).")] = "frecency",
    start: Annotated[
        Literal["random", "shipped"],
        typer.Option(help="The first weights: any allowed ones, or the product's."),
    ] = "shipped",
    people: Annotated[
        Literal["shipped", "others"],
        typer.Option(help="Whose weights people follow: the product's, or others drawn from the seed."),
    ] = "shipped",
    iterations: Annotated[int, typer.Option(help="Versions that are made.")] = 48,
    updates: Annotated[
        int,
        typer.Option(
            min=1, help="Updates per iteration: so many (count), on average (time), at most (stable)."
        ),
    ] = 400,
    close: Annotated[
        Literal["count", "time", "stable"], typer.Option(help="What closes an iteration.")
    ] = "count",
    traffic: Annotated[Literal["flat", "day-night"], typer.Option(help="When people search.")] = "flat",
    release: Annotated[
        Literal["gradient", "signs"], typer.Option(help="What a client sends: its gradient, or signs alone.")
    ] = "gradient",
    bits: Annotated[int, typer.Option(help="Of a sign: 2 can say 0, 1 cannot.")] = 2,
    optimiser: Annotated[
        str, typer.Option(help="rprop, adam, momentum or add; or in full: 'Rprop(initial=0.1)'.")
    ] = "rprop",
    loss: Annotated[
        Literal["relative", "published"],
        typer.Option(help="Scores counted in the spread of their list, or in points as in the paper."),
    ] = "relative",
    margin: Annotated[
        float | None, typer.Option(help="Margin of the loss.", show_default="0.2; published: 30 or 5")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="σ of the noise on choices.", show_default="√30")
    ] = None,
    sure: Annotated[
        float | None,
        typer.Option(
            help="Standard errors from 0 at which a slope moves its weight.",
            show_default="two weights move by chance",
        ),
    ] = None,
    keep: Annotated[
        float, typer.Option(help="Share of what is known that a weight which did not move takes along.")
    ] = 0.9,
    late: Annotated[
        float, typer.Option(help="Share of updates that arrive after their iteration: dropped.")
    ] = 0.0,
    duplicates: Annotated[
        float, typer.Option(help="Share of updates that arrive twice: counted once.")
    ] = 0.0,
    held_out: Annotated[int, typer.Option(help="Searches that measure each version.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Write each version into this folder, as clients would fetch it.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """Tune a heuristic on made-up people, with all parts of a deployment.

    Rank accuracy is the share of held-out searches whose chosen item stands
    first. The worst drop is what the worst version lost of the first one's.
    """
    from quorank.tuning.histories.generated import SIGMA
    from quorank.tuning.models import file_name, write_model
    from quorank.tuning.simulation import Tuning
    from quorank.tuning.simulation import simulate as play
    from quorank.tuning.traffic import TRAFFICS

    tuning = Tuning(
        heuristic,
        start,
        people,
        iterations,
        loss,
        margin,
        SIGMA if sigma is None else sigma,
        _optimiser(optimiser),
        _closing(close, updates),
        _release(release, bits),
        sure,
        keep,
        TRAFFICS.read({"kind": traffic, "per_hour": 2.0 * updates}, "--traffic"),
        late,
        duplicates,
        held_out=held_out,
        seed=seed,
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    course = play(tuning, None if quiet else _progress())
    for model in course.models if out is not None else ():
        assert out is not None
        write_model(model, out / file_name(model.version))
    figures = summary(tuning, course)
    if json:
        print(json_.dumps(figures))
    else:
        from quorank.cli.tune_display import show_course

        show_course(figures, course)


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="A version of the weights: a JSON file.", show_default=False)],
    json: Json = False,
) -> None:
    """Verify a version of the weights and print it.

    The weights of a heuristic that Quorank knows are also checked against
    their constraints.
    """
    from quorank.tuning.histories.worlds import WORLDS
    from quorank.tuning.models import read_model

    known = read_model(model)
    heuristic = WORLDS[known.heuristic].heuristic if known.heuristic in WORLDS else None
    if heuristic is not None:
        read_model(model, heuristic)
    shipped = None if heuristic is None else heuristic.named(heuristic.shipped)
    if json:
        content = {
            "heuristic": known.heuristic,
            "version": known.version,
            "weights": dict(known.weights),
            "shipped": shipped,
            "updates": known.updates,
            "loss": known.loss,
            "optimiser": known.optimiser,
        }
        print(json_.dumps(content))
        return
    loss = "" if known.loss is None else f", mean loss before it {known.loss:.4g}"
    print(f"{known.heuristic}, version {known.version}: made of {known.updates:,} updates{loss}")
    from quorank.cli.tune_display import show_weights

    show_weights(dict(known.weights), shipped)


def _progress() -> Callable[[int, int], None]:
    """A line every few seconds on stderr. Time is counted from the first iteration: before it, code is compiled."""
    from quorank.cli.display import LINE_SECONDS, compiling

    compiling()()
    started = printed = 0.0

    def watch(done: int, iterations: int) -> None:
        nonlocal started, printed
        now = time.monotonic()
        if done == 1:
            started = printed = now
        elif now - printed >= LINE_SECONDS / 2 and done < iterations:
            printed = now
            left = (now - started) / (done - 1) * (iterations - done)
            print(f"tune: iteration {done}/{iterations}, {left:.0f} s left", file=sys.stderr, flush=True)

    return watch


def summary(tuning: Tuning, course: Course) -> dict[str, Any]:
    """The figures of a simulated tuning."""
    from quorank.tuning.simulation import bytes_per_message

    weights = len(course.truth)
    heuristic = course.world.heuristic
    return {
        "heuristic": heuristic.name,
        "rank_accuracy": course.accuracy[-1],
        "true_rank_accuracy": course.true_accuracy,
        "start_rank_accuracy": course.accuracy[0],
        "worst_drop": course.worst_drop(),
        "violations": course.violations,
        "gradients_per_second": course.gradients / max(course.gradient_seconds, 1e-9),
        "weights": heuristic.named(course.weights[-1]),
        "true_weights": heuristic.named(course.truth),
        "start_weights": heuristic.named(course.weights[0]),
        "loss": course.loss[-1],
        "true_loss": course.true_loss,
        "start_loss": course.loss[0],
        "iterations": tuning.iterations,
        "updates": sum(course.updates),
        "hours": course.hours[-1],
        "bytes_per_update": tuning.release.size(weights),
        "bytes_per_message": bytes_per_message(tuning.release, weights),
        "late": course.receipt.late,
        "duplicates": course.receipt.duplicate,
        "loss_kind": tuning.loss,
        "margin": course.margin,
        "sigma": tuning.sigma,
        "optimiser": str(tuning.optimiser),
        "closing": str(tuning.closing),
        "release": str(tuning.release),
        "traffic": str(tuning.traffic),
        "curve": {
            "updates": course.updates,
            "hours": course.hours,
            "loss": course.loss,
            "rank_accuracy": course.accuracy,
        },
        "seed": tuning.seed,
    }


def _optimiser(text: str) -> Any:
    from quorank.tuning.optimisers import OPTIMISERS, SUITED

    if text in SUITED:
        return SUITED[text]
    return OPTIMISERS.parse(text) if "(" in text else OPTIMISERS.read(text, "--optimiser")


def _closing(kind: str, updates: int) -> Closing:
    from quorank.tuning.closing import Count, Stable, Time

    if kind == "time":
        return Time()  # half an hour: the traffic brings so many updates in it
    if kind == "count":
        return Count(updates)
    return Stable(least=min(Stable().least, updates), most=updates)


def _release(kind: str, bits: int) -> Release:
    from quorank.tuning.releases import RELEASES

    return RELEASES.read({"kind": kind} | ({"bits": bits} if kind == "signs" else {}), "--release")
