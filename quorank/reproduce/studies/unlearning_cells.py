"""One comparison of thesis chapter 6: a federation with a malicious leaver, without it, and rebuilt without it.

The names are the thesis's: 9H-1M has one client that sends −z·θ instead of θ (eq. 6.3), 10H-0M nobody, 9H-0M is retrained
from the start without that client, and U(9H-1M) is rebuilt from the kept updates. Runs are kept in directories of their
own and the figures in a file beside them, so that nothing is done twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quorank import __version__
from quorank.arrays import Doubles
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import ExperimentFile
from quorank.experiments.finished_run import OFFLINE_NDCG, load_run
from quorank.experiments.runner import run_experiment
from quorank.experiments.unlearning.request import Method, Unlearning
from quorank.files import write_whole
from quorank.reports.report import report_page

Curve = dict[str, list[float]]
LEAVER = 0
METHODS: tuple[Method, ...] = ("published", "stretched", "fresh")
"""Eqs 6.1 and 6.2 to the letter; the same with longer steps; and what `quorank unlearn` does unless it is asked to."""


@dataclass(frozen=True)
class Setting:
    """All that decides the figures of one comparison."""

    source: str
    queries: int  # of a generated collection
    fold: int
    seed: int
    preset: str
    clients: int
    interactions: int  # n
    rounds: int  # T
    z: float
    points: int  # of a curve
    intervals: tuple[int, ...]  # Δt
    local_steps: tuple[int, ...]  # n′
    honest: bool  # whether 10H-0M is played too

    def experiment(self, malicious: bool) -> Experiment:
        data = {"source": self.source, "fold": self.fold}
        if self.source.startswith("synthetic:"):
            data["queries"] = self.queries
        tables: dict[str, Any] = {
            "seed": self.seed,
            "data": data,
            "users": {"kind": "cascade", "preset": self.preset},
            "federation": {
                "clients": self.clients,
                "interactions": self.interactions,
                "rounds": self.rounds,
                "keep_every": math.gcd(*self.intervals) if malicious else 0,
            },
            "evaluation": {"every": self.step},
        }
        if malicious:
            tables["attack"] = {"kind": "sign-flip", "clients": 1, "z": self.z}
        return Experiment.read(ExperimentFile(tables, "unlearning"))

    @property
    def step(self) -> int:
        """Rounds between the points of a curve."""
        return max(1, self.rounds // self.points)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs of one setting, in a directory."""

    setting: Setting
    folder: Path

    def figures(self) -> dict[str, Any]:
        """The curves of every configuration: {"9H-1M": {"x": …, "y": …}, …, "rebuilt": {"published 10 3": …}}."""
        file = self.folder / "figures.json"
        identity = {"setting": repr(self.setting), "version": __version__}
        if file.is_file():
            known = json.loads(file.read_bytes())
            if known.get("identity") == identity:
                return dict(known["figures"])
        self.folder.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Any] = {"9H-1M": _history(self.malicious)}
        if self.setting.honest:
            figures["10H-0M"] = _history(self._played("10H-0M", malicious=False))
        figures["9H-0M"] = self.retrained()
        figures["rebuilt"] = {
            f"{method} {interval} {steps}": self.rebuilt(method, interval, steps)
            for method in METHODS
            for interval in self.setting.intervals
            for steps in self.setting.local_steps
        }
        write_whole(file, storage.json_bytes({"identity": identity, "figures": figures}))
        return figures

    @cached_property
    def malicious(self) -> Path:
        return self._played("9H-1M", malicious=True)

    def retrained(self) -> Curve:
        """9H-0M, on its way."""
        seen = _Seen(self.setting.step, self.setting.rounds)
        request = Unlearning(self.malicious, (LEAVER,), max(self.setting.intervals), 1, along=seen.keep)
        request.retrained()
        return seen.curve(request)

    def rebuilt(self, method: Method, interval: int, steps: int) -> Curve:
        """U(9H-1M), on its way; x counts the rounds of the rebuilding."""
        rounds = len(range(1, self.setting.rounds + 1, interval))
        seen = _Seen(max(1, rounds // self.setting.points), rounds)
        request = Unlearning(self.malicious, (LEAVER,), interval, steps, method=method, along=seen.keep)
        request.rebuilt  # noqa: B018  played when it is asked for
        return seen.curve(request)

    def _played(self, name: str, malicious: bool) -> Path:
        folder, wanted = self.folder / name, self.setting.experiment(malicious)
        if not storage.is_finished(folder) or storage.read_experiment(folder) != wanted:
            run_experiment(wanted, folder, overwrite=True, report=report_page)
        return folder


class _Seen:
    """Rankers on the way, at every `step`-th round and at the last."""

    def __init__(self, step: int, last: int) -> None:
        self.step, self.last = step, last
        self.x: list[float] = []
        self.thetas: list[Doubles] = []

    def keep(self, done: int, theta: Doubles) -> None:
        if done % self.step == 0 or done == self.last:
            self.x.append(float(done))
            self.thetas.append(np.array(theta))

    def curve(self, request: Unlearning) -> Curve:
        return {"x": self.x, "y": request.ndcg(*self.thetas)}


def _history(run: Path) -> Curve:
    found = load_run(run)
    values = found.history[OFFLINE_NDCG]
    measured = np.isfinite(values)
    return {"x": found.history["round"][measured].tolist(), "y": values[measured].tolist()}


def mean_curve(curves: Sequence[Curve]) -> tuple[list[float], list[float], list[float] | None]:
    """(x, mean, standard deviation over repetitions, None of a single one)."""
    values = np.array([curve["y"] for curve in curves])
    spread = values.std(axis=0, ddof=1).tolist() if len(values) > 1 else None
    return curves[0]["x"], values.mean(axis=0).tolist(), spread
