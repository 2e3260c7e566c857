"""Federated LambdaMART measured: against its central twin, LightGBM, linear rankers with and without privacy, and time.

    python benchmarks/trees.py                        # all tables, some minutes on two cores
    python benchmarks/trees.py --only twin lightgbm   # some of: twin lightgbm privacy time lists clicks
    python benchmarks/trees.py --letor ../shared/data/mq2008 --queries 1000 --clients 1000 --seeds 3

Tables are Markdown. ± is a standard error over folds or seeds, of a difference where one is shown. LightGBM has the same
number of trees, leaves, depth, shrinkage, least hessian, sigmoid, truncation and bins; its `min_data_in_leaf` is 0 as ours,
since it estimates counts from hessians and Quorank counts documents.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from quorank.data import Collection, DataSource, RankingData, load
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import find_experiment_file, set_values
from quorank.experiments.runner import run_experiment
from quorank.federation.boosting import Boosting, TrainingLists, list_owners
from quorank.federation.rounds import State, private_sum
from quorank.kernels.arrays import Doubles
from quorank.learning import LambdaMART
from quorank.learning.trees.bins import Bins, agreed_bins, cell_counts
from quorank.learning.trees.growth import UNIT, GrownTree
from quorank.metrics.evaluator import Evaluator
from quorank.privacy import ClippedGaussian, Setting
from quorank.rankers import Linear
from quorank.rankers.trees import TreeArrays, add_tree_scores, tree_parameters

TABLES = ("twin", "lightgbm", "privacy", "time", "lists", "clicks")


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--letor", default="../shared/data/mq2008", help="folder of LETOR parts S1 … S5")
    parser.add_argument("--queries", type=int, default=1000, help="training queries of synthetic:mslr")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for table in options.only:
        started = time.perf_counter()
        print(f"\n## {table}\n", flush=True)
        globals()[f"print_{table}"](options)
        print(f"\n({time.perf_counter() - started:.0f} s)", flush=True)


# ---------------------------------------------------------------- growing


def lists_of(data: RankingData, clients: int) -> TrainingLists:
    """The labelled lists of a split, list_owners to clients."""
    gains = np.exp2(data.labels.astype(np.float64)) - 1.0
    return TrainingLists(data.features, gains, data.offsets, list_owners(data.n_queries, clients))


def grow(
    data: RankingData, learner: LambdaMART, trees: int, clients: int = 1, threads: int = 1, **how: Any
) -> tuple[list[GrownTree], Bins, list[float]]:
    """Trees, the bins that they are of, and the seconds of each."""
    bins = agreed_bins(cell_counts(data.features), learner.bins)
    with ThreadPoolExecutor(threads) as pool:
        plan = learner.tree_plan(1 << learner.depth, 10)
        boosting = Boosting(plan, lists_of(data, clients), bins, clients, 1, threads=threads, pool=pool, **how)
        boosting.start(np.zeros(data.n_rows))
        grown, seconds = [], []
        for round_ in range(trees):
            started = time.perf_counter()
            grown += boosting.grow(round_)
            seconds.append(time.perf_counter() - started)
    return grown, bins, seconds


def columns(trees: list[GrownTree]) -> TreeArrays:
    """Trees as a ranker holds them."""
    return TreeArrays(*(np.array([getattr(tree, name) for tree in trees]) for name in TreeArrays._fields))


def ndcg(data: RankingData, scores: Doubles) -> float:
    """Mean nDCG@10 over the queries with a relevant document."""
    return float(Evaluator(data, Linear()).score_means([scores])[0, 0])


def tree_ndcg(data: RankingData, trees: list[GrownTree]) -> float:
    """Mean nDCG@10 of grown trees."""
    scores = np.zeros(data.n_rows)
    add_tree_scores(*columns(trees), np.ascontiguousarray(data.features), scores)
    return ndcg(data, scores)


def error(values: list[float]) -> float:
    """Standard error of a mean."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def digest(trees: list[GrownTree]) -> str:
    """What equal trees have equal."""
    return hashlib.sha256(tree_parameters(columns(trees)).tobytes()).hexdigest()[:16]


# ---------------------------------------------------------------- 1. the central twin


