"""Aggregation rules under attack, personal rankers against shared ones, and unlearning against retraining.

    python benchmarks/robustness.py STUDY [--data SOURCE] [--rounds N] [--seeds N] [--jobs N] [--out FILE.jsonl]

STUDY is `rules` (every attack on every rule; --clients of which --malicious attack; --rules, --attacks and --presets choose
some), `personal` (type 1 with offsets that clients keep; --clients and --overlap change it) or `unlearning` (ten clients of
which one leaves, honest or malicious; --runs is the folder of its runs). Rules are compared with the mean that nobody
attacks, run by run with the same seed. Figures are means over the seeds, ± is their standard error, ≤ the worst run; every
run is appended to --out as soon as it is done and not made again, so the program can be stopped and started. Prints
Markdown tables; --json FILE also writes them into a file such as docs/results/robustness-tables.json, in place of those
with the same titles.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.reproduce.record import RecordedTable, write_tables

Tables = dict[str, Any]
PRESETS = ("perfect", "navigational", "informational")
MOST_FREE, MOST_ATTACKED = (1.0, 3.0)  # per cent of nDCG@10 that a rule may lose: without attack, under the strongest

RULES: dict[str, Tables] = {
    "mean": {"kind": "mean"},
    "Krum": {"kind": "krum"},
    "Multi-Krum": {"kind": "multi-krum"},
    "trimmed mean": {"kind": "trimmed-mean"},
    "median": {"kind": "median"},
    "geometric median": {"kind": "geometric-median"},
    "centred clipping": {"kind": "centred-clipping"},
    "mixing, trimmed mean": {"kind": "nearest-neighbour-mixing", "then": "trimmed-mean"},
    "mixing, geometric median": {"kind": "nearest-neighbour-mixing", "then": "geometric-median"},
    "mixing, history 0.9": {"kind": "nearest-neighbour-mixing", "history": 0.9},
    "mixing, history 0.97": {"kind": "nearest-neighbour-mixing", "history": 0.97},
    "mixing, history 0.99": {"kind": "nearest-neighbour-mixing", "history": 0.99},
    "spectral filter": {"kind": "spectral-filter"},
    "spectral filter, history 0.97": {"kind": "spectral-filter", "history": 0.97},
    "spectral filter, history 0.98": {"kind": "spectral-filter", "history": 0.98},
    "spectral filter, history 0.99": {"kind": "spectral-filter", "history": 0.99},
    "spectral filter, history 0.995": {"kind": "spectral-filter", "history": 0.995},
    "spectral filter, history 0.97, mean of rankers": {"kind": "spectral-filter", "history": 0.97},
}
SERVERS: dict[str, Tables] = {"spectral filter, history 0.97, mean of rankers": {"kind": "add", "average": 6.0}}
ATTACKS: dict[str, Tables | None] = {
    "none": None,
    "clicks": {"kind": "clicks"},
    "LIE, partial": {"kind": "little-is-enough", "knowledge": "partial"},
    "LIE, full": {"kind": "little-is-enough", "knowledge": "full"},
    "LIE, full, z = 1.5": {"kind": "little-is-enough", "knowledge": "full", "z": 1.5},
    "Fang on Krum, partial": {"kind": "fang", "against": "krum", "knowledge": "partial"},
    "Fang on Krum, full": {"kind": "fang", "against": "krum", "knowledge": "full"},
    "Fang on Multi-Krum, full": {"kind": "fang", "against": "multi-krum", "knowledge": "full"},
    "Fang on trimmed mean, partial": {"kind": "fang", "against": "trimmed-mean", "knowledge": "partial"},
    "Fang on trimmed mean, full": {"kind": "fang", "against": "trimmed-mean", "knowledge": "full"},
    "sign flip": {"kind": "sign-flip"},
    "scaled by −5": {"kind": "scaled", "factor": -5.0},
    "scaled by −1": {"kind": "scaled", "factor": -1.0},
    "inner product, 0.5": {"kind": "inner-product", "factor": 0.5},
    "inner product, 10": {"kind": "inner-product", "factor": 10.0},
    "Min-Max": {"kind": "min-max"},
    "Min-Max, deviation": {"kind": "min-max", "direction": "deviation"},
    "Min-Sum": {"kind": "min-sum"},
    "mimic": {"kind": "mimic"},
    "tailored to the rule, update": {"kind": "tailored"},
    "tailored, deviation": {"kind": "tailored", "against": "deviation"},
    "tailored, memory": {"kind": "tailored", "against": "memory"},
    "tailored, memory, decoys": {"kind": "tailored", "against": "memory", "decoys": True},
    "tailored, update, apart": {"kind": "tailored", "apart": True},
    "two-phase": {"kind": "two-phase"},
    "two-phase, axis": {"kind": "two-phase", "after": "axis"},
    "two-phase, from round 150": {"kind": "two-phase", "turn": 150},
    "two-phase, second alone": {"kind": "two-phase", "turn": 0},
    "sleeping": {"kind": "two-phase", "before": "honest"},
    "sleeping, axis": {"kind": "two-phase", "before": "honest", "after": "axis"},
    "sleeping, axis, from round 150": {"kind": "two-phase", "before": "honest", "turn": 150, "after": "axis"},
    "axis in all rounds": {"kind": "two-phase", "turn": 0, "after": "axis"},
    "adaptive: memory, then axis from round 100": {
        "kind": "two-phase",
        "before": "memory",
        "turn": 100,
        "after": "axis",
    },
}
UNLEARNED: tuple[Literal["published", "fresh"], ...] = ("published", "fresh")
PERSONAL: dict[str, Tables] = {
    "IID, by merged labels": {"partition": {"iid": True}},
    "IID, by own preference": {"partition": {"iid": True, "judged": "preferences"}},
    "non-IID": {},
    "non-IID, server step 4": {"server": {"kind": "add", "step": 4.0}},
    **{
        f"offset, rate {rate:g}, decay {decay:g}": {"personal": {"kind": "offset", "rate": rate, "decay": decay}}
        for rate, decay in ((0.3, 0.0), (1.0, 0.0), (3.0, 0.0), (1.0, 0.001), (1.0, 0.01), (3.0, 0.01))
    },
    "each client alone": {"personal": {"kind": "offset"}, "server": {"kind": "add", "step": 1e-12}},
}


def rule_tables(rule: str, attack: str, args: argparse.Namespace) -> Tables:
    """The experiment of a rule under an attack."""
    part = RULES[rule] | ({} if rule == "mean" else {"byzantine": args.malicious})
    hostile = ATTACKS[attack]
    server = {"server": SERVERS[rule]} if rule in SERVERS else {}
    tables: Tables = {"federation": {"clients": args.clients, "aggregation": part} | server}
    return tables if hostile is None else tables | {"attack": hostile | {"clients": args.malicious}}


def personal_tables(name: str, args: argparse.Namespace) -> Tables:
    """The experiment of one method for clients with preferences of their own."""
    how = PERSONAL[name]
    own = {key: how[key] for key in ("personal", "server") if key in how}
    partition = {"kind": "preferences", "preferences": 4, "overlap": args.overlap} | how.get("partition", {})
    return {"partition": partition, "federation": {"clients": args.clients} | own}


def run_once(tables: Tables) -> tuple[float, float]:
    """(offline, online) nDCG@10 of one run."""
    from quorank.experiments.runner import Runner

    experiment = Experiment.read(ExperimentFile(tables, "robustness"))
    progress = Runner(experiment, threads=1).run()
    return progress.last("offline_ndcg@10"), progress.online_mean()


class Runs:
    """The figures of runs by their settings, kept in a file with a line for each run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.path = args, args.out
        self.known: dict[str, list[float]] = {}
        if self.path and self.path.is_file():
            for line in self.path.read_text().splitlines():
                key, figures = json.loads(line)
                self.known[key] = figures

    def tables(self, tables: Mapping[str, Any], preset: str, seed: int) -> Tables:
        rounds = self.args.rounds
        federation = tables["federation"] | {"interactions": self.args.interactions, "rounds": rounds}
        return {
            **tables,
            "seed": seed,
            "data": {"source": self.args.data},
            "users": {"kind": "cascade", "preset": preset},
            "federation": federation,
            "evaluation": {"every": rounds},
        }

    def make(self, wanted: list[Mapping[str, Any]]) -> None:
        """Run all of these settings that are not known yet, side by side."""
        cells = [
            self.tables(t, preset, seed)
            for seed in range(1, self.args.seeds + 1)
            for t in wanted
            for preset in self.args.presets
        ]
        missing = {key: cell for cell in cells if (key := json.dumps(cell, sort_keys=True)) not in self.known}
        with ProcessPoolExecutor(self.args.jobs) as pool:
            for number, (key, figures) in enumerate(
                zip(missing, pool.map(run_once, missing.values()), strict=True), start=1
            ):
                self.known[key] = list(figures)
                if self.path:
                    with self.path.open("a") as out:
                        out.write(json.dumps([key, list(figures)]) + "\n")
                if number % 20 == 0 or number == len(missing):
                    print(f"run {number} of {len(missing)}", file=sys.stderr, flush=True)

    def figures(self, tables: Mapping[str, Any], preset: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(seeds, 2) offline and online."""
        cells = (self.tables(tables, preset, seed) for seed in range(1, self.args.seeds + 1))
        return np.array([self.known[json.dumps(cell, sort_keys=True)] for cell in cells])


def rules(runs: Runs) -> list[RecordedTable]:
    """A table for each click model: the loss of every rule under every attack; then the worst of each rule."""
    args = runs.args
    chosen, attacks = args.rules or list(RULES), args.attacks or list(ATTACKS)
    honest = rule_tables("mean", "none", args)
    runs.make([honest, *(rule_tables(rule, attack, args) for attack in attacks for rule in chosen)])
    lost: dict[tuple[str, str, str], tuple[float, float]] = {}
    tables = []
    who = f"{args.malicious} of {args.clients} clients malicious"
    setting = f"{args.data}, {who}, B = {args.interactions}, {args.rounds} rounds"
    for preset in args.presets:
        base = runs.figures(honest, preset)[:, 0]
        rows = []
        for attack in attacks:
            cells = []
            for rule in chosen:
                change = 100.0 * (base - runs.figures(rule_tables(rule, attack, args), preset)[:, 0]) / base.mean()
                error = float(change.std(ddof=1)) / math.sqrt(len(change)) if len(change) > 1 else 0.0
                lost[rule, attack, preset] = float(change.mean()), error
                cells.append(f"{shown(change.mean())} ±{error:.1f} (≤\u00a0{shown(change.max())})")
            rows.append((attack, *cells))
        about = (
            f"Loss of offline nDCG@10 in % against the mean without attack ({base.mean():.4f}), {args.seeds} seeds; "
            "± standard error, ≤ worst run."
        )
        head = (f"{preset} clicks", *chosen)
        tables.append(RecordedTable(f"Attacks: {setting}, {preset} clicks", head, tuple(rows), about, command()))
    worst = verdicts(lost, chosen, attacks, args.presets)
    return [*tables, RecordedTable(f"Worst attacks: {setting}", WORST, worst, AIM, command())]


def command() -> str:
    """The command line of this program without the names of its own files."""
    words = [f'"{word}"' if " " in word else word for word in sys.argv[1:]]
    for option in ("--out", "--json", "--jobs", "--runs"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return " ".join(["python benchmarks/robustness.py", *words])


def shown(loss: float) -> str:
    """One decimal, without a minus before zero."""
    return f"{round(loss, 1) + 0.0:.1f}".replace("-", "−")


AIM = f"Loss in %. Aim: at most {MOST_FREE:g} % without attack, and {MOST_ATTACKED:g} % under the worst attack."
WORST = ("rule", "without attack", "worst of the published attacks", "worst of those tailored to the rule", "aim")


def verdicts(
    lost: Mapping[tuple[str, str, str], tuple[float, float]], chosen: list[str], attacks: list[str], presets: list[str]
) -> tuple[tuple[str, ...], ...]:
    """Rows of WORST: the loss without attack, and the worst attack over the click models, by what the attacker knows."""
    hostile = [attack for attack in attacks if attack != "none"]
    fitted = [name for name in hostile if (ATTACKS[name] or {})["kind"] in ("tailored", "two-phase")]
    published = [attack for attack in hostile if attack not in fitted]
    rows = []
    for rule in chosen:
        free = max((lost[rule, "none", preset][0] for preset in presets), default=0.0) if "none" in attacks else 0.0
        worst = [
            max((*lost[rule, attack, preset], attack, preset) for attack in group for preset in presets)
            for group in (published, fitted)
            if group
        ]
        good = free <= MOST_FREE and max((loss for loss, *_ in worst), default=0.0) <= MOST_ATTACKED
        cells = [f"{shown(loss)} ±{error:.1f} % ({attack}, {preset})" for loss, error, attack, preset in worst]
        cells += ["–"] * (2 - len(cells))
        rows.append((rule, f"{shown(free)} %", *cells, "met" if good else "missed"))
    return tuple(rows)


def personal(runs: Runs) -> list[RecordedTable]:
    """Offline and online nDCG@10 on type 1, and the share of the gap to the IID twin that is closed."""
    args = runs.args
    runs.make([personal_tables(name, args) for name in PERSONAL])
    tables = []
    for preset in args.presets:
        twin = runs.figures(personal_tables("IID, by merged labels", args), preset)
        plain = runs.figures(personal_tables("non-IID", args), preset)
        gap = (twin - plain).mean(axis=0)
        rows = []
        for name in PERSONAL:
            found = runs.figures(personal_tables(name, args), preset)
            share = (found - plain).mean(axis=0) / gap
            sd = found.std(axis=0, ddof=1) if len(found) > 1 else np.zeros(2)
            cells = [(f"{found[:, i].mean():.4f} ±{sd[i]:.4f}", f"{100.0 * share[i]:.0f} %") for i in range(2)]
            rows.append((name, *cells[0], *cells[1]))
        title = f"Personal rankers: {args.data}, {args.clients} clients, overlap {args.overlap:g}, {preset} clicks"
        head = (preset, "offline", "of the gap", "online", "of the gap")
        tables.append(RecordedTable(title, head, tuple(rows), f"nDCG@10 over {args.seeds} seeds.", command()))
    return tables


def unlearned(args: argparse.Namespace, preset: str, seed: int, malicious: bool) -> dict[str, float]:
    """nDCG@10 before, retrained and rebuilt by every method with n′ = 3 and n′ = B, of one run."""
    from quorank.experiments import run_directory as storage
    from quorank.experiments.runner import run_experiment
    from quorank.experiments.unlearning.request import Unlearning
    from quorank.reproduce.figure import folds_of

    name = f"{Path(args.data.replace(':', '-')).name}-{preset}-{seed}-{'attack' if malicious else 'honest'}"
    folder, folds = args.runs / name, folds_of(args.data)
    data: Tables = {"source": args.data, "fold": (seed - 1) % folds + 1}
    if args.data == "synthetic:mslr":
        data["queries"] = 1000
    tables: Tables = {
        "seed": seed,
        "data": data,
        "users": {"kind": "cascade", "preset": preset},
        "federation": {"clients": 10, "interactions": args.interactions, "rounds": args.rounds, "keep_every": 5},
        "evaluation": {"every": args.rounds},
    }
    if malicious:
        tables["attack"] = {"kind": "sign-flip", "clients": 1}
    if not storage.is_finished(folder):
        args.runs.mkdir(parents=True, exist_ok=True)
        run_experiment(Experiment.read(ExperimentFile(tables, "unlearning")), folder, threads=1, overwrite=True)
    kept = folder / "retrained.json"
    if not kept.is_file():
        theta, _ = Unlearning(folder, (0,), threads=1).retrained()
        kept.write_text(json.dumps(theta.tolist()))
    request = Unlearning(folder, (0,), threads=1)
    before, retrained = request.ndcg(request.before, np.array(json.loads(kept.read_text())))
    found = {"before": before, "retrained": retrained}
    for method in UNLEARNED:
        for steps in (3, args.interactions):
            request = Unlearning(folder, (0,), 10, steps, threads=1, method=method)
            found[f"{method}, n′ = {steps}"] = request.ndcg(request.rebuilt.theta)[0]
    return found


def unlearning(runs: Runs) -> list[RecordedTable]:
    """How far from retraining each way of rebuilding ends, in per cent of its nDCG@10."""
    args, rows = runs.args, []
    ways: list[str] = []
    for malicious in (True, False):
        for preset in args.presets:
            found = [unlearned(args, preset, seed, malicious) for seed in range(1, args.seeds + 1)]
            ways = [name for name in found[0] if name not in ("before", "retrained")]
            means = [f"{np.mean([f[name] for f in found]):.4f}" for name in ("before", "retrained")]
            cells = []
            for way in ways:
                gaps = 100.0 * np.array([f[way] / f["retrained"] - 1.0 for f in found])
                each = ", ".join(shown(gap) for gap in gaps)
                cells.append(f"{shown(gaps.mean())} ({each})")
            rows.append((f"{'attack' if malicious else 'honest'}, {preset}", *means, *cells))
    about = "Change of offline nDCG@10 against retraining without the client in %: mean, and each run."
    title = f"Unlearning: {Path(args.data).name}, {args.rounds} rounds"
    return [RecordedTable(title, ("", "before", "retrained", *ways), tuple(rows), about, command())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {"rules": rules, "personal": personal, "unlearning": unlearning}
    parser.add_argument("study", choices=list(studies))
    parser.add_argument("--data", default="synthetic:mq2007", help="a [data] source")
    parser.add_argument("--clients", type=int, default=None, help="100 of the rules study, 4 of the personal study")
    parser.add_argument("--malicious", type=int, default=30, help="of the clients of the rules study")
    parser.add_argument("--overlap", type=float, default=0.0, help="of preferences, in the personal study")
    parser.add_argument("--rules", nargs="*", choices=list(RULES), help="some of the rules; by default all")
    parser.add_argument("--attacks", nargs="*", choices=list(ATTACKS), help="some of the attacks; by default all")
    parser.add_argument("--presets", nargs="*", choices=PRESETS, default=list(PRESETS), help="click models")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--interactions", type=int, default=5, help="B")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="file that keeps the figures of all runs, a line each")
    parser.add_argument("--json", type=Path, default=None, help="file of tables that takes those of this study")
    parser.add_argument("--runs", type=Path, default=Path("runs/unlearning"), help="of the unlearning study")
    args = parser.parse_args()
    args.clients = args.clients or (100 if args.study == "rules" else 4)
    tables = studies[args.study](Runs(args))
    print("\n".join(line for table in tables for line in table.markdown()))
    if args.json:
        write_tables(tables, args.json)


if __name__ == "__main__":
    main()
