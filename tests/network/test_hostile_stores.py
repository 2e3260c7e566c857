"""Files of coordinators, devices and parties that hold other types than were written: one sentence, no traceback."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from refusals import refused

from quorank.cli.flower_status import group_status_of, print_group_status, print_status, readable_status, status_of
from quorank.device.private_store import PrivateStore
from quorank.experiments.client_terms import terms_of
from quorank.experiments.experiment import Experiment
from quorank.experiments.experiment_file import parse_experiment_file
from quorank.federation.bundle import check_address
from quorank.federation.terms import Terms
from quorank.service.home import Home, Settings
from quorank.service.silo_home import SiloHome, settings_of
from quorank.silos.protocol.records import Record, written
from quorank.silos.protocol.stream_store import SiloStore
from quorank.silos.protocol.terms import SiloTerms


@pytest.mark.parametrize("value", [5, -1, 2**40, 1.5, "text"])
def test_a_fact_of_another_type_is_refused(value, tmp_path) -> None:
    """A number was taken for so many zero bytes."""
    for folder, make, name in (
        (tmp_path / "device", lambda folder: PrivateStore(folder), "device"),
        (tmp_path / "party", lambda folder: SiloStore(folder, "party"), "party"),
    ):
        folder.mkdir()
        make(folder).close()
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as database:
            database.execute("INSERT INTO facts VALUES ('personal', ?)", (value,))
            database.commit()
        store = make(folder)
        try:
            with refused("file.damaged"):
                store.fact("personal")
        finally:
            store.close()


@pytest.mark.parametrize("change", ["sent = 'x'", "heard = -1", "came = 1.5", "heard = x'00'"])
def test_places_of_another_type_are_refused(change, tmp_path) -> None:
    store = SiloStore(tmp_path, "party")
    with store.transaction():
        store.put("server", written(Record.ROWS, 5))
    store.close()
    with closing(sqlite3.connect(tmp_path / "party.sqlite")) as database:
        database.execute(f"UPDATE places SET {change}")
        database.commit()
    store = SiloStore(tmp_path, "party")
    try:
        with refused("file.damaged"):
            store.message("server", 0, bytes(16))
    finally:
        store.close()


def terms() -> dict:
    experiment = Experiment.read(parse_experiment_file("[federation]\nclients = 4\nrounds = 5\n", "e.toml"))
    return terms_of(experiment, 46, 0).table()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"participation": []}, "value.not-a-choice"),
        ({"participation": "often"}, "value.not-a-choice"),
        ({"clients": "4"}, "terms.malformed"),
        ({"rounds": 1.5}, "terms.malformed"),
        ({"clients": 10**30, "cohort": 10**30}, "value.out-of-range"),
    ],
)
def test_terms_whose_setting_is_of_another_type_are_refused(change, code) -> None:
    table = terms()
    assert Terms.read(table).table() == table
    with refused(code):
        Terms.read(table | {"setting": table["setting"] | change})


def test_a_port_of_many_digits_is_refused() -> None:
    with refused("address.malformed"):
        check_address("host:" + "9" * 5000)


STATUS = {"refused": [], "left": 5, "epsilon": "x", "reported": "x", "checkpoint_at": "x", "rounds": None, "privacy": 5}
GROUP = {"traffic": [], "refused": {"a": "b"}, "sent_bytes": "x", "last_round_seconds": "x"}


@pytest.fixture(scope="module")
def homes(tmp_path_factory) -> tuple[Home, SiloHome]:
    folder = tmp_path_factory.mktemp("homes")
    experiment = Experiment.read(parse_experiment_file("[federation]\nclients = 4\nrounds = 5\n", "e.toml"))
    home = Home.create(folder / "coordinator", experiment, Settings("run", 46, "localhost:9092", report_epsilon=1.0))
    group = SiloTerms.read({"version": 1, "run": "run", "parties": ["north", "south"]})
    return home, SiloHome.make(folder / "group", group, settings_of("run", address="localhost:9092"))


@pytest.mark.parametrize("key", STATUS)
def test_a_status_of_another_type_is_a_sentence(key, homes, capsys) -> None:
    home = homes[0]
    (home.path / "status.json").write_text(json.dumps({"rounds": 1, "epsilon": 1.0, key: STATUS[key]}))
    with refused("file.damaged"), readable_status(home):
        print_status(status_of(home))


@pytest.mark.parametrize("key", GROUP)
def test_a_status_of_a_group_of_another_type_is_a_sentence(key, homes, capsys) -> None:
    home = homes[1]
    (home.path / "status.json").write_text(json.dumps({key: GROUP[key]}))
    with refused("file.damaged"), readable_status(home):
        print_group_status(group_status_of(home))
