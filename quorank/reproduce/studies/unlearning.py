"""The experiments of thesis chapter 6: a malicious client leaves, and rebuilding without it is compared with retraining.

`shows` chooses between figure 6.2 (the three configurations that are compared), figure 6.3 (the rebuilding on its way to
retraining) and table 6.2 (how much it depends on n′ and Δt). Rebuilding is shown as published, with longer steps
(`stretched`), and by the default of `quorank unlearn`.

The names are the thesis's: 9H-1M has one client that sends −z·θ instead of θ (eq. 6.3), 10H-0M none, 9H-0M is retrained
from the start without that client, and U(9H-1M) is rebuilt from the kept updates. Runs are kept in directories of their
own and the figures in a file beside them, so that nothing is done twice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from quorank import __version__
from quorank.errors import require, require_range
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.run_directory import OFFLINE_NDCG, load_run
from quorank.experiments.runner import run_experiment
from quorank.experiments.unlearning.request import AVERAGE, Method, Unlearning
from quorank.federation.unlearning.methods import Rebuilt, momentum_over, rebuild
from quorank.files.atomic import write_whole
from quorank.files.documents import json_bytes, read_json
from quorank.kernels.arrays import Doubles
from quorank.reports.panels import Curve, Panel
from quorank.reports.report import report_page
from quorank.reproduce.figure import collection_name, fold_of, folds_of
from quorank.reproduce.report import ReportTable
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults

PRESETS = ("perfect", "navigational", "informational")
LEAVER = 0
METHODS = ("published", "stretched", "fresh")
"""Eqs 6.1 and 6.2 to the letter; the same with longer steps; and the default of `quorank unlearn`."""
NDCG = "offline nDCG@10"
ALIKE = 0.01
"""A rebuilt ranker may lose this share of the retrained one's nDCG@10 and counts as the same."""
TENTH = 0.1
"""The share of retraining's local updates within which unlearning is to stay."""
PointsXY = dict[str, list[float]]
"""A curve as figures.json holds it: {"x": …, "y": …}."""


