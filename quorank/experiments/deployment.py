"""Deployment of an experiment to real devices: its checks, terms, coordinator and privacy, and simulated users."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from quorank.errors import require, under
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import find_experiment_file
from quorank.experiments.progress import LEDGER
from quorank.experiments.workload import Workload, collection_of, experiment_collection, started_experiment
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.storage import RoundStorage
from quorank.federation.unlearning.rebuilding import RebuildingLedger
from quorank.kernels.arrays import Doubles
from quorank.kernels.draws import BATCH, Address
from quorank.learning import Shown
from quorank.learning.client_loop import Simulation, World, draw_query
from quorank.learning.pdgd import ListLearner
from quorank.privacy import Setting
from quorank.privacy.composition import Composed, Loss, compose, total_loss
from quorank.privacy.ledger import combined_privacy, ledger
from quorank.privacy.mechanisms.mechanism import incomplete_noise
from quorank.privacy.mechanisms.randomised_response import MetricResponse
from quorank.protocol.terms import PARTS, Terms
from quorank.users.click_model import click_list


def check_experiment(experiment: Experiment, n_features: int = 46) -> None:
    """Refuse an experiment that real devices cannot run, and an impossible privacy budget."""
    sentence = "this experiment simulates attackers; leave out [attack] for real devices"
    require(experiment.federation.attack is None, "option.conflict", sentence, "attack")
    normalize = experiment.data.normalize
    sentence = "real devices normalise their features themselves, by constants that they know: give low and high"
    known = not normalize.learns and normalize.epsilon is None
    require(known, "normalisation.not-deployable", sentence, "data.normalize")
    with under("data.normalize"):
        normalize.check_size(n_features)
    for key in ("ranker", "learner", "privacy", "personal"):
        part = experiment.ranker if key == "ranker" else getattr(experiment.federation, key)
        sentence = f"{part.kind} is another package's, and devices load no plug-ins; choose one of Quorank's own"
        require(part.kind in PARTS[key].ours, "plugin.not-deployable", sentence, key)
    _ = terms_of(experiment, n_features, 0).mechanism  # refuses noise that devices cannot draw


def check_rounds(experiment: Experiment, least: float, report_epsilon: float) -> None:
    """Refuse rounds that end before noise in shares is complete, and reports that reveal a secret cohort size."""
    privacy, participation = experiment.federation.privacy, experiment.federation.participation
    sentence = (
        "a mean of reports leaks the size of a cohort, and this ε assumes that it is secret; use sampled, or no reports"
    )
    secret = experiment.federation.assumes_secret_cohorts and not participation.fixed_size
    require(report_epsilon == 0.0 or not secret, "option.conflict", sentence, "report_epsilon")
    sentence = f"{incomplete_noise(privacy.kind)}; let rounds wait for all of them with --set enough=1 --set least=1"
    require(least == 1.0 or not privacy.needs_equal_shares, "option.conflict", sentence, "least")


def start_of(experiment: Experiment, n_features: int) -> Doubles:
    """Return θ before the first round."""
    return experiment.ranker.initial(n_features, experiment.seed)


def setting_of(experiment: Experiment, n_features: int) -> Setting:
    """Return the setting that the run's privacy is planned for."""
    size = experiment.ranker.size(n_features)
    return experiment.federation.setting(experiment.rounds, size, experiment.evaluation.k + 1)


def deployed_coordinator(
    experiment: Experiment,
    n_features: int,
    secret: bytes,  # of its noise and cohorts
    *,
    run: str,
    rules: RoundLimits,
    keeping: RoundStorage,
    clock: Callable[[], float],
    figure: MetricResponse | None,
    enrolled: Container[int],
) -> Coordinator:
    """Return the coordinator of a deployed experiment, resumed from its checkpoint.

    Noise in equal shares is complete with the planned cohort only: with fewer replies a round does not end.
    """
    federation, setting = experiment.federation, setting_of(experiment, n_features)
    mechanism = federation.privacy.mechanism(setting, secret)
    state = replace(federation.start(start_of(experiment, n_features)), private=mechanism.start())
    fewest = setting.cohort if federation.privacy.needs_equal_shares else rules.minimum_replies
    limits = replace(rules, max_interactions=setting.interactions, minimum_replies=fewest, simulated=False)
    basis = (federation, mechanism, state, experiment.rounds, run, secret, limits, keeping, clock)
    may_reply = enrolled if federation.participation.open_arrivals else None
    return Coordinator(*basis, metric_response=figure, enrolled=may_reply)


