"""Offline nDCG@10 of rankers whose features are normalised within queries, not at all, or by constants learned with ε.

    python benchmarks/fixed_ranges.py                              generated MSLR and MQ2007
    python benchmarks/fixed_ranges.py --data FOLDER --clients 200  a folder of raw features

PDGD with η = 0.1 and perfect clicks; the mean and the range over three seeds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from quorank.data.normalisation import FixedRange, Normalisation, RawFeatures, WithinQuery
from quorank.errors import BadInput
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.runner import Runner

GENERATED = {"synthetic:mslr": 1000, "synthetic:mq2007": 600}
SEEDS = (1, 2, 3)


def figure(
    source: str, queries: int | None, normalisation: Normalisation, clients: int, rounds: int, seed: int
) -> float:
    """Final nDCG@10 of one run."""
    text = f'seed = {seed}\n[data]\nsource = "{source}"\n' + (f"queries = {queries}\n" if queries else "")
    text += f"[federation]\nclients = {clients}\nrounds = {rounds}\nkeep_every = 0\n[evaluation]\nevery = {rounds}\n"
    made = Experiment.read(parse_experiment_file(text, "benchmark"))
    runner = Runner(replace(made, data=replace(made.data, normalize=normalisation)))
    runner.run()
    return float(runner.summary()["offline"]["ndcg@10"])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data", help="a folder; generated collections unless it is given")
    options.add_argument("--clients", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--epsilon", type=float, nargs="*", default=[8.0, 2.0, 1.0, 0.5])
    asked = options.parse_args()
    ways: dict[str, Normalisation] = {"query": WithinQuery(), "none": RawFeatures(), "fixed, exact sum": FixedRange()}
    ways |= {f"fixed, ε = {epsilon:g}": FixedRange(epsilon=epsilon) for epsilon in asked.epsilon}
    for source, queries in GENERATED.items() if asked.data is None else {asked.data: None}.items():
        for name, normalisation in ways.items():
            try:
                found = [figure(source, queries, normalisation, asked.clients, asked.rounds, seed) for seed in SEEDS]
                told = f"{np.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})"
            except BadInput as error:
                told = error.sentence
            print(f"{source:<22} {asked.clients:>5} clients  {name:<18} {told}", flush=True)


if __name__ == "__main__":
    main()