def print_twin(options: argparse.Namespace) -> None:
    """Digests of trees from the pooled data and from federations of it."""
    data = load(DataSource("synthetic:mslr", queries=min(options.queries, 200))).train
    learner = LambdaMART(depth=5)
    print(
        f"{data.n_queries} lists of synthetic:mslr, 5 trees of depth 5.\n\n| clients | sums | threads | trees |\n"
        "|---|---|---|---|"
    )
    for clients, threads, how in (
        (1, 1, {}),
        (1, 2, {}),
        (7, 1, {"masked": True, "masks": False}),
        (100, 1, {"masked": True, "masks": False}),
        (data.n_queries, 1, {"masked": True, "masks": False}),
        (5, 1, {"masked": True}),
    ):
        trees, _, _ = grow(data, learner, 5, clients, threads, **how)
        sums = "one pass" if not how else "clients one by one" if "masks" in how else "under masks, every message"
        print(f"| {clients:,} | {sums} | {threads} | {digest(trees)} |", flush=True)


# ---------------------------------------------------------------- 2. LightGBM


def lightgbm_settings(learner: LambdaMART, threads: int, **own: Any) -> dict[str, Any]:
    """LightGBM's names of the same settings."""
    return {
        "objective": "lambdarank", "num_leaves": 1 << learner.depth, "max_depth": learner.depth,
        "learning_rate": learner.eta, "min_data_in_leaf": learner.least_data,
        "min_sum_hessian_in_leaf": learner.least_hessian, "lambda_l2": learner.ridge,
        "min_gain_to_split": learner.least_gain, "sigmoid": learner.sigmoid,
        "lambdarank_truncation_level": learner.truncation, "lambdarank_norm": learner.norm,
        "max_bin": learner.bins, "min_data_in_bin": 1, "feature_pre_filter": False, "num_threads": threads, "verbose": -1,
        **own,
    }  # fmt: skip


def in_bins(bins: Bins, data: RankingData) -> Doubles:
    """Each feature replaced by the number of its bin: LightGBM then has the same bins."""
    placed = bins.place(data.features)
    return placed.transpose(1, 0, 2).reshape(data.n_rows, -1)[:, : data.n_features].astype(np.float64)


def lightgbm_model(data: RankingData, features: Any, learner: LambdaMART, trees: int, threads: int, **own: Any) -> Any:
    """LightGBM on these features."""
    import lightgbm

    settings = lightgbm_settings(learner, threads, **own)
    of = lightgbm.Dataset(features, label=data.labels, group=np.diff(data.offsets), params=settings)
    return lightgbm.train(settings, of, trees)


def print_lightgbm(options: argparse.Namespace) -> None:
    """nDCG@10 of federated trees and of LightGBM's, over folds and seeds."""
    letor = LambdaMART(depth=4, eta=0.05, least_data=0, least_hessian=1.0)
    large = LambdaMART(depth=6, eta=0.1, least_data=0, least_hessian=1.0)
    folds = [DataSource(options.letor, fold=fold) for fold in range(1, 6)]
    seeds = [DataSource("synthetic:mslr", queries=options.queries, seed=seed) for seed in range(1, options.seeds + 1)]
    sets = [(Path(options.letor).name, folds, letor), ("synthetic:mslr", seeds, large)]
    print(f"{options.trees} trees; {options.clients:,} clients.\n")
    print("| data | runs | federated | LightGBM, same bins | difference | LightGBM, own bins | difference |")
    print("|---|---|---|---|---|---|---|")
    for name, sources, learner in sets:
        if not name.startswith("synthetic") and not Path(options.letor).is_dir():
            print(f"| {name} is not there | | | | | | |")
            continue
        found = []
        for source in sources:
            split = load(source)
            trees, bins, _ = grow(split.train, learner, options.trees, options.clients, options.threads)
            same = lightgbm_model(
                split.train, in_bins(bins, split.train), learner, options.trees, options.threads, max_bin=255
            )
            own = lightgbm_model(split.train, split.train.features, learner, options.trees, options.threads)
            found.append(
                [
                    tree_ndcg(split.test, trees),
                    ndcg(split.test, same.predict(in_bins(bins, split.test))),
                    ndcg(split.test, own.predict(split.test.features)),
                ]
            )
        ours, same_, own_ = np.array(found).T
        cells = [f"{ours.mean():.4f}"]
        for other in (same_, own_):
            ratio = [float(x) for x in 100 * (ours / other - 1)]
            cells += [f"{other.mean():.4f}", f"{100 * (ours.mean() / other.mean() - 1):+.2f} % ± {error(ratio):.2f}"]
        print(f"| {name} | {len(found)} | {' | '.join(cells)} |", flush=True)


