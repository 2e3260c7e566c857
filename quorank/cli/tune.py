"""`quorank tune`: simulate the tuning of a heuristic, show files of weights, count the searches of a browser's history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.cli import tune_study
from quorank.cli.display import compact, compiling, print_result, print_rows, print_text, progress_lines, table_of
from quorank.cli.options import Json, Quiet
from quorank.errors import require

if TYPE_CHECKING:
    from quorank.federation.server_optimisers import Server
    from quorank.tuning.closing import Closing
    from quorank.tuning.guards import Guard
    from quorank.tuning.histories.browser import History
    from quorank.tuning.histories.scenarios import Scenario
    from quorank.tuning.releases import Release
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
    updates: Annotated[
        int, Option(min=1, help="Updates per iteration: exactly (count), on average (time), at most (stable).")
    ] = 400,
    close: Annotated[Literal["count", "time", "stable"], Option(help="Rule that closes an iteration.")] = "count",
    traffic: Annotated[Literal["flat", "day-night"], Option(help="Rate of searches over the day.")] = "flat",
    release: Annotated[Literal["gradient", "signs"], Option(help="Form in which a gradient is sent.")] = "gradient",
    bits: Annotated[int, Option(help="Bits of a sign: 2 can represent 0, 1 cannot.")] = 2,
    optimiser: Annotated[str, Option(help="rprop, adam, momentum or add; or in full: 'Rprop(initial=0.1)'.")] = "rprop",
    loss: Annotated[
        Literal["relative", "published"],
        Option(help="Scores in units of their standard deviation in the list, or in points as in the paper."),
    ] = "relative",
    margin: Annotated[float | None, Option(help="Margin of the loss.", show_default="0.2; published: 30")] = None,
    sigma: Annotated[float | None, Option(help="σ of the noise on choices.", show_default="√30")] = None,
    sure: Annotated[
        float | None,
        Option(
            help="Standard errors from 0 at which a slope moves its weight.", show_default="two weights move by chance"
        ),
    ] = None,
    keep: Annotated[float, Option(help="Share of its sums that a weight which did not move keeps.")] = 0.9,
    guard: Annotated[
        Literal["judged", "immediate"], Option(help="Publish a version after a trial, or at once as in the paper.")
    ] = "judged",
    bound: Annotated[
        float | None, Option(help="Share of the rank accuracy that a judged version may lose.", show_default="0.01")
    ] = None,
    held_out: Annotated[int, Option(help="Held-out searches that measure each version.")] = 20_000,
    seed: Annotated[int, Option(min=0, help="Seed of all draws.")] = 1,
    out: Annotated[Path | None, Option(help="Folder for the file of each version.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Tune a heuristic on simulated people, with all parts of a deployment.

    Rank accuracy is the share of held-out searches whose chosen item stands
    first. The worst drop is the loss of the worst version against the first.
    """
    from quorank.tuning.histories.generated import SIGMA
    from quorank.tuning.histories.scenarios import find_scenario, recorded_scenario
    from quorank.tuning.histories.visits import read_histories
    from quorank.tuning.models import model_file_name, write_model
    from quorank.tuning.simulation import Traffic, Tuning, simulate_tuning

    tuning = Tuning(
        heuristic=heuristic,
        start=start,
        people=people,
        iterations=iterations,
        loss=loss,
        margin=margin,
        sigma=SIGMA if sigma is None else sigma,
        optimiser=_optimiser(optimiser),
        closing=_closing(close, updates),
        release=_release(release, bits),
        sure=sure,
        keep=keep,
        guard=_guard(guard, bound),
        traffic=Traffic(2.0 * updates, swing=0.9 if traffic == "day-night" else 0.0),
        held_out=held_out,
        seed=seed,
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    compiling(quiet=quiet)()
    scenario = find_scenario(heuristic)
    if visits is not None:
        require(
            people == "shipped", "option.conflict", "recorded visits follow no weights; leave out --people", "--visits"
        )
        scenario = recorded_scenario(scenario, read_histories(visits)[1])
    progress = None if quiet else progress_lines("tune: iteration")
    history = simulate_tuning(tuning, lambda done: progress and progress(len(done.models), iterations), scenario)
    for model in history.models if out is not None else ():
        assert out is not None
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
    content = {
        "heuristic": known.heuristic,
        "version": known.version,
        "weights": dict(known.weights),
        "shipped": shipped,
        "updates": known.updates,
        "loss": known.loss,
        "optimiser": known.optimiser,
    }
    print_result(content, json, _show_model)


def _show_model(model: dict[str, Any]) -> None:
    loss = "" if model["loss"] is None else f", mean loss before it {model['loss']:.4g}"
    print(f"{model['heuristic']}, version {model['version']}: made of {model['updates']:,} updates{loss}")
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
    from quorank.tuning.histories.scenarios import find_scenario, recorded_items
    from quorank.tuning.histories.visits import read_histories
    from quorank.tuning.searches import count_searches

    scenario = find_scenario(heuristic)
    source, histories = read_histories(path)
    found = recorded_items(scenario, histories)
    figures: dict[str, Any] = {"browser": source, **_counts(histories), "searches": count_searches(found)}
    figures["gradient_norm"] = _last_gradient(scenario, found)
    print_result(figures, json, _show_import)


@app.command()
def visits(
    out: Annotated[Path, Argument(metavar="VISITS.csv", help="The file to write.")],
    people: Annotated[int, Option(min=1, help="Number of persons.")] = 150,
    days: Annotated[int, Option(min=1, help="Days of each history.")] = 90,
    seed: Annotated[int, Option(min=0, help="Seed of all draws.")] = 1,
    json: Json = False,
) -> None:
    """Write generated visits as a CSV that `tune simulate --visits` and `tune import` read."""
    from quorank.tuning.histories.visits import generate_visits, write_visits

    count = write_visits(out, generate_visits(seed, people, days))
    figures = {"file": str(out), "people": people, "visits": count}
    print_result(figures, json, lambda f: print(f"{f['visits']:,} visits of {f['people']:,} people: {out}"))


def _show_import(figures: dict[str, Any]) -> None:
    types = ", ".join(f"{name} {count:,}" for name, count in figures["types"].items())
    length = figures["gradient_norm"]
    norm = [] if length is None else [("gradient", f"{length:.4g}", "length, of the last search")]
    browsers = figures["browser"] if figures["people"] == 1 else f"{figures['people']:,} people"
    print_rows(
        ("pages", f"{figures['pages']:,}", f"{figures['bookmarked']:,} of them bookmarked ({browsers})"),
        ("visits", f"{figures['visits']:,}", f"within {figures['span_days']:,.1f} days; {types or 'none'}"),
        ("left out", f"{figures['skipped']:,}", "visits of an unknown type, or to no page"),
        ("searches", f"{figures['searches']:,}", "to learn from: a known page was typed, others matched"),
        *norm,
    )


def _summary(tuning: Tuning, history: TuningHistory) -> dict[str, Any]:
    """Return the result of a simulated tuning for --json."""
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
        "optimiser": str(tuning.optimiser),
        "closing": str(tuning.closing),
        "release": str(tuning.release),
        "guard": str(tuning.guard),
        "traffic": str(tuning.traffic),
        "curve": {
            "updates": history.updates,
            "hours": history.hours,
            "loss": history.loss,
            "rank_accuracy": history.accuracy,
        },
        "seed": tuning.seed,
    }


