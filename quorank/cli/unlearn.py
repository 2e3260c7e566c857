"""`quorank unlearn RUN --client ID`: rebuild a ranker without clients, and erase their data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from quorank.cli.display import print_result, print_rows, progress_lines
from quorank.cli.options import Json, Quiet


def unlearn(
    run: Annotated[Path, Argument(help="Directory of a finished run.")],
    client: Annotated[list[int], Option(help="Number of a client that leaves, from 0. Repeatable.")],
    interval: Annotated[
        int | None,
        Option(
            help="Δt, rounds between the used kept updates: a multiple of federation.keep_every.",
            show_default="10, or keep_every",
        ),
    ] = None,
    local_steps: Annotated[
        int | None,
        Option(
            help="Interactions of a client in each round of the rebuilding.",
            show_default="as many as in a round of the run",
        ),
    ] = None,
    method: Annotated[
        Literal["fresh", "published", "retrain"],
        Option(
            help="fresh: fewer rounds, each of which counts for the whole interval, and a mean of rankers. published: "
            "FedEraser as in the thesis, with updates of the kept lengths and the last ranker. retrain: all rounds again."
        ),
    ] = "fresh",
    compare: Annotated[bool, Option("--compare", help="Also retrain without the clients, and compare.")] = False,
    seeds: Annotated[int, Option(help="With --compare: further retrainings, which measure the noise.")] = 3,
    threads: Annotated[int | None, Option(min=1, help="Threads; by default all cores. The result is the same.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forget clients: rebuild the ranker without them and erase their data in the run.

    The others interact again for a tenth of the run's local steps by default, or
    for all with --method retrain. The rebuilt ranker replaces the old one in RUN,
    in its summary, report and ledger, and the erasure is verified.
    """
    from quorank.experiments.unlearning.request import unlearn as unlearn_clients
    from quorank.reports.report import report_page

    result = unlearn_clients(
        run,
        client,
        report_page,
        interval=interval,
        local_steps=local_steps,
        method=method,
        compare=compare,
        seeds=seeds,
        threads=threads,
        watch=None if quiet else progress_lines("unlearn: round"),
    )
    print_result(result, json, _show)


def _show(result: dict[str, Any]) -> None:
    who = ", ".join(map(str, result["clients"]))
    zeros = result["zero_updates"]
    rows = [
        ("before", f"{result['before']:.4f}", f"nDCG@10 of the ranker with client {who}"),
        ("after", f"{result['after']:.4f}", f"rebuilt without, in {result['rounds']:,} rounds"),
    ]
    if "retrained" in result:
        spread = result["retrained_other_seeds"]
        what = f"from the start without; {min(spread):.4f} to {max(spread):.4f} with other seeds"
        rows.append(("retrained", f"{result['retrained']:.4f}", what))
    share = f"of retraining's local updates: {result['local_steps']} every {result['interval']} rounds"
    rows.append(("effort", f"{result['local_updates_share']:.1%}", share))
    if result["method"] != "retrain":
        rows.append(("zeros", f"{zeros['no_direction']:,}", "new updates held no preference and counted 0"))
    if "distance" in result:
        distance = result["distance"]
        near = distance["unlearned_to_retrained"] <= distance["retrained_seeds"]
        verdict = "no more than" if near else "more than"
        what = f"rebuilt to retrained, {verdict} retrainings differ ({distance['retrained_seeds']:.3f})"
        rows.append(("distance", f"{distance['unlearned_to_retrained']:.3f}", what))
        rows.append(("", f"{distance['before_to_retrained']:.3f}", "the ranker before, to retrained"))
    if "privacy" in result and result["privacy"]["epsilon"] is not None:
        privacy = result["privacy"]
        what = f"per {privacy['unit']}, δ = {privacy['delta']:g}, {privacy['horizon']}, on top of what the run spent"
        rows.append(("privacy", f"ε = {privacy['epsilon']:.4g}", what))
    erased = ", ".join(result["erased"]) or "nothing was left to erase"
    rows.append(("erased", "checked", f"{erased}; {result['files_checked']} files read again"))
    print_rows(*rows)
    print(f"ranker   {result['ranker']}")
