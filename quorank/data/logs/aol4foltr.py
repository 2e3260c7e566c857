"""Reader of AOL4FOLTR (Gregoriadis, Kang and Pouwelse 2025, arXiv 2508.12353): `letor.txt` and `metadata.csv`.

`letor.txt` (plain or .gz) has a line for each candidate, `label qid:ID 1:… … 103:…`, the lines of a query together; the
label is 1 for the one clicked document. `metadata.csv` has a line for each query: `qid`, `user_id`, `timestamp`, `query`,
`target_doc_id` (or `doc_id`) and `candidate_doc_ids`. The candidates were collected afterwards, so ranks are unknown, and
only the clicked document has an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quorank.data.letor.reader import letor_blocks
from quorank.data.logs.click_log import SearchBlock, read_time
from quorank.data.logs.csv_table import CsvTable, find_file
from quorank.errors import BadInput, brief, require
from quorank.kernels.arrays import Booleans, Floats, Int8s, Integers

FEATURES = 103
STREAMS = ("title", "body", "url")
_STATISTICS = ("min", "max", "sum", "mean", "variance")
_KINDS = (
    "BM25",
    *(f"{kind} {part}" for kind in ("TF", "IDF", "TF-IDF", "length", "normalised TF") for part in _STATISTICS),
    *("cosine", "covered terms", "covered ratio", "characters", "terms", "query terms", "exact match", "match ratio"),
)
FEATURE_NAMES = (*(f"{kind} {stream}" for kind in _KINDS for stream in STREAMS), "slashes url")
"""Names of the 103 features, in the order of the authors' list."""

NEEDED = ("qid", "user_id", "timestamp")
LETOR, METADATA = ("letor.txt", "letor.txt.gz"), ("metadata.csv", "metadata.csv.gz")
_EXPECTED = "expected metadata.csv of AOL4FOLTR with the columns qid, user_id, timestamp, query"


class _Metadata(NamedTuple):
    """Columns of `metadata.csv`, sorted by the number of the query."""

    qids: Integers
    times: Integers
    users: list[str]
    queries: list[str]
    targets: list[str]
    seen: Booleans


def read_aol4foltr(folder: Path, counted: Callable[[int], None] | None = None) -> Iterator[SearchBlock]:
    """Yield the searches of a folder in the order of `letor.txt`."""
    letor, table = (find_file(folder, names) for names in (LETOR, METADATA))
    metadata = _read_metadata(table)
    rest: list[tuple[bytes, int, Floats, Int8s]] = []  # of the last query, which may go on
    for block in letor_blocks(letor, counted):
        runs = []
        for number, query in enumerate(block.queries):
            rows = slice(int(block.starts[number]), int(block.starts[number + 1]))
            runs.append((query, int(block.lines[number]), block.padded[rows, : block.n_features], block.labels[rows]))
        if rest and runs[0][0] == rest[0][0]:
            rest.append(runs.pop(0))
            if not runs:
                continue
        whole = ([_joined(rest)] if rest else []) + runs[:-1]
        rest = [(query, line, features.copy(), labels.copy()) for query, line, features, labels in runs[-1:]]
        if whole:
            yield _searches(letor, whole, metadata)
    if rest:
        yield _searches(letor, [_joined(rest)], metadata)


def _joined(parts: list[tuple[bytes, int, Floats, Int8s]]) -> tuple[bytes, int, Floats, Int8s]:
    features, labels = (np.concatenate([part[place] for part in parts]) for place in (2, 3))
    return parts[0][0], parts[0][1], features, labels


def _searches(path: Path, runs: list[tuple[bytes, int, Floats, Int8s]], metadata: _Metadata) -> SearchBlock:
    numbers, places = [], [f"{path}:{line}" for _, line, _, _ in runs]
    for (query, _, _, _), place in zip(runs, places, strict=True):
        sound = query.isdigit() and len(query) <= 18
        require(sound, "aol4foltr.bad-qid", f"found qid {brief(query.decode('latin-1'))}, expected an integer", place)
        numbers.append(int(query))
    qids = np.array(numbers, dtype=np.int64)
    at = np.minimum(np.searchsorted(metadata.qids, qids), len(metadata.qids) - 1)
    for wrong, code, sentence in (
        (metadata.qids[at] != qids, "aol4foltr.unknown-qid", "stands in no line of metadata.csv"),
        (metadata.seen[at], "aol4foltr.qid-twice", "stands in two places; expected its lines together"),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            raise BadInput(code, f"query {qids[first]} {sentence}", places[first])
    metadata.seen[at] = True
    lengths = np.array([len(labels) for _, _, _, labels in runs], dtype=np.int64)
    clicks = np.concatenate([labels for _, _, _, labels in runs])
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if (clicks > 1).any():
        row = int(np.argmax(clicks > 1))
        search = int(np.searchsorted(offsets, row, "right")) - 1
        raise BadInput("log.bad-click", f"found label {clicks[row]}, expected 0 or 1", places[search])
    documents = [""] * len(clicks)
    for search, place in enumerate(at.tolist()):
        clicked = np.flatnonzero(clicks[offsets[search] : offsets[search + 1]])
        if len(clicked) == 1:
            documents[int(offsets[search] + clicked[0])] = metadata.targets[place]
    return SearchBlock(
        [metadata.users[place] for place in at.tolist()],
        metadata.times[at],
        [str(number) for number in numbers],
        [metadata.queries[place] for place in at.tolist()],
        lengths,
        np.concatenate([features for _, _, features, _ in runs]),
        clicks,
        np.zeros(len(clicks), dtype=np.int16),
        documents,
        places,
    )


def _read_metadata(path: Path) -> _Metadata:
    table = CsvTable.open(path, NEEDED, _EXPECTED, "aol4foltr.no-column")
    place = {name: table.columns.index(name) for name in table.columns}
    qid, user, time = (place[name] for name in NEEDED)
    target = place.get("target_doc_id", place.get("doc_id"))
    query = place.get("query")
    qids, times = [], []
    columns: tuple[list[str], list[str], list[str]] = ([], [], [])
    known: dict[str, str] = {}  # one text for each user, not one for each search
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
        columns[0].append(known.setdefault(record[user], record[user]))
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
    return _Metadata(
        numbers, np.array(times, dtype=np.int64)[order], users, queries, targets, np.zeros(len(order), np.bool_)
    )
