"""The dial of exploration: what people see while a ranker learns from them, and how good it is at the end.

    python benchmarks/exploration.py SOURCE:FEATURE... [--clients 100] [--rounds 300] [--scale 10] [--step 3] [--seeds 3]
        [--users perfect,navigational,informational,position] [--settings WORD;WORD…]

SOURCE is what `[data] source` takes, FEATURE the number of the feature by which the shipped ranking sorts: every run starts
from the weight `--scale` for it and 0 for all others. Clients do 4 interactions a round. For each setting, in percent of
the shipped ranking's nDCG@10, by how users click: the lists that people saw in the worst tenth of the run, and in all of
it, against what the shipped ranking would have shown for the same queries; and the ranker at the end, on the test split.
Lists by which propensities were estimated before the run count as its first ones. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from quorank.data import DataSource
from quorank.errors import require
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.runner import Runner
from quorank.federation import Add, Federation
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.compiled import fixed_memory_kernel
from quorank.learning import DBGD, MGD, PDGD, Counterfactual, Learner
from quorank.learning.client_loop import STATISTICS, Impression, Work, World, client_loop
from quorank.learning.client_loop import play as play_loop
from quorank.learning.exploration import Dial
from quorank.learning.pdgd import show_by_dial
from quorank.learning.plackett_luce import Buffers
from quorank.parts import Numbers
from quorank.rankers import Linear
from quorank.users import Cascade, ClickModel, PositionBased

FAIR_PAIRS = Dial(1e30, 1, 1.0)
"""Neighbours are swapped by a fair coin (`exploration`)."""


def swap_counts(work: Work) -> Integers:
    """(clients, 2, k − 1) clicks of each client at rank r and at r + 1, on lists where those two were swapped by a coin."""
    counts = np.zeros((len(work.clients), 2, max(0, work.world.k - 1)), dtype=np.int64)
    rows = np.empty((len(work.clients), len(work.theta) + STATISTICS))
    play_loop(_loop, work, SwapRule(FAIR_PAIRS, counts), rows)
    return counts


class SwapRule(NamedTuple):
    """Exploration and the clicks counted."""

    dial: Dial
    counts: Integers  # (clients, 2, k − 1)


def adjacent_chain(counts: Integers) -> Doubles:
    """p of every rank from the summed counts (2, k − 1): p_1 = 1, p_(r+1) = p_r · clicks at r + 1 / clicks at r.

    Half a click is added to each count, so that ranks without clicks have an estimate; none exceeds 1.
    """
    found = np.asarray(counts, dtype=np.float64)
    fits = found.ndim == 2 and len(found) == 2 and bool((found >= 0.0).all())
    require(fits, "propensities.counts", f"expected counts of shape (2, ranks − 1), none below 0, got {found.shape}")
    chain = np.concatenate([[1.0], np.cumprod((found[1] + 0.5) / (found[0] + 0.5))])
    return np.asarray(chain / chain.max(), dtype=np.float64)


@fixed_memory_kernel
def _count_clicks(
    rule: SwapRule, world: World, shown: Impression, rest: float, first: int, theta: Doubles, buffers: Buffers
) -> bool:
    for p in range(shown.k - 1):
        if buffers.shown_weights[p] == buffers.shown_weights[p + 1]:  # of one block: swapped by a fair coin
            rule.counts[shown.at, 0, p] += buffers.clicked[p]
            rule.counts[shown.at, 1, p] += buffers.clicked[p + 1]
    return False


_loop = client_loop(show_by_dial, _count_clicks)


FAIR = FAIR_PAIRS.temperature
STILL = PDGD(share=1e-300)  # shows the ranking and learns nothing
SWAPPED = PDGD(window=1, temperature=FAIR, step="batch")  # what it learns is not used
INTERACTIONS = 4
SWAPS = 40
"""Lists of each client with swapped neighbours, by which propensities are estimated."""
ESTIMATED = ", estimated"
"""Settings whose name ends so get their propensities from swaps, shown before the run."""

SETTINGS: dict[str, Learner] = {
    "counterfactual": Counterfactual(),
    "counterfactual, estimated": Counterfactual(),
    "counterfactual, SNIPS, estimated": Counterfactual(estimator="snips"),
    "counterfactual, DR, clip 0.5, estimated": Counterfactual(estimator="dr", clip=0.5),
    "counterfactual, listwise, η = 0.02": Counterfactual(loss="listwise", eta=0.02),
    "counterfactual, p = 1": Counterfactual(power=0.0),
    "counterfactual, p = 1/rank": Counterfactual(power=1.0),
    "counterfactual, p = 1/rank, reach 1": Counterfactual(power=1.0, reach=1),
    "counterfactual, reach 10": Counterfactual(reach=10),
    "counterfactual, p = 1/rank, reach 10": Counterfactual(power=1.0, reach=10),
    "counterfactual, window 1 in a tenth of the lists": Counterfactual(window=1, share=0.1),
    "window 1 in a tenth of the lists": PDGD(window=1, share=0.1),
    "fair pairs in a tenth of the lists": PDGD(window=1, temperature=FAIR, share=0.1),
    "window 1, τ = 0.1": PDGD(window=1, temperature=0.1),
    "window 2, τ = 0.3": PDGD(window=2, temperature=0.3),
    "window 1": PDGD(window=1),
    "fair pairs": PDGD(window=1, temperature=FAIR),
    "τ = 0.1": PDGD(temperature=0.1),
    "τ = 0.3": PDGD(temperature=0.3),
    "a tenth of the lists": PDGD(share=0.1),
    "every list (PDGD)": PDGD(),
    "DBGD": DBGD(),
    "MGD": MGD(),
}
"""From no list that differs from the ranking to every list drawn, then the baselines."""


class Played(NamedTuple):
    """A run."""

    shown: Doubles  # (lists, in order of their rounds) mean nDCG@10 of each cohort
    lists: Doubles  # how many lists each of these is the mean of
    offline: float

    def tenths(self) -> Doubles:
        """(10,) mean nDCG@10 of the lists in each tenth of the run."""
        edges = np.linspace(0.0, self.lists.sum(), 11)
        sums = np.concatenate([[0.0], np.cumsum(self.shown * self.lists)])
        at = np.interp(edges, np.concatenate([[0.0], np.cumsum(self.lists)]), sums)
        return np.asarray(np.diff(at) / np.diff(edges), dtype=np.float64)


def users_of(word: str) -> ClickModel:
    """A cascade preset, or users who look at rank r with probability 1/r."""
    return PositionBased(eta=1.0) if word == "position" else Cascade(word)  # type: ignore[arg-type]


def play(source: DataSource, feature: int, users: str, word: str, seed: int, args: argparse.Namespace) -> Played:
    """Run one setting; "" is the shipped ranking, "swaps" the same with the lists that estimate propensities."""

    ranker = Linear(start=Numbers({str(feature): args.scale}))

    def runner_of(learner: Learner) -> Runner:
        federation = Federation(args.clients, INTERACTIONS, learner, server=Add(args.step))
        plan = EvaluationPlan(every=args.rounds)
        experiment = Experiment(
            source, ranker, users_of(users), federation, rounds=args.rounds, evaluation=plan, seed=seed
        )
        return Runner(experiment, threads=1)

    learner, shown, lists = SETTINGS.get(word, STILL), [], []
    runner = runner_of(learner)
    if word.endswith(ESTIMATED) or word == "swaps":
        everyone, theta = np.arange(args.clients), runner.simulator.initial().theta
        work = Work(runner.simulator.world, seed, theta, 2**31 - 1, everyone, np.full(args.clients, SWAPS))
        rows = np.empty((args.clients, len(theta) + STATISTICS))
        (SWAPPED if word != "swaps" else STILL).updates(work, rows)
        shown.append(float(rows[:, len(theta)].mean() / SWAPS))
        lists.append(args.clients * SWAPS)
    if word.endswith(ESTIMATED):
        assert isinstance(learner, Counterfactual)
        propensities = adjacent_chain(swap_counts(work).sum(axis=0))
        runner = runner_of(replace(learner, propensities=tuple(propensities.tolist())))
    progress = runner.run()
    online = progress.values["online_ndcg@10"]
    counts = [*lists, *(args.clients * INTERACTIONS for _ in online)]
    return Played(np.array([*shown, *online]), np.array(counts, dtype=np.float64), progress.last("offline_ndcg@10"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="SOURCE:FEATURE")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--scale", type=float, default=10.0)
    parser.add_argument("--step", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--users", default="perfect,navigational,informational,position")
    parser.add_argument("--settings", default=";".join(SETTINGS))
    args = parser.parse_args()
    began, presets, words = time.monotonic(), args.users.split(","), args.settings.split(";")
    print("worst tenth / all lists / ranker at the end, % of the shipped ranking's nDCG@10")
    lowest: dict[str, float] = {}
    for given in args.sources:
        name, _, feature = given.rpartition(":")
        source, cells = DataSource(name), dict.fromkeys(words, "")
        head = []
        for users in presets:
            bases = {
                kind: [play(source, int(feature), users, kind, seed, args) for seed in range(1, args.seeds + 1)]
                for kind in ("", "swaps")
            }
            head.append(f"{users}: {np.mean([base.shown.mean() for base in bases['']]):.3f}")
            for word in words:
                base = bases["swaps" if word.endswith(ESTIMATED) else ""]
                runs = [play(source, int(feature), users, word, seed, args) for seed in range(1, args.seeds + 1)]
                pairs = list(zip(runs, base, strict=True))
                tenths = 100.0 * np.mean([run.tenths() / still.tenths() - 1.0 for run, still in pairs], axis=0)
                offline = 100.0 * np.mean([run.offline / still.offline - 1.0 for run, still in pairs])
                lowest[word] = min(lowest.get(word, np.inf), float(tenths.min()))
                cells[word] += f" {tenths.min():+.1f} / {tenths.mean():+.1f} / {offline:+.1f} |"
            print(f"{name} {users}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        still = np.mean([base.offline for base in bases[""]])
        print(f"\n### {name.rstrip('/').rsplit('/', 1)[-1]}, feature {feature} (test {still:.3f})\n")
        print("| setting | " + " | ".join(head) + " |\n|---|" + "---|" * len(presets))
        print("\n".join(f"| {word} |{line}" for word, line in cells.items()), flush=True)
    kept = [word for word in words if lowest[word] >= -1.0]
    print("\nnever more than 1 % below the shipped ranking in a tenth of a run: " + "; ".join(kept))


if __name__ == "__main__":
    main()
