"""Asynchronous rounds as users ask for them: options, refusals, and what a run writes down."""

from __future__ import annotations

import json
from contextlib import contextmanager

import numpy as np
import pytest
from command_line import in_process
from hypothesis import given
from hypothesis import strategies as st
from memory_transport import MemoryTransport

from quorank.engines.driver import Driver, SharedNodes
from quorank.errors import BadInput
from quorank.experiments import asynchronous_run
from quorank.experiments.simulated_clients import SimulatedClients
from quorank.federation import Federation, Sampled
from quorank.federation.asynchronous import Asynchronous
from quorank.flower import engine as loopback

LATE = ("--engine", "flower", "--asynchronous", "0.25")
NAMES = ("node-0", "node-1", "node-2", "node-3")
FILE = """\
[data]
source = "synthetic:mq2007"
queries = 60

[federation]
clients = 20
rounds = 12
keep_every = 5
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Nodes in this process, of which some are slower, in the place of Flower's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(FILE)

    def flower(experiment, nodes):
        @contextmanager
        def bring_up(runner, folder, stop):
            clients, random = SimulatedClients.playing(experiment, folder), np.random.default_rng(1)
            transport = MemoryTransport(lambda _, content: clients.respond(content), NAMES)
            transport.delay = lambda name: (1 + NAMES.index(name)) * random.exponential()
            driver = Driver(transport, SharedNodes(NAMES), poll=0.0, patience=60.0, stop=stop)
            yield driver.round

        return bring_up

    monkeypatch.setattr(loopback, "flower", flower)
    return tmp_path


@pytest.fixture
def call(here, monkeypatch, capfd):
    return lambda *words: in_process(monkeypatch, capfd, *words)


def test_a_run_with_late_replies(here, call) -> None:
    summary = json.loads(call("run", "small.toml", *LATE, "--out", "late", "--json").out)
    assert summary["rounds"] == 12
    assert 12 * 5 * 4 <= summary["interactions"] < 12 * 20 * 4  # a quarter of the cohort, or what came with it
    assert json.loads((here / "late" / "asynchronous.json").read_text()) == {"share": 0.25, "replies": 5}
    assert "keep_every = 0" in (here / "late" / "run.toml").read_text()
    assert not (here / "late" / "clients").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--asynchronous", "0.25"), "use --engine flower"),
        (("--asynchronous", "0", "--engine", "flower"), "above 0 and at most 1"),
        (
            ("--asynchronous", "0.5", "--engine", "flower", "--set", 'privacy.kind="secure-sum"'),
            "nor can a secure sum be made",
        ),
        (
            ("--asynchronous", "0.5", "--engine", "flower", "--set", 'privacy.kind="gaussian"', "--set",
             "privacy.epsilon=1000"),
            "no noise is accounted for that",
        ),
    ],
)  # fmt: skip
def test_refusals(here, call, words, sentence) -> None:
    found = call("run", "small.toml", "--out", "run", *words)
    assert found.code == 2 and sentence in found.err
    assert not (here / "run").exists()


def test_a_run_goes_on_as_it_was_started(here, call) -> None:
    assert call("run", "small.toml", *LATE, "--out", "late").code == 0
    (here / "late" / "summary.json").unlink()
    assert "use --engine flower" in call("run", "--resume", "late").err
    assert "--asynchronous" in call("run", "--resume", "late", *LATE).err
    assert asynchronous_run.share_of(here / "late") == 0.25
    assert call("run", "--resume", "late", "--engine", "flower").code == 0
    assert json.loads((here / "late" / "summary.json").read_text())["rounds"] == 12
    (here / "late" / "asynchronous.json").write_text("{")
    (here / "late" / "summary.json").unlink()
    assert "asynchronous.json: damaged" in call("run", "--resume", "late", "--engine", "flower").err


def test_a_synchronous_run_in_the_place_of_one_is_not_taken_for_one(here, call) -> None:
    assert call("run", "small.toml", *LATE, "--out", "a").code == 0
    assert call("run", "small.toml", "--out", "a").code == 2, "without --overwrite it stays as it is"
    assert asynchronous_run.share_of(here / "a") == 0.25
    assert call("run", "small.toml", "--out", "a", "--overwrite").code == 0
    assert asynchronous_run.share_of(here / "a") is None


def test_replies_are_a_share_of_the_cohort() -> None:
    assert Asynchronous.of(0.25, Federation(40)).replies == 10
    assert Asynchronous.of(0.25, Federation(40, participation=Sampled(8))).replies == 2
    assert Asynchronous.of(0.001, Federation(40)).replies == 1
    for share in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(BadInput, match="asynchronous: must be above 0 and at most 1"):
            Asynchronous.of(share, Federation(40))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 100), st.floats(0.0, 3.0))
def test_equal_updates_go_the_same_way_whatever_their_age(ages, asked, power) -> None:
    """K replies of n that all say u move the ranker K/n of u: what a synchronous round of them would."""
    rules = Asynchronous(1, power)
    mean = sum(rules.weight(age) for age in ages) / len(ages)
    assert rules.stretch(ages, asked) * mean == pytest.approx(len(ages) / asked)
