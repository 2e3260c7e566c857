"""What simulated clients on a network carry on of their updates: to the bits of the run in process, whoever is killed."""

from __future__ import annotations

import stat

import numpy as np
from devices import simulator_of
from refusals import refused

from quorank.engines.simulated_clients import NOTHING, OVER, CarriedUpdates, SimulatedClients
from quorank.experiments import run_directory as storage
from quorank.federation import Federation
from quorank.federation.participation import Sampled
from quorank.federation.reply import Task, decode_reply, encode_task
from quorank.protocol import frames

CLIENTS = 9


def test_rounds_played_twice_and_by_new_processes_follow_the_simulator(tiny_collection, tmp_path) -> None:
    federation = Federation(CLIENTS, 3, client_momentum=0.7, participation=Sampled(cohort=4))
    simulator = simulator_of(tiny_collection, federation, rounds=6)
    state = simulator.initial()
    file, size = CarriedUpdates.begin(tmp_path / storage.CARRIED, 0, state.carried), len(state.theta)
    assert stat.S_IMODE((tmp_path / storage.CARRIED).stat().st_mode) == 0o600
    for round_ in range(6):
        sent = []
        cohort = simulator.members(round_)
        gathered = simulator.gather(state, sent=lambda _, rows, sent=sent: sent.append(rows.copy()))
        task = Task("run", round_, state.theta, state.private, tuple(cohort.tolist()))
        for again in range(3):  # the second process dies in the middle of its write
            clients = SimulatedClients(simulator, None, CarriedUpdates(tmp_path / storage.CARRIED, CLIENTS, size))
            bundle = clients.respond(encode_task(task))
            found = [decode_reply(one).release for one in frames.unpack(bundle)]
            np.testing.assert_array_equal(found, sent[0])
            if again == 1:
                tear(file, round_, cohort)
        state, _ = federation.round(state, gathered)
        assert file.after(round_).tobytes() == state.carried.tobytes()


def tear(file: CarriedUpdates, round_: int, clients) -> None:
    """What is left of a write whose rows were there in part, and whose round was not."""
    rows = file._rows.shape[2]
    slots = (file._rounds[:, clients] == round_).argmax(axis=0)
    file._rounds[slots, clients] = NOTHING
    file._rows[slots, clients, : rows // 2] = np.nan


def test_a_round_that_is_over_is_refused_and_changes_nothing(tmp_path) -> None:
    file = CarriedUpdates.begin(tmp_path / storage.CARRIED, 5, np.arange(6.0).reshape(3, 2))
    some = np.array([0, 2])
    for round_ in (5, 6):
        file.write(round_, some, file.before(round_, some) + 10.0)
    content = (tmp_path / storage.CARRIED).read_bytes()
    for round_ in (3, 4, 5):
        with refused(OVER, ""):
            file.write(round_, some, np.zeros((2, 2)))
    assert (tmp_path / storage.CARRIED).read_bytes() == content
    np.testing.assert_array_equal(file.after(5), [[10.0, 11.0], [2.0, 3.0], [14.0, 15.0]])  # while some are in round 6
    np.testing.assert_array_equal(file.before(6, some), [[10.0, 11.0], [14.0, 15.0]])
    np.testing.assert_array_equal(file.before(7, np.arange(3)), [[20.0, 21.0], [2.0, 3.0], [24.0, 25.0]])


def test_a_file_that_is_missing_or_of_another_run_is_refused(tmp_path) -> None:
    where = str(tmp_path / storage.CARRIED)
    with refused("file.damaged", where):
        CarriedUpdates(tmp_path / storage.CARRIED, 3, 2)
    CarriedUpdates.begin(tmp_path / storage.CARRIED, 0, np.zeros((3, 2)))
    with refused("file.damaged", where):
        CarriedUpdates(tmp_path / storage.CARRIED, 4, 2)
