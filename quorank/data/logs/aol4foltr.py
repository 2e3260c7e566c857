"""Reader of AOL4FOLTR (Gregoriadis, Kang and Pouwelse 2025, arXiv 2508.12353): `letor.txt` and `metadata.csv`.

`letor.txt` (plain or .gz) has a line for each candidate, `label qid:ID 1:… … 103:…`, the lines of a query together; the
label is 1 for the one clicked document. `metadata.csv` has a line for each query: `qid`, `user_id`, `timestamp`, `query`,
`target_doc_id` (or `doc_id`) and `candidate_doc_ids`. The candidates were collected afterwards, so ranks are unknown, and
only the clicked document has an id.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.data.layout import find_file
from quorank.data.letor.reader import letor_blocks
from quorank.data.logs.click_log import Search, joined_runs, read_time
from quorank.data.logs.csv_table import CsvTable
from quorank.data.ranking import pad
from quorank.errors import BadInput, brief, require
from quorank.kernels.arrays import Booleans, Floats, Int8s, Integers

_STREAMS = ("title", "body", "url")
_STATISTICS = ("min", "max", "sum", "mean", "variance")
_KINDS = (
    "BM25",
    *(f"{kind} {part}" for kind in ("TF", "IDF", "TF-IDF", "length", "normalised TF") for part in _STATISTICS),
    *("cosine", "covered terms", "covered ratio", "characters", "terms", "query terms", "exact match", "match ratio"),
)
FEATURE_NAMES = (
    *(f"{kind} {stream}" for kind in _KINDS for stream in _STREAMS),
    "slashes url",
)  # in the authors' order
NEEDED = ("qid", "user_id", "timestamp")
LETOR, METADATA = "letor.txt", "metadata.csv"
_EXPECTED = "expected metadata.csv of AOL4FOLTR with the columns qid, user_id, timestamp, query"


class _Metadata(NamedTuple):
    """Columns of `metadata.csv`, sorted by the number of the query."""

    qids: Integers
    times: Integers
    users: list[str]
    queries: list[str]
    targets: list[str]
    seen: Booleans


def read_aol4foltr(folder: Path, counted: Callable[[int], None] | None = None) -> Iterator[Search]:
    """Yield the searches of a folder in the order of `letor.txt`."""
    letor, table = (find_file(folder, name) for name in (LETOR, METADATA))
    metadata = _read_metadata(table)
    for query, place, (features, clicks) in joined_runs(_runs(letor, counted)):
        sound = query.isdigit() and len(query) <= 18
        require(sound, "aol4foltr.bad-qid", f"found qid {brief(query.decode('latin-1'))}, expected an integer", place)
        at = min(int(np.searchsorted(metadata.qids, int(query))), len(metadata.qids) - 1)
        known = int(metadata.qids[at]) == int(query)
        require(known, "aol4foltr.unknown-qid", f"query {int(query)} stands in no line of metadata.csv", place)
        sentence = f"query {int(query)} stands in two places; expected its lines together"
        require(not metadata.seen[at], "aol4foltr.qid-twice", sentence, place)
        metadata.seen[at] = True
        require(clicks.max() <= 1, "log.bad-click", f"found label {clicks.max()}, expected 0 or 1", place)
        target = metadata.targets[at] if clicks.sum() == 1 else ""
        yield Search(
            metadata.users[at], int(metadata.times[at]), str(int(query)), metadata.queries[at], features, clicks,
            np.zeros(len(clicks), dtype=np.int16), [target if click else "" for click in clicks.tolist()], place,
        )  # fmt: skip


def _runs(path: Path, counted: Callable[[int], None] | None) -> Iterator[tuple[bytes, str, tuple[Floats, Int8s]]]:
    """Yield (query, place, features and labels) of the consecutive rows of each query."""
    width = 0
    for block in letor_blocks(path):
        width = width or block.n_features
        wider = block.padded[:, width:].any(axis=1)
        sentence = f"names a feature beyond {width}, the last one so far; expected the same features in all rows"
        if wider.any():
            raise BadInput("letor.more-features", sentence, f"{path}:{block.line + int(np.argmax(wider))}")
        features = pad(block.padded, width)[:, :width] if block.padded.shape[1] < width else block.padded[:, :width]
        for query, (first, last) in zip(block.queries, pairwise(block.starts.tolist()), strict=True):
            yield query, f"{path}:{block.line + first}", (features[first:last], block.labels[first:last])
        if counted:
            counted(block.size)
    require(width, "letor.no-features", "holds no features", f"{path}")


def _read_metadata(path: Path) -> _Metadata:
    table = CsvTable.open(path, NEEDED, _EXPECTED, "aol4foltr.no-column")
    place = {name: table.columns.index(name) for name in table.columns}
    qid, user, time = (place[name] for name in NEEDED)
    target = place.get("target_doc_id", place.get("doc_id"))
    query = place.get("query")
    qids, times = [], []
    columns: tuple[list[str], list[str], list[str]] = ([], [], [])
    for line, record in table.records:
        where = f"{path}:{line}"
        number = record[qid]
        sound = number.isascii() and number.isdigit() and len(number) <= 18
        require(sound, "aol4foltr.bad-qid", f"found qid {brief(number)}, expected an integer", where)
        require(record[user], "aol4foltr.no-user", "has no user_id", where)
        try:
            times.append(read_time(record[time]))
        except BadInput as error:
            raise error.at(where) from None
        qids.append(int(number))
        columns[0].append(sys.intern(record[user]))
        columns[1].append(record[query] if query is not None else "")
        columns[2].append(record[target] if target is not None else "")
    require(qids, "aol4foltr.empty", f"has no queries; {_EXPECTED}", f"{path}")
    numbers = np.array(qids, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    if (np.diff(numbers) == 0).any():
        twice = numbers[int(np.argmax(np.diff(numbers) == 0))]
        raise BadInput("aol4foltr.qid-twice", f"has two lines for query {twice}", f"{path}")
    users, queries, targets = ([column[place] for place in order.tolist()] for column in columns)
    moments, seen = np.array(times, dtype=np.int64)[order], np.zeros(len(order), np.bool_)
    return _Metadata(numbers, moments, users, queries, targets, seen)