# ---------------------------------------------------------------- 3. privacy


def centred(data: RankingData) -> tuple[Doubles, Doubles]:
    """Features and labels, each less its list's mean."""
    query = data.query_of_rows()
    count = np.diff(data.offsets)[:, None]
    x, y = data.features.astype(np.float64), data.labels.astype(np.float64)[:, None]
    both = np.concatenate([x, y], axis=1)
    mean = np.add.reduceat(both, data.offsets[:-1], axis=0) / count
    both -= mean[query]
    return both[:, :-1], both[:, -1]


def ridge_fit(data: RankingData, ridge: float = 50.0) -> Doubles:
    """Linear weights by ridge regression on labels within lists."""
    x, y = centred(data)
    return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)


def listwise_fit(data: RankingData, ridge: float = 1.0) -> Doubles:
    """Linear weights by the softmax loss over lists, gains as targets (ListNet's top-one loss), by L-BFGS."""
    x, starts, query = data.features.astype(np.float64), data.offsets[:-1], data.query_of_rows()
    gains = np.exp2(data.labels.astype(np.float64)) - 1.0
    total = np.add.reduceat(gains, starts)
    target = gains / np.where(total > 0, total, 1.0)[query]
    weight = (total > 0).astype(np.float64)[query]

    def loss(theta: Doubles) -> tuple[float, Doubles]:
        scores = x @ theta
        scores -= np.maximum.reduceat(scores, starts)[query]
        power = np.exp(scores)
        chance = power / np.add.reduceat(power, starts)[query]
        cost = -float((weight * target * np.log(np.maximum(chance, 1e-300))).sum())
        return cost + 0.5 * ridge * float(theta @ theta), x.T @ (weight * (chance - target)) + ridge * theta

    return np.asarray(minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200}).x)


def private_linear(split: Collection, clients: int, seed: int, epsilon: float, rounds: int = 100) -> float:
    """nDCG@10 of the linear ranker that follows clipped, noisy LambdaRank gradients of the same labels; best of steps.

    The best step is chosen on the test split, which favours the linear ranker.
    """
    data, best = split.train, 0.0
    bins = agreed_bins(cell_counts(data.features[:1]), 2)
    rows = Boosting(LambdaMART().tree_plan(64, 10), lists_of(data, clients), bins, clients, seed).rows
    client = np.repeat(list_owners(data.n_queries, clients), np.diff(data.offsets))
    x, _ = centred(data)
    order = np.argsort(client, kind="stable")
    bounds = np.searchsorted(client[order], np.arange(clients))
    for clip, step in ((1.0, 1.0), (1.0, 3.0), (1.0, 10.0)):
        part = ClippedGaussian(epsilon=epsilon, clip=clip)
        mechanism = part.mechanism(Setting(clients, clients, rounds, parameters=x.shape[1]), seed)
        theta, mean = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for round_ in range(rounds):
            rows.scores[:] = x @ theta
            rows.begin()
            pulled = x[order] * (rows.gradients[order] / UNIT)[:, None]
            sent = np.add.reduceat(np.concatenate([pulled, np.zeros((1, x.shape[1]))]), bounds, axis=0)
            sent[np.bincount(client, minlength=clients) == 0] = 0.0
            state = State(round_, theta, {}, mechanism.start())
            theta = theta - step * private_sum(sent, mechanism, state).total / clients
            mean += theta / rounds
        best = max(best, *(ndcg(split.test, split.test.features @ weights) for weights in (theta, mean)))
    return best


def run_of(name: str, seed: int, *assignments: str) -> dict[str, Any]:
    """The summary of a run of a shipped file."""
    file = set_values(find_experiment_file(name), [f"seed={seed}", "evaluation.every=1000", *assignments])
    with tempfile.TemporaryDirectory() as folder:
        return run_experiment(Experiment.read(file), Path(folder) / "run")


