"""Ways to forget a client side by side: quality against retraining, cost, and whether a test still finds the leaver.

    python benchmarks/unlearning.py quality    [--data SOURCE] [--users PRESET] [--rounds 10000] [--seeds 5]
    python benchmarks/unlearning.py membership [--data SOURCE] [--users PRESET] [--rounds 1000] [--trials 200]

The strategies are those of Tao et al. (2025, arXiv 2505.12791): retraining, fine-tuning, FedEraser (`published`),
FedRemove, projected gradient ascent; and ours, `stretched` and `fresh`. Both studies have ten clients, B = 5 and Δt = 10.

`quality`: one client leaves that was honest, one that sent −2·θ, or three that clicked what is irrelevant. Offline nDCG@10
against retraining in %, mean over seeds and standard error; the harm that remains, as a share of what the leavers had
done; rounds, interactions and seconds of one processor.

`membership`: does the ranker after unlearning still tell of the leaver? Leavers: `canary` sends three times the mean
length of an update in a secret direction; `own` is honest, with ten queries of its own; `alike` is honest, and searches
as all do. The test knows the direction of the canary, the preferences of the ten queries, or all updates that the leaver
had sent: its mark. *Who*: in every trial somebody else leaves. The test orders the leavers of all trials by how well
their marks fit the ranker; the share of those who were never in this run that come below the one who was is its AUC.
*Whether*: the same leaver in one half of the trials, and in the other the run of the nine others alone, treated in the
same way; a linear discriminant of the fit of the mark and of the ranker's length, fitted on other trials than it is
judged on. 0.5: it cannot tell. Both signs count in *who*: a leaver that is found at the bottom is found.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from unlearning_strategies import STRATEGIES, StrategyResult, ascend, reaggregate, reference_ranker

from quorank.data import DataSource
from quorank.engines.process import Simulator
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.runner import Runner, run_experiment
from quorank.experiments.unlearning.request import Unlearning
from quorank.federation import Federation
from quorank.federation.unlearning.methods import KeptRound, fresh_seed, norms_of, rebuild, retrain
from quorank.kernels.arrays import Doubles, Integers
from quorank.learning import Simulation
from quorank.learning.client_loop import ClientDifferences
from quorank.reproduce.figure import folds_of
from quorank.users import Cascade

CLIENTS, B, INTERVAL, AVERAGE = 10, 5, 10, 3.0
OWN_QUERIES = 10
CANARY_LENGTH = 3.0
SHRINKAGE = 0.1
"""Share of a multiple of I in the covariance of the rankers of all trials."""
METHODS = ("fresh", "published", "retrain", *STRATEGIES)
LEAVERS: dict[str, tuple[int, dict[str, Any] | None]] = {
    "honest": (1, None),
    "sent −2·θ": (1, {"kind": "sign-flip", "clients": 1}),
    "poisoned clicks": (3, {"kind": "clicks", "clients": 3}),
}


def quality(args: argparse.Namespace) -> None:
    """Print a table of each kind of leaver."""
    print(
        f"{Path(args.data).name}, {args.users} clicks, {CLIENTS} clients, B = {B}, {args.rounds:,} rounds, Δt = {INTERVAL}"
    )
    for name, (count, attack) in LEAVERS.items():
        found: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(1, args.seeds + 1):
            for method, figures in forgotten(args, seed, count, attack).items():
                found.setdefault(method, []).append(figures)
        ndcg = {method: np.array(rows)[:, 0] for method, rows in found.items()}
        retrained, before = ndcg["retrain"], ndcg["before"]
        harm = float((retrained - before).mean())
        print(f"\n{count} of {CLIENTS} leave: {name}; retrained {retrained.mean():.4f}, before {before.mean():.4f}\n")
        print("| method | against retraining, % | harm left | rounds | interactions | of leavers | seconds |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for method, rows in found.items():
            gaps = 100.0 * (ndcg[method] / retrained - 1.0)
            error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
            left = f"{100.0 * float((retrained - ndcg[method]).mean()) / harm:.0f} %" if attack else ""
            cost = np.mean(np.array(rows)[:, 1:], axis=0)
            told = f"{cost[0]:,.0f} | {cost[1]:,.0f} | {cost[2]:,.0f} | {cost[3]:.2f}"
            print(f"| {method} | {gaps.mean():+.2f} ± {error:.2f} | {left} | {told} |", flush=True)


def forgotten(
    args: argparse.Namespace, seed: int, count: int, attack: dict[str, Any] | None
) -> dict[str, tuple[float, float, float, float, float]]:
    """nDCG@10, rounds, interactions of those who stay and of leavers, processor seconds, by each method, of one run."""
    data: dict[str, Any] = {"source": args.data, "fold": (seed - 1) % folds_of(args.data) + 1}
    if args.data == "synthetic:mslr":
        data["queries"] = 1000
    tables: dict[str, Any] = {
        "seed": seed,
        "data": data,
        "users": {"kind": "cascade", "preset": args.users},
        "federation": {"clients": CLIENTS, "interactions": B, "rounds": args.rounds, "keep_every": INTERVAL},
        "evaluation": {"every": args.rounds},
    }
    if attack is not None:
        tables["attack"] = attack
    found = {}
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room) / "run"
        run_experiment(Experiment.read(ExperimentFile(tables, "unlearning")), folder, threads=1)
        for method in METHODS:
            core = method not in STRATEGIES
            request = Unlearning(folder, tuple(range(count)), threads=1, method=method if core else "published")
            if "before" not in found:
                found["before"] = (request.ndcg(request.before)[0], 0.0, 0.0, 0.0, 0.0)
                theta, steps = request.retrained()
                found["retrain, the run's draws"] = (request.ndcg(theta)[0], float(args.rounds), float(steps), 0.0, 0.0)
            started = time.process_time()
            rebuilt, leavers_steps = StrategyResult(request.rebuilt) if core else STRATEGIES[method](request)
            seconds = time.process_time() - started
            cost = float(rebuilt.rounds), float(rebuilt.local_steps), float(leavers_steps), seconds
            found[method] = (request.ndcg(rebuilt.theta)[0], *cost)
    return found


class Trial:
    """One run from which client 0 leaves, and the rankers without it; or a run in which it never was."""

    def __init__(
        self, args: argparse.Namespace, base: Simulation, kind: str, seed: int, leaver: int, there: bool = True
    ) -> None:
        self.rounds, self.seed = args.rounds, seed
        self.absent = () if there else (0,)
        random = np.random.default_rng(leaver)
        direction = random.normal(size=base.parameters)
        self.direction = direction / np.linalg.norm(direction)
        queries = base.data.n_queries
        first = int(random.integers(queries - OWN_QUERIES))
        self.queries = range(first, first + OWN_QUERIES)
        who = None
        if kind == "own":
            group, alike = np.minimum(np.arange(CLIENTS), 1), np.zeros(CLIENTS, dtype=np.int64)
            counts = np.array([OWN_QUERIES, queries])
            who = ClientDifferences(group, np.array([first, 0]), counts, alike, (base.users,))
        self.simulation = replace(base, seed=seed, who=who)
        self.federation = Federation(CLIENTS, B)
        self.kept: list[KeptRound] = []
        self.sent = np.zeros(base.parameters)
        self.before = self._run(kind == "canary" and there)

    def _run(self, canary: bool) -> Doubles:
        simulator = Simulator(self.federation, self.simulation, rounds=self.rounds, absent=self.absent)
        state = simulator.initial()

        def keep(clients: Integers, updates: Doubles) -> None:
            if canary:
                updates[0] = CANARY_LENGTH * norms_of(updates[1:]).mean() * self.direction
            self.kept.append(KeptRound(state.round + 1, clients, norms_of(updates), updates.copy()))
            self.sent += updates[0]

        while state.round < self.rounds:
            state, _ = self.federation.round(state, simulator.gather(state, sent=keep))
        return state.theta

    def simulator(self, rounds: int, purpose: str = "unlearning", absent: tuple[int, ...] = (0,)) -> Simulator:
        simulation = replace(self.simulation, seed=fresh_seed(self.seed, purpose, (0,)))
        return Simulator(self.federation, simulation, rounds=rounds, absent=absent)

    def rankers(self) -> dict[str, Doubles]:
        """The ranker before and by each method; fine-tuning also for as long as the run, FedRemove from every round."""
        start, kept = np.zeros(len(self.before)), self.kept[::INTERVAL]
        few, far = len(kept), float(INTERVAL)
        last = self.kept[-1].updates
        assert last is not None
        ascended = self.before
        if not self.absent:
            reference = reference_ranker(self.before, last, np.ones(CLIENTS), np.arange(CLIENTS) == 0)
            radius = float(np.linalg.norm(reference - start)) / 3.0
            ascended, _ = ascend(self.simulator(few, "ascent", ()), reference, radius, few, np.array([0]))
        own: dict[str, Any] = {"step_factor": far, "average": AVERAGE, "lengths": "own"}
        return {
            "not unlearned": self.before,
            "retrain": retrain(self.simulator(self.rounds), start, self.rounds).theta,
            "fresh": rebuild(self.simulator(few), start, kept, **own).theta,
            "stretched": rebuild(self.simulator(few), start, kept, step_factor=far, average=AVERAGE).theta,
            "published (FedEraser)": rebuild(self.simulator(few), start, kept).theta,
            "fedremove": reaggregate(self.simulator(few), start, kept, step_factor=far).theta,
            "fedremove, every round kept": reaggregate(self.simulator(self.rounds), start, self.kept).theta,
            "pga": retrain(self.simulator(few), ascended, few).theta,
            "fine-tune": retrain(self.simulator(few), self.before, few).theta,
            "fine-tune, as long as the run": retrain(self.simulator(self.rounds), self.before, self.rounds).theta,
        }


def preferences(base: Simulation, queries: Iterable[int], theta: Doubles) -> Doubles:
    """∇ at θ of the mean log-likelihood of the preferences between labels of these queries: σ(s_b − s_a)·(x_a − x_b)."""
    total, pairs = np.zeros(len(theta)), 0
    for query in queries:
        rows = base.data.rows_of(query)
        x, labels = base.data.features[rows].astype(np.float64), base.data.labels[rows]
        better, worse = np.nonzero(labels[:, None] > labels[None, :])
        scores = x @ theta
        doubt = 1.0 / (1.0 + np.exp(np.clip(scores[better] - scores[worse], -50.0, 50.0)))
        total += doubt @ (x[better] - x[worse])
        pairs += len(better)
    return total / max(1, pairs)


def whitened(thetas: Doubles) -> Doubles:
    """(trials, parameters) differences from the mean ranker, in units of their covariance."""
    apart = thetas - thetas.mean(axis=0)
    covariance = apart.T @ apart / len(apart)
    level = float(np.trace(covariance)) / len(covariance) * np.eye(len(covariance))
    return np.asarray(np.linalg.solve((1.0 - SHRINKAGE) * covariance + SHRINKAGE * level, apart.T).T)


def who(thetas: Doubles, marks: Doubles) -> Doubles:
    """(trials,) of each trial's ranker the share of other leavers whose mark fits it less than that of its own leaver.

    A mark (trials, parameters) fits by its inner product with the whitened ranker.
    """
    own = marks - marks.mean(axis=0)
    scores = whitened(thetas) @ (own / np.linalg.norm(own, axis=1, keepdims=True)).T
    mine = np.diag(scores)[:, None]
    below, equal = (scores < mine).sum(axis=1), (scores == mine).sum(axis=1) - 1
    return np.asarray((below + 0.5 * equal) / (len(scores) - 1))


def whether(there: Doubles, never: Doubles, mark: Doubles) -> tuple[Doubles, Doubles]:
    """(trials,) of each ranker with the leaver the share of those without that are less suspected; of these likewise."""
    thetas = np.concatenate([there, never])
    features = np.stack([whitened(thetas) @ mark, norms_of(thetas)], axis=1)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    told, even = np.arange(len(thetas)) < len(there), np.arange(len(thetas)) % 2 == 0
    scores, found = np.empty(len(thetas)), np.empty(len(thetas))
    for fitted in (even, ~even):
        middle = [features[fitted & side].mean(axis=0) for side in (told, ~told)]
        spread = sum(np.cov(features[fitted & side].T) for side in (told, ~told))
        weights = np.linalg.solve(spread + SHRINKAGE * np.eye(2), middle[0] - middle[1])
        scores[~fitted] = features[~fitted] @ weights
        right = scores[told & ~fitted][:, None] > scores[~told & ~fitted][None, :]
        found[told & ~fitted], found[~told & ~fitted] = right.mean(axis=1), right.mean(axis=0)
    return found[told], found[~told]


def shown(*each: Doubles) -> str:
    """The mean of the first, and an interval of 95 % from the spread of all (DeLong et al. 1988)."""
    error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in each))
    return f"{each[0].mean():.2f} ± {1.96 * error:.2f}"


def play(
    args: argparse.Namespace, base: Simulation, kind: str, count: int, leaver: int | None, there: bool = True
) -> tuple[list[Trial], dict[str, Doubles]]:
    """Trials, each with a leaver of its own unless one is given, and by each method (trials, parameters) their rankers."""
    trials, rankers = [], dict[str, list[Doubles]]()
    for number in range(1, count + 1):
        seed = number + (0 if leaver is None else 100_000 if there else 200_000)
        trial = Trial(args, base, kind, seed, number if leaver is None else leaver, there)
        for name, theta in trial.rankers().items():
            rankers.setdefault(name, []).append(theta)
        trial.kept.clear()
        trials.append(trial)
    return trials, {name: np.array(thetas) for name, thetas in rankers.items()}


def membership(args: argparse.Namespace) -> None:
    """Print a table of each kind of leaver: the AUC of each test, with its interval of 95 %."""
    queries = 1000 if args.data == "synthetic:mslr" else None
    experiment = Experiment(DataSource(args.data, queries=queries), users=Cascade(args.users), rounds=1)
    base = Runner(experiment, 1).workload.simulation
    data = f"{Path(args.data).name} ({base.data.n_queries} queries), {args.users} clicks"
    print(f"{data}, {CLIENTS} clients, B = {B}, {args.rounds:,} rounds, Δt = {INTERVAL}, {args.trials} trials")
    for kind in args.leavers:
        trials, rankers = play(args, base, kind, args.trials, None)
        middle = rankers["retrain"].mean(axis=0)

        def mark(trial: Trial, kind: str = kind, middle: Doubles = middle) -> Doubles:
            return trial.direction if kind == "canary" else preferences(base, trial.queries, middle)

        columns: dict[str, dict[str, tuple[Doubles, ...]]] = {}
        if kind != "canary":
            sent = np.array([trial.sent for trial in trials])
            columns["who, by all that it sent"] = {name: (who(thetas, sent),) for name, thetas in rankers.items()}
        if kind != "alike":
            marks = np.array([mark(trial) for trial in trials])
            columns["who"] = {name: (who(thetas, marks),) for name, thetas in rankers.items()}
            (one, *_), there = play(args, base, kind, args.trials, 1)
            _, never = play(args, base, kind, args.trials, 1, there=False)
            own = mark(one)
            columns["whether"] = {name: whether(there[name], never[name], own) for name in rankers}
        print(f"\nleaver: {kind}\n\n| ranker | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
        for name in rankers:
            print(f"| {name} | {' | '.join(shown(*column[name]) for column in columns.values())} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("quality", "membership"))
    parser.add_argument("--data", default="synthetic:mq2007", help="a [data] source")
    parser.add_argument("--users", default="informational", choices=("perfect", "navigational", "informational"))
    parser.add_argument("--rounds", type=int, default=None, help="10,000 for quality, 1,000 for membership")
    parser.add_argument("--seeds", type=int, default=5, help="of quality")
    parser.add_argument("--trials", type=int, default=200, help="of membership")
    parser.add_argument("--leavers", nargs="*", default=("canary", "own", "alike"), help="of membership")
    args = parser.parse_args()
    args.rounds = args.rounds or (10_000 if args.study == "quality" else 1000)
    {"quality": quality, "membership": membership}[args.study](args)


if __name__ == "__main__":
    main()
