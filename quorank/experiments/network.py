"""Rounds of a run over a network: the experiments that can be, the simulated clients, and the start of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorank.engines.engine import Engine, EngineRun, Play
from quorank.engines.simulated_clients import CarriedUpdates, SimulatedClients
from quorank.errors import require
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.run_directory import CARRIED, read_experiment
from quorank.experiments.workload import UpdateRounds, experiment_collection, with_learned_ranges
from quorank.federation import Report, State
from quorank.federation.coordinator import Coordinator

CLIENTS = f"{__name__}:simulated_clients"  # factory of a run's clients, for processes that an engine starts


def check_network(experiment: Experiment) -> None:
    """Refuse an experiment that does not go over a network."""
    federation = experiment.federation
    privacy: Any = federation.privacy
    secure = privacy.hides_single_updates
    for where, wrong, what, instead in (
        ("attack", federation.attack is not None, "attackers collude, so they are simulated", "without [attack]"),
        (
            "federation.personal", federation.personal.keeps_parameters, "personal parameters are kept",
            'with personal = "shared"',
        ),
        ("partition.order", experiment.partition.replays, "a log is replayed", 'with partition.order = "random"'),
        (
            "privacy.dropouts", secure and privacy.dropouts > 0.0, "drop-outs of a secure sum are sampled",
            "with dropouts = 0",
        ),
    ):  # fmt: skip
        sentence = f"{what} in process only; run without --engine, or {instead}"
        require(not wrong, "option.conflict", sentence, where)


def simulated_clients(folder: Path) -> SimulatedClients:
    """Return the clients of the run in this directory, for another process."""
    return clients_of(read_experiment(folder), folder)


def clients_of(experiment: Experiment, folder: Path) -> SimulatedClients:
    """Return the clients of an experiment whose run is in this directory."""
    check_network(experiment)
    experiment = with_learned_ranges(experiment)
    simulator = UpdateRounds(experiment, experiment_collection(experiment)).simulator
    federation, size = simulator.federation, simulator.simulation.parameters
    keeper = KeptUpdates(experiment.keep_every, folder) if experiment.keep_every else None
    if keeper is not None:
        keeper.load(size)
    carried = CarriedUpdates(folder / CARRIED, federation.clients, size) if federation.client_momentum > 0.0 else None
    return SimulatedClients(simulator, keeper, carried)


@contextmanager
def network_rounds(
    engine: Engine, experiment: Experiment, folder: Path, state: State, stop: Callable[[], bool]
) -> Iterator[Play]:
    """Start the engine of a run that stands at `state`; yield what plays its rounds.

    Clients that carry updates into the next round keep them in a file of the run. After each round they become part of
    the state, as in process, and so of checkpoints.
    """
    file = None if state.carried is None else CarriedUpdates.begin(folder / CARRIED, state.round, state.carried)
    counts = experiment.federation.clients, file is not None, state.round, experiment.rounds
    run = EngineRun(folder, lambda: clients_of(experiment, folder), CLIENTS, *counts, stop)
    try:
        with engine(run) as play:

            def play_carrying(coordinator: Coordinator) -> Report:
                report = play(coordinator)
                if file is not None:
                    after = coordinator.state
                    coordinator.state = replace(after, carried=file.after(after.round - 1))
                return report

            yield play_carrying
    finally:
        (folder / CARRIED).unlink(missing_ok=True)
