"""Targets of `quorank.data.logs`: the formats of click logs that are imported, and the columns that are kept of them."""

from __future__ import annotations

import os
from pathlib import Path

from fuzz.target import as_folder, scratch, target
from quorank.data.logs.click_log import LogWriter, open_log, read_time, write_time
from quorank.data.logs.generated import generated_log
from quorank.data.logs.importing import export_log, import_log
from quorank.data.logs.splitting import log_collection
from quorank.data.normalisation import normalize_queries

_CSV = (
    b"search",
    b"click",
    b"rank",
    b"time",
    b'"',
    b'""',
    b",",
    b"\r\n",
    b"nan",
    b"1e39",
    b"2006-03-01T00:00:00Z",
    b"-1",
)
_UBI = (
    b'"query_id"',
    b'"client_id"',
    b'"action_name"',
    b'"click"',
    b'"_source"',
    b"=== features.csv\n",
    b"null",
    b"1e400",
)


def _imported(folder: Path, format_: str, name: str) -> Path:
    os.environ["QUORANK_HOME"] = str(folder.parent / "home")
    entry, _ = import_log(folder, format_, name)
    open_log(Path(entry.path))
    return Path(entry.path)


def _columns(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@target("log-csv", words=_CSV, seconds=10)
def log_csv(data: bytes) -> None:
    """A log as CSV; what was read, written and read again has the same bytes."""
    folder = scratch() / "log"
    folder.mkdir()
    (folder / "clicks.csv").write_bytes(data)
    first = _imported(folder, "csv", "first")
    export_log(str(first), folder.parent / "out")
    again = _imported(folder.parent / "out", "csv", "again")
    assert _columns(first) == _columns(again), "written and read back it is another one"


@target("log-aol4foltr", words=(*_CSV, b" qid:", b"=== metadata.csv\n", b"=== letor.txt\n"), seconds=10)
def log_aol4foltr(data: bytes) -> None:
    """Both files of AOL4FOLTR, each behind its name."""
    _imported(as_folder(data, scratch() / "log"), "aol4foltr", "log")


@target("log-ubi", words=(*_CSV, *_UBI), seconds=10)
def log_ubi(data: bytes) -> None:
    """Queries, events and features of UBI, each file behind its name."""
    _imported(as_folder(data, scratch() / "log"), "ubi", "log")


@target("log-baidu-ultr", seconds=10)
def log_baidu_ultr(data: bytes) -> None:
    """A Feather file of Baidu-ULTR."""
    folder = scratch() / "log"
    folder.mkdir()
    (folder / "part-0_split-0.feather").write_bytes(data)
    _imported(folder, "baidu-ultr", "log")


@target("log-columns", words=(b"=== user.npy\n", b"=== log.json\n", b"'<i8'", b"(3,)"))
def log_columns(data: bytes) -> None:
    """Columns of an imported log, some of them exchanged; a log that opens is divided into splits."""
    folder = scratch() / "log"
    folder.mkdir()
    log = generated_log("clicks", 6, 1)
    writer = LogWriter(folder, log.feature_names)
    for number in range(log.n_searches):
        writer.add(log.search(number))
    writer.close()
    name, _, content = data.partition(b"\n")
    path = folder / (name.decode("ascii", "replace").replace("/", "") or "log.json")
    if len(path.name) < 100 and "\0" not in path.name and path.name not in (".", ".."):
        path.write_bytes(content)
    log_collection(open_log(folder), "log").changed(normalize_queries)


@target("log-time", words=(b"T", b"Z", b"+01:00", b"-", b".", b"W01", b"1e5"))
def log_time(data: bytes) -> None:
    """A time of a log, written and read back."""
    found = read_time(data.decode("utf-8", "replace"))
    assert read_time(write_time(found)) == found, "written and read back it is another time"
