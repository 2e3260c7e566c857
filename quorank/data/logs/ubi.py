"""Reader of User Behavior Insights (UBI 1.x of OpenSearch): queries and events as JSON lines, features as CSV.

Every `.ndjson`, `.jsonl` or `.json` file of the directory (also .gz) has one JSON object per line: a document of the index
`ubi_queries` (`query_id`, `client_id`, `timestamp`, `user_query`, `query_response_hit_ids`) or of `ubi_events`
(`action_name`, `query_id`, `client_id`, `event_attributes.object.object_id`, `event_attributes.position.ordinal`), plain,
under `_source` of a hit, or after the `index` line of a bulk request. A document with an `action_name` is an event.

UBI holds no features. They come from `features.csv`, as the search engine logged them when it ranked the list: `query_id`,
`object_id` and a column per feature, the lines of a query adjacent.

A list is `query_response_hit_ids`, or else the objects of the query's `impression` events by their ordinal. `click` and
`item_click` events are clicks. Queries without a list, a client or a time are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quorank.data.logs.click_log import HIGHEST_RANK, NO_TIME, SearchBlock, read_time
from quorank.data.logs.csv_table import CsvTable, find_file
from quorank.errors import BadInput, brief, first_line, require
from quorank.files.documents import load_json
from quorank.files.untrusted import numbered_lines

ENDINGS = tuple(f"{ending}{packed}" for ending in (".ndjson", ".jsonl", ".json") for packed in ("", ".gz"))
FEATURES = ("features.csv", "features.csv.gz")
CLICKS, IMPRESSIONS = frozenset({"click", "item_click"}), "impression"
_EXPECTED = "expected JSON lines of ubi_queries and ubi_events"
_EXPECTED_FEATURES = "expected a CSV file with the columns query_id, object_id, and one for each feature"
_KEYS = ("query_id", "object_id")
_MILLISECOND = 1000
_SEARCHES = 256  # of a block
_MOST_JSON = 1 << 20  # bytes of a line: what is parsed takes up to thirty times as much


@dataclass
class _Query:
    """Query and its events."""

    client: str = ""
    time: int = NO_TIME
    text: str = ""
    hits: tuple[str, ...] = ()
    impressions: dict[str, float] = field(default_factory=dict)  # by object: its ordinal
    clicks: set[str] = field(default_factory=set)

    @property
    def shown(self) -> tuple[str, ...]:
        """Return the objects of the list in their order."""
        return self.hits or tuple(sorted(self.impressions, key=lambda name: self.impressions[name]))


def ubi_features(folder: Path) -> tuple[str, ...]:
    """Return the names of the features in `features.csv`."""
    return _open_features(find_file(folder, FEATURES)).feature_names(_KEYS)


def _open_features(path: Path) -> CsvTable:
    return CsvTable.open(path, _KEYS, _EXPECTED_FEATURES)


def read_ubi(folder: Path, skipped: dict[str, int]) -> Iterator[SearchBlock]:
    """Yield the searches of a folder in the order of `features.csv`; `skipped` counts what was left out, by reason."""
    files = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    require(files, "file.missing", f"has no .ndjson, .jsonl or .json file; {_EXPECTED}", f"{folder}")
    queries: dict[str, _Query] = {}
    for path in files:
        _read_documents(path, queries)
    path = find_file(folder, FEATURES)
    block: list[_Search] = []
    for query_id, lines, objects, numbers in _lists(path):
        query = queries.pop(query_id, None)
        where = f"{path}:{lines[0]}"
        sentence = f"query {brief(query_id)} is in no document of ubi_queries or ubi_events, or stands in two places"
        require(query is not None, "ubi.unknown-query", sentence, where)
        assert query is not None
        why = _skip_reason(query)
        if why:
            skipped[why] = skipped.get(why, 0) + 1
            continue
        place = {name: rank for rank, name in enumerate(query.shown, 1)}
        shown = [row for row, name in enumerate(objects) if name in place]
        lost = len(query.clicks - {objects[row] for row in shown})
        if lost:
            skipped["clicks on objects without features"] = skipped.get("clicks on objects without features", 0) + lost
        if not shown:
            skipped["queries without features"] = skipped.get("queries without features", 0) + 1
            continue
        shown.sort(key=lambda row: place[objects[row]])
        block.append((query_id, query, where, [objects[row] for row in shown], place, numbers[shown]))
        if len(block) >= _SEARCHES:
            yield _searches(block)
            block = []
    if queries:
        skipped["queries without features"] = skipped.get("queries without features", 0) + len(queries)
    if block:
        yield _searches(block)


_Search = tuple[str, _Query, str, list[str], dict[str, int], Any]
"""(query id, query, place, objects in their order, ranks of objects, (objects, features))."""


def _skip_reason(query: _Query) -> str:
    """Return why a query cannot be imported; empty if it can."""
    if not query.client:
        return "queries without a client_id"
    if query.time == NO_TIME:
        return "queries without a timestamp"
    if not query.shown:
        return "queries without a list"
    return "" if len(query.shown) <= HIGHEST_RANK else "queries with too long a list"


def _searches(found: list[_Search]) -> SearchBlock:
    documents = [name for _, _, _, objects, _, _ in found for name in objects]
    clicks = [name in query.clicks for _, query, _, objects, _, _ in found for name in objects]
    ranks = [place[name] for _, _, _, objects, place, _ in found for name in objects]
    return SearchBlock(
        [query.client for _, query, *_ in found],
        np.array([query.time for _, query, *_ in found], dtype=np.int64),
        [query_id for query_id, *_ in found],
        [query.text for _, query, *_ in found],
        np.array([len(objects) for _, _, _, objects, _, _ in found], dtype=np.int64),
        np.concatenate([numbers for *_, numbers in found]),
        np.array(clicks, dtype=np.int8),
        np.array(ranks, dtype=np.int16),
        documents,
        [where for _, _, where, *_ in found],
    )


# ------------------------------------------------------------ queries and events


def _read_documents(path: Path, queries: dict[str, _Query]) -> None:
    for line, content in numbered_lines(path, _EXPECTED, _MOST_JSON):
        if not content.strip():
            continue
        where = f"{path}:{line}"
        try:
            document = load_json(content)
        except (ValueError, MemoryError) as error:
            raise BadInput("ubi.not-json", f"is no JSON object ({first_line(error)}); {_EXPECTED}", where) from None
        require(isinstance(document, dict), "ubi.not-json", f"is no JSON object; {_EXPECTED}", where)
        if len(document) == 1 and isinstance(document.get("index", document.get("create")), dict):
            continue  # a line of a bulk request: the document follows
        document = document.get("_source", document)
        require(isinstance(document, dict), "ubi.not-json", f"has a _source that is no object; {_EXPECTED}", where)
        try:
            _take(document, queries)
        except BadInput as error:
            raise error.at(where) from None


def _take(document: dict[str, Any], queries: dict[str, _Query]) -> None:
    query_id = _text(document, "query_id")
    action = document.get("action_name")
    if not query_id:
        require(action is not None, "ubi.no-query-id", "has neither a query_id nor an action_name")
        return  # an event outside of any search
    query = queries.setdefault(query_id, _Query())
    query.client = query.client or _text(document, "client_id")
    if action is None:
        query.text = _text(document, "user_query")
        query.time = _time(document)
        hits = document.get("query_response_hit_ids") or []
        sound = isinstance(hits, list) and all(isinstance(hit, str | int) for hit in hits)
        require(sound, "ubi.bad-list", "has a query_response_hit_ids that is no list of ids")
        query.hits = tuple(dict.fromkeys(str(hit) for hit in hits))
        return
    require(isinstance(action, str), "ubi.bad-action", "has an action_name that is no text")
    if action not in CLICKS and action != IMPRESSIONS:
        return
    attributes = _table(document, "event_attributes")
    name = _text(_table(attributes, "object"), "object_id")
    if not name:
        return
    if action in CLICKS:
        query.clicks.add(name)
        return
    ordinal = _table(attributes, "position").get("ordinal", attributes.get("rank"))
    if isinstance(ordinal, int | float) and not isinstance(ordinal, bool):
        query.impressions.setdefault(name, float(min(max(ordinal, -1e9), 1e9)))


def _time(document: dict[str, Any]) -> int:
    found = document.get("timestamp")
    if found is None:
        return NO_TIME
    sound = isinstance(found, str | int) and not isinstance(found, bool)
    require(sound, "log.bad-time", f"found {brief(found)} as a timestamp, expected a date or milliseconds since 1970")
    return read_time(str(found), _MILLISECOND)


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _text(document: dict[str, Any], key: str) -> str:
    found = document.get(key)
    if found is None:
        return ""
    sound = isinstance(found, str | int) and not isinstance(found, bool)
    require(sound, "ubi.bad-field", f"has a {key} that is no text")
    return str(found)


# ------------------------------------------------------------ features


def _lists(path: Path) -> Iterator[tuple[str, list[int], list[str], Any]]:
    """Yield (query id, lines, objects, (objects, features)) of each query of `features.csv`."""
    table = _open_features(path)
    head = table.columns
    query, name = (head.index(key) for key in _KEYS)
    columns = [place for place in range(len(head)) if place not in (query, name)]
    last = ""
    lines: list[int] = []
    objects: list[str] = []
    numbers: list[list[float]] = []
    for line, record in table.records:
        where = f"{path}:{line}"
        require(record[query] and record[name], "ubi.no-id", "has no query_id or no object_id", where)
        if record[query] != last and lines:
            yield last, lines, objects, np.array(numbers, dtype=np.float32)
            lines, objects, numbers = [], [], []
        last = record[query]
        require(record[name] not in objects, "ubi.object-twice", f"has {brief(record[name])} twice", where)
        sentence = "this query has more lines than there are ranks"
        require(len(lines) < HIGHEST_RANK, "log.list-too-long", sentence, where)
        lines.append(line)
        objects.append(record[name])
        numbers.append([_number(record[place], head[place], where) for place in columns])
    if lines:
        yield last, lines, objects, np.array(numbers, dtype=np.float32)


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    largest = float(np.finfo(np.float32).max)
    sentence = f"found {brief(text)} as {brief(name)}, expected a finite float32 number"
    require(-largest <= value <= largest, "log.not-a-number", sentence, where)
    return value
