"""How much of the gap between a shipped ranking and a supervised ranker clicks alone close.

    python benchmarks/ceilings.py [SOURCE...] --out ceilings.jsonl [--users informational] [--folds 3] [--seeds 1]
        [--clients 1000] [--rounds 100] [--quick]

A SOURCE is what `[data] source` takes; both generated collections unless given. The shipped ranking sorts by BM25 of the
body where a feature has that name (text collections by `quorank data import --text`), else by the single feature that is
best on the training split of the fold. Ridge regression and LightGBM's lambdarank learn from the labels of the training
split, and the validation split chooses the ridge's weight, the leaves of a tree and the number of trees. The federated
methods see clicks on the training split and are the shipped experiment files with nothing tuned. Those "from the start"
begin with the shipped ranking (`[ranker] start`, `start_scale = "rule"`), the others with nothing.

Collections in five folds keep them. Of others in one fold all queries are dealt into five parts, which take turns as in
LETOR 4.0; generated ones have another seed of the generator in place of a fold. Every figure is kept in --out, a line
each, and is not computed again. Prints Markdown: nDCG@10 on the test split, and the share of the gap between the shipped
ranking and the better one of the two supervised rankers, both with standard errors over folds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from quorank.data import Collection, DataSource, RankingData
from quorank.data.layout import FOLDS, count_folds
from quorank.data.letor.writer import write_letor
from quorank.data.library import folder_of
from quorank.data.ranking import join_parts
from quorank.data.source import SYNTHETIC, feature_names, load, typed_name
from quorank.errors import BadInput, require
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import SHIPPED, read_experiment_file, set_value
from quorank.experiments.runner import Runner
from quorank.experiments.workload import collection_of
from quorank.kernels.arrays import Doubles
from quorank.metrics.evaluator import Evaluator
from quorank.rankers import Linear

GENERATED = ("synthetic:mq2007", "synthetic:mslr")
TEXT_START = "bm25-of-body"
RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
LEAVES = (4, 15)
TREES, PATIENCE = 300, 30
"""Trees at most, and how many more are grown without a gain on the validation split."""
SHIPPED_RANKING, RIDGE, LAMBDARANK = "shipped ranking", "ridge", "lambdarank"
SUPERVISED = (RIDGE, LAMBDARANK)
START = "START"
"""Stands for the start of the fold among the values of a method."""
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FPDGD": ("fpdgd", {}),
    "recommended": ("recommended", {}),
    "recommended, from the start": ("recommended", {"ranker": START}),
    "counterfactual": ("recommended", {"learner": {"kind": "counterfactual"}}),
    "counterfactual, from the start": ("recommended", {"learner": {"kind": "counterfactual"}, "ranker": START}),
    "evolution strategies": ("fpdgd", {"learner": {"kind": "evolution"}, "federation.server": {"kind": "adam"}}),
    "private, ε = 2": ("private", {"privacy.epsilon": 2.0}),
    "private, ε = 1": ("private", {"privacy.epsilon": 1.0}),
    "private, ε = 0.5": ("private", {"privacy.epsilon": 0.5}),
}
"""Shipped experiment files, and what is changed in them."""


Figures = dict[str, float]


class Fold(NamedTuple):
    """A fold of a collection, and the feature, counted from 1, by which its shipped ranking sorts."""

    source: DataSource
    feature: int


def ndcg_of(data: RankingData, scores: Doubles) -> float:
    """Mean nDCG@10 of the rankings by (rows,) scores, over queries with a relevant document."""
    return float(Evaluator(data.with_features(scores[:, None]), Linear()).all_means([np.ones(1)])[0][0])


def best_feature(data: RankingData) -> int:
    """Number of the feature with the best mean nDCG@10 of the lists sorted by it, largest first."""
    return int(np.argmax(Evaluator(data, Linear()).all_means(np.eye(data.n_features))[0])) + 1


def dealt(name: str, folder: Path) -> Path:
    """Write all queries of a collection in one fold as five parts, dealt at random, and return their folder."""
    whole = join_parts([*load(DataSource(name, normalize="none")).splits.values()])
    made = folder / Path(name).name
    for part, queries in enumerate(np.array_split(np.random.default_rng(1).permutation(whole.n_queries), FOLDS), 1):
        rows = np.concatenate([np.arange(*whole.offsets[q : q + 2]) for q in queries])
        offsets = np.cumsum([0, *np.diff(whole.offsets)[queries]])
        write_letor(whole.select_rows(rows, offsets, [whole.query_ids[q] for q in queries]), made / f"S{part}.txt")
    return made


def folds_of(name: str, count: int, folder: Path) -> list[Fold]:
    """Return the first `count` folds of a source; `folder` takes what is written for them."""
    named: list[str] = []
    if name.startswith(SYNTHETIC):
        sources = [DataSource(name, seed=fold) for fold in range(1, count + 1)]
    else:
        require(count <= FOLDS, "fold.missing", f"there are {FOLDS}, got {count}", "--folds")
        collection = load(DataSource(name))
        named = [typed_name(each) for each in feature_names(DataSource(name), collection.train.n_features)]
        path = str(dealt(name, folder)) if count_folds(folder_of(name)) == 1 else name
        sources = [DataSource(path, fold=fold) for fold in range(1, count + 1)]
    if TEXT_START in named:
        return [Fold(source, named.index(TEXT_START) + 1) for source in sources]
    return [Fold(source, best_feature(collection_of(source).train)) for source in sources]


def ridge_weights(data: RankingData, weight: float) -> Doubles:
    """(features,) argmin ‖y − Xw‖² + weight·‖w‖², with features X and labels y less their means in each query."""
    both = np.column_stack([data.features, data.labels]).astype(np.float64)
    both -= (np.add.reduceat(both, data.offsets[:-1], axis=0) / np.diff(data.offsets)[:, None])[data.query_of_rows()]
    features, labels = both[:, :-1], both[:, -1]
    return np.asarray(np.linalg.solve(features.T @ features + weight * np.eye(features.shape[1]), features.T @ labels))


def ridge(data: Collection, validation: RankingData) -> float:
    """Test nDCG@10 of the ridge regression whose weight is best on the validation split."""
    thetas = np.array([ridge_weights(data.train, weight) for weight in RIDGES])
    best = int(np.argmax(Evaluator(validation, Linear()).all_means(thetas)[0]))
    return float(Evaluator(data.test, Linear()).all_means(thetas[best : best + 1])[0][0])


def lambdarank(data: Collection, validation: RankingData) -> float:
    """Test nDCG@10 of LightGBM's lambdarank; the validation split chooses the leaves and stops the trees."""
    import lightgbm

    def lists(split: RankingData) -> dict[str, Any]:
        return {"data": split.features, "label": split.labels, "group": np.diff(split.offsets)}

    found = []
    for leaves in LEAVES:
        settings = {
            "objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "learning_rate": 0.1, "num_leaves": leaves,
            "min_data_in_leaf": 20, "feature_fraction": 0.7, "lambdarank_truncation_level": 20, "seed": 1,
            "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1,
        }  # fmt: skip
        train = lightgbm.Dataset(**lists(data.train), params={"verbosity": -1})
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        beside = [train.create_valid(**lists(validation))]
        model = lightgbm.train(settings, train, TREES, valid_sets=beside, callbacks=[stop])
        scores = [np.asarray(model.predict(split.features)) for split in (validation, data.test)]
        found.append((ndcg_of(validation, scores[0]), ndcg_of(data.test, scores[1])))
    return max(found)[1]


