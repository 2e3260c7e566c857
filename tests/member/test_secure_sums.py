"""Secure sums by mailbox: the phases of `secure_round` over HTTPS, to the sum of the in-process mechanism."""

from __future__ import annotations

import numpy as np
import pytest
from devices import SEED, random_theta, simulator_of, terms_of, user_of
from small_service import SmallService

from quorank.federation import Federation
from quorank.federation.reply import Task, encode_task
from quorank.member import Client
from quorank.privacy import SecureSum
from quorank.protocol.secure_round import KEYS, MASKED, SecureRound

pytestmark = pytest.mark.slow
MEMBERS = 3


@pytest.fixture
def service(request, tiny_collection, tmp_path):
    members, dropouts = getattr(request, "param", (MEMBERS, 0.0))
    privacy = SecureSum(clip=0.05, dropouts=dropouts)
    simulator = simulator_of(tiny_collection, Federation(members, 3, privacy=privacy))
    made = SmallService(terms_of(simulator, 0))
    made.simulator, made.size = simulator, members
    with made.running(tmp_path):
        yield made


@pytest.fixture
def clients(service, tmp_path):
    found = {}
    for number in range(service.size):
        terms, code = terms_of(service.simulator, number), bytes([number]) * 32
        service.codes[code] = terms
        path = service.invitation(tmp_path / f"{number}.json", code=code, terms=terms.table())
        client = found[number] = Client.open(tmp_path / str(number), path, seed=SEED)
        client.consent(True)
    yield found
    for client in found.values():
        client.close()


class SecureCourse:
    """The service's side of one round."""

    def __init__(self, service, round_: int = 0) -> None:
        simulator = service.simulator
        self.service, self.mechanism = service, simulator.mechanism
        self.task = Task("run", round_, random_theta(simulator, round_), simulator.initial().private)
        self.round = SecureRound(
            self.task,
            b"session %d" % round_,
            range(service.size),
            self.mechanism.signed_by,
            neighbourhood=self.mechanism.plan,
        )
        service.published = ("secure", encode_task(self.task))
        self.taken, self.posted = set(service.answers), 0

    def post(self) -> None:
        """The open phase's messages into the mailboxes."""
        service = self.service
        if self.posted < self.round.phase:
            for client, content in self.round.tasks().items():
                service.mail[len(service.mail)] = (client, content)
            self.posted = self.round.phase

    def collect(self, *, close: bool = False) -> None:
        for number, answer in self.service.answers.items():
            if number not in self.taken:
                self.taken.add(number)
                if answer:
                    assert self.round.receive(self.service.mail[number][0], answer).accepted
        if close:
            self.round.deadline = 0.0
        if self.round.complete():
            self.round.advance()

    def __call__(self, clients, absent=()) -> None:
        while not self.round.done:
            self.post()
            for number, client in clients.items():
                if number not in absent:
                    client.sync(force=True)
            self.collect(close=bool(absent))
            self.round.deadline = float("inf")


def search(service, clients, times=3) -> None:
    for number, client in clients.items():
        for _ in range(times):
            user_of(service.simulator, number)(client.device)


def test_a_round_gives_the_sum_of_the_mechanism(service, clients, monkeypatch) -> None:
    course = SecureCourse(service)
    course.post()
    for client in clients.values():
        assert client.sync().code == "device.waiting"  # and has the ranker to search with
        assert client.status()["ranker_round"] == 0
    assert not service.answers, "who has searched too little may still come"
    search(service, clients)
    secrets = {number: bytes([number + 1]) * 32 for number in clients}
    for number, client in clients.items():
        answers = client._answers
        real = answers.secure._entropy
        monkeypatch.setattr(
            answers.secure, "_entropy", lambda n, real=real, secret=secrets[number]: secret if n == 32 else real(n)
        )
    course(clients)
    assert course.round.survivors == tuple(range(MEMBERS))
    known = {number: bytes.fromhex(client.status()["identity"]) for number, client in clients.items()}
    assert course.round.identities == service.members == known, "identities are the keys of enrolment"
    from quorank.member.client_privacy import with_seed

    expected = np.zeros(len(course.task.theta), dtype=np.int64)
    for number in clients:
        (reply,) = plain_replies(service.simulator, course.task, number)
        _, numbers = with_seed(course.mechanism, secrets[number]).numbers(
            reply.reshape(1, -1).copy(), 0, np.array([number])
        )
        expected += numbers[0]
    assert np.array_equal(course.round.total, expected.astype(np.uint32))
    for client in clients.values():
        (release,) = client.store.releases()
        assert release.round == 1 and client.status()["waiting"] == 0
        assert client.sync(force=True).code == "mail.none"


def plain_replies(simulator, task, number):
    plain = simulator_of_plain(simulator)
    return [reply.release for reply in plain.replies(Task("run", task.round, task.theta), np.array([number]))]


def simulator_of_plain(simulator):
    from quorank.engines.process import Simulator

    return Simulator(Federation(MEMBERS, 3), simulator.simulation, rounds=simulator.rounds)


@pytest.mark.parametrize("service", [(8, 0.3)], indirect=True)
def test_a_device_that_restarts_in_the_middle_has_left_the_round(service, clients, tmp_path) -> None:
    course = SecureCourse(service)
    search(service, clients)
    for phase in (KEYS, KEYS + 1):
        assert course.round.phase == phase
        course.post()
        for client in clients.values():
            client.sync(force=True)
        course.collect()
    assert course.round.phase == MASKED
    clients[3].close()
    clients[3] = Client.open(tmp_path / "3", seed=SEED)
    course.post()
    reports = {number: client.sync(force=True) for number, client in clients.items()}
    assert reports[3].code == "device.secure" and reports[0].outcome == "sent"
    assert b"" in service.answers.values()
    course.collect(close=True)
    course.round.deadline = float("inf")
    course(clients, absent=(3,))
    assert course.round.survivors == (0, 1, 2, 4, 5, 6, 7)
    assert clients[3].status()["waiting"] == 3 and not clients[3].store.releases()


def test_an_answer_is_the_same_when_its_confirmation_was_lost(service, clients) -> None:
    course = SecureCourse(service)
    search(service, clients)
    course.post()
    said = service._post_mail
    lost = []

    def lose(member, asked):
        said(member, asked)
        if len(lost) < 2:
            lost.append(asked.body)
            raise ConnectionAbortedError
        return said(member, asked)

    service._post_mail = lose
    assert clients[0].sync(force=True).code == "service.away"
    assert len(set(lost)) == 1
    course(clients)
    assert course.round.survivors == tuple(range(MEMBERS))
