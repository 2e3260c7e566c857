"""Reader and writer of click logs as CSV, one line per document of a search.

Columns, in any order: `search` (an id; the lines of a search are adjacent), `click` (0 or 1), and optionally `user`, `time`
(ISO 8601, or seconds since 1970), `query` (its text), `document` (an id) and `rank` (from 1, as the list was shown). Every
other column is a feature. A missing or empty column is unknown; users, times and ranks are known for all searches or none.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.data.letor.writer import shortest_texts
from quorank.data.logs.click_log import (
    HIGHEST_RANK,
    MOST_FEATURES,
    NO_TIME,
    NOBODY,
    ClickLog,
    SearchBlock,
    read_time,
    write_time,
)
from quorank.errors import BadInput, brief, require
from quorank.files.atomic import atomically
from quorank.files.untrusted import csv_records
from quorank.kernels.arrays import Floats

KEYS = ("user", "time", "search", "query", "document", "rank", "click")
"""Columns that are not features, in the order in which they are written."""
NEEDED = ("search", "click")
EXPECTED = "expected a CSV file with the columns search and click, and a column for each feature"
_ROWS = 4096


def csv_files(path: Path) -> list[Path]:
    """Return a CSV file itself, or the CSV files of a directory by name."""
    if path.is_file():
        return [path]
    found = sorted(entry for entry in path.iterdir() if entry.name.endswith((".csv", ".csv.gz")) and entry.is_file())
    require(found, "file.missing", f"has no .csv or .csv.gz file; {EXPECTED}", f"{path}")
    return found


def find_file(folder: Path, names: tuple[str, ...]) -> Path:
    """Return the first of these files that a directory has."""
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    sentence = f"has no {' or '.join(names)}"
    require(found is not None, "file.missing", sentence, f"{folder}")
    assert found is not None
    return found


class CsvTable(NamedTuple):
    """CSV file with a checked header; every record has as many fields as the header."""

    path: Path
    columns: list[str]
    records: Iterator[tuple[int, list[str]]]  # line number and fields

    @classmethod
    def open(cls, path: Path, needed: Sequence[str], expected: str, code: str = "csv.no-column") -> CsvTable:
        """Open a CSV file that has the needed columns; `code` and `expected` are for one that lacks them."""
        records = csv_records(path, expected)
        _, columns = next(records, (1, []))
        missing = [name for name in needed if name not in columns]
        require(not missing, code, f"has no column {(missing or [''])[0]!r}; {expected}", f"{path}:1")
        return cls(path, columns, cls._checked(path, len(columns), records))

    @staticmethod
    def _checked(path: Path, width: int, records: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
        for line, record in records:
            sentence = f"has {len(record)} fields, and the first line {width}"
            require(len(record) == width, "csv.fields", sentence, f"{path}:{line}")
            yield line, record

    def feature_names(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the columns other than `keys`, which must be distinct and neither none nor too many."""
        twice = next((name for place, name in enumerate(self.columns) if name in self.columns[:place]), None)
        require(twice is None, "csv.column-twice", f"has two columns {brief(twice)}", f"{self.path}:1")
        names = tuple(name for name in self.columns if name not in keys)
        sentence = f"has {len(names):,} columns of features; expected 1 to {MOST_FEATURES:,}"
        require(1 <= len(names) <= MOST_FEATURES, "log.features", sentence, f"{self.path}:1")
        return names


def feature_columns(path: Path) -> tuple[str, ...]:
    """Return the names of the features of a CSV log, in their order."""
    return CsvTable.open(path, NEEDED, EXPECTED).feature_names(KEYS)


def read_csv_log(path: Path, names: tuple[str, ...]) -> Iterator[SearchBlock]:
    """Yield the searches of a CSV file with these features."""
    table = CsvTable.open(path, NEEDED, EXPECTED)
    place = {name: number for number, name in enumerate(table.columns)}
    have = table.feature_names(KEYS)
    missing = next((name for name in names if name not in place), None)
    sentence = f"has other features than the first file: {brief(missing or next(iter({*have} - {*names}), ''))}"
    require(missing is None and len(have) == len(names), "log.features-differ", sentence, f"{path}:1")
    rows = _CsvRows(path, place, [place[name] for name in names])
    for line, record in table.records:
        block = rows.add(line, record)
        if block is not None:
            yield block
    block = rows.finished()
    require(block is not None or rows.searches, "log.empty", f"has no searches; {EXPECTED}", f"{path}")
    if block is not None:
        yield block


