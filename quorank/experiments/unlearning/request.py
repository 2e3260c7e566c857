"""Unlearning in a finished run: the ranker rebuilt without some clients, judged, put in place, and their data erased.

The thesis judges unlearning by a leaver that poisoned its updates (§6.1.4). Here the rebuilt ranker is also compared
with a retrained one by what both would show (`rank_distance`), which needs no poison: rebuilt and retrained rankers
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

from quorank.data.feature_names import feature_names
from quorank.engines.process import Simulator
from quorank.errors import BadInput, require
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.finished_run import ReportPage, load_run, spent_of
from quorank.experiments.kept_updates import kept_rounds, read_kept
from quorank.experiments.ranker_of_run import saved_ranker
from quorank.experiments.runner import Runner
from quorank.experiments.unlearning.commit import (
    check_erased,
    files_to_erase,
    finish_request,
    is_pending,
    left_before,
    note_request,
    open_target,
    traces_of,
)
from quorank.experiments.unlearning.records import rebuilding_entry, unlearned_summary, with_rebuilding
from quorank.federation import Federation, State
from quorank.federation.leavers.unlearning import (
    KeptRound,
    Rebuilt,
    ascend,
    fresh_seed,
    momentum_over,
    reaggregate,
    rebuild,
    reference_ranker,
    retrain,
    scaled_steps,
)
from quorank.files.atomic import remove_leftovers
from quorank.files.documents import json_bytes
from quorank.kernels.arrays import Doubles
from quorank.kernels.process import available_threads
from quorank.metrics.rank_distance import mean_distance
from quorank.privacy.ledger import read_ledger
from quorank.rankers.ranker_file import ranker_bytes, read_ranker

Watch = Callable[[int, int], None]
Along = Callable[[int, Doubles], None]
INTERVAL, SEEDS = 10, 3
AVERAGE = 3.0
"""γ of the mean that is handed out, unless the rebuilding is as published."""
RADIUS = 1.0 / 3.0
"""Of the ball of projected gradient ascent, as a share of the reference's distance to rankers that learned nothing."""
RANDOM_RANKERS = 10
"""Rankers that learned nothing, over which that distance is a mean."""
Method = Literal["fresh", "stretched", "published", "retrain", "fine-tune", "fedremove", "pga"]
"""How a ranker forgets. `published`: FedEraser, eqs 6.1 and 6.2 to the letter. `stretched`: each round counts for the
whole interval, and rankers are averaged. `fresh`: so too, but updates keep their own length instead of taking that of the
kept ones, so that nothing of the leavers acts any more. `retrain`: all rounds from the start. `fine-tune`: some more rounds
from the last ranker. `fedremove`: the others' kept updates combined once more. `pga`: the leavers undo their learning,
then as `fine-tune`."""
KEEP_TRACES: tuple[Method, ...] = ("fine-tune", "fedremove", "pga")
"""Methods that start from what was learned with the leavers, so that traces of them may remain."""


def check_leavers(experiment: Experiment, run: Path, asked: Sequence[int], gone: Sequence[int]) -> None:
    """Refuse clients that are not there any more or never were, and federations that cannot do without them."""
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


def check_method(experiment: Experiment, run: Path, method: Method) -> None:
    """Refuse a way to forget that a run's parts do not allow."""
    without = 'run it again with partition.without = ["NAME"], which is exact'
    sentence = f"a log decides who takes part in its rounds, which would be others without a client; {without}"
    require(not experiment.partition.replays, "unlearning.replayed-log", sentence, str(run))
    if method != "pga":
        return
    learner, privacy = experiment.federation.learner, experiment.federation.privacy
    sentence = f"{learner.kind} learns nothing on the client that a leaver could undo; choose another --method"
    require(learner.learns_on_client, "unlearning.nothing-to-undo", sentence, str(run))
    alone = "a leaver would undo its learning in the open, where no noise and no sum hides it"
    sentence = f"{alone}, and this run has privacy {privacy.kind}; choose another --method"
    require(not privacy.protects, "unlearning.leaver-in-the-open", sentence, str(run))


