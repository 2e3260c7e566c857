"""What we recommend, with and without privacy, beside plain FPDGD and our other methods.

    python benchmarks/recommendation.py SOURCE... --out runs.jsonl [--methods "recommended;private, ε = 0.5"]
        [--users perfect,navigational,informational] [--folds 3] [--clients 1000] [--rounds 300]
        [--train-queries 63] [--noise-features 254] [--without-validation]
    python benchmarks/recommendation.py [SOURCE...] --out runs.jsonl --table

A SOURCE is what `[data] source` takes. Methods are the shipped experiment files with nothing tuned; folds are those of
`ceilings.py`, and the run's seed is the number of the fold. `--train-queries` keeps so many training queries with a
relevant document, drawn at random, and a third as many for validation; `--noise-features` adds features that say nothing,
of which 15 in 100 are not 0; `--without-validation` leaves that split out. Every run is a line of the file and is not
played again; several processes may write to one file. The table has the change of each method against plain FPDGD of
the same fold in % of its mean, offline / online, with the standard error over folds; then for each method the mean
over cells, the worst cell, and how many are below −0.3 % and −1 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from ceilings import METHODS, Figures, Fold, federated, folds_of

from quorank.data import DataSource, RankingData, load
from quorank.data.letor.writer import write_letor
from quorank.data.source import SYNTHETIC
from quorank.errors import BadInput
from quorank.kernels.arrays import Doubles

PLAIN = "FPDGD"
DEFAULT = "recommended;private, ε = 2;private, ε = 1;private, ε = 0.5"
CELL = ("data", "train_queries", "noise_features", "validation", "clients", "rounds", "users")
LEAST = -0.3
"""Change in % below which a cell is counted."""


def judged(data: RankingData) -> list[int]:
    """Return the queries that have a relevant document."""
    return [q for q in range(data.n_queries) if data.labels[slice(*data.offsets[q : q + 2])].max() > 0]


def thinned(data: RankingData, most: int | None, noise: int, draws: np.random.Generator) -> RankingData:
    """Return at most so many queries with a relevant document, with so many features of noise added."""
    kept = draws.permutation(judged(data))[:most]
    rows = np.concatenate([np.arange(*data.offsets[q : q + 2]) for q in kept])
    more = draws.random((len(rows), noise)) * (draws.random((len(rows), noise)) < 0.15)
    offsets = np.cumsum([0, *np.diff(data.offsets)[kept]])
    return RankingData.from_arrays(np.hstack([data.features[rows], more]), data.labels[rows], offsets)


def changed(fold: Fold, number: int, args: argparse.Namespace, folder: Path) -> Fold:
    """Return the fold with fewer training queries, more features or no validation split, as the options say."""
    queries, noise = args.train_queries, args.noise_features
    if queries is None and noise == 0 and not args.without_validation:
        return fold
    source = fold.source
    whole = load(DataSource(source.source, fold=source.fold, seed=source.seed, normalize="none"))
    made = folder / f"{Path(source.source).name.replace(':', '-')}-{number}"
    made.mkdir(exist_ok=True)
    splits = {
        "train": (whole.train, queries),
        "vali": (whole.validation, queries and queries // 3),
        "test": (whole.test, None),
    }
    for at, (name, (data, most)) in enumerate(splits.items()):
        if data is not None and not (name == "vali" and args.without_validation):
            write_letor(thinned(data, most, noise, np.random.default_rng([number, at])), made / f"{name}.txt")
    scaled = "none" if source.source.startswith(SYNTHETIC) else source.normalize
    return Fold(DataSource(str(made), normalize=scaled), fold.feature)


def play(args: argparse.Namespace) -> None:
    """Play what the file does not hold, fold by fold."""
    methods = [PLAIN, *(name for name in args.methods.split(";") if name != PLAIN)]
    with TemporaryDirectory() as folder:
        folds = {name: folds_of(name, args.folds, Path(folder)) for name in args.sources}
        for number in range(1, args.folds + 1):
            for name in args.sources:
                fold = changed(folds[name][number - 1], number, args, Path(folder))
                cell = {
                    "data": Path(name).name,
                    "train_queries": args.train_queries,
                    "noise_features": args.noise_features,
                }
                cell |= {"validation": not args.without_validation, "clients": args.clients, "rounds": args.rounds}
                for users in args.users.split(","):
                    for method in methods:
                        line = cell | {"users": users, "fold": number, "method": method}
                        if line in [{key: each[key] for key in line} for each in read(args.out)]:
                            continue
                        figures = federated(fold, method, users, number, args.clients, args.rounds)
                        with args.out.open("a") as file:
                            file.write(json.dumps(line | {"figures": figures}, ensure_ascii=False) + "\n")
                        print(*line.values(), figures, file=sys.stderr, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of runs; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def change(ours: list[Figures], plain: list[Figures], name: str) -> Doubles:
    """Return (runs,) changes of a figure in % of the plain ones' mean."""
    base = np.array([each[name] for each in plain])
    return np.asarray((np.array([each[name] for each in ours]) - base) / base.mean() * 100.0)


