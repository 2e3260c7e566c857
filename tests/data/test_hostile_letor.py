"""LETOR files that are damaged or made to harm: read to finite numbers, or refused with file and line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from damaged_files import mutations, refusals
from refusals import refused

from quorank.data import source
from quorank.data.letor.reader import read_letor
from quorank.data.normalisation import RawFeatures
from quorank.data.source import load_letor
from quorank.files import untrusted as foreign

TEXT = (
    b"2 qid:10 1:0.5 2:3e-2 #docid = G1\n0 qid:10 2:-.25 1:+7 46:1e-9\n# comment\n\n1.0 qid:x 3:123456789012345678901\n"
)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_damaged_copies_are_read_or_refused(tmp_path: Path) -> None:
    def read(content: bytes) -> None:
        data = read_letor(write(tmp_path / "train.txt", content))
        assert np.isfinite(data.features).all() and data.labels.min() >= 0
        assert data.offsets[-1] == data.n_rows == len(data.features)

    assert refusals(read, mutations([TEXT, TEXT * 3], 200)) > 60
    assert refusals(read, mutations([gzip.compress(TEXT, mtime=0)], 60)) > 40


def test_a_packed_file_cannot_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "FREE", 1 << 20)
    path = write(tmp_path / "train.txt.gz", gzip.compress(b"0 qid:1 1:0.5\n" * 400_000))
    for read in (read_letor, lambda path: load_letor(path, RawFeatures())):
        with refused("file.too-large", f"{path}"):
            read(path)
    monkeypatch.setenv("QUORANK_UNPACKED_RATIO", "1000")
    assert read_letor(path).n_rows == 400_000


def test_a_wide_table_is_no_way_to_much_memory(tmp_path: Path) -> None:
    """A hundred kilobytes of text whose table would have 1.3 GB."""
    path = write(tmp_path / "train.txt", b"0 qid:1 65535:1\n" * 5000)
    with refused("letor.too-large", f"{path}"):
        read_letor(path)


def test_a_line_has_an_end(tmp_path: Path) -> None:
    path = write(tmp_path / "train.txt", b"0 qid:1 " + b"1:x " * (5 << 20))
    with refused("file.line-too-long", f"{path}"):
        read_letor(path)


def test_a_cache_with_the_right_name_and_wrong_content_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "RECENT", 0)
    path = write(tmp_path / "train.txt", TEXT)
    load_letor(path, RawFeatures())
    (file,) = Path(os.environ["QUORANK_CACHE"]).glob("*.arrow")
    table = pa.ipc.open_file(file).read_all()
    sound = dict(zip(table.column_names, (column.chunk(0) for column in table.columns), strict=True))
    wide = {b"quorank": str(source.CACHE_VERSION).encode(), b"n_features": b"4000"}
    doubles = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(3 * 48)), 48)
    forged = [
        (sound, wide),
        (sound, {**wide, b"n_features": b"0"}),
        (sound, {**wide, b"n_features": b"-8"}),
        ({**sound, "label": pa.array(np.array([0, -1, 2], np.int8))}, {**wide, b"n_features": b"46"}),
        ({**sound, "label": pa.array([0, None, 2], pa.int8())}, {**wide, b"n_features": b"46"}),
        ({**sound, "features": doubles}, {**wide, b"n_features": b"46"}),
    ]
    for columns, metadata in forged:
        batch = pa.record_batch(columns, metadata=metadata)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = load_letor(path, RawFeatures())
        assert data.n_features == 46 and data.labels.tolist() == [2, 0, 1]