def supervised(fold: Fold, method: str) -> float:
    """Test nDCG@10 of the shipped ranking, or of a ranker that learns from labels."""
    data = collection_of(fold.source)
    if method == SHIPPED_RANKING:
        return float(
            Evaluator(data.test, Linear()).all_means(np.eye(data.test.n_features)[fold.feature - 1 :][:1])[0][0]
        )
    validation = data.validation
    if validation is None:
        raise BadInput("collection.no-validation", "has no validation split to choose settings by", fold.source.source)
    return (ridge if method == RIDGE else lambdarank)(data, validation)


def federated(fold: Fold, method: str, users: str, seed: int, clients: int, rounds: int) -> Figures:
    """Test nDCG@10 and MaxRR of the ranker that a run hands out, and the mean nDCG@10 of the lists that it showed."""
    name, changes = METHODS[method]
    source = fold.source
    started = {"kind": "linear", "start": {str(fold.feature): 1.0}, "start_scale": "rule"}
    settings = {
        "seed": seed, "users": {"preset": users}, "federation.clients": clients, "federation.rounds": rounds,
        "data": {name: getattr(source, name) for name in ("source", "fold", "seed", "normalize")},
        "federation.keep_every": 0, "evaluation": {"every": rounds},
    } | {key: started if value == START else value for key, value in changes.items()}  # fmt: skip
    file = read_experiment_file(SHIPPED / f"{name}.toml")
    for key, value in settings.items():
        file = set_value(file, key, value, "benchmark")
    progress = Runner(Experiment.read(file), threads=1).run()
    offline, maxrr = (progress.last(f"offline_{name}") for name in ("ndcg@10", "maxrr"))
    return {"offline": offline, "maxrr": maxrr, "online": progress.online_mean()}


def with_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and its standard error: nan of a single value."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def gap_closed(
    shipped: Sequence[float], method: Sequence[float], ceiling: Sequence[float]
) -> tuple[float, float] | None:
    """Σ(method − shipped) / Σ(ceiling − shipped) over folds, and its standard error by the jackknife over folds.

    None where the gap is not above two standard errors of its own: then there is none to close that the folds can show.
    """
    gap = np.subtract(ceiling, shipped)
    gain, count = np.subtract(method, shipped), len(gap)
    mean, error = with_error(gap.tolist())
    if mean <= 0.0 or mean <= 2.0 * error:
        return None
    if count == 1:
        return float(gain[0] / gap[0]), math.nan
    without = (gain.sum() - gain) / (gap.sum() - gap)
    return float(gain.sum() / gap.sum()), math.sqrt((count - 1) * float(np.var(without)))


