"""The driver over a bad network: whatever is lost, late, repeated or out of order, the ranker is the simulator's."""

from __future__ import annotations

import numpy as np
import pytest
from devices import FEDERATIONS, MemoryStorage, Ticks, coordinator_of, simulator_of, state_after
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_transport import MemoryTransport

from quorank.engines.driver import Driver
from quorank.engines.engine import SharedNodes, Stopped
from quorank.engines.simulated_clients import SimulatedClients
from quorank.errors import BadInput, Interrupted
from quorank.federation.reply import Reply, decode_reply, decode_task, encode_reply
from quorank.protocol import frames
from quorank.protocol.transport import FAILED, Failure

CLIENTS, ROUNDS = 12, 4
KINDS = ("plain", "sampled", "momentum", "krum", "evolution", "quantile")
NAMES = ("node-0", "node-1", "node-2")


def answering(simulator, tmp_path):
    clients = SimulatedClients(simulator)

    return lambda node, content: clients.respond(content)


def driver_of(transport, ticks, assignment=None, **options) -> Driver:
    options.setdefault("patience", 3.0)
    return Driver(transport, assignment or SharedNodes(NAMES), clock=ticks, sleep=ticks.sleep, **options)


def drive(coordinator, driver):
    return [driver.round(coordinator) for _ in range(coordinator.state.round, coordinator.rounds)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("faults", [{}, {"loss": 0.3, "duplicates": 0.3, "delay": 5}])
def test_the_ranker_is_the_simulator_s(name, faults, tiny_collection, tmp_path) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS[name]), Ticks()
    transport = MemoryTransport(answering(simulator, tmp_path), NAMES, **faults)
    coordinator = coordinator_of(simulator, clock=ticks, storage=MemoryStorage())
    reports = drive(coordinator, driver_of(transport, ticks))
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()
    assert reports == coordinator.reports
    assert [report.round for report in reports] == [1, 2, 3, 4]
    if not faults:
        assert transport.pushed == 3 * ROUNDS  # one message for a node and round, and none in vain
        assert not coordinator.refused


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    loss=st.floats(0.0, 0.7),
    duplicates=st.floats(0.0, 1.0),
    delay=st.integers(0, 12),
    seed=st.integers(0, 99),
    count=st.integers(1, 3),
    data=st.data(),
)
def test_no_network_is_so_bad_that_it_changes_a_bit(
    loss, duplicates, delay, seed, count, data, tiny_collection, tmp_path
) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS["sampled"]), Ticks()
    names = NAMES[:count]
    transport = MemoryTransport(answering(simulator, tmp_path), names, loss, duplicates, delay, seed)
    moves = data.draw(st.lists(st.sampled_from(names), max_size=12))

    def come_and_go() -> None:
        """At every look one of the nodes changes sides, as long as there are moves; then all come back."""
        if not moves:
            for name in names:
                transport.come(name)
            return
        name = moves.pop()
        (transport.leave if name in transport.present else transport.come)(name)

    coordinator = coordinator_of(simulator, clock=ticks)
    drive(coordinator, driver_of(transport, ticks, SharedNodes(names), tend=come_and_go))
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()


def test_a_node_that_dies_in_a_round_is_played_by_the_others(tiny_collection, tmp_path) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS["plain"]), Ticks()
    played: dict[str, set[int]] = {name: set() for name in NAMES}
    clients = answering(simulator, tmp_path)

    def answer(node, content):
        played[node] |= set(decode_task(content).clients)
        return clients(node, content)

    transport = MemoryTransport(answer, NAMES, delay=lambda node: 3.0 if node == "node-1" else 0.0)
    coordinator = coordinator_of(simulator, clock=ticks)
    driver = driver_of(transport, ticks)
    driver.seen = lambda _: transport.leave("node-1")  # the others have answered, and it has its task
    drive(coordinator, driver)
    assert played["node-1"] == set()
    assert played["node-0"] | played["node-2"] == set(range(CLIENTS))
    assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()
    assert ticks.now < driver.patience  # nobody waited for the dead


