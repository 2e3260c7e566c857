"""Leaving over the wire: six devices, one leaves; the others build the ranker again, and nothing of it is left."""

from __future__ import annotations

import io
import json
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import CLIENTS, SEED, device_of, simulator_of, terms_of, user_of
from refusals import refused

from quorank import frames
from quorank.certificates import node_keys
from quorank.device.answering import DeviceAnswers
from quorank.device.leaving import leave, left
from quorank.errors import BadInput, Interrupted
from quorank.federation import Federation, Sampled, Simulator, State, notices, wire
from quorank.federation import server_optimisers as servers
from quorank.federation.bundle import Bundle
from quorank.federation.coordinator import JOURNAL, Coordinator, RoundLimits
from quorank.federation.declined import Declined
from quorank.federation.leaving import request_of
from quorank.federation.rebuilding import name_of
from quorank.federation.transport import BUSY, Failure, Memory
from quorank.flower.driver import Driver, Own, SharedNodes
from quorank.learning.late_learning import LateRanker
from quorank.network.flower_device import FlowerLink
from quorank.privacy import ClippedGaussian, SecureSum, Setting, Signs, accounting
from quorank.privacy.composition import compose, total_loss
from quorank.service.leaving_desk import FILE, FOLDER, RECEIPT_SECONDS, LeavingDesk
from quorank.service.observe import EventLog
from quorank.service.rebuilding_ledger import FILE as REBUILDINGS
from quorank.service.rebuilding_ledger import RebuildingLedger

KEYS = {client: node_keys() for client in range(CLIENTS)}
NAMES = {client: f"node-{client}" for client in range(CLIENTS)}
ROUNDS = 8
LEAVER = 2


