"""A folder's service at work: rounds with members of its store, what it writes, faults, and who takes over."""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from devices import state_after
from fleets import Fleet, enrolled, sent
from postgresql_server import empty_database, start_server, stop_server
from refusals import refused

from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.experiments.progress import saved_ranker
from quorank.experiments.runner import Runner
from quorank.federation.reply import decode_task, encode_reply
from quorank.privacy import Setting, accounting
from quorank.privacy.ledger import read_ledger, recount
from quorank.protocol.messages import leaving_receipt, leaving_request
from quorank.rankers.ranker_file import ranker_bytes
from quorank.service.dashboard.event_log import EventLog
from quorank.service.dashboard.status import Status
from quorank.service.holders.devices import Service, coordinator_of
from quorank.service.holders.holder_process import hold
from quorank.service.home import Home, Settings
from quorank.service.store.backup import backup, restore

ROUNDS, CLIENTS = 3, 3
FILE = f"""\
[data]
source = "synthetic:mq2007"
[federation]
clients = {CLIENTS}
interactions = 2
rounds = {ROUNDS}
keep_every = 0
"""


def home_of(folder: Path, more: str = "", **changes) -> Home:
    experiment = Experiment.read(parse_experiment_file(FILE + more, "service.toml"))
    return Home.create(folder, experiment, Settings("spring", 46, "search.example.org:9092", **changes))


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(Experiment.read(parse_experiment_file(FILE, "service.toml")), threads=1)


@pytest.fixture(scope="module")
def expected(runner) -> bytes:
    """The ranker of the run in process."""
    theta = runner.experiment.federation.ranker(state_after(runner.simulator))
    statement = runner.mechanism.statement(ROUNDS)
    return ranker_bytes(saved_ranker(runner.experiment, theta, 46, statement, by="coordinator"))


class Devices(Fleet):
    """Members of a folder's service; each answers a round once, whatever is asked again, as devices do."""

    def __init__(self, home: Home, runner: Runner, answered: set | None = None) -> None:
        super().__init__(home.path, runner.simulator, home.settings.database)
        self.home, self.answered = home, set() if answered is None else answered
        self.keys = enrolled(self.store, CLIENTS) if not self.store.admitted() else {}
        self.log = io.StringIO()

    def answer(self, member, task) -> bytes:
        (reply,) = self.simulator.replies(task, np.array([member]))
        return self.lies.get(member, encode_reply)(replace(reply, statistics=(0.0, 0.0, 0.0)))

    def reply(self, found) -> None:
        task = decode_task(found.content)
        for member in self.members():
            if found.asks(member) and (member, found.run, found.round) not in self.answered:
                outcome = sent(self.store, member, "reply", found.number, self.answer(member, task))
                self.outcomes.append((member, outcome))
                if not outcome.code:
                    self.answered.add((member, found.run, found.round))

    def service(self, **options) -> Service:
        assert self.store.hold() is not None
        options = {"clock": lambda: self.now, "sleep": self.step} | options
        return Service(self.home, self.store, EventLog(self.log), **options)

    def play(self, *, stay: bool = False, **options) -> Service:
        service = self.service(**options)
        service.play(stay=stay)
        self.store.release()
        return service

    def events(self) -> list[str]:
        return [event["code"] for event in reversed(self.store.events())]


@pytest.fixture
def devices(tmp_path, runner) -> Devices:
    return Devices(home_of(tmp_path / "home"), runner)


def test_a_run_with_members_comes_to_the_bits_of_the_run_in_process(devices, runner, expected) -> None:
    devices.play()
    home = devices.home
    assert (home.path / "ranker.json").read_bytes() == devices.store.document("ranker.json") == expected
    assert (home.path / "ledger.json").read_bytes() == devices.store.document("ledger.json")
    status = Status.read(devices.store.document("status.json"))
    assert (status.state, status.rounds, status.accepted, status.kind) == ("done", ROUNDS, ROUNDS * CLIENTS, "devices")
    assert len(status.history) == ROUNDS and status.refused == {} and status.received_bytes > 0
    assert devices.events() == ["holder_taken", *["round_closed"] * ROUNDS, "finished"]
    lines = [json.loads(line)["event"] for line in devices.log.getvalue().splitlines()]
    assert lines == devices.events()
    for name in ("member-0", "spring", str(home.path)):
        assert name not in devices.log.getvalue()
    again = Devices(home, runner)
    again.play()
    assert not again.outcomes, "nobody is asked again"