def fitted_to_data(experiment: Experiment) -> tuple[Experiment, int]:
    """Return the experiment with its ranker's start, and the number of features of its data."""
    collection = collection_of(experiment.data)
    n_features = collection.train.n_features
    return started_experiment(experiment, n_features, collection), n_features


def terms_of(
    experiment: Experiment,
    n_features: int,
    client: int,
    run: str = "run",
    interactions: int | None = None,
    report_epsilon: float = 0.0,
    total_epsilon: float = 0.0,
    attester: bytes = b"",
) -> Terms:
    """Return the terms that one client of an experiment agrees to."""
    federation = experiment.federation
    # with open arrivals more may enrol than the file plans with
    most = 2**31 if federation.participation.open_arrivals else federation.clients
    sentence = f"the experiment has clients 0 to {federation.clients - 1}"
    require(0 <= client < most, "value.out-of-range", sentence, f"--client {client}")
    sentence = f"devices learn with pdgd or counterfactual, and this run uses {federation.learner.kind}"
    require(federation.learner.learns_late, "option.conflict", sentence)
    return Terms(
        run,
        client,
        n_features,
        experiment.rounds,
        federation.interactions if interactions is None else interactions,
        experiment.evaluation.k,
        experiment.ranker,
        cast("ListLearner", federation.learner),
        federation.privacy,
        federation.personal,
        setting_of(experiment, n_features),
        report_epsilon,
        federation.client_momentum,
        0 if federation.privacy.protects and not total_epsilon else experiment.rounds,  # else they replace rounds
        total_epsilon,
        attester,
    )


STATEMENT_SECONDS = 1.0  # time above which ε is computed for a few rounds ahead


