"""Files of devices and parties that hold other types than were written: one sentence, no traceback."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from refusals import refused

from quorank.member.private_store import PrivateStore
from quorank.silos.session.streams import SiloStore


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


@pytest.mark.parametrize(
    ("mark", "code"), [("application_id = 7", "file.other-kind"), ("user_version = 2", "file.newer")]
)
def test_a_file_of_another_kind_or_a_newer_one_is_refused(mark, code, tmp_path) -> None:
    for make, name in ((lambda: PrivateStore(tmp_path), "device"), (lambda: SiloStore(tmp_path, "party"), "party")):
        make().close()
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as database:
            database.execute(f"PRAGMA {mark}")
        for _ in range(2):  # it was let go of
            with refused(code, str(tmp_path / f"{name}.sqlite")):
                make()
