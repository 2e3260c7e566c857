"""What a client keeps to itself: its lists and clicks, its personal layer, the updates that it kept, and what it sent.

All of it lies in one file (`private_file`). Query texts are not kept unless the application asks for it. A release is
stored in the same transaction in which its interactions count as used, so no interaction is ever learned from twice, and
a task that comes again is answered with the stored bytes (`release`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quorank.errors import BadInput, require
from quorank.files.documents import ANYTHING, Items, parse_json
from quorank.files.private_database import wipe
from quorank.kernels.arrays import Doubles, Floats
from quorank.member.device_database import FILE, LOCK, DeviceDatabase
from quorank.member.private_rows import Interaction, checksum, shown_from

REPLIES = 8
"""The bytes of this many last releases are kept, to be sent again; of older ones the log keeps all else."""

SHORTEST = 16
"""Bytes of a trace that is looked for after an erasure; shorter ones could stand anywhere by chance."""

_RANKER = struct.Struct("<Q")
_RELEASE = "run, round, at, interactions, bytes, privacy, reply, task"  # columns, in the order of `StoredRelease`


@dataclass(frozen=True)
class StoredRelease:
    """One line of the log of what left this client."""

    run: str
    round: int  # from 1
    at: float  # seconds since 1970
    interactions: int
    size: int  # bytes
    privacy: dict[str, Any]
    reply: bytes | None = None  # while it may be sent again
    task: bytes = b""  # the digest of the task that it answers


@dataclass(frozen=True)
class StoredRanker:
    """The parameters that lists are shown by."""

    run: str
    round: int  # rounds done before it
    theta: Doubles


@dataclass(frozen=True)
class Erased:
    """Proof that nothing is left, as far as a program can prove it."""

    files: tuple[str, ...]  # overwritten and deleted
    bytes: int  # overwritten with zeros
    traces: int  # pieces of private rows that were looked for afterwards
    searched: int  # files that were read for them


class PrivateStore:
    """A client's private state. `owner` is the one process that answers tasks; others read, and change consent."""

    def __init__(self, folder: Path | str, *, owner: bool = True) -> None:
        self.folder = Path(folder)
        self.file = DeviceDatabase(self.folder, owner=owner)

    def __enter__(self) -> PrivateStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside are on disk together, or none is."""
        with self.file.transaction():
            yield

    # facts: what there is one of

    def fact(self, name: str) -> bytes | None:
        """Something that is kept under a name."""
        found = self.file.rows("SELECT value FROM facts WHERE name = ?", name)
        value = found[0][0] if found else None
        self._check(value is None or isinstance(value, bytes), name)
        return value

    def _check(self, sound: bool, name: str) -> None:
        """Refuse a file that holds something else than what was put into it."""
        sentence = f"the stored {name} is damaged; restore the file from a copy, or move it away and join again"
        require(sound, "file.damaged", sentence, f"{self.file.path}")

    def set_fact(self, name: str, value: bytes) -> None:
        self.file.database.execute(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
        )

    def forget_fact(self, name: str) -> None:
        """Keep nothing under this name any more."""
        self.file.database.execute("DELETE FROM facts WHERE name = ?", (name,))

    # consent

    @property
    def consent(self) -> bool:
        """Whether the owner agrees, as last said; at first nobody has agreed to anything."""
        found = self.file.rows("SELECT given FROM consent ORDER BY id DESC LIMIT 1")
        return bool(found and found[0][0])

    def set_consent(self, given: bool, at: float) -> None:
        """Note that consent was given or withdrawn; what is so already is no news."""
        if given != self.consent:
            self.file.database.execute("INSERT INTO consent (at, given) VALUES (?, ?)", (at, int(given)))
            self.forget_fact("carried")  # what was agreed to before is not sent again

    def consents(self) -> list[tuple[float, bool]]:
        """Every time that consent was given or withdrawn."""
        return [(at, bool(given)) for at, given in self.file.rows("SELECT at, given FROM consent ORDER BY id")]

    # interactions

    def add_interaction(self, interaction: Interaction, n_features: int) -> None:
        blobs = interaction.blobs(n_features)
        self.file.database.execute(
            "INSERT INTO interactions (at, run, round, documents, features, shown, clicks, circumstances, checksum, query)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (interaction.at, interaction.run, interaction.round, *blobs, checksum(*blobs[1:]), interaction.query),
        )

    def waiting(self) -> int:
        """Interactions that no release has used."""
        return int(self.file.rows("SELECT count(*) FROM interactions WHERE release IS NULL")[0][0])

    def interactions(self, first: int, count: int) -> list[tuple[int, Interaction]]:
        """(id, interaction) of those not used yet, in the order in which they happened, from the `first` on."""
        return self._interactions("WHERE release IS NULL ORDER BY id LIMIT ? OFFSET ?", count, first, places=first)

    def used(self, run: str) -> int:
        """Interactions of a run that releases have used and that are kept."""
        return int(self.file.rows("SELECT count(*) FROM interactions WHERE release IS NOT NULL AND run = ?", run)[0][0])

    def used_interactions(self, run: str, first: int, count: int) -> list[Interaction]:
        """Those, in the order in which they happened, from the `first` on."""
        which = "WHERE release IS NOT NULL AND run = ? ORDER BY id LIMIT ? OFFSET ?"
        return [one for _, one in self._interactions(which, run, count, first)]

    def latest_interactions(self, count: int) -> list[Interaction]:
        """The newest interactions, used or not, the newest first."""
        return [one for _, one in self._interactions("ORDER BY id DESC LIMIT ?", count)]

    def _interactions(self, which: str, *values: object, places: int = 0) -> list[tuple[int, Interaction]]:
        rows = self.file.rows(
            "SELECT id, at, run, round, documents, features, shown, clicks, circumstances, checksum, query"
            f" FROM interactions {which}",
            *values,
        )
        found = []
        for place, (name, at, run, round_, documents, *blobs, check, query) in enumerate(rows):
            if not all(isinstance(blob, bytes) for blob in blobs) or checksum(*blobs) != check:
                raise BadInput(
                    "interaction.damaged",
                    f"interaction {name} is damaged; restore the file from a copy, or move it away and join again",
                    f"{self.file.path}",
                )
            features, order, clicks, circumstances = blobs
            shown = shown_from(features, documents, order, circumstances, places + place)
            clicked = np.frombuffer(clicks, dtype=np.uint8).astype(np.bool_)
            found.append((name, Interaction(at, run, round_, shown, clicked, query)))
        return found

    def forget(self, count: int) -> None:
        """Forget the oldest of those that no release has used."""
        self.file.database.execute(
            "DELETE FROM interactions WHERE id IN"
            " (SELECT id FROM interactions WHERE release IS NULL ORDER BY id LIMIT ?)",
            (count,),
        )

    def forget_named(self, queries: Sequence[str]) -> None:
        """Forget interactions that were kept with one of these texts as their query, used or not."""
        self.file.database.executemany("DELETE FROM interactions WHERE query = ?", [(query,) for query in queries])

    def overwrite_deleted(self) -> None:
        """Leave nothing of deleted rows in any file of the folder."""
        self.file.overwrite_deleted()

    def trim(self, most: int) -> None:
        """Forget the oldest interactions that were used, beyond so many."""
        self.file.database.execute(
            "DELETE FROM interactions WHERE release IS NOT NULL AND id NOT IN"
            " (SELECT id FROM interactions WHERE release IS NOT NULL ORDER BY id DESC LIMIT ?)",
            (most,),
        )

    # the ranker of all, and what is the client's own

    @property
    def ranker(self) -> StoredRanker | None:
        """The ranker of the newest task that came."""
        found = self.fact("ranker")
        if found is None:
            return None
        length = _RANKER.unpack_from(found)[0] if len(found) >= _RANKER.size else len(found)
        parameters = found[_RANKER.size + length :]
        sound = _RANKER.size + length <= len(found) and len(parameters) % 8 == 0
        require(sound, "file.damaged", "the stored ranker is damaged", f"{self.folder}")
        text = found[_RANKER.size : _RANKER.size + length]
        run, round_ = parse_json(text, Items(most=2), f"{self.folder}: ranker")
        return StoredRanker(run, round_, np.frombuffer(parameters, dtype="<f8").astype(np.float64))

    def set_ranker(self, ranker: StoredRanker) -> None:
        text = json.dumps([ranker.run, ranker.round]).encode()
        self.set_fact("ranker", _RANKER.pack(len(text)) + text + ranker.theta.astype("<f8").tobytes())

    @property
    def personal(self) -> Doubles | None:
        """What this client adds to the parameters of all; it never leaves."""
        found = self.fact("personal")
        self._check(found is None or len(found) % 8 == 0, "offset")
        return None if found is None else np.frombuffer(found, dtype="<f8").astype(np.float64)

    def set_personal(self, offset: Doubles) -> None:
        self.set_fact("personal", offset.astype("<f8").tobytes())

    def carried(self, run: str) -> Doubles | None:
        """What this client carries on of its updates in a run: it leaves as a part of the next, under the same privacy."""
        found, name = self.fact("carried"), _line_of(run)
        if found is None or not found.startswith(name):
            return None
        self._check((len(found) - len(name)) % 8 == 0, "momentum")
        return np.frombuffer(found[len(name) :], dtype="<f8").astype(np.float64)

    def set_carried(self, run: str, momentum: Doubles) -> None:
        self.set_fact("carried", _line_of(run) + momentum.astype("<f8").tobytes())

    def keep(self, run: str, round_: int, update: Floats) -> None:
        """Put an update aside for unlearning: as it was before privacy, so it never leaves."""
        require(
            bool(np.isfinite(update).all()),
            "update.too-long",
            f"the update of round {round_} is too long to be kept; let the run keep none (keep_every = 0)",
        )
        content = update.astype("<f4").tobytes()
        self.file.database.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (run, round_, content))

    def kept(self, run: str) -> list[tuple[int, Floats]]:
        """(round, update) of the run's rounds that were kept."""
        rows = self.file.rows("SELECT round, content FROM kept WHERE run = ? ORDER BY round", run)
        self._check(all(isinstance(raw, bytes) and len(raw) % 4 == 0 for _, raw in rows), "update")
        return [(round_, np.frombuffer(raw, dtype="<f4").astype(np.float32)) for round_, raw in rows]

    # releases

    def add_release(self, release: StoredRelease, used: Sequence[int]) -> None:
        """Note what will be sent, and that these interactions are in it."""
        database = self.file.database
        privacy = json.dumps(release.privacy)
        values = (release.run, release.round, release.at, release.interactions, release.size, privacy)
        added = database.execute(
            f"INSERT INTO releases ({_RELEASE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*values, release.reply, release.task)
        ).lastrowid
        database.executemany("UPDATE interactions SET release = ? WHERE id = ?", [(added, name) for name in used])
        database.execute(
            "UPDATE releases SET reply = NULL WHERE reply IS NOT NULL AND id NOT IN"
            " (SELECT id FROM releases ORDER BY id DESC LIMIT ?)",
            (REPLIES,),
        )

    def release(self, run: str, round_: int) -> StoredRelease | None:
        """What was sent in a round (from 1)."""
        found = self._releases("WHERE run = ? AND round = ?", run, round_)
        return found[0] if found else None

    def releases(self) -> list[StoredRelease]:
        """The log: all that ever left this client, in order."""
        return self._releases("ORDER BY id")

    def last_round(self, run: str) -> int:
        """The latest round (from 1) that this client has answered, 0 if none."""
        return int(self.file.rows("SELECT coalesce(max(round), 0) FROM releases WHERE run = ?", run)[0][0])

    def answers(self, run: str) -> int:
        """Return how many rounds of a run have been answered."""
        return int(self.file.rows("SELECT count(DISTINCT round) FROM releases WHERE run = ?", run)[0][0])

    def _releases(self, which: str, *values: object) -> list[StoredRelease]:
        rows = self.file.rows(f"SELECT {_RELEASE} FROM releases {which}", *values)
        found = []
        for run, round_, at, interactions, size, privacy, reply, task in rows:
            told = parse_json(privacy, ANYTHING, f"{self.folder}: releases")
            found.append(StoredRelease(run, round_, at, interactions, size, told, reply, task))
        return found

    # leaving

    def erase(self, beside: Sequence[Path] = ()) -> Erased:
        """Overwrite and delete everything, with the files `beside`; then look whether any of it is left in the folder."""
        traces = self._traces()
        doomed = [self.folder / FILE, self.folder / LOCK, *beside]
        names = tuple(path.name for path in doomed if path.exists())
        total = self.file.overwrite() + wipe([self.folder / LOCK, *beside])
        searched = 0
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                searched += 1
                require(
                    path not in doomed and not any(trace in content for trace in traces),
                    "private-data.remains",
                    "this file still holds private data; delete it, and repeat the command",
                    f"{path}",
                )
        return Erased(names, total, len(traces), searched)

    def _traces(self) -> list[bytes]:
        """Pieces of what must be gone: the first document of each list, each kept update, each stored reply's end."""
        queries = (
            "SELECT substr(features, 1, max(?, length(features) / documents)) FROM interactions",
            "SELECT content FROM kept WHERE length(content) >= ?",
            "SELECT reply FROM releases WHERE length(reply) >= ?",
            "SELECT value FROM facts WHERE length(value) >= ?"
            " AND name IN ('personal', 'carried', 'identity', 'invitation')",
        )
        found = {bytes(row[0]) for query in queries for row in self.file.rows(query, SHORTEST)}
        return [trace for trace in found if len(trace) >= SHORTEST and any(trace)]


def _line_of(run: str) -> bytes:
    """The run's name before what is kept of it; no name is the beginning of another's line."""
    return json.dumps(run).encode() + b"\n"