def test_a_full_disk_and_a_store_that_is_away_are_waited_for(devices, expected, monkeypatch) -> None:
    publish, keep, tries = devices.store.publish, devices.store.keep, []

    def failing(work):
        def work_or_fail(*values, **options):
            tries.append(1)
            if len(tries) % 3 == 0:
                raise OSError(28, "no space")
            return work(*values, **options)

        return work_or_fail

    monkeypatch.setattr(devices.store, "publish", failing(publish))
    monkeypatch.setattr(devices.store, "keep", failing(keep))
    service = devices.play()
    assert service.coordinator.done and devices.store.document("ranker.json") == expected
    assert len(devices.outcomes) == CLIENTS * ROUNDS
    assert "disk_back" in devices.events() and "checkpoint_failed" in devices.log.getvalue()


def test_rounds_that_all_have_answered_since_a_backup_are_passed_over(tmp_path) -> None:
    """They would be waited for in vain; their privacy is spent, and the ledger says so."""
    home = home_of(tmp_path / "home", PRIVATE, deadline=30.0)
    runner = Runner(home.experiment, threads=1)
    devices, file, rounds = Devices(home, runner), tmp_path / "yesterday", []
    service = devices.service(stop=lambda: len(rounds) == 2)
    closed = service.closed

    def noted(report) -> None:
        rounds.append(closed(report))
        if len(rounds) == 1:
            backup(home.path, "", file)

    service.closed = noted
    service.play(stay=False)
    assert service.coordinator.state.round == 2 and len(devices.answered) == 2 * CLIENTS
    with refused("value.out-of-range", "--skip"):
        restore(file, tmp_path / "too-far", skip=ROUNDS)
    assert not (tmp_path / "too-far").exists()
    restore(file, tmp_path / "behind", skip=0, lost=True)
    behind = Devices(Home.open(tmp_path / "behind"), runner, set(devices.answered))
    waited = behind.service(stop=lambda: behind.now > 100.0)
    waited.play(stay=False)
    assert waited.coordinator.state.round == 1 and not behind.outcomes, (
        "nobody answers, and it does not end at its deadline"
    )
    restore(file, tmp_path / "again", skip=1)
    after = Devices(Home.open(tmp_path / "again"), runner, set(devices.answered))
    played = after.play()
    assert played.coordinator.done and [report.round for report in played.coordinator.reports] == [1, 2, 3]
    assert len(after.outcomes) == CLIENTS and {found.round for found in after.published} == {2}
    assert "service_restored" in after.events()
    devices.store.release()
    assert Devices(home, runner, set(devices.answered)).play().coordinator.done
    book, expected = read_ledger(after.home.path), read_ledger(home.path)
    assert (book["privacy"], book["releases"]) == (expected["privacy"], expected["releases"])


def test_a_round_that_has_replies_is_not_published_again_with_another_ranker(devices, monkeypatch) -> None:
    """A holder is stopped in the second round, and somebody has left when the next one takes over."""
    asked, published, publish = [], [], devices.store.publish
    monkeypatch.setattr(devices.store, "publish", lambda found, *more: published.append(found) or publish(found, *more))

    def step() -> None:
        if (0, "spring", 1) in devices.answered and not asked:
            asked.append(leaving_request(devices.home.terms(2), devices.keys[2], 5.0, b"nonce"))
            assert not sent(devices.store, 2, "leave", 0, asked[0]).code

    devices.then, devices.answered = step, {(2, "spring", 1)}
    first = devices.service(stop=lambda: bool(asked))
    first.play(stay=False)
    devices.store.release()
    assert first.coordinator.state.round == 1 and devices.store.leaving(2)[1] is None
    assert devices.play().coordinator.done and devices.store.leaving(2)[1] is not None
    rounds = {(found.run, found.round, found.content) for found in published if found.kind != "over" and found.asks(0)}
    assert len(rounds) == len({(run, round_) for run, round_, _ in rounds}) == ROUNDS + 1, (
        "one of them is a rebuilding's"
    )


def test_who_leaves_after_a_backup_is_let_go_by_the_restored_service_too(devices, runner, tmp_path) -> None:
    asked: list[bytes] = []

    def step() -> None:
        found = devices.store.publication()
        if found is not None and found.round == 1 and not asked:
            backup(devices.home.path, "", tmp_path / "yesterday")
            asked.append(leaving_request(devices.home.terms(2), devices.keys[2], 5.0, b"nonce"))
            assert not sent(devices.store, 2, "leave", 0, asked[0]).code

    devices.then = step
    assert devices.play().coordinator.done and devices.store.leaving(2)[1] is not None
    restore(tmp_path / "yesterday", tmp_path / "again", skip=0)
    again = Devices(Home.open(tmp_path / "again"), runner)
    assert again.store.leaving(2) == (asked[0], None)
    first, *later = (report.participants for report in again.play().coordinator.reports)
    assert first == CLIENTS and later and set(later) == {CLIENTS - 1}
    assert again.store.leaving(2) == devices.store.leaving(2)
    assert again.events().count("rebuilding_finished") == 1