def print_privacy(options: argparse.Namespace) -> None:
    """nDCG@10 on synthetic:mslr of trees with noise and of linear rankers with and without, over seeds."""
    data = ["data.source=synthetic:mslr", f"data.queries={options.queries}", f"federation.clients={options.clients}"]
    rows: dict[str, list[float]] = {}
    for seed in range(1, options.seeds + 1):
        own = [*data, f"data.seed={seed}"]
        split = load(DataSource("synthetic:mslr", queries=options.queries, seed=seed))
        figures = {
            "linear, ridge regression on the labels | none": ndcg(
                split.test, split.test.features @ ridge_fit(split.train)
            ),
            "linear, softmax loss on the labels | none": ndcg(
                split.test, split.test.features @ listwise_fit(split.train)
            ),
            "linear, `run fpdgd` (clicks) | none": run_of("fpdgd", seed, *own)["offline"]["ndcg@10"],
            "linear, `run recommended` (clicks) | none": run_of("recommended", seed, *own)["offline"]["ndcg@10"],
            "linear, `run private` (clicks) | ε = 8": run_of("private", seed, *own, "privacy.epsilon=8")["offline"][
                "ndcg@10"
            ],
            "linear, noisy LambdaRank gradients of the labels | ε = 8": private_linear(
                split, options.clients, seed, 8.0
            ),
            "trees, `run trees` | none": run_of("trees", seed, *own)["offline"]["ndcg@10"],
        }
        for epsilon in (8.0, 4.0, 2.0, 1.0):
            found = run_of("trees-private", seed, *own, f"privacy.epsilon={epsilon}")
            stated = found["privacy"]
            assert stated["epsilon"] <= epsilon and stated["unit"] == "client"
            figures[f"trees, `run trees-private` | ε = {epsilon:g}"] = found["offline"]["ndcg@10"]
        for name, value in figures.items():
            rows.setdefault(name, []).append(value)
            print(f"seed {seed}: {name}: {value:.4f}", file=sys.stderr, flush=True)
    print(
        f"{options.queries:,} lists, {options.clients:,} clients, {options.seeds} seeds. "
        "ε is of a client and the whole run, δ = 1e-5.\n"
    )
    print("| ranker | privacy | nDCG@10 | ± |\n|---|---|---|---|")
    for name, values in rows.items():
        print(f"| {name} | {np.mean(values):.4f} | {error(values):.4f} |", flush=True)


# ---------------------------------------------------------------- 4. time


def print_time(options: argparse.Namespace) -> None:
    """Seconds of a tree, Quorank's and LightGBM's in turns, so that what else the machine does meets both."""
    import lightgbm

    data = load(DataSource("synthetic:mslr", queries=options.queries)).train
    print(
        f"synthetic:mslr, {data.n_queries:,} lists, {data.n_rows:,} documents, {options.clients:,} clients, "
        "without masks.\n"
    )
    print("| depth | bins | threads | Quorank, ms a tree | LightGBM, ms a tree | ratio |\n|---|---|---|---|---|---|")
    for depth, bins_ in ((6, 64), (6, 255), (4, 64)):
        learner = LambdaMART(depth=depth, bins=bins_, least_data=0, least_hessian=1.0)
        bins = agreed_bins(cell_counts(data.features), bins_)
        for threads in sorted({1, options.threads}):
            settings = lightgbm_settings(learner, threads)
            of = lightgbm.Dataset(
                data.features, label=data.labels, group=np.diff(data.offsets), params=settings
            ).construct()
            booster = lightgbm.Booster(settings, of)
            with ThreadPoolExecutor(threads) as pool:
                plan = learner.tree_plan(1 << depth, 10)
                boosting = Boosting(
                    plan, lists_of(data, options.clients), bins, options.clients, 1, threads=threads, pool=pool
                )
                spent: tuple[list[float], list[float]] = ([], [])
                for turn in range(22):
                    for which, step in enumerate((lambda: boosting.grow(turn), booster.update)):  # noqa: B023
                        started = time.perf_counter()
                        step()
                        spent[which].append(time.perf_counter() - started)
            ours, theirs = (1e3 * float(np.median(each[2:])) for each in spent)
            print(f"| {depth} | {bins_} | {threads} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} |", flush=True)


