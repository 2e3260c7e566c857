"""Services whose workers and holder are killed at random moments, with real devices over HTTPS, some of which leave.

The account is the devices': which tasks they were given, what they sent, and what was confirmed. From it alone every ranker
is computed again, round by round and rebuilding by rebuilding, and compared with what the service has published.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from devices import ANY
from postgresql_server import empty_database
from real_services import RealService, is_alive, real_service, until

from quorank.engines.driver import gathered_of
from quorank.experiments.deployment import deployed_coordinator, start_of
from quorank.federation.coordinator import Coordinator, RoundLimits
from quorank.federation.reply import decode_reply, decode_task
from quorank.federation.rounds import State
from quorank.federation.storage import CoordinatorCheckpoint
from quorank.federation.unlearning import NOTHING, rebuilding_name
from quorank.federation.unlearning.departures import INTERVAL, LEAVERS, Leaver
from quorank.federation.unlearning.rebuilding import DOCUMENT, CountedRebuilding, RebuildingLedger, rebuilding_of
from quorank.files.documents import parse_json
from quorank.member import Client, device_answers
from quorank.privacy.ledger import read_ledger, recount
from quorank.privacy.mechanisms.integer_sums import IntegerSums
from quorank.protocol.http_client import ServiceClient
from quorank.protocol.messages import leaving_receipt
from quorank.protocol.secure_round import MASKED
from quorank.service.enrolment import invite
from quorank.service.holders.rounds import KeptInStore
from quorank.service.home import Home

MEMBERS, FEATURES, ROUNDS = 8, 5, 500
NOISY = {"kind": "gaussian", "noise_multiplier": 1.0, "accountant": "rdp"}  # counted within a second after every round
PRIVACIES = {"plain": NOISY, "secure": NOISY | {"sum": "secure", "dropouts": 0.3}}
Round = tuple[str, int]  # run, or a rebuilding of it, and round


@dataclass
class Account:
    """Tasks that devices were given, and what each has sent: its reply, or the vector in its masked input."""

    tasks: dict[Round, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    sent: dict[Round, dict[int, Any]] = field(default_factory=lambda: defaultdict(dict))
    confirmed: dict[Round, set[int]] = field(default_factory=lambda: defaultdict(set))
    masked: dict[int, Round] = field(default_factory=dict)  # round of each device's last masked input
    twice: list[tuple[Round, int]] = field(default_factory=list)  # second vectors of a device in a round

    def task(self, content: bytes) -> None:
        task = decode_task(content)
        self.tasks[task.run, task.round].add(content)

    def vector(self, client: int, round_: int, vector: Any) -> None:
        self.masked[client] = "run", round_
        if client in self.sent["run", round_]:
            self.twice.append((("run", round_), client))
        self.sent["run", round_][client] = vector


@pytest.fixture
def account(monkeypatch) -> Account:
    """The account of all devices of this process, written where their messages leave."""
    found, client = Account(), ServiceClient
    task, reply, answer, masked_vector = client.task, client.reply, client.answer, device_answers.masked_vector

    def watched_task(self, *words):
        served = task(self, *words)
        if served.content is not None and served.kind != "over":
            found.task(served.content)
        return served

    def watched_reply(self, content):
        if content == NOTHING:
            return reply(self, content)
        one = decode_reply(content)
        found.sent[one.run, one.round].setdefault(one.client, content)
        assert found.sent[one.run, one.round][one.client] == content
        wait = reply(self, content)
        found.confirmed[one.run, one.round].add(one.client)
        return wait

    def watched_answer(self, number, content):
        wait = answer(self, number, content)
        if content[5:6] == bytes([MASKED]):
            found.confirmed[found.masked[self.member]].add(self.member)
        return wait

    def watched_vector(mechanism, update, round_, client, secret):
        vector = masked_vector(mechanism, update, round_, client, secret)
        found.vector(client, round_, vector)
        return vector

    monkeypatch.setattr(client, "task", watched_task)
    monkeypatch.setattr(client, "reply", watched_reply)
    monkeypatch.setattr(client, "answer", watched_answer)
    monkeypatch.setattr(device_answers, "masked_vector", watched_vector)
    return found


class Person(Thread):
    """A person with a device, who searches whenever it needs to, and leaves when asked to."""

    def __init__(self, number: int, folder: Path, bundle: Path, stop: Event) -> None:
        super().__init__(daemon=True)
        self.number, self.folder, self.bundle, self.stop = number, folder, bundle, stop
        self.leaves, self.left, self.fault = Event(), False, ""

    def run(self) -> None:
        try:
            draw = np.random.default_rng(self.number)
            client = Client.open(self.folder, self.bundle, policy=ANY, seed=self.number)
            client.consent(True)
            while not self.stop.is_set() and not self.left:
                while not client.device.ready() and not self.leaves.is_set():
                    shown = client.rank(draw.random((6, FEATURES)))
                    client.record(shown, draw.random(len(shown.order)) < 0.4)
                self.left = (client.leave() if self.leaves.is_set() else client.sync(force=True)).outcome == "left"
                time.sleep(0.02)
            client.close()
        except BaseException as error:
            self.fault = repr(error)


def people_of(service: RealService, folder: Path, stop: Event) -> Iterator[Person]:
    with closing(service.home.store()) as store:
        for number in range(MEMBERS):
            invite(service.home, store, f"device-{number}", folder / f"{number}.json")
            yield Person(number, folder / f"device-{number}", folder / f"{number}.json", stop)


def kill_one(service: RealService, draw: Random, leaver: Person | None) -> str:
    """Kill the holder or a worker at a random moment after all have been started; the holder soon after somebody leaves."""
    until(lambda: sum(is_alive(pid) for pid in service.children()) == 3, service.log)
    time.sleep(draw.uniform(0.0, 6.0))
    victim = draw.choice(["holder", "holder", "worker-0", "worker-1"])
    if leaver is not None:
        leaver.leaves.set()
        time.sleep(draw.uniform(0.0, 0.5))
        victim = "holder"
    (pid,) = service.children(victim)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    return victim


def checkpoint_of(home: Home) -> CoordinatorCheckpoint:
    with closing(home.store()) as store:
        return KeptInStore(store).load() or CoordinatorCheckpoint(State(0, np.zeros(FEATURES), {}), "run", [], {})


def played(
    service: RealService, folder: Path, kills: int, leavers: int, seed: int, *, may_reset: bool
) -> tuple[dict[str, int], float]:
    """Play rounds while processes are killed and members leave; return the kills by victim."""
    stop, draw, victims = Event(), Random(seed), defaultdict(int)
    people, began = [*people_of(service, folder, stop)], time.monotonic()

    def told() -> str:
        return f"{[one.fault for one in people]}\n{service.log.read_text()[-3000:]}"

    def rounds() -> int:
        return sum(report.participants > 0 for report in checkpoint_of(service.home).reports)

    def play(more: int) -> None:
        before = rounds()
        until(lambda: rounds() >= before + more, told, 120.0)

    try:
        for person in people:
            person.start()
        play(1)  # so that everybody has a part in the ranker
        moments = sorted(draw.sample(range(kills), leavers))
        for kill in range(kills):
            leaver = people[moments.index(kill)] if kill in moments else None
            victims[kill_one(service, draw, leaver)] += 1
        play(2)
        if may_reset:
            assert not any(person.left for person in people), "nobody is let go without the operator's word"
            service.stop()
            service.home.change(replace(service.home.settings, may_reset=True))
            service.start()
        until(lambda: sum(person.left for person in people) == leavers, told, 120.0)
        play(2)
    finally:
        stop.set()
        for person in people:
            person.join(60)
    assert service.stop() == 0
    assert [person.fault for person in people] == [""] * MEMBERS
    return dict(victims), time.monotonic() - began


@dataclass
class Recount:
    """Rankers of a run, computed from the devices' account and the folder's secret."""

    home: Home
    account: Account
    secret: bytes
    left: set[int]

    def coordinator(self, round_: int, theta: Any) -> Coordinator:
        """A coordinator without a store, before this round."""
        home = self.home
        found = deployed_coordinator(
            home.experiment, FEATURES, self.secret, run="run", rules=RoundLimits(), keeping=None,  # type: ignore[arg-type]
            clock=time.monotonic, figure=None, enrolled=(),
        )  # fmt: skip
        found.state = replace(found.state, round=round_, theta=theta)
        return found

    def closed(self, coordinator: Coordinator, name: Round, members: tuple[int, ...]) -> Any:
        """θ after a round in which these members' contributions count."""
        sent, mechanism = self.account.sent[name], coordinator.mechanism
        if isinstance(mechanism, IntegerSums):
            words = np.sum([sent[member] for member in members], axis=0, dtype=np.uint32)
            opened = mechanism.judge(words, len(members), MEMBERS)
            interactions = len(members) * coordinator.federation.interactions
            coordinator.close(gathered_of(mechanism, coordinator.state, [opened], interactions))
        else:
            coordinator.plan()
            for member in members:
                verdict = coordinator.receive(sent[member])
                assert verdict.accepted, verdict
            coordinator.close(coordinator.cohort_sum())
        return coordinator.state.theta

    def counted(self, name: Round, participants: int) -> Iterator[tuple[int, ...]]:
        """All sets of members that may have counted: whose contribution was confirmed, unless they have left since."""
        sent, confirmed = self.account.sent[name], self.account.confirmed[name]
        assert confirmed <= sent.keys()
        certain = confirmed - self.left
        assert len(certain) <= participants <= len(sent), f"{name}: {participants} counted, {certain} were confirmed"
        for others in combinations(sorted(sent.keys() - certain), participants - len(certain)):
            yield tuple(sorted([*certain, *others]))

    def published(self, name: Round) -> bytes | None:
        """θ of a round's task; the same for all devices and at all times."""
        contents = self.account.tasks.get(name, set())
        assert len(contents) <= 1, f"{name} was published with different rankers"
        return next((decode_task(content).theta.tobytes() for content in contents), None)

    def run(self, saved: CoordinatorCheckpoint, entries: Sequence[CountedRebuilding], resets: int) -> None:
        """Compute the whole run again, with each rebuilding or reset where the next task shows it."""
        start = start_of(self.home.experiment, FEATURES)
        thetas, rebuilt = [start], list(entries)
        for round_, report in enumerate(saved.reports):
            name, last = ("run", round_), round_ + 1 == len(saved.reports)
            assert report.round == round_ + 1
            if report.participants == 0:
                assert self.home.experiment.federation.privacy.hides_single_updates, "only a secure sum may be given up"
            else:
                sets = [*self.counted(name, report.participants)]
                thetas = [self.closed(self.coordinator(round_, theta), name, one) for theta in thetas for one in sets]
            after = saved.state.theta.tobytes() if last else self.published(("run", round_ + 1))
            if after is not None and all(theta.tobytes() != after for theta in thetas):
                thetas = [self.rebuilding(rebuilt.pop(0), round_ + 1, start) if rebuilt else start]
                resets -= not entries
            thetas = [theta for theta in thetas if after is None or theta.tobytes() == after]
            assert thetas, f"{name}: the ranker is that of no possible set of {report.participants} members"
        assert not rebuilt and resets == 0

    def rebuilding(self, entry: CountedRebuilding, done: int, start: Any) -> Any:
        """θ of a rebuilding after so many rounds."""
        name, rounds = rebuilding_name("run", entry.number, INTERVAL), -(-done // INTERVAL)
        assert entry.finished and entry.rounds == rounds
        made = rebuilding_of(
            self.coordinator(done, start), start, rounds, name, entry.without, float(INTERVAL), storage=None
        )
        for round_, (participants, _, _) in enumerate(entry.releases):
            shown = self.published((name, round_))
            assert shown is None or shown == made.state.theta.tobytes()
            (members,) = self.counted((name, round_), int(participants))
            self.closed(made, (name, round_), members)
        return made.ranker


def released_rounds(entry: Mapping[str, Any]) -> int:
    """Rounds of a ledger's entry, without gaps or repetitions."""
    done = 0
    for one in entry["releases"]:
        assert one["first_round"] == done + 1
        done = one["last_round"]
    return done


def check(service: RealService, account: Account, leavers: int) -> dict[str, int]:
    """Compare what the service has published, counted and confirmed with the account; return numbers for a report."""
    home = service.home
    saved, book = checkpoint_of(home), read_ledger(home.path)
    with closing(home.store()) as store:
        left = {member: (request, receipt) for member, request, receipt in store.leavers()}
        entries = RebuildingLedger(home.experiment.federation.privacy, store.document(DOCUMENT)).entries
        requests = parse_json(store.document(LEAVERS) or b"[]", list[Leaver])
        secret, found = home.run_secret(store), store.publication()
    assert not account.twice, "a device was asked for two inputs to one sum"
    assert left.keys() == {*range(leavers)} and all(r == leaving_receipt(home.key, q) for q, r in left.values())
    assert sorted(one.client for one in requests) == sorted(left) and all(one.done for one in requests)
    assert found is not None and not any(found.asks(member) for member in left)
    resets = {one.number for one in requests if one.method == "reset"}
    Recount(home, account, secret, {*left}).run(saved, entries, len(resets))
    assert released_rounds(book) == len(saved.reports)
    assert [entry.rounds for entry in entries] == [released_rounds(entry) for entry in book.get("unlearning", [])]
    assert recount(book) == pytest.approx(book["privacy"]["epsilon"])
    return {
        "rounds": len(saved.reports),
        "without a sum": sum(report.participants == 0 for report in saved.reports),
        "contributions": sum(report.participants for report in saved.reports),
        "rebuildings": len(entries),
        "resets": len(resets),
        "receipts": len(left),
    }


SERIES = [
    pytest.param(kind, database, 30, 3, marks=pytest.mark.nightly)
    for kind in PRIVACIES
    for database in ("sqlite", "postgresql")
]


@pytest.mark.parametrize(("kind", "database", "kills", "leavers"), SERIES)
def test_killed_at_random(kind, database, kills, leavers, account, tmp_path) -> None:
    """Nothing is lost or counted twice, no round is published twice, and the ledger has a release for each."""
    options = {"clients": MEMBERS, "rounds": ROUNDS, "privacy": PRIVACIES[kind], "leaving_pause": 1.0}
    url = "" if database == "sqlite" else empty_database()
    with real_service(tmp_path / "home", database=url, **options) as service:
        victims, seconds = played(service, tmp_path, kills, leavers, 7, may_reset=kind == "secure")
        print({"seconds": round(seconds), **victims, **check(service, account, leavers)})
