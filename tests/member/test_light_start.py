"""A device is light: nothing heavy is loaded, and kernels in plain Python give the compiled ones' bits."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from devices import CLIENTS, SEED, random_theta, search, simulator_of, task_of, terms_of, user_of

from quorank.federation import Federation
from quorank.kernels.compiled import interpreted
from quorank.learning import PDGD
from quorank.member.client_privacy import masked_vector
from quorank.member.device import Device
from quorank.member.private_store import PrivateStore
from quorank.privacy import ClippedGaussian, NoPrivacy, PublishedLaplace, SecureSum, Setting, Signs
from quorank.privacy.secure_sum.shamir import join_shares, split_secret
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.protocol.terms import Terms
from quorank.rankers import MLP, Linear

pytestmark = pytest.mark.slow

PROGRAM = """
import json, resource, sys
from quorank.member import Client, Policy
with Client.open(sys.argv[1], sys.argv[2], policy=Policy(unstated=True, epsilon=1e6)) as client:
    opened = resource.getrusage(resource.RUSAGE_SELF)
    client.consent(True)
    rows = [[(7 * i + j) % 5 for j in range(46)] for i in range(40)]
    for _ in range(4):
        client.record(client.rank(rows), [True] + [False] * 9)
    from quorank.federation.reply import Task, encode_task
    task = Task("run", 0, client.device.start, client.terms.client_mechanism.start())
    assert isinstance(client.device.answer(encode_task(task)), bytes)
    assert client.sync().code == "service.away"
    status = client.status()
heavy = [name for name in ("numba", "scipy", "pyarrow", "matplotlib", "dp_accounting", "typer") if name in sys.modules]
most = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"heavy": heavy, "mb": most / 1024, "cpu": opened.ru_utime + opened.ru_stime, "sent": status["releases"]}))
"""


@pytest.mark.parametrize(
    "privacy", [NoPrivacy(), ClippedGaussian(epsilon=8.0), PublishedLaplace(), Signs(p=0.9)], ids=str
)
def test_a_device_loads_nothing_heavy(privacy, tmp_path) -> None:
    """Opening, ranking, recording, answering and a try to reach the service; measured at 0.32 s of a core and 52 MB."""
    terms = Terms("run", 0, 46, 1000, privacy=privacy, setting=Setting(100, 100, 1000, parameters=46))
    invitation = Invitation("desk", "https://127.0.0.1:9", MemberKey.create().public, terms.table(), bytes(32))
    invitation.write(tmp_path / "invitation.json")
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "device"), str(tmp_path / "invitation.json")]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert found["heavy"] == [] and found["sent"] == 1
    assert found["mb"] < 100.0
    assert found["cpu"] < 1.0  # half of that where nothing else runs


def given(count: int) -> bytes:
    return bytes(index % 251 for index in range(count))


@pytest.mark.parametrize(
    ("privacy", "ranker", "more"),
    [
        (NoPrivacy(), MLP(hidden=7, activation="sigmoid"), {"learner": PDGD(proximal=0.2)}),
        (PublishedLaplace(epsilon=0.5, sensitivity=0.3), MLP(hidden=5), {}),
        (Signs(p=0.8), MLP(hidden=5), {}),
        (ClippedGaussian(epsilon=100.0, clip=0.01, noise_multiplier=1.0), Linear(), {"report_epsilon": 0.5}),
    ],
    ids=str,
)
def test_plain_kernels_give_the_compiled_ones_bits(privacy, ranker, more, tiny_collection, tmp_path) -> None:
    simulator = simulator_of(tiny_collection, Federation(CLIENTS, 3, privacy=privacy), ranker)
    found = []
    for plain in (False, True):
        with PrivateStore(tmp_path / str(plain)) as store:
            store.set_consent(True, 0.0)
            terms = terms_of(simulator, 0, **more)
            device = Device(store, terms, seed=SEED, entropy=given, clock=lambda: 0.0, plain=plain)
            for round_ in range(2):  # lists of the task's own ranker, and late ones
                device.answer(task_of(simulator, 2 * round_, random_theta(simulator, round_)))
                search(device, user_of(simulator), 3 - round_)
                if round_:
                    search(device, user_of(simulator), 1)
                found.append(device.answer(task_of(simulator, 2 * round_ + 1, random_theta(simulator, round_ + 7))))
    assert found[:2] == found[2:] and all(isinstance(reply, bytes) for reply in found)


@pytest.mark.parametrize(
    "privacy", [SecureSum(clip=0.1), ClippedGaussian(epsilon=50.0, clip=0.1, sum="secure")], ids=str
)
def test_words_and_shares_of_secure_sums(privacy) -> None:
    mechanism = privacy.mechanism(Setting(20, 20, 5, parameters=30), 0)
    update = np.random.default_rng(0).normal(size=30) * 0.02
    words = []
    for plain in (False, True):
        with interpreted(plain):
            words.append(masked_vector(mechanism, update, 3, 4, given(32)).tobytes())
            shares = split_secret(given(32), 3, 5, given)
            assert join_shares(shares[1:4], [2, 3, 4]) == given(32)
            words.append(b"".join(shares))
    assert words[:2] == words[2:]
