"""Asynchronous rounds against synchronous ones, at the same number of interactions, over nodes of unequal speed.

    python benchmarks/asynchronous.py [--data SOURCE]... [--clients 200] [--rounds 100] [--seeds 10] [--share 0.25] ...

Nodes answer after a random time, the slowest ten times as late as the fastest on average, and 5 % of messages and answers
are lost. For every collection: nDCG@10 of the final ranker of both, the difference for every seed, its mean and standard
error, and beside it the differences between synchronous runs of different seeds. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quorank.data import Collection, DataSource, load
from quorank.engines.driver import Driver, SharedNodes
from quorank.engines.process import Simulator
from quorank.experiments.simulated_clients import Keeper, SimulatedClients
from quorank.federation import Add, Federation
from quorank.federation.asynchronous import Asynchronous
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.kernels.arrays import Doubles
from quorank.learning import Simulation
from quorank.metrics.evaluator import Evaluator
from quorank.protocol.transport import Memory
from quorank.rankers import Linear
from quorank.users import Cascade

SLOWNESS = (1, 1, 2, 2, 3, 4, 6, 10)
NAMES = tuple(f"node-{number}" for number in range(len(SLOWNESS)))


@dataclass
class SimulatedClock:
    """Clock that advances only when its sleep is called."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def simulator_of(collection: Collection, args: argparse.Namespace, seed: int) -> Simulator:
    simulation = Simulation(collection.train, Linear(), Cascade(preset=args.preset), collection.grades, seed=seed)
    federation = Federation(args.clients, args.interactions, server=Add(args.step, args.average))
    return Simulator(federation, simulation, rounds=args.rounds)


def synchronous(simulator: Simulator, rounds: int) -> Doubles:
    state = simulator.initial()
    for _ in range(rounds):
        state, _ = simulator.federation.round(state, simulator.gather(state))
    return simulator.federation.ranker(state)


def answer_delay(seed: int) -> Callable[[str], float]:
    """Return a function that draws how long a node takes to answer, in polls of the network."""
    random = np.random.default_rng(seed)
    return lambda node: SLOWNESS[NAMES.index(node)] * float(random.exponential())


def asynchronous(simulator: Simulator, interactions: int, rules: Asynchronous, seed: int) -> tuple[Doubles, int]:
    """Return the ranker after so many interactions, and in how many rounds."""
    clients, clock = (SimulatedClients(simulator, Keeper(0, Path(), simulator.simulation.parameters)), SimulatedClock())
    transport = Memory(
        lambda node, content: clients.respond(content), NAMES, loss=0.05, delay=answer_delay(seed), seed=seed
    )
    driver = Driver(transport, SharedNodes(NAMES), clock=clock, sleep=clock.sleep, patience=20.0)
    coordinator = Coordinator(
        simulator.federation,
        simulator.mechanism,
        simulator.initial(),
        10**9,
        seed=seed,
        rules=RoundLimits(asynchronous=rules),
        clock=clock,
    )
    done = 0
    while done < interactions:
        done += driver.round(coordinator).interactions
    return coordinator.ranker, coordinator.state.round


def measure(source: DataSource, args: argparse.Namespace) -> str:
    collection = load(source).resident()
    evaluator = Evaluator(collection.test, Linear(), 10, "skip", 1)
    rules = Asynchronous(max(1, round(args.share * args.clients)), args.power, args.most)
    found = []
    for seed in range(1, args.seeds + 1):
        simulator = simulator_of(collection, args, seed)
        own = synchronous(simulator, args.rounds)
        total = args.clients * args.interactions * args.rounds
        other, _ = asynchronous(simulator, total, rules, seed)
        found.append(evaluator.means([own, other])[0])
    both = np.array(found)
    apart = both[:, 1] - both[:, 0]
    error = apart.std(ddof=1) / np.sqrt(len(apart))
    seeds = [abs(a - b) for a, b in itertools.combinations(both[:, 0], 2)]
    return (
        f"| {source.source.rstrip('/').rpartition('/')[2]} | {both[:, 0].mean():.4f} | {both[:, 1].mean():.4f} "
        f"| {apart.mean():+.4f} ± {error:.4f} | {apart.min():+.4f} to {apart.max():+.4f} "
        f"| {np.mean(np.abs(apart) < 0.005):.0%} | {np.mean(seeds):.4f}, {np.max(seeds):.4f} "
        f"| {np.mean(np.array(seeds) < 0.005):.0%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=None, help="a [data] source; repeatable")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--interactions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=100, help="of the synchronous run")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--preset", default="informational", help="how people click")
    parser.add_argument("--step", type=float, default=1.0, help="of the server")
    parser.add_argument("--average", type=float, default=None, help="γ of the mean of rankers")
    parser.add_argument("--share", type=float, default=0.25, help="of a cohort's replies that ends a round")
    parser.add_argument("--power", type=float, default=Asynchronous.power)
    parser.add_argument("--most", type=int, default=Asynchronous.most)
    args = parser.parse_args()
    print(
        "| collection | synchronous | asynchronous | difference | of single seeds | within 0.005 "
        "| two synchronous seeds: mean, largest difference | within 0.005 |\n|---|---|---|---|---|---|---|---|"
    )
    for name in args.data or ["synthetic:mq2007"]:
        print(measure(DataSource(name), args), flush=True)


if __name__ == "__main__":
    main()
