"""Rounds that take whoever comes against sampled cohorts, at the same mean number of replies a round.

    python benchmarks/arrivals.py [--seeds 10] [--rounds 300] [--clients 1000] [--epsilon 8]

Each row is a fleet on generated MQ2007 lists: by how many replies its rounds end, how often clients come, by day and night,
and how often one may take part. Offline nDCG@10 after the last round, of the fleet and of cohorts sampled by lot of the
fleet's mean size, and the mean paired difference over the seeds with its standard error. Prints a Markdown table.

    python benchmarks/arrivals.py --intake 100000

What so many replies to one round cost a coordinator, in batches of 2,000: time of a core for each, and memory for all.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

import numpy as np

from quorank.data import DataSource
from quorank.data.partition import Even, Partition, Preferences
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.runner import Runner
from quorank.federation import Add, Arrivals, Federation, Participation, Sampled
from quorank.federation.coordinator import Coordinator
from quorank.federation.reply import Reply, encode_reply
from quorank.privacy import ClippedGaussian
from quorank.users import Cascade

FLEETS = {
    "always enough come": Arrivals(enough=100, least=10, rate=2.0),
    "at night too few": Arrivals(enough=100, least=10, rate=0.12),
    "the same, in one time zone": Arrivals(enough=100, least=10, rate=0.12, zones=0.0, amplitude=0.95),
    "the same, with limits": Arrivals(enough=100, least=10, rate=0.12, zones=0.0, amplitude=0.95, most=40, rest=4),
}
PARTITIONS: dict[str, Partition] = {"alike": Even(), "of different preferences": Preferences()}


def run_once(participation: Participation, partition: Partition, seed: int, args: argparse.Namespace) -> Runner:
    """One run; with ε the noise is accounted for the participation, and the server's step is the recommended one."""
    federation = Federation(args.clients, 4, participation=participation)
    if args.epsilon is not None:
        privacy = ClippedGaussian(args.epsilon, accountant="rdp")
        step = privacy.recommended_step(federation.setting(args.rounds, 46))
        federation = Federation(args.clients, 4, participation=participation, privacy=privacy, server=Add(step, 3.0))
    experiment = Experiment(
        DataSource("synthetic:mq2007", seed=seed),
        users=Cascade(preset=args.preset),
        federation=federation,
        rounds=args.rounds,
        evaluation=EvaluationPlan(every=args.rounds),
        seed=seed,
        partition=partition,
    )
    runner = Runner(experiment, 1)
    runner.run()
    return runner


def intake(many: int) -> str:
    """Hand so many replies of 46 numbers to one round."""
    part = Arrivals(enough=many, most=20, rest=3)
    federation = Federation(many, 4, participation=part, privacy=ClippedGaussian(noise_multiplier=1.0))
    mechanism = federation.privacy.mechanism(federation.setting(300, 46), 1)
    start = replace(federation.start(np.zeros(46)), private=mechanism.start())
    coordinator = Coordinator(federation, mechanism, start, 300, enrolled=range(many))
    task, spent, before = coordinator.plan(), 0.0, 0
    for first in range(0, many, 2000):
        replies = [Reply(task.run, 0, c, np.ones(46), 4, True, (0.0, 0.0, 0.0)) for c in range(first, first + 2000)]
        batch = [encode_reply(reply) for reply in replies[: many - first]]
        began = time.process_time()
        assert all(coordinator.receive(reply).accepted for reply in batch)
        spent += time.process_time() - began
        before = before or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    coordinator.advance()
    ended, held = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    end = f"{ended * 1e3:.0f} ms to end the round, {held / 1024:.1f} MB more after the first batch"
    return f"{spent / many * 1e3:.3f} ms a reply, {end}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--preset", default="navigational", help="how people click")
    parser.add_argument("--epsilon", type=float, default=None, help="of the whole run at δ = 1e-5; without, no privacy")
    parser.add_argument("--intake", type=int, default=None, help="replies to one round")
    args = parser.parse_args()
    if args.intake is not None:
        intake(1000)  # compiles
        print(intake(args.intake))
        return
    print(
        "| clients | fleet | replies a round: mean, least | arrivals | sampled | difference |\n|---|---|---|---|---|---|"
    )
    for (what, partition), (name, fleet) in ((p, f) for p in PARTITIONS.items() for f in FLEETS.items()):
        found, sizes, noise = [], [], []
        for seed in range(1, args.seeds + 1):
            came = run_once(fleet, partition, seed, args)
            assert came.progress is not None
            there = came.progress.values["participants"]
            drawn = run_once(Sampled(round(float(there.mean()))), partition, seed, args)
            found.append([run.summary()["offline"]["ndcg@10"] for run in (came, drawn)])
            sizes.append((there.mean(), there.min()))
            noise.append([getattr(run.simulator.mechanism, "noise_multiplier", 0.0) for run in (came, drawn)])
        both, (mean, least) = np.array(found), np.mean(sizes, axis=0)
        apart = 100.0 * (both[:, 0] / both[:, 1] - 1.0)
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        z = "" if args.epsilon is None else " (z = {:.3g} and {:.3g})".format(*np.mean(noise, axis=0))
        figures = f"{both[:, 0].mean():.4f} | {both[:, 1].mean():.4f} | {apart.mean():+.2f} ± {error:.2f} %{z}"
        print(f"| {what} | {name} | {mean:.0f}, {least:.0f} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