Kept = dict[str, float]


def key_of(data: str, fold: int, method: str, **how: Any) -> str:
    """Name of a figure in the file."""
    return json.dumps([Path(data).name, fold, method, how], sort_keys=True, ensure_ascii=False)


def figures_of(name: str, fold: int, method: str, args: argparse.Namespace, users: str) -> Iterator[tuple[str, int]]:
    """(key, seed) of the figures that one cell is the mean of: one for each seed, or one where nothing is drawn."""
    if method not in METHODS:
        yield key_of(name, fold, method), 0
        return
    for number in range(args.seeds):
        seed = 10 * number + fold
        yield key_of(name, fold, method, users=users, seed=seed, clients=args.clients, rounds=args.rounds), seed


def compute(args: argparse.Namespace, kept: Kept, folder: Path) -> None:
    """Compute what is not kept, fold by fold, so that an interrupted run has the same folds of every collection."""
    began, folds = time.monotonic(), {name: folds_of(name, args.folds, folder) for name in args.sources}
    for users in args.users.split(","):
        for number in range(1, args.folds + 1):
            for name in args.sources:
                fold = folds[name][number - 1]
                for method in (SHIPPED_RANKING, *SUPERVISED, *METHODS):
                    for key, seed in figures_of(name, number, method, args, users):
                        if key in kept:
                            continue
                        if method in METHODS:
                            kept[key] = federated(fold, method, users, seed, args.clients, args.rounds)["offline"]
                        else:
                            kept[key] = supervised(fold, method)
                        if args.out:
                            with args.out.open("a") as file:
                                file.write(json.dumps([key, kept[key], fold.feature], ensure_ascii=False) + "\n")
                        print(f"{time.monotonic() - began:4.0f} s {key} {kept[key]:.4f}", file=sys.stderr, flush=True)


def tables(args: argparse.Namespace, kept: Kept) -> Iterator[str]:
    """Yield the lines of a table for the supervised rankers and of one for each kind of users."""

    def means(name: str, method: str, users: str = "") -> list[float]:
        cells = [figures_of(name, fold, method, args, users) for fold in range(1, args.folds + 1)]
        return [float(np.mean([kept[key] for key, _ in cell])) for cell in cells]

    def percent(share: tuple[float, float] | None) -> str:
        if share is None:
            return "no gap"
        return f"{100 * share[0]:.0f} %" if math.isnan(share[1]) else f"{100 * share[0]:.0f} ± {100 * share[1]:.0f} %"

    def shown(values: Sequence[float]) -> str:
        mean, error = with_error(values)
        return f"{mean:.3f}" if math.isnan(error) else f"{mean:.3f} ± {error:.3f}"

    names = {name: Path(name).name for name in args.sources}
    shipped = {name: means(name, SHIPPED_RANKING) for name in names}
    ceilings = {name: max((means(name, method) for method in SUPERVISED), key=np.mean) for name in names}
    yield f"| collection | {' | '.join((SHIPPED_RANKING, *SUPERVISED))} | gap |"
    yield "|---|---|---|---|---|"
    for name, short in names.items():
        cells = [shown(means(name, method)) for method in (SHIPPED_RANKING, *SUPERVISED)]
        yield f"| {short} | {' | '.join(cells)} | {shown(np.subtract(ceilings[name], shipped[name]).tolist())} |"
    for users in args.users.split(","):
        yield f"\n{users} users: nDCG@10, share of the gap closed\n"
        yield f"| collection | {' | '.join(METHODS)} |"
        yield "|---" * (1 + len(METHODS)) + "|"
        for name, short in names.items():
            runs = [means(name, method, users) for method in METHODS]
            cells = [f"{np.mean(run):.3f}, {percent(gap_closed(shipped[name], run, ceilings[name]))}" for run in runs]
            yield f"| {short} | {' | '.join(cells)} |"


def check_packages() -> None:
    """Raise BadInput where LightGBM is not installed."""
    sentence = "the supervised ranker needs lightgbm; install it with: pip install 'quorank[bench]'"
    require(find_spec("lightgbm") is not None, "package.missing", sentence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", metavar="SOURCE", default=GENERATED)
    parser.add_argument("--out", type=Path, default=None, help="file that keeps figures, a line each")
    parser.add_argument("--users", default="informational", help="presets of the cascade users, with commas")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="one fold and 30 rounds: whether it works, not how well")
    args = parser.parse_args()
    if args.quick:
        args.folds, args.rounds = 1, 30
    lines = args.out.read_text().splitlines() if args.out and args.out.is_file() else []
    kept = {key: value for key, value, *_ in map(json.loads, lines)}
    try:
        check_packages()
        with TemporaryDirectory() as folder:
            compute(args, kept, Path(folder))
    except BadInput as error:
        sys.exit(f"error: {error}")
    print("\n".join(tables(args, kept)))


if __name__ == "__main__":
    main()
