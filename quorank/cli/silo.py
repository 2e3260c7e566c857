"""`quorank silo`: learning across organisations that may not show their documents and queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from quorank.cli import silo_group, silo_join, silo_search
from quorank.cli.display import compact, print_result, print_rows, print_text, say, table_of
from quorank.cli.options import Json
from quorank.cli.text_collections import read_texts, skipped_of
from quorank.errors import require
from quorank.text.formats import NAMED_FORMATS

if TYPE_CHECKING:
    from quorank.silos.training.comparison import TrialResult
    from quorank.text import TextCollection

app = typer.Typer(
    help="Ranking and search across organisations that may not show their documents.", no_args_is_help=True
)

Collections = Annotated[
    list[Path] | None,
    Option(
        "--collection",
        help=f"Documents with queries and judgements ({NAMED_FORMATS}): one is divided among the parties, several are one "
        "party each.",
    ),
]


@app.command()
def demo(
    collection: Collections = None,
    parties: Annotated[int, Option(min=2, max=64, help="Number of parties.")] = 4,
    labelled: Annotated[int, Option(min=1, help="Labelled queries of each party.")] = 5,
    trials: Annotated[int, Option(min=1, max=1000, help="Number of trials, each with its own seed.")] = 3,
    seed: Annotated[int, Option(min=0, help="Seed of the first trial.")] = 1,
    training: Annotated[
        Literal["prior", "trees", "round-robin", "averaging"],
        Option(
            help="prior: from the parties' own search; trees: LambdaMART, for 100 labelled lists and more; round-robin and "
            "averaging: CS-F-LTR, in one process only."
        ),
    ] = "prior",
    perturbation: Annotated[
        Literal["published", "strict", "none"],
        Option(help="CS-F-LTR: noise on answers: one sample for all cells, one per cell, or none."),
    ] = "strict",
    epsilon: Annotated[float | None, Option(help="CS-F-LTR: ε of that noise.", show_default="8; published 0.5")] = None,
    labels: Annotated[
        Literal["judged", "reference-rank"],
        Option(help="CS-F-LTR: the collection's judgements, or ranks of a reference retrieval."),
    ] = "judged",
    instances: Annotated[
        Literal["recommended", "published"],
        Option(help="CS-F-LTR: conversion of other parties' documents to labelled instances."),
    ] = "recommended",
    json: Json = False,
) -> None:
    """Train one ranker of several parties from their own searches, and compare it with these searches.

    Every party has a few labelled queries and searches its own documents by
    BM25. The labels of all parties improve that ranking by sums under masks:
    no document, query or label leaves a party. With --training round-robin
    parties ask each other about terms and train on the answers (CS-F-LTR).
    """
    from quorank.silos.training.comparison import PartySource, run_trial, summarise
    from quorank.silos.training.setting import TRAININGS, SiloSetting

    source = PartySource(tuple(str(path) for path in collection or ()), parties)
    asks = training in ("round-robin", "averaging")
    require(asks or labels == "judged", "option.conflict", "only CS-F-LTR's trainings take it", f"--labels {labels}")
    chosen = epsilon if epsilon is not None else 0.5 if perturbation == "published" else 8.0
    if asks:
        from quorank.silos.sketch.augmentation import Augment
        from quorank.silos.sketch.descent import INSTANCE_TRAININGS
        from quorank.silos.sketch.exchange import WARNING, QuestionProtocol
        from quorank.silos.sketch.instances import LABELS
        from quorank.silos.sketch.published import PublishedSetting, run_published_trial

        published = PublishedSetting(
            labels=LABELS.read(labels, "--labels"),
            labelled=(labelled,),
            asked=25,
            augment=Augment.recommended() if instances == "recommended" else Augment.published(),
            training=INSTANCE_TRAININGS.read(training, "--training"),
        )
        protocol = QuestionProtocol(perturbation, chosen)
        say(f"warning: {WARNING}")

        def run(number: int, steps: Callable[[int, int, str], None]) -> TrialResult:
            return run_published_trial(source, published, protocol, number, steps)
    else:
        setting = SiloSetting(labelled=(labelled,), training=TRAININGS.read(training, "--training"))

        def run(number: int, steps: Callable[[int, int, str], None]) -> TrialResult:
            return run_trial(source, setting, number, steps)

    skipped = skipped_of(read_texts(collection or ()))
    if not json:
        _introduce(collection, parties, labelled)
    results = [run(seed + trial, _progress(f"trial {trial + 1} of {trials}")) for trial in range(trials)]
    figures = summarise(results)
    figures["setting"] = {
        "collections": [str(path) for path in collection or ()],
        "perturbation": perturbation if asks else None,
        "epsilon": chosen if asks and perturbation != "none" else None,
        "labels": labels,
        "labelled": labelled,
        "instances": instances if asks else None,
        "training": training,
        "seed": seed,
    }
    figures["skipped"] = skipped
    print_result(figures, json, _show, allow_nan=False)


@app.command()
def bench(
    collection: Collections = None,
    documents: Annotated[int, Option(min=1000, help="Generated documents, where no collection is given.")] = 36_400,
    length: Annotated[int, Option(min=10, help="Terms of a generated document.")] = 1000,
    k: Annotated[int, Option("--k", min=1, help="K of the reverse top-K.")] = 150,
    seed: Annotated[int, Option(min=0, help="Seed of documents and key.")] = 1,
    json: Json = False,
) -> None:
    """Measure cover, memory and speed of reverse top-K sketches on this machine, against a vectorised NAIVE.

    Several collections are joined as one party.
    """
    from quorank.silos.sketch.cover import generated_field, measure_sketches

    step = _progress("bench")
    if collection:
        step(0, 2, "reading")
        read = read_texts(collection)
        field, queries = _together(read)
        what = "bodies of " + ", ".join(path.name for path in collection)
    else:
        step(0, 2, "generating documents")
        read = []
        field, queries = generated_field(documents, length, seed=seed)
        what = f"generated, {length:,} terms each"
    step(1, 2, f"measuring {len(field.offsets) - 1:,} documents")
    figures = {"what": what, "skipped": skipped_of(read)} | measure_sketches(field, queries, k=k, seed=seed)
    print_result(figures, json, _show_bench, allow_nan=False)


def _together(read: list[TextCollection]) -> tuple[Any, Any]:
    """Index the bodies of all collections as one party's, and return the terms of all queries."""
    import numpy as np

    from quorank.text import UNSEEN, Index, Tokeniser

    tokeniser = Tokeniser()
    index = Index.build((d for each in read for d in each.documents), tokeniser, "body")
    terms = {t for each in read for query in each.queries for t in tokeniser.tokenise(query.text)}
    ids = np.unique(index.term_ids(sorted(terms))).astype(np.int64)
    return index, ids[ids != UNSEEN]


