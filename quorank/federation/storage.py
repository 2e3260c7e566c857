"""Storage of a coordinator: its checkpoint, and a journal of the accepted replies of the open round.

A checkpoint is the state as named arrays in one file with a digest. A journal record is its length, a checksum and the
reply's bytes, and is on disk before the reply counts as accepted. A truncated record was not accepted and is dropped when
the journal is read. Synchronising the disk costs a hundred times more than checking a reply, so replies received together
share one synchronisation.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from quorank.errors import BadInput, require
from quorank.federation.participation import TurnsTaken
from quorank.federation.reply import LARGEST_MESSAGE, Reply, encode_reply
from quorank.federation.rounds import Report, State
from quorank.files.atomic import read_whole, sync_to_disk, write_whole
from quorank.files.npz import LARGEST, Arrays, ArrayShape, archive_bytes, parse_arrays, write_arrays

CHECKPOINT, JOURNAL, BEGUN = "coordinator.state", "coordinator.journal", "secure.round"
"""Files of a storage directory: checkpoint, replies accepted since, and the last secure round that began."""

_ADVICE = "; restore it from a copy"
_HEAD = struct.Struct("<I16s")


def state_arrays(state: State) -> Arrays:
    """Return a state as named arrays, which `parse_state` reads."""
    arrays: Arrays = {}
    for name in (field.name for field in fields(State)):
        value = getattr(state, name)
        if isinstance(value, dict):
            arrays |= {f"{name}:{key}": array for key, array in value.items()}
        elif isinstance(value, TurnsTaken):
            arrays |= {"turns:times": value.times, "turns:last": value.last}
        elif value is not None:
            arrays[name] = np.asarray(value)
    return arrays


def parse_state(arrays: Arrays) -> State:
    """Return the state of these arrays; raises KeyError if one is missing."""
    dicts = {name: strip_prefix(arrays, f"{name}:") for name in ("memory", "private", "rule")}
    rows = {name: arrays.get(name) for name in ("personal", "history", "carried")}
    turns = TurnsTaken(arrays["turns:times"], arrays["turns:last"]) if "turns:times" in arrays else None
    return State(int(arrays["round"]), arrays["theta"], turns=turns, **dicts, **rows)  # type: ignore[arg-type]


def strip_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names have the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def state_shapes() -> dict[str, ArrayShape]:
    """Return the shapes in a state's archive; `state_fault` compares the rest with the run's initial state."""
    rows, turns = ArrayShape("f8", (None, None), optional=True), ArrayShape("i4", (None,), optional=True)
    return {
        "theta": ArrayShape("f8", (None,)),
        "round": ArrayShape("i8", ()),
        "memory:*": ArrayShape(""),
        "private:*": ArrayShape(""),
        "rule:*": ArrayShape("f8", finite=True),
        **dict.fromkeys(("personal", "history", "carried"), rows),
        **dict.fromkeys(("turns:times", "turns:last"), turns),
    }


def state_fault(state: State, start: State, clients: int) -> str:
    """Return why a saved state cannot belong to the run that begins with `start`; empty if it can.

    The first rounds add what `start` lacks: a history has one row per client, and each dimension of a rule's memory is 1
    or the number of parameters.
    """
    for what in ("memory", "private"):
        found, expected = getattr(state, what), getattr(start, what)
        if {*found} != {*expected}:
            return f"{what} of other parts"
        for name, array in expected.items():
            if found[name].shape != array.shape or found[name].dtype != array.dtype:
                return f"{what} {name} of another shape"
    for what in ("personal", "carried", "turns"):
        if (getattr(state, what) is None) != (getattr(start, what) is None):
            return f"{what} of other parts"
    if state.turns is not None and (fault := turns_fault(state.turns, state.round)):
        return fault
    if state.turns is not None and len(state.turns.times) != clients:
        return "turns of other clients"
    for rows in (state.personal, state.history, state.carried):
        if rows is not None and rows.shape != (clients, len(start.theta)):
            return "rows of other clients"
    if any(set(array.shape) - {1, len(start.theta)} for array in state.rule.values()):
        return "memory of a rule of another shape"
    return ""


def turns_fault(turns: TurnsTaken, rounds: int) -> str:
    """Return why these turns are impossible after this number of rounds; empty if they are possible."""
    times, last = turns.times, turns.last
    if times.shape != last.shape:
        return "turns of other clients"
    possible = (times >= 0) & (times <= last + 1) & (last >= -1) & (last < rounds) & ((times == 0) == (last == -1))
    return "" if bool(possible.all()) else "turns that were not taken"


class CoordinatorCheckpoint(NamedTuple):
    """State of a coordinator's run between two rounds."""

    state: State
    run: str
    reports: list[Report]  # of all rounds done
    refused: dict[str, int]  # refused replies by error code

    def arrays(self) -> Arrays:
        table = np.array(self.reports, dtype=np.float64).reshape(-1, len(Report._fields))
        arrays = state_arrays(self.state) | {"reports": table, "run": np.array(self.run)}
        arrays["refused"] = np.array(list(self.refused), dtype=np.str_)
        arrays["refusals"] = np.array([*self.refused.values()], dtype=np.int64)
        return arrays

    def with_lost_rounds(self, rounds: int) -> CoordinatorCheckpoint:
        """Return the checkpoint after `rounds` more rounds without a step, counted as spent in the ledger.

        For a restored backup: clients have answered these rounds, and nothing else is known about them. The ledger
        counts each like the last known one.
        """
        require(self.reports, "checkpoint.no-round", "no round has ended yet, so none can be counted as spent")
        unknown = dict.fromkeys(("online_ndcg", "online_maxrr", "clicks", "update_norm"), math.nan)
        last = self.reports[-1]._replace(interactions=0, **unknown)  # type: ignore[arg-type]
        spent = [last._replace(round=last.round + number) for number in range(1, rounds + 1)]
        state = replace(self.state, round=self.state.round + rounds)
        return self._replace(state=state, reports=[*self.reports, *spent])

    def write(self, path: Path) -> None:
        """Write the file atomically and durably."""
        write_arrays(path, self.arrays(), durable=True)

    def to_bytes(self) -> bytes:
        """Return the content that `write` writes."""
        return archive_bytes(self.arrays())

    @staticmethod
    def read(path: Path) -> CoordinatorCheckpoint:
        """Read a file that `write` wrote."""
        return CoordinatorCheckpoint.parse(read_whole(path, LARGEST), str(path))

    @staticmethod
    def parse(content: bytes, where: str) -> CoordinatorCheckpoint:
        """Read the content that `to_bytes` returned; `where` names it in errors."""
        table, name = ArrayShape("f8"), ArrayShape("U", ())
        codes = {"refused": ArrayShape("U", (None,)), "refusals": ArrayShape("i8", (None,))}
        expected = state_shapes() | {"reports": table, "run": name, **codes}
        arrays = parse_arrays(content, expected, where, advice=_ADVICE)
        try:
            refused = zip(arrays["refused"].tolist(), arrays["refusals"].tolist(), strict=True)
            reports = [_parse_report(row) for row in arrays["reports"].tolist()]
            return CoordinatorCheckpoint(parse_state(arrays), str(arrays["run"]), reports, dict(refused))
        except (ValueError, TypeError, OverflowError) as error:
            raise BadInput("file.damaged", f"damaged ({error}){_ADVICE}", where) from None


