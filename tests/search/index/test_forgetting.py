"""Forgetting: no byte of a forgotten document is in any file of the folder, and all else is as if it had never been."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from indexed_things import TOKENISER, faults, fill, ids_of, indexed, made_up_things, thing

from quorank.search.index import SearchIndex, parse_query, search_index
from quorank.search.index.postings import TermHash
from quorank.search.sources.source import FoundDocument, SkippedDocument

SECRET = [f"xyl{letter * 3}ophagous" for letter in "abcdefgh"]


def secret(number: int) -> FoundDocument:
    """Long enough for pages of its own, with words that no other document has, inflected and not, and a shared one."""
    own = [f"{SECRET[number]}{n:04d}s" for n in range(400)]
    body = " ".join([f"Shared {word.title()} wa0a" for word in own])
    return thing(f"{SECRET[number]}key", body, title=f"T{SECRET[number]}itle", name=f"{SECRET[number]}name.txt")


def assert_nothing_left(folder: Path, number: int) -> None:
    """Neither words nor their stems nor pieces of them, however written."""
    for path in folder.iterdir():
        content = path.read_bytes().lower()
        for piece in (SECRET[number], SECRET[number][3:], SECRET[number][:6]):
            for encoding in ("utf-8", "utf-16-le"):
                assert piece.encode(encoding) not in content, (path.name, piece)


@pytest.mark.parametrize("batch", [2000, 9])
def test_no_byte_is_left_in_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(search_index, "BATCH_DOCUMENTS", batch)
    others = made_up_things(300)
    with indexed(tmp_path, [*others[:150], *map(secret, range(8)), *others[150:]]) as index:
        assert any(SECRET[1].encode() in path.read_bytes().lower() for path in tmp_path.iterdir())
        for forgotten in ([0], [1, 2], [7]):
            ids = [int(index.find(parse_query(SECRET[n] + "name")).ids[0]) for n in forgotten]
            assert index.forget(ids) == len(forgotten)
            for number in forgotten:
                assert_nothing_left(tmp_path, number)
            assert faults(index) == []
        assert index.find(parse_query("shared")).found == 4
        with SearchIndex.open(tmp_path) as other:  # what was never there cannot have left anything
            assert other.find(parse_query(f"{SECRET[0]}0001")).found == 0
        assert_same_as_never(index, [*others[:150], *map(secret, (3, 4, 5, 6)), *others[150:]], tmp_path / "fresh")


def assert_same_as_never(index: SearchIndex, things: list[FoundDocument], folder: Path) -> None:
    with indexed(folder, things) as fresh:
        for query in ("wa0a", "wb1bing wc2c", "shared", "xylddd*"):
            one, other = (each.find(parse_query(query)) for each in (index, fresh))
            assert one.keys == other.keys
            np.testing.assert_array_equal(one.features, other.features)


def test_no_byte_is_left_where_pages_were_divided_and_joined(tmp_path: Path) -> None:
    """Many documents of different sizes that change, go away and are forgotten: SQLite moves what shares a page."""
    random = np.random.default_rng(1)
    things = {number: small(number, int(random.choice([1, 5, 30, 100]))) for number in range(600)}
    with indexed(tmp_path, things.values()) as index:
        for _ in range(4):
            for number in random.permutation([*things])[:60].tolist():
                things[number] = small(number, int(random.choice([1, 5, 30, 100, 600])))
            for number in random.permutation([*things])[:20].tolist():
                del things[number]
            fill(index, things.values())
            forgotten = random.permutation([*things])[:40].tolist()
            assert index.forget(ids_of(index, [things.pop(number).key for number in forgotten])) == 40
            content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
            assert {int(number) for number in re.findall(rb"[qz]z(\d{6})", content)} <= {*things}


def small(number: int, words: int) -> FoundDocument:
    mark = f"zz{number:06d}"
    body = " ".join([f"{mark}w{n}x" for n in range(words)])
    return thing(f"qz{number:06d}", f"{body} common words", title=f"{mark}t", name=f"{mark}n.txt")


def test_what_changed_and_what_went_away_is_forgotten_with_the_next_erasure(tmp_path: Path) -> None:
    with indexed(tmp_path, [secret(0), secret(1), thing("x", "plain")]) as index:
        fill(index, [thing(secret(0).key, "harmless", name="harmless"), thing("x", "plain")])
        index.forget(ids_of(index, [secret(0).key]))
        assert_nothing_left(tmp_path, 0)
        assert_nothing_left(tmp_path, 1)


def test_what_was_forgotten_does_not_come_back_unless_it_is_admitted(tmp_path: Path) -> None:
    with indexed(
        tmp_path, [secret(0), SkippedDocument(secret(0).key, "file.cut", "was cut"), thing("x", "plain")]
    ) as index:
        (document,) = ids_of(index, [secret(0).key])
        assert index.forget([document, document, 999]) == 1
        assert_nothing_left(tmp_path, 0)
        assert fill(index, [secret(0), thing("x", "plain")]).added == 0
        assert_nothing_left(tmp_path, 0)
        assert index.admit_forgotten() == 1
        assert fill(index, [secret(0), thing("x", "plain")]).added == 1


def test_postings_do_not_tell_words(tmp_path: Path) -> None:
    """Two homes have other hashes for the same word, and neither is the hash without a key."""
    hashes = {TermHash(b"")(TOKENISER.tokenise("plain")[0]).to_bytes(8, "little")}
    for folder in (tmp_path / "one", tmp_path / "two"):
        with indexed(folder, [thing("x", "plain")]), closing(sqlite3.connect(folder / "index.sqlite")) as database:
            hashes.add(database.execute("SELECT content FROM postings ORDER BY key LIMIT 1").fetchone()[0])
    assert [len(term) for term in hashes] == [8, 8, 8]
