"""Logs of clicks: what each format says, what is refused and where, the way back to CSV, and nothing half-written."""

from __future__ import annotations

import gzip
import os
import signal
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from damaged_files import mutations, refusals
from refusals import refused
from small_logs import (
    CSV,
    LETOR,
    METADATA,
    UBI_FEATURES,
    baidu_table,
    imported,
    write_aol,
    write_baidu,
    write_csv,
    write_log,
    write_ubi,
)

from quorank.data.library import imported_collections
from quorank.data.logs import importing
from quorank.data.logs.aol4foltr import FEATURE_NAMES
from quorank.data.logs.click_log import NO_TIME, open_log, read_time, write_time
from quorank.data.logs.generated import generated_log, true_relevance
from quorank.data.logs.importing import export_log, import_log
from quorank.files import untrusted as foreign

SECOND = 1_000_000
MARCH = 1_141_171_200 * SECOND  # 2006-03-01


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUORANK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def columns(name: str, home: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (home / "collections" / name).iterdir()}


def test_csv_says_who_searched_when_and_what_was_clicked(tmp_path: Path) -> None:
    entry, log = imported(write_csv(tmp_path / "x"), "csv")
    assert (entry.queries, entry.rows, entry.features) == (3, 5, 2)
    assert [list(log.users), list(log.searches), list(log.documents)] == [["anna", "ben"], ["1", "2", "3"], [*"abacb"]]
    assert list(log.queries) == ["cats", 'dogs, and "more"', "cats"]
    assert log.user.tolist() == [0, 1, 0] and log.offsets.tolist() == [0, 2, 4, 5]
    assert log.time.tolist() == [MARCH + 63 * SECOND, read_time("2006-02-01"), MARCH + 64 * SECOND + SECOND // 2]
    assert log.clicks.tolist() == [0, 1, 1, 0, 0] and log.ranks.tolist() == [1, 2, 1, 3, 1]
    assert log.features[:, :2].tolist() == np.float32([[0.5, 3], [0.25, 4], [1e-3, 3], [-2, 5], [0, 1]]).tolist()
    assert log.features.shape == (5, 8) and not log.features[:, 2:].any()
    assert log.feature_names == ("bm25", "len") and log.in_order().tolist() == [1, 0, 2]
    assert log.has_users and log.has_times and log.has_ranks
    assert Path(entry.path).stat().st_mode & 0o777 == 0o700  # people's searches


def test_rows_are_kept_in_the_order_of_their_ranks_and_columns_may_be_missing(tmp_path: Path) -> None:
    _, log = imported(write_csv(tmp_path / "x", "click,search,f,rank\n0,1,5,3\n1,1,6,1\n0,2,7,2\n"), "csv")
    assert [log.features[:, 0].tolist(), log.clicks.tolist(), log.ranks.tolist()] == [[6, 5, 7], [1, 0, 0], [1, 3, 2]]
    assert not (log.has_users or log.has_times) and log.time.tolist() == [NO_TIME] * 2
    _, log = imported(write_csv(tmp_path / "y", "click,search,f\n0,1,5\n1,1,6\n"), "csv")
    assert not log.has_ranks and log.clicks.tolist() == [0, 1]
    imported(write_csv(tmp_path / "z", CSV.replace("cats,b,2", 'c"ats",b,2', 1)), "csv")


@pytest.mark.parametrize(
    ("change", "code", "line"),
    [
        (("search,", "serch,"), "csv.no-column", 1),
        (("len\n", "bm25\n"), "csv.column-twice", 1),
        (("bm25,len", "user2"), "csv.fields", 2),
        (("0.25", "x"), "log.not-a-number", 3),
        (("b,2,1,", "b,2,2,"), "log.bad-click", 3),
        (("c,3,", "c,0,"), "log.bad-rank", 5),
        (("c,3,", "c,1,"), "log.ranks", 4),
        (("c,3,", "c,,"), "log.rank-of-some", 4),
        (("1141171264.5", "yesterday"), "log.bad-time", 6),
        (("anna,1141171264.5", ",1141171264.5"), "log.user-of-some", 6),
        (("anna,1141171264.5", "anna,"), "log.time-of-some", 6),
        ((",3,cats", ",,cats"), "log.no-search", 6),
        (("cats,b,2", '"cats,b,2'), "csv.malformed", 3),
    ],
)  # fmt: skip
def test_bad_lines_are_named(tmp_path: Path, home: Path, change: tuple[str, str], code: str, line: int) -> None:
    assert change[0] in CSV
    folder = write_csv(tmp_path / "x", CSV.replace(*change, 1))
    with refused(code, f"{folder / 'clicks.csv'}:{line}"):
        import_log(folder, "csv", "log")
    assert imported_collections() == {} and [*(home / "collections").iterdir()] == []


def test_aol4foltr_is_joined_by_query(tmp_path: Path) -> None:
    _, log = imported(write_aol(tmp_path / "aol"), "aol4foltr")
    assert [[*log.searches], [*log.users], [*log.queries]] == [["7", "5"], ["142", "71"], ["cats", "dogs"]]
    assert log.time.tolist() == [MARCH + 63 * SECOND, MARCH + 64 * SECOND]
    assert log.clicks.tolist() == [0, 1, 1, 0] and list(log.documents) == ["", "d7", "d5", ""]
    assert log.features[:, :2].tolist() == [[0.5, 3], [0.25, 4], [1, 3], [2, 5]] and not log.has_ranks


@pytest.mark.parametrize(
    ("letor", "metadata", "code", "where"),
    [
        (LETOR.replace("qid:5", "qid:6"), METADATA, "aol4foltr.unknown-qid", "letor.txt:3"),
        (LETOR + "0 qid:7 1:1\n", METADATA, "aol4foltr.qid-twice", "letor.txt:5"),
        (LETOR.replace("qid:5", "qid:x"), METADATA, "aol4foltr.bad-qid", "letor.txt:3"),
        (LETOR, METADATA.replace("00:01:04", "noon"), "log.bad-time", "metadata.csv:2"),
        (LETOR, METADATA.replace("5,71,", "5,,"), "aol4foltr.no-user", "metadata.csv:2"),
        (LETOR, METADATA.replace("5,71", "7,71"), "aol4foltr.qid-twice", "metadata.csv"),
        (LETOR, METADATA.replace("user_id", "who"), "aol4foltr.no-column", "metadata.csv:1"),
        ("", METADATA, "letor.no-features", "letor.txt"),
    ],
)
def test_bad_lines_of_aol4foltr_are_named(tmp_path: Path, letor: str, metadata: str, code: str, where: str) -> None:
    folder = write_aol(tmp_path / "aol", letor, metadata)
    with refused(code, f"{folder / where}"):
        import_log(folder, "aol4foltr")


def test_a_log_is_the_same_in_any_pieces_and_packed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AOL4FOLTR's files in one large block, in small ones, and packed: the same columns."""
    users = range(60)
    letor = "".join(
        f"{int(row == query % 7)} qid:{query} " + " ".join(f"{f}:{query + f / 8}" for f in range(1, 104)) + "\n"
        for query in users
        for row in range(7)
    )
    header, *_ = METADATA.splitlines(keepends=True)
    folder = write_aol(
        tmp_path / "aol", letor, header + "".join(f"{q},u{q % 9},{MARCH // SECOND + q},x,d{q},x\n" for q in users)
    )
    _, log = imported(folder, "aol4foltr")
    assert log.feature_names == FEATURE_NAMES and [*log.documents][59 * 7 + 3] == "d59"
    assert log.features[:, :103].tolist() == [[q + f / 8 for f in range(1, 104)] for q in users for _ in range(7)]
    first = columns("log", home)
    (folder / "letor.txt").unlink()
    (folder / "letor.txt.gz").write_bytes(gzip.compress(letor.encode()))
    monkeypatch.setattr("quorank.data.letor.reader._CHUNK", 5_000)
    monkeypatch.setattr("quorank.data.logs.click_log._TOGETHER", 7)
    imported(folder, "aol4foltr", "again")
    assert columns("again", home) == first
    (folder / "letor.txt.gz").write_bytes(gzip.compress(letor.encode() + b"0 qid:60 104:1\n"))
    with refused("letor.more-features", f"{folder / 'letor.txt.gz'}:421"):
        import_log(folder, "aol4foltr")


@pytest.mark.parametrize("name", ["aol", "clicks"])
def test_export_and_import_give_the_same_bytes(tmp_path: Path, home: Path, name: str) -> None:
    made = generated_log(name, 50, 5)
    made.queries[0] = 'a "quoted", and\r\nbroken\nline \N{SNOWMAN}'  # type: ignore[index]
    written = write_log(home / "collections" / "one", made)
    for column in ("features", "clicks", "ranks", "offsets", "user", "time"):
        assert np.array_equal(getattr(open_log(written), column), getattr(made, column)), column
    export_log(str(written), tmp_path / "out")
    imported(tmp_path / "out", "csv", "two")
    assert columns("two", home) == columns("one", home)


def test_ubi_lists_come_from_hits_or_impressions(tmp_path: Path) -> None:
    entry, skipped = import_log(write_ubi(tmp_path / "ubi"), "ubi", "log")
    log = open_log(Path(entry.path))
    assert skipped == {"queries without a client_id": 1}
    assert [[*log.searches], [*log.users], [*log.queries]] == [["q1", "q2"], ["anna", "ben"], ["cats", "dogs"]]
    assert list(log.documents) == ["b", "a", "y", "z"] and log.ranks.tolist() == [1, 2, 1, 2]
    assert log.clicks.tolist() == [0, 1, 0, 1]
    assert log.features[:, :2].tolist() == [[3, 4], [1, 2], [7, 8], [5, 6]]
    assert log.time.tolist() == [read_time("2024-06-01T00:00:01.5"), 1_717_200_000 * SECOND]


@pytest.mark.parametrize(
    ("features", "code", "line"),
    [
        (UBI_FEATURES.replace("q2,z", "q9,z"), "ubi.unknown-query", 4),
        (UBI_FEATURES.replace("q2,y", "q2,z"), "ubi.object-twice", 5),
        (UBI_FEATURES.replace("q1,b,3", "q1,b,x"), "log.not-a-number", 3),
    ],
)
def test_bad_lines_of_ubi_features_are_named(tmp_path: Path, features: str, code: str, line: int) -> None:
    folder = write_ubi(tmp_path / "ubi", features)
    with refused(code, f"{folder / 'features.csv'}:{line}"):
        import_log(folder, "ubi")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", "ubi.not-json"),
        ('{"user_query": "x"}', "ubi.no-query-id"),
        ('{"query_id": [1]}', "ubi.bad-field"),
        ('{"query_id": "q", "query_response_hit_ids": "a"}', "ubi.bad-list"),
        ('{"query_id": "q", "timestamp": "soon"}', "log.bad-time"),
        ("[" * 5000, "ubi.not-json"),
        ('{"query_id": "q", "timestamp": ' + "[" * 400 + "]" * 400 + "}", "log.bad-time"),
    ],
)
def test_bad_lines_of_ubi_documents_are_named(tmp_path: Path, line: str, code: str) -> None:
    folder = write_ubi(tmp_path / "ubi")
    (folder / "a.jsonl").write_text("\n" + line + "\n", encoding="utf-8")
    with refused(code, f"{folder / 'a.jsonl'}:2"):
        import_log(folder, "ubi")


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_baidu_ultr_is_read_over_the_ends_of_batches(tmp_path: Path, compression: str) -> None:
    _, log = imported(write_baidu(tmp_path / "b", compression=compression), "baidu-ultr")
    assert log.feature_names == ("bm25", "e1", "e2")
    assert list(log.searches) == ["part-0_split-0/9", "part-0_split-0/4"] and list(log.queries) == ["m9", "m4"]
    assert log.ranks.tolist() == [1, 2, 5, 1, 2] and log.clicks.tolist() == [0, 1, 0, 0, 1]
    assert log.features[:, :3].tolist() == [[i, i, -i] for i in (1, 2, 5, 7, 8)]
    assert list(log.documents) == ["u1", "u2", "u5", "v1", "v2"] and not (log.has_users or log.has_times)
    entry, _ = import_log(tmp_path / "b", "baidu-ultr", "few", which="embedding")
    assert open_log(Path(entry.path)).feature_names == ("e1", "e2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"click": None}, "arrow.no-column"),
        ({"click": pa.array([1, 0, 0, 0, 7])}, "log.bad-click"),
        ({"position": pa.array([2, 2, 5, 1, 2])}, "log.ranks"),
        ({"position": pa.array([2, None, 5, 1, 2])}, "arrow.wrong-type"),
        ({"bm25": pa.array([1.0, 2.0, float("inf"), 1.0, 1.0])}, "log.not-finite"),
        ({"query_document_embedding": pa.array([[1.0], [1.0, 2.0], [1.0], [1.0], [1.0]])}, "arrow.ragged"),
    ],
)
def test_what_is_no_table_of_baidu_ultr_is_refused(tmp_path: Path, changed: dict[str, object], code: str) -> None:
    folder = write_baidu(tmp_path / "b", baidu_table(**changed), chunk=5)
    with refused(code):
        import_log(folder, "baidu-ultr")


