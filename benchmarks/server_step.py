"""Server optimisers: longer steps, momentum and Adam against plain federated averaging.

    python benchmarks/server_step.py [--data SOURCE]... [--folds 5] [--seeds 2] [--clients 1000] [--rounds 300]

For every collection and click model: offline nDCG@10 of the final ranker and mean online nDCG@10, as differences from
plain FPDGD (server = add, step 1) with the same seeds. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from quorank.data import DataSource
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.runner import Runner
from quorank.federation import Adam, Add, Federation, Momentum, Server
from quorank.users import Cascade

SERVERS: list[Server] = [
    Add(1.0), Add(5.0), Add(10.0), Add(20.0), Add(30.0), Add(50.0), Add(100.0), Momentum(1.0, 0.9), Momentum(2.0, 0.9),
    Momentum(3.0, 0.9), Adam(0.01), Adam(0.03), Adam(0.1),
]  # fmt: skip
PRESETS = ("perfect", "navigational", "informational")


def figures(
    source: DataSource, preset: str, server: Server, args: argparse.Namespace, seed: int
) -> tuple[float, float]:
    federation = Federation(args.clients, args.interactions, server=server)
    plan = EvaluationPlan(every=args.rounds)
    runner = Runner(
        Experiment(source, users=Cascade(preset), federation=federation, rounds=args.rounds, evaluation=plan, seed=seed)
    )
    progress = runner.run()
    return progress.last("offline_ndcg@10"), progress.online_mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=None, help="a [data] source; repeatable")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--interactions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    print(
        f"{args.clients} clients × B = {args.interactions} × {args.rounds} rounds; "
        "change of online / offline nDCG@10 in % of plain FPDGD's\n"
    )
    print("| collection | clicks | FPDGD online / offline | " + " | ".join(str(s) for s in SERVERS[1:]) + " |")
    print("|---" * (2 + len(SERVERS)) + "|")
    for name in args.data or ["synthetic:mq2007"]:
        generated = name.startswith("synthetic:")
        # generated data have one fold: other data seeds stand in for folds
        sources = [
            DataSource(name, seed=f) if generated else DataSource(name, fold=f) for f in range(1, args.folds + 1)
        ]
        for preset in PRESETS:
            table = np.array(
                [
                    [
                        figures(source, preset, server, args, seed)
                        for source in sources
                        for seed in range(1, args.seeds + 1)
                    ]
                    for server in SERVERS
                ]
            ).mean(axis=1)
            change = (table / table[0] - 1.0) * 100.0
            cells = [f"{online:+.1f} / {offline:+.1f}" for offline, online in change[1:]]
            print(
                f"| {name} | {preset} | {table[0][1]:.3f} / {table[0][0]:.3f} | " + " | ".join(cells) + " |", flush=True
            )
            print(f"{name} {preset} done", file=sys.stderr)


if __name__ == "__main__":
    main()
