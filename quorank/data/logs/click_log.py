"""Click log in columns: a folder of arrays that are mapped into memory, written search by search.

A log is a list of searches; a search has a user, a time, a query, and the documents of its list with their features, ranks
and clicks. Users, times and ranks are each known for all searches or for none (`has_users`, `has_times`, `has_ranks`).
Columns (`.npy`, so that any program with NumPy reads them):

    features     (rows, stride) float32, zeros behind the last feature   a row is a document of a search
    clicks       (rows,) int8, 1 where the document was clicked
    ranks        (rows,) int16 from 1 on, rising within a search; 0 where no order is known
    offsets      (searches + 1,) int64, the first row of each search
    user         (searches,) int32, the number of its user; −1 where none is known
    time         (searches,) int64, microseconds since 1970 in UTC; the lowest int64 where none is known
    users, searches, queries, documents   texts: UTF-8 bytes, and in NAME_ends where each ends

`features.txt` has the names of the features; `log.json`, with the names and the counts, is written last.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import Strings, pad, stride_of, strings_from_bytes
from quorank.errors import BadInput, brief, require
from quorank.files.atomic import ProcessLock
from quorank.files.codec import Length, Range
from quorank.files.documents import json_bytes, read_json
from quorank.files.npz import ArrayAppender, ArrayShape, map_array
from quorank.kernels.arrays import Booleans, Floats, Int8s, Int32s, Integers

Int16s = npt.NDArray[np.int16]
FILE = "log.json"
TEXTS = ("users", "searches", "queries", "documents")
NOBODY = -1  # user of a search without a known user
NO_TIME = int(np.iinfo(np.int64).min)  # time of a search without a known time
MOST_FEATURES, HIGHEST_RANK, LONGEST_TEXT = 4096, 32_767, 65_536
_TOGETHER = 512  # searches that are checked and written at once
_KINDS = {"features": "f4", "clicks": "i1", "ranks": "i2", "offsets": "i8", "user": "i4", "time": "i8"}


@dataclass(frozen=True)
class _LogFile:
    """Content of `log.json`."""

    searches: Annotated[int, Range(1)]
    rows: Annotated[int, Range(1)]
    users: Annotated[int, Range(0)]
    features: Annotated[tuple[str, ...], Length(MOST_FEATURES, 1)]
    version: Literal[1] = 1


@dataclass(frozen=True, eq=False)
class ClickLog:
    """Logged searches in the order of the log; the module describes the columns."""

    features: Floats
    clicks: Int8s
    ranks: Int16s
    offsets: Integers
    user: Int32s
    time: Integers
    feature_names: tuple[str, ...]
    users: Sequence[str] = field(repr=False)
    searches: Sequence[str] = field(repr=False)
    queries: Sequence[str] = field(repr=False)
    documents: Sequence[str] = field(repr=False)

    @property
    def n_searches(self) -> int:
        return len(self.user)

    @property
    def n_rows(self) -> int:
        return len(self.clicks)

    @property
    def has_users(self) -> bool:
        """Return whether the users of the searches are known."""
        return int(self.user[0]) != NOBODY

    @property
    def has_times(self) -> bool:
        """Return whether the times of the searches are known."""
        return int(self.time[0]) != NO_TIME

    @property
    def has_ranks(self) -> bool:
        """Return whether lists are in the order in which they were shown."""
        return int(self.ranks[0]) != 0

    def search(self, number: int) -> Search:
        """Return a search."""
        rows, user = slice(int(self.offsets[number]), int(self.offsets[number + 1])), int(self.user[number])
        return Search(
            "" if user == NOBODY else self.users[user], int(self.time[number]), self.searches[number], self.queries[number],
            self.features[rows, : len(self.feature_names)], self.clicks[rows], self.ranks[rows], list(self.documents[rows]),
        )  # fmt: skip

    def in_order(self) -> Integers:
        """Return the searches in order of time, those of the same moment in the order of the log."""
        return np.argsort(self.time, kind="stable").astype(np.int64)


class Search(NamedTuple):
    """Search as a format's reader yields it, with its documents in the order of their ranks."""

    user: str  # "" where unknown
    time: int  # NO_TIME where unknown
    name: str  # its id
    query: str  # what was asked, "" where unknown
    features: Floats  # (documents, n)
    clicks: npt.ArrayLike  # (documents,)
    ranks: npt.ArrayLike  # (documents,) 0 where unknown
    documents: Sequence[str]  # (documents,) ids, "" where unknown
    place: str = ""  # file and line, for errors