def check_private(experiment: Experiment, run: Path) -> None:
    """Refuse a run whose rebuilding could not be added to what it has spent."""
    known = not experiment.federation.counts_on_secret_cohorts
    sentence = (
        "its ε counts on nobody knowing who was in which cohort, and a rebuilding would repeat the cohorts, so that no ε "
        "could be stated for both; run it again without the client"
    )
    require(known, "unlearning.secret-cohorts", sentence, str(run))


@dataclass(eq=False)
class Unlearning:
    """Request to forget clients of a finished run; nothing is written before `commit`."""

    run: Path
    clients: tuple[int, ...]  # who asks to leave
    interval: int | None = None  # Δt
    local_steps: int | None = None  # n′
    threads: int = field(default_factory=available_threads)
    watch: Watch | None = None
    method: Method = "fresh"
    along: Along | None = None  # called with the rankers on the way: of the rebuilding, and of retraining

    def __post_init__(self) -> None:
        load_run(self.run)  # refuses what is no finished run
        self.experiment: Experiment = storage.read_experiment(self.run)
        self.gone = left_before(self.run)
        check_leavers(self.experiment, self.run, self.clients, self.gone)
        check_private(self.experiment, self.run)
        check_method(self.experiment, self.run, self.method)
        self._check_effort()
        self.runner = Runner(self.experiment, self.threads)
        self._check_copies()
        self._done = self._planned = 0

    def _check_effort(self) -> None:
        """Choose Δt and n′ where they were not asked for; refuse those that the run has no kept updates for."""
        kept, b = self.experiment.keep_every, self.experiment.federation.interactions
        if self.method in ("retrain", "fine-tune") or (self.method == "fresh" and self.experiment.federation.everyone):
            kept = 1  # nothing that was kept is read
        again = f"run it again with --set federation.keep_every={INTERVAL}"
        nothing = f"its clients kept no updates; {again}"
        if self.experiment.federation.privacy.protects:
            fresh = "use --method fresh, or " if self.experiment.federation.everyone else ""
            nothing = f"its clients kept no updates, as with privacy none are by default; {fresh}{again}"
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
        if self.method == "fedremove":
            sentence = "nobody interacts when kept updates are combined once more; leave this option out"
            require(self.local_steps is None, "option.conflict", sentence, f"--local-steps {self.steps}")

    def _check_copies(self) -> None:
        """Refuse a copy of what will be erased before anything is done."""
        traces = traces_of(self.run, self.leavers, self.runner.parameters)
        check_erased(self.run, self.leavers, traces, files_to_erase(self.run, self.leavers))

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
        """The ranker of the run as it is now."""
        return read_ranker(self.run / storage.RANKER).theta

    @cached_property
    def rebuilt(self) -> Rebuilt:
        """The ranker without the leavers by the method that was asked for, and what it took."""
        self._planned += self.rounds
        simulator = self._simulator()
        if self.method in ("retrain", "fine-tune"):
            start = self.start if self.method == "retrain" else self.before
            rebuilt = retrain(simulator, start, self.rounds, self._tick)
        elif self.method == "pga":
            self._planned += self.rounds
            theta, steps = self._ascended()
            rebuilt = replace(retrain(simulator, theta, self.rounds, self._tick), ascent_steps=steps)
        elif self.method == "fedremove":
            rebuilt = reaggregate(simulator, self.start, self._kept(), self._tick, stretch=float(self.every))
        else:
            rebuilt = self._calibrated(simulator)
        part = self.experiment.tables()["privacy"]
        self.entry = rebuilding_entry(part, simulator.mechanism, simulator.setting, rebuilt, self.leavers)
        return rebuilt

    @property
    def rounds(self) -> int:
        """T/Δt, how many rounds the rebuilding takes."""
        return len(range(1, self.experiment.rounds + 1, self.every))

    def _simulator(self) -> Simulator:
        """What plays the rounds of the rebuilding: n′ local steps of those who stay, with draws of its own."""
        experiment, runner = self.experiment, self.runner
        try:
            federation = replace(experiment.federation, interactions=self.steps, client_momentum=self._momentum[0])
        except BadInput as error:
            raise error.at(f"--local-steps {self.steps}") from None
        each, b = runner.simulator.interactions, experiment.federation.interactions
        return Simulator(
            federation,
            replace(runner.workload.simulation, seed=fresh_seed(experiment.seed, "unlearning", self.leavers)),
            self.threads,
            rounds=self.rounds,
            interactions=None if each is None else scaled_steps(each, b, self.steps),
            absent=self.leavers,
        )

    @property
    def _momentum(self) -> tuple[float, float]:
        """β of a round of the rebuilding, and the gain of its updates."""
        whole = self.method in ("retrain", "fine-tune", "pga")  # its rounds are as those of the run
        return momentum_over(self.experiment.federation.client_momentum, 1 if whole else self.every)

    def _calibrated(self, simulator: Simulator) -> Rebuilt:
        """T/Δt rounds of n′ local steps, calibrated (eq. 6.2) unless updates keep their own length."""
        federation = self.experiment.federation
        stretch, average = (1.0, None) if self.method == "published" else (float(self.every), AVERAGE)
        if self.method == "fresh" and federation.learner.learns_on_client:
            # n′ steps stand for n; evolution strategies send a mean, not a way
            stretch *= federation.interactions / self.steps
        lengths: Literal["own", "kept"] = "own" if self.method == "fresh" else "kept"
        kept = self._kept()
        gain = self._momentum[1]
        return rebuild(
            simulator, self.start, kept, self._tick, stretch=stretch, average=average, lengths=lengths, gain=gain
        )

    def _ascended(self) -> tuple[Doubles, int]:
        """The ranker after the leavers' projected gradient ascent from the mean of the others' local rankers."""
        experiment, runner, size = self.experiment, self.runner, self.runner.parameters
        present = [c for c in storage.clients_with_kept(self.run) if c not in self.gone]
        own = {client: read_kept(self.run, client, size) for client in present}
        last = max((int(rounds[-1]) for rounds, _ in own.values() if len(rounds)), default=0)
        held = [c for c, (rounds, _) in own.items() if last in rounds]
        nothing = f"its clients kept no updates; run it again with --set federation.keep_every={INTERVAL}"
        require(not set(held) <= set(self.clients), "kept-updates.missing", nothing, str(self.run))
        updates = np.array([own[c][1][own[c][0] == last][0] for c in held], dtype=np.float64)
        each, members = runner.simulator.interactions, np.array(held, dtype=np.int64)
        weights = np.ones(len(members)) if each is None else each[members].astype(np.float64)
        reference = reference_ranker(self.before, updates, weights, np.isin(members, self.clients))
        seed = fresh_seed(experiment.seed, "ascent", self.leavers)
        features = runner.workload.simulation.data.n_features
        blank = [experiment.ranker.initial(features, seed ^ i) for i in range(RANDOM_RANKERS)]
        radius = RADIUS * float(np.mean([np.linalg.norm(reference - theta) for theta in blank]))
        federation = Federation(experiment.federation.clients, self.steps, experiment.federation.learner)
        simulation = replace(runner.workload.simulation, seed=seed)
        simulator = Simulator(federation, simulation, self.threads, rounds=self.rounds)
        leavers = np.array(sorted(self.clients), dtype=np.int64)
        return ascend(simulator, reference, radius, self.rounds, leavers, self._tick)

    def _kept(self) -> list[KeptRound]:
        """The rounds that are done again: who is in them, and the lengths that these clients kept."""
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
        whole = self.method == "fedremove"
        return kept_rounds(self.run, remaining, wanted, runner.parameters, whole=whole)

    def retrained(self, seed: int | None = None) -> tuple[Doubles, int]:
        """Retrain without the leavers, with the same draws for everyone else or with those of another seed."""
        experiment, runner = self.experiment, self.runner
        simulation = runner.workload.simulation
        simulator = Simulator(
            experiment.federation,
            simulation if seed is None else replace(simulation, seed=seed),
            self.threads,
            rounds=experiment.rounds,
            interactions=runner.simulator.interactions,
            absent=self.leavers,
        )
        found = retrain(simulator, self.start, experiment.rounds, self._tick)
        return found.theta, found.local_steps

    def ndcg(self, *thetas: Doubles) -> list[float]:
        """Compute the offline nDCG@10 of rankers on the run's own test split."""
        return [figures["ndcg@10"] for figures in self.offline(*thetas)]

    def offline(self, *thetas: Doubles) -> list[dict[str, float]]:
        """Compute the offline figures of rankers, as `summary.json` holds them."""
        names = ("ndcg@10", "maxrr", *(f"ndcg@{depth}" for depth in self.experiment.evaluation.further))
        means = self.runner.workload.means([State(0, theta, {}) for theta in thetas])
        return [dict(zip(names, figures, strict=True)) for figures in means.T.tolist()]

    def distance(self, one: Doubles, other: Doubles) -> float:
        """Compute the mean distance of what two rankers show for the test queries."""
        splits = [evaluator.data for evaluator in self.runner.workload.evaluators]
        return mean_distance(self.experiment.ranker, one, other, splits, self.experiment.evaluation.k)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the rebuilding."""
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
            "keeps_traces": self.method in KEEP_TRACES,
            "rounds": rebuilt.rounds,
            "local_updates": rebuilt.local_steps,
            "zero_updates": {"no_direction": rebuilt.directionless, "no_length": rebuilt.lengthless},
        }
        if rebuilt.ascent_steps:
            result["leavers_local_updates"] = rebuilt.ascent_steps
        if self.entry["privacy"] is not None:
            result["privacy"] = self.entry["privacy"] | {"adds_to": "what the run itself has spent"}
        return result

    def comparison(self, seeds: int = SEEDS) -> dict[str, Any]:
        """Compare the rebuilt ranker with retrained ones, and these among themselves."""
        expected = "expected at least 1 retraining to tell the noise by"
        require(seeds >= 1, "value.out-of-range", expected, f"--seeds {seeds}")
        self._planned += (seeds + 1) * self.experiment.rounds
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

    def commit(self, result: dict[str, Any], report: ReportPage, out: Path | None = None) -> dict[str, Any]:
        """Replace the ranker by the rebuilt one in all of the run's files, and erase the leavers' data."""
        experiment, theta = self.experiment, self.rebuilt.theta
        open_target(self.run, out)
        before, after = self.offline(self.before, theta)
        ledger, run = with_rebuilding(read_ledger(self.run), self.entry), load_run(self.run)
        summary = unlearned_summary(run.summary, result, self.leavers, before, after, ledger["altogether"])
        described = replace(run, config=experiment.tables(), summary=summary, spent=spent_of(ledger))
        features, statement = self.runner.collection.train.n_features, ledger["altogether"]
        names = feature_names(experiment.data, features)
        ranker = ranker_bytes(saved_ranker(experiment, theta, features, statement, names=names, by="unlearning"))
        # in this order: nothing is handed out before it is accounted for
        files = {
            storage.LEDGER: json_bytes(ledger).decode(),
            storage.RANKER: ranker.decode(),
            storage.REPORT: report(described),
            storage.SUMMARY: json_bytes(summary).decode(),
        }
        note_request(self.run, self.clients, self.leavers, files, result, out)
        return finish_request(self.run)

    def _tick(self, done: int, theta: Doubles) -> None:
        self._done += 1
        if self.along is not None:
            self.along(done, theta)
        if self.watch is not None:
            self.watch(self._done, max(self._planned, self._done))


def unlearn(
    run: Path,
    clients: Sequence[int],
    report: ReportPage,
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
    """Forget clients of a finished run; return the figures, with `compare` those of retraining too.

    `report` writes the page about the run as it is afterwards. A request that was cut short is finished when it is
    repeated.
    """
    storage.tidy(run)
    if out is not None:
        remove_leftovers(out)
    if is_pending(run, clients, out):
        return finish_request(run)
    request = Unlearning(run, tuple(clients), interval, local_steps, threads or available_threads(), watch, method)
    result = request.figures()
    if compare:
        result |= request.comparison(seeds)
    return request.commit(result, report, out)
