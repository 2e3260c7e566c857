"""A network of two nodes whose parts are killed in the middle of rounds: it goes on to the same bytes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flower_runs import experiment_of, write_collection

from quorank.certificates import Authority, node_keys, write_private
from quorank.experiments import run_directory as storage
from quorank.experiments.runner import Runner
from quorank.federation.asynchronous import Asynchronous
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.flower.driver import Driver, SharedNodes, drive
from quorank.flower.engine import worker_command
from quorank.flower.processes import free_ports

pytest.importorskip("flwr", reason="needs quorank[network]")
if not Path("/proc/self/stat").exists():
    pytest.skip("finds processes by /proc", allow_module_level=True)

from quorank.flower.app import Commands, environment
from quorank.flower.network import FlowerNetwork

ROUNDS = 3


@pytest.fixture(scope="module")
def runner(tmp_path_factory) -> Runner:
    collection = write_collection(tmp_path_factory.mktemp("flower") / "letor")
    words = (f"federation.rounds={ROUNDS}", "federation.keep_every=0")
    return Runner(experiment_of(collection, *words), threads=1)


@pytest.fixture(scope="module")
def network(runner, tmp_path_factory) -> Iterator[FlowerNetwork]:
    folder = tmp_path_factory.mktemp("flower") / "run"
    storage.open_new(folder, runner.experiment)
    with FlowerNetwork(2, worker_command(folder)) as network:
        yield network


def coordinator_of(runner: Runner, rounds: int = ROUNDS, **options) -> Coordinator:
    simulator = runner.simulator
    return Coordinator(
        runner.experiment.federation,
        simulator.mechanism,
        simulator.initial(),
        rounds,
        seed=runner.experiment.seed,
        **options,
    )


def server_app(network: FlowerNetwork) -> int:
    """The process of the ServerApp, which the coordinator's executor started."""
    group = network.processes.children["executor"].process.pid
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != group:
            try:
                same = os.getpgid(int(entry.name)) == group
                name = (entry / "comm").read_text().strip()
            except OSError:
                continue
            if same and name == "flower_own_serv":
                return int(entry.name)
    raise AssertionError("there is no ServerApp")


def test_whatever_is_killed_in_a_round_the_ranker_is_the_simulator_s(runner, network, tmp_path) -> None:
    faults: list[Callable[[], object]] = [
        lambda: network.processes.kill("node-1"),
        lambda: network.processes.children["superlink"].signal(signal.SIGKILL),
        lambda: os.kill(server_app(network), signal.SIGKILL),
    ]
    coordinator = coordinator_of(runner, folder=tmp_path)
    done = []

    def tend() -> None:
        if coordinator.waiting and len(done) == coordinator.state.round:  # tasks are on their way
            done.append(coordinator.state.round)
            faults[coordinator.state.round]()
        network.tend()

    driver = Driver(network.transport, SharedNodes(network.names), tend=tend)
    drive(coordinator, driver)
    assert done == list(range(ROUNDS))
    runner.run()
    assert runner.state is not None
    assert coordinator.state.theta.tobytes() == runner.state.theta.tobytes()
    assert [report.participants for report in coordinator.reports] == [10] * ROUNDS


def test_a_wrong_authority_and_an_unknown_key_are_refused(network, tmp_path) -> None:
    (tmp_path / "other.pem").write_bytes(Authority.create().pem)
    known, unknown = network.folder / "node-0.key", tmp_path / "unknown.key"
    write_private(unknown, node_keys().private)
    right, secret = network.commands.certificate, network.commands.secret
    first, second = free_ports(2)
    strangers = {
        "other-authority": Commands(network.commands.address, tmp_path / "other.pem", secret).supernode(known, first),
        "unknown-key": Commands(network.commands.address, right, secret).supernode(unknown, second),
    }
    for name, command in strangers.items():
        network.processes.start(name, command, environment(tmp_path / name))
    children = [network.processes.children[name] for name in strangers]
    end = time.monotonic() + 100
    while any(child.running for child in children) and time.monotonic() < end:
        time.sleep(0.1)
    said = {child.name: child.log.read_text() for child in children}
    assert [child.code not in (None, 0) for child in children] == [True, True], said
    assert "CERTIFICATE_VERIFY_FAILED" in said["other-authority"]
    assert "SuperNode ID" not in said["other-authority"] + said["unknown-key"]
    for name in strangers:
        network.processes.kill(name)


def test_asynchronous_rounds_go_over_the_network(runner, network) -> None:
    rules = RoundLimits(asynchronous=Asynchronous(replies=5))
    coordinator = coordinator_of(runner, rounds=2, rules=rules)
    driver = Driver(network.transport, SharedNodes(network.names), tend=network.tend)
    reports = drive(coordinator, driver)
    assert all(report.participants >= 5 for report in reports)
    assert not coordinator.refused