def joined_runs(
    parts: Iterable[tuple[Any, str, tuple[npt.NDArray[Any], ...]]],
) -> Iterator[tuple[Any, str, tuple[npt.NDArray[Any], ...]]]:
    """Join consecutive parts (key, place, columns) of one key: a search may go on in a file's next block."""
    for key, group in groupby(parts, itemgetter(0)):
        same = list(islice(group, HIGHEST_RANK + 1))
        _, place, columns = same[0]
        if len(same) > 1:
            columns = tuple(map(np.concatenate, zip(*(part[2] for part in same), strict=True)))
        sentence = "holds a search that is longer than there are ranks"
        require(len(columns[0]) <= HIGHEST_RANK, "log.list-too-long", sentence, place)
        yield key, place, columns


def is_log(folder: Path) -> bool:
    """Return whether a folder holds a click log."""
    return (folder / FILE).is_file()


def open_log(folder: Path) -> ClickLog:
    """Map the log of a directory; reject a damaged one with the file."""
    advice = "; import the log again"
    about: _LogFile = read_json(folder / FILE, _LogFile, advice=advice)
    names, rows, searches, users = about.features, about.rows, about.searches, about.users
    lengths: dict[str, tuple[int, ...]] = {
        "features": (rows, stride_of(len(names))),
        "clicks": (rows,),
        "ranks": (rows,),
        "offsets": (searches + 1,),
        "user": (searches,),
        "time": (searches,),
    }
    columns: dict[str, Any] = {
        name: map_array(folder / f"{name}.npy", ArrayShape(kind, lengths[name]), advice=advice)
        for name, kind in _KINDS.items()
    }
    counts = dict(zip(TEXTS, (users, searches, searches, rows), strict=True))
    texts: dict[str, Any] = {name: _texts(folder, name, counts[name], advice) for name in TEXTS}
    log = ClickLog(**columns, feature_names=names, **texts)
    fault = _fault_in(log)
    require(not fault, "file.damaged", f"damaged ({fault}){advice}", f"{folder}")
    return log


def _texts(folder: Path, name: str, count: int, advice: str) -> Strings:
    ends = map_array(folder / f"{name}_ends.npy", ArrayShape("i8", (count + 1,)), advice=advice)
    letters = map_array(folder / f"{name}.npy", ArrayShape("u1", (None,)), advice=advice)
    sound = ends[0] == 0 and ends[-1] == len(letters) and bool((np.diff(ends) >= 0).all())
    require(sound, "file.damaged", f"damaged (texts that overlap){advice}", f"{folder / f'{name}_ends.npy'}")
    try:
        return strings_from_bytes(letters, ends)
    except UnicodeDecodeError:
        raise BadInput("file.damaged", f"damaged (no UTF-8 text){advice}", f"{folder / f'{name}.npy'}") from None


def _fault_in(log: ClickLog) -> str:
    """Return the first violated invariant that compiled code relies on, or an empty string."""
    lengths, users = np.diff(log.offsets), len(log.users)
    if log.offsets[0] != 0 or log.offsets[-1] != log.n_rows or (lengths < 1).any():
        return "offsets that do not divide its rows"
    if log.clicks.min() < 0 or log.clicks.max() > 1:
        return "a click that is neither 0 nor 1"
    if log.user.min() < NOBODY or log.user.max() >= users or ((log.user == NOBODY) == log.has_users).any():
        return "a user that is not there"
    if ((log.time == NO_TIME) == log.has_times).any():
        return "a search without a time among others"
    starts = np.zeros(log.n_rows, dtype=np.bool_)
    starts[log.offsets[:-1]] = True
    rising = starts[1:] | (np.diff(log.ranks.astype(np.int32)) > 0)
    if log.has_ranks and (log.ranks.min() < 1 or not rising.all()):
        return "ranks that do not rise within a search"
    if not log.has_ranks and log.ranks.any():
        return "a rank among documents without one"
    return ""


