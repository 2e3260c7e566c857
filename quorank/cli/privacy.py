"""`quorank privacy`: plan a budget, read a run's ledger, audit a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from quorank.cli.display import (
    print_lines,
    print_result,
    print_rows,
    print_text,
    progress_lines,
    rows_of,
    say,
    table_of,
)
from quorank.cli.options import Json, Quiet
from quorank.errors import BadInput, require, require_range

app = typer.Typer(help="Privacy: plan a budget, read a run's ledger, audit a run.", no_args_is_help=True)


@app.command()
def plan(
    clients: Annotated[int, Option(help="Number of clients.")] = 1000,
    cohort: Annotated[int | None, Option(help="Clients in a round.", show_default="all")] = None,
    rounds: Annotated[int, Option(help="Number of rounds.")] = 300,
    epsilon: Annotated[float | None, Option(help="Budget ε of a client, for the whole run.", show_default="8")] = None,
    delta: Annotated[float, Option(help="δ of the budget.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None, Option(help="Compute the ε of this noise instead of the noise for an ε.")
    ] = None,
    participation: Annotated[
        Literal["full", "sampled", "poisson", "arrivals"] | None,
        Option(
            help="Cohort of a round: everyone, a fixed-size sample, a Poisson sample, or open arrivals.",
            show_default="full, or sampled if --cohort is smaller",
        ),
    ] = None,
    most: Annotated[
        int | None, Option(help="With arrivals: maximum number of rounds of a client.", show_default="all")
    ] = None,
    rest: Annotated[int, Option(help="With arrivals: rounds that a client rests after each reply.")] = 0,
    clip: Annotated[float, Option(help="Clipping norm of an update, for the recommended server step.")] = 0.05,
    parameters: Annotated[
        int, Option(help="Number of parameters of the ranker; a linear ranker has one per feature.")
    ] = 46,
    interactions: Annotated[int, Option(help="Interactions per update, for the recommended client momentum.")] = 4,
    accountant: Annotated[Literal["pld", "rdp"], Option(help="pld is tighter, rdp faster.")] = "pld",
    json: Json = False,
) -> None:
    """Plan the noise for a privacy budget, or the ε of a noise, over a whole run.

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

    sentence = "give --epsilon or --noise-multiplier, not both: each determines the other"
    require(epsilon is None or noise_multiplier is None, "option.conflict", sentence)
    require_range("--parameters", parameters, least=1)
    require_range("--interactions", interactions, least=1)
    size = clients if cohort is None else cohort
    kind = participation or ("full" if size == clients else "sampled")
    setting = Setting(clients, size, rounds, kind, parameters=parameters, most_rounds=most, rest=rest)
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
        "participation": kind,
        "participations": setting.participations(),
        "accountant": f"dp-accounting, {accountant.upper()}",
        "parameters": parameters,
        "signal_to_noise": ratio,
        "clip": clip,
        "server_step": recommended_step(setting, z, clip),
        "client_momentum": recommended_momentum(interactions) if kind == "full" else 0.0,
        "feasible": ratio["run"] >= HOPELESS,
        "costly": ratio["run"] < COSTLY,
    }
    print_result(figures, json, _show_plan)


PLAN = """
noise multiplier | {noise_multiplier:.4g} | standard deviation of the noise on the sum, over the clip
epsilon | {epsilon:.4g} | at delta {delta:g}, for one client ({neighbouring}), over the {horizon}
participation | {participation} | {cohort:,} of {clients:,} clients a round{arrivals}
signal to noise | {signal_to_noise[run]:.3g} | at most, over the run; {signal_to_noise[round]:.3g} a round, with \
{parameters} parameters
server step | {server_step:.3g} | recommended with clip {clip:g}; used where a file states no server, with a denoised \
mean as the final ranker
momentum | {client_momentum:.3g} | recommended: client_momentum = {client_momentum:.3g}
"""


def _show_plan(plan: dict[str, Any]) -> None:
    arrivals = f" at most, each in at most {plan['participations']:,} of {plan['rounds']:,}; arrivals are public"
    print_rows(*rows_of(PLAN, plan | {"arrivals": arrivals if plan["participation"] == "arrivals" else ""}))
    if not plan["feasible"]:
        print_text(
            "nothing can be learned within this budget: the noise exceeds the mean update even if all clients agree"
        )
    elif plan["costly"]:
        print_text(
            f"with {plan['parameters']} parameters this budget costs more than 1 % of nDCG@10 in experiments "
            "(docs/results/privacy.md): increase epsilon or the number of clients, or choose fewer features"
        )