@dataclass(eq=False)
class DeployedPrivacy:
    """Privacy spent by a coordinator's run; `count` is called after every release."""

    experiment: Experiment
    coordinator: Coordinator
    setting: Setting  # what the run is planned for
    report_epsilon: float = 0.0  # ε of what a device reports with each release; 0: nothing
    total_epsilon: float = 0.0  # ε that all releases may reach together; 0: the run's and the reports' own
    rebuilt: RebuildingLedger | None = None  # None where nobody can leave
    spent: Composed | None = field(default=None, init=False)  # by all that was released
    exceeded: bool = field(default=False, init=False)  # more was released than planned
    _statement: dict[str, Any] = field(default_factory=dict, init=False)
    _stated: int = field(default=0, init=False)  # rounds that the statement is of
    _counting: float = field(default=0.0, init=False)  # seconds that counting them took

    @cached_property
    def withheld(self) -> bool:
        """True if ε assumes that the members of a cohort are secret."""
        return self.experiment.federation.assumes_secret_cohorts

    @property
    def shown_cohort(self) -> int | None:
        """Planned cohort size, where the true one is secret."""
        return self.setting.cohort if self.withheld else None

    @cached_property
    def planned(self) -> Composed | None:
        """Planned ε and δ of the run and its reports; None if nothing is accounted."""
        mechanism, rounds = self.coordinator.mechanism, self.experiment.rounds
        loss, stated = mechanism.loss(rounds), mechanism.statement(1) or {}
        return None if loss is None else compose(loss + self.reports(rounds), stated["delta"])

    def reports(self, rounds: int) -> Loss:
        """Return the loss of the reports of the client that takes part most often in the first `rounds` rounds."""
        return Loss(pure=self.report_epsilon * self.setting.participations(rounds))

    @property
    def of_ranker(self) -> Mapping[str, Any] | None:
        """Statement of all planned rounds, with ε of reports, and of rebuildings where they have spent more."""
        stated, planned = self._whole_run, self.planned
        if stated is None or planned is None:
            return stated
        spent = planned.epsilon if self.spent is None else max(planned.epsilon, self.spent.epsilon)
        return {**stated, "epsilon": spent}

    @cached_property
    def _whole_run(self) -> Mapping[str, Any] | None:
        return self.coordinator.mechanism.statement(self.experiment.rounds)

    @property
    def budget(self) -> float | None:
        """Limit on ε of run, reports and rebuildings together."""
        return self.total_epsilon or (None if self.planned is None else self.planned.epsilon)

    @property
    def delta(self) -> float | None:
        """δ of the statement."""
        return self._statement.get("delta")

    @property
    def unit(self) -> str | None:
        """Unit of protection: a client, an interaction."""
        return self._statement.get("unit")

    def count(self) -> bool:
        """Account all releases; where that takes long, for a few rounds ahead, never too little.

        Returns:
            True if the budget is exceeded now and was not before.
        """
        coordinator, began, done = self.coordinator, time.monotonic(), self.coordinator.state.round
        if done > self._stated:
            ahead, is_first = 0 if self._counting < STATEMENT_SECONDS else done // 10, not self._statement
            self._stated = min(done + ahead, coordinator.rounds)
            self._statement = coordinator.mechanism.statement(self._stated) or {}
            self._counting = 0.0 if is_first else time.monotonic() - began  # the first one loads the accountant
        if self._statement.get("epsilon") is None:
            return False
        run, rebuilt = coordinator.mechanism.loss(self._stated), [] if self.rebuilt is None else self.rebuilt.losses()
        if run is not None and (rebuilt or self.report_epsilon):
            self.spent = compose(total_loss([run, self.reports(done), *rebuilt]), self._statement["delta"])
        else:
            self.spent = Composed(self._statement["epsilon"], self._statement["delta"], "of the run alone")
        before, budget = self.exceeded, self.budget
        self.exceeded = before or (budget is not None and self.spent.epsilon > budget * (1.0 + 1e-9))
        return self.exceeded and not before

    def book(self) -> dict[str, Any] | None:
        """Return the ledger of all releases; None during a run whose accounting takes long."""
        coordinator, done = self.coordinator, self.coordinator.state.round
        if self._stated > done and not coordinator.done:
            return None
        part, reports = self.experiment.tables()["privacy"], coordinator.reports
        columns = [np.array([getattr(report, name) for report in reports], dtype=np.float64) for name in LEDGER]
        book = ledger(part, coordinator.mechanism, self.setting, *columns, withhold=self.withheld, curve=False)
        entries = [] if self.rebuilt is None else self.rebuilt.table(withhold=self.withheld)
        if entries or self.report_epsilon:
            loss, count = self.reports(done), self.setting.participations(done)
            own = {"kind": "figure", "unit": "client", "epsilon": loss.pure, "delta": 0.0, "rounds": done}
            stated = {"reports": own | {"horizon": f"{count} reports"}} if self.report_epsilon else {}
            book |= {"unlearning": entries} | stated
            book["altogether"] = combined_privacy(part, [book, *entries], loss)
        return book


# ---------------------------------------------------------------- simulated users


class UserDevice(Protocol):
    """Device that a user searches with, such as `quorank.member.device.Device`."""

    @property
    def turn(self) -> tuple[int, int]: ...
    def rank(self, features: npt.ArrayLike) -> Shown: ...
    def record(self, shown: Shown, clicks: npt.ArrayLike) -> None: ...


class SimulatedUser:
    """Simulated user of a device: `user(device)` is one interaction.

    Query, list and clicks have the simulator's addresses, so that a device with the experiment's seed records exactly what
    the simulator's client does.
    """

    def __init__(self, simulation: Simulation, client: int) -> None:
        self.simulation, self.client = simulation, client

    @classmethod
    def of(cls, file: Path, client: int) -> SimulatedUser:
        """Return a client of the experiment in a file."""
        experiment = Experiment.read(find_experiment_file(file))
        clients = experiment.federation.clients
        sentence = f"the experiment has clients 0 to {clients - 1}"
        require(0 <= client < clients, "value.out-of-range", sentence, f"--client {client}")
        experiment, _ = fitted_to_data(experiment)
        return cls(Workload(experiment, experiment_collection(experiment)).simulation, client)

    @cached_property
    def world(self) -> World:
        return self.simulation.world()

    def __call__(self, device: UserDevice) -> None:
        world, client = self.world, self.client
        round_, interaction = device.turn
        address = Address(interaction, client, round_)
        query, model = draw_query(world, address)
        start, end = world.offsets[query], world.offsets[query + 1]
        shown = device.rank(world.padded[start:end, : world.n_features])
        k = len(shown.order)
        clicked = np.zeros(k, dtype=np.bool_)
        click_list(world.users, model, address, start, shown.order, k, clicked, np.empty(BATCH))
        device.record(shown, clicked)