def _parse_report(row: list[float]) -> Report:
    integers = ("round", "interactions", "participants")
    values = dict(zip(Report._fields, row, strict=True))
    return Report(**{name: int(v) if name in integers else v for name, v in values.items()})  # type: ignore[arg-type]


class RoundStorage(Protocol):
    """Durable storage of one run. A call that raises OSError has changed nothing."""

    @property
    def where(self) -> str:
        """Name of the storage in error messages."""

    def load(self) -> CoordinatorCheckpoint | None:
        """Return the last checkpoint."""

    def accepted(self) -> Iterable[bytes]:
        """Return the replies accepted since the checkpoint, unless the sender hands them in again."""

    def append(self, replies: Sequence[Reply]) -> None:
        """Store replies before they count."""

    def save(self, saved: CoordinatorCheckpoint) -> None:
        """Replace the checkpoint and drop the replies of its rounds."""

    def clear(self) -> None:
        """Drop replies of a round that is over."""

    def begin(self, round_: int) -> bool:
        """Record that a secure round begins; return False if it had begun before."""


class DirectoryStorage:
    """`RoundStorage` in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._journal = Journal(folder / JOURNAL)

    @property
    def where(self) -> str:
        return f"{self.folder / CHECKPOINT}"

    def load(self) -> CoordinatorCheckpoint | None:
        path = self.folder / CHECKPOINT
        return CoordinatorCheckpoint.read(path) if path.is_file() else None

    def accepted(self) -> Iterable[bytes]:
        return self._journal.read()

    def append(self, replies: Sequence[Reply]) -> None:
        self._journal.append([encode_reply(reply) for reply in replies])

    def save(self, saved: CoordinatorCheckpoint) -> None:
        saved.write(self.folder / CHECKPOINT)
        self.clear()

    def clear(self) -> None:
        self._journal.clear()

    def begin(self, round_: int) -> bool:
        path, number = self.folder / BEGUN, str(round_)
        if path.is_file() and path.read_text() == number:
            return False
        write_whole(path, number, durable=True)
        return True


class Journal:
    """Append-only file of one round's replies."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Sequence[bytes]) -> None:
        """Append records durably; on an OSError the journal is unchanged."""
        if not records:
            return
        new = not self.path.exists()
        with open(self.path, "ab", opener=_open_private) as file:
            end = file.tell()
            try:
                for record in records:
                    file.write(_HEAD.pack(len(record), _checksum(record)) + record)
                file.flush()
                os.fsync(file.fileno())
                if new:
                    sync_to_disk(self.path.parent)  # the directory entry too
            except OSError:
                if new:
                    self.clear()  # so that the next append synchronises the directory entry
                else:
                    os.ftruncate(file.fileno(), end)
                raise

    def read(self) -> Iterator[bytes]:
        """Yield all complete records, then cut a truncated one from the file."""
        if not (self.path.exists() or self.path.is_symlink()):
            return
        sentence = "this is no ordinary file; restore it from a copy"
        require(self.path.is_file(), "file.damaged", sentence, str(self.path))
        at = 0
        with self.path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, checksum = _HEAD.unpack(head)
                record = file.read(length) if length <= LARGEST_MESSAGE else b""
                if len(record) < length or _checksum(record) != checksum:
                    break
                at += _HEAD.size + length
                yield record
        if at < self.path.stat().st_size:
            os.truncate(self.path, at)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: replies are other people's."""
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)


def _checksum(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=16).digest()