class Ticks:
    """A clock that goes on when somebody sleeps."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class World:
    """Six devices in memory, their coordinator, and the desk."""

    simulator: Simulator
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    interval: int = 1
    total_epsilon: float | None = None
    log: io.StringIO = field(default_factory=io.StringIO)
    links: dict[int, FlowerLink] = field(default_factory=dict)  # of devices that are leaving
    recorded: dict[int, list] = field(default_factory=dict)  # what each device saw and clicked, in order
    asked: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ticks, self.home = Ticks(), self.folder / "coordinator"
        self.home.mkdir(exist_ok=True)
        self.devices = {c: device_of(self.simulator, self.folder / str(c), c) for c in range(CLIENTS)}
        self.answering = {c: DeviceAnswers(device) for c, device in self.devices.items()}
        self.network = Memory(self.answer, list(NAMES.values()))
        self.begin()

    def begin(self, **options: Any) -> None:
        """A coordinator and its desk, where their files stand."""
        simulator = self.simulator
        self.coordinator = Coordinator(
            simulator.federation, simulator.mechanism, simulator.initial(), ROUNDS, "run", SEED, RoundLimits(),
            self.home, self.ticks,
        )  # fmt: skip
        driver = Driver(
            self.network, Own(dict(NAMES)), patience=3.0, pause=0.5, clock=self.ticks, sleep=self.ticks.sleep,
            **options,
        )  # fmt: skip
        keys = {client: pair.public for client, pair in KEYS.items()}
        self.desk = LeavingDesk(
            self.coordinator, driver, lambda: keys, simulator.initial().theta, self.interval,
            total_epsilon=self.total_epsilon, log=EventLog(self.log),
        )  # fmt: skip

    def answer(self, name: str, content: bytes) -> bytes | Failure:
        client = int(name.removeprefix("node-"))
        self.asked.append((client, content))
        if client in self.links:
            found = self.links[client].respond(content)
            return Failure(BUSY) if found is None else found
        if notices.is_notice(content):
            return frames.pack([notices.HEARD])
        answer = self.answering[client].answer(content)
        while answer == Declined("waiting"):
            self.search(client)
            answer = self.answering[client].answer(content)
        return Failure(BUSY) if isinstance(answer, Declined) else frames.pack([answer])

    def search(self, client: int) -> None:
        device, seen = self.devices[client], []
        record = device.record
        device.record = lambda shown, clicks: seen.append((shown, clicks)) or record(shown, clicks)
        user_of(self.simulator, client)(device)
        device.record = record
        self.recorded.setdefault(client, []).extend(seen)

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            self.desk.round(self.coordinator)

    def bundle(self, client: int) -> Bundle:
        terms = self.devices[client].terms
        return Bundle("desk", "localhost:9092", "PEM", KEYS[client].private.decode(), terms)

    def leaving(self, client: int = LEAVER) -> tuple[threading.Thread, list[Any]]:
        """The device asks to leave, as `quorank join --leave` does, in a thread of its own."""
        bundle, device, result = self.bundle(client), self.devices[client], []
        link = self.links[client] = FlowerLink(bundle, self.folder / "nowhere")

        def work() -> None:
            result.append(leave(device.store, bundle.terms, bundle.key, link.leave, os.urandom))

        thread = threading.Thread(target=work)
        thread.start()
        while link._request is None:
            pass
        return thread, result

    def attended(self) -> None:
        """The coordinator has nothing else to do and looks after leavers until they have heard."""
        for _ in range(4):
            self.desk.look()
            for arrival in self.network.pull():
                self.desk.driver.without_notices(arrival)
            self.desk.attend()
            self.ticks.sleep(RECEIPT_SECONDS)

    def leave_and_wait(self, client: int = LEAVER) -> Any:
        thread, result = self.leaving(client)
        self.attended()
        thread.join(20)
        assert not thread.is_alive()
        return result[0]


@pytest.fixture
def world(tiny_collection, tmp_path) -> World:
    return World(simulator_of(tiny_collection, rounds=ROUNDS), tmp_path)


def test_after_one_round_the_rebuilt_ranker_is_that_of_a_run_without_the_leaver(world) -> None:
    """All lists of the first round were shown by the first ranker, so nothing of the leaver is in them: the same bits."""
    world.play(1)
    world.leave_and_wait()
    simulator = world.simulator
    absent = Simulator(simulator.federation, simulator.simulation, rounds=ROUNDS, absent=(LEAVER,))
    state = absent.initial()
    expected, _ = absent.federation.round(state, absent.gather(state))
    assert world.coordinator.state.theta.tobytes() == expected.theta.tobytes()
    assert world.coordinator.state.round == 1
    assert [(one.client, one.done, one.method, one.rounds) for one in world.desk.leavers] == [
        (LEAVER, True, "fresh", 1)
    ]


def test_the_rebuilt_ranker_is_that_of_the_formula(world) -> None:
    """Four rounds again as two that count double, by hand: half of what two batches teach, mean of rankers with γ = 3."""
    world.interval = 2
    world.begin()
    world.play(4)
    world.leave_and_wait()
    simulator, theta = world.simulator, world.simulator.initial().theta
    b, thetas = simulator.federation.interactions, []
    for number in range(2):
        updates = []
        for client in sorted(set(range(CLIENTS)) - {LEAVER}):
            terms = world.devices[client].terms
            online = LateRanker(theta, terms.n_features, terms.ranker, terms.learner, 1, client, 0, terms.k, np.inf)
            for shown, clicks in world.recorded[client][2 * number * b : 2 * (number + 1) * b]:
                online.learn(shown, clicks)
            updates.append((online.parameters - theta) / 2.0)
        theta = theta + 2.0 * np.mean(updates, axis=0)
        thetas.append(theta)
    expected = thetas[0] + (3.0 + 1.0) / (2.0 + 3.0) * (thetas[1] - thetas[0])
    assert np.allclose(world.coordinator.state.theta, expected, rtol=0.0, atol=1e-12)
    assert not np.allclose(expected, theta, atol=1e-6)


def test_the_leaver_is_out_of_all_later_rounds_and_nothing_of_it_is_kept(world) -> None:
    world.play(3)
    digest_before = world.coordinator.state.theta.tobytes()
    erased = world.leave_and_wait()
    assert world.coordinator.state.theta.tobytes() != digest_before
    device = world.folder / str(LEAVER)
    assert [path.name for path in device.iterdir()] == ["left.json"]
    assert left(device)["request"] == world.desk.leavers[0].digest
    assert erased.traces > 3
    kept = json.loads((world.home / FILE).read_text())
    assert set(kept[0]) == {"client", "digest", "at", "number", "done", "method", "rounds", "epsilon", "refused"}
    assert not (world.home / FOLDER).exists()
    assert not (world.home / JOURNAL).exists() or not (world.home / JOURNAL).read_bytes()
    world.asked.clear()
    world.network.leave(NAMES[LEAVER])
    world.play(2)
    tasks = {client for client, content in world.asked if content.startswith(b"QRNK")}
    assert tasks == set(range(CLIENTS)) - {LEAVER}
    assert [report.participants for report in world.coordinator.reports] == [6, 6, 6, 5, 5]
    world.begin()  # also after a restart
    assert world.coordinator.state.round == 5
    world.play(1)
    assert world.coordinator.reports[-1].participants == 5
    for client in sorted(set(range(CLIENTS)) - {LEAVER}):
        log = [(release.run, release.round) for release in world.devices[client].store.releases()]
        rebuilding = [(name_of("run", 1, 1), round_) for round_ in (1, 2, 3)]
        assert log == [("run", r) for r in (1, 2, 3)] + rebuilding + [("run", r) for r in (4, 5, 6)]
        used = world.devices[client].store.file.rows("SELECT count(*) FROM interactions WHERE release IS NOT NULL")
        assert used == [(6 * 3,)]


def test_a_leaver_in_the_middle_of_a_round_is_not_waited_for(world) -> None:
    """All of the cohort are enough, and there is no deadline: the round would never end."""
    world.play(2)
    thread, _ = world.leaving()
    world.play(1)
    assert world.coordinator.reports[-1].participants == 5
    assert world.desk.leavers[0].done
    world.attended()
    thread.join(20)
    assert not thread.is_alive()


def test_a_desk_that_is_stopped_in_a_rebuilding_goes_on_to_the_same_bits(tiny_collection, tmp_path) -> None:
    found = []
    for name, stops in (("through", False), ("stopped", True)):
        (tmp_path / name).mkdir()
        world = World(simulator_of(tiny_collection, rounds=ROUNDS), tmp_path / name)
        world.play(3)
        request = request_of(world.devices[LEAVER].terms, KEYS[LEAVER].private.decode(), 5.0, b"one")
        assert world.desk.notice(NAMES[LEAVER], request)
        if stops:
            looks = []
            world.network.delay = lambda name: float(name[-1] == "5")  # so that a round takes two looks
            world.desk.driver.stop = lambda seen=looks: seen.append(1) or len(seen) > 1
            with pytest.raises(Interrupted):
                world.desk.attend()
            assert (world.home / FOLDER).is_dir()
            world.begin()
            assert [one.done for one in world.desk.leavers] == [False]
        world.play(1)
        assert world.desk.leavers[0].done
        found.append(world.coordinator.state.theta.tobytes())
    assert found[0] == found[1]


def test_one_more_leaves_while_the_ranker_is_built_again(world) -> None:
    world.play(3)
    private = {c: KEYS[c].private.decode() for c in (LEAVER, 4)}
    requests = {c: request_of(world.devices[c].terms, private[c], 5.0, b"one") for c in (LEAVER, 4)}
    world.desk.notice(NAMES[LEAVER], requests[LEAVER])
    answer = world.answer

    def also(name: str, content: bytes) -> bytes | Failure:
        late = content.startswith(b"QRNK") and wire.decode_task(content).round == 1
        return frames.pack([requests[4]]) if name == NAMES[4] and late else answer(name, content)

    world.network.answer = also
    world.desk.attend()
    assert [(one.client, one.done, one.number) for one in world.desk.leavers] == [(LEAVER, True, 2), (4, True, 2)]
    tasks = [(client, wire.decode_task(text)) for client, text in world.asked if text.startswith(b"QRNK")]
    assert {client for client, task in tasks if task.run == name_of("run", 2, 1)} == {0, 1, 3, 5}


def test_nobody_is_forgotten_by_another_s_word(world) -> None:
    terms, private = world.devices[LEAVER].terms, KEYS[LEAVER].private.decode()
    request = request_of(terms, private, 5.0, b"one")
    for node, part, code in (
        (NAMES[3], request, "leaving.other-client"),
        (NAMES[3], request_of(terms, KEYS[3].private.decode(), 5.0, b"one"), "leaving.unsigned"),
        (NAMES[LEAVER], request_of(replace(terms, run="other"), private, 5.0, b"one"), "leaving.other-run"),
        (NAMES[LEAVER], b'{"at"', "leaving.malformed"),
    ):
        assert world.desk.notice(node, part)
        assert code in world.coordinator.refused
        assert world.desk.gone == ()
    assert not world.desk.notice(NAMES[LEAVER], b"QRNK")
    assert world.desk.notice(NAMES[LEAVER], notices.HEARD)
    assert world.desk.notice(NAMES[LEAVER], request)
    assert world.desk.notice(NAMES[LEAVER], request)  # the same again changes nothing
    assert world.desk.gone == (LEAVER,)
    assert world.desk.notice(NAMES[LEAVER], request_of(terms, private, 6.0, b"two"))
    assert world.coordinator.refused["leaving.repeated"] == 1


def test_greetings_and_confirmations_are_sent_now_and_then(world) -> None:
    for _ in range(3):
        world.desk.look()
        world.network.pull()
    assert sorted(client for client, _ in world.asked) == list(range(CLIENTS))
    assert {content for _, content in world.asked} == {notices.GREETING}
    world.network.leave(NAMES[0])
    world.desk.look()
    world.network.come(NAMES[0])
    world.asked.clear()
    world.desk.look()
    world.network.pull()
    assert world.asked == [(0, notices.GREETING)]  # it was away, so it is greeted again


def test_a_device_that_is_asked_is_not_greeted_too(world) -> None:
    world.network.delay = lambda name: 1.0
    world.desk.driver.tend = world.desk.look
    world.play(2)
    assert not any(content == notices.GREETING for _, content in world.asked)


@pytest.mark.parametrize("privacy", [SecureSum(clip=0.05), Signs(p=0.8)], ids=["secure", "noise of the devices"])
def test_where_devices_release_nothing_twice_the_ranker_starts_anew(privacy, tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=privacy), rounds=ROUNDS)
    world = World(simulator, tmp_path)
    world.play(2)
    world.asked.clear()
    world.leave_and_wait()
    assert world.coordinator.state.theta.tobytes() == simulator.initial().theta.tobytes()
    assert world.coordinator.state.round == 2
    assert world.desk.leavers[0].method == "anew"
    assert {content for _, content in world.asked if not notices.is_notice(content)} == set()
    task = wire.encode_task(wire.Task(name_of("run", 1, 1), 0, simulator.initial().theta, simulator.initial().private))
    assert world.answering[0].answer(task) == Declined("task")


def private_world(collection: Any, folder: Path, **changes: Any) -> World:
    privacy = ClippedGaussian(clip=0.05, noise_multiplier=0.6)
    return World(simulator_of(collection, Federation(CLIENTS, 3, privacy=privacy), rounds=ROUNDS), folder, **changes)


def asking(world: World, client: int) -> bytes:
    return request_of(world.devices[client].terms, KEYS[client].private.decode(), 5.0, b"one")


def test_with_noise_of_the_coordinator_the_rebuilding_has_an_epsilon_of_its_own(tiny_collection, tmp_path) -> None:
    world = private_world(tiny_collection, tmp_path, total_epsilon=100.0)
    world.play(2)
    world.leave_and_wait()
    leaver = world.desk.leavers[0]
    assert leaver.rounds == 2 and leaver.refused is None
    assert leaver.epsilon is not None and leaver.epsilon > 1.0
    (reply,) = [
        wire.decode_reply(release.reply)
        for release in world.devices[0].store.releases()
        if release.run == name_of("run", 1, 1) and release.round == 1
    ]
    unit = world.simulator.mechanism.unit_of(world.simulator.initial().private)
    assert 0.0 < np.linalg.norm(reply.release) <= 0.05 * unit
    (entry,) = RebuildingLedger(world.home).entries
    assert (entry.number, entry.rounds, entry.finished, entry.without) == (1, 2, True, (LEAVER,))
    assert entry.releases[0] == (5.0, 0.05, pytest.approx(0.03))
    privacy = world.simulator.federation.privacy
    assert compose(entry.loss(privacy), 1e-5).epsilon == pytest.approx(leaver.epsilon)


def test_a_rebuilding_beyond_the_planned_epsilon_is_refused_before_it_begins(tiny_collection, tmp_path) -> None:
    """The run is planned to spend all of its ε; without a larger budget the ranker starts anew, which releases nothing."""
    world = private_world(tiny_collection, tmp_path)
    world.play(2)
    world.asked.clear()
    world.leave_and_wait()
    (leaver,), start = world.desk.leavers, world.simulator.initial().theta
    planned = world.coordinator.mechanism.statement()["epsilon"]
    assert (leaver.method, leaver.rounds, leaver.epsilon) == ("anew", 0, None)
    assert leaver.refused is not None and leaver.refused > planned
    assert world.coordinator.state.theta.tobytes() == start.tobytes()
    assert not any(content.startswith(b"QRNK") for _, content in world.asked), "no device was asked for anything"
    assert RebuildingLedger(world.home).entries == []
    (line,) = [json.loads(line) for line in world.log.getvalue().splitlines()]
    assert line["event"] == "rebuilding_refused" and line["budget"] == pytest.approx(planned) and line["delta"] == 1e-5
    world.begin()
    assert world.desk.leavers[0].refused == leaver.refused
    (tmp_path / "enough").mkdir()
    enough = private_world(tiny_collection, tmp_path / "enough", total_epsilon=leaver.refused)
    enough.play(2)
    enough.leave_and_wait()
    assert enough.desk.leavers[0].method == "fresh"


@pytest.mark.parametrize("restart", [False, True])
def test_a_rebuilding_that_is_given_up_is_counted(tiny_collection, tmp_path, restart) -> None:
    """One more leaves after two of four rounds: two sums were released, then the second rebuilding's; none is forgotten."""
    world = private_world(tiny_collection, tmp_path, total_epsilon=500.0)
    world.play(4)
    requests, answer = {c: asking(world, c) for c in (LEAVER, 4)}, world.answer
    assert world.desk.notice(NAMES[LEAVER], requests[LEAVER])

    def also(name: str, content: bytes) -> bytes | Failure:
        task = wire.decode_task(content) if content.startswith(b"QRNK") else None
        late = task is not None and (task.run, task.round) == (name_of("run", 1, 1), 2)
        if late and restart:
            raise Interrupted(4, ROUNDS)
        return frames.pack([requests[4]]) if name == NAMES[4] and late else answer(name, content)

    world.network.answer = also
    if restart:  # killed in its third round; the other client asks before it goes on
        with pytest.raises(Interrupted):
            world.desk.attend()
        world.network = Memory(answer, list(NAMES.values()))
        world.begin()
        assert [(entry.number, entry.rounds) for entry in RebuildingLedger(world.home).entries] == [(1, 2)]
        assert world.desk.notice(NAMES[4], requests[4])
    world.desk.attend()
    assert [(one.client, one.done, one.number) for one in world.desk.leavers] == [(LEAVER, True, 2), (4, True, 2)]
    entries = RebuildingLedger(world.home).entries
    closed = 2 if restart else 3  # the round in which the other asked was closed without it
    assert [(entry.number, entry.rounds, entry.finished) for entry in entries] == [(1, closed, False), (2, 4, True)]
    privacy = world.simulator.federation.privacy
    run, delta = world.coordinator.mechanism.loss(4), 1e-5
    both = compose(total_loss([run, *RebuildingLedger(world.home).losses(privacy)]), delta).epsilon
    assert both == pytest.approx(accounting.epsilon(Setting(6, 6, 8 + closed), 0.6, delta))


