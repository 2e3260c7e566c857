"""The recommended server step beside plain FPDGD, the long step alone and evolution strategies, paired by seed.

    python benchmarks/server_step.py --out steps.jsonl [--data SOURCE]... [--users perfect]... [--folds 5] [--seeds 1]
        [--clients 1000] [--rounds 1000] [--train-queries 63] [--evolution]
    python benchmarks/server_step.py --out steps.jsonl --table
    python benchmarks/server_step.py --curve [--data SOURCE] …

A SOURCE is what an experiment file takes, or text:FOLDER, a text collection whose queries' first 50 documents by BM25 are
ranked by the 16 text features (three fifths of the queries train, a fifth validates, a fifth tests, drawn anew for each
fold). Generated collections, text and MSLR's sample have one fold: other data seeds, other draws and other run seeds stand
in for folds. `--train-queries` keeps so many training queries with a relevant document, and a third of that for
validation.

Every run is a line of the file, and runs that are there are not played again. The table shows the change of offline and
online nDCG@10 against plain FPDGD (server = add, step 1) of the same fold and seed, in % of its mean, with the standard
error of the paired differences. One run with the recommended server gives three columns, since what is handed out does not
change what people are shown: the recommendation (chosen by the validation split where there is one), its rule without
a split, and the long step alone, which hands out the last θ. `--curve` prints, means over folds, how θ itself goes on with
step 1 and step 30: its offline nDCG@10 and its length ‖θ‖ after some rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from quorank.arrays import Doubles
from quorank.data import DataSource, load
from quorank.data.letor.writer import write_letor
from quorank.data.ranking import RankingData
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.progress import Progress
from quorank.experiments.runner import Runner
from quorank.federation import Adam, Add, Directions, Federation, Server
from quorank.learning import PDGD, Evolution, Learner
from quorank.text import IndexedDocuments, QueryRows, Tokeniser, to_ranking_data
from quorank.text.readers import read_collection
from quorank.users import Cascade

PRESETS = ("perfect", "navigational", "informational")
METHODS: dict[str, tuple[Learner, Server]] = {
    "plain": (PDGD(), Add()),
    "recommended": (PDGD(), Directions()),
    "evolution": (Evolution(), Adam()),
}
DEPTH, MOST_TEXT_QUERIES = 50, 900
Figures = dict[str, float]


def text_splits(folder: str, fold: int) -> dict[str, RankingData]:
    """Return the splits of a text collection; the fold is the seed of the draw."""
    collection = read_collection(Path(folder)).without_empty()
    index, tokeniser, rows = IndexedDocuments.build(collection.documents), Tokeniser(), []
    for query in collection.queries:
        grades = collection.judgements.get(query.id, {})
        terms = tokeniser.tokenise(query.text)
        found = index.best(terms, DEPTH)
        labels = [grades.get(index.ids[row], 0) for row in found]
        if len(found) >= 5 and max(labels) > 0 and len(rows) < MOST_TEXT_QUERIES:
            ids = [index.ids[row] for row in found]
            rows.append(QueryRows(query.id, ids, index.features(terms, found), labels))
    order = np.random.default_rng(fold).permutation(len(rows))
    cuts = (0, int(0.6 * len(rows)), int(0.8 * len(rows)), len(rows))
    parts = [[rows[i] for i in order[first:last]] for first, last in pairwise(cuts)]
    return dict(zip(("train", "vali", "test"), map(to_ranking_data, parts), strict=True))


def some_queries(data: RankingData, most: int) -> RankingData:
    """Return the first so many queries that have a relevant document."""
    spans = [slice(*data.offsets[q : q + 2]) for q in range(data.n_queries)]
    kept = [span for span in spans if data.labels[span].max() > 0][:most]
    features = np.concatenate([data.padded[span, : data.n_features] for span in kept])
    offsets = np.cumsum([0] + [span.stop - span.start for span in kept])
    return RankingData.from_arrays(features, np.concatenate([data.labels[span] for span in kept]), offsets)


def source_of(name: str, fold: int, train_queries: int | None, folder: Path) -> DataSource:
    """Return the source of a fold; one that is made here is written into the folder first."""
    generated = name.startswith("synthetic:")
    if name.startswith("text:"):
        splits = text_splits(name.removeprefix("text:"), fold)
    elif train_queries is None or generated:
        if generated:
            return DataSource(name, queries=train_queries, seed=fold)
        return DataSource(name, fold=1 if (Path(name) / "train.txt.gz").exists() else fold)
    else:
        whole = load(DataSource(name, fold=fold, normalize="none"))
        splits = {"train": some_queries(whole.train, train_queries), "test": whole.test}
        if whole.validation is not None:
            splits["vali"] = some_queries(whole.validation, train_queries // 3)
    made = folder / f"{Path(name).name}-{fold}-{train_queries}"
    made.mkdir(exist_ok=True)
    for split, data in splits.items():
        write_letor(data, made / f"{split}.txt")
    return DataSource(str(made))


def play(source: DataSource, preset: str, method: str, clients: int, rounds: int, seed: int) -> Figures:
    """Return the figures of one run."""
    learner, server = METHODS[method]
    federation = Federation(clients, learner=learner, server=server)
    plan = EvaluationPlan(every=rounds)
    experiment = Experiment(
        source, users=Cascade(preset), federation=federation, rounds=rounds, evaluation=plan, seed=seed
    )
    runner = Runner(experiment, threads=1)
    progress = runner.run()
    assert runner.state is not None
    figures = {"offline": progress.last("offline_ndcg@10"), "online": progress.online_mean()}
    figures["maxrr"] = progress.last("offline_maxrr")
    choices = runner.experiment.federation.choices(runner.state)
    if choices:
        (rule, last), _ = runner.evaluator.means([next(iter(choices.values())), choices[math.inf]])
        figures |= {"rule": float(rule), "long step": float(last)}
        chosen = progress.choice()
        figures["chosen"] = math.nan if chosen is None else chosen[1]
    return figures


def path_of(experiment: Experiment, marks: Sequence[int]) -> tuple[Runner, list[Doubles]]:
    """Return a finished run and its θ after these rounds."""
    runner, path = Runner(experiment, threads=1), []

    def keep(progress: Progress) -> None:
        if progress.done in marks and runner.state is not None:
            path.append(runner.state.theta)

    runner.run(watch=keep)
    return runner, path


def print_curve(sources: Sequence[DataSource], preset: str, clients: int, rounds: int) -> None:
    """Print a row for each step: offline nDCG@10 and ‖θ‖ of θ after some rounds, means over sources."""
    marks = [max(1, round(rounds * share)) for share in (0.01, 0.03, 0.1, 0.25, 0.5, 1.0)]
    print("| step |", " | ".join(f"round {mark}" for mark in marks), "|")
    print("|---" * (1 + len(marks)) + "|")
    users, plan = Cascade(preset), EvaluationPlan(every=rounds)
    for step in (1.0, 30.0):
        federation, figures = Federation(clients, server=Add(step)), []
        for seed, source in enumerate(sources, 1):
            runner, path = path_of(
                Experiment(source, users=users, federation=federation, rounds=rounds, evaluation=plan, seed=seed), marks
            )
            figures.append([runner.evaluator.means(path)[0], np.linalg.norm(path, axis=1)])
        ndcg, length = np.mean(figures, axis=0)
        print(
            f"| {step:g} |",
            " | ".join(f"{x:.4f} ({y:.1f})" for x, y in zip(ndcg, length, strict=True)),
            "|",
            flush=True,
        )


def paired(lines: Sequence[Figures], base: Sequence[Figures], name: str, of: str) -> str:
    """Return the mean change in % of the mean of `base`, and its standard error where there are several pairs."""
    plain = np.array([each[of] for each in base])
    change = (np.array([each[name] for each in lines]) - plain) / plain.mean() * 100.0
    error = f" ± {change.std(ddof=1) / math.sqrt(len(change)):.1f}" if len(change) > 1 else ""
    return f"{change.mean():+.1f}{error}"


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print a row for each cell: plain FPDGD's figures, and the changes of the others in %."""
    cells: dict[tuple[Any, ...], dict[str, dict[tuple[int, int], Figures]]] = {}
    for line in lines:
        cell = tuple(line[key] for key in ("data", "train_queries", "clients", "rounds", "users"))
        cells.setdefault(cell, {}).setdefault(line["method"], {})[line["fold"], line["seed"]] = line["figures"]
    columns = ("recommended", "rule alone", "long step alone", "evolution strategies")
    print(
        f"| collection | clients × rounds | clicks | runs | FPDGD: online / offline | online | {' | '.join(columns)} |"
    )
    print("|---" * (6 + len(columns)) + "|")
    order = sorted(cells, key=lambda cell: (cell[0], cell[1] or 0, *cell[2:4], PRESETS.index(cell[4])))
    for data, queries, clients, rounds, users in order:
        found = cells[data, queries, clients, rounds, users]
        plain, ours, other = (found.get(method, {}) for method in METHODS)
        both = sorted(plain.keys() & ours.keys())
        if not both:
            continue
        base, mine = [plain[key] for key in both], [ours[key] for key in both]
        changes = [paired(mine, base, name, "offline") for name in ("offline", "rule", "long step")]
        shared = [key for key in both if key in other]
        beside = [[of[key] for key in shared] for of in (other, plain)]
        changes.append(paired(*beside, "offline", "offline") if shared else "")
        own = np.mean([[each["online"], each["offline"]] for each in base], axis=0)
        name = Path(data).name + (f", {queries} queries" if queries else "")
        row = (name, f"{clients:,} × {rounds:,}", users, len(both), f"{own[0]:.3f} / {own[1]:.3f}")
        print("|", " | ".join(map(str, (*row, paired(mine, base, "online", "online"), *changes))), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("steps.jsonl"), help="file of runs, a line each")
    parser.add_argument(
        "--curve", action="store_true", help="print how θ goes on, for the first source and click model"
    )
    parser.add_argument("--table", action="store_true", help="print the table of the file and play nothing")
    parser.add_argument("--data", action="append", default=None, help="a [data] source, or text:FOLDER; repeatable")
    parser.add_argument("--users", action="append", choices=PRESETS, default=None)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--train-queries", type=int, default=None)
    parser.add_argument("--evolution", action="store_true", help="evolution strategies too")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    if args.table:
        print_table(lines)
        return
    if args.curve:
        name, preset = (args.data or ["synthetic:mq2007"])[0], (args.users or PRESETS)[0]
        with TemporaryDirectory() as folder:
            sources = [source_of(name, fold, args.train_queries, Path(folder)) for fold in range(1, args.folds + 1)]
            print_curve(sources, preset, args.clients, args.rounds)
        return
    known = {json.dumps({**line, "figures": None}, sort_keys=True) for line in lines}
    methods = [method for method in METHODS if method != "evolution" or args.evolution]
    with TemporaryDirectory() as folder:
        for name in args.data or ["synthetic:mq2007"]:
            for fold in range(1, args.folds + 1):
                source = source_of(name, fold, args.train_queries, Path(folder))
                for preset in args.users or PRESETS:
                    for seed in range(fold, fold + args.seeds):
                        for method in methods:
                            size = {"clients": args.clients, "rounds": args.rounds, "train_queries": args.train_queries}
                            line = {"data": name, "users": preset, "fold": fold, "seed": seed, "method": method, **size}
                            if json.dumps({**line, "figures": None}, sort_keys=True) in known:
                                continue
                            figures = play(source, preset, method, args.clients, args.rounds, seed)
                            with args.out.open("a") as file:
                                file.write(json.dumps({**line, "figures": figures}) + "\n")
                            print(line, figures, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
