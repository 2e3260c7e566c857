"""Unlearning in a finished run: rebuild the ranker without some clients, judge it, install it, and erase their data.

The thesis judges unlearning by a leaver that poisoned its updates (§6.1.4). Here the rebuilt ranker is also compared
with a retrained one by what both would show (`mean_distance`), which needs no poison: a rebuilt and a retrained ranker
that differ no more than two retrainings with other draws are equally good. A larger distance means that the rebuilding
forgot too little (it is still near the ranker before) or too much (it lost what the others had taught).

`summary.json` and `history.parquet` get the offline metrics of the rebuilt ranker; online metrics and curves, which the
leavers had a part in, go. `ledger.json` gets an entry for each rebuilding, and under `altogether` the loss of run and
rebuildings together at the run's δ, which summary and report state too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quorank.data.source import feature_names
from quorank.engines.process import Simulator
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import kept_rounds
from quorank.experiments.progress import saved_ranker
from quorank.experiments.run_directory import ReportPage, load_run, spent_of
from quorank.experiments.runner import Runner
from quorank.experiments.unlearning.commit import (
    find_data,
    finish_request,
    is_pending,
    left_before,
    note_request,
    rebuilt_history,
)
from quorank.federation import Federation
from quorank.federation.unlearning.methods import (
    KeptRound,
    Rebuilt,
    fresh_seed,
    momentum_over,
    rebuild,
    retrain,
    scaled_steps,
)
from quorank.files.documents import json_bytes
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.process import available_threads
from quorank.metrics.evaluator import mean_distance
from quorank.privacy.ledger import combined_privacy, ledger, read_ledger
from quorank.rankers.ranker_file import ranker_bytes, read_ranker

Watch = Callable[[int, int], None]
Along = Callable[[int, Doubles], None]
INTERVAL, SEEDS = 10, 3
AVERAGE = 3.0  # γ of the mean of rankers that `fresh` returns
# Ways to rebuild (`federation.unlearning.methods`): `published` is FedEraser, eqs 6.1 and 6.2. `fresh`, the default: each
# round counts for the whole interval, rankers are averaged, and updates keep their own length. `retrain`: all rounds.
Method = Literal["fresh", "published", "retrain"]


def _check_request(experiment: Experiment, run: Path, asked: Sequence[int], gone: Sequence[int]) -> None:
    """Refuse wrong clients, and runs that cannot be rebuilt without them or whose ε could not be added up."""
    federation = experiment.federation
    require(len(asked) > 0, "client.missing", "name at least one client that leaves", "--client")
    for client in asked:
        option = f"--client {client}"
        present = f"no such client; {run} has clients 0 to {federation.clients - 1}"
        require(0 <= client < federation.clients, "client.unknown", present, option)
        require(client not in gone, "client.left-before", f"{run} has unlearned this client already", option)
        require(list(asked).count(client) == 1, "client.named-twice", "this client is named twice", option)
    remaining = federation.clients - len({*gone, *asked})
    nobody = "all clients would leave, and nobody would be left to rebuild the ranker"
    require(remaining > 0, "client.nobody-left", nobody, "--client")
    own = "its clients keep rankers of their own, which a run does not save; only a shared ranker can be rebuilt"
    require(not federation.personal.keeps_parameters, "unlearning.personal-rankers", own, str(run))
    federation.aggregation.check(federation.participation.fewest(remaining))
    without = 'run it again with partition.without = ["NAME"], which is exact'
    sentence = f"a log decides who takes part in its rounds, which would be others without a client; {without}"
    require(not experiment.partition.replays, "unlearning.replayed-log", sentence, str(run))
    repeated = "a rebuilding would repeat its secret cohorts, so that no ε could be stated for both"
    sentence = f"{repeated}; run it again without the client"
    require(not federation.assumes_secret_cohorts, "unlearning.secret-cohorts", sentence, str(run))


@dataclass(eq=False)
class Unlearning:
    """Request to forget clients of a finished run; nothing is written before `commit`."""

    run: Path
    clients: tuple[int, ...]  # that ask to leave
    interval: int | None = None  # Δt, rounds between the kept updates that are used
    local_steps: int | None = None  # n′, interactions of a client in a round of the rebuilding
    threads: int | None = None  # the result does not depend on them
    watch: Watch | None = None  # called with the number of rounds done and planned
    method: Method = "fresh"
    along: Along | None = None  # called with the number of rounds done and the ranker by then

    def __post_init__(self) -> None:
        load_run(self.run)  # refuses what is no finished run
        self.experiment: Experiment = storage.read_experiment(self.run)
        self.left = left_before(self.run)
        _check_request(self.experiment, self.run, self.clients, self.left)
        self._choose_effort()
        self.runner = Runner(self.experiment, self.threads or available_threads())
        find_data(self.run, self.leavers, self.runner.simulator.simulation.parameters)  # refuses copies of them
        self._done = self._planned = 0

    def _choose_effort(self) -> None:
        """Choose default Δt and n′; refuse those for which the run has no kept updates."""
        kept, b = self.experiment.keep_every, self.experiment.federation.interactions
        if self.method == "retrain" or (self.method == "fresh" and self.experiment.federation.everyone):
            kept = 1  # no kept update is read
        fresh = "use --method fresh, or " if self.experiment.federation.everyone else ""
        nothing = f"its clients kept no updates; {fresh}run it again with --set federation.keep_every={INTERVAL}"
        has_kept = kept == 1 or (kept > 0 and storage.clients_with_kept(self.run))
        require(has_kept, "kept-updates.missing", nothing, str(self.run))
        self.every = self.interval if self.interval is not None else INTERVAL if INTERVAL % kept == 0 else kept
        option = f"--interval {self.every}"
        require(self.every >= 1, "value.out-of-range", "expected at least 1 round", option)
        sentence = f"the clients of {self.run} kept their updates every {kept} rounds; give a multiple of {kept}"
        require(self.every % kept == 0, "value.out-of-range", sentence, option)
        self.steps = b if self.local_steps is None else self.local_steps
        sentence = f"expected 1 to {b}, the local steps of a round of {self.run}"
        require(1 <= self.steps <= b, "value.out-of-range", sentence, f"--local-steps {self.steps}")
        if self.method == "retrain":
            sentence = "retraining repeats every round of the run as it was; leave this option out"
            require(self.interval in (None, 1), "option.conflict", sentence, option)
            require(self.steps == b, "option.conflict", sentence, f"--local-steps {self.steps}")
            self.every = 1

    @property
    def leavers(self) -> tuple[int, ...]:
        """Clients unlearned after this request, ascending."""
        return tuple(sorted({*self.left, *self.clients}))

    @cached_property
    def start(self) -> Doubles:
        """Ranker before the first round of the run."""
        return self.runner.simulator.initial().theta

    @cached_property
    def before(self) -> Doubles:
        """Current ranker of the run."""
        return read_ranker(self.run / storage.RANKER).theta

    @cached_property
    def rebuilt(self) -> Rebuilt:
        """Ranker without the leavers, and the effort it took."""
        self.expect_rounds(self.rounds)
        federation = self.experiment.federation
        if self.method == "retrain":
            engine = self.engine(federation.client_momentum)
            rebuilt = retrain(engine, self.start, self.rounds, self.tick)
        else:
            momentum, gain = momentum_over(federation.client_momentum, self.every)
            engine, own = self.engine(momentum), dict[str, Any]()
            if self.method == "fresh":
                # n′ steps stand for n; evolution strategies send a mean, not a way
                scale = federation.interactions / self.steps if federation.learner.learns_on_client else 1.0
                own = {"step_factor": self.every * scale, "average": AVERAGE, "lengths": "own", "gain": gain}
            rebuilt = rebuild(engine, self.start, self.kept(), self.tick, **own)
        releases = rebuilt.participants, rebuilt.sensitivity, rebuilt.noise
        book = ledger(self.experiment.tables()["privacy"], engine.mechanism, engine.setting, *releases)
        self.entry = {"without": list(self.leavers)} | {key: book[key] for key in ("setting", "releases", "privacy")}
        return rebuilt

    @property
    def rounds(self) -> int:
        """T/Δt, rounds of the rebuilding."""
        return len(range(1, self.experiment.rounds + 1, self.every))

    def engine(self, momentum: float) -> Simulator:
        """Return the engine of the rebuilding: n′ local steps of the remaining clients, with other draws."""
        experiment, each = self.experiment, self.runner.simulator.interactions
        try:
            federation = replace(experiment.federation, interactions=self.steps, client_momentum=momentum)
        except BadInput as error:
            raise error.at(f"--local-steps {self.steps}") from None
        scaled = None if each is None else scaled_steps(each, experiment.federation.interactions, self.steps)
        return self._simulator(federation, fresh_seed(experiment.seed, "unlearning", self.leavers), self.rounds, scaled)

    def _simulator(self, federation: Federation, seed: int, rounds: int, interactions: Integers | None) -> Simulator:
        simulation = replace(self.runner.workload.simulation, seed=seed)
        options: dict[str, Any] = {"rounds": rounds, "interactions": interactions, "absent": self.leavers}
        return Simulator(federation, simulation, self.runner.threads, **options)

    def kept(self, *, updates: bool = False) -> list[KeptRound]:
        """Return the rounds to play again: their remaining clients and the lengths, or whole updates, that these kept."""
        experiment, runner = self.experiment, self.runner
        wanted = range(1, experiment.rounds + 1, self.every)
        remaining = [c for c in range(experiment.federation.clients) if c not in self.leavers]
        everyone = experiment.federation.everyone
        if everyone and self.method == "fresh":
            members = np.array(remaining, dtype=np.int64)
            return [KeptRound(round_, members, np.full(len(members), np.nan)) for round_ in wanted]
        if not everyone:
            own = set(storage.clients_with_kept(self.run))
            remaining = [c for c in remaining if c in own]  # the others never took part in a kept round
        return kept_rounds(self.run, remaining, wanted, runner.simulator.simulation.parameters, whole=updates)

    def retrained(self, seed: int | None = None) -> tuple[Doubles, int]:
        """Retrain without the leavers, with the run's draws or those of another seed; return θ and local steps."""
        experiment, each = self.experiment, self.runner.simulator.interactions
        seed = experiment.seed if seed is None else seed
        simulator = self._simulator(experiment.federation, seed, experiment.rounds, each)
        found = retrain(simulator, self.start, experiment.rounds, self.tick)
        return found.theta, found.local_steps

    def ndcg(self, *thetas: Doubles) -> list[float]:
        """Compute the offline nDCG@10 of rankers on the run's own test split."""
        return [metrics["ndcg@10"] for metrics in self.offline(*thetas)]

    def offline(self, *thetas: Doubles) -> list[dict[str, float]]:
        """Compute the offline metrics of rankers, as `summary.json` holds them."""
        names = ("ndcg@10", "maxrr", *(f"ndcg@{depth}" for depth in self.experiment.evaluation.further))
        means = self.runner.workload.means([*thetas], [None] * len(thetas))
        return [dict(zip(names, metrics, strict=True)) for metrics in means.T.tolist()]

    def distance(self, one: Doubles, other: Doubles) -> float:
        """Compute the mean distance of two rankers' lists for the test queries."""
        splits = [evaluator.data for evaluator in self.runner.workload.evaluators]
        return mean_distance(self.experiment.ranker, one, other, splits, self.experiment.evaluation.k)

    def metrics(self) -> dict[str, Any]:
        """Return quality and effort of the rebuilding."""
        rebuilt, federation = self.rebuilt, self.experiment.federation
        before, after = self.ndcg(self.before, rebuilt.theta)
        share = self.steps * rebuilt.rounds / (federation.interactions * self.experiment.rounds)
        result: dict[str, Any] = {
            "clients": list(self.clients),
            "before": before,
            "after": after,
            "local_updates_share": share if rebuilt.local_steps else 0.0,
            "interval": self.every,
            "local_steps": self.steps if rebuilt.local_steps else 0,
            "method": self.method,
            "rounds": rebuilt.rounds,
            "local_updates": rebuilt.local_steps,
            "zero_updates": {"no_direction": rebuilt.directionless, "no_length": rebuilt.lengthless},
        }
        if self.entry["privacy"] is not None:
            result["privacy"] = self.entry["privacy"] | {"adds_to": "what the run itself has spent"}
        return result

    def comparison(self, seeds: int = SEEDS) -> dict[str, Any]:
        """Compare the rebuilt ranker with a retrained one, and that with `seeds` retrainings by other seeds."""
        expected = "expected at least 1 retraining to tell the noise by"
        require(seeds >= 1, "value.out-of-range", expected, f"--seeds {seeds}")
        self.expect_rounds((seeds + 1) * self.experiment.rounds)
        rebuilt = self.rebuilt.theta
        retrained, steps = self.retrained()
        draws = [fresh_seed(self.experiment.seed, f"retraining {i}", self.leavers) for i in range(seeds)]
        others = [self.retrained(seed)[0] for seed in draws]
        return {
            "retrained": self.ndcg(retrained)[0],
            "retrained_local_updates": steps,
            "retrained_other_seeds": self.ndcg(*others),
            "distance": {
                "unlearned_to_retrained": self.distance(rebuilt, retrained),
                "before_to_retrained": self.distance(self.before, retrained),
                "unlearned_to_before": self.distance(rebuilt, self.before),
                "retrained_seeds": float(np.mean([self.distance(retrained, other) for other in others])),
                "measure": "1 − average overlap of the first 10 documents, mean over all test queries",
            },
        }

    def commit(self, result: dict[str, Any], report: ReportPage) -> dict[str, Any]:
        """Replace the ranker by the rebuilt one in all of the run's files, and erase the leavers' data."""
        experiment, theta = self.experiment, self.rebuilt.theta
        (after,) = self.offline(theta)
        book, run = read_ledger(self.run), load_run(self.run)
        entries = [*book.get("unlearning", []), self.entry]
        statement = combined_privacy(book["mechanism"], [book, *entries])
        book = {**book, "unlearning": entries, "altogether": statement}
        summary = unlearned_summary(run.summary, result, self.leavers, after, statement)
        described = replace(run, config=experiment.tables(), summary=summary, spent=spent_of(book))
        described = replace(described, history=rebuilt_history(summary))
        features = self.runner.collection.train.n_features
        names = feature_names(experiment.data, features)
        ranker = ranker_bytes(saved_ranker(experiment, theta, features, statement, names=names, by="unlearning"))
        # in this order: no ranker is published before its ε is in the ledger
        files = {
            storage.LEDGER: json_bytes(book).decode(),
            storage.RANKER: ranker.decode(),
            storage.REPORT: report(described),
            storage.SUMMARY: json_bytes(summary).decode(),
        }
        note_request(self.run, self.clients, self.leavers, files, result)
        return finish_request(self.run)

    def expect_rounds(self, rounds: int) -> None:
        """Add rounds to the planned number that `watch` is given."""
        self._planned += rounds

    def tick(self, done: int, theta: Doubles) -> None:
        """Report a round of the rebuilding or of a retraining."""
        self._done += 1
        if self.along is not None:
            self.along(done, theta)
        if self.watch is not None:
            self.watch(self._done, max(self._planned, self._done))


