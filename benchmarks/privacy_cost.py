"""Cost of accounted privacy: nDCG@10 over ε, against FPDGD without privacy.

    python benchmarks/privacy_cost.py STUDY [--data SOURCE] [--out FILE.json]

    python benchmarks/privacy_cost.py picture --out FILE.json --picture FILE.png

STUDY is `table` (whole-run ε = 8 and 2 with 1,000 clients), `curve` (ε from 0.25 to 16 for 100, 1,000 and 10,000
clients), `parts` (the effect of the clip, the step and the average), `releases` (the same clicks in fewer, larger
updates) or `momentum` (clients that carry momentum, ε = 0.5 to 2). Every figure is the mean over the folds (or as many
generated collections) and the given seeds, with the standard error of its paired difference from FPDGD. Runs are kept in
--out and not made twice. Prints Markdown.

The studies keep the server that they were made with: a step with which the noise of the whole run is at most 0.8 on each
weight, and `average = 3.0`. What `quorank run private` does now is measured by `recommendation.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data import DataSource
from quorank.experiments.experiment import EvaluationPlan, Experiment
from quorank.experiments.runner import Runner
from quorank.federation import Add, Federation
from quorank.privacy import ClippedGaussian, Setting, accounting
from quorank.users import Cascade

PRESETS = ("perfect", "navigational", "informational")
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
CLIP, DELTA, ROUNDS = 0.05, 1e-5, 300


class Runs:
    """Figures of runs by their settings, kept in a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, tuple[float, float]] = json.loads(path.read_text()) if path and path.is_file() else {}

    def figures(self, name: str, preset: str, fold: int, seed: int, **how: Any) -> tuple[float, float]:
        """(offline, online) nDCG@10 of one run."""
        short = "generated" if name.startswith("synthetic:") else Path(name).name
        key = json.dumps([short, preset, fold, seed, how], sort_keys=True)
        if key not in self.known:
            self.known[key] = run_once(name, preset, fold, seed, **how)
            print(key, *np.round(self.known[key], 4), file=sys.stderr, flush=True)
            if self.path:
                self.path.write_text(json.dumps(self.known))
        return self.known[key]


def run_once(
    name: str,
    preset: str,
    fold: int,
    seed: int,
    *,
    clients: int = 1000,
    epsilon: float | None = None,
    clip: float = CLIP,
    step: float | None = None,
    average: float | None = 3.0,
    interactions: int = 4,
    rounds: int = ROUNDS,
    momentum: float = 0.0,
) -> tuple[float, float]:
    """One run: FPDGD as published without ε, else accounted noise."""
    source = DataSource(name, seed=fold) if name.startswith("synthetic:") else DataSource(name, fold=fold)
    if epsilon is None:
        federation = Federation(clients, interactions)
    else:
        setting = Setting(clients, clients, rounds)
        z = accounting.noise_multiplier(setting, epsilon, DELTA)
        server = Add(step or min(2.0, 0.8 * clients / (z * rounds**0.5)) / clip, average)
        privacy = ClippedGaussian(epsilon, DELTA, clip)
        federation = Federation(clients, interactions, server=server, privacy=privacy, client_momentum=momentum)
    plan = EvaluationPlan(every=rounds)
    experiment = Experiment(
        source, users=Cascade(preset), federation=federation, rounds=rounds, evaluation=plan, seed=seed
    )
    progress = Runner(experiment).run()
    return progress.last("offline_ndcg@10"), progress.online_mean()


def pairs_of(args: argparse.Namespace) -> list[tuple[int, int]]:
    """(fold, seed) of every run. No two share a seed, which is also that of the noise."""
    return [(fold, 10 * number + fold) for fold in range(1, args.folds + 1) for number in range(args.seeds)]


def compared(runs: Runs, args: argparse.Namespace, preset: str, plain: dict[str, Any], **how: Any) -> str:
    """offline and online in one cell: the mean, and the change against FPDGD with its standard error, in %."""
    pairs = pairs_of(args)
    private = np.array([runs.figures(args.data, preset, f, s, **how) for f, s in pairs])
    base = np.array([runs.figures(args.data, preset, f, s, **plain) for f, s in pairs])
    change = (private - base) / base.mean(axis=0) * 100.0
    error = change.std(axis=0, ddof=1) / np.sqrt(len(pairs))
    cells = [f"{private[:, i].mean():.4f} ({change[:, i].mean():+.1f} ± {error[i]:.1f} %)" for i in range(2)]
    return " | ".join(cells)


def base_cells(runs: Runs, args: argparse.Namespace, preset: str, **plain: Any) -> str:
    pairs = pairs_of(args)
    offline, online = np.array([runs.figures(args.data, preset, f, s, **plain) for f, s in pairs]).mean(axis=0)
    return f"{offline:.4f} | {online:.4f}"


def table(runs: Runs, args: argparse.Namespace) -> None:
    """Two whole-run budgets, generous and strict: ε = 8 and ε = 2."""
    print("| clicks | | offline | online |\n|---|---|---|---|")
    for preset in PRESETS:
        print(f"| {preset} | FPDGD, no privacy | {base_cells(runs, args, preset)} |")
        for epsilon in (8.0, 2.0):
            print(f"| {preset} | ε = {epsilon:g} | {compared(runs, args, preset, {}, epsilon=epsilon)} |", flush=True)


