"""`quorank silo`: learning across organisations that may not show their documents and queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Option

from quorank.cli import silo_group, silo_join
from quorank.cli.display import compact, print_figures, print_rows, print_text, say, table_of
from quorank.cli.options import Json

app = typer.Typer(
    help="Across companies: sketches, reverse top-K questions and one ranker of all.", no_args_is_help=True
)

Collections = Annotated[
    list[Path] | None,
    Option(
        "--collection",
        help="Documents with queries and judgements (BEIR, SMART, TREC): one is dealt out, several are a party each.",
    ),
]


@app.command()
def demo(
    collection: Collections = None,
    parties: Annotated[int, Option(min=2, max=64, help="Parties.")] = 4,
    labelled: Annotated[int, Option(min=1, help="Queries of a party that have labels.")] = 5,
    trials: Annotated[int, Option(min=1, max=1000, help="Trials, each with a seed of its own.")] = 3,
    seed: Annotated[int, Option(min=0, help="Seed of the first trial.")] = 1,
    perturbation: Annotated[
        Literal["published", "strict", "none"],
        Option(help="What protects answers: one noise for all cells, noise in every cell, or nothing."),
    ] = "published",
    epsilon: Annotated[float, Option(help="Budget ε of the perturbation.")] = 0.5,
    labels: Annotated[
        Literal["judged", "reference-rank"],
        Option(help="Own labels: the collection's judgements, or ranks of a reference retrieval."),
    ] = "judged",
    instances: Annotated[
        Literal["recommended", "published"], Option(help="How other parties' documents become labelled instances.")
    ] = "recommended",
    training: Annotated[
        Literal["round-robin", "averaging", "clicks"],
        Option(help="Pointwise in turns as published, pointwise averaged, or pairwise from clicks."),
    ] = "round-robin",
    json: Json = False,
) -> None:
    """Watch parties learn a ranker together: Local, Local+, Global and CS-F-LTR, as in the paper's table.

    Every party has a few labelled queries. It asks the others, through a
    server that sees neither terms nor documents, which of their documents
    hold the terms of its queries; what they answer becomes training data.
    """
    from quorank.silos.learning.augmentation import Augment
    from quorank.silos.learning.comparison import PartySource, SiloSetting, run_trial, summarise
    from quorank.silos.learning.exchange import SiloProtocol
    from quorank.silos.learning.instances import LABELS
    from quorank.silos.learning.training import TRAININGS

    source = PartySource(tuple(str(path) for path in collection or ()), parties)
    setting = SiloSetting(
        labels=LABELS.read(labels, "--labels"),
        labelled=(labelled,),
        asked=25,
        augment=Augment.recommended() if instances == "recommended" else Augment.published(),
        training=TRAININGS.read(training, "--training"),
    )
    protocol = SiloProtocol(perturbation, epsilon)
    if not json:
        _introduce(collection, parties, labelled)
    results = []
    for trial in range(trials):
        steps = _progress(f"trial {trial + 1} of {trials}")
        results.append(run_trial(source, setting, protocol, seed + trial, steps))
    figures = summarise(results)
    figures["setting"] = {
        "collections": [str(path) for path in collection or ()],
        "perturbation": perturbation,
        "epsilon": None if perturbation == "none" else epsilon,
        "labels": labels,
        "labelled": labelled,
        "instances": instances,
        "training": training,
        "seed": seed,
    }
    print_figures(figures, json, _show, allow_nan=False)


@app.command()
def bench(
    collection: Collections = None,
    documents: Annotated[int, Option(min=1000, help="Generated documents, where no collection is given.")] = 36_400,
    length: Annotated[int, Option(min=10, help="Terms of a generated document.")] = 1000,
    k: Annotated[int, Option("--k", min=1, help="K of the reverse top-K.")] = 150,
    seed: Annotated[int, Option(min=0, help="Seed of documents and key.")] = 1,
    json: Json = False,
) -> None:
    """Cover, memory and speed of the sketches on this machine, beside a vectorised NAIVE.

    Several collections are taken together as one party.
    """
    from quorank.silos.sketch.cover import generated_field, measure_sketches

    step = _progress("bench")
    if collection:
        step(0, 2, "reading")
        field, queries = _together(collection)
        what = "bodies of " + ", ".join(path.name for path in collection)
    else:
        step(0, 2, "generating documents")
        field, queries = generated_field(documents, length, seed=seed)
        what = f"generated, {length:,} terms each"
    step(1, 2, f"measuring {len(field.offsets) - 1:,} documents")
    figures = {"what": what} | measure_sketches(field, queries, k=k, seed=seed)
    print_figures(figures, json, _show_bench, allow_nan=False)


def _together(collections: list[Path]) -> tuple[Any, Any]:
    """Index the bodies of all collections as one party's, and return the terms of all queries."""
    import numpy as np

    from quorank.text import UNSEEN, Index, Tokeniser, read_collection

    read = [read_collection(path).without_empty() for path in collections]
    tokeniser = Tokeniser()
    index = Index.build((d for each in read for d in each.documents), tokeniser, "body")
    terms = {t for each in read for query in each.queries for t in tokeniser.tokenise(query.text)}
    ids = np.unique(index.term_ids(sorted(terms))).astype(np.int64)
    return index, ids[ids != UNSEEN]


def _introduce(collection: list[Path] | None, parties: int, labelled: int) -> None:
    where = ", ".join(path.name for path in collection) if collection else "generated documents"
    count = len(collection) if collection and len(collection) > 1 else parties
    say(
        f"{count} parties with documents of their own ({where}),\n{labelled} labelled queries each, learn one ranker; "
        "documents and queries stay where they are."
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


def _show(figures: dict[str, Any]) -> None:
    table = table_of(("", "ERR", "nDCG@10", "nDCG"), (), "right", padding=(0, 2, 0, 0))

    def row(name: str, values: dict[str, float], style: str = "") -> None:
        table.add_row(name, *(f"{values[key]:.3f}" for key in ("err", "ndcg@10", "ndcg")), style=style)

    for method, title in (("local", "Local"), ("local+", "Local+")):
        for name, party in figures["parties"].items():
            row(f"{title}, party {name}"[:40], party[method], "dim")
        row(f"{title}, average", figures["table"][method])
    row("Global", figures["table"]["global"])
    row("CS-F-LTR", figures["table"]["cs-f-ltr"], "bold")
    row("BM25, nothing learned", figures["baseline"]["bm25"], "dim")
    print_text(table, "")
    wire, privacy, cover = figures["wire"], figures["privacy"], figures["cover"]
    judged = f"{figures['test_queries']} test queries each; CS-F-LTR in nDCG@10 is {_against(figures)}"
    passed = f"{compact(wire['bytes'])}B through the server, {compact(wire['statistics_bytes'])}B for statistics"
    print_rows(
        ("trials", f"{figures['trials']}", judged),
        ("questions", f"{privacy['questions']:,}", passed),
        ("cover", f"{cover['body']:.1%}", f"of the true top documents were found (titles {cover['title']:.1%})"),
        ("privacy", *_privacy(privacy)),
    )


def _against(figures: dict[str, Any]) -> str:
    words = []
    for other, name in (("local", "Local"), ("local+", "Local+"), ("global", "Global")):
        found = figures["significance"][other]
        p = found["corrected_p"]
        told = "" if p is None else ", p < .001" if p < 0.001 else f", p = {p:.3f}".replace("0.", ".", 1)
        words.append(f"{name} {found['difference']:+.3f}{told}")
    return "; ".join(words)


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
):
    app.command()(_verb)
