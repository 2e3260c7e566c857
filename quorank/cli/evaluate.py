"""`quorank evaluate RANKER --data D`: nDCG, MaxRR and ERR of a ranker on a collection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from quorank.cli.display import print_result, print_text, say, table_of
from quorank.cli.options import Fold, Json, Tag
from quorank.cli.text_collections import find_text
from quorank.errors import BadInput, require
from quorank.text.collection import NAMED_FORMATS

if TYPE_CHECKING:
    from quorank.kernels.arrays import Doubles
    from quorank.metrics.lists import NoRelevant
    from quorank.rankers.ranker_file import SavedRanker
    from quorank.silos.training.lists import OwnSearch
    from quorank.text import TextCollection


def evaluate(
    ranker: Annotated[Path, Argument(help="ranker.json, or the directory of a run.")],
    data: Annotated[
        str,
        Option(
            help="synthetic:mq2007, synthetic:mslr, a folder, or an imported name; for the ranker of a silo group, "
            f"documents with queries and judgements ({NAMED_FORMATS})."
        ),
    ],
    fold: Fold = 1,
    split: Annotated[Literal["train", "validation", "test"], Option(help="Split of the collection.")] = "test",
    k: Annotated[int, Option(min=1, max=100, help="Cut-off of nDCG and ERR.")] = 10,
    no_relevant: Annotated[
        Literal["skip", "zero"], Option(help="Skip queries without relevant documents, or count them as zero.")
    ] = "skip",
    threads: Annotated[int, Option(min=1, help="Number of threads; results do not depend on it.")] = 1,
    trec_run: Annotated[Path | None, Option(help="Write the ranked lists to a file as a TREC run.")] = None,
    qrels: Annotated[Path | None, Option(help="Write the labels to a file as TREC judgements.")] = None,
    tag: Tag = "quorank",
    propensities: Annotated[
        str | None,
        Option(
            help="For a click log, probability that people look at each rank: harvest (from the log's training part), "
            "power=0.5 for (1/rank)^0.5, or numbers such as 1,0.6,0.4.",
            show_default="harvest, if possible",
        ),
    ] = None,
    clip: Annotated[float, Option(help="For a click log: lower bound of a propensity.")] = 0.1,
    embeddings: Annotated[
        Path | None, Option(help="For texts: word vectors or an ONNX encoder, if the ranker has the feature embedding.")
    ] = None,
    json: Json = False,
) -> None:
    """Evaluate a ranker on labelled data: nDCG, MaxRR, ERR, 95 % intervals.

    Features are normalised as the ranker's file says. On a click log with the
    ranks of documents, clicks give counterfactual estimates too. The ranker
    of a silo group is evaluated on texts: it orders the first 100 documents
    by BM25, and nDCG counts all relevant documents.
    """
    from quorank.data import DataSource, load
    from quorank.files.atomic import write_whole
    from quorank.metrics import trec_files
    from quorank.metrics.counterfactual import LoggedClickEvaluator
    from quorank.metrics.evaluator import Evaluator
    from quorank.rankers import scores
    from quorank.rankers.ranker_file import read_ranker
    from quorank.silos.training.ranked_search import search_of_ranker
    from quorank.users.harvesting import HARVEST, read_propensities

    saved = read_ranker(ranker)
    sentence = (
        f"a missing feature counts as {saved.missing:g}, and as 0 in collections; score tables with quorank predict"
    )
    require(saved.missing == 0.0, "features.missing-is-zero", sentence, f"{ranker}")
    searched = search_of_ranker(saved)
    if searched is not None and (texts := find_text(data)) is not None:
        _evaluate_texts(saved, searched, texts.without_empty(), data, k, no_relevant, embeddings, json)
        return
    sentence = "there are no texts there to embed; leave out --embeddings"
    require(embeddings is None, "option.conflict", sentence, f"--data {data}")
    collection = load(DataSource(data, fold=fold, normalize=saved.normalisation))
    chosen = getattr(collection, split)
    sentence = "this collection has no validation split; use --split test"
    require(chosen is not None, "collection.no-split", sentence, data)
    advice = "; give --data the documents themselves" if searched is not None else ""
    differs = f"ranks by {saved.n_features} features, but {data} has {chosen.n_features}{advice}"
    require(chosen.n_features == saved.n_features, "ranker.features-differ", differs, f"{ranker}")
    evaluator = Evaluator(chosen, saved.ranker, k, no_relevant, threads)
    counted = evaluator.counted()
    sentence = f"no query of the {split} split has a relevant document, so that metrics are undefined"
    require(counted.any(), "collection.nothing-relevant", sentence, data)
    ndcg, reciprocal = (values[0][counted] for values in evaluator.per_query([saved.theta]))
    err = evaluator.err(saved.theta)[counted]
    if trec_run is not None:
        lists = (chosen.query_ids, chosen.offsets, chosen.document_ids)
        write_whole(trec_run, trec_files.trec_run(*lists, evaluator.scores(saved.theta), tag))
    if qrels is not None:
        write_whole(qrels, trec_files.trec_qrels(chosen))
    result = _means({f"ndcg@{k}": ndcg, "maxrr": reciprocal, f"err@{k}": err})
    result |= {
        "queries": int(counted.sum()),
        "all_queries": chosen.n_queries,
        "no_relevant": no_relevant,
        "split": split,
        "data": data,
        "fold": fold,
    }
    if collection.log is not None and split != "validation":
        records = collection.log.train if split == "train" else collection.log.test
        looks = None
        if records.has_ranks:
            try:
                looks = read_propensities(propensities or HARVEST, k, collection.train, collection.log.train)
            except BadInput as error:  # the log does not allow the default
                if propensities is not None:
                    raise
                say(f"no estimates by logged clicks: {error.sentence} (--propensities)")
        if looks is not None:
            click_evaluator = LoggedClickEvaluator(chosen, records, looks, k, clip)
            result["counterfactual"] = click_evaluator.figures(scores(saved.ranker, saved.theta, chosen))
    print_result(result, json, _show)


def _evaluate_texts(
    saved: SavedRanker,
    searched: OwnSearch,
    texts: TextCollection,
    data: str,
    k: int,
    no_relevant: NoRelevant,
    embeddings: Path | None,
    json: bool,
) -> None:
    """Evaluate a silo group's ranker on the lists that a search of a collection returns for all judged queries."""
    import numpy as np

    from quorank.silos.holdings import make_holding
    from quorank.silos.training.lists import PartySearch
    from quorank.text import Features, Tokeniser
    from quorank.text.embeddings import open_embedder
    from quorank.text.languages import language_of

    language = language_of(texts).language or "english"
    embedder = open_embedder(embeddings) if embeddings is not None and "embedding" in searched.evidence else None
    everything = range(len(texts.documents)), range(len(texts.queries))
    held = make_holding(texts.name, texts, *everything, Tokeniser.for_language(language), embedder=embedder)
    judged = [q for q in range(held.n_queries) if held.grades[q]]
    lists = PartySearch(held, searched, Features()).lists(judged, held.grades, k)
    counted = lists.ideal_top > 0.0
    sentence = "no query has a relevant document, so that metrics are undefined"
    require(counted.any(), "collection.nothing-relevant", sentence, data)
    counted |= no_relevant == "zero"
    evaluator = lists.evaluator(saved.ranker, k)
    (ndcg,), (reciprocal,) = lists.ndcg([saved.theta], saved.ranker), evaluator.per_query([saved.theta])[1]
    (by_search,) = lists.ndcg([np.zeros(saved.n_features)])
    figures = {f"ndcg@{k}": ndcg, "maxrr": reciprocal, f"err@{k}": evaluator.err(saved.theta), "bm25": by_search}
    result = _means({name: values[counted] for name, values in figures.items()})
    result |= {"queries": int(counted.sum()), "all_queries": len(texts.queries), "no_relevant": no_relevant}
    result |= {"documents": held.n_documents, "language": language, "split": None, "data": data}
    print_result(result, json, _show)


def _means(figures: dict[str, Doubles]) -> dict[str, Any]:
    """Return the mean of each metric with half of its 95 % interval; None for a single query."""
    return {
        name: {
            "mean": float(values.mean()),
            "interval": float(1.96 * values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None,
        }
        for name, values in figures.items()
    }


def _show(result: dict[str, Any]) -> None:
    for name, figure in result.items():
        if isinstance(figure, dict) and "mean" in figure:
            around = f" ± {figure['interval']:.4f}" if figure["interval"] is not None else ""
            print(f"{name:<9}{figure['mean']:.4f}{around}")
    rule = "left out" if result["no_relevant"] == "skip" else "counted as 0"
    split = f"{result['split']} " if result["split"] else ""
    print(f"{result['queries']} of {result['all_queries']} {split}queries; without relevant documents: {rule}.")
    if "bm25" in result:
        print("bm25 is the same nDCG in the order of the search. Queries of the training are included.")
    print("± is a 95 % interval over queries.")
    if "counterfactual" in result:
        from quorank.reports.report import CLICK_COLUMNS, click_estimates, describe_clicks

        clicks = result["counterfactual"]
        print_text("", table_of(CLICK_COLUMNS, click_estimates(clicks)), describe_clicks(clicks))