def curve(runs: Runs, args: argparse.Namespace) -> None:
    """nDCG over ε for growing federations."""
    print("| clients | clicks | ε | offline | online |\n|---|---|---|---|---|")
    for clients in args.clients:
        for preset in PRESETS:
            plain = {"clients": clients}
            print(f"| {clients:,} | {preset} | none: FPDGD | {base_cells(runs, args, preset, **plain)} |")
            for epsilon in EPSILONS:
                cells = compared(runs, args, preset, plain, clients=clients, epsilon=epsilon)
                print(f"| {clients:,} | {preset} | {epsilon:g} | {cells} |", flush=True)


def parts(runs: Runs, args: argparse.Namespace) -> None:
    """The effect of each ingredient, at ε = 0.5 with 1,000 clients and at ε = 4 with 100."""
    variants: dict[str, dict[str, Any]] = {
        "all of it": {},
        "without the average": {"average": None},
        "step 20 at any noise": {"step": 20.0},
        "step 1": {"step": 1.0},
        "clip 0.3": {"clip": 0.3},
        "clip 0.01": {"clip": 0.01},
    }
    print("| clients, ε | clicks | variant | offline | online |\n|---|---|---|---|---|")
    for clients, epsilon in ((1000, 0.5), (100, 4.0)):
        for preset in ("perfect", "informational"):
            for words, how in variants.items():
                cells = compared(runs, args, preset, {"clients": clients}, clients=clients, epsilon=epsilon, **how)
                print(f"| {clients:,}, {epsilon:g} | {preset} | {words} | {cells} |", flush=True)


def releases(runs: Runs, args: argparse.Namespace) -> None:
    """B = 4 × 300 rounds against B = 20 × 60 rounds: as many clicks, a fifth of the releases."""
    print("| clients, ε | clicks | B × rounds | offline | online |\n|---|---|---|---|---|")
    for clients, epsilon in ((1000, 0.25), (1000, 0.5), (100, 1.0), (100, 4.0)):
        for preset in ("perfect", "informational"):
            for interactions, rounds in ((4, 300), (20, 60), (60, 20)):
                cells = compared(
                    runs, args, preset, {"clients": clients}, clients=clients, epsilon=epsilon,
                    interactions=interactions, rounds=rounds,
                )  # fmt: skip
                print(f"| {clients:,}, {epsilon:g} | {preset} | {interactions} × {rounds} | {cells} |", flush=True)


def momentum(runs: Runs, args: argparse.Namespace) -> None:
    """Clients that send m ← β·m + update, with 1,000 clients."""
    print("| ε | clicks | β | offline | online |\n|---|---|---|---|---|")
    for preset in PRESETS:
        print(f"| none | {preset} | | {base_cells(runs, args, preset)} |")
        for epsilon, beta in ((0.5, 0.0), (0.5, 0.9), (0.5, 0.95), (0.5, 0.97), (1.0, 0.95), (2.0, 0.95)):
            cells = compared(runs, args, preset, {}, epsilon=epsilon, momentum=beta)
            print(f"| {epsilon:g} | {preset} | {beta:g} | {cells} |", flush=True)


def picture(runs: Runs, args: argparse.Namespace) -> None:
    """The curves of all runs that are kept: change against FPDGD over ε, offline and online."""
    from matplotlib.figure import Figure

    from quorank.reports.panels import PALETTE

    kept: dict[tuple[str, int, float | None], dict[tuple[int, int], tuple[float, float]]] = {}
    for key, values in runs.known.items():
        _, preset, fold, seed, how = json.loads(key)
        if set(how) <= {"clients", "epsilon"} and "clients" in how:
            kept.setdefault((preset, how["clients"], how.get("epsilon")), {})[fold, seed] = values
    figure = Figure((9.0, 5.2), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey="row")
    for column, preset in enumerate(PRESETS):
        for color, clients in zip(PALETTE, sorted({c for _, c, _ in kept}), strict=False):
            base = kept[preset, clients, None]
            for row, words in enumerate(("offline", "online")):
                points = []
                for epsilon in EPSILONS:
                    found = kept.get((preset, clients, epsilon), {})
                    both = [pair for pair in found if pair in base]
                    if both:
                        private = np.mean([found[pair][row] for pair in both])
                        points.append((epsilon, 100.0 * (private / np.mean([base[pair][row] for pair in both]) - 1.0)))
                axes = grid[row, column]
                if points:
                    axes.plot(*zip(*points, strict=True), "o-", ms=3, color=color, label=f"{clients:,} clients")
                axes.set_xscale("log", base=2)
                axes.axhline(0.0, color="#6b727b", lw=0.8)
                axes.set_ylim(-12.0, 11.0)
                axes.grid(alpha=0.3)
                axes.set_title(f"{words}, {preset} clicks", fontsize=9)
                if column == 0:
                    axes.set_ylabel("nDCG@10 against FPDGD, %", fontsize=8)
                if row == 1:
                    axes.set_xlabel("ε of a client, whole run, δ = 1e-5", fontsize=8)
                axes.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS], fontsize=7)
    grid[1, 2].legend(fontsize=8)
    figure.savefig(args.picture, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {"table": table, "curve": curve, "parts": parts, "releases": releases, "momentum": momentum}
    studies["picture"] = picture
    parser.add_argument("study", choices=list(studies))
    parser.add_argument("--data", default="synthetic:mq2007", help="a [data] source")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1, help="runs on every fold")
    parser.add_argument("--clients", type=int, nargs="*", default=[100, 1000, 10_000])
    parser.add_argument("--out", type=Path, default=None, help="file that keeps the figures of all runs")
    parser.add_argument("--picture", type=Path, default=Path("privacy.png"))
    args = parser.parse_args()
    studies[args.study](Runs(args.out), args)


if __name__ == "__main__":
    main()