@pytest.mark.slow
def test_packed_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of zeros in a few kB are refused by the ratio, and so is a buffer that claims 2^50 bytes."""
    numbers = pa.array(np.zeros(1 << 23))
    table = pa.table({"query_id": numbers, "position": numbers, "click": numbers})
    write_baidu(tmp_path / "b", table, "zstd", 1 << 23)
    path = tmp_path / "b" / "parts" / "part-0_split-0.feather"
    assert path.stat().st_size < 1 << 16
    monkeypatch.setattr(foreign, "FREE", 1 << 22)
    with refused("file.too-large", f"{path}"):
        import_log(tmp_path / "b", "baidu-ultr")
    content = bytearray(path.read_bytes())
    claimed = struct.pack("<q", 1 << 26)
    places = [at for at in range(len(content)) if content[at : at + 8] == claimed]
    middle = places[len(places) // 2]  # in the body, between the schema and the footer
    content[middle : middle + 8] = struct.pack("<q", 1 << 50)
    path.write_bytes(content)
    with refused("file.damaged", f"{path}"):
        import_log(tmp_path / "b", "baidu-ultr")


@pytest.mark.slow
def test_damaged_logs_are_refused_or_read(tmp_path: Path) -> None:
    sources = {
        "csv": (write_csv(tmp_path / "csv") / "clicks.csv", 40),
        "aol4foltr": (write_aol(tmp_path / "aol") / "metadata.csv", 20),
        "ubi": (write_ubi(tmp_path / "ubi") / "ubi_queries.ndjson", 20),
        "baidu-ultr": (write_baidu(tmp_path / "b") / "parts" / "part-0_split-0.feather", 8),
    }
    for format_, (path, count) in sources.items():
        sound = path.read_bytes()

        def read(content: bytes, format_: str = format_, path: Path = path) -> None:
            path.write_bytes(content)
            import_log(path.parent.parent if format_ == "baidu-ultr" else path.parent, format_, "log")

        assert refusals(read, mutations([sound], count)) > 0, format_
        path.write_bytes(sound)
        read(sound)


def test_damaged_columns_are_refused_or_read(tmp_path: Path, home: Path) -> None:
    imported(write_csv(tmp_path / "x"), "csv")
    folder = home / "collections" / "log"
    for path in sorted(folder.iterdir()):
        if path.name == "features.txt":
            continue
        sound = path.read_bytes()

        def read(content: bytes, path: Path = path) -> None:
            path.write_bytes(content)
            open_log(folder)

        assert refusals(read, mutations([sound], 25)) > 0, path.name
        path.unlink()
        with refused("file.missing", f"{path}"):
            open_log(folder)
        path.write_bytes(sound)
    open_log(folder)


def test_an_import_that_is_killed_leaves_nothing(tmp_path: Path, home: Path) -> None:
    """A child is killed in the middle of writing: an earlier log of this name stays, and the next import tidies up."""
    folder = write_csv(tmp_path / "x")
    imported(folder, "csv", "kept")
    before = columns("kept", home)
    child = os.fork()
    if child == 0:
        importing.LogWriter.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        import_log(folder, "csv", "kept")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert columns("kept", home) == before
    assert {path.name for path in (home / "collections").iterdir()} == {"kept", ".kept.importing"}
    imported(folder, "csv", "other")
    assert {path.name for path in (home / "collections").iterdir()} == {"kept", "other"}


def test_a_source_is_not_replaced_by_its_own_log(home: Path) -> None:
    folder = write_csv(home / "collections" / "mine")
    for path in (folder, folder / "clicks.csv"):
        with refused("log.in-its-own-place", f"{path}"):
            import_log(path, "csv", "mine")
    assert imported(folder, "csv", "other")[0].rows == 5
    assert (folder / "clicks.csv").read_text(encoding="utf-8") == CSV


def test_times_are_read_and_written() -> None:
    for text, seconds in (("1970-01-01", 0), ("1970-01-01T01:00:00+01:00", 0), ("-1.5", -1.5), ("0.000001", 1e-6)):
        assert read_time(text) == round(seconds * SECOND), text
    for micro in (0, MARCH, MARCH + 1, -1, 253_402_300_799_999_999):
        assert read_time(write_time(micro)) == micro
    assert write_time(NO_TIME) == "" and read_time("5", 1000) == 5000
    for text in ("", "soon", "10000-01-01", "99999999999999999", "1e5", "٣"):
        with refused("log.bad-time"):
            read_time(text)


def test_clicks_of_a_generated_log_are_position_based() -> None:
    """P(click at rank r) = mean relevance of what stands there / r, within four standard errors."""
    log = generated_log("clicks", 4000, 1)
    relevance = true_relevance(log.features[:, :16]).reshape(-1, 10)
    expected = relevance.mean(axis=0) / np.arange(1, 11)
    found = log.clicks.reshape(-1, 10).mean(axis=0)
    assert (np.abs(found - expected) < 4 * np.sqrt(expected / 4000)).all()
    assert (np.diff(log.time) >= 0).all()