def _optimiser(text: str) -> Server:
    from quorank.tuning.coordinator import OPTIMISER_DEFAULTS, OPTIMISERS

    if text in OPTIMISER_DEFAULTS:
        return OPTIMISER_DEFAULTS[text]
    return OPTIMISERS.parse(text) if "(" in text else OPTIMISERS.read(text, "--optimiser")


def _closing(kind: str, updates: int) -> Closing:
    from quorank.tuning.closing import CLOSINGS, Stable

    fields = {
        "count": {"updates": updates},
        "time": {},  # half an hour, in which the traffic has this number of updates
        "stable": {"least": min(Stable.least, updates), "most": updates},
    }
    return CLOSINGS.read({"kind": kind, **fields[kind]}, "--close")


def _guard(kind: str, bound: float | None) -> Guard:
    from quorank.tuning.guards import GUARDS

    fits = bound is None or kind == "judged"
    require(fits, "option.conflict", "versions that are not judged have no bound; leave it out", "--bound")
    return GUARDS.read({"kind": kind} | ({} if bound is None else {"bound": bound}), "--guard")


def _counts(histories: Sequence[History]) -> dict[str, Any]:
    """Return the counts of all histories together."""
    each = [history.counts() for history in histories]
    figures: dict[str, Any] = {
        name: sum(one[name] for one in each) for name in ("pages", "bookmarked", "visits", "skipped")
    }
    types: dict[str, int] = {}
    for one in each:
        for name, count in one["types"].items():
            types[name] = types.get(name, 0) + count
    return figures | {"span_days": max(one["span_days"] for one in each), "types": types, "people": len(each)}


