"""The experiments of thesis chapter 6: a malicious client leaves, and rebuilding without it is compared with retraining.

`shows` chooses between figure 6.2 (the three configurations that are compared), figure 6.3 (the rebuilding on its way to
retraining) and table 6.2 (how much it depends on n′ and Δt). Rebuilding is shown as published, with longer steps
(`stretched`), and by the default of `quorank unlearn`.

The names are the thesis's: 9H-1M has one client that sends −z·θ instead of θ (eq. 6.3), 10H-0M none, 9H-0M is retrained
from the start without that client, and U(9H-1M) is rebuilt from the kept updates. Runs and their
curves (figures.json) are kept, so that nothing is done twice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from quorank import __version__
from quorank.errors import require_range
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.run_directory import OFFLINE_NDCG, load_run
from quorank.experiments.runner import run_experiment
from quorank.experiments.unlearning.request import AVERAGE, Method, Unlearning
from quorank.federation.unlearning.methods import Rebuilt, momentum_over, rebuild
from quorank.files.atomic import write_whole
from quorank.files.codec import Length, Range
from quorank.files.documents import json_bytes, read_json
from quorank.kernels.arrays import Doubles
from quorank.reports.comparison import Spread
from quorank.reports.panels import Curve, Panel
from quorank.reports.report import ReportTable, report_page
from quorank.reproduce.figure import collection_name, fold_of, folds_of
from quorank.reproduce.studies.study import StudyFinding, StudyRequest, StudyResults

Preset = Literal["perfect", "navigational", "informational"]
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
    sources: Annotated[tuple[str, ...], Length(100, 1)] = ("synthetic:mq2007", "synthetic:mslr")
    queries: int = 1000  # training queries of generated collections
    presets: Annotated[tuple[Preset, ...], Length(3, 1)] = ("perfect", "navigational", "informational")
    clients: Annotated[int, Range(2)] = 10  # one of them leaves
    interactions: int = 5  # n, local steps of a round
    rounds: Annotated[int, Range(1)] = 10_000  # T
    z: float = 2.0  # eq. 6.3
    intervals: Annotated[tuple[Annotated[int, Range(1)], ...], Length(100, 1)] = (10,)  # Δt
    local_steps: Annotated[tuple[Annotated[int, Range(1)], ...], Length(100, 1)] = (3,)  # n′
    points: Annotated[int, Range(1)] = 50  # of a curve

    def __post_init__(self) -> None:
        for steps in self.local_steps:
            require_range("local_steps", steps, most=self.interactions)

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
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        choices = [*itertools.product((request.data,) if request.data else self.sources, self.presets)]
        for repetition, (source, preset) in request.trials(choices, lambda choice: f"{_name(choice[0])}, {choice[1]}"):
            name = _name(source)
            folder = request.folder / f"{name.replace(':', '-')},{preset},{repetition}"
            runs = UnlearningRuns(self, source, preset, repetition, fold_of(repetition, folds_of(source)), folder)
            found.setdefault((name, preset), []).append(runs.figures())
        return [UnlearningCase(name, preset, tuple(figures)) for (name, preset), figures in found.items()]


def _name(source: str) -> str:
    return collection_name(source) + ("-like" if source.startswith("synthetic:") else "")


@dataclass(frozen=True, eq=False)
class UnlearningRuns:
    """Runs of one repetition on one collection with one click model, and the curves from them."""

    study: UnlearningStudy
    source: str
    preset: Preset
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
        if file.is_file() and (known := read_json(file)).get("identity") == identity:
            return dict(known["figures"])
        self.folder.mkdir(parents=True, exist_ok=True)
        study, malicious = self.study, self._run("9H-1M", malicious=True)
        figures: dict[str, Any] = {"9H-1M": _history(malicious)}
        if study.shows == "configurations":
            figures["10H-0M"] = _history(self._run("10H-0M", malicious=False))
        kept = _KeptRankers(study.step, study.rounds)
        request = Unlearning(malicious, (LEAVER,), max(study.intervals), 1, along=kept.keep)
        request.retrained()
        figures["9H-0M"], figures["rebuilt"] = kept.curve(request), {}
        for method, interval, steps in itertools.product(METHODS, study.intervals, study.local_steps):
            rounds = -(-study.rounds // interval)
            kept = _KeptRankers(max(1, rounds // study.points), rounds)
            core: Method = "fresh" if method == "fresh" else "published"
            request = Unlearning(malicious, (LEAVER,), interval, steps, method=core, along=kept.keep)
            _ = stretched(request) if method == "stretched" else request.rebuilt
            figures["rebuilt"][rebuilding_name(method, interval, steps)] = kept.curve(request)
        write_whole(file, json_bytes({"identity": identity, "figures": figures}))
        return figures

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

    def end(self, name: str) -> str:
        """Return the mean and standard deviation at the end of a curve, as a string."""
        return Spread.of(self.ends(name)).text(4)

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
    lowers = "One malicious client lowers nDCG@10 (9H-1M below 10H-0M)"
    same = "Without one honest client the ranker is the same (9H-0M like 10H-0M, within 1 %)"
    findings = (
        _counted(lowers, lost, lambda x: x > 0, "below in {}, by {} of its worth"),
        _counted(same, apart, lambda x: abs(x) <= ALIKE, "within 1 % in {}; they differ by {}"),
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
            level = np.repeat(case.ends(name)[:, None], 2, axis=1)
            lines.append(Curve(label, lines[0].x[[0, -1]], level, level=True))
        charts.append(Panel(case.label, "rounds of the rebuilding", NDCG, tuple(lines)))
    findings = []
    for method in METHODS:
        gains = [case.change(rebuilding_name(method, interval, steps), "9H-1M") for case in cases]
        findings.append(_gain(f"The rebuilt ranker is better than the one with the leaver ({method})", gains))
        findings.append(_like_retraining(cases, method, interval, steps))
    note = f"Δt = {interval}, n′ = {steps}: {study.share(interval, steps):.1%} of the local updates of retraining."
    sheet = _ends_sheet(cases, {"9H-1M": "9H-1M", "9H-0M, retrained": "9H-0M"} | rebuilt)
    return StudyResults(tuple(charts), (sheet,), findings, (note,), _numbers(cases, ("9H-1M", "9H-0M")))


def effort_results(study: UnlearningStudy, cases: Sequence[UnlearningCase]) -> StudyResults:
    """Return table 6.2: nDCG@10 after rebuilding for each n′ and Δt."""
    intervals, local_steps = study.intervals, study.local_steps
    rows = []
    for case in cases:
        rows.append((case.label, "9H-0M, retrained", "", *([case.end("9H-0M")] * len(intervals))))
        for method, n in itertools.product(METHODS, local_steps):
            entries = [case.end(rebuilding_name(method, dt, n)) for dt in intervals]
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
    sheet = ReportTable(f"{NDCG} after rebuilding", columns, tuple(rows))
    return StudyResults((), (sheet,), findings, numbers=_numbers(cases, ("9H-1M", "9H-0M")))


def _like_retraining(cases: Sequence[UnlearningCase], method: str, interval: int, steps: int) -> StudyFinding:
    gaps = [case.change(rebuilding_name(method, interval, steps), "9H-0M") for case in cases]
    claim = f"Unlearning converges to retraining (within 1 %; {method}, Δt = {interval}, n′ = {steps})"
    return _counted(claim, gaps, lambda gap: gap >= -ALIKE, "at most 1 % below it in {}; it ends {} away")


def _gain(claim: str, gains: Sequence[float]) -> StudyFinding:
    return _counted(claim, gains, lambda gain: gain > 0, "better in {}, by {}")


def _counted(claim: str, shares: Sequence[float], right: Callable[[float], bool], seen: str) -> StudyFinding:
    """Return a finding that holds where it holds for all shares; `seen` takes their count and their range."""
    holds = [right(share) for share in shares]
    low, high = (f"{100.0 * share + 0.0:.1f}".replace("-", "−") for share in (min(shares), max(shares)))
    return StudyFinding(claim, all(holds), seen.format(f"{sum(holds)} of {len(holds)}", f"{low} to {high} %"))


def _ends_sheet(cases: Sequence[UnlearningCase], columns: Mapping[str, str]) -> ReportTable:
    """The values at the ends of curves; `columns` are the curves' names by their titles."""
    rows = tuple((case.label, *map(case.end, columns.values())) for case in cases)
    return ReportTable(f"{NDCG} at the end", ("", *columns), rows)


def _numbers(cases: Sequence[UnlearningCase], names: Sequence[str]) -> dict[str, Any]:
    return {
        case.label: {name: case.ends(name).tolist() for name in names}
        | {"rebuilt": {name: case.ends(name).tolist() for name in case.figures[0]["rebuilt"]}}
        for case in cases
    }
