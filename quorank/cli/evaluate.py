"""`quorank evaluate RANKER --data D`: nDCG, MaxRR and ERR of a ranker on a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from quorank.cli.display import print_result, print_text, say, table_of
from quorank.cli.options import Fold, Json, Tag
from quorank.errors import BadInput, require


def evaluate(
    ranker: Annotated[Path, Argument(help="ranker.json, or the directory of a run.")],
    data: Annotated[str, Option(help="synthetic:mq2007, synthetic:mslr, a folder, or an imported name.")],
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
    json: Json = False,
) -> None:
    """Evaluate a ranker on labelled data: nDCG, MaxRR, ERR, 95 % intervals.

    Features are normalised as the ranker's file says. On a click log with the
    ranks of documents, clicks give counterfactual estimates too.
    """
    import numpy as np

    from quorank.data import DataSource, load
    from quorank.files.atomic import write_whole
    from quorank.metrics import trec_files
    from quorank.metrics.counterfactual import LoggedClickEvaluator
    from quorank.metrics.evaluator import Evaluator
    from quorank.rankers import scores
    from quorank.rankers.ranker_file import read_ranker
    from quorank.users.harvesting import HARVEST, read_propensities

    saved = read_ranker(ranker)
    sentence = (
        f"a missing feature counts as {saved.missing:g}, and as 0 in collections; score tables with quorank predict"
    )
    require(saved.missing == 0.0, "features.missing-is-zero", sentence, f"{ranker}")
    collection = load(DataSource(data, fold=fold, normalize=saved.normalisation))
    chosen = getattr(collection, split)
    sentence = "this collection has no validation split; use --split test"
    require(chosen is not None, "collection.no-split", sentence, data)
    differs = f"ranks by {saved.n_features} features, but {data} has {chosen.n_features}"
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
    result: dict[str, Any] = {
        name: {
            "mean": float(v.mean()),
            "interval": float(1.96 * v.std(ddof=1) / np.sqrt(len(v))) if len(v) > 1 else None,
        }
        for name, v in ((f"ndcg@{k}", ndcg), ("maxrr", reciprocal), (f"err@{k}", err))
    }
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


def _show(result: dict[str, Any]) -> None:
    for name, figure in result.items():
        if isinstance(figure, dict) and "mean" in figure:
            around = f" ± {figure['interval']:.4f}" if figure["interval"] is not None else ""
            print(f"{name:<9}{figure['mean']:.4f}{around}")
    rule = "left out" if result["no_relevant"] == "skip" else "counted as 0"
    print(
        f"{result['queries']} of {result['all_queries']} {result['split']} queries; without relevant documents: {rule}."
    )
    print("± is a 95 % interval over queries.")
    if "counterfactual" in result:
        from quorank.reports.report import CLICK_COLUMNS, click_estimates, describe_clicks

        clicks = result["counterfactual"]
        print_text("", table_of(CLICK_COLUMNS, click_estimates(clicks)), describe_clicks(clicks))