def _release(kind: str, bits: int) -> Release:
    from quorank.tuning.releases import RELEASES

    return RELEASES.read({"kind": kind} | ({"bits": bits} if kind == "signs" else {}), "--release")


def _last_gradient(scenario: Scenario, found: Any) -> float | None:
    """Return the L2 norm of the gradient of the last search; None where there is no search."""
    import numpy as np

    from quorank.tuning.loss import gradients
    from quorank.tuning.searches import count_searches, slice_searches

    count = count_searches(found)
    if not count:
        return None
    last = slice_searches(found, count - 1, count)
    slopes, _ = gradients(scenario.heuristic, scenario.heuristic.shipped, last, scenario.margin)
    return float(np.linalg.norm(slopes))


def _show_history(figures: dict[str, Any], history: TuningHistory) -> None:
    """Print how a simulated tuning went, and its weights."""
    own = figures["true_rank_accuracy"]
    share = figures["rank_accuracy"] / max(own or figures["start_rank_accuracy"], 1e-12)
    against = "the accuracy of the people's own weights" if own is not None else "the first version's"
    start = "people's choices follow no weights" if own is None else f"people's own: {own:.4f}"
    guard, hours = figures["guard"], f"{figures['hours']:.1f} h"
    loss = f"from {figures['start_loss']:.4g}; {figures['loss_kind']}, margin {figures['margin']:g}"
    print_rows(
        ("rank accuracy", f"{figures['rank_accuracy']:.4f}", f"{share:.2%} of {against}"),
        ("at the start", f"{figures['start_rank_accuracy']:.4f}", start),
        ("worst drop", f"{figures['worst_drop']:.2%}", "of the first version's rank accuracy, at any iteration"),
        ("judged", f"{figures['steps_halved']}", f"steps halved; rolled back {figures['rolled_back']} times: {guard}"),
        ("violations", str(figures["violations"]), "of bounds, orders and steps"),
        ("loss", f"{figures['loss']:.4g}", loss),
        ("updates", f"{figures['updates']:,}", f"in {figures['iterations']} iterations, {hours}"),
        ("speed", f"{compact(figures['gradients_per_second'])}/s", "client gradients"),
    )
    print()
    heuristic = history.scenario.heuristic
    _show_weights(figures["weights"], heuristic.named(heuristic.shipped), figures["true_weights"])


def _show_weights(
    weights: dict[str, float], shipped: dict[str, float] | None, true: dict[str, float] | None = None
) -> None:
    """Print weights with the shipped ones and the people's own."""
    columns = {"tuned": weights, "shipped": shipped, "people's": true}
    present = {name: values for name, values in columns.items() if values is not None}
    rows = [(name, *(f"{values[name]:.4g}" for values in present.values())) for name in weights]
    print_text(table_of(("weight", *present), rows, "right", pad_edge=False))