def test_a_rebuilding_may_take_the_place_of_the_last_round(tmp_path) -> None:
    home = home_of(tmp_path / "home", PRIVATE)
    devices, asked = Devices(home, Runner(home.experiment, threads=1)), []

    def step() -> None:
        found = devices.store.publication()
        if found is not None and found.round == ROUNDS - 2 and not asked:
            asked.append(leaving_request(home.terms(2), devices.keys[2], 5.0, b"nonce"))
            assert not sent(devices.store, 2, "leave", 0, asked[0]).code

    devices.then = step
    coordinator = devices.play().coordinator
    assert coordinator.done and coordinator.rounds == len(coordinator.reports) == ROUNDS - 1
    assert devices.events()[-1] == "finished" and devices.store.leaving(2)[1] is not None


def test_a_client_leaves_after_the_last_round(devices, runner) -> None:
    asked = []

    def step() -> None:
        found = devices.store.publication()
        if found is not None and found.kind == "over" and not asked:
            request = leaving_request(devices.home.terms(2), devices.keys[2], 5.0, b"nonce")
            assert not sent(devices.store, 2, "leave", 0, request).code
            asked.append((request, devices.store.document("ranker.json")))

    devices.then = step
    devices.play(stay=True, stop=lambda: bool(asked) and devices.store.leaving(2)[1] is not None)
    ((request, before),) = asked
    assert devices.store.leaving(2) == (request, leaving_receipt(devices.home.key, request))
    after = devices.store.document("ranker.json")
    assert after != before and (devices.home.path / "ranker.json").read_bytes() == after
    over = devices.store.publication()
    assert (over.kind, over.round) == ("over", ROUNDS)
    assert decode_task(over.content).theta.tolist() == json.loads(after)["parameters"]
    assert devices.events()[-4:] == ["finished", "member_left", "rebuilding_begun", "rebuilding_finished"]


PRIVATE = '[privacy]\nkind = "gaussian"\nclip = 0.5\nnoise_multiplier = 0.1\n'


def test_the_ledger_counts_rebuildings_and_nothing_beyond_the_plan_is_silent(tmp_path) -> None:
    home = home_of(tmp_path / "home", PRIVATE, total_epsilon=1e5)
    private = Runner(home.experiment, threads=1)
    devices = Devices(home, private)
    asked = []

    def step() -> None:
        if devices.store.publication().round == 2 and not asked:
            asked.append(sent(devices.store, 2, "leave", 0, leaving_request(home.terms(2), devices.keys[2], 5.0, b"n")))

    devices.then = step
    devices.play()
    book = read_ledger(home.path)
    (entry,) = book["unlearning"]
    assert entry["without"] == [2] and entry["finished"] and entry["mechanism"]["noise_multiplier"] == 0.1
    setting = Setting(3, 3, ROUNDS + 1)
    assert book["altogether"]["epsilon"] == pytest.approx(accounting.epsilon(setting, 0.1, 1e-5), rel=1e-3)
    assert recount(book) == pytest.approx(book["privacy"]["epsilon"])
    status = Status.read(devices.store.document("status.json"))
    assert status.epsilon_spent == pytest.approx(book["altogether"]["epsilon"]) and status.epsilon_planned == 1e5
    assert "budget_exceeded" not in devices.events() and status.rebuilding_rounds == 1


def test_a_start_with_a_larger_budget_lets_a_waiting_member_go(tmp_path) -> None:
    home = home_of(tmp_path / "home", PRIVATE)
    devices = Devices(home, Runner(home.experiment, threads=1))
    devices.play()
    request = leaving_request(home.terms(2), devices.keys[2], 5.0, b"nonce")
    assert not sent(devices.store, 2, "leave", 0, request).code
    devices.play()
    (problem,) = Status.read(devices.store.document("status.json")).problems
    assert problem.code == "rebuilding.refused" and devices.store.leaving(2)[1] is None
    (advised,) = re.findall(r"total_epsilon=(\d+)", problem.sentence)
    home.change(replace(home.settings, total_epsilon=float(advised)))
    devices.play()
    status = Status.read(devices.store.document("status.json"))
    assert devices.store.leaving(2)[1] is not None and status.problems == ()
    assert status.epsilon_spent <= float(advised) and devices.events()[-1] == "rebuilding_finished"