# ---------------------------------------------------------------- 5. how many lists


def some_lists(data: RankingData, count: int, seed: int) -> RankingData:
    """So many lists by lot."""
    chosen = np.sort(np.random.default_rng(seed).permutation(data.n_queries)[:count])
    spans = [np.arange(data.offsets[q], data.offsets[q + 1]) for q in chosen]
    offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])])
    return data.select_rows(np.concatenate(spans), offsets, [str(q) for q in chosen])


def best_feature(data: RankingData) -> int:
    """The feature, ascending, that ranks a split best: BM25 or alike."""
    return int(np.argmax([ndcg(data, data.features[:, f].astype(np.float64)) for f in range(data.n_features)]))


def print_lists(options: argparse.Namespace) -> None:
    """nDCG@10 by the number of training lists: the best single feature, a linear ranker, trees."""
    sources = [DataSource("synthetic:mslr", queries=options.queries)]
    if Path(options.letor).is_dir():
        sources.insert(0, DataSource(options.letor, fold=1))
    print(
        "| data | lists | best single feature | linear, ridge | trees, depth 3 | trees − linear |\n"
        "|---|---|---|---|---|---|"
    )
    for source in sources:
        split = load(source)
        feature = best_feature(split.train)
        single = ndcg(split.test, split.test.features[:, feature].astype(np.float64))
        for count in (20, 50, 100, 200, 400, 1000):
            if count > split.train.n_queries:
                continue
            linear, trees = [], []
            for seed in range(max(3, options.seeds)):
                part = some_lists(split.train, count, seed)
                linear.append(ndcg(split.test, split.test.features @ ridge_fit(part, 10.0)))
                learner = LambdaMART(depth=3, eta=0.1, least_data=20, least_lists=0)
                trees.append(tree_ndcg(split.test, grow(part, learner, 60)[0]))
            gain = [of_trees - other for of_trees, other in zip(trees, linear, strict=True)]
            name = Path(source.source).name
            means = " | ".join(f"{mean:.4f}" for mean in (single, np.mean(linear), np.mean(trees)))
            print(f"| {name} | {count} | {means} | {np.mean(gain):+.4f} ± {error(gain):.4f} |", flush=True)


# ---------------------------------------------------------------- 6. clicks


def print_clicks(options: argparse.Namespace) -> None:
    """nDCG@10 of trees that learn from logged clicks of position-based users, weighted by propensities or not."""
    own = ["federation.rounds=60", "learner.depth=4", "ranker.leaves=16", f"data.queries={options.queries}"]
    own += ["users.kind=position", "users.eta=1.0", f"federation.clients={options.clients}"]
    labels = [run_of("trees", s, *own, f"data.seed={s}")["offline"]["ndcg@10"] for s in range(1, options.seeds + 1)]
    print(
        f"{options.clients:,} clients, {options.seeds} seeds; with labels {np.mean(labels):.4f} ± {error(labels):.4f}.\n"
    )
    print("| logged lists of a client | logged ranking | clicks over propensities | clicks as they are | difference |")
    print("|---|---|---|---|---|")
    for lists in (4, 16, 40):
        found: dict[float, list[float]] = {1.0: [], 0.0: []}
        shown = []
        for seed in range(1, options.seeds + 1):
            for power in found:
                summary = run_of(
                    "trees", seed, *own, f"data.seed={seed}", "learner.feedback=clicks", f"learner.power={power}",
                    f"federation.interactions={lists}",
                )  # fmt: skip
                found[power].append(summary["offline"]["ndcg@10"])
            shown.append(summary["online"]["ndcg@10"])
        gain = [a - b for a, b in zip(found[1.0], found[0.0], strict=True)]
        cells = f"{np.mean(shown):.4f} | {np.mean(found[1.0]):.4f} | {np.mean(found[0.0]):.4f}"
        print(f"| {lists} | {cells} | {np.mean(gain):+.4f} ± {error(gain):.4f} |", flush=True)


if __name__ == "__main__":
    main()
