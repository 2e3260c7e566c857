"""An experiment on a network of real nodes on this machine, in place of the in-process engine: to the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from quorank.engines.driver import Driver, SharedNodes
from quorank.engines.node_driver import Stopped
from quorank.errors import Interrupted, require_range
from quorank.experiments import run_directory as storage
from quorank.experiments.experiment import Experiment
from quorank.experiments.runner import Engine, Play, Runner
from quorank.experiments.simulated_clients import check
from quorank.federation.coordinator import Coordinator
from quorank.federation.rounds import Report
from quorank.flower import app as flower_app
from quorank.flower.network import FlowerNetwork, NetworkDown

MOST_NODES = 100
PATIENCE = 120.0
"""Seconds until a node that runs but does not answer has its clients played by another."""


def flower(experiment: Experiment, nodes: int) -> Engine:
    """Flower with so many nodes; what it cannot do is refused here, before anything starts."""
    require_range("--nodes", nodes, least=1, most=MOST_NODES)
    check(experiment)
    flower_app.check_installed()

    @contextmanager
    def bring_up(runner: Runner, folder: Path, stop: Callable[[], bool]) -> Iterator[Play]:
        done = 0 if runner.state is None else runner.state.round

        def give_up() -> None:
            if stop():
                raise Interrupted(done, experiment.rounds)

        with FlowerNetwork(nodes, folder.resolve() / storage.CONFIG, give_up) as network:
            assignment = SharedNodes(network.names)
            driver = Driver(network.transport, assignment, patience=PATIENCE, stop=stop, tend=network.tend)

            def play(coordinator: Coordinator) -> Report:
                try:
                    return driver.round(coordinator)
                except NetworkDown as error:
                    raise Stopped(coordinator.state.round, coordinator.rounds, str(error)) from None

            yield play

    return bring_up
