"""A hostile operator of secure sums, or a proxy between it and real devices over HTTPS: no single update leaves."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest
from devices import ANY, SEED, simulator_of, terms_of, user_of
from small_service import SmallService

from quorank.federation import Federation
from quorank.federation.reply import Task, encode_task
from quorank.federation.unlearning import NOTHING, rebuilding_name
from quorank.member import Client
from quorank.privacy import SecureSum
from quorank.privacy.secure_sum.server import SecureServer
from quorank.protocol.keys import MemberKey
from quorank.protocol.member_list import Head, entry_of
from quorank.protocol.secure_identity import SignedKeys
from quorank.protocol.secure_round import KEYS, SHARES, envelope, occasion_of, open_envelope

pytestmark = pytest.mark.slow
MEMBERS, SESSION = 5, bytes(16)


@dataclass
class Operator:
    """Operator that shows each device what it likes, by a small service for each, all with its one key."""

    simulator: object
    services: list[SmallService] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)

    def task(self, scale: float = 0.0, round_: int = 0) -> Task:
        state = self.simulator.initial()
        return Task("run", round_, state.theta + scale, state.private)

    def ask(self, member: int, task: Task, letter: bytes) -> bytes:
        """Sign a task and a letter for a member, let its device sync, and return its answer."""
        service = self.services[member]
        service.published = "secure", encode_task(task)
        number = len(service.mail) + 1
        service.mail[number] = member, letter
        self.clients[member].sync(force=True)
        return service.answers.get(number, b"")

    def opened(self, member: int, task: Task) -> bytes:
        head = self.services[member].listed.head()
        return self.ask(member, task, envelope(KEYS, [SESSION, encode_task(replace(task, clients=(member,))), head]))

    def shares(self, tasks: list[Task]) -> list[bytes]:
        """Open a round with a task for each device, offer each the keys of all as keys of its own round."""
        answers = [open_envelope(self.opened(member, tasks[member]))[1] for member in range(MEMBERS)]
        signed = [SignedKeys.from_bytes(keys) for keys, _ in answers]
        found = []
        for member, task in enumerate(tasks):
            occasion = occasion_of(SESSION, task, self.services[member].listed.head())
            shown = [replace(one, keys=replace(one.keys, tag=occasion.tag)) for one in signed]
            server = SecureServer(occasion, len(task.theta), self.simulator.mechanism.plan)
            for one in shown:
                server.receive_keys(one.keys)
            keys = server.key_lists()[member]
            listed = [shown[other].to_bytes() for other, _ in keys.neighbours]
            letter = envelope(SHARES, [keys.to_bytes(), *listed])
            found.append(self.ask(member, task, letter))
        return found


def test_rebuildings_count_in_the_releases_of_the_terms(tiny_collection, tmp_path) -> None:
    """The same four searches are asked for again and again, at rankers of the operator's choice."""
    simulator = simulator_of(tiny_collection, Federation(MEMBERS, 4))
    terms = terms_of(simulator, 0, rounds=2, rebuilding_rounds=1)
    with (
        SmallService(terms).running(tmp_path) as service,
        Client.open(tmp_path / "device", service.invitation(tmp_path / "i.json"), seed=SEED, policy=ANY) as client,
    ):
        client.consent(True)
        for _ in range(4):
            user_of(simulator)(client.device)
        service.published = "round", encode_task(Task("run", 0, simulator.initial().theta))
        assert client.sync(force=True).outcome == "sent"
        heard = []
        for number in range(1, 31):
            theta = simulator.initial().theta + number
            service.published = "rebuilding", encode_task(Task(rebuilding_name("run", number, 1), 0, theta))
            client.sync(force=True)
            heard.append(service.heard[-1].body)
        assert [body != NOTHING for body in heard] == [True, True] + [False] * 28
        assert client.status()["releases"] == terms.releases == 3
        for _ in range(4):
            user_of(simulator)(client.device)
        service.published = "round", encode_task(Task("run", 1, simulator.initial().theta))
        assert client.sync(force=True).code == "device.often"