@app.command()
def ledger(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Directories of finished runs, or of a coordinator.")],
    delta: Annotated[
        float | None, Option(help="δ at which several runs are composed.", show_default="the largest of theirs")
    ] = None,
    json: Json = False,
) -> None:
    """List the releases of a run's clients, and their total privacy loss.

    The ε of an accounted run is recomputed from its releases. The exit code is
    1 if the ledger states another ε. For several runs, or with --delta, the
    loss is composed for a client that was in each of them.
    """
    from quorank.privacy.ledger import compose_runs, read_ledger

    places = [run.resolve() for run in runs]
    sentence = "given twice; a run's releases count once"
    for run, place in zip(runs, places, strict=True):
        require(places.count(place) == 1, "run.named-twice", sentence, f"{run}")
    contents = [read_ledger(run) for run in runs]
    counted = [_recounted(run, content) for run, content in zip(runs, contents, strict=True)]
    faults = [fault for _, fault in counted if fault]
    for fault in faults:
        say(f"quorank: {fault}")
    if len(runs) == 1 and delta is None:
        print_result(contents[0] | {"recounted_epsilon": counted[0][0]}, json, show_ledger)
    elif not faults:
        each = []
        for run, content in zip(runs, contents, strict=True):
            stated = content.get("altogether") or content["privacy"] or {}
            shown = ("kind", "epsilon", "delta", "rounds", "horizon")
            each.append({"run": str(run)} | {key: stated.get(key) for key in shown})
        together = compose_runs(contents, delta) | _shared_noise(runs)
        if together["shared_seeds"]:
            say(f"quorank: warning: {together['method']}")
        print_result({"runs": each, "together": together}, json, _show_together)
    if faults:
        raise typer.Exit(1)


def _shared_noise(runs: Sequence[Path]) -> dict[str, Any]:
    """Return the seeds that several simulated runs share; then no ε holds for them together, since their noise cancels."""
    from quorank.experiments.run_directory import SUMMARY, RunSummary
    from quorank.files.documents import read_json

    by_seed: dict[int, list[str]] = {}
    for run in runs:
        if (run / SUMMARY).is_file():  # a coordinator draws its noise from a secret
            by_seed.setdefault(read_json(run / SUMMARY, RunSummary)["seed"], []).append(f"{run}")
    shared = {seed: names for seed, names in by_seed.items() if len(names) > 1}
    if not shared:
        return {"shared_seeds": []}
    which = "; ".join(f"{', '.join(names)}: drawn from seed {seed}" for seed, names in shared.items())
    sentence = (
        "runs with one seed share their noise, which cancels in the difference of their sums: no ε holds for both"
    )
    return {"epsilon": None, "method": f"{sentence} ({which}); repeat with other seeds", "shared_seeds": [*shared]}


def _recounted(run: Path, content: dict[str, Any]) -> tuple[float | None, str]:
    """Recompute the ε of a ledger; return it with a sentence about a different statement, if any."""
    from quorank.privacy.ledger import check_together, recount

    try:
        again, stated = recount(content), (content["privacy"] or {}).get("epsilon")
        check_together(content)
    except BadInput as error:
        raise error.at(f"{run}") from None
    if stated is None or (again is not None and abs(again - stated) <= 1e-6 * max(again, 1.0)):
        return again, ""
    if again is None:
        computed = "this version computes no ε for such releases"
    else:
        computed = f"its releases compose to {again:.6g} (for one client, whole run, at the ledger's δ)"
    return again, f"{run}: the ledger states ε = {stated:.6g}, {computed}"


def _show_together(result: dict[str, Any]) -> None:
    rows = []
    for run in result["runs"]:
        epsilon = "none stated" if run["epsilon"] is None else f"{run['epsilon']:.4g}"
        delta = "" if run["delta"] is None else f"{run['delta']:g}"
        rows.append((run["run"], run["kind"] or "none", epsilon, delta, run["horizon"] or ""))
    print_text(table_of(("run", "privacy", "ε", "δ", "horizon"), rows))
    _show_loss(result["together"] | {"kind": "together"})


LEDGER_ROWS = 20
"""Entries of a ledger that are shown."""


