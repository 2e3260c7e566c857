"""`quorank privacy`: plan a budget, read what a run has spent, and try to break it."""

from __future__ import annotations

import json as json_
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.errors import BadInput, require, require_range

app = typer.Typer(help="Privacy: plan a budget, read a run's ledger, audit a run.", no_args_is_help=True)

Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]


@app.command()
def plan(
    clients: Annotated[int, Option(help="Clients of the federation.")] = 1000,
    cohort: Annotated[int | None, Option(help="Clients that take part in a round; all unless given.")] = None,
    rounds: Annotated[int, Option(help="Rounds of the whole run.")] = 300,
    epsilon: Annotated[float | None, Option(help="Budget ε of the whole run, for a client; 8 unless given.")] = None,
    delta: Annotated[float, Option(help="δ of the budget.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None, Option(help="The inverse: the ε of this noise, instead of the noise of an ε.")
    ] = None,
    participation: Annotated[
        Literal["full", "sampled", "poisson"] | None,
        Option(
            help="How a cohort comes about: everyone, so many at random, or by each client's own coin.",
            show_default="full, or sampled if --cohort is smaller",
        ),
    ] = None,
    clip: Annotated[float, Option(help="Clip of an update, for the server step.")] = 0.05,
    parameters: Annotated[int, Option(help="Numbers in an update, for the signal-to-noise ratio.")] = 46,
    accountant: Annotated[Literal["pld", "rdp"], Option(help="pld is tight, rdp quicker.")] = "pld",
    json: Json = False,
) -> None:
    """How much noise a budget needs, or what a noise costs, for a client and a whole run.

    The noise multiplier is the standard deviation of the noise on the sum of
    a cohort's updates, divided by the clip.
    """
    from quorank.cli.display import print_rows
    from quorank.privacy import Setting, accounting
    from quorank.privacy.mechanisms.gaussian import HOPELESS, ClippedGaussian, recommended_step, signal_to_noise

    require(
        epsilon is None or noise_multiplier is None,
        "option.conflict",
        "give --epsilon or --noise-multiplier, not both: one follows from the other",
    )
    require_range("--parameters", parameters, least=1)
    size = clients if cohort is None else cohort
    how = participation or ("full" if size == clients else "sampled")
    setting = Setting(clients, size, rounds, how, parameters=parameters)
    part = ClippedGaussian(8.0 if epsilon is None else epsilon, delta, clip, noise_multiplier, accountant=accountant)
    z = part.multiplier(setting)
    ratio = signal_to_noise(setting, z)
    figures: dict[str, Any] = {
        "noise_multiplier": z,
        "epsilon": accounting.epsilon(setting, z, delta, accountant),
        "delta": delta,
        "unit": "client",
        "neighbouring": setting.neighbouring,
        "horizon": setting.horizon(),
        "rounds": rounds,
        "clients": clients,
        "cohort": size,
        "participation": how,
        "accountant": f"dp-accounting, {accountant.upper()}",
        "parameters": parameters,
        "signal_to_noise": ratio,
        "clip": clip,
        "server_step": recommended_step(setting, z, clip),
        "feasible": ratio["run"] >= HOPELESS,
    }
    if json:
        print(json_.dumps(figures))
        return
    step = figures["server_step"]
    print_rows(
        ("noise multiplier", f"{z:.4g}", "standard deviation of the noise on the sum, over the clip"),
        (
            "epsilon",
            f"{figures['epsilon']:.4g}",
            f"at delta {delta:g}, for one client ({setting.neighbouring}), over the {setting.horizon()}",
        ),
        ("participation", how, f"{size:,} of {clients:,} clients a round"),
        (
            "signal to noise",
            f"{ratio['run']:.3g}",
            f"at most, over the run; {ratio['round']:.3g} a round, with {parameters} parameters",
        ),
        (
            "server step",
            f"{step:.3g}",
            f'with clip {clip:g}: server = {{ kind = "add", step = {step:.3g}, average = 3.0 }}',
        ),
    )
    if not figures["feasible"]:
        print("nothing can be learned within this budget:\neven a cohort that agrees completely drowns in the noise")


@app.command()
def ledger(run: Annotated[Path, Argument(help="Directory of a finished run.")], json: Json = False) -> None:
    """What left the clients in a run, and what all of it together gives away.

    The ε of an accounted run is counted again from its releases; a ledger that
    does not add up is said, with exit code 1.
    """
    from quorank.privacy.ledger import read_ledger, recount

    content = read_ledger(run)
    again = recount(content)
    agrees = again is None or abs(again - content["privacy"]["epsilon"]) <= 1e-6 * max(again, 1.0)
    _check_unlearning(content)
    if json:
        print(json_.dumps(content | {"recounted_epsilon": again}))
    else:
        _show_ledger(content)
    if not agrees:
        print(
            f"quorank: {run}: the ledger says ε = {content['privacy']['epsilon']:.6g}, its releases add up to {again:.6g} "
            "(for one client, whole run, at the ledger's δ)",
            file=sys.stderr,
        )
        raise typer.Exit(1)


def _check_unlearning(content: dict[str, Any]) -> None:
    """Count the entries of unlearning again, each by itself, and what they and the run give away together."""
    if "unlearning" not in content:
        return
    from quorank.experiments.unlearning.records import combined_privacy
    from quorank.privacy.ledger import recount

    try:
        entries, part = content["unlearning"], content["mechanism"]
        for entry in entries:
            again = recount({"mechanism": part, **entry})
            if again is not None and abs(again - entry["privacy"]["epsilon"]) > 1e-6 * max(again, 1.0):
                raise ValueError
        stated = combined_privacy(part, [content["privacy"], *(entry["privacy"] for entry in entries)])
        if stated != content["altogether"]:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            "ledger.inconsistent", "the ledger does not add up: the entries of unlearning were changed"
        ) from None


