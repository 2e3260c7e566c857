"""`quorank tune`: simulate the tuning of a heuristic, show files of weights, count the searches of a browser's history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.cli import tune_study
from quorank.cli.display import (
    compiling,
    print_lines,
    print_result,
    print_rows,
    print_text,
    progress_lines,
    rows_of,
    table_of,
)
from quorank.cli.options import Json, Quiet
from quorank.errors import require

if TYPE_CHECKING:
    from quorank.tuning.simulation import Tuning, TuningHistory

app = typer.Typer(
    help="Better constants for a hand-written scoring function, from people's choices.", no_args_is_help=True
)
app.add_typer(tune_study.app, name="study")


@app.command()
def simulate(
    heuristic: Annotated[
        str, Option(help="frecency, firefox (22 weights), decay (Firefox 147); or your own: module:scenario.")
    ] = "frecency",
    visits: Annotated[
        Path | None, Option(help="Searches of real visits instead of generated ones: a CSV, or a browser's history.")
    ] = None,
    start: Annotated[
        Literal["random", "shipped"], Option(help="First weights: random allowed ones, or the product's.")
    ] = "shipped",
    people: Annotated[
        Literal["shipped", "others"], Option(help="Weights by which people choose: the product's, or drawn ones.")
    ] = "shipped",
    iterations: Annotated[int, Option(help="Number of versions.")] = 48,
    close: Annotated[Literal["count", "time", "stable"], Option(help="Rule that closes an iteration.")] = "count",
    traffic: Annotated[Literal["flat", "day-night"], Option(help="Rate of searches over the day.")] = "flat",
    release: Annotated[Literal["gradient", "signs"], Option(help="Form in which a gradient is sent.")] = "gradient",
    assignments: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another setting, as closing.updates=100, optimiser=adam, loss=published, guard=immediate. Repeatable.",
        ),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of all draws.")] = 1,
    out: Annotated[Path | None, Option(help="Folder for the file of each version.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Tune a heuristic on simulated people, with all parts of a deployment.

    Rank accuracy is the share of held-out searches whose chosen item stands
    first. The worst drop is the loss of the worst version against the first.
    """
    from quorank.experiments.experiment_file import ExperimentFile, set_values
    from quorank.files.codec import decode
    from quorank.tuning.histories.scenarios import find_scenario, recorded_scenario
    from quorank.tuning.histories.visits import read_histories
    from quorank.tuning.models import model_file_name, write_model
    from quorank.tuning.simulation import Tuning, simulate_tuning

    given = {"heuristic": heuristic, "start": start, "people": people, "iterations": iterations, "seed": seed}
    given |= {"closing": close, "release": release, "traffic": {"swing": 0.9 if traffic == "day-night" else 0.0}}
    values = set_values(ExperimentFile(given, "--set"), assignments or []).tables
    tuning = decode(Tuning, Tuning.with_parts(values))
    scenario = find_scenario(tuning.heuristic)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    compiling(quiet=quiet)()
    if visits is not None:
        sentence = "recorded visits follow no weights; leave out --people"
        require(people == "shipped", "option.conflict", sentence, "--visits")
        scenario = recorded_scenario(scenario, read_histories(visits)[1])
    progress = None if quiet else progress_lines("tune: iteration")
    history = simulate_tuning(tuning, lambda done: progress and progress(len(done.models), iterations), scenario)
    if out is not None:
        for model in history.models:
            write_model(model, out / model_file_name(model.version))
    print_result(_summary(tuning, history), json, lambda figures: _show_history(figures, history))


@app.command()
def show(
    model: Annotated[Path, Argument(help="JSON file of a version.")],
    heuristic: Annotated[str | None, Option(help="Heuristic of your own: module:heuristic.")] = None,
    json: Json = False,
) -> None:
    """Verify a version of the weights and print it.

    Weights of a known heuristic are also checked against its constraints.
    """
    from quorank.tuning.histories.scenarios import SCENARIOS, find_heuristic
    from quorank.tuning.models import check_model, read_model

    known = read_model(model)
    name = known.heuristic if heuristic is None and known.heuristic in SCENARIOS else heuristic
    declared = None if name is None else find_heuristic(name)
    if declared is not None:
        check_model(known, declared, str(model))
    shipped = None if declared is None else declared.named(declared.shipped)
    fields = ("heuristic", "version", "weights", "updates", "loss", "optimiser")
    print_result({name: getattr(known, name) for name in fields} | {"shipped": shipped}, json, _show_model)


def _show_model(model: dict[str, Any]) -> None:
    loss = "" if model["loss"] is None else f", mean loss before it {model['loss']:.4g}"
    print_lines(f"{model['heuristic']}, version {model['version']}: made of {model['updates']:,} updates{loss}")
    _show_weights(model["weights"], model["shipped"])