def test_clients_are_played_by_their_own_node_while_it_is_there() -> None:
    shared = SharedNodes(("a", "b", "c"))
    assert [shared.node(client, 0, {"a", "b", "c"}) for client in range(5)] == ["a", "b", "c", "a", "b"]
    assert shared.node(1, 0, {"a", "c"}) in {"a", "c"}
    assert {shared.node(1, turn, {"a", "b", "c"}) for turn in (1, 2, 3)} == {"a", "b", "c"}
    assert shared.node(1, 0, set()) is None
    assert shared.node(1, 0, {"stranger"}) is None
    with pytest.raises(BadInput, match="at least one node"):
        SharedNodes(())


def test_a_node_that_only_fails_costs_nothing_but_time(tiny_collection, tmp_path) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS["plain"]), Ticks()
    good = answering(simulator, tmp_path)
    for bad in (Failure(FAILED), b"", frames.pack([b"not a reply"]), frames.pack([])):

        def answer(node, content, bad=bad):
            return bad if node == "node-2" else good(node, content)

        coordinator = coordinator_of(simulator, clock=ticks)
        drive(coordinator, driver_of(MemoryTransport(answer, NAMES), ticks))
        assert coordinator.state.theta.tobytes() == state_after(simulator).theta.tobytes()


def test_where_nobody_can_answer_the_run_stops_with_a_sentence(tiny_collection) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS["plain"]), Ticks()
    coordinator = coordinator_of(simulator, clock=ticks)
    with pytest.raises(Stopped) as stopped:
        drive(coordinator, driver_of(MemoryTransport(lambda *_: Failure(FAILED), NAMES), ticks))
    assert "asked 3 times without success: the node could not answer" in stopped.value.reason
    assert (stopped.value.round, stopped.value.rounds) == (0, ROUNDS)


def test_a_client_whose_replies_are_refused_stops_the_run_with_the_reason(tiny_collection, tmp_path) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS["plain"]), Ticks()
    honest = answering(simulator, tmp_path)

    def answer(node, content):
        replies = [decode_reply(reply) for reply in frames.unpack(honest(node, content))]
        return frames.pack(
            [encode_reply(Reply(r.run, r.round, r.client, r.release * np.nan, r.interactions)) for r in replies]
        )

    with pytest.raises(Stopped) as stopped:
        drive(coordinator_of(simulator, clock=ticks), driver_of(MemoryTransport(answer, NAMES), ticks))
    assert "not finite" in stopped.value.reason


@pytest.mark.parametrize("killed_after", [1, 5, 16])
def test_a_coordinator_killed_in_a_round_goes_on_to_the_same_bits(killed_after, tiny_collection, tmp_path) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS["quantile"]), Ticks()
    transport = MemoryTransport(answering(simulator, tmp_path), NAMES, loss=0.2, delay=3, seed=killed_after)
    looks = 0

    class Killed(BaseException):
        pass

    def kill() -> None:
        nonlocal looks
        looks += 1
        if looks == killed_after:
            raise Killed

    storage = MemoryStorage()
    with pytest.raises(Killed):
        drive(coordinator_of(simulator, clock=ticks, storage=storage), driver_of(transport, ticks, tend=kill))
    again = coordinator_of(simulator, clock=ticks, storage=storage)  # a new process, that finds the checkpoint
    drive(again, driver_of(transport, ticks))
    assert again.state.theta.tobytes() == state_after(simulator).theta.tobytes()
    assert len(again.reports) == ROUNDS


def test_it_stops_in_the_middle_of_a_round_when_asked(tiny_collection, tmp_path) -> None:
    simulator, ticks = simulator_of(tiny_collection, FEDERATIONS["plain"]), Ticks()
    transport = MemoryTransport(answering(simulator, tmp_path), NAMES, delay=lambda node: float("inf"))
    coordinator = coordinator_of(simulator, clock=ticks)
    with pytest.raises(Interrupted) as stopped:
        drive(coordinator, driver_of(transport, ticks, stop=lambda: ticks.now > 50.0))
    assert not isinstance(stopped.value, Stopped)
    assert (stopped.value.round, stopped.value.rounds) == (0, ROUNDS)
