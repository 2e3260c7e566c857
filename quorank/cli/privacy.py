"""`quorank privacy`: plan a budget, read what a run has spent, and try to break it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.cli.display import print_figures, print_rows, print_text, progress_lines, say, table_of
from quorank.cli.options import Json, Quiet
from quorank.errors import BadInput, require, require_range

app = typer.Typer(help="Privacy: plan a budget, read a run's ledger, audit a run.", no_args_is_help=True)


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
    from quorank.privacy import Setting, accounting
    from quorank.privacy.mechanisms.gaussian import HOPELESS, ClippedGaussian, recommended_step, signal_to_noise

    sentence = "give --epsilon or --noise-multiplier, not both: one follows from the other"
    require(epsilon is None or noise_multiplier is None, "option.conflict", sentence)
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
    print_figures(figures, json, _show_plan)


def _show_plan(plan: dict[str, Any]) -> None:
    step, clip, ratio = plan["server_step"], plan["clip"], plan["signal_to_noise"]
    whom = f"for one client ({plan['neighbouring']}), over the {plan['horizon']}"
    noise = f"at most, over the run; {ratio['round']:.3g} a round, with {plan['parameters']} parameters"
    server = f'with clip {clip:g}: server = {{ kind = "add", step = {step:.3g}, average = 3.0 }}'
    print_rows(
        (
            "noise multiplier",
            f"{plan['noise_multiplier']:.4g}",
            "standard deviation of the noise on the sum, over the clip",
        ),
        ("epsilon", f"{plan['epsilon']:.4g}", f"at delta {plan['delta']:g}, {whom}"),
        ("participation", plan["participation"], f"{plan['cohort']:,} of {plan['clients']:,} clients a round"),
        ("signal to noise", f"{ratio['run']:.3g}", noise),
        ("server step", f"{step:.3g}", server),
    )
    if not plan["feasible"]:
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
    print_figures(content | {"recounted_epsilon": again}, json, _show_ledger)
    if not agrees:
        say(
            f"quorank: {run}: the ledger says ε = {content['privacy']['epsilon']:.6g}, its releases add up to {again:.6g} "
            "(for one client, whole run, at the ledger's δ)"
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
        sentence = "the ledger does not add up: the entries of unlearning were changed"
        raise BadInput("ledger.inconsistent", sentence) from None


def _show_ledger(content: dict[str, Any]) -> None:
    from quorank.reports import statement

    rows = []
    for entry in content["releases"][:20]:
        least, most = entry["participants"]["least"], entry["participants"]["most"]
        rows.append(
            (
                f"{entry['first_round']}–{entry['last_round']}",
                f"{entry['releases']:,}",
                f"{least:,}" if least == most else f"{least:,}–{most:,}",
                "unbounded" if entry["sensitivity"] is None else f"{entry['sensitivity']:.4g}",
                f"{entry['noise']:.4g}" if entry["noise"] else "none",
            )
        )
    if len(content["releases"]) > 20:
        rows.append(("…", "", "", "", ""))
    print_text(table_of(("rounds", "releases", "clients a round", "sensitivity", "noise"), rows))
    for entry in content.get("unlearning", []):
        who = ", ".join(map(str, entry["without"]))
        releases = sum(each["releases"] for each in entry["releases"])
        print_text(f"rebuilt without {who}: {releases:,} releases more")
    stated = content.get("altogether", content["privacy"])
    print_text(*(f"{name:<20}{value}" for name, value in statement.privacy_fields(stated or {})))
    print(statement.privacy(stated))


@app.command()
def audit(
    run: Annotated[Path, Argument(help="Directory of a run, or an experiment file.")],
    canaries: Annotated[int, Option(help="Canary clients, half of them really there.")] = 1000,
    confidence: Annotated[float, Option(help="Of the lower bound.")] = 0.95,
    victims: Annotated[int, Option(help="Clients whose clicks are guessed from their update; 0 for none.")] = 40,
    seed: Annotated[int, Option(help="Seed of the canaries and their coins.")] = 1,
    threads: Annotated[int | None, Option(min=1, help="Threads; by default all cores.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Try to refute what a run claims.

    The run is played again with canary clients in it. How well they are found
    afterwards gives a lower bound on ε; a bound above the claim fails the
    audit, with exit code 1. A bound below it proves nothing. Where noise is
    added to sums, an attack tries to take it off by its last bits. Then clicks
    are guessed from updates, under each kind of release.
    """
    from quorank.experiments.audit import audit_experiment
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import read_experiment_file, shipped_file
    from quorank.experiments.run_directory import CONFIG

    file = run / CONFIG if run.is_dir() else shipped_file(run) or run
    sentence = "nothing to audit here; expected the directory of a run, or an experiment file"
    require(file.is_file(), "file.missing", sentence, f"{run}")
    experiment = Experiment.read(read_experiment_file(file))
    result = audit_experiment(
        experiment,
        canaries=canaries,
        confidence=confidence,
        victims=victims,
        seed=seed,
        threads=threads,
        watch=None if quiet else progress_lines("audit: round"),
    )
    print_figures(result, json, _show_audit)
    if not result["passed"]:
        raise typer.Exit(1)


def _told_of(attack: dict[str, Any]) -> tuple[str, str]:
    """The outcome of the subtraction attack, in words."""
    outcome = "hidden" if attack["passed"] else "TAKEN OFF"
    guesses = f"a known update was told present or absent in {attack['correct']} of {attack['trials']} trials"
    allowed = f"ε = {attack['epsilon']:.3g} of one round allows {attack['allowed_advantage']:.3f}"
    told = f"advantage {attack['advantage']:.3f}, {allowed}"
    return outcome, f"{guesses} from a noisy sum whose other updates are known ({told})"


def _show_audit(result: dict[str, Any]) -> None:
    from quorank.experiments.audit import telling

    claim, rows = result["claimed"], []
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
    if "subtraction" in result:
        rows.append(("subtraction", *_told_of(result["subtraction"])))
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
    rows = []
    for name in (name.removeprefix("natural/") for name in study["lines"] if name.startswith("natural/")):
        both = (study["lines"][f"{kind}/{name}"]["auc"] for kind in ("natural", "manipulated"))
        rows.append((name, *(f"AUC {auc:.2f}  {telling(auc)}" for auc in both)))
    print_text(table_of(("release", "data's features", "features chosen by the server"), rows))
