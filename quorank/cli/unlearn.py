"""`quorank unlearn RUN --client ID`: a ranker without the clients that leave, and their data erased."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from quorank.cli.display import print_figures, print_rows, progress_lines
from quorank.cli.options import FiguresJson, Quiet


def unlearn(
    run: Annotated[Path, Argument(help="Directory of a finished run.")],
    client: Annotated[list[int], Option(help="Number of a client that leaves, from 0. Repeatable.")],
    interval: Annotated[
        int | None,
        Option(
            help="Rounds between the kept updates that are used: a multiple of federation.keep_every.",
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
        Literal["fresh", "stretched", "published", "retrain", "fine-tune", "fedremove", "pga"],
        Option(
            help="published: FedEraser as in the thesis, steps of the kept updates' length and the last ranker. "
            "stretched: such a step counts for the whole interval, and rankers are averaged. fresh: so too, but updates "
            "keep their own length. retrain: the whole run again. The others keep traces of the leavers: fine-tune: "
            "further rounds from the last ranker. fedremove: the others' kept updates combined once more. pga: the "
            "leavers undo their learning, then further rounds."
        ),
    ] = "fresh",
    as_published: Annotated[bool, Option("--as-published", help="The same as --method published.")] = False,
    compare: Annotated[bool, Option("--compare", help="Also retrain without the clients, and compare.")] = False,
    seeds: Annotated[int, Option(help="With --compare: further retrainings, to tell their own noise by.")] = 3,
    out: Annotated[Path | None, Option(help="Where the rebuilt ranker is written; RUN/unlearned unless given.")] = None,
    threads: Annotated[int | None, Option(min=1, help="Threads; by default all cores. The result is the same.")] = None,
    json: FiguresJson = False,
    quiet: Quiet = False,
) -> None:
    """Forget clients: rebuild the ranker without them and erase what the run holds of them.

    The others interact anew for a fraction of the run's local steps, a tenth
    unless told otherwise (--method retrain: all of them). The rebuilt ranker takes the place of the old one in
    RUN, in its summary, report and ledger too, and the erasure is checked.
    """
    from quorank.experiments.unlearning.request import unlearn as unlearn_clients
    from quorank.reports.report import report_page

    result = unlearn_clients(
        run,
        client,
        report_page,
        interval=interval,
        local_steps=local_steps,
        method="published" if as_published else method,
        compare=compare,
        seeds=seeds,
        out=out,
        threads=threads,
        watch=None if quiet else progress_lines("unlearn: round"),
    )
    print_figures(result, json, _show)


def _show(result: dict[str, Any]) -> None:
    who = ", ".join(map(str, result["clients"]))
    zeros = result["zero_updates"]
    rows = [
        ("before", f"{result['before']:.4f}", f"nDCG@10 of the ranker with client {who}"),
        ("after", f"{result['after']:.4f}", f"rebuilt without, in {result['rounds']:,} rounds"),
    ]
    if "retrained" in result:
        spread = result["retrained_other_seeds"]
        told = f"from the start without; {min(spread):.4f} to {max(spread):.4f} with other seeds"
        rows.append(("retrained", f"{result['retrained']:.4f}", told))
    share = f"of retraining's local updates: {result['local_steps']} every {result['interval']} rounds"
    rows.append(("effort", f"{result['local_updates_share']:.1%}", share))
    if "leavers_local_updates" in result:
        rows.append(("", f"{result['leavers_local_updates']:,}", "interactions of the leavers, to undo their learning"))
    if result["method"] in ("fresh", "stretched", "published"):
        rows.append(("zeros", f"{zeros['no_direction']:,}", "new updates held no preference and counted 0"))
    if result["keeps_traces"]:
        rows.append(("traces", "kept", f"{result['method']} starts from what was learned with client {who}"))
    if "distance" in result:
        distance = result["distance"]
        near = distance["unlearned_to_retrained"] <= distance["retrained_seeds"]
        verdict = "no more than" if near else "more than"
        told = f"rebuilt to retrained, {verdict} retrainings differ ({distance['retrained_seeds']:.3f})"
        rows.append(("distance", f"{distance['unlearned_to_retrained']:.3f}", told))
        rows.append(("", f"{distance['before_to_retrained']:.3f}", "the ranker before, to retrained"))
    if "privacy" in result and result["privacy"]["epsilon"] is not None:
        privacy = result["privacy"]
        told = f"per {privacy['unit']}, δ = {privacy['delta']:g}, {privacy['horizon']}, on top of what the run spent"
        rows.append(("privacy", f"ε = {privacy['epsilon']:.4g}", told))
    erased = ", ".join(result["erased"]) or "nothing was left to erase"
    rows.append(("erased", "checked", f"{erased}; {result['files_checked']} files read again"))
    print_rows(*rows)
    print(f"ranker   {result['ranker']}")
