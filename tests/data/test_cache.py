"""The cache: hit, miss, damage, and nothing left behind by what failed."""

import os
from pathlib import Path

import numpy as np
import pytest

from quorank.data import read_letor, source
from quorank.data.normalisation import RawFeatures, WithinQuery
from quorank.errors import BadInput

TEXT = "1 qid:a 1:0.5 3:2 #docid = x\n0 qid:a 1:1.5 #docid = y\n2 qid:b 2:7\n"


@pytest.fixture
def parses(monkeypatch):
    """How often the text was really read."""
    counted = []
    monkeypatch.setattr(source, "read_letor", lambda path: counted.append(path) or read_letor(path))
    return counted


def arrows() -> list[Path]:
    return sorted(Path(os.environ["QUORANK_CACHE"]).glob("*.arrow"))


def equal(one, other):
    assert np.array_equal(one.padded, other.padded)
    assert np.array_equal(one.labels, other.labels)
    assert np.array_equal(one.offsets, other.offsets)
    assert one.n_features == other.n_features
    assert list(one.query_ids) == list(other.query_ids)
    assert (one.document_ids is None) == (other.document_ids is None)
    assert one.document_ids is None or list(one.document_ids) == list(other.document_ids)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data" / "train.txt"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


@pytest.fixture(autouse=True)
def _settled(monkeypatch):
    monkeypatch.setattr(source, "RECENT", 0)


def test_the_second_load_maps_what_the_first_parsed(file, parses):
    first, second = source.load_letor(file, RawFeatures()), source.load_letor(file, RawFeatures())
    assert len(parses) == 1
    assert [*file.parent.iterdir()] == [file], "nothing is written beside the user's data"
    equal(first, second)
    assert second.padded.flags.writeable and second.padded.flags.c_contiguous
    second.padded[:] = 9  # a private copy: the file keeps what it has
    equal(first, source.load_letor(file, RawFeatures()))


def test_without_document_ids_and_with_many_queries(tmp_path, parses):
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{r % 3} qid:{r // 3} {1 + r % 20}:{r}\n" for r in range(3000)))
    equal(source.load_letor(path, RawFeatures()), source.load_letor(path, RawFeatures()))
    assert len(parses) == 1


def test_options_are_part_of_the_key(file, parses):
    raw, normal = source.load_letor(file, RawFeatures()), source.load_letor(file, WithinQuery())
    assert len(parses) == 2 and len(arrows()) == 2
    assert raw.features.max() == 7 and normal.features.max() == 1
    equal(normal, source.load_letor(file, WithinQuery()))
    assert len(parses) == 2


def test_changed_content_of_the_same_size_is_read_anew(file, parses):
    source.load_letor(file, RawFeatures())
    file.write_text(TEXT.replace("2:7", "2:8"))
    assert source.load_letor(file, RawFeatures()).features.max() == 8
    assert len(parses) == 2


def test_a_change_that_keeps_the_old_time_is_noticed(file, parses):
    source.load_letor(file, RawFeatures())
    then = file.stat().st_mtime_ns
    file.write_text(TEXT.replace("2:7", "2:8"))
    os.utime(file, ns=(then, then))
    assert source.load_letor(file, RawFeatures()).features.max() == 8


def test_a_file_that_just_changed_is_not_cached(file, monkeypatch):
    monkeypatch.setattr(source, "RECENT", 10**12)
    source.load_letor(file, RawFeatures())
    assert arrows() == []


@pytest.mark.parametrize("damage", ["cut", "junk", "empty", "other", "magic"])
def test_a_damaged_cache_file_is_made_anew(file, parses, damage):
    first = source.load_letor(file, RawFeatures())
    kept = arrows()[0]
    whole = kept.read_bytes()
    kept.write_bytes(
        {"cut": whole[: len(whole) // 2], "junk": os.urandom(len(whole)), "empty": b"", "magic": b"ARROW1"}.get(
            damage, whole.replace(b"quorank", b"another")
        )
    )
    equal(first, source.load_letor(file, RawFeatures()))
    assert len(parses) == 2
    equal(first, source.load_letor(file, RawFeatures()))
    assert len(parses) == 2
    assert arrows()[0].stat().st_size == len(whole)


def test_what_cannot_be_read_leaves_nothing(file):
    file.write_text(TEXT + "broken\n")
    for _ in range(2):
        with pytest.raises(BadInput, match=r"train.txt:4: "):
            source.load_letor(file, RawFeatures())
    assert arrows() == []


def test_a_folder_that_cannot_be_written_is_no_obstacle(file, monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("QUORANK_CACHE", str(tmp_path / "taken"))
    equal(source.load_letor(file, RawFeatures()), read_letor(file))


def test_generated_data_is_kept_too(monkeypatch):
    from quorank.data import synthetic

    made = []
    generate = synthetic.generate
    monkeypatch.setattr(synthetic, "generate", lambda *a: made.append(a) or generate(*a))
    first, second = (source.load_generated("mq2007", 20, 5, WithinQuery()) for _ in range(2))
    assert len(made) == 1
    for split in ("train", "validation", "test"):
        equal(getattr(first, split), getattr(second, split))
    source.load_generated("mq2007", 20, 6, WithinQuery())
    source.load_generated("mq2007", 21, 5, WithinQuery())
    source.load_generated("mq2007", 20, 5, RawFeatures())
    assert len(made) == 4
