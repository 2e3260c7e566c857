"""Rankers with a hidden layer beside the linear one: what people see, what is learned, and the ceiling of each on labels.

    python benchmarks/neural.py SOURCE... [--rankers NAME,...] [--steps recommended,fpdgd] [--presets perfect,informational]
        [--seeds N] [--clients N] [--rounds N] [--eta X] [--learner JSON]

SOURCE is what `[data] source` takes, or several with commas between, as for folds. NAME is "linear", or an activation and a
number of hidden units ("relu16", "sigmoid64"); "then-relu16" spends the first half of the rounds on the linear ranker and
starts the network, in which two units pass on what was learned, from the ranker that was handed out. Prints in Markdown,
over folds and seeds ± the standard error: mean online nDCG@10 of the lists shown, and offline nDCG@10 of the ranker handed
out at the end, on the test split.

    python benchmarks/neural.py --ceiling SOURCE...

prints instead the offline nDCG@10 of rankers fitted on the labels of the training split: ridge regression, networks
(scikit-learn's MLPRegressor, early stopping on a tenth of the documents) and LightGBM's lambdarank.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from typing import Any

import numpy as np

from quorank.data import DataSource, RankingData, load
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.runner import Runner
from quorank.metrics.lists import ndcg

Doubles = np.ndarray[Any, np.dtype[np.float64]]
SERVERS = {"recommended": {"kind": "add", "step": 30.0, "average": -0.5}, "fpdgd": {"kind": "add", "step": 1.0}}


def ranker_of(name: str) -> dict[str, Any]:
    """The table `[ranker]` of a name."""
    if name == "linear":
        return {"kind": "linear"}
    activation = name.rstrip("0123456789")
    return {"kind": "mlp", "activation": activation, "hidden": int(name[len(activation) :])}


def server_of(name: str) -> dict[str, Any]:
    """The table `[federation] server` of a name, or of "KIND:STEP"."""
    kind, _, step = name.partition(":")
    return SERVERS[name] if not step else {"kind": kind, "step": float(step)}


def played(
    args: argparse.Namespace, source: str, preset: str, seed: int, part: dict[str, Any]
) -> tuple[Runner, Doubles]:
    """One run, and the online nDCG@10 of its rounds."""
    tables = {
        "seed": seed,
        "data": {"source": source},
        "ranker": part["ranker"],
        "users": {"preset": preset},
        "learner": {"kind": "pdgd", "eta": args.eta, **json.loads(args.learner)},
        "federation": {"clients": args.clients, "rounds": part["rounds"], "server": part["server"], "keep_every": 0},
        "evaluation": {"every": part["rounds"]},
    }
    runner = Runner(Experiment.read(ExperimentFile(tables, "benchmark")), threads=1)
    return runner, runner.run().values["online_ndcg@10"]


def figures_of(args: argparse.Namespace, source: str, preset: str, seed: int, ranker: str, step: str) -> list[float]:
    """Online and offline nDCG@10 of one run, or of two in a row."""
    server, shown = server_of(step), []
    table, rounds = ranker_of(ranker.removeprefix("then-")), args.rounds
    if ranker.startswith("then-"):
        first = {"ranker": ranker_of("linear"), "server": server, "rounds": args.rounds // 2}
        runner, online = played(args, source, preset, seed, first)
        shown, rounds = [online], args.rounds - args.rounds // 2
        table |= {"start": runner.ranker.tolist()}
    runner, online = played(args, source, preset, seed, {"ranker": table, "server": server, "rounds": rounds})
    offline = runner.progress.last("offline_ndcg@10")  # type: ignore[union-attr]
    return [float(np.concatenate([*shown, online]).mean()), float(offline)]


def offline_ndcg(data: RankingData, scores: Doubles) -> float:
    """Mean nDCG@10 over the queries with a relevant document."""
    found = []
    for query in range(data.n_queries):
        labels = data.labels[data.rows_of(query)]
        if labels.max() > 0:
            found.append(ndcg(labels[np.argsort(-scores[data.rows_of(query)], kind="stable")], labels))
    return float(np.mean(found))


def ceilings(source: str, seeds: int) -> None:
    """Print what is reached with the labels of the training split."""
    from lightgbm import LGBMRanker
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPRegressor

    fitted: dict[str, list[float]] = {}
    for fold, seed in product(source.split(","), range(1, seeds + 1)):
        collection = load(DataSource(fold))
        train, test = collection.train, collection.test
        of = train.query_of_rows()
        centred = train.labels - (np.bincount(of, train.labels) / np.bincount(of))[of]
        models: dict[str, Any] = {"ridge": Ridge(1.0)} if seed == 1 else {}
        for units in (16, 64):
            models[f"relu{units}"] = MLPRegressor(
                hidden_layer_sizes=(units,), early_stopping=True, random_state=seed, max_iter=60
            )
        for name, model in models.items():
            model.fit(train.features, centred)
            fitted.setdefault(name, []).append(offline_ndcg(test, model.predict(test.features)))
        trees = LGBMRanker(n_estimators=200, learning_rate=0.05, random_state=seed, n_jobs=1, verbose=-1)
        trees.fit(train.features, train.labels, group=np.diff(train.offsets))
        fitted.setdefault("lambdarank", []).append(offline_ndcg(test, trees.predict(test.features)))
    for name, found in fitted.items():
        print(f"| {name_of(source)} | {name} | {said(found)} |", flush=True)


def name_of(source: str) -> str:
    """What a row calls its data: the file, or the folder of several folds."""
    folds = source.split(",")
    return f"{folds[0].split('/')[-2]}, {len(folds)} folds" if len(folds) > 1 else source.rsplit("/", 1)[-1]


def said(found: list[float]) -> str:
    """The mean with its standard error."""
    error = f" ± {np.std(found, ddof=1) / np.sqrt(len(found)):.4f}" if len(found) > 1 else ""
    return f"{np.mean(found):.4f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--rankers", default="linear,relu16,relu64,sigmoid16,sigmoid64,then-relu16,then-relu64")
    parser.add_argument("--steps", default="recommended,fpdgd")
    parser.add_argument("--presets", default="perfect,informational")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--eta", type=float, default=0.1)
    parser.add_argument("--learner", default="{}")
    parser.add_argument("--ceiling", action="store_true")
    args = parser.parse_args()
    if args.ceiling:
        print("| data | fitted on labels | offline |\n|---|---|---|")
        for source in args.sources:
            ceilings(source, args.seeds)
        return
    print("| data, users | step | ranker | online | offline |\n|---|---|---|---|---|")
    for source in args.sources:
        for preset in args.presets.split(","):
            for step in args.steps.split(","):
                for ranker in args.rankers.split(","):
                    runs = [
                        figures_of(args, fold, preset, seed, ranker, step)
                        for fold in source.split(",")
                        for seed in range(1, args.seeds + 1)
                    ]
                    figures = " | ".join(said([run[i] for run in runs]) for i in range(2))
                    print(f"| {name_of(source)}, {preset} | {step} | {ranker} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
