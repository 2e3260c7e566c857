"""Import of a click log in one of the known formats into the library, and its export as CSV."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from quorank.data.importing import Report, collection_name
from quorank.data.layout import find_file
from quorank.data.library import ImportedCollection, folder_of, library_folder, register_collection
from quorank.data.logs.aol4foltr import FEATURE_NAMES, LETOR, read_aol4foltr
from quorank.data.logs.baidu_ultr import Which, baidu_features, feather_files, read_baidu_ultr
from quorank.data.logs.click_log import LogWriter, Search, is_log, new_log_folder, open_log
from quorank.data.logs.csv_table import csv_files, feature_columns, read_csv_log, write_csv_log
from quorank.data.logs.ubi import read_ubi, ubi_features
from quorank.errors import BadInput, require
from quorank.files.atomic import expand_home
from quorank.files.untrusted import file_size

FORMATS = ("aol4foltr", "baidu-ultr", "ubi", "csv")
_SECONDS = 5.0  # between two reports

Skipped = Counter[str]  # number of skipped searches or clicks by reason


def import_log(
    path: Path, format_: str, name: str | None = None, report: Report = lambda _: None, which: Which = "all"
) -> tuple[ImportedCollection, Skipped]:
    """Import a log into the library in constant memory.

    Args:
        path: Directory or file of the log.
        format_: One of `FORMATS`.
        name: Name in the library, by default that of the path; an existing log is replaced when the new one is complete.
        report: Receives progress messages.
        which: Features of Baidu-ULTR to import.

    Returns:
        The library's entry, and the number of skipped searches by reason.
    """
    path = expand_home(path)
    require(path.exists(), "file.missing", f"there is no {path}; expected a folder with a log")
    known_as = collection_name(path, name)
    progress = _ImportProgress(path, report)
    folder = library_folder("collections") / known_as
    within = folder.resolve() in (path.resolve(), *path.resolve().parents)
    sentence = "lies where the log would be kept, and would be replaced by it; give another --name"
    require(not within, "log.in-its-own-place", sentence, f"{path}")
    skipped: Skipped = Counter()
    names, searches = _reader(path, format_, which, skipped, progress)
    try:
        with new_log_folder(folder) as temporary:
            writer = LogWriter(temporary, names)
            for search in searches:
                writer.add(search)
                progress.show(writer.searches)
            require(writer.searches, "log.empty", f"has no searches that can be used{_listed(skipped)}", f"{path}")
            writer.close()
    except OSError as error:
        sentence = f"cannot be written: {error.strerror or error}; set QUORANK_HOME"
        raise BadInput("file.unwritable", sentence, f"{folder}") from None
    entry = ImportedCollection(known_as, str(folder.resolve()), 1, len(names), writer.searches, writer.rows)
    register_collection(entry)
    return entry, +skipped


def export_log(source: str, out: Path, report: Report = lambda _: None) -> Path:
    """Write an imported log as `clicks.csv` in a folder, which imports to the same columns, byte for byte."""
    folder = folder_of(source)
    require(is_log(folder), "log.not-a-log", "is no log of clicks; expected the name of an imported one", source)
    log = open_log(folder)
    file = out / "clicks.csv"
    report(f"writing {file}: {log.n_searches:,} searches, {log.n_rows:,} rows")
    write_csv_log(log, file)
    return file


def _reader(
    path: Path, format_: str, which: Which, skipped: Skipped, progress: _ImportProgress
) -> tuple[tuple[str, ...], Iterator[Search]]:
    """Return the feature names of a log and its searches."""
    sentence = "is a file; expected a folder with the files of the log"
    require(format_ == "csv" or path.is_dir(), "file.not-a-folder", sentence, f"{path}")
    if format_ == "aol4foltr":
        letor = find_file(path, LETOR)
        progress.total = None if letor.suffix == ".gz" else file_size(letor)
        searches = read_aol4foltr(path, progress.count)
        first = next(searches)
        width = first.features.shape[1]
        names = FEATURE_NAMES if width == len(FEATURE_NAMES) else tuple(f"f{number}" for number in range(1, width + 1))
        return names, chain([first], searches)
    if format_ == "baidu-ultr":
        files = feather_files(path)
        progress.total = sum(file_size(file) for file in files)
        return baidu_features(files[0], which), read_baidu_ultr(path, which, progress.count)
    if format_ == "ubi":
        return ubi_features(path), read_ubi(path, skipped)
    require(format_ == "csv", "log.unknown-format", f"expected one of {', '.join(FORMATS)}", format_)
    tables = csv_files(path)
    names = feature_columns(tables[0])
    return names, (search for table in tables for search in read_csv_log(table, names))


def _listed(skipped: Skipped) -> str:
    return "; left out: " + ", ".join(f"{count:,} {why}" for why, count in (+skipped).items()) if +skipped else ""


class _ImportProgress:
    """Progress of an import, reported every few seconds."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path, self._report, self._bytes = path, report, 0
        self._started = self._reported = time.monotonic()
        self.total: int | None = None

    def count(self, more: int) -> None:
        """Count bytes that were read."""
        self._bytes += more

    def show(self, searches: int) -> None:
        """Report the number of searches, and the seconds left if the total is known."""
        now = time.monotonic()
        if now - self._reported < _SECONDS:
            return
        self._reported = now
        read, left = f", {self._bytes / 1e9:.1f} GB read" if self._bytes else "", ""
        if self.total and self._bytes:
            left = f" of {self.total / 1e9:.1f}, {(now - self._started) * (self.total / self._bytes - 1):,.0f} s left"
        self._report(f"{self._path.name}: {searches:,} searches{read}{left}")
