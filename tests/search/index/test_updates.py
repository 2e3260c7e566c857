"""Updates of a source: what is added, changed, removed, skipped and kept, and who may look into the folder."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from indexed_things import faults, fill, ids_of, indexed, thing
from refusals import refused

from quorank.errors import BadInput
from quorank.search.home import SearchHome, SearchSettings
from quorank.search.index import SearchIndex, UpdateReport, parse_query, search_index
from quorank.search.sources.source import FoundDocument, SkippedDocument, UnchangedDocument

ONE, TWO, THREE = thing("1", "first words"), thing("2", "second words"), thing("3", "third words")


def numbers(report: UpdateReport) -> tuple[int, ...]:
    return report.added, report.changed, report.removed, report.skipped, report.unchanged


def keys(index: SearchIndex, query: str) -> set[str]:
    return {*index.find(parse_query(query)).keys}


def test_a_second_scan_changes_what_changed(tmp_path: Path) -> None:
    with SearchIndex.open(tmp_path) as index:
        assert numbers(fill(index, [ONE, TWO, THREE])) == (3, 0, 0, 0, 0)
        source = index.sources()[0].id
        ids = dict(zip("123", ids_of(index, "123"), strict=True))
        assert dict(index.known(source)) == {one.key: one.fingerprint for one in (ONE, TWO, THREE)}
        changed = thing("2", "other matter")
        report = fill(index, [UnchangedDocument("1"), changed, THREE, thing("4", "fourth")])
        assert numbers(report) == (1, 1, 0, 0, 2)
        assert keys(index, "words") == {"1", "3"}
        assert keys(index, '"other matter"') == {"2"}
        assert ids_of(index, "2") == [ids["2"]]  # whatever is known of a document stays with it
        assert numbers(fill(index, [ONE])) == (0, 0, 3, 0, 1)
        assert keys(index, "words") == {"1"}
        assert index.document(ids["1"]) == (source, ONE)
        with refused("document.missing"):
            index.document(ids["2"])
        assert (index.sources()[0].documents, faults(index)) == (1, [])


def test_a_scan_that_does_not_finish_removes_nothing(tmp_path: Path) -> None:
    def breaks() -> Iterator[FoundDocument]:
        yield thing("4", "fourth words")
        raise BadInput("folder.unreadable", "the disk is gone")

    with indexed(tmp_path, [ONE, TWO, THREE]) as index:
        source = index.sources()[0].id
        with refused("folder.unreadable"):
            index.update(source, breaks())
        assert keys(index, "words") == {"1", "2", "3", "4"}
        report = index.update(source, [ONE, thing("5", "fifth words"), TWO], stop=lambda: "5" in index.known(source))
        assert report.finished  # what was found is not written before the batch ends
        seen: list[int] = []
        report = index.update(
            source, [thing("6", "words"), thing("7", "words")], stop=lambda: bool(seen.append(1)) or True
        )
        assert (report.finished, report.added, report.removed, len(seen)) == (False, 1, 0, 1)
        assert keys(index, "words") == {"1", "2", "5", "6"}


def test_the_log_holds_what_the_last_scan_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "MOST_SKIPPED", 5)
    skips = [SkippedDocument(f"s{n}", "file.too-large", f"number {n}") for n in range(9)]
    with indexed(tmp_path, [ONE, SkippedDocument("x", "pdf.encrypted", "has a password"), thing("x", "")]) as index:
        source = index.sources()[0].id
        (entry,) = index.skipped(source)
        assert (entry.key, entry.code, entry.sentence) == ("x", "pdf.encrypted", "has a password")
        assert index.find(parse_query("x")).bands.tolist() == [0]  # by its name
        assert numbers(index.update(source, [ONE, *skips])) == (0, 0, 1, 9, 1)
        assert {entry.key for entry in index.skipped(source)} == {"s4", "s5", "s6", "s7", "s8"}


def test_documents_of_odd_sources(tmp_path: Path) -> None:
    odd = FoundDocument("odd", "\udcff", "/\udcff", "\ud800 title", "na\0me", "bo\0dy \ud800 text", float("nan"))
    twice = [thing("2", "early version"), thing("2", "late version")]
    bad_key = replace(ONE, key="\udcff")
    with indexed(tmp_path, [odd, bad_key, *twice]) as index:
        assert [keys(index, query) for query in ("body", "dy", "late", "early")] == [set(), {"odd"}, {"2"}, set()]
        assert [entry.code for entry in index.skipped(index.sources()[0].id)] == ["document.unwritable-key"]
        assert index.find(parse_query("dy")).modified.tolist() == [0.0]
        assert faults(index) == []
        with refused("source.missing"):
            index.update(99, [])


def test_sources_are_kept_and_removed(tmp_path: Path) -> None:
    with SearchIndex.open(tmp_path) as index:
        mail, notes = (index.add_source({"kind": kind, "path": "/x"}, f"my {kind}") for kind in ("mail", "folder"))
        assert index.add_source({"path": "/x", "kind": "mail"}) == mail
        fill(index, [ONE], mail)
        fill(index, [ONE, TWO], notes)
        assert keys(index, "source:mail words") == {"1"}
        assert index.remove_source(notes) == 2
        assert [(s.id, s.name, s.table, s.documents) for s in index.sources()] == [
            (mail, "my mail", {"kind": "mail", "path": "/x"}, 1)
        ]
        assert len(index.find(parse_query("words"))) == 1
        assert faults(index) == []


def test_nobody_else_may_look_into_the_folder(tmp_path: Path) -> None:
    with indexed(tmp_path / "deep" / "home", [ONE]) as index:
        index.home.write_settings(SearchSettings("german"))
        for path in [index.home.folder, *index.home.folder.iterdir()]:
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_one_writes_while_others_search(tmp_path: Path) -> None:
    def slowly() -> Iterator[FoundDocument]:
        yield TWO
        with SearchIndex.open(tmp_path) as other:
            assert keys(other, "words") == {"1"}
            with refused("folder.busy"):
                other.add_source({"kind": "mail"})
        thread = threading.Thread(target=lambda: found.extend(keys(index, "words")))
        thread.start()
        thread.join()

    found: list[str] = []
    with indexed(tmp_path, [ONE]) as index:
        assert numbers(fill(index, slowly())) == (1, 0, 1, 0, 0)
        assert found == ["1"]
        with SearchIndex.open(tmp_path) as other:
            assert keys(other, "words") == {"2"}
            fill(other, [TWO, THREE])
        assert keys(index, "words") == {"2", "3"}  # seen without opening again


def test_another_language_builds_the_index_again(tmp_path: Path) -> None:
    things = [thing("1", "Die Häuser der Stadt"), thing("2", "ein Haus")]
    with indexed(tmp_path, things) as index:
        assert keys(index, "Haus") == {"2"}
        index.home.write_settings(SearchSettings("german"))
    with SearchIndex.open(tmp_path) as index:
        fill(index, [UnchangedDocument("1"), UnchangedDocument("2")])
        assert keys(index, "Haus") == {"1", "2"}
        assert faults(index) == []
        assert fill(index, []).removed == 2


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    home = SearchHome.open(tmp_path)
    (tmp_path / "settings.json").write_text('{"language": "klingon"}')
    with refused("file.damaged"):
        home.settings()
    (tmp_path / "settings.json").unlink()
    (tmp_path / "index.sqlite").write_bytes(b"no database at all" * 100)
    with refused("file.damaged"):
        SearchIndex.open(tmp_path)


def test_the_usual_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", f"{tmp_path}")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert SearchHome.open().folder == tmp_path / ".local" / "share" / "quorank" / "search"
    monkeypatch.setenv("XDG_DATA_HOME", f"{tmp_path}")
    assert SearchHome.open().folder == tmp_path / "quorank" / "search"
