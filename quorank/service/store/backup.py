"""Backup of a service's folder and store in one file, restorable into SQLite and PostgreSQL.

The file has two lines (its format, and the SHA-256 of the rest) and an SQLite database with the store's tables and files.
It holds all secrets of the service but the salt of its noise and cohorts: a restored service draws another one, so that it
repeats no noise. It continues from the moment of the backup; its epoch, publications and letters get unused numbers, so
that no holder, worker or member confuses them with earlier ones. Members, open enrolments and requests to leave are those
of the old service: who was revoked or has left since the backup stays out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple

from quorank.errors import BadInput, first_line, require
from quorank.files.archives import member_path
from quorank.files.atomic import atomically, new_folder
from quorank.files.documents import parse_json
from quorank.service.home import SALT, SERVICE_KEY, Home, Settings
from quorank.service.store.database import TABLES, Database, columns_of
from quorank.service.store.sql_store import SqlStore, open_store

VERSION = 1
_HEAD = re.compile(rb"quorank backup ([0-9]{1,6})\n([0-9a-f]{64})\n")
_LEFT_OUT = re.compile(r"service\.sqlite(-.*)?|.*\.lock|lock|status\.json|.*\.log(\.[0-9]+)?|\..*\.tmp")
_JUMP = 1 << 32  # added to numbers of a restored service, above all numbers given since the backup
_PAGE = 200  # rows copied at once
KEPT = [table for table in TABLES if table != "nonces"]  # stored tables; nonces are valid for minutes
MEMBERS = ("members", "tokens", "leaving", "listed")  # tables that a restored service has from the old one


class Backup(NamedTuple):
    """Contents of a backup."""

    members: int
    files: int
    bytes: int


def backup(folder: Path, database: str, target: Path) -> Backup:
    """Back up a running or stopped service to a file of mode 0600."""
    outside = folder.resolve() not in target.resolve().parents
    require(outside, "backup.inside", "choose a file outside the service's folder", f"{target}")
    require(target.parent.is_dir(), "folder.missing", f"the directory {target.parent} does not exist", f"{target}")
    with TemporaryDirectory(prefix=".quorank-backup-", dir=target.parent) as name:
        with closing(open_store(folder, database)) as store, closing(open_store(Path(name))) as kept:
            _copy(store.database, kept.database)
            files = _store_files(folder, kept.database)
            kept.database.execute("CREATE TABLE origin (folder TEXT NOT NULL, database TEXT NOT NULL)")
            kept.database.execute("INSERT INTO origin VALUES (?, ?)", f"{folder.resolve()}", database)
            members = kept.database.value("SELECT count(*) FROM members")
        atomically(target, lambda file: _seal(Path(name) / "service.sqlite", file), durable=True, private=True)
    return Backup(members, files, target.stat().st_size)


def restore(
    source: Path, folder: Path, database: str = "", *, skip: int, old: Path | None = None, lost: bool = False
) -> Backup:
    """Restore a service's folder and store, both of which must be empty.

    The caller chooses the database and writes it into the folder's settings. `skip` is the number of rounds, those of
    rebuildings included, that may have been published since the backup: they count as spent, and the run continues after
    them. Members come from the old service, in its folder of then or in `old`; from the backup only if it is `lost`.

    Raises:
        BadInput: `restore.old-missing` if the old service is not there; `restore.rounds-lost` if it has published more than
            `skip` rounds with privacy.
    """
    with (
        new_folder(folder, "choose a folder that is empty or not there yet") as made,
        _opened(source, made.parent) as kept,
        closing(open_store(made, database)) as store,
    ):
        fresh = store.version() == 0 and store.next_number() == 0
        require(
            fresh, "database.not-empty", "this database contains another service; choose an empty one", "--database"
        )
        files = _restore_files(kept.database, made, source)
        _copy(kept.database, store.database, jump=_JUMP)
        if not lost:
            with _old_service(kept.database, old, (made / SERVICE_KEY).read_bytes()) as newer:
                _copy_members(newer.database, kept.database, store.database)
                least = _published_rounds(newer) - _published_rounds(kept)
            sentence = f"the old service has published {least} rounds since the backup; pass at least --skip {least}"
            counted = skip >= least or not Home(made).experiment.federation.privacy.protects
            require(counted, "restore.rounds-lost", sentence, "--skip")
        else:
            store.relist()
        if skip:
            _skip_rounds(Home(made), store, skip)
        store.note("service_restored", rounds=skip)
        members = store.database.value("SELECT count(*) FROM members")
    return Backup(members, files, source.stat().st_size)


def _published_rounds(store: SqlStore) -> int:
    """Return the number of rounds that a service has published, those of rebuildings included."""
    from quorank.federation.unlearning.rebuilding import DOCUMENT, CountedRebuilding
    from quorank.service.holders.rounds import KeptInStore

    saved, rebuilt = KeptInStore(store).load(), store.document(DOCUMENT) or b"[]"
    rebuildings: list[CountedRebuilding] = parse_json(rebuilt, list[CountedRebuilding], DOCUMENT)
    return (0 if saved is None else saved.state.round) + sum(entry.rounds for entry in rebuildings)


def _skip_rounds(home: Home, store: SqlStore, rounds: int) -> None:
    """Advance the checkpoint by lost rounds, and delete the replies of the open round."""
    from quorank.service.holders.devices import coordinator_of
    from quorank.service.holders.rounds import Holder

    sentence = "this service plays no rounds of devices; give --skip 0"
    require(home.settings.kind == Settings.kind, "restore.no-round", sentence, "--skip")
    store.hold()
    coordinator_of(home, Holder(store, home.key)).skip_rounds(rounds)
    store.release()


def _copy(source: Database, target: Database, jump: int = 0) -> None:
    """Copy all rows of one moment into a new store."""
    with source.begun(source.begin_reading), target.transaction():
        target.execute("DELETE FROM service")
        for table in KEPT:
            _copy_table(source, target, table)
            if "{serial}" in TABLES[table]:
                last = target.value(f"SELECT coalesce(max(id), 0) FROM {table}")
                target.skip_numbers(table, last if table == "events" else last + jump)
        target.execute("DELETE FROM documents WHERE name = ?", SALT)
        target.execute("UPDATE service SET epoch = epoch + ?, version = version + ?", jump, jump)
        target.execute("UPDATE publication SET number = number + ?", jump)


def _copy_table(source: Database, target: Database, table: str) -> None:
    columns, start = columns_of(table), 0
    named = ", ".join(columns)
    page = f"SELECT {named} FROM {table} ORDER BY 1, 2 LIMIT {_PAGE} OFFSET ?"
    new = f"INSERT INTO {table} ({named}) SELECT {named} FROM {{given}}"
    while rows := source.execute(page, start):
        target.each(new, list(columns), rows)
        start += len(rows)


def _copy_members(newer: Database, kept: Database, target: Database) -> None:
    """Replace the members by those of the old service; later leavers are removed from the restored run too."""
    with newer.begun(newer.begin_reading), target.transaction():
        for table in MEMBERS:
            target.execute(f"DELETE FROM {table}")
            _copy_table(newer, target, table)
        known = kept.execute("SELECT member FROM leaving WHERE receipt IS NOT NULL")
        again = {member for (member,) in target.execute("SELECT member FROM leaving")} - {member for (member,) in known}
        change = "UPDATE leaving SET receipt = NULL FROM {given} WHERE leaving.member = given.member"
        target.each(change, ("member",), [(member,) for member in sorted(again)])


@contextlib.contextmanager
def _old_service(kept: Database, folder: Path | None, key: bytes) -> Iterator[SqlStore]:
    """Open the store of the service that a backup is of, where it was or in this folder."""
    ((path, database),) = kept.execute("SELECT folder, database FROM origin")
    found = Path(path) if folder is None else folder
    try:
        same = (found / SERVICE_KEY).read_bytes() == key and (database or (found / "service.sqlite").is_file())
        store = open_store(found, database) if same else None
    except (OSError, BadInput):
        store = None
    if store is None:
        sentence = (
            "the service of this backup is missing, so members that were revoked or have left since are unknown: name "
            "its folder with --old; if it is lost, pass --lost, and revoke these members again before the start"
        )
        raise BadInput("restore.old-missing", sentence, f"{found}")
    with closing(store):
        yield store


def _store_files(folder: Path, database: Database) -> int:
    database.execute("CREATE TABLE files (path TEXT PRIMARY KEY, content BLOB NOT NULL)")
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and not _LEFT_OUT.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):  # replaced meanwhile
                content = path.read_bytes()
                database.execute("INSERT INTO files VALUES (?, ?)", path.relative_to(folder).as_posix(), content)
    return int(database.value("SELECT count(*) FROM files"))


def _restore_files(database: Database, folder: Path, source: Path) -> int:
    names = [name for (name,) in database.execute("SELECT path FROM files ORDER BY path")]
    for name in names:
        path = folder / member_path(name, source)
        for above in reversed(path.relative_to(folder).parents[:-1]):
            (folder / above).mkdir(mode=0o700, exist_ok=True)
        content = database.value("SELECT content FROM files WHERE path = ?", name)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    return len(names)


def _seal(database: Path, target: Path) -> None:
    """Write head and content of a database."""
    with database.open("rb") as content, target.open("r+b") as file:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        content.seek(0)
        file.write(f"quorank backup {VERSION}\n{digest}\n".encode())
        shutil.copyfileobj(content, file, 1 << 20)


@contextlib.contextmanager
def _opened(source: Path, folder: Path) -> Iterator[SqlStore]:
    """Open the store inside a backup, from a copy with a valid digest."""
    try:
        file = source.open("rb")
    except OSError as error:
        raise BadInput("file.unreadable", f"cannot be read ({error.strerror})", f"{source}") from None
    with file, TemporaryDirectory(prefix=".quorank-restore-", dir=folder) as name:
        _unseal(file, source, Path(name) / "service.sqlite")
        try:
            with closing(open_store(Path(name))) as kept:
                yield kept
        except BadInput as error:
            if error.where.startswith(name):  # a path of the temporary copy
                raise BadInput(error.code, "the backup's content is damaged; use another one", f"{source}") from None
            raise
        except OSError:
            raise
        except Exception as error:  # another database under a valid checksum
            sentence = f"is not a backup of a service ({first_line(error)})"
            raise BadInput("file.damaged", sentence, f"{source}") from None


def _unseal(file: IO[bytes], source: Path, target: Path) -> None:
    found = _HEAD.fullmatch(file.readline(32) + file.readline(65))
    if found is None:
        raise BadInput("file.other-kind", "this is not a backup of a service", f"{source}")
    sentence = f"the backup is of version {int(found[1])}, and this Quorank reads {VERSION}"
    require(int(found[1]) == VERSION, "file.newer", sentence, f"{source}")
    digest = hashlib.sha256()
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
        while block := file.read(1 << 20):
            digest.update(block)
            copy.write(block)
    intact = digest.hexdigest().encode() == found[2]
    require(intact, "file.damaged", "the backup is damaged or truncated; use another one", f"{source}")