@app.command(name="import")
def import_(
    path: Annotated[Path, Argument(help="places.sqlite, History, the folder of a profile, or a CSV of visits.")],
    heuristic: Annotated[
        str, Option(help="frecency, firefox, decay; or your own that scores such pages: module:scenario.")
    ] = "frecency",
    json: Json = False,
) -> None:
    """Count the searches in a history of Firefox or Chromium or in a CSV of visits.

    The file is only read, also while the browser runs. Nothing leaves this
    machine, and no address is printed.
    """
    from collections import Counter

    from quorank.tuning.histories.scenarios import find_scenario, recorded_items
    from quorank.tuning.histories.visits import read_histories
    from quorank.tuning.searches import count_searches

    scenario = find_scenario(heuristic)
    source, histories = read_histories(path)
    each = [history.counts() for history in histories]
    figures: dict[str, Any] = {"browser": source, "people": len(each)}
    figures |= {name: sum(one[name] for one in each) for name in ("pages", "bookmarked", "visits", "skipped")}
    types = sum((Counter(one["types"]) for one in each), Counter())
    figures |= {"span_days": max(one["span_days"] for one in each), "types": dict(types)}
    figures["searches"] = count_searches(recorded_items(scenario, histories))
    kinds = ", ".join(f"{name} {count:,}" for name, count in types.items()) or "none"
    print_result(figures, json, lambda found: print_rows(*rows_of(IMPORTED, found | {"kinds": kinds})))


IMPORTED = """
pages | {pages:,} | {bookmarked:,} of them bookmarked ({browser}, persons: {people:,})
visits | {visits:,} | within {span_days:,.1f} days; {kinds}
left out | {skipped:,} | visits of an unknown type, or to no page
searches | {searches:,} | to learn from: a known page was typed, others matched
"""


def _summary(tuning: Tuning, history: TuningHistory) -> dict[str, Any]:
    heuristic, known = history.scenario.heuristic, history.scenario.follows_weights
    return {
        "heuristic": heuristic.name,
        "rank_accuracy": history.accuracy[-1],
        "true_rank_accuracy": history.true_accuracy if known else None,
        "start_rank_accuracy": history.accuracy[0],
        "worst_drop": history.worst_drop(),
        "steps_halved": history.shortened,
        "rolled_back": history.rolled_back,
        "violations": history.violations,
        "gradients_per_second": history.gradients / max(history.gradient_seconds, 1e-9),
        "weights": heuristic.named(history.weights[-1]),
        "true_weights": heuristic.named(history.truth) if known else None,
        "start_weights": heuristic.named(history.weights[0]),
        "loss": history.loss[-1],
        "true_loss": history.true_loss if known else None,
        "start_loss": history.loss[0],
        "iterations": tuning.iterations,
        "updates": sum(history.updates),
        "hours": history.hours[-1],
        "loss_kind": tuning.loss,
        "margin": history.margin,
        "sigma": tuning.sigma,
        **{name: str(getattr(tuning, name)) for name in ("optimiser", "closing", "release", "guard", "traffic")},
        "curve": {
            "updates": history.updates,
            "hours": history.hours,
            "loss": history.loss,
            "rank_accuracy": history.accuracy,
        },
        "seed": tuning.seed,
    }


HISTORY = """
rank accuracy | {rank_accuracy:.4f} | {share:.2%} of {against}
at the start | {start_rank_accuracy:.4f} | {start}
worst drop | {worst_drop:.2%} | of the first version's rank accuracy, at any iteration
judged | {steps_halved} | steps halved; rolled back {rolled_back} times: {guard}
violations | {violations} | of bounds, orders and steps
loss | {loss:.4g} | from {start_loss:.4g}; {loss_kind}, margin {margin:g}
updates | {updates:,} | in {iterations} iterations, {hours:.1f} h
speed | {gradients_per_second:k}/s | client gradients
"""


def _show_history(figures: dict[str, Any], history: TuningHistory) -> None:
    own = figures["true_rank_accuracy"]
    words = {
        "share": figures["rank_accuracy"] / max(own or figures["start_rank_accuracy"], 1e-12),
        "against": "the first version's" if own is None else "the accuracy of the people's own weights",
        "start": "people's choices follow no weights" if own is None else f"people's own: {own:.4f}",
    }
    print_rows(*rows_of(HISTORY, figures | words), ("", "", ""))
    heuristic = history.scenario.heuristic
    _show_weights(figures["weights"], heuristic.named(heuristic.shipped), figures["true_weights"])


def _show_weights(
    weights: dict[str, float], shipped: dict[str, float] | None, true: dict[str, float] | None = None
) -> None:
    columns = {"tuned": weights, "shipped": shipped, "people's": true}
    present = {name: values for name, values in columns.items() if values is not None}
    rows = [(name, *(f"{values[name]:.4g}" for values in present.values())) for name in weights]
    print_text(table_of(("weight", *present), rows, "right", pad_edge=False))
