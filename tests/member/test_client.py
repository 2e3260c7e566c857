"""`quorank.member.Client` against a real HTTPS service: enrolment, rounds, faults on the way, consent, leaving."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command_line import python
from devices import ANY, CLIENTS, SEED, coordinator_of, random_theta, simulator_of, state_after, terms_of, user_of
from refusals import refused
from small_service import Said, SmallService

from quorank.federation import Federation
from quorank.federation.reply import Task, decode_reply, encode_task
from quorank.federation.unlearning import rebuilding_name
from quorank.member import Client
from quorank.member.membership import LEFT
from quorank.privacy import NoPrivacy, PublishedLaplace
from quorank.protocol.certificates import Authority
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import leaving_digest, leaving_receipt

pytestmark = pytest.mark.slow
DAY = 86400.0


def service_of(collection, privacy=None, clients=1, client=0):
    simulator = simulator_of(collection, Federation(clients, 3, privacy=privacy or NoPrivacy()))
    coordinator = coordinator_of(simulator)
    return SmallService.over(coordinator, simulator, terms_of(simulator, client, run=coordinator.run))


@pytest.fixture
def service(tiny_collection, tmp_path):
    with service_of(tiny_collection, PublishedLaplace()).running(tmp_path) as made:
        yield made


def client_of(service, tmp_path, consent=True, **more):
    path = service.invitation(tmp_path / "invitation.json")
    client = Client.open(tmp_path / "device", path, seed=SEED, policy=ANY, **more)
    if consent:
        client.consent(True)
    return client


def search(client, service, times=3):
    user = user_of(service.simulator, service.terms.client)
    for _ in range(times):
        user(client.device)


def sent(service):
    """By (run, round): all different replies that came."""
    found = {}
    for asked in service.heard:
        if asked.target == "/v1/reply":
            reply = decode_reply(asked.body)
            found.setdefault((reply.run, reply.round), set()).add(asked.body)
    return found


def test_a_run_over_https_comes_to_the_simulator_s_bits(tiny_collection, tmp_path) -> None:
    with service_of(tiny_collection, clients=CLIENTS, client=2).running(tmp_path) as service:
        client = client_of(service, tmp_path)
        outcomes = []
        while (report := client.sync(force=True)).outcome != "over":
            outcomes.append(report.code or report.outcome)
            if report.code == "device.waiting":
                search(client, service)
        assert outcomes == ["device.waiting", "sent"] * 4
        simulator = service.simulator
        state = state_after(simulator)
        assert service.coordinator.state.theta.tobytes() == state.theta.tobytes()
        assert client.store.ranker.theta.tobytes() == state.theta.tobytes()  # the last one shows the lists
        status = client.status()
        assert (status["state"], status["releases"], status["last_round"], status["client"]) == ("enrolled", 4, 4, 2)
        assert status["identity"] == service.members[2].hex()
        assert json.loads(json.dumps(status)) == status
        client.close()
        with refused("device.closed"):
            client.rank(np.zeros((1, 11)))


def test_without_consent_nobody_is_asked_anything(service, tmp_path) -> None:
    client = client_of(service, tmp_path, consent=False)
    search(client, service, 5)
    assert client.sync().outcome == client.sync(force=True).outcome == "consent"
    assert not service.heard and client.status()["state"] == "invited"
    client.consent(True)
    assert client.sync().outcome == "sent"
    heard = len(service.heard)
    client.consent(False)
    assert client.sync(force=True).outcome == "consent" and len(service.heard) == heard


def test_consent_said_again_is_no_news_and_a_list_counts_once(service, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    service.invitation(tmp_path / "invitation.json")
    with Client.open("~/device", "~/invitation.json", policy=ANY) as client:
        for given in (False, True, True, False, False, True):
            client.consent(given)
        assert [entry["given"] for entry in client.log()["consent"]] == [True, False, True]
        with refused("value.wrong-type", "given"):
            client.consent("off")  # a word is no answer: any would be taken for yes
        search(client, service, 2)
        shown = client.rank(np.ones((4, client.terms.n_features)))
        client.record(shown, [True, False, False, False])
        with refused("list.recorded"):
            client.record(shown, [True, False, False, False])
        assert client.status()["waiting"] == 3
        assert client.sync().outcome == "sent"
        (release,) = client.log()["releases"]
        (asked,) = (asked for asked in service.heard if asked.target == "/v1/reply")
        assert (release["round"], release["interactions"], release["bytes"]) == (1, 3, len(asked.body))
    assert (tmp_path / "device" / "device.sqlite").is_file()


def test_lists_of_before_the_first_task_are_learned_from(tiny_collection, tmp_path) -> None:
    """They count as those of any older ranker: the same bytes as a device whose first ranker was the given one."""
    with service_of(tiny_collection).running(tmp_path) as service:
        begin = random_theta(service.simulator, 5)
        client = client_of(service, tmp_path, start=begin)
        search(client, service)
        shown = client.rank(np.eye(11))
        assert np.allclose(shown.scores, begin, atol=1e-6) and client.status()["ranker_round"] is None
        assert client.sync().outcome == "sent"
        ((body,),) = sent(service).values()
        assert np.abs(decode_reply(body).release).max() > 0.0
        assert client.status()["ranker_round"] == 0
    with refused("ranker.wrong-size"):
        Client.open(tmp_path / "other", service.invitation(tmp_path / "i.json"), start=[1.0])


def test_a_confirmation_that_was_lost_is_asked_for_with_the_same_bytes(service, tmp_path) -> None:
    client = client_of(service, tmp_path)
    search(client, service)
    task, service.lose = service.task(), 3  # a connection that breaks is tried once more at once
    assert client.sync(force=True).code == "service.away"
    search(client, service)
    service.published = task  # the round is still open for the others
    assert client.sync(force=True).outcome == "sent"
    assert client.sync(force=True).code == "task.answered"
    replies = [asked.body for asked in service.heard if asked.target == "/v1/reply"]
    assert len(replies) == 4 and len(set(replies)) == 1
    assert client.status()["waiting"] == 3


def test_a_service_that_was_restored_from_yesterday_gets_no_second_different_answer(tiny_collection, tmp_path) -> None:
    with service_of(tiny_collection, PublishedLaplace(), clients=CLIENTS).running(tmp_path) as service:
        client = client_of(service, tmp_path)
        for _ in range(6):
            search(client, service)
            client.sync(force=True)
        assert [round_ for _, round_ in sent(service)] == [0, 1, 2, 3]
        fresh = service_of(tiny_collection, PublishedLaplace(), clients=CLIENTS)
        service.coordinator, service.replies = fresh.coordinator, {}
        real = fresh.others

        def moved(task, waiting):  # the others answer otherwise this time
            return [replace(reply, release=0.5 * reply.release) for reply in real(task, waiting)]

        service.others = moved
        reports = []
        for _ in range(4):
            search(client, service)
            reports.append(client.sync(force=True))
        assert reports[0].outcome == "sent"  # round 1 is asked as before: the stored bytes again
        assert reports[1].code == "device.repeated"  # round 2 starts from another ranker
        assert all(len(bodies) == 1 for bodies in sent(service).values())
        assert client.status()["releases"] == 4


def test_a_service_that_does_not_know_the_device_any_more_enrols_it_again(service, tmp_path) -> None:
    client = client_of(service, tmp_path)
    assert client.sync().code == "device.waiting"
    service.members.clear()
    assert client.sync(force=True).code == "request.unknown-member"
    assert client.sync(force=True).code == "device.waiting"
    assert len(service.members) == 1


@pytest.mark.parametrize("off", [-DAY, DAY, 1e9])
def test_a_clock_that_is_off_does_not_matter(off, service, tmp_path) -> None:
    client = client_of(service, tmp_path, clock=lambda: time.time() + off)
    search(client, service)
    assert client.sync().outcome == "sent"
    client.close()
    service.clock = lambda: time.time() + 1000.0  # and it moves
    with Client.open(tmp_path / "device", clock=lambda: time.time() + off) as again:
        search(again, service)
        assert again.sync(force=True).outcome == "sent"


def test_another_authority_or_host_is_not_believed(tiny_collection, tmp_path) -> None:
    made = service_of(tiny_collection)
    with made.running(tmp_path) as service:
        pem = Authority.create().pem.decode()
        for name, certificate in (("other", pem), ("system", "")):
            path = service.invitation(tmp_path / f"{name}.json", certificate=certificate)
            with Client.open(tmp_path / name, path, policy=ANY) as client:
                client.consent(True)
                assert client.sync().code == "service.certificate"
    with (
        made.running(tmp_path, ("elsewhere.example",)) as service,
        Client.open(tmp_path / "host", service.invitation(tmp_path / "host.json"), policy=ANY) as client,
    ):
        client.consent(True)
        assert client.sync().code == "service.certificate"
    assert not service.heard


def test_wake_ups_are_merged_and_failures_back_off(service, tmp_path) -> None:
    client = client_of(service, tmp_path)
    first = client.sync()
    assert 600 <= first.next <= 660  # as the service says, drawn longer
    early = client.sync()
    assert early.outcome == "early" and 0 < early.next <= first.next
    client.close()
    with Client.open(tmp_path / "device") as again:  # another process remembers
        assert again.sync().outcome == "early"
        service.said["GET", "/v1/task"] = Said(
            503, b'{"code": "service.busy", "sentence": "later"}', {"Retry-After": "77"}
        )
        assert 77 <= again.sync(force=True).next <= 77 + 15
        service.said["GET", "/v1/task"] = Said(500, b"oops", {"Quorank-Next": "x"})
        pauses = [again.sync(force=True) for _ in range(9)]
        assert {report.code for report in pauses} == {"service.unreadable"}
        assert pauses[0].next <= 30 and 1800 <= pauses[-1].next <= 3600
        assert all(two.next <= 4.0 * one.next for one, two in pairwise(pauses))
        del service.said["GET", "/v1/task"]
        assert again.sync(force=True).next <= 660
    with Client.open(tmp_path / "device", clock=lambda: time.time() - DAY) as back:  # the clock was put back
        assert back.sync().code == "device.waiting"


def test_threads_and_asyncio_sync_once_and_a_second_process_is_told(service, tmp_path) -> None:
    client = client_of(service, tmp_path)
    search(client, service, 9)
    hold = threading.Event()

    def slow(_handler):
        hold.wait(10)
        return service.signed(*service.task())

    service.said["GET", "/v1/task"] = slow
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(client.sync) for _ in range(4)]
        while sum(one.done() for one in futures) < 3:
            time.sleep(0.01)
        hold.set()
        outcomes = sorted(one.result().outcome for one in futures)
    assert outcomes == ["busy", "busy", "busy", "sent"]
    assert asyncio.run(asyncio.to_thread(client.sync)).outcome == "early"
    program = "import sys; from quorank.member import Client\n"
    program += "try: Client.open(sys.argv[1])\nexcept Exception as e: print(e.code)"
    assert python(tmp_path, "-c", program, tmp_path / "device").out.strip() == "folder.busy"


def test_an_invitation_is_used_once_and_a_folder_is_of_one(service, tmp_path) -> None:
    client = client_of(service, tmp_path)
    client.sync()
    path = tmp_path / "invitation.json"
    with Client.open(tmp_path / "second", path, policy=ANY) as second:
        second.consent(True)
        report = second.sync()
        assert report.code == "invitation.used" and report.next >= 3600
    client.close()
    service.url = service.url.replace("127.0.0.1", "localhost")
    with Client.open(tmp_path / "device", service.invitation(tmp_path / "moved.json")) as moved:
        assert moved.invitation.url == service.url
    other = service.invitation(tmp_path / "other.json", code=bytes(32))
    with refused("folder.other-run"):
        Client.open(tmp_path / "device", other)
    with refused("device.missing"):
        Client.open(tmp_path / "nowhere")
    with refused("invitation.kind"):
        Client.open(tmp_path / "third", service.invitation(tmp_path / "p.json", kind="party"))


def test_open_enrolment_gives_a_number(tiny_collection, tmp_path) -> None:
    with service_of(tiny_collection).running(tmp_path) as service:
        path = service.invitation(tmp_path / "open.json", code=b"", token="spring")
        service.terms = terms_of(service.simulator, 41)
        with Client.open(tmp_path / "device", path, policy=ANY) as client:
            client.consent(True)
            assert client.sync().code == "device.waiting"
            assert client.terms.client == 41 == client.status()["client"]


def test_who_is_not_asked_in_a_round_keeps_its_searches(service, tmp_path) -> None:
    """It takes the ranker, and answers nothing; with the next task it may be its turn."""
    client = client_of(service, tmp_path)
    search(client, service)
    task = service.signed(*service.task())
    service.said["GET", "/v1/task"] = task._replace(headers={**task.headers, "Quorank-Asked": "0"})
    assert client.sync().code == "task.unasked"
    assert client.status()["waiting"] == 3 and client.status()["ranker_round"] == 0
    service.said["GET", "/v1/task"] = Said(304, b"", {"Quorank-Asked": "0"})
    assert client.sync(force=True).code == "task.unasked"
    del service.said["GET", "/v1/task"]
    assert client.sync(force=True).outcome == "sent"


def test_a_rebuilding_is_answered_once_and_without_anything_to_give_with_a_word(tiny_collection, tmp_path) -> None:
    with service_of(tiny_collection).running(tmp_path) as service:
        client = client_of(service, tmp_path)
        theta = random_theta(service.simulator)
        run = rebuilding_name(service.terms.run, 1, 2)
        service.published = ("rebuilding", encode_task(Task(run, 0, theta)))
        assert client.sync().code == "rebuilding.nothing"
        assert service.heard[-1].body == b"nothing"
        assert client.sync(force=True).code == "task.answered"
        service.published = None
        search(client, service)
        assert client.sync(force=True).outcome == "sent"
        service.published = ("rebuilding", encode_task(Task(rebuilding_name(service.terms.run, 2, 2), 0, theta)))
        assert client.sync(force=True).outcome == "sent"
        reply = decode_reply(service.heard[-1].body)
        assert reply.run == rebuilding_name(service.terms.run, 2, 2) and reply.release.any()
        service.published = ("rebuilding", service.published[1].replace(b"rebuilt 2", b"rebuilt!2"))
        assert client.sync(force=True).code == "device.run"


def test_a_device_leaves_when_the_service_confirms(service, tmp_path) -> None:
    client = client_of(service, tmp_path)
    search(client, service)
    client.sync()
    report = client.leave()
    assert (report.outcome, report.code) == ("leaving", "leaving.heard")
    assert client.status()["consent"] is False and client.status()["state"] == "leaving"
    with refused("device.leaving"):
        client.consent(True)
    client.close()
    with Client.open(tmp_path / "device") as again:
        (request,) = service.leavers.values()
        for forged in ("", "00" * 64, leaving_receipt(MemberKey.create(), request).decode()):
            service.said["GET", "/v1/leave"] = Said(200, json.dumps({"state": "done", "receipt": forged}).encode())
            assert again.sync(force=True).code == "leaving.not-confirmed"
        del service.said["GET", "/v1/leave"]
        service.gone.add(0)
        report = again.sync(force=True)
        assert report.outcome == "left" and report.erased.traces > 0
        assert leaving_digest(request) in (tmp_path / "device" / LEFT).read_text()
    assert [path.name for path in (tmp_path / "device").iterdir()] == [LEFT]
    with refused("device.left"):
        Client.open(tmp_path / "device", tmp_path / "invitation.json")


def test_a_device_that_never_enrolled_leaves_at_once(service, tmp_path) -> None:
    client = client_of(service, tmp_path, consent=False)
    search(client, service)
    assert client.leave().outcome == "left" and not service.heard
    assert [path.name for path in (tmp_path / "device").iterdir()] == [LEFT]


def pieces(value: float) -> list[bytes]:
    return [struct.pack(order + kind, value) for order in "<>" for kind in "fd"]


def test_the_wire_holds_none_of_the_rows_clicks_paths_or_texts(service, tmp_path) -> None:
    """All requests, headers and bodies, are searched for every feature and score as numbers of all kinds, and for texts."""
    client = client_of(service, tmp_path, start=random_theta(service.simulator))
    random, private = np.random.default_rng(5), []
    for round_ in range(2):
        for number in range(3):
            rows = random.normal(size=(20, 11)).astype(np.float32)
            shown = client.rank(rows)
            clicks = random.random(10) < 0.4
            client.record(shown, clicks, query=f"secret question {number}")
            private += [piece for value in (*rows.ravel(), *shown.scores) for piece in pieces(float(value))]
            private += [shown.order.tobytes(), shown.order.astype("<i4").tobytes(), clicks.astype(np.uint8).tobytes()]
            private += [str(float(value)).encode() for value in rows.ravel()[:20]]
        assert client.sync(force=True).outcome == "sent", round_
    client.leave()
    wire_bytes = b"".join(
        "\n".join((asked.method, asked.target, *(f"{k}: {v}" for k, v in asked.headers.items()))).encode() + asked.body
        for asked in service.heard
    )
    assert len(wire_bytes) > 3000
    assert not [piece for piece in private if any(piece) and piece in wire_bytes]
    for text in (b"secret", b"question", str(tmp_path).encode(), os.fsencode(Path.home())):
        assert text not in wire_bytes
