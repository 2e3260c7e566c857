"""A run whose rounds an engine plays over a network: the experiments that can be, and the simulated clients behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorank.engines.carried_updates import CarriedUpdates
from quorank.engines.engine import Engine, EngineRun, Play
from quorank.engines.simulated_clients import SimulatedClients
from quorank.errors import require
from quorank.experiments.experiment import Experiment
from quorank.experiments.kept_updates import KeptUpdates
from quorank.experiments.run_directory import CARRIED, read_experiment
from quorank.experiments.update_rounds import UpdateRounds
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report, State

CLIENTS = f"{__name__}:simulated_clients"
"""Factory of a run's clients, for processes that an engine starts."""


def check_network(experiment: Experiment) -> None:
    """Refuse an experiment that does not go over a network."""
    federation = experiment.federation
    privacy: Any = federation.privacy
    secure = privacy.hides_single_updates
    in_process = "in process only; run without --engine, or"
    for wrong, where, sentence in (
        (
            federation.attack is not None,
            "attack",
            f"attackers collude, so they are simulated {in_process} without [attack]",
        ),
        (
            federation.personal.keeps_parameters,
            "federation.personal",
            f'personal parameters are kept by simulated clients {in_process} with personal = "shared"',
        ),
        (
            experiment.partition.replays,
            "partition.order",
            f'a log is replayed {in_process} with partition.order = "random"',
        ),
        (
            secure and privacy.dropouts > 0.0,
            "privacy.dropouts",
            f"simulated drop-outs of a secure sum are sampled {in_process} with dropouts = 0",
        ),
        (
            secure and getattr(privacy, "noise_by", "clients") != "clients",
            "privacy.noise_by",
            "on a network the noise of secure sums is drawn by the clients; run without --engine, or "
            'with noise_by = "clients"',
        ),
    ):
        require(not wrong, "option.conflict", sentence, where)


def simulated_clients(folder: Path) -> SimulatedClients:
    """Return the clients of the run in this directory, for another process."""
    return clients_of(read_experiment(folder), folder)


def clients_of(experiment: Experiment, folder: Path) -> SimulatedClients:
    """Return the clients of an experiment whose run is in this directory."""
    check_network(experiment)
    simulator, keep_every = UpdateRounds.of(experiment).simulator, experiment.keep_every
    federation, size = simulator.federation, simulator.simulation.parameters
    keeper = KeptUpdates(keep_every, folder) if keep_every else None
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
    run = EngineRun(
        folder,
        lambda: clients_of(experiment, folder),
        CLIENTS,
        experiment.federation.clients,
        file is not None,
        state.round,
        experiment.rounds,
        stop,
    )
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
