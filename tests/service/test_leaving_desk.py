"""Leaving: six members, one leaves; the others build the ranker again, and nothing of it is left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import CLIENTS, SEED, Answering, device_of, simulator_of, state_after, terms_of, user_of
from fleets import Fleet, enrolled, held_coordinator, sent
from refusals import refused

from quorank.engines.process import Simulator
from quorank.errors import Interrupted
from quorank.federation import Federation, Sampled
from quorank.federation import server_optimisers as servers
from quorank.federation.reply import Task, decode_reply, decode_task, encode_task
from quorank.federation.unlearning import rebuilding_name
from quorank.federation.unlearning.departures import LEAVERS
from quorank.federation.unlearning.rebuilding import DOCUMENT
from quorank.learning.online import OnlineRanker
from quorank.privacy import ClippedGaussian, Setting, Signs, accounting
from quorank.privacy.composition import compose, total_loss
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import Declined, Publication, leaving_receipt, leaving_request
from quorank.service.holders.devices import REBUILDING, LeavingDesk
from quorank.service.intake.intake import NOTHING

ROUNDS = 8
LEAVER = 2


@dataclass
class World(Fleet):
    """Six devices as members, their coordinator, and the desk."""

    simulator: Simulator
    folder: Path
    interval: int = 1
    total_epsilon: float | None = None
    may_reset: bool = False
    pause: float = 0.0
    recorded: dict[int, list] = field(default_factory=dict)  # what each device saw and clicked, in order
    told: list[tuple[str, dict]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.folder, self.simulator)
        self.keys = enrolled(self.store, CLIENTS)
        self.devices = {c: device_of(self.simulator, self.folder / str(c), c) for c in range(CLIENTS)}
        self.answering = {c: Answering(device) for c, device in self.devices.items()}
        self.asked: list[tuple[int, Task]] = []
        self.begin()

    def begin(self, **options: Any) -> None:
        """A holder, its coordinator and its desk, where the store stands."""
        simulator = self.simulator
        self.store.release()
        holder = self.holder(**options)
        self.coordinator = held_coordinator(holder, simulator)
        self.desk = LeavingDesk(
            self.coordinator, simulator.initial().theta, self.interval, self.total_epsilon, holder=holder,
            log=lambda event, **numbers: self.told.append((event, numbers)), may_reset=self.may_reset, pause=self.pause,
        )  # fmt: skip
        holder.tend = self.desk.look

    def reply(self, found: Publication) -> None:
        """Devices that are asked and have not answered do, where they have something to give."""
        task = decode_task(found.content)
        done = {reply.member for reply in self.store.replies(found.run, found.round)}
        for member in self.members():
            if member in done or not found.asks(member):
                continue
            self.asked.append((member, task))
            answer = self.answering[member].answer(found.content)
            while answer == Declined("waiting"):
                self.search(member)
                answer = self.answering[member].answer(found.content)
            if not isinstance(answer, Declined):
                content = answer
                self.outcomes.append((member, sent(self.store, member, "reply", found.number, content)))

    def search(self, client: int) -> None:
        device, seen = self.devices[client], []
        record = device.record
        device.record = lambda shown, clicks: seen.append((shown, clicks)) or record(shown, clicks)
        user_of(self.simulator, client)(device)
        device.record = record
        self.recorded.setdefault(client, []).extend(seen)

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()

    def round(self) -> None:
        self.desk.read_requests()
        self.desk.process_requests()
        self.desk.holder.round(self.coordinator)
        self.desk.process_requests()

    def request(self, client: int, at: float = 5.0) -> bytes:
        return leaving_request(self.devices[client].terms, self.keys[client], at, b"one")

    def ask(self, client: int = LEAVER) -> bytes:
        """The device asks to leave."""
        request = self.request(client)
        store = self.devices[client].store
        with store.transaction():
            store.set_consent(False, 1.0)
        assert not sent(self.store, client, "leave", 0, request).code
        return request

    def let_go(self, client: int = LEAVER) -> bytes:
        """It asks, and is let go between two rounds."""
        request = self.ask(client)
        self.desk.read_requests()
        self.desk.process_requests()
        return request

    def events(self) -> list[str]:
        return [event for event, _ in self.told]


@pytest.fixture
def world(tiny_collection, tmp_path) -> World:
    return World(simulator_of(tiny_collection, rounds=ROUNDS), tmp_path)


def test_after_one_round_the_rebuilt_ranker_is_that_of_a_run_without_the_leaver(world) -> None:
    """All lists of the first round were shown by the first ranker, so nothing of the leaver is in them: the same bits."""
    world.play(1)
    world.let_go()
    simulator = world.simulator
    absent = Simulator(simulator.federation, simulator.simulation, rounds=ROUNDS, absent=(LEAVER,))
    assert world.coordinator.state.theta.tobytes() == state_after(absent, 1).theta.tobytes()
    assert world.coordinator.state.round == 1
    leavers = [(one.client, one.done, one.method, one.rounds) for one in world.desk.leavers]
    assert leavers == [(LEAVER, True, "fresh", 1)]
    assert world.events() == ["member_left", "rebuilding_begun", "rebuilding_finished"]


def test_the_rebuilt_ranker_is_that_of_the_formula(world) -> None:
    """Four rounds again as two that count double, by hand: half of what two batches teach, mean of rankers with γ = 3."""
    world.interval = 2
    world.begin()
    world.play(4)
    world.let_go()
    simulator, theta = world.simulator, world.simulator.initial().theta
    b, thetas = simulator.federation.interactions, []
    for number in range(2):
        updates = []
        for client in sorted(set(range(CLIENTS)) - {LEAVER}):
            terms = world.devices[client].terms
            online = OnlineRanker(theta, terms.n_features, terms.ranker, terms.learner, 1, client, 0, terms.k, np.inf)
            for shown, clicks in world.recorded[client][2 * number * b : 2 * (number + 1) * b]:
                online.learn(shown, clicks)
            updates.append((online.parameters - theta) / 2.0)
        theta = theta + 2.0 * np.mean(updates, axis=0)
        thetas.append(theta)
    expected = (1.0**3 * thetas[0] + 2.0**3 * thetas[1]) / (1.0**3 + 2.0**3)
    assert np.allclose(world.coordinator.state.theta, expected, rtol=0.0, atol=1e-12)
    assert not np.allclose(expected, theta, atol=1e-6)


def test_the_leaver_is_out_of_all_later_rounds_and_nothing_of_it_is_kept(world) -> None:
    world.play(3)
    before = world.coordinator.state.theta.tobytes()
    request = world.let_go()
    assert world.coordinator.state.theta.tobytes() != before
    assert world.store.leaving(LEAVER) == (request, leaving_receipt(world.desk.holder.key, request))
    assert sent(world.store, LEAVER).code == "request.left"
    assert not sent(world.store, LEAVER, "leave").code, "it can still ask for its confirmation"
    kept = json.loads(world.store.document(LEAVERS))
    facts = {"client", "digest", "at", "number", "done", "method", "rounds", "shorter", "waits"}
    assert set(kept[0]) == facts | {"epsilon", "refused", "budget"}
    assert world.store.document(REBUILDING) is None
    assert world.store.database.execute("SELECT count(*) FROM replies") == [(0,)]
    world.asked.clear()
    world.play(2)
    assert {client for client, _ in world.asked} == set(range(CLIENTS)) - {LEAVER}
    assert [report.participants for report in world.coordinator.reports] == [6, 6, 6, 5, 5]
    world.begin()  # also after a restart
    assert world.coordinator.state.round == 5
    world.play(1)
    assert world.coordinator.reports[-1].participants == 5
    for client in sorted(set(range(CLIENTS)) - {LEAVER}):
        log = [(release.run, release.round) for release in world.devices[client].store.releases()]
        rebuilding = [(rebuilding_name("run", 1, 1), round_) for round_ in (1, 2, 3)]
        assert log == [("run", r) for r in (1, 2, 3)] + rebuilding + [("run", r) for r in (4, 5, 6)]


def test_a_leaver_in_the_middle_of_a_round_is_not_waited_for(world) -> None:
    """All of the cohort are enough, and there is no deadline: the round would never end."""
    world.play(2)
    asked = []
    world.then = lambda: world.store.publication().round == 2 and not asked and asked.append(world.ask())
    world.away = {LEAVER}
    world.play(1)
    assert world.coordinator.reports[-1].participants == 5
    assert world.desk.leavers[0].done and world.store.leaving(LEAVER)[1] is not None


@pytest.mark.parametrize("moment", ["rebuilding", "installed", "not confirmed"])
def test_a_desk_that_is_stopped_anywhere_goes_on_to_the_same_bits(
    moment, tiny_collection, tmp_path, monkeypatch
) -> None:
    found = []
    for name, stops in (("through", False), ("stopped", True)):
        (tmp_path / name).mkdir()
        world = World(simulator_of(tiny_collection, rounds=ROUNDS), tmp_path / name)
        world.play(3)
        world.ask()
        if stops:

            def dies(*values, **options):
                raise Interrupted(3, ROUNDS)

            if moment == "rebuilding":
                looks = []
                world.desk.holder.stop = lambda seen=looks: seen.append(1) or len(seen) > 2
            elif moment == "installed":
                monkeypatch.setattr(world.desk.ledger, "finish", dies)
            else:
                monkeypatch.setattr(world.store, "let_go", dies)
            with pytest.raises(Interrupted):
                world.round()
            monkeypatch.undo()
            world.begin()
            assert [one.done for one in world.desk.leavers] == [moment == "not confirmed"]
            assert world.store.leaving(LEAVER)[1] is None
        world.play(1)
        assert world.desk.leavers[0].done and world.store.leaving(LEAVER)[1] is not None
        found.append(world.coordinator.state.theta.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("privacy", [None, ClippedGaussian(clip=0.05, noise_multiplier=0.6)], ids=str)
def test_whoever_leaves_without_a_counted_reply_costs_nobody_anything(privacy, tiny_collection, tmp_path) -> None:
    """Any stranger may enrol where enrolment is open, and ask to be forgotten."""
    federation = Federation(CLIENTS, 3) if privacy is None else Federation(CLIENTS, 3, privacy=privacy)
    world = World(simulator_of(tiny_collection, federation, rounds=ROUNDS), tmp_path)
    world.answering[LEAVER].answer = lambda content: b"no reply"  # committed, and rejected by the coordinator
    world.play(2)
    before, asked = world.coordinator.state.theta.tobytes(), len(world.asked)
    request = world.let_go()
    world.desk.read_requests()
    assert world.coordinator.state.theta.tobytes() == before and len(world.asked) == asked
    assert world.store.leaving(LEAVER) == (request, leaving_receipt(world.desk.holder.key, request))
    assert world.desk.blocked == 0 and world.desk.ledger.entries == []
    assert world.coordinator.rounds == ROUNDS


def test_members_that_leave_within_a_pause_are_let_go_together(tiny_collection, tmp_path) -> None:
    world = World(simulator_of(tiny_collection, rounds=ROUNDS), tmp_path, pause=3600.0)
    world.play(1)
    world.let_go()
    assert world.events().count("rebuilding_finished") == 1
    for client in (3, 4):
        world.ask(client)
        assert not world.desk.busy()
    world.now += 3600.0
    assert world.desk.busy()
    world.desk.process_requests()
    assert world.events().count("rebuilding_finished") == 2
    assert [leaver.number for leaver in world.desk.leavers] == [1, 2, 2]


def test_nobody_is_forgotten_by_another_s_word(world) -> None:
    terms, key = world.devices[LEAVER].terms, world.keys[LEAVER]
    for member, request, code in (
        (3, leaving_request(terms, key, 5.0, b"one"), "leaving.unknown-client"),
        (LEAVER, leaving_request(terms, MemberKey.create(), 5.0, b"one"), "leaving.unsigned"),
        (LEAVER, leaving_request(replace(terms, run="other"), key, 5.0, b"one"), "leaving.other-run"),
        (LEAVER, b'{"at"', "leaving.malformed"),
    ):
        assert not sent(world.store, member, "leave", 0, request).code
        for _ in range(2):
            world.desk.read_requests()
        assert world.coordinator.refused.pop(code) == 1 and not world.coordinator.refused
        assert world.desk.left == ()
        world.store.database.execute("DELETE FROM leaving")
    assert not sent(world.store, LEAVER, "leave", 0, world.request(LEAVER)).code
    world.desk.read_requests()
    assert world.desk.left == (LEAVER,)
    assert sent(world.store, LEAVER, "leave", 0, world.request(LEAVER, 6.0)).code == "leaving.repeated"


def test_who_holds_nothing_is_not_waited_for(world) -> None:
    world.play(2)
    world.answering[3] = Answering(device_of(world.simulator, world.folder / "new", 3))
    world.let_go()
    assert world.desk.leavers[0].method == "fresh"
    rounds = [task.round for client, task in world.asked if client == 3 and task.run != "run"]
    assert rounds == [0], "it is not asked again"
    (entry,) = world.desk.ledger.entries
    assert [participants for participants, _, _ in entry.releases] == [4.0, 4.0]


def test_where_devices_release_nothing_twice_the_ranker_is_reset(tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=Signs(p=0.8)), rounds=ROUNDS)
    world = World(simulator, tmp_path)
    world.play(2)
    world.asked.clear()
    learned = world.coordinator.state.theta.tobytes()
    request = world.let_go()
    assert world.coordinator.state.theta.tobytes() == learned and world.desk.blocked == 1
    assert world.store.leaving(LEAVER) == (request, None), "nobody is told that a part is gone which is not"
    world.may_reset = True  # the operator's word
    world.begin()
    world.desk.process_requests()
    assert world.desk.blocked == 0 and world.store.leaving(LEAVER)[1] is not None
    assert world.coordinator.state.theta.tobytes() == simulator.initial().theta.tobytes()
    assert world.coordinator.state.round == 2
    assert world.desk.leavers[0].method == "reset" and not world.asked
    task = encode_task(Task(rebuilding_name("run", 1, 1), 0, simulator.initial().theta, simulator.initial().private))
    assert world.answering[0].answer(task) == Declined("task")


def private_world(collection: Any, folder: Path, **changes: Any) -> World:
    privacy = ClippedGaussian(clip=0.05, noise_multiplier=0.6)
    return World(simulator_of(collection, Federation(CLIENTS, 3, privacy=privacy), rounds=ROUNDS), folder, **changes)


def together(world: World, rounds: int) -> float:
    """ε of so many rounds of the run and of all rebuildings."""
    run = world.coordinator.mechanism.loss(rounds)
    return compose(total_loss([run, *world.desk.ledger.losses()]), 1e-5).epsilon


def test_a_rebuilding_costs_what_as_many_rounds_of_the_run_cost(tiny_collection, tmp_path) -> None:
    """It has the run's noise: two more rounds, and not the run's ε once more."""
    world = private_world(tiny_collection, tmp_path, total_epsilon=100.0)
    world.play(2)
    world.let_go()
    (leaver,), (entry,) = world.desk.leavers, world.desk.ledger.entries
    assert (leaver.rounds, leaver.refused, world.coordinator.rounds) == (2, None, ROUNDS)
    (reply,) = [
        decode_reply(release.reply)
        for release in world.devices[0].store.releases()
        if release.run == rebuilding_name("run", 1, 1) and release.round == 1
    ]
    unit = world.simulator.mechanism.unit_of(world.simulator.initial().private)
    assert 0.0 < np.linalg.norm(reply.release) <= 0.05 * unit
    assert (entry.number, entry.rounds, entry.finished, entry.without) == (1, 2, True, (LEAVER,))
    assert entry.releases[0] == (5.0, 0.05, pytest.approx(0.03))
    assert compose(entry.loss(world.desk.ledger.privacy), 1e-5).epsilon == pytest.approx(leaver.epsilon)
    assert together(world, ROUNDS) == pytest.approx(accounting.epsilon(Setting(6, 6, ROUNDS + 2), 0.6, 1e-5))


def test_a_rebuilding_takes_the_place_of_rounds_and_stays_within_the_planned_epsilon(tiny_collection, tmp_path) -> None:
    """The run is planned to spend all of its ε: after a rebuilding of two rounds it has two less, to the same ε."""
    world = private_world(tiny_collection, tmp_path)
    planned = world.coordinator.mechanism.statement()["epsilon"]
    world.play(2)
    world.let_go()
    (leaver,) = world.desk.leavers
    assert (leaver.method, leaver.rounds, leaver.refused) == ("fresh", 2, None)
    assert 2 <= leaver.shorter <= 3 and world.coordinator.rounds == ROUNDS - leaver.shorter
    assert world.events()[-1] == "run_shortened"
    world.begin()
    assert world.coordinator.rounds == ROUNDS - leaver.shorter, "also after a restart"
    world.play(ROUNDS - leaver.shorter - 2)
    assert world.coordinator.done and world.store.publication().kind == "over"
    assert 0.9 * planned < together(world, world.coordinator.rounds) <= planned * (1 + 1e-9)


def test_a_rebuilding_beyond_the_planned_epsilon_is_refused_before_it_begins(tiny_collection, tmp_path) -> None:
    """No round is left that could be given up; without a larger budget the ranker is reset, which releases nothing."""
    world = private_world(tiny_collection, tmp_path, interval=4)
    world.play(ROUNDS)
    world.asked.clear()
    learned = world.coordinator.state.theta.tobytes()
    world.let_go()
    assert world.coordinator.state.theta.tobytes() == learned and world.desk.blocked == 1
    world.may_reset = True
    world.begin()
    world.desk.process_requests()
    (leaver,), start = world.desk.leavers, world.simulator.initial().theta
    planned = world.coordinator.mechanism.statement()["epsilon"]
    assert (leaver.method, leaver.rounds, leaver.epsilon) == ("reset", 0, None)
    assert leaver.refused is not None and leaver.refused > planned
    assert world.coordinator.state.theta.tobytes() == start.tobytes()
    assert not world.asked and world.desk.ledger.entries == [], "no device was asked for anything"
    numbers, _ = [numbers for event, numbers in world.told if event == "rebuilding_refused"]
    assert numbers["budget"] == pytest.approx(planned) and numbers["delta"] == 1e-5
    (tmp_path / "enough").mkdir()
    enough = private_world(tiny_collection, tmp_path / "enough", interval=4, total_epsilon=leaver.refused)
    enough.play(ROUNDS)
    enough.let_go()
    assert (enough.desk.leavers[0].method, enough.coordinator.rounds) == ("fresh", ROUNDS)


def test_a_refused_rebuilding_is_tried_again_with_a_larger_budget(tiny_collection, tmp_path) -> None:
    world = private_world(tiny_collection, tmp_path, interval=4)
    world.play(ROUNDS)
    request = world.let_go()
    (leaver,) = world.desk.leavers
    reached = leaver.refused
    assert reached is not None and world.desk.blocked == 1
    for budget, refusals in ((None, 1), (0.99 * reached, 2), (0.99 * reached, 2)):  # a restart alone changes nothing
        world.total_epsilon = budget
        world.begin()
        assert world.desk.busy() == (refusals > world.events().count("rebuilding_refused"))
        world.desk.process_requests()
        assert world.events().count("rebuilding_refused") == refusals and world.desk.blocked == 1
    world.total_epsilon = reached
    world.begin()
    assert world.desk.blocked == 0 and world.desk.busy()
    world.desk.process_requests()
    (leaver,) = world.desk.leavers
    assert (leaver.method, leaver.rounds, leaver.refused) == ("fresh", ROUNDS // 4, None)
    assert world.store.leaving(LEAVER) == (request, leaving_receipt(world.desk.holder.key, request))
    assert together(world, ROUNDS) == pytest.approx(reached)


def test_what_a_refused_rebuilding_had_released_still_counts(tiny_collection, tmp_path) -> None:
    """Killed after two rounds, refused with a smaller budget, begun again with a larger one: two and four releases."""
    world = private_world(tiny_collection, tmp_path, total_epsilon=500.0)
    world.play(4)
    world.ask()

    def dies() -> None:
        if any(task.run != "run" and task.round == 2 for _, task in world.asked):
            raise Interrupted(4, ROUNDS)

    world.then = dies
    world.desk.read_requests()
    with pytest.raises(Interrupted):
        world.desk.process_requests()
    world.then = lambda: None
    for budget, blocked in ((0.01, 1), (500.0, 0)):
        world.total_epsilon = budget
        world.begin()
        world.desk.process_requests()
        assert world.desk.blocked == blocked
    entries = world.desk.ledger.entries
    assert [(entry.number, entry.rounds, entry.finished) for entry in entries] == [(1, 2, False), (2, 4, True)]


@pytest.mark.parametrize("restart", [False, True])
def test_who_leaves_during_a_rebuilding_waits_for_the_next(tiny_collection, tmp_path, restart) -> None:
    """Another leaves in the third of four rounds: that rebuilding ends, and the next is without both; each sum counts."""
    world = private_world(tiny_collection, tmp_path, total_epsilon=500.0)
    world.play(4)
    world.ask()
    late = []

    def also() -> None:
        if [t for _, t in world.asked if (t.run, t.round) == (rebuilding_name("run", 1, 1), 2)] and not late:
            late.append(world.ask(4))
            if restart:
                raise Interrupted(4, ROUNDS)

    world.then = also
    world.desk.read_requests()
    if restart:  # killed in its third round; the other client asks before it goes on
        with pytest.raises(Interrupted):
            world.desk.process_requests()
        world.begin()
        assert world.desk.has_begun
        assert [(entry.number, entry.rounds) for entry in world.desk.ledger.entries] == [(1, 2)]
        world.desk.read_requests()
    world.desk.process_requests()
    assert [(one.client, one.done, one.number) for one in world.desk.leavers] == [(LEAVER, True, 1), (4, False, None)]
    assert 4 not in {client for client, task in world.asked if (task.run, task.round) == ("run rebuilt 1 every 1", 3)}
    assert world.store.leaving(LEAVER)[1] is not None and world.store.leaving(4)[1] is None
    world.desk.process_requests()
    assert [(one.client, one.done, one.number) for one in world.desk.leavers] == [(LEAVER, True, 1), (4, True, 2)]
    assert {client for client, task in world.asked if task.run == rebuilding_name("run", 2, 1)} == {0, 1, 3, 5}
    assert world.store.database.execute("SELECT count(*) FROM replies") == [(0,)]
    entries = world.desk.ledger.entries
    assert [(entry.number, entry.rounds, entry.without) for entry in entries] == [
        (1, 4, (LEAVER,)),
        (2, 4, (LEAVER, 4)),
    ]
    assert together(world, 4) == pytest.approx(accounting.epsilon(Setting(6, 6, 12), 0.6, 1e-5))


def test_a_rebuilding_ends_while_more_leave_in_every_round(tiny_collection, tmp_path) -> None:
    """Started over for each of them, it would end with the last only; with noise, the planned ε would be spent before."""
    world = World(simulator_of(tiny_collection, rounds=ROUNDS), tmp_path, pause=3600.0)
    world.play(3)
    world.ask()
    later = iter([3, 4])
    world.then = lambda: (
        [t for _, t in world.asked if t.round >= 1 and t.run != "run"] and [world.ask(one) for one in later]
    )
    world.desk.read_requests()
    world.desk.process_requests()
    assert world.events().count("rebuilding_begun") == world.events().count("rebuilding_finished") == 1
    assert world.store.leaving(LEAVER)[1] is not None and world.store.leaving(3)[1] is None
    assert not world.desk.busy()
    world.now += 3600.0
    assert world.desk.busy()
    world.desk.process_requests()
    assert world.events().count("rebuilding_begun") == world.events().count("rebuilding_finished") == 2
    assert world.store.leaving(3)[1] is not None and world.store.leaving(4)[1] is not None


def test_strangers_that_leave_do_not_put_off_a_rebuilding(tiny_collection, tmp_path) -> None:
    world = World(simulator_of(tiny_collection, rounds=ROUNDS), tmp_path, pause=3600.0)
    world.answering[4].answer = lambda content: b"no reply"
    world.play(1)
    world.ask(4)
    assert not world.desk.busy()
    world.desk.read_requests()
    assert world.store.leaving(4)[1] is not None
    world.ask()
    assert world.desk.busy(), "no rebuilding has ended within the pause"


def test_a_rebuilding_does_not_wait_for_as_many_as_a_round_needs(world) -> None:
    """Members may hold nothing to release again, or have given all releases of their terms."""
    world.play(2)
    world.coordinator.limits = replace(world.coordinator.limits, minimum_replies=CLIENTS)
    world.then = lambda: world.now < 1e5 or pytest.fail("the rebuilding waits")
    world.let_go()
    assert world.desk.leavers[0].method == "fresh"


def test_a_ranker_that_nobody_can_rebuild_stays_until_the_operator_decides(world) -> None:
    world.play(2)
    learned = world.coordinator.state.theta.tobytes()
    for client in set(range(CLIENTS)) - {LEAVER}:  # they have lost what they recorded
        world.answering[client] = Answering(device_of(world.simulator, world.folder / f"new{client}", client))
    world.then = lambda: world.now < 1e5 or pytest.fail("the rebuilding waits")
    world.let_go()
    assert world.coordinator.state.theta.tobytes() == learned and world.desk.blocked == 1
    assert world.store.document(REBUILDING) is None and world.events()[-1] == "rebuilding_refused"


def test_the_releases_of_a_rebuilding_that_nobody_can_end_are_counted(tiny_collection, tmp_path) -> None:
    world = private_world(tiny_collection, tmp_path, total_epsilon=500.0, may_reset=True)
    world.play(3)

    def lose() -> None:
        if [t for _, t in world.asked if t.round == 0 and "rebuilt" in t.run]:
            for client in set(range(CLIENTS)) - {LEAVER}:
                device = device_of(world.simulator, world.folder / f"new{client}", client)
                world.answering[client], world.then = Answering(device), lambda: None

    world.then = lose
    world.let_go()
    assert [(one.method, one.done) for one in world.desk.leavers] == [("reset", True)]
    assert [(entry.rounds, entry.finished) for entry in world.desk.ledger.entries] == [(1, True)]
    assert together(world, 3) == pytest.approx(accounting.epsilon(Setting(6, 6, 4), 0.6, 1e-5))


def test_damaged_documents_are_refused(world) -> None:
    for text in (b"[1", b"[1]", b'[{"number": 1}]', b"{}", b"[" * 5000):
        for name in (DOCUMENT, LEAVERS):
            world.store.keep({DOCUMENT: None, LEAVERS: None, name: text})
            with refused("file.damaged"):
                world.begin()


def test_a_server_that_averages_and_cohorts_that_are_drawn(tiny_collection, tmp_path) -> None:
    """The mean that is handed out starts again with the rebuilt ranker; cohorts are the drawn ones without the leaver."""
    federation = Federation(CLIENTS, 3, participation=Sampled(4), server=servers.Add(step=0.5, average=1.0))
    world = World(simulator_of(tiny_collection, federation, rounds=ROUNDS), tmp_path)
    world.play(3)
    world.let_go()
    coordinator = world.coordinator
    assert coordinator.ranker.tobytes() == coordinator.state.theta.tobytes()
    for round_ in range(3, ROUNDS):
        drawn = federation.participation.members(CLIENTS, round_, SEED).tolist()
        coordinator.plan()
        assert sorted(coordinator.cohort) == [client for client in drawn if client != LEAVER]
        world.play(1)


def test_what_a_device_declines_of_a_rebuilding(world) -> None:
    simulator, theta = world.simulator, world.simulator.initial().theta
    world.play(2)
    answer = world.answering[0].answer

    def task(run: str = rebuilding_name("run", 1, 1), round_: int = 0, theta=theta, clients=()) -> bytes:
        return encode_task(Task(run, round_, theta, {}, clients))

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
    assert answer(task(run=rebuilding_name("run", 2, 1), round_=0)) != first  # of another run: its name is in it
    numbers = [decode_reply(reply).release for reply in (first, second, third)]
    assert np.array_equal(numbers[0], numbers[2])  # the batches begin again
    assert not np.array_equal(numbers[0], numbers[1])
    both = decode_reply(answer(task(run=rebuilding_name("run", 3, 7)))).release  # all that it holds, and no more
    assert np.linalg.norm(both - (numbers[0] + numbers[1]) / 2.0) < 0.2 * np.linalg.norm(both)
    assert answer(task(round_=0, theta=theta + 1.0)) == Declined("repeated")
    store = world.devices[0].store
    with store.transaction():
        store.set_consent(False, 1.0)
    assert answer(task(round_=4)) == Declined("consent")
    fresh = Answering(device_of(simulator, world.folder / "fresh", 0))
    assert fresh.answer(task()) == NOTHING
    assert terms_of(simulator, 0).run == "run"