def test_what_was_given_up_counts_in_the_budget_of_the_next(tiny_collection, tmp_path) -> None:
    limit = accounting.epsilon(Setting(6, 6, ROUNDS + 4), 0.6, 1e-5)  # for the whole run and four rounds more
    world = private_world(tiny_collection, tmp_path, total_epsilon=limit * (1 + 1e-6))
    world.play(4)
    requests, answer = {c: asking(world, c) for c in (LEAVER, 4)}, world.answer
    assert world.desk.notice(NAMES[LEAVER], requests[LEAVER])

    def also(name: str, content: bytes) -> bytes | Failure:
        late = content.startswith(b"QRNK") and wire.decode_task(content).round == 1
        return frames.pack([requests[4]]) if name == NAMES[4] and late else answer(name, content)

    world.network.answer = also
    world.desk.attend()
    assert [(one.method, one.refused is None) for one in world.desk.leavers] == [("anew", False), ("anew", False)]
    assert [(entry.number, entry.finished) for entry in RebuildingLedger(world.home).entries] == [(1, False)]
    events = [json.loads(line)["event"] for line in world.log.getvalue().splitlines()]
    assert events == ["rebuilding_given_up", "rebuilding_refused"]


def test_rebuildings_of_a_version_that_did_not_count_them_are_counted(tiny_collection, tmp_path) -> None:
    world = private_world(tiny_collection, tmp_path, total_epsilon=100.0)
    world.play(2)
    world.leave_and_wait()
    counted = RebuildingLedger(world.home).entries
    (world.home / REBUILDINGS).unlink()
    entries = json.loads((world.home / FILE).read_text())
    (world.home / FILE).write_text(json.dumps([{k: v for k, v in one.items() if k != "refused"} for one in entries]))
    world.begin()
    (entry,) = RebuildingLedger(world.home).entries
    assert (entry.number, entry.without, entry.setting, entry.rounds) == (1, (LEAVER,), counted[0].setting, 2)
    privacy = world.simulator.federation.privacy
    assert entry.loss(privacy) == counted[0].loss(privacy)


