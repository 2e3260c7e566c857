"""Reader and writer of click logs as CSV, one line per document of a search.

Columns, in any order: `search` (an id; the lines of a search are adjacent), `click` (0 or 1), and optionally `user`, `time`
(ISO 8601, or seconds since 1970), `query` (its text), `document` (an id) and `rank` (from 1, as the list was shown). Every
other column is a feature. A missing or empty column is unknown; users, times and ranks are known for all searches or none.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.data.letor.writer import shortest_texts
from quorank.data.logs.click_log import HIGHEST_RANK, MOST_FEATURES, NO_TIME, ClickLog, Search, read_time, write_time
from quorank.errors import BadInput, brief, require
from quorank.files.atomic import export_file
from quorank.files.untrusted import csv_records
from quorank.kernels.arrays import Floats

KEYS = ("user", "time", "search", "query", "document", "rank", "click")  # columns that are not features, as written
NEEDED = ("search", "click")
EXPECTED = "expected a CSV file with the columns search and click, and a column for each feature"
Row = tuple[int, list[str]]  # line number and fields of a record


def csv_files(path: Path) -> list[Path]:
    """Return a CSV file itself, or the CSV files of a directory by name."""
    if path.is_file():
        return [path]
    found = sorted(entry for entry in path.iterdir() if entry.name.endswith((".csv", ".csv.gz")) and entry.is_file())
    require(found, "file.missing", f"has no .csv or .csv.gz file; {EXPECTED}", f"{path}")
    return found


class CsvTable(NamedTuple):
    """CSV file with a checked header; every record has as many fields as the header."""

    path: Path
    columns: list[str]
    records: Iterator[Row]

    @classmethod
    def open(cls, path: Path, needed: Sequence[str], expected: str, code: str = "csv.no-column") -> CsvTable:
        """Open a CSV file that has the needed columns; `code` and `expected` are for one that lacks them."""
        records = csv_records(path, expected)
        _, columns = next(records, (1, []))
        missing = [name for name in needed if name not in columns]
        require(not missing, code, f"has no column {(missing or [''])[0]!r}; {expected}", f"{path}:1")
        return cls(path, columns, cls._checked(path, len(columns), records))

    @staticmethod
    def _checked(path: Path, width: int, records: Iterator[Row]) -> Iterator[Row]:
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

    def runs(self, keys: Sequence[str]) -> Iterator[list[Row]]:
        """Yield the adjacent records with the same values in the columns `keys`."""
        places = [self.columns.index(name) for name in keys if name in self.columns]
        for _, rows in groupby(self.records, lambda row: [row[1][place] for place in places]):
            run = list(islice(rows, HIGHEST_RANK + 1))
            sentence = "this search has more lines than there are ranks"
            require(len(run) <= HIGHEST_RANK, "log.list-too-long", sentence, self.place(run[-1]))
            yield run

    def texts(self, name: str, rows: Sequence[Row]) -> list[str]:
        """Return the values of a column; empty ones if there is no such column."""
        if name not in self.columns:
            return [""] * len(rows)
        place = self.columns.index(name)
        return [record[place] for _, record in rows]

    def numbers(self, names: Sequence[str], rows: Sequence[Row]) -> Floats:
        """Return the (rows, names) values of columns of finite numbers."""
        places = [self.columns.index(name) for name in names]
        try:
            values = np.array([[record[place] for place in places] for _, record in rows], dtype=np.float64)
        except ValueError:
            values = np.array([[_float(record[place]) for place in places] for _, record in rows])
        with np.errstate(over="ignore"):
            out = values.astype(np.float32)
        if not np.isfinite(out).all():
            row, column = (int(place[0]) for place in np.nonzero(~np.isfinite(out)))
            sentence = f"found {brief(rows[row][1][places[column]])} as {brief(names[column])}"
            raise BadInput("log.not-a-number", f"{sentence}, expected a finite float32 number", self.place(rows[row]))
        return out

    def integers(self, name: str, rows: Sequence[Row], least: int, most: int) -> list[int]:
        """Return the values of a column of integers, 0 for empty ones where `least` is above 0."""
        texts = self.texts(name, rows)
        for row, text in zip(rows, texts, strict=True):
            fits = text.isascii() and text.isdigit() and len(text) <= 5 and least <= int(text) <= most
            sentence = f"found {name} {brief(text)}, expected {least} to {most:,}"
            require(fits or (least and not text), f"log.bad-{name}", sentence, self.place(row))
        return [int(text or 0) for text in texts]

    def place(self, row: Row) -> str:
        """Return the file and the line of a record."""
        return f"{self.path}:{row[0]}"


def feature_columns(path: Path) -> tuple[str, ...]:
    """Return the names of the features of a CSV log, in their order."""
    return CsvTable.open(path, NEEDED, EXPECTED).feature_names(KEYS)


def read_csv_log(path: Path, names: tuple[str, ...]) -> Iterator[Search]:
    """Yield the searches of a CSV file with these features, each list in the order of its ranks."""
    table = CsvTable.open(path, NEEDED, EXPECTED)
    different = next(iter({*table.feature_names(KEYS)} ^ {*names}), None)
    sentence = f"has other features than the first file: {brief(different)}"
    require(different is None, "log.features-differ", sentence, f"{path}:1")
    empty = True
    for run in table.runs(("user", "time", "search")):
        ranks = table.integers("rank", run, 1, HIGHEST_RANK)
        order = sorted(range(len(run)), key=lambda row, ranks=ranks: ranks[row])  # type: ignore[misc]
        rows, place = [run[row] for row in order], table.place(run[0])
        user, time, search, query = (table.texts(name, run[:1])[0] for name in ("user", "time", "search", "query"))
        require(search, "log.no-search", "has no id of a search", place)
        yield Search(
            user, _time(time, place), search, query, table.numbers(names, rows), table.integers("click", rows, 0, 1),
            sorted(ranks), table.texts("document", rows), place,
        )  # fmt: skip
        empty = False
    require(not empty, "log.empty", f"has no searches; {EXPECTED}", f"{path}")


def named_records(path: Path, needed: tuple[str, ...], expected: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("FILE:LINE", values by column) of each record of a CSV file with the needed columns."""
    table = CsvTable.open(path, needed, expected)
    for row in table.records:
        yield table.place(row), dict(zip(table.columns, row[1], strict=True))


def _time(text: str, where: str) -> int:
    try:
        return read_time(text) if text else NO_TIME
    except BadInput as error:
        raise error.at(where) from None


def _float(text: str) -> float:
    try:
        return float(text) if text.isascii() and "_" not in text else np.nan
    except ValueError:
        return np.nan


def write_csv_log(log: ClickLog, path: Path) -> None:
    """Write a log as a CSV file that imports to the same bits."""
    clash = next((name for name in log.feature_names if name in KEYS), None)
    sentence = f"has a feature {brief(clash)}, which is a reserved column in CSV; it cannot be written"
    require(clash is None, "log.cannot-say", sentence, f"{path}")
    twice = len({*log.feature_names}) < len(log.feature_names)
    require(not twice, "log.cannot-say", "has two features of one name; it cannot be written", f"{path}")

    def save(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow([*KEYS, *log.feature_names])
            for search in map(log.search, range(log.n_searches)):
                head = [search.user, write_time(search.time), search.name, search.query]
                numbers = shortest_texts(search.features).reshape(search.features.shape).tolist()
                rows = zip(search.documents, np.asarray(search.ranks), np.asarray(search.clicks), numbers, strict=True)
                out.writerows([*head, document, rank or "", click, *own] for document, rank, click, own in rows)

    export_file(path, save)
