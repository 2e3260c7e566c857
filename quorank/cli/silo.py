"""`quorank silo`: learning across organisations that may not show their documents and queries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Option

from quorank.cli import service, silo_group, silo_join, silo_search
from quorank.cli.display import print_result, print_rows, print_text, say, table_of
from quorank.cli.options import Json
from quorank.cli.text_collections import read_texts, skipped_of
from quorank.text.collection import NAMED_FORMATS

app = typer.Typer(
    help="Ranking and search across organisations that may not show their documents.", no_args_is_help=True
)
TITLES = {
    "bm25": "BM25 of title and body",
    "w0": "with feedback and latent terms",
    "alone": "Learned alone",
    "ours": "Learned together",
}
"""Names of methods in the table."""


@app.command()
def demo(
    collection: Annotated[
        list[Path] | None,
        Option(
            help=f"Documents with queries and judgements ({NAMED_FORMATS}): one is divided among the parties, several are "
            "one party each."
        ),
    ] = None,
    parties: Annotated[int, Option(min=2, max=64, help="Number of parties.")] = 4,
    labelled: Annotated[int, Option(min=1, help="Labelled queries of each party.")] = 5,
    trials: Annotated[int, Option(min=1, max=1000, help="Number of trials, each with its own seed.")] = 3,
    seed: Annotated[int, Option(min=0, help="Seed of the first trial.")] = 1,
    training: Annotated[
        Literal["prior", "trees"],
        Option(help="prior: from the parties' own search; trees: LambdaMART, for 100 labelled lists and more."),
    ] = "prior",
    json: Json = False,
) -> None:
    """Train one ranker of several parties from their own searches, and compare it with these searches.

    Every party has a few labelled queries and searches its own documents by
    BM25. The labels of all parties improve that ranking by sums under masks:
    no document, query or label leaves a party.
    """
    from quorank.silos.training.comparison import PartySource, RepeatedComparison, compare_with_search
    from quorank.silos.training.setting import TRAININGS, SiloSetting

    paths = [str(path) for path in collection or ()]
    setting = SiloSetting(labelled=(labelled,), training=TRAININGS.read(training, "--training"))
    source, skipped, results = PartySource(tuple(paths), parties), skipped_of(read_texts(paths)), []
    for trial in range(trials):
        say(f"trial {trial + 1} of {trials}: {len(paths) if len(paths) > 1 else parties} parties learn …")
        results.append(compare_with_search(source.holdings(seed + trial), setting, seed + trial))
    chosen = {"collections": paths, "labelled": labelled, "training": training, "seed": seed}
    print_result(RepeatedComparison(results).as_dict() | {"setting": chosen, "skipped": skipped}, json, _show)


def _show(figures: dict[str, Any]) -> None:
    from quorank.reproduce.studies.silos import method_table

    table = method_table(figures, TITLES)
    print_text(table_of(table.head, table.rows, "right", padding=(0, 2, 0, 0)), "")
    against = []
    for other, found in figures["significance"].items():
        p = "" if found["corrected_p"] is None else f", p = {found['corrected_p']:.2g}"
        against.append(f"{TITLES[other]} {found['difference']:+.3f}{p}")
    compared = f"{figures['test_queries']} test queries each; Learned together in nDCG@10 minus {'; '.join(against)}"
    told = [
        ("trials", f"{figures['trials']}", compared),
        ("crosses", "sums", "sums over each party's lists, under masks; no questions about documents"),
    ]
    if figures["setting"]["training"] == "trees":
        grown = ", ".join(f"{chosen['ours'][0]:g}" for chosen in figures["weights"])
        why = "in the ranker of each trial (0: too few lists, or no gain on held-out ones; --labelled gives more)"
        told.append(("trees", grown, why))
    print_rows(*told)


for _verb in (
    silo_group.start,
    silo_group.invite,
    silo_join.join,
    service.status,
    service.revoke,
    service.stop,
    service.ranker,
    service.files,
    silo_search.search,
    silo_search.audit,
):
    app.command()(_verb)