def unlearned_summary(
    summary: Mapping[str, Any],
    result: Mapping[str, Any],
    leavers: Sequence[int],
    after: dict[str, float],
    privacy: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the run's summary of the rebuilt ranker; `unlearned` holds the effort."""
    kept = ("local_updates_share", "interval", "local_steps", "method", "rounds", "local_updates")
    note = {"clients": sorted(leavers), "after": after, **{key: result[key] for key in kept}}
    stated = summary.get("privacy") if privacy is None else dict(privacy)
    # the run had published another ranker
    rest = {key: value for key, value in summary.items() if key not in ("handed_out", "dropped_rounds")}
    online = dict.fromkeys(summary["online"])
    return {**rest, "offline": after, "online": online, "privacy": stated, "unlearned": note}


def unlearn(
    run: Path, clients: Sequence[int], report: ReportPage, *, compare: bool = False, seeds: int = SEEDS, **options: Any
) -> dict[str, Any]:
    """Forget clients of a finished run; repeating an interrupted request finishes it.

    `compare` also retrains, with `seeds` further retrainings; `options` are those of `Unlearning`. Returns quality and
    effort, and the erased files.
    """
    storage.tidy(run)
    if is_pending(run, clients):
        return finish_request(run)
    request = Unlearning(run, tuple(clients), **options)
    result = request.metrics()
    if compare:
        result |= request.comparison(seeds)
    return request.commit(result, report)
