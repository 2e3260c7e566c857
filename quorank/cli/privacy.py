"""`quorank privacy`: plan a budget, read what a run has spent, and try to break it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.cli.display import print_result, print_rows, print_text, progress_lines, say, table_of
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
        Literal["full", "sampled", "poisson", "arrivals"] | None,
        Option(
            help="How a cohort comes about: everyone, so many at random, by each client's own coin, or whoever comes.",
            show_default="full, or sampled if --cohort is smaller",
        ),
    ] = None,
    most: Annotated[
        int | None, Option(help="With arrivals: rounds that one client may take part in.", show_default="all")
    ] = None,
    rest: Annotated[int, Option(help="With arrivals: rounds that a client sits out in between.")] = 0,
    clip: Annotated[float, Option(help="Clip of an update, for the server step.")] = 0.05,
    parameters: Annotated[
        int, Option(help="Numbers in an update: the features of a linear ranker. The noise grows with them.")
    ] = 46,
    interactions: Annotated[int, Option(help="Searches in an update, for the momentum of clients.")] = 4,
    accountant: Annotated[Literal["pld", "rdp"], Option(help="pld is tight, rdp quicker.")] = "pld",
    json: Json = False,
) -> None:
    """How much noise a budget needs, or what a noise costs, for a client and a whole run.

    The noise multiplier is the standard deviation of the noise on the sum of
    a cohort's updates, divided by the clip.
    """
    from quorank.privacy import Setting, accounting
    from quorank.privacy.mechanisms.gaussian import (
        COSTLY,
        HOPELESS,
        ClippedGaussian,
        recommended_momentum,
        recommended_step,
        signal_to_noise,
    )  # fmt: skip

    sentence = "give --epsilon or --noise-multiplier, not both: one follows from the other"
    require(epsilon is None or noise_multiplier is None, "option.conflict", sentence)
    require_range("--parameters", parameters, least=1)
    require_range("--interactions", interactions, least=1)
    size = clients if cohort is None else cohort
    how = participation or ("full" if size == clients else "sampled")
    setting = Setting(clients, size, rounds, how, parameters=parameters, most_rounds=most, rest=rest)
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
        "participations": setting.participations(),
        "accountant": f"dp-accounting, {accountant.upper()}",
        "parameters": parameters,
        "signal_to_noise": ratio,
        "clip": clip,
        "server_step": recommended_step(setting, z, clip),
        "client_momentum": recommended_momentum(interactions) if how == "full" else 0.0,
        "feasible": ratio["run"] >= HOPELESS,
        "costly": ratio["run"] < COSTLY,
    }
    print_result(figures, json, _show_plan)


def _how(plan: dict[str, Any]) -> str:
    """How many clients are in a round, and how often one of them."""
    many = f"{plan['cohort']:,} of {plan['clients']:,} clients a round"
    if plan["participation"] != "arrivals":
        return many
    return f"at most {many}, each in at most {plan['participations']:,} of {plan['rounds']:,}; who came is no secret"


def _show_plan(plan: dict[str, Any]) -> None:
    step, clip, ratio = plan["server_step"], plan["clip"], plan["signal_to_noise"]
    whom = f"for one client ({plan['neighbouring']}), over the {plan['horizon']}"
    noise = f"at most, over the run; {ratio['round']:.3g} a round, with {plan['parameters']} parameters"
    server = f"with clip {clip:g}; what a file without a server takes, handing out a mean of rankers less noise"
    print_rows(
        (
            "noise multiplier",
            f"{plan['noise_multiplier']:.4g}",
            "standard deviation of the noise on the sum, over the clip",
        ),
        ("epsilon", f"{plan['epsilon']:.4g}", f"at delta {plan['delta']:g}, {whom}"),
        ("participation", plan["participation"], _how(plan)),
        ("signal to noise", f"{ratio['run']:.3g}", noise),
        ("server step", f"{step:.3g}", server),
        ("momentum", f"{plan['client_momentum']:.3g}", f"of clients: client_momentum = {plan['client_momentum']:.3g}"),
    )
    if not plan["feasible"]:
        print("nothing can be learned within this budget:\neven a cohort that agrees completely drowns in the noise")
    elif plan["costly"]:
        print(
            f"with {plan['parameters']} numbers in an update this budget was seen to cost more than 1 %\n"
            "of nDCG@10 (docs/results/privacy.md): raise epsilon, find more clients, or\nchoose fewer features"
        )


@app.command()
def ledger(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Directories of finished runs, or of a coordinator.")],
    delta: Annotated[
        float | None, Option(help="δ at which several runs are composed.", show_default="the largest of theirs")
    ] = None,
    json: Json = False,
) -> None:
    """What left the clients in a run, and what all of it together gives away.

    The ε of an accounted run is counted again from its releases; a ledger that
    does not add up is said, with exit code 1. Of several runs, or with
    --delta, it is what they give away together about a client that was in each
    of them.
    """
    from quorank.privacy.ledger import compose_runs, read_ledger

    places = [run.resolve() for run in runs]
    sentence = "named twice; a run's releases count once"
    for run, place in zip(runs, places, strict=True):
        require(places.count(place) == 1, "run.named-twice", sentence, f"{run}")
    contents = [read_ledger(run) for run in runs]
    counted = [_recounted(run, content) for run, content in zip(runs, contents, strict=True)]
    faults = [fault for _, fault in counted if fault]
    alone = len(runs) == 1 and delta is None
    if alone:
        print_result(contents[0] | {"recounted_epsilon": counted[0][0]}, json, _show_ledger)
    for fault in faults:
        say(f"quorank: {fault}")
    if faults:
        raise typer.Exit(1)
    if alone:
        return
    each = [
        {"run": str(run)} | {key: (content.get("altogether") or content["privacy"] or {}).get(key) for key in _SHOWN}
        for run, content in zip(runs, contents, strict=True)
    ]
    print_result({"runs": each, "together": compose_runs(contents, delta)}, json, _show_together)


_SHOWN = ("kind", "epsilon", "delta", "rounds", "horizon")
"""What is shown of each of several runs."""


def _recounted(run: Path, content: dict[str, Any]) -> tuple[float | None, str]:
    """Count the ε of a ledger again: what was found, and the sentence about a ledger that says something else."""
    from quorank.privacy.ledger import check_together, recount

    try:
        again, stated = recount(content), (content["privacy"] or {}).get("epsilon")
        check_together(content)
    except BadInput as error:
        raise error.at(f"{run}") from None
    if stated is None or (again is not None and abs(again - stated) <= 1e-6 * max(again, 1.0)):
        return again, ""
    if again is None:
        found = "this version states none for such releases"
    else:
        found = f"its releases add up to {again:.6g} (for one client, whole run, at the ledger's δ)"
    return again, f"{run}: the ledger says ε = {stated:.6g}, {found}"


def _show_together(result: dict[str, Any]) -> None:
    from quorank.reports import statement

    rows = []
    for run in result["runs"]:
        epsilon = "none stated" if run["epsilon"] is None else f"{run['epsilon']:.4g}"
        delta = "" if run["delta"] is None else f"{run['delta']:g}"
        rows.append((run["run"], run["kind"] or "none", epsilon, delta, run["horizon"] or ""))
    print_text(table_of(("run", "privacy", "ε", "δ", "horizon"), rows))
    together = result["together"]
    print_text(*(f"{name:<20}{value}" for name, value in statement.privacy_fields(together)))
    print(statement.privacy(together | {"kind": "together"}))


def _show_ledger(content: dict[str, Any]) -> None:
    from quorank.reports import statement

    rows = []
    for entry in content["releases"][:20]:
        rows.append(
            (
                f"{entry['first_round']}–{entry['last_round']}",
                "withheld" if entry["releases"] is None else f"{entry['releases']:,}",
                _sizes(entry["participants"]),
                "unbounded" if entry["sensitivity"] is None else f"{entry['sensitivity']:.4g}",
                f"{entry['noise']:.4g}" if entry["noise"] else "none",
            )
        )
    if len(content["releases"]) > 20:
        rows.append(("…", "", "", "", ""))
    print_text(table_of(("rounds", "releases", "clients a round", "sensitivity", "noise"), rows))
    if "withheld" in content:
        print_text(f"withheld: {content['withheld']}")
    if "normalisation" in content:
        print_text("one release more before the first round, of the ranges of features")
    for entry in content.get("unlearning", []):
        who = ", ".join(map(str, entry["without"]))
        told = [each["releases"] for each in entry["releases"]]
        many = "withheld: the" if None in told else f"{sum(told):,}"
        done = "rebuilt" if entry.get("finished", True) else "begun to be rebuilt, and given up,"
        print_text(f"{done} without {who}: {many} releases more, in {entry['setting']['rounds']:,} rounds")
    stated = content.get("altogether", content["privacy"])
    print_text(*(f"{name:<20}{value}" for name, value in statement.privacy_fields(stated or {})))
    print(statement.privacy(stated))


def _sizes(participants: dict[str, int]) -> str:
    if "planned" in participants:
        return f"planned {participants['planned']:,}"
    least, most = participants["least"], participants["most"]
    return f"{least:,}" if least == most else f"{least:,}–{most:,}"


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
    print_result(result, json, _show_audit)
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
