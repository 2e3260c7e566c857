"""Small logs of clicks in each of the formats that are imported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import feather

from quorank.data.library import ImportedCollection
from quorank.data.logs.click_log import ClickLog, LogWriter, open_log
from quorank.data.logs.importing import import_log

CSV = (
    "user,time,search,query,document,rank,click,bm25,len\n"
    "anna,2006-03-01T00:01:03Z,1,cats,a,1,0,0.5,3\n"
    "anna,2006-03-01T00:01:03Z,1,cats,b,2,1,0.25,4\n"
    'ben,2006-02-01T00:00:00Z,2,"dogs, and ""more""",a,1,1,1e-3,3\n'
    'ben,2006-02-01T00:00:00Z,2,"dogs, and ""more""",c,3,0,-2,5\n'
    "anna,1141171264.5,3,cats,b,1,0,0,1\n"
)
LETOR = "0 qid:7 1:0.5 2:3\n1 qid:7 1:0.25 2:4\n1 qid:5 1:1 2:3\n0 qid:5 1:2 2:5\n"
METADATA = (
    "qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids\n"
    "5,71,2006-03-01 00:01:04,dogs,d5,\"{'d5', 'x'}\"\n"
    "7,142,2006-03-01 00:01:03,cats,d7,\"{'d7', 'y'}\"\n"
)
QUERIES = [
    {"query_id": "q1", "client_id": "anna", "timestamp": "2024-06-01T00:00:01.500Z", "user_query": "cats",
     "query_response_hit_ids": ["b", "a", "c"]},
    {"query_id": "q2", "client_id": "ben", "timestamp": 1717200000000, "user_query": "dogs"},
    {"query_id": "q3", "timestamp": 1717200000000, "query_response_hit_ids": ["a"]},
]  # fmt: skip
EVENTS = [
    {"action_name": "click", "query_id": "q1", "event_attributes": {"object": {"object_id": "a"}}},
    {"action_name": "login", "client_id": "anna"},
    {"action_name": "impression", "query_id": "q2",
     "event_attributes": {"object": {"object_id": "z"}, "position": {"ordinal": 2}}},
    {"action_name": "impression", "query_id": "q2",
     "event_attributes": {"object": {"object_id": "y"}, "position": {"ordinal": 1}}},
    {"action_name": "item_click", "query_id": "q2", "event_attributes": {"object": {"object_id": "z"}}},
]  # fmt: skip
UBI_FEATURES = "query_id,object_id,bm25,age\nq1,a,1,2\nq1,b,3,4\nq2,z,5,6\nq2,y,7,8\nq3,a,1,1\n"


def write_csv(folder: Path, text: str = CSV) -> Path:
    """Write a folder with one CSV log."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clicks.csv").write_text(text, encoding="utf-8")
    return folder


def write_aol(folder: Path, letor: str = LETOR, metadata: str = METADATA) -> Path:
    """Write a folder as AOL4FOLTR has it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "letor.txt").write_text(letor, encoding="utf-8")
    (folder / "metadata.csv").write_text(metadata, encoding="utf-8")
    return folder


def write_ubi(folder: Path, features: str = UBI_FEATURES) -> Path:
    """Write a folder of UBI: queries as they are, events as hits of a search."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(query) for query in QUERIES]
    (folder / "ubi_queries.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    hits = [line for event in EVENTS for line in ('{"index": {}}', json.dumps({"_index": "e", "_source": event}))]
    (folder / "ubi_events.jsonl").write_text("\n".join(hits), encoding="utf-8")
    (folder / "features.csv").write_text(features, encoding="utf-8")
    return folder


def baidu_table(**changed: object) -> pa.Table:
    """Return a table of two searches as the release has it."""
    columns: dict[str, object] = {
        "query_id": ["9", "9", "9", "4", "4"],
        "position": pa.array([2, 1, 5, 1, 2], pa.int32()),
        "click": pa.array([1, 0, 0, 0, 1], pa.int32()),
        "query_md5": ["m9", "m9", "m9", "m4", "m4"],
        "url_md5": ["u2", "u1", "u5", "v1", "v2"],
        "bm25": pa.array([2.0, 1.0, 5.0, 7.0, 8.0], pa.float32()),
        "query_document_embedding": pa.array(
            [np.array([i, -i], np.float16) for i in (2, 1, 5, 7, 8)], pa.list_(pa.float16())
        ),
    }
    return pa.table({name: column for name, column in (columns | changed).items() if column is not None})


def write_baidu(folder: Path, table: pa.Table | None = None, compression: str = "lz4", chunk: int = 2) -> Path:
    """Write a folder with one Feather file, in batches of `chunk` rows."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    path = folder / "parts" / "part-0_split-0.feather"
    feather.write_feather(baidu_table() if table is None else table, path, compression=compression, chunksize=chunk)
    return folder


def write_log(folder: Path, log: ClickLog) -> Path:
    """Write a log in memory as a folder of columns."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = LogWriter(folder, log.feature_names)
    for number in range(log.n_searches):
        writer.add(log.search(number))
    writer.close()
    return folder


def imported(folder: Path, format_: str, name: str = "log") -> tuple[ImportedCollection, ClickLog]:
    """Import a log and open it."""
    entry, _ = import_log(folder, format_, name)
    return entry, open_log(Path(entry.path))
