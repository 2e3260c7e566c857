"""Targets of `quorank.data`: LETOR text, archives that are imported, tables of intents, the library and the cache."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np

from fuzz.target import as_file, scratch, target
from quorank.data.feature_tables import read_feature_table
from quorank.data.importing import import_collection
from quorank.data.intents import read_intents
from quorank.data.letor.reader import read_letor
from quorank.data.letor.writer import write_letor
from quorank.data.library import imported_collections
from quorank.data.normalisation import FixedRange, read_constants
from quorank.data.ranking import RankingData
from quorank.data.source import FEATURE_NAMES as NAMES
from quorank.data.source import DataSource, feature_names, load, write_feature_names
from quorank.metrics.trec_files import grouped, trec_run
from quorank.rankers import Linear
from quorank.rankers.ranker_file import SavedRanker

_LARGEST = float(np.finfo(np.float32).max)
_WORDS = (
    b" qid:",
    b"1:",
    b"#docid = ",
    b"nan",
    b"0e40",
    b"1e-400",
    b"\r\n",
    b"\t",
    b"qid:1 ",
    b" 700:1",
    b":",
    b"inf",
    b"\xef\xbb\xbf",
    b"2147483648:1",
)
ROW = b"0 qid:1 1:0.5 2:1e-3 # x\n"


def _large() -> dict[str, bytes]:
    return {"400 MB of blank lines, gzipped": b"".join(gzip.compress(b"\n" * (40 << 20), mtime=0) for _ in range(10))}


def check_numbers(text: bytes, data: RankingData) -> None:
    """Compare all features with what Python's own float makes of the text."""
    wanted: dict[bytes, list[dict[int, float]]] = {}
    for line in text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").split(b"\n"):
        words = line.partition(b"#")[0].split()
        if words:
            values = {int(index): float(value) for index, _, value in (word.partition(b":") for word in words[2:])}
            wanted.setdefault(words[1].partition(b":")[2], []).append(values)
    rows = [row for query in wanted.values() for row in query]
    assert len(rows) == data.n_rows, f"{data.n_rows} rows were read, the text has {len(rows)}"
    for row, values in zip(np.asarray(data.features), rows, strict=True):
        expected = np.zeros(len(row), np.float32)
        for index, value in values.items():
            expected[index - 1] = 0.0 if value != value else np.float32(min(max(value, -_LARGEST), _LARGEST))
        found, expected = row[: data.n_features], expected[: data.n_features]
        with np.errstate(over="ignore"):
            near = np.nextafter(expected, np.float32(np.inf)), np.nextafter(expected, np.float32(-np.inf))
        right = (found == expected) | (found == near[0]) | (found == near[1])
        assert right.all(), f"read {found[~right][0]!r} where the text says {expected[~right][0]!r}"


@target("letor", words=_WORDS)
def letor(data: bytes) -> None:
    """LETOR text; numbers are held against Python's float."""
    found = read_letor(as_file(data, "train.txt"))
    if len(data) <= 4096:
        check_numbers(data, found)


@target("letor-gz", "gzip", _WORDS, made=_large)
def letor_gz(data: bytes) -> None:
    """Gzipped LETOR text."""
    read_letor(as_file(data, "train.txt.gz"))


@target("letor-writer", words=_WORDS)
def letor_writer(data: bytes) -> None:
    """LETOR text that is read, written and read back the same."""
    first = read_letor(as_file(data, "a.txt"))
    write_letor(first, (path := scratch() / "b.txt"))
    again = read_letor(path)
    same = np.array_equal(np.asarray(first.features), np.asarray(again.features)) and np.array_equal(
        first.labels, again.labels
    )
    assert same and list(first.query_ids) == list(again.query_ids), "written and read back it is another one"


@target("csv-table", words=(b",", b"\n", b'"', b"qid", b"docid", b"label", b"a", b"b", b"NaN", b"1e400", b"\xff"))
def csv_table(data: bytes) -> None:
    """Documents to be scored, in CSV."""
    _scored(as_file(data, "t.csv"))