@pytest.mark.parametrize("text", ["[1", "[1]", '[{"number": 1}]', "{}", "[" * 5000])
def test_damaged_rebuildings_are_refused(text, tmp_path) -> None:
    (tmp_path / REBUILDINGS).write_text(text)
    with refused("file.damaged"):
        RebuildingLedger(tmp_path)


def test_what_a_device_declines_of_a_rebuilding(world) -> None:
    simulator, theta = world.simulator, world.simulator.initial().theta
    world.play(2)
    answer = world.answering[0].answer

    def task(run: str = name_of("run", 1, 1), round_: int = 0, theta=theta, clients=()) -> bytes:
        return wire.encode_task(wire.Task(run, round_, theta, {}, clients))

    first = answer(task())
    assert isinstance(first, bytes)
    assert answer(task()) == first  # the stored bytes
    assert answer(task(theta=theta + 1.0)) == Declined("repeated")
    assert answer(task(clients=(3,))) == Declined("client")
    assert answer(task(round_=ROUNDS)) == Declined("over")
    assert answer(task(round_=1, theta=theta[1:])) == Declined("task")
    assert answer(task(round_=1, theta=theta * np.nan)) == Declined("task")
    assert answer(task(run="other rebuilt 1 every 1")) == Declined("run")
    assert answer(task(run="run rebuilt 1 every 0")) == Declined("run")
    second, third = answer(task(round_=1)), answer(task(round_=2))
    assert answer(task(run=name_of("run", 2, 1), round_=0)) != first  # of another run: its name is in it
    numbers = [wire.decode_reply(reply).release for reply in (first, second, third)]
    assert np.array_equal(numbers[0], numbers[2])  # the batches begin again
    assert not np.array_equal(numbers[0], numbers[1])
    both = wire.decode_reply(answer(task(run=name_of("run", 3, 7)))).release  # all that it holds, and no more
    assert np.linalg.norm(both - (numbers[0] + numbers[1]) / 2.0) < 0.2 * np.linalg.norm(both)
    assert answer(task(round_=0, theta=theta + 1.0)) == Declined("repeated")
    store = world.devices[0].store
    with store.transaction():
        store.set_consent(False, 1.0)
    assert answer(task(round_=4)) == Declined("consent")
    fresh = DeviceAnswers(device_of(simulator, world.folder / "fresh", 0))
    assert fresh.answer(task()) == notices.NOTHING
    assert terms_of(simulator, 0).run == "run"


