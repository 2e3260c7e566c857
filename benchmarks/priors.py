"""Runs that start from a shipped ranking at different scales: what people see first, on the way, and in the end.

    python benchmarks/priors.py SOURCE:FEATURE... [--scales 0,5,10,20,40,80] [--presets perfect,informational] [--seeds N]
        [--clients N] [--rounds N] [--step X]

SOURCE is what `[data] source` takes, FEATURE the number or the name of the feature that is shipped as the ranking (of
weight 1). Scale 0 is a run without a start. Prints in Markdown, over seeds: the nDCG@10 of the shipped ranking on the lists
that clients search, of the lists shown in the first round, in the worst tenth of the run and in all of it, and of the
ranker on the test split before the first round and after the last; and which scale `start_scale = "rule"` chooses. Where a
list is drawn and nothing is relevant, it counts 0 in all of these but the last two, as in `summary.json`.

    python benchmarks/priors.py --first SOURCE:FEATURE[+FEATURE]... [--draws N]

prints instead what the lists of a first round are worth at different spreads (highest minus lowest score of the middle
list): of the features with equal weights, and of "ridge", a ridge regression on the labels of the training split, as
somebody may have trained one; on training queries with a relevant document.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from quorank.data import DataSource, RankingData, load
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.runner import Runner
from quorank.metrics.evaluator import Evaluator
from quorank.metrics.lists import ndcg

Doubles = np.ndarray[Any, np.dtype[np.float64]]
Figures = dict[str, float]


def figures_of(args: argparse.Namespace, source: str, feature: str, scale: Any, preset: str, seed: int) -> Figures:
    """One run."""
    start = {"start": {feature: 1.0}, "start_scale": scale}
    tables = {
        "seed": seed,
        "data": {"source": source},
        "ranker": {"kind": "linear", **(start if scale else {})},
        "users": {"preset": preset},
        "federation": {
            "clients": args.clients, "rounds": args.rounds, "server": {"kind": "add", "step": args.step}, "keep_every": 0,
        },
        "evaluation": {"every": args.rounds},
    }  # fmt: skip
    runner = Runner(Experiment.read(ExperimentFile(tables, "benchmark")), threads=1)
    ranker, train = runner.experiment.ranker, runner.simulator.simulation.data
    start_ = runner.simulator.initial().theta
    shipped = Evaluator(train, ranker, no_relevant="zero").all_means([start_])[0][0]
    before = runner.evaluator.all_means([start_])[0][0]
    online = runner.run().values["online_ndcg@10"]
    tenths = [float(part.mean()) for part in np.array_split(online, 10)]
    found = {"shipped": shipped, "first": online[0], "first tenth": tenths[0], "worst tenth": min(tenths)}
    found |= {"all": online.mean(), "before": before, "after": runner.progress.last("offline_ndcg@10")}  # type: ignore[union-attr]
    return found | {"scale": float(getattr(ranker, "start_scale", 0) or 0)}


def ridge(data: RankingData, weight: float = 10.0) -> Doubles:
    """Weights of a ridge regression of labels on features, both without their means in each query."""
    of, counts = data.query_of_rows(), np.diff(data.offsets)[:, None]
    both = np.column_stack([data.features, data.labels]).astype(np.float64)
    both -= (np.add.reduceat(both, data.offsets[:-1], axis=0) / counts)[of]
    features, labels = both[:, :-1], both[:, -1]
    return np.linalg.solve(features.T @ features + weight * np.eye(features.shape[1]), features.T @ labels)


def first_lists(given: str, draws: int) -> None:
    """Print a row for each prior on one source: nDCG@10 of its ranking, of chance, and of lists drawn at each spread."""
    source, _, features = given.rpartition(":")
    data, random = load(DataSource(source)).train, np.random.default_rng(1)
    numbers = [int(number) - 1 for number in features.split("+")]
    single = np.zeros(data.n_features)
    single[numbers] = 1.0
    for name, weights in ((f"feature {features}", single), ("ridge", ridge(data))):
        scored = data.features.astype(np.float64) @ weights
        lists = [(scored[data.rows_of(q)], data.labels[data.rows_of(q)]) for q in range(data.n_queries)]
        lists = [(scores, labels) for scores, labels in lists if labels.max() > 0]
        spread = float(np.median([np.ptp(scores) for scores, _ in lists if np.ptp(scores) > 0.0]))

        def worth(scale: float, chance: float = 1.0) -> float:
            found = []
            for scores, labels in lists:  # noqa: B023  called below, within this turn
                for _ in range(draws):
                    keys = scale / spread * scores + chance * random.gumbel(size=len(scores))  # noqa: B023
                    found.append(ndcg(labels[np.argsort(-keys, kind="stable")], labels))
            return float(np.mean(found))

        figures = [worth(1.0, 0.0), worth(0.0), *(worth(scale) for scale in (5.0, 10.0, 20.0, 40.0, 80.0))]
        print(
            f"| {source.rsplit('/', 1)[-1]}, {name} | {' | '.join(f'{figure:.3f}' for figure in figures)} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("sources", nargs="+", metavar="SOURCE:FEATURE")
    parser.add_argument("--scales", default="0,5,10,20,40,80,rule")
    parser.add_argument("--presets", default="perfect,informational")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--step", type=float, default=1.0)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--draws", type=int, default=5)
    args = parser.parse_args()
    if args.first:
        print("| data, prior | its own ranking | chance | 5 | 10 | 20 | 40 | 80 |\n|---|---|---|---|---|---|---|---|")
        for given in args.sources:
            first_lists(given, args.draws)
        return
    heads = ["first", "first tenth", "worst tenth", "all", "after"]
    print(f"| data, users | scale | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
    for given in args.sources:
        source, _, feature = given.rpartition(":")
        for preset in args.presets.split(","):
            for scale in args.scales.split(","):
                value = scale if scale == "rule" else float(scale)
                runs = [figures_of(args, source, feature, value, preset, seed) for seed in range(1, args.seeds + 1)]
                mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
                said = f"rule ({mean['scale']:g})" if scale == "rule" else scale if value else "no start"
                where = f"{source.rsplit('/', 1)[-1]} feature {feature}, {preset}"
                shipped = "" if not value else f"; shipped {mean['shipped']:.3f}, test {mean['before']:.3f}"
                print(
                    f"| {where}{shipped} | {said} | {' | '.join(f'{mean[name]:.3f}' for name in heads)} |", flush=True
                )


if __name__ == "__main__":
    main()