def show_ledger(content: dict[str, Any]) -> None:
    """Print the releases of a ledger and their privacy loss."""
    rows = []
    for entry in content["releases"][:LEDGER_ROWS]:
        counts = entry["participants"]
        clients = counts.get("planned", counts.get("most"))
        least = counts.get("least", clients)
        rows.append(
            (
                f"{entry['first_round']}–{entry['last_round']}",
                "withheld" if entry["releases"] is None else f"{entry['releases']:,}",
                f"{clients:,}" if least == clients else f"{least:,}–{clients:,}",
                "unbounded" if entry["sensitivity"] is None else f"{entry['sensitivity']:.4g}",
                f"{entry['noise']:.4g}" if entry["noise"] else "none",
            )
        )
    rows += [("…", "", "", "", "")] * (len(content["releases"]) > LEDGER_ROWS)
    print_text(table_of(("rounds", "releases", "clients a round", "sensitivity", "noise"), rows))
    if "withheld" in content:
        print_text(f"withheld: {content['withheld']}")
    if "normalisation" in content:
        print_text("one more release before the first round, of the ranges of features")
    for entry in content.get("unlearning", []):
        counts = [each["releases"] for each in entry["releases"]]
        count = "withheld" if None in counts else f"{sum(counts):,}"
        done = "rebuilt" if entry.get("finished", True) else "rebuilding was abandoned"
        without = ", ".join(map(str, entry["without"]))
        print_text(f"{done} without {without}: {count} more releases, in {entry['setting']['rounds']:,} rounds")
    _show_loss(content.get("altogether", content["privacy"]))


def _show_loss(stated: dict[str, Any] | None) -> None:
    from quorank.reports.report import describe_privacy, privacy_fields

    print_text(*(f"{name:<20}{value}" for name, value in privacy_fields(stated or {})))
    print_lines(describe_privacy(stated))


@app.command()
def audit(
    run: Annotated[Path, Argument(help="Directory of a run, or an experiment file.")],
    canaries: Annotated[int, Option(help="Canary clients, half of which take part.")] = 1000,
    confidence: Annotated[float, Option(help="Confidence of the lower bound.")] = 0.95,
    victims: Annotated[int, Option(help="Clients whose clicks an attack guesses; 0 for none.")] = 40,
    seed: Annotated[int, Option(help="Random seed of the audit.")] = 1,
    threads: Annotated[int | None, Option(min=1, help="Number of threads.", show_default="all cores")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Attack a run to refute its privacy claim.

    The run is repeated with canary clients. Guesses about their membership
    give a lower bound on ε. The audit fails, with exit code 1, if the bound
    exceeds the claim or the noise differs from the planned noise. A passed
    audit proves nothing. Then an attack guesses clicks from updates, for each
    kind of release.
    """
    from quorank.experiments.audit import audit_experiment
    from quorank.experiments.experiment import Experiment
    from quorank.experiments.experiment_file import find_experiment_file
    from quorank.experiments.run_directory import CONFIG

    experiment = Experiment.read(find_experiment_file(run / CONFIG if run.is_dir() else run))
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


AUDIT = """
claimed | ε = {claimed[epsilon]:.4g} | at δ = {claimed[delta]:g} for one client, {claimed[horizon]}
claimed | no ε | {no_claim}
lower bound | ε ≥ {lower_bound:.3g} | at δ = {delta:g}, {confidence:.0%} confidence: {correct} of {guesses} guesses about \
{canaries} canaries were correct
ceiling | ε ≥ {ceiling:.3g} | largest possible bound with {canaries} canaries; a larger claim cannot be refuted
noise | {noise[deviation]:.4g} | of the planned standard deviation, {noise[low]:.4g} to {noise[high]:.4g} from \
{noise[numbers]:,} samples; a ratio below {noise[noticed_below]:.3g} fails with 95 % probability
shape | {noise[distance]:.4f} | largest distance from the normal distribution function; a distance above \
{noise[noticed_beyond]:.4f} fails with 95 % probability
repeated | {noise[repeated]:,} | rounds that repeat the noise of an earlier round
verdict | {verdict} | of the claim; a bound below the claim does not prove it
published | {refuted} | the published ε = {published[epsilon]:g}, for one client and the whole run
clicks | not attacked | {skipped}
"""


def _show_audit(result: dict[str, Any]) -> None:
    from quorank.experiments.audit import telling

    claims = result["claimed"] is not None and result["claimed"]["epsilon"] is not None
    study = result.get("reconstruction") or {"skipped": None}
    words = result | {
        "skipped": study.get("skipped"),
        "no_claim": None if claims else "the run claims no ε",
        "verdict": ("passed" if result["passed"] else "REFUTED") if claims else None,
        "refuted": "refuted" if result.get("published", {}).get("refuted") else "not refuted",
    }
    print_rows(*rows_of(AUDIT, words))
    if "skipped" in study:
        return
    print_text(
        f"\nClicks of {study['victims']} clients, guessed from the server's view of their updates; "
        f"cohorts of {study['cohort']:,}; the noise is {study['noise']}.\n"
    )
    rows = []
    for name in (name.removeprefix("natural/") for name in study["lines"] if name.startswith("natural/")):
        both = (study["lines"][f"{kind}/{name}"]["auc"] for kind in ("natural", "manipulated"))
        rows.append((name, *(f"AUC {auc:.2f}  {telling(auc)}" for auc in both)))
    print_text(table_of(("release", "data's features", "features chosen by the server"), rows))
