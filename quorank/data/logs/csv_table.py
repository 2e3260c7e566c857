"""Reader and writer of logs as CSV: our own format, a line for each document of a search.

Columns, in any order: `search` (an id; lines of one search stand together), `click` (0 or 1), and every column without a
meaning of its own is a feature under its name. Where they are known: `user`, `time` (ISO 8601, or seconds since 1970),
`query` (what was asked), `document` (an id), `rank` (from 1 on, as the list was shown). A column that is missing or empty
is not known; users, times and ranks are known of all searches or of none.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from quorank.data.letor.writer import shortest_texts
from quorank.data.logs.click_log import HIGHEST_RANK, MOST_FEATURES, NO_TIME, NOBODY, ClickLog, SearchBlock
from quorank.data.logs.times import read_time, write_time
from quorank.errors import BadInput, brief, require
from quorank.files.atomic import atomically
from quorank.files.untrusted import csv_records
from quorank.kernels.arrays import Floats

KEYS = ("user", "time", "search", "query", "document", "rank", "click")
"""Columns with a meaning of their own, in the order in which they are written."""
NEEDED = ("search", "click")
EXPECTED = "expected a CSV file with the columns search and click, and a column for each feature"
_ROWS = 4096


def csv_files(path: Path) -> list[Path]:
    """Return the CSV files of a folder in the order of their names, or the one file that is given."""
    if path.is_file():
        return [path]
    found = sorted(entry for entry in path.iterdir() if entry.name.endswith((".csv", ".csv.gz")) and entry.is_file())
    require(found, "file.missing", f"has no .csv or .csv.gz file; {EXPECTED}", f"{path}")
    return found


def feature_columns(path: Path) -> tuple[str, ...]:
    """Return the names of the features of a CSV log, in their order."""
    _, head = next(csv_records(path, EXPECTED), (1, []))
    missing = [name for name in NEEDED if name not in head]
    require(not missing, "csv.no-column", f"has no column {(missing or [''])[0]}; {EXPECTED}", f"{path}:1")
    twice = next((name for place, name in enumerate(head) if name in head[:place]), None)
    require(twice is None, "csv.column-twice", f"has two columns {brief(twice)}", f"{path}:1")
    names = tuple(name for name in head if name not in KEYS)
    sentence = f"has {len(names):,} columns of features; expected 1 to {MOST_FEATURES:,}"
    require(1 <= len(names) <= MOST_FEATURES, "log.features", sentence, f"{path}:1")
    return names


def read_csv_log(path: Path, names: tuple[str, ...]) -> Iterator[SearchBlock]:
    """Yield the searches of a CSV file with these features."""
    records = csv_records(path, EXPECTED)
    _, head = next(records)
    place = {name: number for number, name in enumerate(head)}
    have = feature_columns(path)
    missing = next((name for name in names if name not in place), None)
    sentence = f"has other features than the first file: {brief(missing or next(iter({*have} - {*names}), ''))}"
    require(missing is None and len(have) == len(names), "log.features-differ", sentence, f"{path}:1")
    rows = _CsvRows(path, place, [place[name] for name in names])
    for line, record in records:
        where = f"{path}:{line}"
        sentence = f"has {len(record)} fields, and the first line {len(head)}"
        require(len(record) == len(head), "csv.fields", sentence, where)
        block = rows.add(line, record)
        if block is not None:
            yield block
    block = rows.finished()
    require(block is not None or rows.searches, "log.empty", f"has no searches; {EXPECTED}", f"{path}")
    if block is not None:
        yield block


def named_records(path: Path, needed: tuple[str, ...], expected: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("FILE:LINE", values by column) of each record of a CSV file whose first line names the columns."""
    records = csv_records(path, expected)
    _, head = next(records, (1, []))
    for name in needed:
        require(
            name in head, "csv.no-column", f"there is no column {name!r} in the first line; {expected}", f"{path}:1"
        )
    for line, record in records:
        sentence = f"has {len(record)} fields, and the first line {len(head)}"
        require(len(record) == len(head), "csv.fields", sentence, f"{path}:{line}")
        yield f"{path}:{line}", dict(zip(head, record, strict=True))


class _CsvRows:
    """Lines of a CSV log on their way to whole searches."""

    def __init__(self, path: Path, place: dict[str, int], features: list[int]) -> None:
        self._path, self._place, self._features = path, place, features
        self._keys = [place.get(name) for name in ("user", "time", "search")]
        self._lines: list[int] = []
        self._records: list[list[str]] = []
        self._starts: list[int] = []
        self._last: list[str] | None = None
        self.searches = 0

    def add(self, line: int, record: list[str]) -> SearchBlock | None:
        """Take a line; return the whole searches before it once they are many."""
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
        """Return the searches that were taken since; None where there are none."""
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
            self._whole(text, 1, "click", line) for text, line in zip(texts("click", all_rows), lines, strict=True)
        ]
        rank_texts = texts("rank", all_rows)
        ranks = [
            self._whole(text, HIGHEST_RANK, "rank", line) if text else 0
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

    def _whole(self, text: str, most: int, name: str, line: int) -> int:
        """A whole number from 0, or 1 for a rank, to `most`."""
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
    """Write a log as a CSV file that is read back to the same bits; `counted` is told how many searches were written."""
    clash = next((name for name in log.feature_names if name in KEYS), None)
    sentence = f"has a feature {brief(clash)}, which is a column of its own in CSV; it cannot be written"
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
