"""Backups of a service: all of it comes back, in either database, and nothing is taken for what was before."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from postgresql_server import empty_database
from refusals import refused

from quorank.protocol.member_list import entry_of
from quorank.protocol.messages import Publication
from quorank.service.store.backup import backup, restore
from quorank.service.store.group_commit import Call
from quorank.service.store.sql_store import SqlStore, open_store

ROUND = Publication("round", "run", 3, b"task", b"signature", 5.0, most=9, limits=b"limits")


def call(member: int, *rest: object) -> Call:
    return Call(member, secrets.token_bytes(16), *rest)  # type: ignore[arg-type]


def filled(folder: Path, url: str = "") -> SqlStore:
    """A service with something in every table and files in its folder."""
    folder.mkdir(mode=0o700)
    (folder / "service.key").write_bytes(b"secret")
    (folder / "keys").mkdir()
    (folder / "keys" / "authority.key").write_bytes(b"other secret")
    (folder / "coordinator.log").write_text("not kept")
    store = open_store(folder, url)
    store.invite("anna", "device", b"a")
    store.open_enrolment("word", 700, store.now() + 60.0)
    for number in range(3):
        store.enrol(bytes([number]) * 32, token="word")
    assert store.hold() is not None
    store.publish(ROUND, {"checkpoint": b"state"})
    store.send([(1, b"one"), (2, b"two"), (3, b"three")])
    store.take([call(1, "reply", 1, b"r1"), call(2, "mail", 2, b"a2"), call(3, "leave", 0, b"bye")])
    store.let_go(3, b"receipt")
    store.note("round.ended", round=2)
    store.tally({"request.time": 4})
    return store


def seen(store: SqlStore) -> list[object]:
    """All that a store says, without its numbers of publications."""
    open_ = store.publication()
    assert open_ is not None
    return [
        store.members(), replace(open_, number=0), store.replies("run", 3), store.leavers(), store.unanswered(),
        store.document("checkpoint"), store.tallies(), store.letter(1), store.is_open(), store.admitted(),
        store.member_head(), store.member_page(0),
    ]  # fmt: skip


SQLITE, POSTGRESQL = "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)


@pytest.mark.parametrize("there", [SQLITE, POSTGRESQL])
@pytest.mark.parametrize("here", [SQLITE, POSTGRESQL])
def test_a_service_comes_back_in_either_database(tmp_path: Path, here: str, there: str) -> None:
    first, second = (empty_database() if kind == "postgresql" else "" for kind in (here, there))
    store = filled(tmp_path / "old", first)
    before = seen(store)
    file, new = tmp_path / "service.backup", tmp_path / "new"
    made = backup(tmp_path / "old", first, file)  # while it is open
    assert made == (4, 2, file.stat().st_size) and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "service.backup"], "nothing else is left"
    assert restore(file, new, second, skip=0) == made
    assert (new / "service.key").read_bytes() == b"secret" and not (new / "coordinator.log").exists()
    assert (new / "keys" / "authority.key").read_bytes() == b"other secret"
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (new, *new.rglob("*"))} == {0}
    again = open_store(new, second)
    assert seen(again) == before
    assert [one["code"] for one in again.events()] == ["service_restored", "round.ended"]
    old_epoch, epoch = store.database.execute("SELECT epoch FROM service")[0][0], again.hold()
    assert epoch is not None and epoch > old_epoch + 1000
    number = store.publish(ROUND).number
    assert again.version() > store.version() + 1000
    codes = [one.code for one in again.take([call(1, "reply", number, b"r1"), call(2, "reply", number, b"r2")])]
    assert codes == ["reply.other-round"] * 2, "what was published after the backup is not what is published now"
    assert again.send([(1, b"new")])[0] > 1000
    assert again.enrol(bytes([1]) * 32, token="word").number == 2 and again.next_number() == 4
    open_ = again.publication()
    assert open_ is not None
    outcomes = again.take([call(1, "reply", open_.number, b"r1"), call(2, "reply", open_.number, b"r2")])
    assert [(one.code, one.again) for one in outcomes] == [("", True), ("", False)]
    assert [one.member for one in again.replies("run", 3)] == [1, 2]
    again.close()
    store.close()


@pytest.mark.parametrize("there", [SQLITE, POSTGRESQL])
def test_who_was_revoked_or_left_since_the_backup_stays_out(tmp_path: Path, there: str) -> None:
    url, file = empty_database() if there == "postgresql" else "", tmp_path / "service.backup"
    store = filled(tmp_path / "old", url)
    backup(tmp_path / "old", url, file)
    store.revoke("device-1")
    store.take([call(2, "leave", 0, b"goodbye")])
    store.let_go(2, b"receipt")
    late = store.enrol(bytes([9]) * 32, token="word")
    store.revoke(late.name)
    store.close_enrolment()
    restore(file, tmp_path / "new", skip=0)
    with closing(open_store(tmp_path / "new")) as again:
        assert again.members() == store.members() and not again.is_open()
        codes = [one.code for one in again.take([call(number) for number in (1, 2, 3, late.number)])]
        assert codes == ["request.revoked", "request.left", "request.left", "request.revoked"]
        with refused("request.revoked"):
            again.enrol(bytes([9]) * 32, token="word")
        receipts = {member: receipt for member, _, receipt in again.leavers()}
        assert receipts == {3: b"receipt", 2: None}, "a holder takes the update of the later leaver out again"
    whole = store.member_page(0)
    store.close()
    (tmp_path / "old").rename(tmp_path / "moved")
    with refused("restore.old-missing", f"{tmp_path / 'old'}"):
        restore(file, tmp_path / "third", skip=0)
    assert not (tmp_path / "third").exists()
    restore(file, tmp_path / "third", skip=0, old=tmp_path / "moved")
    restore(file, tmp_path / "fourth", skip=0, lost=True)
    counts, lists = [], []
    for name in ("third", "fourth"):
        with closing(open_store(tmp_path / name)) as again:
            counts.append(again.counts(0.0)["revoked"])
            lists.append(again.member_page(0))
    assert counts == [2, 0]
    assert lists[0] == whole, "the list of members is that of the old service"
    assert lists[1][16:] == whole[16 : -len(entry_of(0, bytes(32)))], "its last entry is lost"
    assert lists[1][:16] != whole[:16], "so it is another list"
    (tmp_path / "moved" / "service.key").write_bytes(b"another")
    with refused("restore.old-missing"):
        restore(file, tmp_path / "fifth", skip=0, old=tmp_path / "moved")


def test_a_backup_goes_nowhere_where_something_is(tmp_path: Path) -> None:
    filled(tmp_path / "old").close()
    with refused("backup.inside"):
        backup(tmp_path / "old", "", tmp_path / "old" / "service.backup")
    with refused("folder.missing"):
        backup(tmp_path / "old", "", tmp_path / "none" / "service.backup")
    file = tmp_path / "service.backup"
    backup(tmp_path / "old", "", file)
    with refused("folder.not-empty"):
        restore(file, tmp_path / "old", skip=0)
    (tmp_path / "empty").mkdir()
    restore(file, tmp_path / "empty", skip=0)


@pytest.mark.slow
def test_a_database_that_has_a_service_is_not_overwritten(tmp_path: Path) -> None:
    url = empty_database()
    filled(tmp_path / "old", url).close()
    backup(tmp_path / "old", url, tmp_path / "service.backup")
    with refused("database.not-empty"):
        restore(tmp_path / "service.backup", tmp_path / "new", url, skip=0)
    assert not (tmp_path / "new").exists()


def test_a_damaged_backup_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    filled(tmp_path / "old").close()
    file = tmp_path / "service.backup"
    backup(tmp_path / "old", "", file)
    content = file.read_bytes()
    for damaged, code in (
        (b"", "file.other-kind"), (b"PK" + content, "file.other-kind"), (content[:-1], "file.damaged"),
        (content.replace(b"backup 1\n", b"backup 2\n", 1), "file.newer"), (content[:90], "file.damaged"),
        (content[:5000] + b"\0\1" + content[5002:], "file.damaged"), (content + b"x", "file.damaged"),
    ):  # fmt: skip
        file.write_bytes(damaged)
        with refused(code, str(file)):
            restore(file, tmp_path / "new", skip=0)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "service.backup"]


HOSTILE = {
    "DROP TABLE files": "file.damaged", "DROP TABLE members": "file.damaged", "DROP TABLE service": "file.damaged",
    "DELETE FROM service": "file.damaged", "UPDATE service SET format = 9": "store.version",
    "PRAGMA application_id = 7": "file.other-kind",
    "UPDATE files SET content = 'text' WHERE path = 'service.key'": "file.damaged",
    "DROP TABLE turns; CREATE TABLE turns (run, member, taken, last); INSERT INTO turns (run) VALUES (1)": "file.damaged",
    "INSERT INTO files VALUES ('../outside', x'00')": "archive.unsafe-member",
}  # fmt: skip


def test_another_database_under_a_right_checksum_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "old").close()
    file, inside = tmp_path / "service.backup", tmp_path / "inside"
    backup(tmp_path / "old", "", file)
    original = file.read_bytes()[82:]
    for changes, code in HOSTILE.items():
        inside.write_bytes(original)
        with closing(sqlite3.connect(inside)) as database:
            database.executescript(changes)
        content = inside.read_bytes()
        file.write_bytes(b"quorank backup 1\n" + hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        with refused(code):
            restore(file, tmp_path / "new", skip=0)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "old", "service.backup"]