def with_reports(home: Home) -> Devices:
    devices = Devices(home, Runner(home.experiment, threads=1))

    def reported(member, task):
        (reply,) = devices.simulator.replies(task, np.array([member]))
        steps = home.terms(member).metric_response.respond(0.5, bytes(32), task.round, member)
        return encode_reply(replace(reply, statistics=(float(steps), 0.0, 0.0)))

    devices.answer = reported
    return devices


def test_reports_of_members_are_in_status_and_ledger(tmp_path) -> None:
    home = home_of(tmp_path / "home", report_epsilon=1.0)
    devices = with_reports(home)
    service = devices.play()
    assert service.coordinator.refused == {}
    book = read_ledger(home.path)
    assert book["reports"]["epsilon"] == ROUNDS * 1.0
    assert Status.read(devices.store.document("status.json")).report_epsilon == 1.0


def test_a_reply_with_statistics_that_nobody_agreed_to_is_refused(devices) -> None:
    devices.lies[1] = lambda reply: encode_reply(replace(reply, statistics=(0.7, 0.0, 0.0)))
    coordinator = devices.play().coordinator
    assert coordinator.done and coordinator.refused == {"reply.figure": ROUNDS}
    assert [(report.participants, report.online_ndcg) for report in coordinator.reports] == [
        (CLIENTS - 1, 0.0)
    ] * ROUNDS


def test_as_many_reports_count_as_a_device_may_send(tmp_path) -> None:
    once = 'participation = { kind = "arrivals", enough = 1, least = 1, most = 1 }'
    once += '\n[privacy]\nkind = "gaussian"\nepsilon = 50.0\n'
    homes = [home_of(tmp_path / f"home{each:g}", once, report_epsilon=each) for each in (0.0, 1.0)]
    alone, both = Devices(homes[0], Runner(homes[0].experiment, threads=1)), with_reports(homes[1])
    for devices in (alone, both):
        assert devices.play().coordinator.done
    agreed = homes[1].terms(0).reports["epsilon"]
    book = read_ledger(homes[1].path)
    assert agreed == 1 * 1.0 and book["reports"]["epsilon"] == agreed
    without, found = (Status.read(one.store.document("status.json")) for one in (alone, both))
    assert found.epsilon_spent == pytest.approx(without.epsilon_spent + agreed)
    assert found.epsilon_planned == pytest.approx(without.epsilon_planned + agreed)
    assert book["altogether"]["epsilon"] == pytest.approx(found.epsilon_spent)


def test_noise_in_shares_waits_for_the_planned_cohort(tmp_path) -> None:
    more = '[privacy]\nkind = "published"\n'
    home = home_of(tmp_path / "home", more, least=1.0)
    devices = Devices(home, Runner(home.experiment, threads=1))
    holder = devices.service().holder
    assert coordinator_of(home, holder).limits.minimum_replies == CLIENTS
    devices.store.release()
    devices.store.revoke("member-1")
    service = devices.play(stop=lambda: devices.now > 100.0)
    assert service.coordinator.state.round == 0
    codes = [problem.code for problem in Status.read(devices.store.document("status.json")).problems]
    assert codes == ["round.too-few"]


@pytest.mark.slow
def test_a_postgresql_that_is_restarted_in_a_round_is_waited_for(tmp_path, runner, expected) -> None:
    """The lock of the holder ends with the server: whoever held it tries again, and nothing accepted is lost."""
    home = home_of(tmp_path / "home", database=empty_database())
    devices, asked = Devices(home, runner), []
    thread = Thread(target=lambda: asked.append(hold(home, Service, EventLog(devices.log), lambda: False, stay=False)))
    thread.start()
    try:
        restarted, end = False, time.monotonic() + 60.0
        while thread.is_alive() and time.monotonic() < end:
            with suppress(OSError):
                if not restarted and len(devices.outcomes) > CLIENTS:
                    stop_server()
                    time.sleep(1.0)
                    start_server()
                    restarted = True
                devices.step(0.0)
            time.sleep(0.05)
    finally:
        start_server() if not restarted else None
        thread.join(30)
    assert restarted and asked == [True]
    assert devices.store.document("ranker.json") == expected
    assert (home.path / "ranker.json").read_bytes() == expected