def named_records(path: Path, needed: tuple[str, ...], expected: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("FILE:LINE", values by column) of each record of a CSV file with the needed columns."""
    table = CsvTable.open(path, needed, expected)
    for line, record in table.records:
        yield f"{path}:{line}", dict(zip(table.columns, record, strict=True))


class _CsvRows:
    """Collector of lines into whole searches."""

    def __init__(self, path: Path, place: dict[str, int], features: list[int]) -> None:
        self._path, self._place, self._features = path, place, features
        self._keys = [place.get(name) for name in ("user", "time", "search")]
        self._lines: list[int] = []
        self._records: list[list[str]] = []
        self._starts: list[int] = []
        self._last: list[str] | None = None
        self.searches = 0

    def add(self, line: int, record: list[str]) -> SearchBlock | None:
        """Add a line; return the whole searches before it once there are enough for a block."""
        key = [record[at] if at is not None else "" for at in self._keys]
        block = None
        if key != self._last:
            if len(self._records) >= _ROWS:
                block = self.finished()
            self._starts.append(len(self._records))
            self._last = key
        self._lines.append(line)
        self._records.append(record)
        sentence = "this search has more lines than there are ranks"
        fits = len(self._records) - self._starts[-1] <= HIGHEST_RANK
        require(fits, "log.list-too-long", sentence, f"{self._path}:{line}")
        return block

    def finished(self) -> SearchBlock | None:
        """Return the collected searches, or None."""
        if not self._records:
            return None
        lines, records, starts = self._lines, self._records, self._starts
        self._lines, self._records, self._starts, self._last = [], [], [], None
        self.searches += len(starts)

        def texts(name: str, of: list[int]) -> list[str]:
            at = self._place.get(name)
            return [""] * len(of) if at is None else [records[row][at] for row in of]

        all_rows = list(range(len(records)))
        times = [self._time(text, lines[row]) for text, row in zip(texts("time", starts), starts, strict=True)]
        clicks = [
            self._integer(text, 1, "click", line) for text, line in zip(texts("click", all_rows), lines, strict=True)
        ]
        rank_texts = texts("rank", all_rows)
        ranks = [
            self._integer(text, HIGHEST_RANK, "rank", line) if text else 0
            for text, line in zip(rank_texts, lines, strict=True)
        ]
        features = self._numbers(records, lines)
        lengths = np.diff(np.array([*starts, len(records)], dtype=np.int64)).astype(np.int64)
        # lists are kept in the order in which they were shown
        of_row = np.repeat(np.arange(len(starts)), lengths)
        order = np.lexsort((np.array(ranks), of_row))
        documents = texts("document", all_rows)
        for of in starts:
            require(texts("search", [of])[0], "log.no-search", "has no id of a search", f"{self._path}:{lines[of]}")
        return SearchBlock(
            texts("user", starts),
            np.array(times, dtype=np.int64),
            texts("search", starts),
            texts("query", starts),
            lengths,
            features[order],
            np.array(clicks, dtype=np.int8)[order],
            np.array(ranks, dtype=np.int16)[order],
            [documents[row] for row in order.tolist()],
            [f"{self._path}:{lines[row]}" for row in starts],
        )

    def _time(self, text: str, line: int) -> int:
        try:
            return read_time(text) if text else NO_TIME
        except BadInput as error:
            raise error.at(f"{self._path}:{line}") from None

    def _integer(self, text: str, most: int, name: str, line: int) -> int:
        """Parse an integer from 0, or from 1 for a rank, to `most`."""
        least = 1 if name == "rank" else 0
        if text.isascii() and text.isdigit() and len(text) <= 5 and least <= int(text) <= most:
            return int(text)
        sentence = f"found {name} {brief(text)}, expected {least} to {most:,}"
        raise BadInput(f"log.bad-{name}", sentence, f"{self._path}:{line}")

    def _numbers(self, records: list[list[str]], lines: list[int]) -> Floats:
        import pyarrow as pa

        out = np.empty((len(records), len(self._features)), dtype=np.float32)
        for column, at in enumerate(self._features):
            texts = [record[at] for record in records]
            try:
                values = pa.array(texts, type=pa.string()).cast(pa.float64()).to_numpy()
            except pa.ArrowException:
                values = np.array([_float(text) for text in texts])
            with np.errstate(over="ignore"):
                out[:, column] = values
            wrong = ~np.isfinite(out[:, column])
            if wrong.any():
                row = int(np.argmax(wrong))
                name = next(name for name, place in self._place.items() if place == at)
                sentence = f"found {brief(texts[row])} as {brief(name)}, expected a finite float32 number"
                raise BadInput("log.not-a-number", sentence, f"{self._path}:{lines[row]}")
        return out


def _float(text: str) -> float:
    try:
        return float(text) if text.isascii() and "_" not in text else np.nan
    except ValueError:
        return np.nan


def write_csv_log(log: ClickLog, path: Path, counted: Callable[[int], None] | None = None) -> None:
    """Write a log as a CSV file that imports to the same bits; `counted` receives the number of searches written."""
    clash = next((name for name in log.feature_names if name in KEYS), None)
    sentence = f"has a feature {brief(clash)}, which is a reserved column in CSV; it cannot be written"
    require(clash is None, "log.cannot-say", sentence, f"{path}")
    twice = len({*log.feature_names}) < len(log.feature_names)
    require(not twice, "log.cannot-say", "has two features of one name; it cannot be written", f"{path}")

    def save(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(_text([[*KEYS, *log.feature_names]]))
            for first in range(0, log.n_searches, 512):
                last = min(first + 512, log.n_searches)
                file.write(_text(_records(log, first, last)))
                if counted:
                    counted(last)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomically(path, save)
    except OSError as error:
        raise BadInput("file.unwritable", f"cannot be written: {error.strerror}", f"{path}") from None


def _text(records: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(records)
    return out.getvalue()


def _records(log: ClickLog, first: int, last: int) -> list[list[str]]:
    rows = slice(int(log.offsets[first]), int(log.offsets[last]))
    values = log.features[rows, : len(log.feature_names)]
    numbers = shortest_texts(values).reshape(values.shape).tolist()
    lengths = np.diff(log.offsets[first : last + 1]).tolist()
    documents = list(log.documents[rows])
    records, row = [], 0
    searches, queries = list(log.searches[first:last]), list(log.queries[first:last])
    for number, length in enumerate(lengths):
        user = int(log.user[first + number])
        who = "" if user == NOBODY else log.users[user]
        head = [who, write_time(int(log.time[first + number])), searches[number], queries[number]]
        for at in range(rows.start + row, rows.start + row + length):
            rank = str(log.ranks[at]) if log.ranks[at] else ""
            records.append([*head, documents[row], rank, str(log.clicks[at]), *numbers[row]])
            row += 1
    return records
