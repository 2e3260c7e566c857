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

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorank.data.layout import find_file
from quorank.data.logs.click_log import HIGHEST_RANK, NO_TIME, Search, read_time
from quorank.data.logs.csv_table import CsvTable, Row
from quorank.errors import BadInput, brief, first_line, require
from quorank.files.documents import load_json
from quorank.files.untrusted import numbered_lines

ENDINGS = tuple(f"{ending}{packed}" for ending in (".ndjson", ".jsonl", ".json") for packed in ("", ".gz"))
FEATURES = "features.csv"
CLICKS, IMPRESSIONS = frozenset({"click", "item_click"}), "impression"
_EXPECTED = "expected JSON lines of ubi_queries and ubi_events"
_EXPECTED_FEATURES = "expected a CSV file with the columns query_id, object_id, and one for each feature"
_KEYS = ("query_id", "object_id")
_MILLISECOND = 1000
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
    return _open_features(folder).feature_names(_KEYS)


def _open_features(folder: Path) -> CsvTable:
    return CsvTable.open(find_file(folder, FEATURES), _KEYS, _EXPECTED_FEATURES)


def read_ubi(folder: Path, skipped: Counter[str]) -> Iterator[Search]:
    """Yield the searches of a folder in the order of `features.csv`; `skipped` counts what was left out, by reason."""
    files = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    require(files, "file.missing", f"has no .ndjson, .jsonl or .json file; {_EXPECTED}", f"{folder}")
    queries: dict[str, _Query] = {}
    for path in files:
        _read_documents(path, queries)
    table = _open_features(folder)
    names = table.feature_names(_KEYS)
    for run in table.runs(("query_id",)):
        search = _listed_search(table, names, run, queries, skipped)
        if search is not None:
            yield search
    skipped["queries without features"] += len(queries)


def _listed_search(
    table: CsvTable, names: tuple[str, ...], run: list[Row], queries: dict[str, _Query], skipped: Counter[str]
) -> Search | None:
    """Remove the query of a run of feature lines from `queries`; return None and count the reason if it is skipped."""
    query_id, objects = table.texts("query_id", run)[0], table.texts("object_id", run)
    for place, name in enumerate(objects):
        require(query_id and name, "ubi.no-id", "has no query_id or no object_id", table.place(run[place]))
        first = name not in objects[:place]
        require(first, "ubi.object-twice", f"has {brief(name)} twice", table.place(run[place]))
    features = table.numbers(names, run)
    query, where = queries.pop(query_id, None), table.place(run[0])
    sentence = f"query {brief(query_id)} is in no document of ubi_queries or ubi_events, or stands in two places"
    require(query is not None, "ubi.unknown-query", sentence, where)
    assert query is not None
    for skip, reason in (
        (not query.client, "queries without a client_id"),
        (query.time == NO_TIME, "queries without a timestamp"),
        (not query.shown, "queries without a list"),
        (len(query.shown) > HIGHEST_RANK, "queries with too long a list"),
    ):
        if skip:
            skipped[reason] += 1
            return None
    place_of = {name: rank for rank, name in enumerate(query.shown, 1)}
    listed = sorted((place_of[name], row) for row, name in enumerate(objects) if name in place_of)
    ranks, rows = [rank for rank, _ in listed], [row for _, row in listed]
    found = [objects[row] for row in rows]
    skipped["clicks on objects without features"] += len(query.clicks - {*found})
    if not found:
        skipped["queries without features"] += 1
        return None
    clicks = [name in query.clicks for name in found]
    return Search(query.client, query.time, query_id, query.text, features[rows], clicks, ranks, found, where)


# ------------------------------------------------------------ queries and events


def _read_documents(path: Path, queries: dict[str, _Query]) -> None:
    for line, content in numbered_lines(path, path, _MOST_JSON, _EXPECTED):
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
