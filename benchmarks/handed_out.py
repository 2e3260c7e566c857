"""Which mean over the rounds to hand out, judged on collections that played no part in choosing the rule.

    python benchmarks/handed_out.py --out rules.jsonl --shared FOLDER [--part 1/2] [--private]
    python benchmarks/handed_out.py --out rules.jsonl --rules
    python benchmarks/handed_out.py --out rules.jsonl --table "step 30:online" "step 30:last" "step 30:now"

FOLDER holds cisi, med, npl, nfcorpus and mq2008. A run with a long step keeps θ of every round, and all rules are worked
out from that one path: lists come from θ, so that no rule changes them. 100 clients × 300 rounds × B = 4 without privacy;
`--private` has 1,000 clients, ε = 1 for the whole run and the step that suits the noise. The rules look at no validation
split, so text collections are tested on its queries too; "by validation" chooses by it and is tested on the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from server_step import DEPTH, MOST_TEXT_QUERIES

from quorank.arrays import Doubles
from quorank.data import DataSource, load
from quorank.data.letor.writer import write_letor
from quorank.data.ranking import RankingData
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.progress import Progress
from quorank.experiments.runner import Runner
from quorank.experiments.workload import best_ranker
from quorank.federation import Add, Federation
from quorank.privacy import ClippedGaussian, NoPrivacy
from quorank.text import IndexedDocuments, QueryRows, Tokeniser, to_ranking_data
from quorank.text.readers import read_collection
from quorank.users import Cascade

PRESETS, ROUNDS, STEP = ("perfect", "informational"), 300, 30.0
CHOSEN = "by validation"
NOT_PRIVATE = ("mq2008, 200 queries", "nfcorpus")  # these would only take longer
Rule = Callable[[Doubles, Doubles], Doubles]
"""From (rounds,) 1, 2, … and ‖θ‖ of each round to how much the direction of each counts."""

RULES: dict[str, Rule] = {
    "now": lambda t, length: t**-0.4,
    "from R/step": lambda t, length: t**-0.4 * (t >= len(t) / STEP),
    "from R/step, γ 0": lambda t, length: 1.0 * (t >= len(t) / STEP),
    "from R/step, γ −0.75": lambda t, length: t**-0.75 * (t >= len(t) / STEP),
    "from half the length": lambda t, length: t**-0.4 * (length >= length[-1] / 2.0),
    "last half": lambda t, length: 1.0 * (t > len(t) / 2.0),
    "γ 0": lambda t, length: t**0.0,
    "θ itself, γ −0.4": lambda t, length: t**-0.4 * length,
    "average = 3.0": lambda t, length: t * (t + 1.0) * (t + 2.0) * length,
    "γ −0.75": lambda t, length: t**-0.75,
    "γ −0.5": lambda t, length: t**-0.5,
}


def rankers_of(path: Doubles) -> dict[str, Doubles]:
    """Return what each rule hands out after a path (rounds, parameters); how long it is changes no list."""
    length, t = np.linalg.norm(path, axis=1), np.arange(1.0, len(path) + 1.0)
    towards = path / np.maximum(length, 1e-300)[:, None]
    found = {name: rule(t, length) @ towards for name, rule in RULES.items()}
    early = found["now"] / np.linalg.norm(found["now"])
    return found | {"half now, half last": early + towards[-1], "last": path[-1]}


def queries_of(data: RankingData, numbers: Any, noise: int = 0, seed: int = 0) -> RankingData:
    """Return these queries, with so many features of noise added, of which about 15 in 100 are not 0."""
    spans = [slice(*data.offsets[q : q + 2]) for q in numbers]
    features = np.concatenate([data.padded[span, : data.n_features] for span in spans])
    draws = np.random.default_rng(seed)
    more = draws.random((len(features), noise)) * (draws.random((len(features), noise)) < 0.15)
    offsets = np.cumsum([0] + [span.stop - span.start for span in spans])
    labels = np.concatenate([data.labels[span] for span in spans])
    return RankingData.from_arrays(np.hstack([features, more]), labels, offsets)


def judged(data: RankingData) -> list[int]:
    """Return the queries that have a relevant document."""
    return [q for q, span in enumerate(pairwise(data.offsets)) if data.labels[slice(*span)].max() > 0]


def text_rows(folder: Path) -> list[QueryRows]:
    """Return the queries of a text collection with the features of their first documents by BM25."""
    collection = read_collection(folder).without_empty()
    index, tokeniser, rows = IndexedDocuments.build(collection.documents), Tokeniser(), []
    for query in collection.queries:
        grades, terms = collection.judgements.get(query.id, {}), tokeniser.tokenise(query.text)
        found = index.best(terms, DEPTH)
        labels = [grades.get(index.ids[row], 0) for row in found]
        if len(found) >= 5 and max(labels) > 0 and len(rows) < MOST_TEXT_QUERIES:
            ids = [index.ids[row] for row in found]
            rows.append(QueryRows(query.id, ids, index.features(terms, found), labels))
    return rows


def sources(shared: Path, folder: Path) -> Iterator[tuple[str, int, Callable[[], DataSource]]]:
    """Yield (collection, seed, how to make it), those first that had no part in choosing."""

    def written(name: str, seed: int, splits: dict[str, RankingData]) -> DataSource:
        made = folder / f"{name}-{seed}".replace(" ", "-")
        made.mkdir(exist_ok=True)
        for split, data in splits.items():
            write_letor(data, made / f"{split}.txt")
        return DataSource(str(made))

    texts: dict[str, list[QueryRows]] = {}

    def text(name: str, seed: int) -> DataSource:
        rows = texts.setdefault(name, [])
        rows.extend([] if rows else text_rows(shared / name))
        order = np.random.default_rng(seed).permutation(len(rows))
        cuts = (0, int(0.6 * len(rows)), int(0.8 * len(rows)), len(rows))
        parts = [to_ranking_data([rows[i] for i in order[first:last]]) for first, last in pairwise(cuts)]
        return written(name, seed, dict(zip(("train", "vali", "test"), parts, strict=True)))

    def letor(name: str, seed: int, queries: int, noise: int) -> DataSource:
        whole = load(DataSource(str(shared / "mq2008"), fold=(seed - 1) % 5 + 1, normalize="none"))
        order = np.random.default_rng(seed).permutation(judged(whole.train))[:queries]
        test = queries_of(whole.test, judged(whole.test), noise, seed + 1000)
        return written(name, seed, {"train": queries_of(whole.train, order, noise, seed), "test": test})

    for seed in range(71, 81):
        for name in ("cisi", "med", "npl"):
            yield name, seed, lambda name=name, seed=seed: text(name, seed)  # type: ignore[misc]
        for kind, queries in (("mq2007", 300), ("mslr", 200)):
            source = DataSource(f"synthetic:{kind}", queries=queries, seed=seed)
            yield f"generated {kind}, {queries} queries", seed, lambda source=source: source  # type: ignore[misc]
        for queries, noise in ((63, 0), (200, 0), (200, 254)):
            name = f"mq2008, {queries} queries" + (f", {46 + noise} features" if noise else "")
            how = (name, seed, queries, noise)
            yield name, seed, lambda how=how: letor(*how)  # type: ignore[misc]
        if seed in (71, 72, 76, 77):
            yield "nfcorpus", seed, lambda seed=seed: text("nfcorpus", seed)  # type: ignore[misc]


def play(source: DataSource, preset: str, seed: int, federation: Federation) -> tuple[Runner, Doubles, float]:
    """Return a finished run, θ after each round, and the mean online nDCG@10."""
    experiment = Experiment(
        source, users=Cascade(preset), federation=federation, rounds=ROUNDS, evaluation=EvaluationPlan(every=ROUNDS),
        seed=seed,
    )  # fmt: skip
    runner, path = Runner(experiment, threads=1), []

    def keep(progress: Progress) -> None:
        if runner.state is not None:
            path.append(runner.state.theta)

    progress = runner.run(watch=keep)
    assert len(path) == ROUNDS
    return runner, np.array(path), progress.online_mean()


def figures_of(runner: Runner, rankers: dict[str, Doubles]) -> dict[str, tuple[float, float]]:
    """Return nDCG@10 and MaxRR of each ranker, and of the one that the validation split chooses."""
    test, validation = runner.evaluator, runner.workload.validation
    parts = [test.per_query([*rankers.values()])]
    columns = [test.counted()]
    if validation is not None:
        parts.append(validation.per_query([*rankers.values()]))
        columns.append(validation.counted())
    ndcg, reciprocal = (np.hstack([part[i][:, c] for part, c in zip(parts, columns, strict=True)]) for i in range(2))
    found = {
        n: (float(a), float(b)) for n, a, b in zip(rankers, ndcg.mean(axis=1), reciprocal.mean(axis=1), strict=True)
    }
    if validation is not None:
        names = [name for name in ("now", "γ −0.75", "γ −0.5", "γ 0", "last") if name in rankers]
        rows = [[*rankers].index(name) for name in names]
        chosen = rows[best_ranker(parts[1][0][rows][:, columns[1]])]
        found[CHOSEN] = tuple(float(part[chosen, columns[0]].mean()) for part in parts[0])
    return found


def methods(private: bool, rounds: int) -> dict[str, Federation]:
    """Return the federations to play; the first is plain FPDGD."""
    if not private:
        return {
            "plain": Federation(100),
            "step 30": Federation(100, server=Add(STEP)),
            "step 10": Federation(100, server=Add(10.0)),
        }
    guard = ClippedGaussian(1.0, 1e-5, 0.05)
    step = guard.recommended_step(Federation(1000, privacy=guard).setting(rounds, 1))
    return {
        "plain 1000": Federation(1000, privacy=NoPrivacy()),
        "private": Federation(1000, privacy=guard, server=Add(float(f"{step:.3g}"))),
        "private, momentum": Federation(1000, privacy=guard, server=Add(float(f"{step:.3g}")), client_momentum=0.95),
    }


def changes(lines: list[dict[str, Any]]) -> dict[tuple[str, str], dict[tuple[str, str], Doubles]]:
    """Return, by method and rule, then by collection and clicks, changes against plain FPDGD in % of its mean."""
    plain = {(line["data"], line["users"], line["seed"]): line for line in lines if line["method"].startswith("plain")}
    pairs: dict[tuple[str, str], dict[tuple[str, str], list[tuple[float, float]]]] = {}
    for line in lines:
        key = line["data"], line["users"], line["seed"]
        if line["method"].startswith("plain") or key not in plain:
            continue
        base, found = plain[key], {"online": line["online"]} | {n: of[0] for n, of in line["figures"].items()}
        for rule, value in found.items():
            same = base["online"] if rule == "online" else base["figures"][rule if rule == CHOSEN else "last"][0]
            pairs.setdefault((line["method"], rule), {}).setdefault(key[:2], []).append((value, same))
    ratio = {how: {cell: np.array(of) for cell, of in cells.items()} for how, cells in pairs.items()}
    return {
        how: {cell: (of[:, 0] - of[:, 1]) / of[:, 1].mean() * 100.0 for cell, of in cells.items()}
        for how, cells in ratio.items()
    }


def error(change: Doubles) -> str:
    """Return ± the standard error where there are several runs."""
    return f" ± {change.std(ddof=1) / len(change) ** 0.5:.1f}" if len(change) > 1 else ""


def print_cells(lines: list[dict[str, Any]], columns: list[tuple[str, str]]) -> None:
    """Print a row for each collection and click model: the mean change of each column, ± its standard error."""
    found = changes(lines)
    cells = sorted({cell for column in columns for cell in found[column]}, key=lambda cell: (shaped(cell[0]), *cell))
    print("| collection | clicks | runs | FPDGD |", " | ".join(f"{method}: {rule}" for method, rule in columns), "|")
    print("|---" * (4 + len(columns)) + "|")
    for cell in cells:
        of = [column[cell] if cell in (column := found[how]) else None for how in columns]
        texts = ["" if x is None else f"{x.mean():+.1f}{error(x)}" for x in of]
        here = [x for x in lines if (x["data"], x["users"]) == cell]
        played = {x["seed"] for x in here if not x["method"].startswith("plain")}
        base = [x for x in here if x["method"].startswith("plain") and x["seed"] in played]
        runs = max(len(x) for x in of if x is not None)
        print(
            "|", " | ".join((*cell, f"{runs}", f"{np.mean([x['figures']['last'][0] for x in base]):.3f}", *texts)), "|"
        )


def print_rules(lines: list[dict[str, Any]]) -> None:
    """Print a row for each rule: mean over cells / worst cell, by seeds and by whether the data shaped the rule."""
    heads = ("fresh, 71–75", "fresh, 76–80", "fresh", "others", "all")
    print("| step | rule |", " | ".join(heads), "| cells below −0.3 |")
    print("|---" * (3 + len(heads)) + "|")
    groups = [[x for x in lines if x["seed"] <= 75], [x for x in lines if x["seed"] > 75], lines, lines, lines]
    found = [changes(group) for group in groups]
    for how in found[2]:
        kinds = zip(found, ((False,), (False,), (False,), (True,), (False, True)), strict=True)
        means = [[x.mean() for cell, x in of.get(how, {}).items() if shaped(cell[0]) in kind] for of, kind in kinds]
        texts = [f"{np.mean(x):+.2f} / {min(x):+.1f}" if x else "" for x in means]
        print("|", " | ".join((*how, *texts, f"{sum(x < -0.3 for x in means[-1])} of {len(means[-1])}")), "|")


def shaped(name: str) -> bool:
    """Return whether other runs on this collection were looked at when the rule was chosen."""
    return name.startswith(("mq2008", "nfcorpus"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of runs, a line each")
    parser.add_argument("--shared", type=Path, help="folder of the collections")
    parser.add_argument("--part", default="1/1", help="play every n-th run only, so that several processes share them")
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each collection at most")
    parser.add_argument(
        "--table", dest="columns", nargs="+", metavar="METHOD:RULE", help="print cells of these columns"
    )
    parser.add_argument("--rules", action="store_true", help="print all rules: mean over cells / worst cell")
    args = parser.parse_args()
    if args.columns or args.rules:
        lines = [json.loads(line) for line in args.out.read_text().splitlines()]
        if args.rules:
            print_rules(lines)
        else:
            print_cells(lines, [tuple(column.split(":")) for column in args.columns])
        return
    part, parts = map(int, args.part.split("/"))
    lines = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {(line["data"], line["seed"], line["users"], line["method"]) for line in lines}
    with TemporaryDirectory() as folder:
        for number, (name, seed, make) in enumerate(sources(args.shared, Path(folder))):
            if number % parts != part - 1 or seed > 70 + args.seeds or (args.private and name in NOT_PRIVATE):
                continue
            source = make()
            for preset in PRESETS:
                for method, federation in methods(args.private, ROUNDS).items():
                    if (name, seed, preset, method) in known:
                        continue
                    runner, path, online = play(source, preset, seed, federation)
                    rankers = {"last": path[-1]} if method.startswith("plain") else rankers_of(path)
                    line = {"data": name, "seed": seed, "users": preset, "method": method, "online": online}
                    with args.out.open("a") as file:
                        file.write(json.dumps({**line, "figures": figures_of(runner, rankers)}) + "\n")


if __name__ == "__main__":
    main()
