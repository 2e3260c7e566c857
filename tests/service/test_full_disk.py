"""A running service whose disk is really full: what is refused, what is kept, and how it goes on when there is room."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from full_disks import fill, run_on_small_disk
from real_services import RealService, children_of, real_service, until
from signed_calls import Caller, Got, reply_of

from quorank.federation.reply import decode_task
from quorank.protocol.invitation import Invitation
from quorank.service.enrolment import invite

pytestmark = pytest.mark.slow
MEMBERS = 5
SIZE = "96m"  # with less than 64 MiB of room a service warns of a full disk


def test_nothing_accepted_is_lost_and_the_round_ends_when_there_is_room(tmp_path: Path) -> None:
    run_on_small_disk(Path(__file__).resolve(), tmp_path, SIZE)


def play(disk: Path, folder: Path) -> None:
    """The test, where the disk is small."""
    with real_service(disk / "home", clients=MEMBERS + 1, rounds=3, workers=2) as service:
        callers = [service.enrolled(f"member-{number}", folder) for number in range(MEMBERS)]
        store = service.home.store()
        invite(service.home, store, "late", folder / "late.json")
        store.close()
        late = Invitation.read(folder / "late.json")
        until(lambda: all(is_asked(service, caller) for caller in callers), service.log)
        for caller in callers[:2]:
            assert (got := reply(service, caller)).status == 200, got

        ballast = fill(disk)
        assert os.statvfs(disk).f_bavail == 0
        for caller in (callers[0], *callers[2:]):  # the first has been counted: it may ask again, and is not told "no"
            assert is_later(reply(service, caller))
        assert is_later(service.call("POST", "/v1/enrol", Caller(late.service).enrolment(late.code)))
        assert is_later(service.signed(callers[4], "GET", "/v1/task"))
        until(lambda: service.call("GET", "/healthz").status == 503, service.log)
        assert "disk.full" in codes(service.call("GET", "/healthz"))
        (killed,) = service.children("worker-0")
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(children_of(service.pid).keys() - {killed}) == 3, service.log)
        assert all(is_later(reply(service, caller)) for caller in callers)

        ballast.unlink()
        # a balancer sends nobody to a worker that is not healthy: each says so by itself
        until(lambda: all(service.call("GET", "/healthz").status == 200 for _ in range(8)), service.log)
        for caller in callers:  # the first two again, as devices do that heard no answer
            assert (got := reply(service, caller)).status == 200, got
        theta = None

        def next_round() -> bool:
            nonlocal theta
            theta = theta_of(service, callers[0], 1)
            return theta is not None

        until(next_round, service.log)
        # FedAvg with equal weights: each of the five updates once
        expected = np.full(5, np.mean([value_of(caller) for caller in callers]))
        np.testing.assert_allclose(theta, expected, rtol=1e-12)
        assert [line["replies"] for line in events(service) if line["event"] == "round_closed"] == [MEMBERS]
        assert service.stop() == 0


def value_of(caller: Caller) -> float:
    return 0.1 * (1 + caller.number)


def reply(service: RealService, caller: Caller) -> Got:
    return service.signed(caller, "POST", "/v1/reply", reply_of(caller.number, 0, value_of(caller)))


def is_later(got: Got) -> bool:
    """Whether an answer says: not now, nothing was accepted, come again in some seconds."""
    assert (got.status, got.code) == (503, "service.storage"), got
    return int(got.headers["retry-after"]) > 0


def is_asked(service: RealService, caller: Caller) -> bool:
    got = service.signed(caller, "GET", "/v1/task")
    return got.status == 200 and got.headers.get("quorank-asked") != "0"


def theta_of(service: RealService, caller: Caller, round_: int) -> np.ndarray | None:
    """The parameters of this round's task, from a worker that has it: the other may hear of it a moment later."""
    got = service.signed(caller, "GET", "/v1/task")
    task = decode_task(got.body) if got.status == 200 else None
    return task.theta if task is not None and task.round == round_ else None


def codes(got: Got) -> list[str]:
    return [problem["code"] for problem in got.table["problems"]]


def events(service: RealService) -> list[dict[str, object]]:
    return [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]


if __name__ == "__main__":
    play(*map(Path, sys.argv[1:]))
