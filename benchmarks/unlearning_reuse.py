"""Rebuilding from the updates that the remaining clients had sent, against retraining; honest and hostile leavers.

    python benchmarks/unlearning_reuse.py [--data SOURCE] [--queries 1000] [--users PRESET] [--rounds 10000] [--seeds 3]

The rebuilding of `quorank unlearn` has a tenth of retraining's clicks. The updates that the others had sent before cost
none. Here their sum over all rounds is the start of the rebuilding, or stands for a half of every step; both are held
against new clicks alone, the default of `quorank unlearn`. The hostile leaver sends −2·θ (thesis, eq. 6.3). Prints a
Markdown table: offline nDCG@10 against retraining in %, mean and each run.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from quorank.data import DataSource
from quorank.engines.process import Simulator
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.runner import Runner
from quorank.federation import Federation, State
from quorank.federation.leavers.unlearning import averaged, fresh_seed, retrain
from quorank.kernels.arrays import Doubles, Integers
from quorank.users import Cascade

CLIENTS, INTERVAL, AVERAGE = 10, 10, 3.0
LEAVER = CLIENTS - 1
HALF = 0.5
"""Which part of a step is what the others had sent, where that is used."""


def history(runner: Runner, rounds: int, hostile: bool) -> tuple[Doubles, Doubles]:
    """The ranker with the leaver, and by interval the sum of the others' mean updates."""
    federation, simulator = runner.experiment.federation, runner.simulator
    state, rest = simulator.initial(), np.zeros((rounds // INTERVAL, runner.parameters))

    def sent(clients: Integers, updates: Doubles) -> None:
        if hostile:
            updates[LEAVER] = -2.0 * state.theta
        rest[state.round // INTERVAL] += updates[:LEAVER].mean(axis=0)

    while state.round < rounds:
        state, _ = federation.round(state, simulator.gather(state, sent=sent))
    return state.theta, rest


def rebuilt(runner: Runner, start: Doubles, step: float, old: Doubles | None, rounds: int) -> Doubles:
    """A tenth of the rounds without the leaver, from `start`; each step `step` times as far as the mean update."""
    federation, workload = runner.experiment.federation, runner.workload
    seed = fresh_seed(runner.experiment.seed, "reuse", (LEAVER,))
    simulator = Simulator(federation, replace(workload.simulation, seed=seed), 2, rounds=rounds, absent=(LEAVER,))
    state = federation.start(start)
    mean = state.theta
    for count in range(1, rounds // INTERVAL + 1):
        gathered = simulator.gather(state)
        move = gathered.total / gathered.weight
        if old is not None:
            move = (1.0 - HALF) * move + HALF * old[count - 1] / INTERVAL
        state = State(state.round + 1, state.theta + step * move, state.memory)
        mean = averaged(mean, state.theta, count, AVERAGE)
    simulator.close()
    return mean


def figures(runner: Runner, rounds: int, hostile: bool) -> dict[str, float]:
    """Offline nDCG@10 of each ranker, in % of the retrained one's."""
    without = Simulator(runner.experiment.federation, runner.workload.simulation, 2, rounds=rounds, absent=(LEAVER,))
    start = runner.simulator.initial().theta
    retrained = retrain(without, start, rounds).theta
    before, rest = history(runner, rounds, hostile)
    whole = start + rest.sum(axis=0)
    rankers = {
        "before": before,
        "new clicks alone": rebuilt(runner, start, float(INTERVAL), None, rounds),
        "what the others had sent, alone": whole,
        "… then new clicks, steps × 10": rebuilt(runner, whole, float(INTERVAL), None, rounds),
        "… then new clicks, steps × 1": rebuilt(runner, whole, 1.0, None, rounds),
        "half of each step from what they had sent": rebuilt(runner, start, float(INTERVAL), rest, rounds),
    }
    ndcg, _ = runner.workload.means([State(0, theta, {}) for theta in (retrained, *rankers.values())])
    return {name: 100.0 * float(found / ndcg[0] - 1.0) for name, found in zip(rankers, ndcg[1:], strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic:mslr")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--users", default="informational", choices=("perfect", "navigational", "informational"))
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    queries = args.queries if args.data.startswith("synthetic:mslr") else None
    plan = EvaluationPlan(every=args.rounds)
    table: dict[str, dict[str, list[float]]] = {}
    for hostile in (False, True):
        for seed in range(1, args.seeds + 1):
            experiment = Experiment(
                DataSource(args.data, queries=queries),
                users=Cascade(args.users),
                federation=Federation(CLIENTS, 5),
                rounds=args.rounds,
                evaluation=plan,
                seed=seed,
            )
            for name, found in figures(Runner(experiment), args.rounds, hostile).items():
                table.setdefault(name, {}).setdefault("hostile" if hostile else "honest", []).append(found)
    print(f"{args.data}, {args.users} clicks, {CLIENTS} clients, B = 5, {args.rounds:,} rounds\n")
    print("| ranker | honest leaver | hostile leaver |\n|---|---:|---:|")
    for name, columns in table.items():
        cells = [f"{np.mean(v):+.1f} ({', '.join(f'{x:+.1f}' for x in v)})" for v in columns.values()]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
