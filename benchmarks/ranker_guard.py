"""Poisoned rankers handed to devices that hold each new ranker against their own clicks (`learning.click_guard`).

    python benchmarks/ranker_guard.py [--data SOURCE] [--preset NAME] [--devices N] [--seeds N]

An honest federation learns; after some rounds devices that have searched 10, 50 or 200 times, with lists of the ranker
before, are handed the next ranker: an honest one of 1, 10 or 50 rounds later, or a poisoned one. Poisoned are: the ranker
turned round (−θ), the ranker plus `s` times its length in a random direction, and plus `s` times its length on one feature,
which lifts the documents that have it (targeted). Prints how often each is refused, and the nDCG@10 that the devices' users
see with the guard and without, in Markdown. A second table hands out a ranker that is turned away slowly, a little in
each round, which is what the guard is weakest against.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from quorank.data import RankingData
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.runner import Runner
from quorank.learning import OnlineRanker, Shown
from quorank.learning.online import ClickGuard, list_evidence
from quorank.users import Cascade
from quorank.users.click_model import ClickTables

Doubles = np.ndarray[Any, np.dtype[np.float64]]
SEARCHES = (10, 50, 200)
AT = (30, 200)  # rounds after which rankers are handed out: early and late in learning
LATER = (1, 10, 50)
STRENGTHS = (0.2, 0.5, 1.0, 2.0)
DRIFTS = (0.01, 0.03, 0.1)


def learned(args: argparse.Namespace, seed: int) -> tuple[Runner, dict[int, Doubles]]:
    """An honest federation and its rankers by round."""
    rounds = max(AT) + max(LATER)
    tables = {
        "seed": seed,
        "data": {"source": args.data},
        "users": {"kind": "cascade", "preset": args.preset},
        "federation": {"clients": 100, "interactions": 5, "rounds": rounds},
        "evaluation": {"every": rounds},
    }
    runner = Runner(Experiment.read(ExperimentFile(tables, "guard")), threads=1)
    kept: dict[int, Doubles] = {}
    state = runner.simulator.initial()
    for _ in range(rounds):
        state, _ = runner.experiment.federation.round(state, runner.simulator.gather(state))
        kept[state.round] = state.theta
    return runner, kept


def clicks_on(labels: Doubles, tables: ClickTables, random: np.random.Generator) -> Doubles:
    """A user's clicks down a list."""
    clicked = np.zeros(len(labels), dtype=np.bool_)
    for rank, label in enumerate(labels):
        if random.random() < tables.examine[rank] * tables.click[label]:
            clicked[rank] = True
            if random.random() < tables.stop[label]:
                break
    return clicked


def searched(
    data: RankingData, runner: Runner, theta: Doubles, tables: ClickTables, count: int, random: np.random.Generator
) -> list[tuple[Shown, Any]]:
    """So many lists that a device showed with θ, and their clicks."""
    ranker = runner.simulator.simulation.ranker
    online = OnlineRanker(theta, data.n_features, ranker, seed=int(random.integers(2**31)))
    found = []
    for query in random.integers(data.n_queries, size=count):
        rows = data.rows_of(int(query))
        shown = online.rank(data.features[rows])
        found.append((shown, clicks_on(data.labels[rows][shown.order], tables, random)))
    return found


def handed_out(kept: dict[int, Doubles], at: int, random: np.random.Generator) -> dict[str, Doubles]:
    """The rankers that a device is handed after the one of round `at`."""
    theta = kept[at]
    length = float(np.linalg.norm(theta))
    found = {f"honest, {later} rounds later": kept[at + later] for later in LATER}
    found["turned round"] = -theta
    away = random.normal(size=len(theta))
    feature = np.zeros(len(theta))
    feature[random.integers(len(theta))] = random.choice((-1.0, 1.0))
    for strength in STRENGTHS:
        found[f"random, s = {strength:g}"] = theta + strength * length * away / np.linalg.norm(away)
    for strength in STRENGTHS:
        found[f"targeted, s = {strength:g}"] = theta + strength * length * feature
    return found