def with_error(found: Doubles) -> str:
    """Return the mean, and its standard error where there are several runs."""
    error = f" ± {found.std(ddof=1) / len(found) ** 0.5:.1f}" if len(found) > 1 else ""
    return f"{found.mean():+.1f}{error}"


def print_table(lines: list[dict[str, Any]], wanted: list[str]) -> None:
    """Print a row for each cell with a wanted method, then one for each method."""
    cells: dict[tuple[Any, ...], dict[str, dict[int, Figures]]] = {}
    for line in lines:
        cell = tuple(line[key] for key in CELL)
        cells.setdefault(cell, {}).setdefault(line["method"], {})[line["fold"]] = line["figures"]
    methods = [name for name in METHODS if name in wanted and any(name in found for found in cells.values())]
    print(f"| collection | clients × rounds | clicks | folds | FPDGD | {' | '.join(methods)} |")
    print("|---" * (5 + len(methods)) + "|")
    means: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for cell, found in sorted(cells.items(), key=lambda each: tuple(map(str, each[0]))):
        data, queries, noise, validation, clients, rounds, users = cell
        named = data + (f", {queries} queries" if queries else "") + (f", {noise} noise features" if noise else "")
        named += "" if validation else ", no validation"
        plain, texts = found.get(PLAIN, {}), []
        if not plain or found.keys().isdisjoint(methods):
            continue
        for name in methods:
            both = sorted(plain.keys() & found.get(name, {}).keys())
            pairs = [found[name][fold] for fold in both], [plain[fold] for fold in both]
            if both:
                offline, online = (change(*pairs, figure) for figure in ("offline", "online"))
                means[name].append((float(offline.mean()), float(online.mean())))
            texts.append(f"{with_error(offline)} / {with_error(online)}" if both else "")
        own = np.mean([[each["offline"], each["online"]] for each in plain.values()], axis=0)
        row = (named, f"{clients:,} × {rounds:,}", users, len(plain), f"{own[0]:.3f} / {own[1]:.3f}", *texts)
        print("|", " | ".join(map(str, row)), "|")
    print(
        "\n| method | cells | offline: mean / worst | below −0.3 % | below −1 % | online: mean / worst |"
        "\n|---|---|---|---|---|---|"
    )
    for name, of in means.items():
        offline, online = np.array(of).T
        below = f"{np.count_nonzero(offline < LEAST)} | {np.count_nonzero(offline < -1.0)}"
        each = f"{offline.mean():+.2f} / {offline.min():+.1f} | {below} | {online.mean():+.1f} / {online.min():+.1f}"
        print(f"| {name} | {len(of)} | {each} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", metavar="SOURCE")
    parser.add_argument("--out", type=Path, required=True, help="file of runs, a line each")
    parser.add_argument("--methods", default=DEFAULT, help=f"with semicolons, of: {'; '.join(METHODS)}")
    parser.add_argument("--users", default="perfect,navigational,informational", help="presets, with commas")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--train-queries", type=int, default=None)
    parser.add_argument("--noise-features", type=int, default=0)
    parser.add_argument("--without-validation", action="store_true")
    parser.add_argument("--table", action="store_true", help="print the table of the file, or of these sources in it")
    args = parser.parse_args()
    if args.table:
        names = [Path(name).name for name in args.sources]
        print_table([x for x in read(args.out) if not names or x["data"] in names], args.methods.split(";"))
        return
    try:
        play(args)
    except BadInput as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
