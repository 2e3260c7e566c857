"""Private store of a member: one SQLite file that its owner alone can read.

It holds the invitation, key, consent and pins of a membership and the log of its releases; for a device also lists, clicks,
its personal layer and the list of members. Query texts are kept only where the application asks for it. A release is
stored in the transaction in which its interactions become used, so no interaction is learned from twice, and a repeated
task is answered with the stored bytes.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data.ranking import pad
from quorank.errors import require
from quorank.federation.unlearning import rebuilding_interval
from quorank.files.documents import parse_json
from quorank.files.private_database import Damaged, Facts, FileKind, PrivateDatabase, overwrite_with_zeros, wipe
from quorank.kernels.arrays import Booleans, Doubles
from quorank.learning import Shown

FILE, LOCK = "device.sqlite", "device.lock"
BUSY = "another process runs this device; stop it first, or give each device its own folder"
REPLIES = 8  # number of newest releases whose bytes are kept to be sent again
SHORTEST = 16  # minimum bytes of a trace that an erasure looks for; shorter ones occur by chance

_SIZES = struct.Struct("<IIId")  # lengths of scores, weights and packed parameters; probability mass left by the list
_RELEASE = "run, round, at, interactions, bytes, privacy, reply, task"  # columns, in the order of `StoredRelease`

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE consent (id INTEGER PRIMARY KEY, at REAL NOT NULL, given INTEGER NOT NULL);
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL,
    documents INTEGER NOT NULL, features BLOB NOT NULL, shown BLOB NOT NULL, clicks BLOB NOT NULL,
    circumstances BLOB NOT NULL, checksum BLOB NOT NULL, query TEXT, release INTEGER REFERENCES releases (id)
);
CREATE TABLE members (position INTEGER PRIMARY KEY, entry BLOB NOT NULL);
CREATE INDEX waiting ON interactions (id) WHERE release IS NULL;
CREATE TABLE releases (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, interactions INTEGER NOT NULL,
    bytes INTEGER NOT NULL, privacy TEXT NOT NULL, task BLOB NOT NULL, reply BLOB, UNIQUE (run, round)
);
"""
_DAMAGED = f"the file is damaged; {Facts.advice}"
DEVICE = FileKind(0x51524E4B, 1, _SCHEMA, "this is not a device's file; choose another folder", _DAMAGED)


@dataclass(frozen=True, eq=False)
class Interaction:
    """Query shown and clicked, stored with every bit that learning needs.

    PDGD's weights belong to the distribution from which a list was drawn, so the scores, weights and
    parameters of the ranker that showed it are stored too.
    """

    at: float  # seconds since 1970
    run: str
    round: int  # rounds done before the ranker that showed it
    shown: Shown
    clicks: Booleans
    query: str | None = None  # only where the application asks for it

    def blobs(self, n_features: int) -> tuple[int, bytes, bytes, bytes, bytes]:
        """Return (documents, features, order, clicks, circumstances) for the columns of the file."""
        shown = self.shown
        dense = shown.padded_features[:, :n_features].astype("<f4")
        sizes = _SIZES.pack(len(shown.scores), len(shown.weights), len(shown.packed_parameters), shown.rest)
        numbers = (shown.scores.astype("<f4"), shown.weights.astype("<f8"), shown.packed_parameters.astype("<f4"))
        order, clicks = shown.order.astype("<i8").tobytes(), self.clicks.astype(np.uint8).tobytes()
        return len(dense), dense.tobytes(), order, clicks, b"".join([sizes, *(part.tobytes() for part in numbers)])


def shown_from(features: bytes, documents: int, order: bytes, circumstances: bytes, at: int) -> Shown:
    """Rebuild the list of an interaction from the columns of the file."""
    dense = np.frombuffer(features, dtype="<f4").reshape(documents, -1)
    scores, weights, packed, rest = _SIZES.unpack_from(circumstances)
    numbers = circumstances[_SIZES.size :]
    ends = (4 * scores, 4 * scores + 8 * weights)
    return Shown(
        np.frombuffer(order, dtype="<i8").astype(np.int64),
        at,
        pad(dense.astype(np.float32)),
        np.frombuffer(numbers[ends[1] : ends[1] + 4 * packed], dtype="<f4").astype(np.float32),
        np.frombuffer(numbers[: ends[0]], dtype="<f4").astype(np.float32),
        np.frombuffer(numbers[ends[0] : ends[1]], dtype="<f8").astype(np.float64),
        rest,
    )


