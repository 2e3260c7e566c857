"""A service whose experiment has a start: its first task, its terms, and lists on a device before the first round."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from refusals import refused

from quorank.cli import coordinator, service
from quorank.member import Client
from quorank.rankers import Linear
from quorank.rankers.ranker_file import SavedRanker, ranker_bytes
from quorank.service.dashboard.event_log import EventLog
from quorank.service.enrolment import invite
from quorank.service.holders.devices import Service
from quorank.service.home import Home

FILE = "[federation]\nclients = 2\ninteractions = 3\nrounds = 5\n[data]\nqueries = 60\n"
WEIGHTS = np.array([0.0, 0.1, 0.0, 0.0, 20.0])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(service, "replace_by", lambda words: None)
    return tmp_path


def start(ranker: str, *arguments: object) -> None:
    Path("mine.toml").write_text(f"{FILE}[ranker]\n{ranker}\n")
    invoke(coordinator.app, "start", "home", "--experiment", "mine.toml", *arguments)


def first_task(home: Home) -> np.ndarray:
    """θ of the task that a holder publishes first, and of the ranker that leavers are forgotten from."""
    with closing(home.store()) as store:
        assert store.hold() is not None
        service = Service(home, store, EventLog(None))
        assert service.desk is not None
        assert service.desk.start.tobytes() == service.coordinator.state.theta.tobytes()
        return service.coordinator.plan().theta


@pytest.mark.parametrize("kind", ["weights", "file", "network"])
def test_members_have_the_start_before_the_first_round(here: Path, kind: str) -> None:
    (here / "prior.json").write_bytes(ranker_bytes(SavedRanker(Linear(), 5, WEIGHTS)))
    ranker = {
        "weights": "start = { 5 = 20.0, 2 = 0.1 }",
        "file": 'start = "prior.json"',
        "network": 'kind = "mlp"\nhidden = 4\nstart = "prior.json"',
    }[kind]
    start(ranker, "--features", 5)
    (here / "prior.json").unlink()
    home = Home.open(here / "home")
    expected = home.experiment.ranker.initial(5, home.experiment.seed)
    if kind != "network":
        assert expected.tobytes() == WEIGHTS.tobytes()
    assert first_task(home).tobytes() == expected.tobytes()
    with closing(home.store()) as store:
        invite(home, store, "anna", here / "anna.json")
    with Client.open(here / "device", here / "anna.json") as client:
        shown = client.rank(np.eye(5))
        assert np.allclose(shown.scores, WEIGHTS, atol=1e-6)  # as the product ranks, without a word from the service


def test_the_scale_is_measured_on_the_operator_s_data(here: Path) -> None:
    start('start = { 5 = 2.0 }\nstart_scale = "rule"')
    home = Home.open(here / "home")
    told = home.terms_table["ranker"]
    assert json.loads(json.dumps(told)) == {"kind": "linear", "start": {"5": 2.0}, "start_scale": 10.0}
    assert home.terms(0).ranker.initial(46, 0)[4] == 20.0 == first_task(home)[4]


@pytest.mark.parametrize(
    ("ranker", "code", "where"),
    [
        ("start = { 6 = 1.0 }", "ranker.no-such-feature", "ranker.start.6"),
        ("start = { bm25 = 1.0 }", "ranker.no-such-feature", "ranker.start.bm25"),
        ("start = [1.0, 2.0]", "ranker.wrong-size", "ranker.start"),
        ('start = { 1 = 1.0 }\nstart_scale = "rule"', "ranker.no-sample", "ranker.start_scale"),
    ],
)
def test_a_start_that_devices_do_not_have_is_refused(here: Path, ranker: str, code: str, where: str) -> None:
    with refused(code, where):
        start(ranker, "--features", 5)
    assert not (here / "home").exists()