class LogWriter:
    """Writer of a log's columns, search by search, in constant memory."""

    def __init__(self, folder: Path, feature_names: Sequence[str]) -> None:
        self.folder, self.feature_names = folder, tuple(feature_names)
        n = len(self.feature_names)
        sentence = f"has {n:,} features; expected 1 to {MOST_FEATURES:,}"
        require(1 <= n <= MOST_FEATURES, "log.features", sentence, f"{folder}")
        for name in self.feature_names:
            require(len(name) <= LONGEST_TEXT, "log.text-too-long", f"names a feature {brief(name)}")
        self._columns = {
            name: ArrayAppender(folder / f"{name}.npy", kind, stride_of(n) if name == "features" else None)
            for name, kind in _KINDS.items()
        }
        self._letters = {name: ArrayAppender(folder / f"{name}.npy", "u1") for name in TEXTS}
        self._ends = {name: ArrayAppender(folder / f"{name}_ends.npy", "i8") for name in TEXTS}
        for appender in (self._columns["offsets"], *self._ends.values()):
            appender.append(np.zeros(1, dtype=np.int64))
        self._users: dict[str, int] = {}
        self._knows: list[bool] | None = None  # users, times, ranks
        self._waiting: list[Search] = []
        self.searches = self.rows = 0

    def add(self, search: Search) -> None:
        """Add a search; an invalid one is rejected with its file and line when some more have come."""
        self._waiting.append(search)
        self.searches += 1
        if len(self._waiting) >= _TOGETHER:
            self._flush()

    def _flush(self) -> None:
        found, self._waiting = self._waiting, []
        if not found:
            return
        users, times, names, queries, features_, clicks, ranks_, documents, places = zip(*found, strict=True)
        features = np.concatenate(features_)
        ranks, lengths = np.concatenate(ranks_).astype(np.int64), np.array([len(part) for part in features_])
        ends, time = np.cumsum(lengths), np.array(times, dtype=np.int64)
        self._check(features, ranks, ends, (np.array(users) != "", time != NO_TIME), places)
        known = len(self._users)
        user = [self._users.setdefault(name, len(self._users)) if name else NOBODY for name in users]
        columns = {
            "features": pad(features, len(self.feature_names)),
            "clicks": np.concatenate(clicks),
            "ranks": ranks,
            "offsets": self.rows + ends,
            "user": np.array(user),
            "time": time,
        }
        for name, values in columns.items():
            self._columns[name].append(values)
        texts = (list(self._users)[known:], names, queries, [text for own in documents for text in own])
        for name, own in zip(TEXTS, texts, strict=True):
            encoded = [text.encode("utf-8", "replace") for text in own]
            sentence = f"holds a string of more than {LONGEST_TEXT:,} bytes"
            require(all(len(text) <= LONGEST_TEXT for text in encoded), "log.text-too-long", sentence, places[0])
            lengths = np.array([len(text) for text in encoded], dtype=np.int64)
            self._ends[name].append(self._letters[name].rows + np.cumsum(lengths))
            self._letters[name].append(np.frombuffer(b"".join(encoded), dtype=np.uint8))
        self.rows += len(features)

    def _check(
        self, features: Floats, ranks: Integers, ends: Integers, known: Sequence[Booleans], places: Sequence[str]
    ) -> None:
        """Reject infinite features, ranks that do not rise, and columns that are known for some searches only."""
        starts = np.append(0, ends[:-1])
        known = (*known, ranks[starts] > 0)
        self._knows = self._knows or [bool(column[0]) for column in known]
        for word, first, each in zip(("user", "time", "rank"), self._knows, known, strict=True):
            if (each != first).any():
                at = int(np.argmax(each != first))
                has = f"this search has {'a' if each[at] else 'no'} {word}, unlike the first one"
                raise BadInput(f"log.{word}-of-some", f"{has}; expected one for all searches or for none", places[at])
        rising = np.diff(ranks, prepend=0) > 0
        rising[starts] = ranks[starts] >= 1
        order = "the ranks of this search are not distinct numbers from 1 on, or are missing for some documents"
        for right, code, sentence in (
            (np.isfinite(features).all(axis=1), "log.not-finite", "has a feature that is no finite float32 number"),
            (rising if self._knows[2] else ranks == 0, "log.ranks", order),
        ):
            at = int(np.searchsorted(ends, np.argmin(right), side="right"))
            require(right.all(), code, sentence, places[at])

    def close(self) -> None:
        """Write the headers of all columns, and the description last."""
        self._flush()
        for appender in (*self._columns.values(), *self._letters.values(), *self._ends.values()):
            appender.close()
        about = _LogFile(self.searches, self.rows, len(self._users), self.feature_names)
        names = [name if name.isprintable() and len(name.encode()) <= 200 else "" for name in self.feature_names]
        (self.folder / "features.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        (self.folder / FILE).write_bytes(json_bytes(about))


_UNFINISHED = ".importing"


@contextmanager
def new_log_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write a log into, which takes the place of `folder` when the block ends, or is removed.

    Leftovers of killed imports are removed first.
    """
    for left in folder.parent.glob(f".*{_UNFINISHED}"):
        with ProcessLock(left / "lock").hold() as free:
            if free:
                shutil.rmtree(left, ignore_errors=True)
    temporary = folder.with_name(f".{folder.name}{_UNFINISHED}")
    sentence = "is being imported by another process; wait for it, or give another name"
    require(not temporary.exists(), "log.being-imported", sentence, folder.name)
    temporary.mkdir(mode=0o700)  # people's searches: for the owner alone
    try:
        with ProcessLock(temporary / "lock").hold():
            yield temporary
            (temporary / "lock").unlink()
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


_START = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_800_000_000  # the years 1 and 10000, in microseconds
_WHOLE = re.compile(r"-?\d{1,18}(\.\d{1,6})?", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)


def read_time(text: str, unit: int = 1_000_000) -> int:
    """Return microseconds since 1970 for an ISO 8601 date, or for a number of units of `unit` microseconds.

    >>> read_time("2006-03-01 00:01:03"), read_time("2006-03-01T01:01:03+01:00"), read_time("1141171263")
    (1141171263000000, 1141171263000000, 1141171263000000)
    """
    text = text.strip()
    try:
        if _WHOLE.fullmatch(text):
            whole, _, fraction = text.partition(".")
            found = int(whole) * unit + round(float(f"0.{fraction or 0}") * unit) * (-1 if text[0] == "-" else 1)
        else:
            when = datetime.fromisoformat(text)
            found = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _START) // _MICROSECOND
    except (ValueError, OverflowError):
        found = NO_TIME
    if not _FIRST <= found < _LAST:
        expected = "an ISO 8601 date such as 2006-03-01T00:01:03Z, or a number since 1970"
        raise BadInput("log.bad-time", f"found {brief(text)} as a time, expected {expected}")
    return found


def write_time(microseconds: int) -> str:
    """Return a time as ISO 8601 text in UTC, with a fraction where it has one.

    >>> write_time(1141171263000000), write_time(-500000)
    ('2006-03-01T00:01:03Z', '1969-12-31T23:59:59.500000Z')
    """
    if microseconds == NO_TIME:
        return ""
    return str(np.datetime_as_string(np.datetime64(int(microseconds), "us"))).removesuffix(".000000") + "Z"
