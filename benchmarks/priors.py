"""Runs that start from a shipped ranking at different scales: what people see first, on the way, and in the end.

    python benchmarks/priors.py SOURCE:FEATURE... [--scales 0,5,10,20,40,80] [--presets perfect,informational] [--seeds N]
        [--clients N] [--rounds N] [--step X]

SOURCE is what `[data] source` takes, FEATURE the number or the name of the feature that is shipped as the ranking (weight 1).
Scale 0 is a run without a start, as before. Prints in Markdown, over seeds: the nDCG@10 of the shipped ranking on the lists
that clients search, of the lists shown in the first round, in the worst tenth of the run and in all of it, and of the ranker
on the test split before the first round and after the last; and which scale `start_scale = "rule"` chooses. Where a list is
drawn and nothing is relevant, it counts 0 in all of these but the last two, as in `summary.json`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.runner import Runner
from quorank.metrics.evaluator import Evaluator

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
    shipped = Evaluator(train, ranker, no_relevant="zero").means([start_])[0][0]
    before = runner.evaluator.means([start_])[0][0]
    online = runner.run().values["online_ndcg@10"]
    tenths = [float(part.mean()) for part in np.array_split(online, 10)]
    found = {"shipped": shipped, "first": online[0], "first tenth": tenths[0], "worst tenth": min(tenths)}
    found |= {"all": online.mean(), "before": before, "after": runner.progress.last("offline_ndcg@10")}  # type: ignore[union-attr]
    return found | {"scale": float(getattr(ranker, "start_scale", 0) or 0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("sources", nargs="+", metavar="SOURCE:FEATURE")
    parser.add_argument("--scales", default="0,5,10,20,40,80,rule")
    parser.add_argument("--presets", default="perfect,informational")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--step", type=float, default=1.0)
    args = parser.parse_args()
    heads = ["first", "first tenth", "worst tenth", "all", "after"]
    print(f"| data, users | scale | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
    for given in args.sources:
        source, _, feature = given.rpartition(":")
        for preset in args.presets.split(","):
            for scale in args.scales.split(","):
                value = scale if scale == "rule" else float(scale)
                runs = [
                    figures_of(args, source, feature, value, preset, seed) for seed in range(1, args.seeds + 1)
                ]
                mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
                said = f"rule ({mean['scale']:g})" if scale == "rule" else scale if value else "no start"
                where = f"{source.rsplit('/', 1)[-1]} feature {feature}, {preset}"
                shipped = "" if not value else f"; shipped {mean['shipped']:.3f}, test {mean['before']:.3f}"
                print(f"| {where}{shipped} | {said} | {' | '.join(f'{mean[name]:.3f}' for name in heads)} |", flush=True)


if __name__ == "__main__":
    main()
