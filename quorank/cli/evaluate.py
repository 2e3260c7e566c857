"""quorank evaluate: nDCG, MaxRR and ERR of a ranker on a collection."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quorank.errors import require

SPLITS = ("train", "validation", "test")


def evaluate(
    ranker: Annotated[Path, Argument(help="ranker.json, or the directory of a run.")],
    data: Annotated[str, Option(help="synthetic:mq2007, synthetic:mslr, a folder, or an imported name.")],
    fold: Annotated[int, Option(help="Fold of a collection in five folds.")] = 1,
    split: Annotated[str, Option(help="train, validation or test.")] = "test",
    k: Annotated[int, Option(min=1, max=100, help="Documents that count.")] = 10,
    no_relevant: Annotated[str, Option(help="What a query without relevant documents counts: skip or zero.")] = "skip",
    threads: Annotated[int, Option(min=1, help="Threads; the figures are the same.")] = 1,
    json: Annotated[bool, Option("--json", help="Print the figures as JSON, alone, on stdout.")] = False,
) -> None:
    """Judge a ranker on labelled data: nDCG, MaxRR and ERR, with a 95 % interval over queries."""
    import numpy as np

    from quorank.data import DataSource, load
    from quorank.metrics.evaluator import Evaluator
    from quorank.rankers.ranker_file import read_ranker

    choices = {"--split": (split, SPLITS), "--no-relevant": (no_relevant, ("skip", "zero"))}
    for option, (value, known) in choices.items():
        expected = f"expected {', '.join(known[:-1])} or {known[-1]}"
        require(value in known, "option.unknown-value", expected, f"{option} {value}")
    saved = read_ranker(ranker)
    collection = load(DataSource(data, fold=fold, normalize=saved.normalize))
    chosen = getattr(collection, split)
    require(
        chosen is not None, "collection.no-split", "this collection has no validation split; use --split test", data
    )
    require(
        chosen.n_features == saved.n_features,
        "ranker.features-differ",
        f"ranks by {saved.n_features} features, but {data} has {chosen.n_features}",
        f"{ranker}",
    )
    evaluator = Evaluator(chosen, saved.ranker, k, no_relevant, threads)  # type: ignore[arg-type]
    counted = evaluator.counted()
    require(
        counted.any(),
        "collection.nothing-relevant",
        f"no query of the {split} split has a relevant document; nothing to judge",
        data,
    )
    ndcg, reciprocal = (values[0][counted] for values in evaluator.per_query([saved.theta]))
    err = evaluator.err(saved.theta)[counted]
    figures = {
        name: {
            "mean": float(v.mean()),
            "interval": float(1.96 * v.std(ddof=1) / np.sqrt(len(v))) if len(v) > 1 else None,
        }
        for name, v in ((f"ndcg@{k}", ndcg), ("maxrr", reciprocal), (f"err@{k}", err))
    }
    result = {
        **figures,
        "queries": int(counted.sum()),
        "all_queries": chosen.n_queries,
        "no_relevant": no_relevant,
        "split": split,
        "data": data,
        "fold": fold,
    }
    if json:
        print(json_.dumps(result))
        return
    rule = "left out" if no_relevant == "skip" else "counted as 0"
    for name, figure in figures.items():
        around = f" ± {figure['interval']:.4f}" if figure["interval"] is not None else ""
        print(f"{name:<9}{figure['mean']:.4f}{around}")
    print(
        f"{result['queries']} of {chosen.n_queries} {split} queries; "
        f"those without relevant documents are {rule}.\n± is a 95 % interval over queries."
    )