@pytest.fixture
def operator(tiny_collection, tmp_path):
    simulator = simulator_of(tiny_collection, Federation(MEMBERS, 3, privacy=SecureSum(clip=0.05)))
    made, key = Operator(simulator), MemberKey.create()
    with ExitStack() as stack:
        for member in range(MEMBERS):
            service, folder = SmallService(terms_of(simulator, member)), tmp_path / f"{member}"
            folder.mkdir()
            service.key = key
            stack.enter_context(service.running(folder))
            bundle = service.invitation(folder / "invitation.json")
            client = stack.enter_context(Client.open(folder / "device", bundle, seed=SEED, policy=ANY))
            client.consent(True)
            for _ in range(3):
                user_of(simulator, member)(client.device)
            made.services.append(service)
            made.clients.append(client)
        for service in made.services:
            for member, client in enumerate(made.clients):
                service.listed.add(member, client.key.public)
        yield made


def test_devices_that_were_sent_different_rankers_share_nothing(operator) -> None:
    """The operator of one victim: the others get a θ at which their updates vanish, so the sum would be the victim's."""
    assert all(operator.shares([operator.task(1.0)] * MEMBERS)), "shown the same θ, all of them share"
    tasks = [operator.task(round_=1), *[operator.task(1e6, 1)] * (MEMBERS - 1)]
    assert operator.shares(tasks) == [b""] * MEMBERS
    assert [client.status()["waiting"] for client in operator.clients] == [3] * MEMBERS


def test_devices_that_were_shown_different_lists_of_members_share_nothing(operator) -> None:
    """The operator enrols devices of its own for the eyes of its victim alone."""
    for number in range(100, 110):
        operator.services[0].listed.add(number, MemberKey.create().public)
    assert operator.shares([operator.task()] * MEMBERS) == [b""] * MEMBERS
    assert [client.status()["waiting"] for client in operator.clients] == [3] * MEMBERS
    heads = [client.status()["members"] for client in operator.clients]
    assert heads[0].startswith("15:") and {*heads[1:]} == {f"{Head.from_bytes(operator.services[1].listed.head())}"}
    for service in operator.services[1:]:  # later it shows them to everybody: the same entries can be compared
        service.listed = operator.services[0].listed
    assert all(operator.shares([operator.task(round_=1)] * MEMBERS))
    assert len({client.status()["members"] for client in operator.clients}) == 1


def test_a_member_that_was_listed_can_not_be_replaced(operator) -> None:
    assert all(operator.shares([operator.task()] * MEMBERS))
    for service in operator.services:
        service.listed.entries[2] = entry_of(2, MemberKey.create().public)
    assert [operator.opened(member, operator.task(round_=1)) for member in range(MEMBERS)] == [b""] * MEMBERS
    assert operator.clients[0].sync(force=True).code == "mail.none"


def test_a_letter_with_another_ranker_than_the_signed_task_is_rejected(operator) -> None:
    signed, other = operator.task(), operator.task(1e6)
    letter = envelope(KEYS, [SESSION, encode_task(replace(other, clients=(0,))), operator.services[0].listed.head()])
    assert operator.ask(0, signed, letter) == b""
    assert operator.opened(0, signed) != b""


def test_a_letter_that_was_changed_on_its_way_is_not_answered(operator, monkeypatch) -> None:
    """A proxy that terminates TLS, with a certificate that the device trusts."""
    service, said = operator.services[0], SmallService._get_mail

    def altered(self, member, asked):
        found = said(self, member, asked)
        return found._replace(content=found.content[:-1] + b"\x01") if found.content else found

    monkeypatch.setattr(SmallService, "_get_mail", altered)
    assert operator.opened(0, operator.task()) == b"" and service.answers == {}
    assert operator.clients[0].sync(force=True).code == "mail.unsigned"
    monkeypatch.undo()
    assert operator.clients[0].sync(force=True).outcome == "sent"