@target("parquet-table", "parquet")
def parquet_table(data: bytes) -> None:
    """Documents to be scored, in Parquet."""
    _scored(as_file(data, "t.parquet"))


def _scored(path: Path) -> None:
    ranker = SavedRanker(Linear(), 2, np.ones(2), FixedRange((0.0, 0.0), (1.0, 2.0)), ("a", "b"))
    table = read_feature_table(path, ranker.feature_names)
    scores = ranker.score(table.features)
    assert len(scores) == len(table.features)
    if table.queries is not None:
        trec_run(*grouped(table.queries, table.documents, scores))


@target("constants", "json", words=(b"low", b"high", b"normalisation"))
def constants(data: bytes) -> None:
    """JSON with the constants of a fixed normalisation."""
    read_constants(FixedRange(file=str(as_file(data, "constants.json"))))


@target("feature-names", words=(b"\n\n", b"BM25 of body\n", b"\xff"))
def names_of_features(data: bytes) -> None:
    """Names of features in the folder of LETOR files, written and read back."""
    folder = scratch()
    source = DataSource(str(folder))
    (folder / NAMES).write_bytes(data)
    names = feature_names(source, 1000)
    write_feature_names(folder, names)
    assert feature_names(source, 1000) == names, "written and read back they are others"


def _import(data: bytes, name: str) -> None:
    folder = scratch()
    os.environ["QUORANK_HOME"] = str(folder / "home")
    (folder / "collection").mkdir()
    path = folder / "collection" / name
    path.write_bytes(data)
    import_collection(path)


@target("import-zip", "zip", seconds=10)
def import_zip(data: bytes) -> None:
    """`data import` of a zip archive."""
    _import(data, "a.zip")


@target("import-tar", "tar", seconds=10)
def import_tar(data: bytes) -> None:
    """`data import` of a tar archive, compressed or not."""
    _import(data, "a.tar.gz" if data.startswith(b"\x1f\x8b") else "a.tar.bz2" if data.startswith(b"BZh") else "a.tar")


def _folds(folder: Path) -> Path:
    for fold in range(1, 6):
        text = "".join(f"{label} qid:{fold} 1:0.{label} #docid = d{label}\n" for label in (0, 1, 2))
        (folder / f"fold{fold}.txt").write_text(text)
    return folder


@target("intents", words=(b"\t", b"\n", b"fold\tqid", b"1\t", b"0\t", b"i4"))
def intents(data: bytes) -> None:
    """The table of labels per intent."""
    folder = _folds(scratch())
    (folder / "intent_labels.tsv").write_bytes(data)
    read_intents(folder).complete()


@target("library", "json")
def library(data: bytes) -> None:
    """An entry of the library of collections; a damaged one hides no other, and loading it is a sentence."""
    folder = scratch()
    os.environ["QUORANK_HOME"] = str(folder)
    (folder / "registry").mkdir()
    (folder / "registry" / "c.json").write_bytes(data)
    for name in imported_collections():
        load(DataSource(name))


@target("cache", words=(b"ARROW1",))
def cache(data: bytes) -> None:
    """A file of the cache of parsed data; the source of a damaged one is parsed again."""
    folder = scratch()
    os.environ["QUORANK_CACHE"] = str(folder / "cache")
    try:
        text = folder / "data"
        text.mkdir()
        for name in ("train", "test"):
            (text / f"{name}.txt").write_bytes(ROW * 3)
        os.utime(text / "train.txt", (1, 1))
        load(DataSource(str(text), normalize="none"))
        for file in (folder / "cache").rglob("*.arrow"):
            file.write_bytes(data)
        found = load(DataSource(str(text), normalize="none")).train
        _ = found.features.sum(), list(found.query_ids), found.labels.sum()
    finally:
        del os.environ["QUORANK_CACHE"]
