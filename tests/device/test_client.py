"""`quorank.device.Client` against a real HTTPS service: enrolment, rounds, faults on the way, consent, leaving."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from devices import CLIENTS, SEED, coordinator_of, killed, shoot, simulator_of, terms_of, user_of
from refusals import refused
from small_service import CODE, SmallService

from quorank.device import Client
from quorank.federation import Federation, wire
from quorank.federation.coordinator import RoundLimits
from quorank.privacy import PublishedLaplace

pytestmark = pytest.mark.slow


@pytest.fixture
def simulator(tiny_collection):
    return simulator_of(tiny_collection, Federation(1, 3, privacy=PublishedLaplace()))


@pytest.fixture
def service(simulator, tmp_path):
    made = SmallService(terms_of(simulator, 0, run=""  or "run"), coordinator_of(simulator))
    made.coordinator.run = "run"
    with made.running(tmp_path):
        yield made


def client_of(service, tmp_path, **more):
    path = tmp_path / "invitation.json"
    client = Client.open(tmp_path / "device", service.invitation(path), seed=SEED, **more)
    return client


def search(client, user, times=3):
    for _ in range(times):
        user(client.device)


def test_first(service, simulator, tmp_path):
    client, user = client_of(service, tmp_path), user_of(simulator)
    assert client.sync().outcome == "consent"
    client.consent(True)
    report = client.sync()
    print(report)
    assert report.code == "device.waiting"
    search(client, user)
    assert client.sync().outcome == "early"
    report = client.sync(force=True)
    print(report)
    assert report.outcome == "sent"
    print(client.status())