def _show_ledger(content: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from quorank.reports import statement

    table = Table("rounds", "releases", "clients a round", "sensitivity", "noise", box=None)
    for entry in content["releases"]:
        least, most = entry["participants"]["least"], entry["participants"]["most"]
        table.add_row(
            f"{entry['first_round']}–{entry['last_round']}",
            f"{entry['releases']:,}",
            f"{least:,}" if least == most else f"{least:,}–{most:,}",
            "unbounded" if entry["sensitivity"] is None else f"{entry['sensitivity']:.4g}",
            f"{entry['noise']:.4g}" if entry["noise"] else "none",
        )
        if table.row_count == 20 and len(content["releases"]) > 20:
            table.add_row("…", "", "", "", "")
            break
    console = Console()
    console.print(table)
    for entry in content.get("unlearning", []):
        who = ", ".join(map(str, entry["without"]))
        releases = sum(each["releases"] for each in entry["releases"])
        console.print(f"rebuilt without {who}: {releases:,} releases more", highlight=False)
    stated = content.get("altogether", content["privacy"])
    for name, value in statement.privacy_fields(stated or {}):
        console.print(f"{name:<20}{value}", highlight=False)
    print(statement.privacy(stated))


@app.command()
def audit(
    run: Annotated[Path, Argument(help="Directory of a run, or an experiment file.")],
    canaries: Annotated[int, Option(help="Canary clients, half of them really there.")] = 1000,
    confidence: Annotated[float, Option(help="Of the lower bound.")] = 0.95,
    victims: Annotated[int, Option(help="Clients whose clicks are guessed from their update; 0 for none.")] = 40,
    seed: Annotated[int, Option(help="Seed of the canaries and their coins.")] = 1,
    threads: Annotated[int | None, Option(min=1, help="Threads; by default all cores.")] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """Try to refute what a run claims.

    The run is played again with canary clients in it. How well they are found
    afterwards gives a lower bound on ε; a bound above the claim fails the
    audit, with exit code 1. A bound below it proves nothing. Then clicks are
    guessed from updates, under each kind of release.
    """
    from quorank.cli.display import counting
    from quorank.experiments.audit import audit_experiment
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import read_experiment_file, shipped_file
    from quorank.experiments.run_directory import CONFIG

    file = run / CONFIG if run.is_dir() else shipped_file(run) or run
    require(
        file.is_file(),
        "file.missing",
        "nothing to audit here; expected the directory of a run, or an experiment file",
        f"{run}",
    )
    experiment = Experiment.read(read_experiment_file(file))
    with counting("audit", quiet=quiet) as watch:
        result = audit_experiment(
            experiment,
            canaries=canaries,
            confidence=confidence,
            victims=victims,
            seed=seed,
            threads=threads,
            watch=watch,
        )
    if json:
        print(json_.dumps(result))
    else:
        _show_audit(result)
    if not result["passed"]:
        raise typer.Exit(1)


def _show_audit(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from quorank.cli.display import print_rows
    from quorank.experiments.audit import telling

    claim = result["claimed"]
    rows = []
    if claim is None or claim["epsilon"] is None:
        rows.append(("claimed", "no ε", "the run promises nothing that could be refuted"))
    else:
        where = f"at δ = {claim['delta']:g} for one client, {claim['horizon']}"
        rows.append(("claimed", f"ε = {claim['epsilon']:.4g}", where))
    found = (
        f"at δ = {result['delta']:g}, {result['confidence']:.0%} confidence: {result['correct']} of {result['guesses']} "
        f"guesses about {result['canaries']} canaries were right"
    )
    rows.append(("lower bound", f"ε ≥ {result['lower_bound']:.3g}", found))
    if claim is not None and claim["epsilon"] is not None:
        verdict = ("passed", "the claim is not refuted, which is no proof of it")
        rows.append(("verdict", *(verdict if result["passed"] else ("REFUTED", "the claim is false"))))
    if "published" in result:
        outcome = "refuted" if result["published"]["refuted"] else "not refuted"
        told = f"the published ε = {result['published']['epsilon']:g}, read as that of one client and the whole run"
        rows.append(("published", outcome, told))
    print_rows(*rows)
    study = result.get("reconstruction")
    if study is None:
        return
    if "skipped" in study:
        print(f"clicks         not attacked: {study['skipped']}")
        return
    print(
        f"\nClicks of {study['victims']} clients guessed from what the server sees of them, "
        f"cohorts of {study['cohort']:,};\nthe noise is {study['noise']}.\n"
    )
    table = Table("release", "data's features", "features chosen by the server", box=None)
    names = [name.removeprefix("natural/") for name in study["lines"] if name.startswith("natural/")]
    for name in names:
        both = (study["lines"][f"{kind}/{name}"]["auc"] for kind in ("natural", "manipulated"))
        table.add_row(name, *(f"AUC {auc:.2f}  {telling(auc)}" for auc in both))
    Console().print(table)
