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
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.evaluation.rank_distance import mean_distance
from quorank.evaluation.runs import load_run
from quorank.experiments import storage
from quorank.experiments.erasure import check_erased, erase, left_before, traces_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import clients_of, kept_rounds
from quorank.experiments.runner import Runner, available_threads
from quorank.experiments.saved_ranker import read_ranker
from quorank.federation import Mean, Shared, Simulator, State
from quorank.federation.unlearning import Rebuilt, fresh_seed, rebuild, retrain, scaled_steps
from quorank.files import write_whole
from quorank.learning import Evolution

Doubles = npt.NDArray[np.float64]
Watch = Callable[[int, int], None]
INTERVAL, LOCAL_STEPS, SEEDS = 10, 3, 3
AVERAGE = 3.0
"""γ of the mean that is handed out, unless the rebuilding is as published."""


@dataclass(eq=False)
class Unlearning:
    """A request to forget clients of a finished run. Nothing is written before `commit`."""

    run: Path
    clients: tuple[int, ...]  # who asks to leave
    interval: int | None = None  # Δt
    local_steps: int | None = None  # n′
    threads: int = field(default_factory=available_threads)
    watch: Watch | None = None
    published: bool = False  # eqs 6.1 and 6.2 to the letter, without stretch and average

    def __post_init__(self) -> None:
        load_run(self.run)  # refuses what is no finished run
        self.experiment: Experiment = storage.read_experiment(self.run)
        self.gone = left_before(self.run)
        self._check_leavers()
        self._check_effort()
        self.runner = Runner(self.experiment, self.threads)
        self._done = self._planned = 0

    def _check_leavers(self) -> None:
        federation, asked = self.experiment.federation, self.clients
        require(len(asked) > 0, "--client: name at least one client that leaves")
        for client in asked:
            require(
                0 <= client < federation.clients,
                f"--client {client}: no such client; {self.run} has clients 0 to {federation.clients - 1}",
            )
            require(
                client not in self.gone, f"--client {client}: {self.run} has unlearned this client already"
            )
            require(asked.count(client) == 1, f"--client {client} is named twice")
        remaining = federation.clients - len(self.leavers)
        require(
            remaining > 0, "--client: all clients would leave, and nobody would be left to rebuild the ranker"
        )
        require(
            isinstance(federation.personal, Shared),
            f"{self.run}: its clients keep rankers of their own, which a run does not save; only a shared ranker can be "
            "rebuilt",
        )
        if not isinstance(federation.aggregation, Mean):
            federation.aggregation.check(federation.participation.size(remaining))

    def _check_effort(self) -> None:
        kept, b = self.experiment.keep_every, self.experiment.federation.interactions
        require(
            kept > 0 and clients_of(self.run),
            f"{self.run}: its clients kept no updates; run it again with --set federation.keep_every={INTERVAL}",
        )
        if self.interval is None:
            self.interval = INTERVAL if INTERVAL % kept == 0 else kept
        require(
            self.interval >= 1 and self.interval % kept == 0,
            f"--interval {self.interval}: the clients of {self.run} kept their updates every {kept} rounds; give a "
            f"multiple of {kept}",
        )
        if self.local_steps is None:
            self.local_steps = min(LOCAL_STEPS, b)
            if isinstance(self.experiment.federation.learner, Evolution):
                self.local_steps = 2
        require(
            1 <= self.local_steps <= b,
            f"--local-steps {self.local_steps}: expected 1 to {b}, the local steps of a round of {self.run}",
        )

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
        wanted = range(1, experiment.rounds + 1, self.interval)
        remaining = [c for c in range(experiment.federation.clients) if c not in self.leavers]
        own = set(clients_of(self.run))
        if (
            experiment.federation.participation.size(experiment.federation.clients)
            < experiment.federation.clients
        ):
            remaining = [c for c in remaining if c in own]  # the others never took part in a kept round
        kept = kept_rounds(self.run, remaining, wanted, runner.parameters)
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
        self.statement = simulator.mechanism.statement(len(kept))
        self._planned += len(kept)
        stretch, average = (1.0, None) if self.published else (float(self.interval), AVERAGE)
        return rebuild(simulator, self.start, kept, self._tick, stretch=stretch, average=average)

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
        means, _ = self.runner.scene.means([State(0, theta, {}) for theta in thetas])
        return [float(value) for value in means]

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
            "method": "published" if self.published else "stretched",
            "rounds": rebuilt.rounds,
            "local_updates": rebuilt.local_steps,
            "zero_updates": {"no_direction": rebuilt.directionless, "no_length": rebuilt.lengthless},
        }
        if self.statement is not None:
            result["privacy"] = self.statement | {"adds_to": "what the run itself has spent; see its ledger"}
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
        """Write the rebuilt ranker, let it take the old one's place, erase the leavers' data and check that.

        The note of who left comes last: a request that was cut short can be repeated.
        """
        folder = out or self.run / Path(storage.REBUILT[0]).parent
        _open(folder, self.run)
        content = storage.ranker_bytes(
            self.experiment, self.runner.collection.train.n_features, self.rebuilt.theta
        )
        traces = traces_of(self.run, self.leavers, self.runner.parameters)
        write_whole(folder / storage.RANKER, content)
        write_whole(folder / "unlearning.json", storage.json_bytes(result))
        write_whole(self.run / storage.RANKER, content)
        erased = erase(self.run, self.leavers)
        read = check_erased(self.run, self.leavers, traces)
        result = result | {"erased": erased, "files_checked": read, "ranker": str(folder / storage.RANKER)}
        write_whole(folder / "unlearning.json", storage.json_bytes(result))
        note = {"clients": list(self.leavers), "after": result["after"]}
        write_whole(self.run / storage.UNLEARNED, storage.json_bytes(note))
        return result

    def _tick(self) -> None:
        self._done += 1
        if self.watch is not None:
            self.watch(self._done, max(self._planned, self._done))


def _open(folder: Path, run: Path) -> None:
    other = folder / storage.CONFIG
    if other.is_file() and folder.resolve() != run.resolve():
        raise BadInput(f"{folder}: there is another run here; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be created ({error.strerror})") from None


def unlearn(
    run: Path,
    clients: Sequence[int],
    *,
    interval: int | None = None,
    local_steps: int | None = None,
    published: bool = False,
    compare: bool = False,
    seeds: int = SEEDS,
    out: Path | None = None,
    threads: int | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Forget clients of a finished run; returns the figures, with `compare` those of retraining too."""
    request = Unlearning(
        run, tuple(clients), interval, local_steps, threads or available_threads(), watch, published
    )
    result = request.figures()
    if compare:
        result |= request.comparison(seeds)
    return request.commit(result, out)