def _checksum(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


@dataclass(frozen=True)
class StoredRelease:
    """Entry of the log of releases."""

    run: str
    round: int  # from 1
    at: float  # seconds since 1970
    interactions: int
    size: int  # bytes
    privacy: dict[str, Any]
    reply: bytes | None = None  # while it may be sent again
    task: bytes = b""  # digest of the answered task


@dataclass(frozen=True)
class StoredRanker:
    """Parameters that lists are shown by."""

    run: str
    round: int  # rounds done before it
    theta: Doubles


@dataclass(frozen=True)
class Erased:
    """Evidence of an erasure."""

    files: tuple[str, ...]  # overwritten and deleted
    bytes: int  # overwritten with zeros
    traces: int  # number of private byte strings searched for afterwards
    searched: int  # number of files searched for them


class PrivateStore(PrivateDatabase, Facts):
    """Private state of a member. `owner` is the one process that answers tasks; others may read, and change consent."""

    def __init__(self, folder: Path | str, *, owner: bool = True) -> None:
        self.folder, self._owner = Path(folder), owner
        path = self.folder / FILE
        sentence = "there is no device here; join with an invitation first"
        require(owner or path.is_file(), "device.missing", sentence, f"{folder}")
        super().__init__(path, DEVICE, self.folder / LOCK if owner else None, BUSY)

    def _prepare(self, database: sqlite3.Connection) -> None:
        super()._prepare(database)
        if self._owner and database.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise Damaged("file.damaged", self.kind.damaged, f"{self.path}")

    def __enter__(self) -> PrivateStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ consent

    @property
    def consent(self) -> bool:
        """Return whether the owner agrees; without a decision nobody has agreed to anything."""
        found = self.rows("SELECT given FROM consent ORDER BY id DESC LIMIT 1")
        return bool(found and found[0][0])

    def set_consent(self, given: bool, at: float) -> None:
        """Log a change of consent."""
        if given != self.consent:
            self.drop_fact("carried")  # momentum from before the change is not sent
            self.rows("INSERT INTO consent (at, given) VALUES (?, ?)", at, int(given))

    def consents(self) -> list[tuple[float, bool]]:
        """Return every change of consent: (seconds since 1970, given)."""
        return [(at, bool(given)) for at, given in self.rows("SELECT at, given FROM consent ORDER BY id")]

    # ------------------------------------------------------------ interactions

    def add_interaction(self, interaction: Interaction, n_features: int) -> None:
        """Store an interaction."""
        blobs, at = interaction.blobs(n_features), (interaction.at, interaction.run, interaction.round)
        self.rows(
            "INSERT INTO interactions (at, run, round, documents, features, shown, clicks, circumstances, checksum, query)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *at, *blobs, _checksum(*blobs[1:]), interaction.query,
        )  # fmt: skip

    def waiting(self) -> int:
        """Return the number of unused interactions."""
        return int(self.rows("SELECT count(*) FROM interactions WHERE release IS NULL")[0][0])

    def interactions(self, first: int, count: int) -> list[tuple[int, Interaction]]:
        """Return (id, interaction) of unused interactions in chronological order, from the `first` on."""
        return self._interactions("WHERE release IS NULL ORDER BY id LIMIT ? OFFSET ?", count, first, places=first)

    def used(self, run: str) -> int:
        """Return the number of stored interactions that releases of a run have used."""
        return int(self.rows("SELECT count(*) FROM interactions WHERE release IS NOT NULL AND run = ?", run)[0][0])

    def used_interactions(self, run: str, first: int, count: int) -> list[Interaction]:
        """Return used interactions of a run in chronological order, from the `first` on."""
        which = "WHERE release IS NOT NULL AND run = ? ORDER BY id LIMIT ? OFFSET ?"
        return [one for _, one in self._interactions(which, run, count, first)]

    def latest_interactions(self, count: int) -> list[Interaction]:
        """Return the newest interactions, used or not, newest first."""
        return [one for _, one in self._interactions("ORDER BY id DESC LIMIT ?", count)]

    def _interactions(self, which: str, *values: object, places: int = 0) -> list[tuple[int, Interaction]]:
        columns = "id, at, run, round, documents, features, shown, clicks, circumstances, checksum, query"
        rows = self.rows(f"SELECT {columns} FROM interactions {which}", *values)
        found = []
        for place, (name, at, run, round_, documents, *blobs, check, query) in enumerate(rows):
            intact = all(isinstance(blob, bytes) for blob in blobs) and _checksum(*blobs) == check
            sentence = f"interaction {name} is damaged; {self.advice}"
            require(intact, "interaction.damaged", sentence, f"{self.path}")
            features, order, clicks, circumstances = blobs
            shown = shown_from(features, documents, order, circumstances, places + place)
            clicked = np.frombuffer(clicks, dtype=np.uint8).astype(np.bool_)
            found.append((name, Interaction(at, run, round_, shown, clicked, query)))
        return found

    def forget(self, count: int) -> None:
        """Delete the oldest unused interactions."""
        oldest = "SELECT id FROM interactions WHERE release IS NULL ORDER BY id LIMIT ?"
        self.rows(f"DELETE FROM interactions WHERE id IN ({oldest})", count)

    def forget_named(self, queries: Sequence[str]) -> None:
        """Delete interactions stored with one of these queries, used or not; inside a transaction."""
        for query in queries:
            self.rows("DELETE FROM interactions WHERE query = ?", query)

    def trim(self, most: int) -> None:
        """Delete the oldest used interactions beyond `most`."""
        newest = "SELECT id FROM interactions WHERE release IS NOT NULL ORDER BY id DESC LIMIT ?"
        self.rows(f"DELETE FROM interactions WHERE release IS NOT NULL AND id NOT IN ({newest})", most)

    # ------------------------------------------------------------ ranker, personal layer, momentum

    @property
    def ranker(self) -> StoredRanker | None:
        """The ranker of the newest task."""
        found = self._array("ranker")
        if found is None:
            return None
        run, round_ = parse_json(found[0], tuple[str, int], f"{self.folder}: ranker")
        return StoredRanker(run, round_, found[1])

    def set_ranker(self, ranker: StoredRanker) -> None:
        self._set_array("ranker", [ranker.run, ranker.round], ranker.theta)

    @property
    def personal(self) -> Doubles | None:
        """Parameters that this client adds to the shared ones; they never leave."""
        found = self._array("personal")
        return None if found is None else found[1]

    def set_personal(self, offset: Doubles) -> None:
        self._set_array("personal", None, offset)

    def carried(self, run: str) -> Doubles | None:
        """Momentum of this client's updates in a run; it leaves as a part of the next update, under the same privacy."""
        found = self._array("carried")
        return None if found is None or found[0] != json.dumps(run).encode() else found[1]

    def set_carried(self, run: str, momentum: Doubles) -> None:
        self._set_array("carried", run, momentum)

    def _array(self, name: str) -> tuple[bytes, Doubles] | None:
        """Return (JSON line, numbers) of a fact."""
        found = self.fact(name)
        if found is None:
            return None
        line, end, numbers = found.partition(b"\n")
        self.check_stored(bool(end) and len(numbers) % 8 == 0, name)
        return line, np.frombuffer(numbers, dtype="<f8").astype(np.float64)

    def _set_array(self, name: str, label: object, numbers: Doubles) -> None:
        self.set_fact(name, json.dumps(label).encode() + b"\n" + numbers.astype("<f8").tobytes())

    # ------------------------------------------------------------ releases

    def add_release(self, release: StoredRelease, used: Sequence[int] = ()) -> None:
        """Log a release and the interactions in it, before it is sent; inside a transaction."""
        values = (release.run, release.round, release.at, release.interactions, release.size)
        ((added,),) = self.rows(
            f"INSERT INTO releases ({_RELEASE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
            *values, json.dumps(release.privacy), release.reply, release.task,
        )  # fmt: skip
        for name in used:
            self.rows("UPDATE interactions SET release = ? WHERE id = ?", added, name)
        newest = "SELECT id FROM releases ORDER BY id DESC LIMIT ?"
        self.rows(f"UPDATE releases SET reply = NULL WHERE reply IS NOT NULL AND id NOT IN ({newest})", REPLIES)

    def release(self, run: str, round_: int) -> StoredRelease | None:
        """Return the release of a round (from 1)."""
        found = self._releases("WHERE run = ? AND round = ?", run, round_)
        return found[0] if found else None

    def releases(self) -> list[StoredRelease]:
        """Return the log: all that ever left this member, in order."""
        return self._releases("ORDER BY id")

    def last_round(self, run: str) -> int:
        """Return the latest answered round (from 1) of a run, 0 if none."""
        return int(self.rows("SELECT coalesce(max(round), 0) FROM releases WHERE run = ?", run)[0][0])

    def answers(self, run: str) -> int:
        """Return the number of answered rounds of a run."""
        return int(self.rows("SELECT count(*) FROM releases WHERE run = ?", run)[0][0])

    def released(self, run: str) -> int:
        """Return the number of releases in a run and its rebuildings."""
        rows = self.rows("SELECT run, count(*) FROM releases GROUP BY run")
        return sum(int(count) for name, count in rows if name == run or rebuilding_interval(name, run) is not None)

    def _releases(self, which: str, *values: object) -> list[StoredRelease]:
        rows = self.rows(f"SELECT {_RELEASE} FROM releases {which}", *values)
        where = f"{self.folder}: releases"
        return [
            StoredRelease(run, round_, at, count, size, parse_json(privacy, dict[str, Any], where), reply, task)
            for run, round_, at, count, size, privacy, reply, task in rows
        ]

    # ------------------------------------------------------------ erasure

    def erase(self) -> Erased:
        """Overwrite and delete the store, then search the folder for remains."""
        traces = self._traces()
        doomed = [self.folder / FILE, self.folder / LOCK]
        names = tuple(path.name for path in doomed if path.exists())
        total = self.overwrite() + wipe([self.folder / LOCK])
        searched = 0
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                searched += 1
                gone = path not in doomed and not any(trace in content for trace in traces)
                sentence = "this file still holds private data; delete it, and repeat the command"
                require(gone, "private-data.remains", sentence, f"{path}")
        return Erased(names, total, len(traces), searched)

    def overwrite(self) -> int:
        """Overwrite the database with zeros, close and delete it; return the bytes overwritten."""
        with self._mutex:
            with self.faults():
                self.database.execute("PRAGMA wal_checkpoint(FULL)")
            path, log, index = files_of(self.folder)
            total = overwrite_with_zeros(log)  # before closing, which deletes it; all of it is in the database by now
            self.database.close()
            total += wipe([path, log, index])
            self._unlock()
            return total

    def _traces(self) -> list[bytes]:
        """Return byte strings that must be gone: first documents, stored replies, private facts."""
        queries = (
            "SELECT substr(features, 1, max(?, length(features) / documents)) FROM interactions",
            "SELECT reply FROM releases WHERE length(reply) >= ?",
            "SELECT value FROM facts WHERE length(value) >= ?"
            " AND name IN ('personal', 'carried', 'identity', 'invitation')",
        )
        found = {bytes(row[0]) for query in queries for row in self.rows(query, SHORTEST)}
        return [trace for trace in found if len(trace) >= SHORTEST and any(trace)]


def files_of(folder: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the database, its write-ahead log and the index of the log."""
    path = folder / FILE
    return path, path.with_name(f"{FILE}-wal"), path.with_name(f"{FILE}-shm")
