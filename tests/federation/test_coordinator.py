"""The coordinator: replies in any order come to the simulator's bits; nothing false counts, nothing accepted is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from devices import FEDERATIONS, MemoryStorage, coordinator_of, simulator_of, state_after
from refusals import refused

from quorank.errors import BadInput
from quorank.federation import Federation
from quorank.federation import server_optimisers as servers
from quorank.federation.coordinator import RoundLimits
from quorank.federation.reply import Reply, decode_reply, decode_task, encode_reply, encode_task

CLIENTS, ROUNDS = 12, 4


def answers(simulator, coordinator) -> list[bytes]:
    """What the cohort sends, as bytes."""
    task = decode_task(encode_task(coordinator.plan()))
    cohort = np.array(sorted(coordinator.cohort))
    return [encode_reply(reply) for reply in simulator.replies(task, cohort)]


@pytest.mark.parametrize("name", FEDERATIONS)
def test_replies_in_any_order_come_to_the_simulator_s_bits(name, tiny_collection) -> None:
    simulator, storage = simulator_of(tiny_collection, FEDERATIONS[name]), MemoryStorage()
    expected, reports = simulator.initial(), []
    for _ in range(ROUNDS):
        expected, report = simulator.federation.round(expected, simulator.gather(expected))
        reports.append(report)
    coordinator = coordinator_of(simulator, storage=storage)
    order = np.random.default_rng(0)
    while not coordinator.done:
        sent = answers(simulator, coordinator)
        assert coordinator.receive(sent[-1]).accepted
        coordinator = coordinator_of(simulator, storage=storage)  # killed here: the unfinished round begins again
        coordinator.plan()
        for at in order.permutation(len(sent)):
            assert not coordinator.is_complete()
            assert coordinator.receive(sent[at]).accepted
        assert not coordinator.waiting
        coordinator.advance()
        coordinator = coordinator_of(simulator, storage=storage)  # and here
    assert coordinator.state.theta.tobytes() == expected.theta.tobytes()
    assert repr(coordinator.reports) == repr(reports)
    assert not coordinator.refused


def broken(reply: Reply, **changes) -> bytes:
    return encode_reply(replace(reply, **changes))


REFUSED = {
    "another run": ({"run": "other"}, "reply.other-run"),
    "a round to come": ({"round": 1}, "reply.round-not-begun"),
    "an unknown client": ({"client": 99}, "reply.not-in-cohort"),
    "a wrong shape": ({"release": np.zeros(3)}, "reply.shape"),
    "not a number": ({"release": np.full(46, np.nan)}, "reply.not-finite"),
    "infinite": ({"release": np.full(46, np.inf)}, "reply.not-finite"),
    "statistics that are no numbers": ({"statistics": (np.nan, 0.0, 0.0)}, "reply.not-finite"),
    "a huge norm": ({"release": np.full(46, 1e9)}, "reply.norm"),
    "a huge weight": ({"interactions": 10**9}, "reply.weight"),
    "no weight": ({"interactions": 0}, "reply.weight"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_false_reply_is_refused_and_changes_nothing(what, tiny_collection) -> None:
    changes, code = REFUSED[what]
    simulator = simulator_of(tiny_collection, FEDERATIONS["plain"])
    if "release" in changes and len(changes["release"]) == 46:
        changes = {"release": np.full(simulator.simulation.parameters, changes["release"][0])}
    coordinator = coordinator_of(simulator)
    honest = [decode_reply(content) for content in answers(simulator, coordinator)]
    verdict = coordinator.receive(broken(honest[0], **changes))
    assert not verdict.accepted and verdict.code == code
    assert coordinator.refused == {code: 1}
    for reply in honest:
        assert coordinator.receive(reply).accepted
    coordinator.advance()
    assert coordinator.state.theta.tobytes() == state_after(simulator, 1).theta.tobytes()


def test_a_reply_counts_once_and_only_in_its_round(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection, FEDERATIONS["plain"])
    coordinator = coordinator_of(simulator)
    assert "no open round" in coordinator.receive(REPLY).reason
    assert "malformed" in coordinator.receive(b"").reason
    sent = answers(simulator, coordinator)
    assert coordinator.receive(sent[0]).accepted
    assert "replied to this task already" in coordinator.receive(sent[0]).reason
    for reply in sent[1:]:
        coordinator.receive(reply)
    coordinator.advance()
    coordinator.plan()
    assert "round that is over" in coordinator.receive(sent[0]).reason
    assert len(coordinator.waiting) == CLIENTS


def test_releases_beyond_the_clip_or_in_fractions_are_refused(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection, FEDERATIONS["gaussian"])
    coordinator = coordinator_of(simulator)
    reply = decode_reply(answers(simulator, coordinator)[0])
    unit = simulator.mechanism.unit_of(coordinator.state.private)
    verdict = coordinator.receive(replace(reply, release=reply.release + unit))
    assert "longer than the clip" in verdict.reason
    verdict = coordinator.receive(replace(reply, release=reply.release / unit))
    assert verdict.code == "reply.not-whole" and "same version" in verdict.reason
    assert coordinator.receive(reply).accepted


def test_a_round_ends_on_count_or_deadline_but_never_with_too_few(tiny_collection) -> None:
    now = [0.0]
    simulator = simulator_of(tiny_collection, FEDERATIONS["plain"])
    rules = RoundLimits(close_fraction=0.75, minimum_fraction=0.5, deadline=60.0)
    coordinator = coordinator_of(simulator, limits=rules, clock=lambda: now[0])
    sent = answers(simulator, coordinator)
    for reply in sent[:5]:
        coordinator.receive(reply)
    now[0] = 1000.0
    assert not coordinator.is_complete()  # 5 of 12 are too few at any time
    with pytest.raises(BadInput, match="not complete"):
        coordinator.advance()
    coordinator.receive(sent[5])
    now[0] = 59.0
    assert not coordinator.is_complete()
    now[0] = 60.0
    assert coordinator.is_complete()
    assert coordinator.advance().participants == 6
    for reply in answers(simulator, coordinator)[:9]:
        coordinator.receive(reply)
    assert coordinator.is_complete()  # three quarters, long before the deadline


def test_a_round_waits_for_all_others_after_a_client_that_has_replied_is_removed(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection, FEDERATIONS["plain"])
    coordinator = coordinator_of(simulator)
    first, *others, last = answers(simulator, coordinator)
    for reply in (first, *others):
        coordinator.receive(reply)
    coordinator.remove_clients([0])
    assert not coordinator.is_complete() and coordinator.waiting == {CLIENTS - 1}
    assert coordinator.receive(last).accepted
    assert coordinator.advance().participants == CLIENTS
    coordinator.plan()
    assert 0 not in coordinator.cohort


class FullDisk(MemoryStorage):
    def save(self, saved) -> None:
        raise OSError("No space left on device")


def test_a_full_disk_changes_nothing(tiny_collection) -> None:
    simulator = simulator_of(tiny_collection, FEDERATIONS["plain"])
    expected = state_after(simulator)
    coordinator = coordinator_of(simulator, storage=FullDisk())
    for reply in answers(simulator, coordinator):
        coordinator.receive(reply)
    with pytest.raises(OSError, match="No space left"):
        coordinator.advance()
    assert (coordinator.state.round, coordinator.accepted_count) == (0, CLIENTS)
    coordinator.storage = MemoryStorage()
    coordinator.advance()
    while not coordinator.done:
        for reply in answers(simulator, coordinator):
            coordinator.receive(reply)
        coordinator.advance()
    assert coordinator.state.theta.tobytes() == expected.theta.tobytes()


def test_another_run_or_damage_is_refused(tiny_collection) -> None:
    simulator, storage = simulator_of(tiny_collection, FEDERATIONS["plain"]), MemoryStorage()
    coordinator = coordinator_of(simulator, storage=storage)
    for reply in answers(simulator, coordinator):
        coordinator.receive(reply)
    coordinator.advance()
    with refused("checkpoint.other-run"):
        coordinator_of(simulator, storage=storage, run="other")
    storage.saved = storage.saved[:100] + bytes([storage.saved[100] ^ 255]) + storage.saved[101:]
    with refused("file.damaged"):
        coordinator_of(simulator, storage=storage)


REPLY = Reply("run", 3, 7, np.arange(5.0), 4, True, (0.5, 1.0, 2.0))


def test_attackers_and_personal_rankers_are_simulated_only(tiny_collection) -> None:
    from quorank.federation.attacks import ATTACKS
    from quorank.federation.personal import PERSONALISATIONS

    federation = Federation(CLIENTS, 3, attack=ATTACKS.read({"kind": "sign-flip", "clients": 1}, "attack"))
    simulator = simulator_of(tiny_collection, federation)
    with pytest.raises(BadInput, match="attackers collude"):
        simulator.replies(coordinator_of(simulator).plan(), np.arange(2))
    personal = PERSONALISATIONS.read("offset", "personal")
    for own, words in (({"personal": personal}, "in process only"), ({"client_momentum": 0.5}, "sent before")):
        simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, **own))
        with pytest.raises(BadInput, match=words):
            simulator.replies(coordinator_of(simulator).plan(), np.arange(2))


@pytest.mark.parametrize("server", [servers.Add(1.0, 3.0), servers.Momentum()])
def test_another_ranker_is_installed_with_nothing_of_the_old_one(server, tiny_collection) -> None:
    """The next round is that of a coordinator which begins with this ranker, and a restart knows nothing else either."""
    federation = Federation(CLIENTS, 3, server=server)
    simulator, storage = simulator_of(tiny_collection, federation), MemoryStorage()
    coordinator = coordinator_of(simulator, storage=storage)
    for reply in answers(simulator, coordinator):
        coordinator.receive(reply)
    other = np.linspace(-1.0, 1.0, len(coordinator.state.theta))
    with pytest.raises(BadInput, match="between two rounds"):
        coordinator.replace_ranker(other)
    coordinator.advance()
    with pytest.raises(BadInput, match="another shape"):
        coordinator.replace_ranker(other[1:])
    coordinator.replace_ranker(other)
    for one in (coordinator, coordinator_of(simulator, storage=storage)):
        assert one.state.round == 1 and np.array_equal(one.state.theta, other)
        assert np.array_equal(one.ranker, other)
        fresh = server.start(len(other)) | ({"average": other} if "average" in one.state.memory else {})
        assert all(np.array_equal(one.state.memory[name], fresh[name]) for name in fresh)
