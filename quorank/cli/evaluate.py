"""quorank evaluate: nDCG, MaxRR and ERR of a ranker on a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from quorank.cli.display import print_figures
from quorank.cli.options import FiguresJson, Fold
from quorank.errors import require

SPLITS = ("train", "validation", "test")


def evaluate(
    ranker: Annotated[Path, Argument(help="ranker.json, or the directory of a run.")],
    data: Annotated[str, Option(help="synthetic:mq2007, synthetic:mslr, a folder, or an imported name.")],
    fold: Fold = 1,
    split: Annotated[str, Option(help="train, validation or test.")] = "test",
    k: Annotated[int, Option(min=1, max=100, help="Documents that count.")] = 10,
    no_relevant: Annotated[str, Option(help="What a query without relevant documents counts: skip or zero.")] = "skip",
    threads: Annotated[int, Option(min=1, help="Threads; the figures are the same.")] = 1,
    json: FiguresJson = False,
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
    sentence = "this collection has no validation split; use --split test"
    require(chosen is not None, "collection.no-split", sentence, data)
    differs = f"ranks by {saved.n_features} features, but {data} has {chosen.n_features}"
    require(chosen.n_features == saved.n_features, "ranker.features-differ", differs, f"{ranker}")
    evaluator = Evaluator(chosen, saved.ranker, k, no_relevant, threads)  # type: ignore[arg-type]
    counted = evaluator.counted()
    sentence = f"no query of the {split} split has a relevant document; nothing to judge"
    require(counted.any(), "collection.nothing-relevant", sentence, data)
    ndcg, reciprocal = (values[0][counted] for values in evaluator.per_query([saved.theta]))
    err = evaluator.err(saved.theta)[counted]
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
    print_figures(result, json, _show)


def _show(result: dict[str, Any]) -> None:
    for name, figure in result.items():
        if isinstance(figure, dict):
            around = f" ± {figure['interval']:.4f}" if figure["interval"] is not None else ""
            print(f"{name:<9}{figure['mean']:.4f}{around}")
    rule = "left out" if result["no_relevant"] == "skip" else "counted as 0"
    print(
        f"{result['queries']} of {result['all_queries']} {result['split']} queries; "
        f"those without relevant documents are {rule}.\n± is a 95 % interval over queries."
    )