def _introduce(collection: list[Path] | None, parties: int, labelled: int) -> None:
    where = ", ".join(path.name for path in collection) if collection else "generated documents"
    count = len(collection) if collection and len(collection) > 1 else parties
    say(
        f"{count} parties with documents of their own ({where}) and {labelled} labelled queries each\n"
        "train one ranker; no document or query leaves its party."
    )


def _progress(title: str) -> Callable[[int, int, str], None]:
    """Return a function that prints a line on stderr for each step, at most twice a second."""
    shown = 0.0

    def step(done: int, total: int, what: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= 0.5 and done < total:
            shown = time.monotonic()
            say(f"{title}: {what} …")

    return step


TITLES = {
    "bm25": "BM25 of title and body",
    "w0": "with feedback and latent terms",
    "alone": "Learned alone",
    "ours": "Learned together",
    "local": "Local",
    "local+": "Local+",
    "global": "Global",
    "cs-f-ltr": "CS-F-LTR",
}
"""Names of methods in the table."""


def _show(figures: dict[str, Any]) -> None:
    table = table_of(("", "ERR", "nDCG@10", "nDCG"), (), "right", padding=(0, 2, 0, 0))
    methods, parties = list(figures["table"]), figures["parties"]
    asks = figures["setting"]["perturbation"] is not None

    def row(name: str, values: dict[str, float], style: str = "") -> None:
        table.add_row(name, *(f"{values[key]:.3f}" for key in ("err", "ndcg@10", "ndcg")), style=style)

    for method in methods:
        if method == "w0" and asks:
            continue  # without evidence the prior is the search itself
        title = TITLES[method]
        of_parties = [(name, party[method]) for name, party in parties.items() if method in party]
        for name, values in of_parties:
            row(f"{title}, party {name}"[:40], values, "dim")
        row(
            f"{title}, average" if of_parties else title,
            figures["table"][method],
            "bold" if method == methods[-1] else "",
        )
    print_text(table, "")
    rows = [("trials", f"{figures['trials']}", f"{figures['test_queries']} test queries each; {_against(figures)}")]
    if asks:
        wire, privacy, cover = figures["wire"], figures["privacy"], figures["cover"]
        passed = f"{compact(wire['bytes'])}B exchanged, {compact(wire['statistics_bytes'])}B for statistics"
        rows += [
            ("questions", f"{privacy['questions']:,}", passed),
            ("cover", f"{cover['body']:.1%}", f"of the true top documents were found (titles {cover['title']:.1%})"),
            ("privacy", *_privacy(privacy)),
        ]
    else:
        told = "sums over each party's lists, under masks; no questions about documents"
        rows.append(("crosses", "sums", told))
    if figures["setting"]["training"] == "trees":
        grown = [chosen["ours"][0] for chosen in figures["weights"]]
        told = "0: too few lists, or no gain on held-out ones; --labelled gives more"
        rows.append(("trees", ", ".join(f"{number:g}" for number in grown), f"in the ranker of each trial ({told})"))
    print_rows(*rows)


def _against(figures: dict[str, Any]) -> str:
    methods = list(figures["table"])
    words = []
    for other in methods[:-1]:
        found = figures["significance"][other]
        if other == "w0" and figures["setting"]["perturbation"] is not None:
            continue
        p = found["corrected_p"]
        told = "" if p is None else ", p < .001" if p < 0.001 else f", p = {p:.3f}".replace("0.", ".", 1)
        words.append(f"{TITLES[other]} {found['difference']:+.3f}{told}")
    return f"{TITLES[methods[-1]]} in nDCG@10 minus {'; '.join(words)}"


def _privacy(privacy: dict[str, Any]) -> tuple[str, str]:
    if privacy["epsilon"] is not None:
        both = privacy["epsilon"] + (privacy["statistics_epsilon"] or 0.0)
        told = f"for {privacy['unit']}: {privacy['epsilon']:g} in the sketches, the rest in the statistics"
        return f"ε = {both:g}", told
    if "published_epsilon" in privacy:
        told = f"{privacy['horizon']}; as the paper counts, the busiest pair has spent {privacy['published_epsilon']:g}"
        return "no ε", told
    return "none", privacy["horizon"]


def _show_bench(figures: dict[str, Any]) -> None:
    cover, naive = figures["cover"], f"NAIVE, vectorised: {figures['naive_query_milliseconds']:.3f} ms"
    print_rows(
        ("documents", f"{figures['documents']:,}", figures["what"]),
        ("cover", f"{cover['rtk']:.1%}", f"of the true top-{figures['k']}; NAIVE {cover['naive']:.1%}"),
        ("", f"{cover['literal']:.1%}", "the paper's algorithms 4 and 5 read literally"),
        ("memory", f"{figures['memory_share']:.3f}", "of NAIVE's"),
        ("a query", f"{figures['query_milliseconds']:.3f} ms", naive),
        ("building", f"{compact(figures['build_terms_per_second'])}/s", "term occurrences, one core"),
    )


for _verb in (
    silo_group.start,
    silo_group.invite,
    silo_join.join,
    silo_group.status,
    silo_group.revoke,
    silo_group.stop,
    silo_group.ranker,
    silo_group.files,
    silo_search.search,
    silo_search.audit,
):
    app.command()(_verb)