def test_a_server_that_averages_and_cohorts_that_are_drawn(tiny_collection, tmp_path) -> None:
    """The mean that is handed out starts again with the rebuilt ranker; cohorts are the drawn ones without the leaver."""
    federation = Federation(CLIENTS, 3, participation=Sampled(4), server=servers.Add(step=0.5, average=1.0))
    world = World(simulator_of(tiny_collection, federation, rounds=ROUNDS), tmp_path)
    world.play(3)
    world.leave_and_wait()
    coordinator = world.coordinator
    assert coordinator.ranker.tobytes() == coordinator.state.theta.tobytes()
    for round_ in range(3, ROUNDS):
        drawn = federation.participation.members(CLIENTS, round_, SEED).tolist()
        coordinator.plan()
        assert sorted(coordinator.cohort) == [client for client in drawn if client != LEAVER]
        world.play(1)


def test_what_a_desk_refuses(world) -> None:
    with pytest.raises(BadInput, match="a desk is for devices"):
        LeavingDesk(world.coordinator, Driver(world.network, SharedNodes(["a"])), dict, np.zeros(1))
    with pytest.raises(BadInput, match="interval: must be at least 1"):
        LeavingDesk(world.coordinator, world.desk.driver, dict, np.zeros(1), 0)
    (world.home / FILE).write_text("[1")
    with pytest.raises(BadInput, match="damaged"):
        world.begin()
    assert isinstance(world.coordinator.state, State)