def ndcg(runner: Runner, thetas: list[Doubles]) -> Doubles:
    """Offline nDCG@10 of rankers on the test split."""
    values, _ = runner.evaluator.per_query(thetas)
    return np.asarray(values[:, runner.evaluator.counted()].mean(axis=1))


def study(args: argparse.Namespace) -> None:
    """A row for each kind of ranker handed out."""
    guard, random = ClickGuard(), np.random.default_rng(1)
    for at in AT:
        refused: dict[str, list[list[bool]]] = {}
        seen: dict[str, list[tuple[float, float]]] = {}
        for seed in range(1, args.seeds + 1):
            runner, kept = learned(args, seed)
            data = runner.collection.train
            tables = Cascade(preset=args.preset).tables(runner.collection.grades, 10)
            ranker, old = runner.simulator.simulation.ranker, kept[at]
            (own,) = ndcg(runner, [old])
            for _ in range(args.devices):
                lists = searched(data, runner, old, tables, max(SEARCHES), random)
                new = handed_out(kept, at, random)
                quality = ndcg(runner, list(new.values()))
                for (name, theta), value in zip(new.items(), quality, strict=True):
                    evidence = [list_evidence(ranker, theta, *one) for one in lists]
                    verdicts = [not guard.decide(evidence[:count]).accepted for count in SEARCHES]
                    refused.setdefault(name, []).append(verdicts)
                    seen.setdefault(name, []).append((float(value), float(own)))
        head = "nDCG@10 handed out | refused, 10 searches | 50 | 200 | seen with guard, 10 | 50 | 200"
        print(f"\n| after {at} rounds | {head} |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for name, verdicts in refused.items():
            said, values = np.array(verdicts), np.array(seen[name])
            with_guard = np.where(said, values[:, 1:], values[:, :1]).mean(axis=0)
            share = " | ".join(f"{100.0 * x:.1f} %" for x in said.mean(axis=0))
            print(f"| {name} | {values[:, 0].mean():.3f} | {share} | {' | '.join(f'{x:.3f}' for x in with_guard)} |")
        print(f"\nThe ranker before has {np.mean([v[0][1] for v in seen.values()]):.3f}.", flush=True)


def slowly(args: argparse.Namespace) -> None:
    """A ranker that is turned towards a random direction a little in each of 50 rounds; devices search 5 times a round."""
    guard, random = ClickGuard(), np.random.default_rng(2)
    print("\n| turned per round, 50 rounds | nDCG@10 handed out at the end | seen with guard at the end | refused |")
    print("|---|---:|---:|---:|")
    runner, kept = learned(args, 1)
    data, ranker = runner.collection.train, runner.simulator.simulation.ranker
    tables = Cascade(preset=args.preset).tables(runner.collection.grades, 10)
    for drift in DRIFTS:
        ends, refusals = [], []
        for _ in range(max(args.devices // 4, 4)):
            away = random.normal(size=data.n_features)
            away /= np.linalg.norm(away)
            start = kept[max(AT)]
            length, accepted = float(np.linalg.norm(start)), start
            lists = searched(data, runner, start, tables, 200, random)
            for round_ in range(1, 51):
                new = start + drift * round_ * length * away
                if guard.judge(ranker, new, lists[-200:]).accepted:
                    accepted = new
                else:
                    refusals.append(round_)
                lists += searched(data, runner, accepted, tables, 5, random)
            ends.append(ndcg(runner, [new, accepted]))
        handed, kept_at = np.mean(ends, axis=0)
        share = len(refusals) / (50 * len(ends))
        print(f"| {drift:g} of its length | {handed:.3f} | {kept_at:.3f} | {100.0 * share:.0f} % |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="synthetic:mq2007", help="a [data] source")
    parser.add_argument("--preset", default="informational", choices=("perfect", "navigational", "informational"))
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    study(args)
    slowly(args)


if __name__ == "__main__":
    main()
