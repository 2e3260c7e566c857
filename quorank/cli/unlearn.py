"""`quorank unlearn RUN --client ID`: rebuild a ranker without clients, and erase their data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from quorank.cli.display import print_result, print_rows, progress_lines, rows_of
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
    threads: Annotated[int | None, Option(min=1, help="Number of threads; results do not depend on it.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forget clients: rebuild the ranker without them and erase their data in the run.

    The other clients repeat a tenth of the run's local steps by default, or all
    of them with --method retrain. The rebuilt ranker replaces the old one in RUN,
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


RESULT = """
before | {before:.4f} | nDCG@10 of the ranker with client {who}
after | {after:.4f} | rebuilt without them, in {rounds:,} rounds
retrained | {retrained:.4f} | retrained from the start without them; {least:.4f} to {most:.4f} with other seeds
effort | {local_updates_share:.1%} | of retraining's local updates: {local_steps} every {interval} rounds
zeros | {zero_updates[no_direction]:,} | new updates had no direction and counted as 0
distance | {distance[unlearned_to_retrained]:.3f} | rebuilt to retrained; retrainings differ by \
{distance[retrained_seeds]:.3f}, and the ranker before by {distance[before_to_retrained]:.3f}
privacy | ε = {privacy[epsilon]:.4g} | per {privacy[unit]}, δ = {privacy[delta]:g}, {privacy[horizon]}, in addition to the \
run's
erased | checked | {gone}; {files_checked} files checked
"""


def _show(result: dict[str, Any]) -> None:
    spread = result.get("retrained_other_seeds") or [None]
    words = result | {
        "who": ", ".join(map(str, result["clients"])),
        "least": min(spread),
        "most": max(spread),
        "gone": ", ".join(result["erased"]) or "nothing was left to erase",
    }
    print_rows(*rows_of(RESULT, words))
    print(f"ranker   {result['ranker']}")