@dataclass(frozen=True)
class UnlearningStudy:
    """Ten clients of which one sends −z·θ; every comparison is made for each collection and click model."""

    kind: ClassVar[str] = "unlearning-curves"

    shows: Literal["configurations", "rebuilding", "effort"] = "rebuilding"
    sources: tuple[str, ...] = ("synthetic:mq2007", "synthetic:mslr")
    queries: int = 1000  # training queries of generated collections
    presets: tuple[str, ...] = PRESETS
    clients: int = 10
    interactions: int = 5  # n, local steps of a round
    rounds: int = 10_000  # T
    z: float = 2.0  # eq. 6.3
    intervals: tuple[int, ...] = (10,)  # Δt
    local_steps: tuple[int, ...] = (3,)  # n′
    points: int = 50  # of a curve

    def __post_init__(self) -> None:
        require(self.sources, "value.missing", "expected at least one collection", "sources")
        known = f"must be some of {', '.join(PRESETS)}, got {list(self.presets)}"
        require(self.presets and set(self.presets) <= set(PRESETS), "value.unknown", known, "presets")
        require_range("clients", self.clients, least=2)  # one of them leaves
        require_range("rounds", self.rounds, least=1)
        require_range("points", self.points, least=1)
        require(self.intervals, "value.missing", "expected at least one number of rounds", "intervals")
        require(self.local_steps, "value.missing", "expected at least one number of steps", "local_steps")
        for interval in self.intervals:
            require_range("intervals", interval, least=1)
        for steps in self.local_steps:
            require_range("local_steps", steps, least=1, most=self.interactions)

    @property
    def step(self) -> int:
        """Rounds between the points of a curve."""
        return max(1, self.rounds // self.points)

    def measure(self, request: StudyRequest) -> StudyResults:
        cases = self._cases(request)
        if self.shows == "configurations":
            return configuration_results(cases)
        return rebuilding_results(self, cases) if self.shows == "rebuilding" else effort_results(self, cases)

    def share(self, interval: int, steps: int) -> float:
        """Return n′·⌈T/Δt⌉/(n·T): local updates of a rebuilding as a share of those of retraining."""
        return steps * -(-self.rounds // interval) / (self.interactions * self.rounds)

    def _cases(self, request: StudyRequest) -> list[UnlearningCase]:
        """Run every collection and click model as often as asked."""
        sources = self.sources if request.data is None else (request.data,)
        total, done, found = len(sources) * len(self.presets) * request.repetitions, 0, []
        for source in sources:
            name, folds = _name(source), folds_of(source)
            for preset in self.presets:
                figures = []
                for repetition in range(1, request.repetitions + 1):
                    request.progress(done, total, f"{name}, {preset}")
                    folder = request.folder / f"{name.replace(':', '-')},{preset},{repetition}"
                    fold = fold_of(repetition, folds)
                    figures.append(UnlearningRuns(self, source, preset, repetition, fold, folder).figures())
                    done += 1
                found.append(UnlearningCase(name, preset, tuple(figures)))
        request.progress(done, total, "all comparisons")
        return found


def _name(source: str) -> str:
    return collection_name(source) + ("-like" if source.startswith("synthetic:") else "")


@dataclass(frozen=True, eq=False)
class UnlearningRuns:
    """Runs of one repetition on one collection with one click model, and the curves from them."""

    study: UnlearningStudy
    source: str
    preset: str
    repetition: int
    fold: int
    folder: Path

    def experiment(self, malicious: bool) -> Experiment:
        """Return the experiment of 9H-1M (malicious) or 10H-0M."""
        study, data = self.study, {"source": self.source, "fold": self.fold}
        if self.source.startswith("synthetic:"):
            data["queries"] = study.queries
        tables: dict[str, Any] = {
            "seed": self.repetition,
            "data": data,
            "users": {"kind": "cascade", "preset": self.preset},
            "federation": {
                "clients": study.clients,
                "interactions": study.interactions,
                "rounds": study.rounds,
                "keep_every": math.gcd(*study.intervals) if malicious else 0,
            },
            "evaluation": {"every": study.step},
        }
        if malicious:
            tables["attack"] = {"kind": "sign-flip", "clients": 1, "z": study.z}
        return Experiment.read(ExperimentFile(tables, "unlearning"))

    def figures(self) -> dict[str, Any]:
        """Return the curves of every configuration: {"9H-1M": {"x": …, "y": …}, …, "rebuilt": {"published 10 3": …}}."""
        file = self.folder / "figures.json"
        # `sources` and `presets` name other runs; those of this one are its own.
        setting = replace(self.study, sources=(self.source,), presets=(self.preset,))
        identity = {"setting": f"{setting}, {self.repetition}, {self.fold}", "version": __version__}
        if file.is_file():
            known = read_json(file)
            if known.get("identity") == identity and isinstance(known.get("figures"), dict):
                return dict(known["figures"])
        self.folder.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Any] = {"9H-1M": _history(self.malicious)}
        if self.study.shows == "configurations":
            figures["10H-0M"] = _history(self._run("10H-0M", malicious=False))
        figures["9H-0M"] = self.retrained()
        figures["rebuilt"] = {
            rebuilding_name(*chosen): self.rebuilt(*chosen)
            for chosen in itertools.product(METHODS, self.study.intervals, self.study.local_steps)
        }
        write_whole(file, json_bytes({"identity": identity, "figures": figures}))
        return figures

    @cached_property
    def malicious(self) -> Path:
        return self._run("9H-1M", malicious=True)

    def retrained(self) -> PointsXY:
        """Return the learning curve of 9H-0M."""
        kept = _KeptRankers(self.study.step, self.study.rounds)
        request = Unlearning(self.malicious, (LEAVER,), max(self.study.intervals), 1, along=kept.keep)
        request.retrained()
        return kept.curve(request)

    def rebuilt(self, method: str, interval: int, steps: int) -> PointsXY:
        """Return the curve of U(9H-1M); x counts the rounds of the rebuilding."""
        rounds = len(range(1, self.study.rounds + 1, interval))
        kept = _KeptRankers(max(1, rounds // self.study.points), rounds)
        core: Method = "fresh" if method == "fresh" else "published"
        request = Unlearning(self.malicious, (LEAVER,), interval, steps, method=core, along=kept.keep)
        if method == "stretched":
            stretched(request)
        else:
            request.rebuilt  # noqa: B018  the property does the rebuilding
        return kept.curve(request)

    def _run(self, name: str, malicious: bool) -> Path:
        folder, wanted = self.folder / name, self.experiment(malicious)
        if not storage.is_finished(folder) or storage.read_experiment(folder) != wanted:
            run_experiment(wanted, folder, overwrite=True, report=report_page)
        return folder


def stretched(request: Unlearning) -> Rebuilt:
    """FedEraser whose steps are Δt times longer, with the mean of rankers."""
    engine = request.engine(momentum_over(request.experiment.federation.client_momentum, request.every)[0])
    factor = float(request.every)
    return rebuild(engine, request.start, request.kept(), request.tick, step_factor=factor, average=AVERAGE)


class _KeptRankers:
    """Rankers at every `step`-th round and at the last."""

    def __init__(self, step: int, last: int) -> None:
        self.step, self.last = step, last
        self.x: list[float] = []
        self.thetas: list[Doubles] = []

    def keep(self, done: int, theta: Doubles) -> None:
        if done % self.step == 0 or done == self.last:
            self.x.append(float(done))
            self.thetas.append(np.array(theta))

    def curve(self, request: Unlearning) -> PointsXY:
        return {"x": self.x, "y": request.ndcg(*self.thetas)}


def _history(run: Path) -> PointsXY:
    history = load_run(run).history
    measured = np.isfinite(history[OFFLINE_NDCG])
    return {"x": history["round"][measured].tolist(), "y": history[OFFLINE_NDCG][measured].tolist()}


@dataclass(frozen=True, eq=False)
class UnlearningCase:
    """Collection and click model, with the curves of all repetitions; `rebuilding_name` names those of rebuildings."""

    source: str
    preset: str
    figures: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        return f"{self.source}, {self.preset}"

    def curve(self, name: str, label: str = "") -> Curve:
        """Return the curve of a configuration or a rebuilding."""
        found: list[PointsXY] = [f[name] if name in f else f["rebuilt"][name] for f in self.figures]
        return Curve(label or name, np.array(found[0]["x"]), np.array([points["y"] for points in found]))

    def ends(self, name: str) -> Doubles:
        """Return (repetitions,) the values at the end of a curve."""
        return self.curve(name).runs[:, -1].copy()

    def change(self, one: str, other: str) -> float:
        """Return how far the first ends above the second, as a share of the second, in the mean over repetitions."""
        return float((self.ends(one) / self.ends(other) - 1.0).mean())


def rebuilding_name(method: str, interval: int, steps: int) -> str:
    """Return the key of a rebuilding in figures.json."""
    return f"{method} {interval} {steps}"


def configuration_results(cases: Sequence[UnlearningCase]) -> StudyResults:
    """Return figure 6.2: the ranker with a malicious client, without it, and without an honest one."""
    names = ("9H-1M", "10H-0M", "9H-0M")
    charts = tuple(Panel(case.label, "rounds", NDCG, tuple(map(case.curve, names))) for case in cases)
    lost = [-case.change("9H-1M", "10H-0M") for case in cases]
    apart = [-case.change("10H-0M", "9H-0M") for case in cases]
    findings = (
        StudyFinding(
            "One malicious client lowers nDCG@10 (9H-1M below 10H-0M)",
            all(x > 0 for x in lost),
            f"below in {_count(x > 0 for x in lost)}, by {_range(lost)} of its worth",
        ),
        StudyFinding(
            "Without one honest client the ranker is the same (9H-0M like 10H-0M, within 1 %)",
            all(abs(x) <= ALIKE for x in apart),
            f"within 1 % in {_count(abs(x) <= ALIKE for x in apart)}; they differ by {_range(apart)}",
        ),
    )
    sheet = _ends_sheet(cases, {name: name for name in names})
    return StudyResults(charts, (sheet,), findings, numbers=_numbers(cases, names))


def rebuilding_results(study: UnlearningStudy, cases: Sequence[UnlearningCase]) -> StudyResults:
    """Return figure 6.3: the curve of the rebuilding, and retraining as a level line."""
    interval, steps = study.intervals[0], study.local_steps[0]
    rebuilt = {f"U(9H-1M), {method}": rebuilding_name(method, interval, steps) for method in METHODS}
    charts = []
    for case in cases:
        lines = [case.curve(name, label) for label, name in rebuilt.items()]
        for name, label in (("9H-0M", "9H-0M, retrained"), ("9H-1M", "9H-1M, not rebuilt")):
            ends, x = case.ends(name), lines[0].x[[0, -1]]
            spread = None if len(ends) < 2 else (ends.std(ddof=1),) * 2
            lines.append(Curve.of_means(label, x, (ends.mean(),) * 2, spread, level=True))
        charts.append(Panel(case.label, "rounds of the rebuilding", NDCG, tuple(lines)))
    findings = []
    for method in METHODS:
        gains = [case.change(rebuilding_name(method, interval, steps), "9H-1M") for case in cases]
        findings.append(_gain(f"The rebuilt ranker is better than the one with the leaver ({method})", gains))
        findings.append(_like_retraining(cases, method, interval, steps))
    share = study.share(interval, steps)
    note = f"Δt = {interval}, n′ = {steps}: {share:.1%} of the local updates of retraining."
    return StudyResults(
        tuple(charts),
        (_ends_sheet(cases, {"9H-1M": "9H-1M", "9H-0M, retrained": "9H-0M"} | rebuilt),),
        tuple(findings),
        (note, _seed_noise(cases)),
        _numbers(cases, ("9H-1M", "9H-0M")),
    )


def effort_results(study: UnlearningStudy, cases: Sequence[UnlearningCase]) -> StudyResults:
    """Return table 6.2: nDCG@10 after rebuilding for each n′ and Δt."""
    intervals, local_steps = study.intervals, study.local_steps
    rows = []
    for case in cases:
        rows.append((case.label, "9H-0M, retrained", "", *([_text(case.ends("9H-0M"))] * len(intervals))))
        for method, n in itertools.product(METHODS, local_steps):
            entries = [_text(case.ends(rebuilding_name(method, dt, n))) for dt in intervals]
            rows.append((case.label, method, f"n′ = {n}", *entries))
    columns = ("", "ranker", "", *(f"Δt = {interval}" for interval in intervals))
    findings = []
    fewest, most, often, seldom = min(local_steps), max(local_steps), min(intervals), max(intervals)
    for method in METHODS:
        name = partial(rebuilding_name, method)
        gains = [case.change(name(dt, most), name(dt, fewest)) for case in cases for dt in intervals]
        findings.append(_gain(f"More local steps are better (n′ = {most} above {fewest}; {method})", gains))
        gains = [case.change(name(often, n), name(seldom, n)) for case in cases for n in local_steps]
        findings.append(_gain(f"A smaller Δt is better (Δt = {often} above {seldom}; {method})", gains))
    shares = {(dt, n): study.share(dt, n) for dt, n in itertools.product(intervals, local_steps)}
    largest = max((share for share in shares.values() if share <= TENTH + 1e-12), default=0.0)
    pairs = [pair for pair, share in shares.items() if share == largest]
    findings += [_like_retraining(cases, method, dt, n) for method in METHODS for dt, n in pairs]
    return StudyResults(
        (), (ReportTable(f"{NDCG} after rebuilding", columns, tuple(rows)),), tuple(findings), (_seed_noise(cases),),
        _numbers(cases, ("9H-1M", "9H-0M")),
    )  # fmt: skip


def _like_retraining(cases: Sequence[UnlearningCase], method: str, interval: int, steps: int) -> StudyFinding:
    gaps = [case.change(rebuilding_name(method, interval, steps), "9H-0M") for case in cases]
    return StudyFinding(
        f"Unlearning converges to retraining (within 1 %; {method}, Δt = {interval}, n′ = {steps})",
        all(gap >= -ALIKE for gap in gaps),
        f"at most 1 % below it in {_count(gap >= -ALIKE for gap in gaps)}; it ends {_range(gaps)} away",
    )


def _gain(claim: str, gains: Sequence[float]) -> StudyFinding:
    right = [gain > 0 for gain in gains]
    return StudyFinding(claim, all(right), f"better in {_count(right)}, by {_range(gains)}")


def _seed_noise(cases: Sequence[UnlearningCase]) -> str:
    """Return the spread of retrainings with other seeds, the limit for any rebuilding."""
    if any(len(case.figures) < 2 for case in cases):
        return "One repetition: how much retrainings differ among themselves cannot be said."
    spreads = [float(ends.std(ddof=1) / ends.mean()) for ends in (case.ends("9H-0M") for case in cases)]
    return (
        f"Standard deviation of retraining over the repetitions (seeds, and folds): {_range(spreads)} of its nDCG@10."
    )


def _ends_sheet(cases: Sequence[UnlearningCase], columns: Mapping[str, str]) -> ReportTable:
    """The values at the ends of curves; `columns` are the curves' names by their titles."""
    rows = tuple((case.label, *(_text(case.ends(name)) for name in columns.values())) for case in cases)
    return ReportTable(f"{NDCG} at the end", ("", *columns), rows)


def _numbers(cases: Sequence[UnlearningCase], names: Sequence[str]) -> dict[str, Any]:
    """The value at the end of every run."""
    return {
        case.label: {name: case.ends(name).tolist() for name in names}
        | {"rebuilt": {name: case.ends(name).tolist() for name in case.figures[0]["rebuilt"]}}
        for case in cases
    }


def _text(values: Doubles) -> str:
    spread = f" ±{values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"


def _range(shares: Sequence[float]) -> str:
    low, high = (f"{100.0 * value + 0.0:.1f}".replace("-", "−") for value in (min(shares), max(shares)))
    return f"{low} to {high} %"


def _count(right: Iterable[bool]) -> str:
    found = list(right)
    return f"{sum(found)} of {len(found)}"
