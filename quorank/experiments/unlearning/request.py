"""Unlearning in a finished run: the ranker rebuilt without some clients, judged, put in place, and their data erased.

The thesis judges unlearning by a leaver that poisoned its updates (§6.1.4). Here the rebuilt ranker is also held
against a retrained one by what both would show (`rank_distance`), which needs no poison: rebuilt and retrained rankers
that differ no more than two retrainings with other draws are as good as the same. If the distance is larger, the
rebuilding forgot too little (it is still near the ranker before) or too much (it lost what the others had taught).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quorank.arrays import Doubles
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import clients_of, kept_rounds
from quorank.experiments.runner import Runner
from quorank.experiments.unlearning.erasure import check_erased, doomed, left_before, traces_of
from quorank.experiments.unlearning.files import check_out, finish, pending, put
from quorank.experiments.unlearning.leaving import check_leavers, check_private
from quorank.experiments.unlearning.records import changed_files, rebuilding_entry
from quorank.federation import Simulator, State
from quorank.federation.unlearning import KeptRound, Rebuilt, fresh_seed, rebuild, retrain, scaled_steps
from quorank.learning import Evolution
from quorank.metrics.rank_distance import mean_distance
from quorank.process import available_threads
from quorank.rankers.ranker_file import read_ranker
from quorank.reports.runs import load_run

Watch = Callable[[int, int], None]
Along = Callable[[int, Doubles], None]
INTERVAL, SEEDS = 10, 3
AVERAGE = 3.0
"""γ of the mean that is handed out, unless the rebuilding is as published."""
Method = Literal["fresh", "stretched", "published"]
"""How far a rebuilding goes. `published`: eqs 6.1 and 6.2 to the letter. `stretched`: each round counts for the whole
interval, and rankers are averaged. `fresh`: so too, but updates keep their own length instead of taking that of the kept
ones, so that nothing of the leavers acts any more."""


@dataclass(eq=False)
class Unlearning:
    """A request to forget clients of a finished run. Nothing is written before `commit`."""

    run: Path
    clients: tuple[int, ...]  # who asks to leave
    interval: int | None = None  # Δt
    local_steps: int | None = None  # n′
    threads: int = field(default_factory=available_threads)
    watch: Watch | None = None
    method: Method = "fresh"
    along: Along | None = None  # is shown the rankers on the way: of the rebuilding, and of retraining

    def __post_init__(self) -> None:
        load_run(self.run)  # refuses what is no finished run
        self.experiment: Experiment = storage.read_experiment(self.run)
        self.gone = left_before(self.run)
        check_leavers(self.experiment, self.run, self.clients, self.gone)
        self._check_effort()
        check_private(self.experiment, self.run)
        self.runner = Runner(self.experiment, self.threads)
        self._check_copies()
        self._done = self._planned = 0

    def _check_effort(self) -> None:
        kept, b = self.experiment.keep_every, self.experiment.federation.interactions
        if self.method == "fresh" and self._everyone:
            kept = 1  # nothing that was kept is read
        require(
            kept == 1 or (kept > 0 and clients_of(self.run)),
            f"{self.run}: its clients kept no updates; run it again with --set federation.keep_every={INTERVAL}",
        )
        if self.interval is None:
            self.interval = INTERVAL if INTERVAL % kept == 0 else kept
        require(self.interval >= 1, f"--interval {self.interval}: expected at least 1 round")
        require(
            self.interval % kept == 0,
            f"--interval {self.interval}: the clients of {self.run} kept their updates every {kept} rounds; give a "
            f"multiple of {kept}",
        )
        if self.local_steps is None:
            self.local_steps = b
        require(
            1 <= self.local_steps <= b,
            f"--local-steps {self.local_steps}: expected 1 to {b}, the local steps of a round of {self.run}",
        )

    def _check_copies(self) -> None:
        """A copy of what will be erased is refused before anything is done."""
        traces = traces_of(self.run, self.leavers, self.runner.parameters)
        check_erased(self.run, self.leavers, traces, doomed(self.run, self.leavers))

    @property
    def leavers(self) -> tuple[int, ...]:
        """All who are gone when this is done."""
        return tuple(sorted({*self.gone, *self.clients}))

    @cached_property
    def start(self) -> Doubles:
        """The ranker before the first round of the run."""
        return self.runner.simulator.initial().theta

    @cached_property
    def before(self) -> Doubles:
        return read_ranker(self.run / storage.RANKER).theta

    @cached_property
    def rebuilt(self) -> Rebuilt:
        """T/Δt rounds of n′ local steps, calibrated (eq. 6.2)."""
        experiment, runner = self.experiment, self.runner
        assert self.interval is not None and self.local_steps is not None
        kept = self._kept()
        try:
            federation = replace(experiment.federation, interactions=self.local_steps)
        except BadInput as error:
            raise BadInput(f"--local-steps {self.local_steps}: {error}") from None
        each, b = runner.simulator.interactions, experiment.federation.interactions
        simulator = Simulator(
            federation,
            replace(runner.scene.simulation, seed=fresh_seed(experiment.seed, "unlearning", self.leavers)),
            self.threads,
            rounds=len(kept),
            interactions=None if each is None else scaled_steps(each, b, self.local_steps),
            absent=self.leavers,
        )
        self._planned += len(kept)
        stretch, average = (1.0, None) if self.method == "published" else (float(self.interval), AVERAGE)
        if self.method == "fresh" and not isinstance(experiment.federation.learner, Evolution):
            stretch *= (
                b / self.local_steps
            )  # n′ steps stand for n; evolution strategies send a mean, not a way
        lengths: Literal["own", "kept"] = "own" if self.method == "fresh" else "kept"
        rebuilt = rebuild(
            simulator, self.start, kept, self._tick, stretch=stretch, average=average, lengths=lengths
        )
        part = experiment.tables()["privacy"]
        self.entry = rebuilding_entry(part, simulator.mechanism, simulator.setting, rebuilt, self.leavers)
        return rebuilt

    @property
    def _everyone(self) -> bool:
        federation = self.experiment.federation
        return federation.participation.size(federation.clients) == federation.clients

    def _kept(self) -> list[KeptRound]:
        """The rounds that are done again: who is in them, and the lengths that these clients kept."""
        assert self.interval is not None
        experiment, runner = self.experiment, self.runner
        wanted = range(1, experiment.rounds + 1, self.interval)
        remaining = [c for c in range(experiment.federation.clients) if c not in self.leavers]
        if self._everyone and self.method == "fresh":
            members = np.array(remaining, dtype=np.int64)
            return [KeptRound(round_, members, np.full(len(members), np.nan)) for round_ in wanted]
        if not self._everyone:
            own = set(clients_of(self.run))
            remaining = [c for c in remaining if c in own]  # the others never took part in a kept round
        return kept_rounds(self.run, remaining, wanted, runner.parameters)

    def retrained(self, seed: int | None = None) -> tuple[Doubles, int]:
        """The run without the leavers: with the same draws for everyone else, or with those of another seed."""
        experiment, runner = self.experiment, self.runner
        simulation = runner.scene.simulation
        simulator = Simulator(
            experiment.federation,
            simulation if seed is None else replace(simulation, seed=seed),
            self.threads,
            rounds=experiment.rounds,
            interactions=runner.simulator.interactions,
            absent=self.leavers,
        )
        return retrain(simulator, self.start, experiment.rounds, self._tick)

    def ndcg(self, *thetas: Doubles) -> list[float]:
        """Offline nDCG@10 on the run's own test split."""
        return [figures["ndcg@10"] for figures in self.offline(*thetas)]

    def offline(self, *thetas: Doubles) -> list[dict[str, float]]:
        """The offline figures of rankers, as `summary.json` holds them."""
        ndcg, maxrr = self.runner.scene.means([State(0, theta, {}) for theta in thetas])
        return [{"ndcg@10": float(n), "maxrr": float(m)} for n, m in zip(ndcg, maxrr, strict=True)]

    def distance(self, one: Doubles, other: Doubles) -> float:
        scene = self.runner.scene
        splits = [evaluator.data for evaluator in scene.evaluators]
        return mean_distance(self.experiment.ranker, one, other, splits, self.experiment.evaluation.k)

    def figures(self) -> dict[str, Any]:
        """The rebuilding in numbers."""
        rebuilt, federation = self.rebuilt, self.experiment.federation
        before, after = self.ndcg(self.before, rebuilt.theta)
        assert self.local_steps is not None
        result: dict[str, Any] = {
            "clients": list(self.clients),
            "before": before,
            "after": after,
            "local_updates_share": self.local_steps
            * rebuilt.rounds
            / (federation.interactions * self.experiment.rounds),
            "interval": self.interval,
            "local_steps": self.local_steps,
            "method": self.method,
            "rounds": rebuilt.rounds,
            "local_updates": rebuilt.local_steps,
            "zero_updates": {"no_direction": rebuilt.directionless, "no_length": rebuilt.lengthless},
        }
        if self.entry["privacy"] is not None:
            result["privacy"] = self.entry["privacy"] | {"adds_to": "what the run itself has spent"}
        return result

    def comparison(self, seeds: int = SEEDS) -> dict[str, Any]:
        """Against retraining, and against how much retrainings differ among themselves."""
        require(seeds >= 1, f"--seeds {seeds}: expected at least 1 retraining to tell the noise by")
        self._planned += (seeds + 1) * self.experiment.rounds
        rebuilt = self.rebuilt.theta
        retrained, steps = self.retrained()
        others = [
            self.retrained(fresh_seed(self.experiment.seed, f"retraining {i}", self.leavers))[0]
            for i in range(seeds)
        ]
        spread = self.ndcg(*others)
        return {
            "retrained": self.ndcg(retrained)[0],
            "retrained_local_updates": steps,
            "retrained_other_seeds": spread,
            "distance": {
                "unlearned_to_retrained": self.distance(rebuilt, retrained),
                "before_to_retrained": self.distance(self.before, retrained),
                "unlearned_to_before": self.distance(rebuilt, self.before),
                "retrained_seeds": float(np.mean([self.distance(retrained, other) for other in others])),
                "measure": "1 − average overlap of the first 10 documents, mean over all test queries",
            },
        }

    def commit(self, result: dict[str, Any], out: Path | None = None) -> dict[str, Any]:
        """Let the rebuilt ranker take the old one's place in all of the run's files, and erase the leavers' data."""
        experiment, theta = self.experiment, self.rebuilt.theta
        check_out(self.run, out)
        before, after = self.offline(self.before, theta)
        ranker = storage.ranker_bytes(experiment, self.runner.collection.train.n_features, theta)
        files = changed_files(self.run, experiment, result, self.leavers, before, after, self.entry, ranker)
        put(self.run, self.clients, self.leavers, files, result, out)
        return finish(self.run)

    def _tick(self, done: int, theta: Doubles) -> None:
        self._done += 1
        if self.along is not None:
            self.along(done, theta)
        if self.watch is not None:
            self.watch(self._done, max(self._planned, self._done))


def unlearn(
    run: Path,
    clients: Sequence[int],
    *,
    interval: int | None = None,
    local_steps: int | None = None,
    method: Method = "fresh",
    compare: bool = False,
    seeds: int = SEEDS,
    out: Path | None = None,
    threads: int | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Forget clients of a finished run; returns the figures, with `compare` those of retraining too.

    A request that was cut short is finished when it is repeated.
    """
    if pending(run, clients):
        return finish(run)
    request = Unlearning(
        run, tuple(clients), interval, local_steps, threads or available_threads(), watch, method
    )
    result = request.figures()
    if compare:
        result |= request.comparison(seeds)
    return request.commit(result, out)
