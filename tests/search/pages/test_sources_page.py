"""Page of the sources: adding by path, progress, what was skipped, removing; and the work in the background."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from threading import Event

import pytest
from html_pages import Seen
from own_search import NOTES, OwnSearch, own_search, served_search, write_notes
from persons_files import mailbox_of, message
from real_services import until

from quorank.search.pages.upkeep import ScanProgress, Upkeep
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources import FilesSource
from quorank.search.sources.source import FoundDocument


@pytest.fixture
def own(tmp_path: Path):
    with own_search(tmp_path) as found:
        yield found


def test_paths_become_sources_of_their_kind(own: OwnSearch, tmp_path: Path) -> None:
    write_notes(own.notes)
    mail = tmp_path / "archive"
    mail.write_bytes(mailbox_of([message(1)]))
    profile = tmp_path / "profile"
    profile.mkdir()
    (profile / "places.sqlite").write_bytes(b"")
    for path in (own.notes, mail, profile):
        assert own.submit("/api/add", back="/sources", path=f" {path} ").headers["location"] == "/sources?done=added"
    assert [stored.kind for stored in own.search.index.sources()] == ["folder", "mail", "firefox"]
    assert own.upkeep.waiting == (1, 2, 3), "they are to be read"
    page = Seen(own.browser.get("/sources").text)
    assert page.text.count("not read yet") == 3 and str(mail) in page.text


@pytest.mark.parametrize("path", ["  ", "a\0b", "~nobody-of-this-name/x", "<script>x</script>", "x" * 5000])
def test_a_path_that_is_none_is_a_sentence_and_stays_in_the_field(own: OwnSearch, path: str) -> None:
    answer = own.submit("/api/add", back="/sources", path=path)
    page = Seen(answer.text)
    assert answer.status_code == 400 and page.all("p", role="alert")
    assert page.all("input", name="path", type="text")[0]["value"] == path.strip()
    assert own.search.index.sources() == []


def test_what_was_passed_over_is_said(own: OwnSearch) -> None:
    write_notes(own.notes)
    (own.notes / "link").symlink_to(own.notes)
    (own.notes / "broken.docx").write_bytes(b"no zip")
    number = own.add()
    entries = own.search.index.skipped(number)
    assert len(entries) == 2
    page = Seen(own.browser.get("/sources").text)
    for entry in entries:
        assert entry.sentence in page.text and entry.code in page.text
    assert "2 skipped" in page.text and f"{len(NOTES) + 1} documents" in page.text


def test_removing_erases_the_documents(own: OwnSearch) -> None:
    number = own.add()
    assert own.submit("/api/remove", back="/sources", number=number).headers["location"] == "/sources?done=removed"
    assert own.search.index.count() == 0 and own.search.index.sources() == []
    for path in ("/api/remove", "/api/read"):
        assert own.submit(path, number=number).status_code == 404
        assert own.submit(path, number="x").status_code == 400


def test_progress_and_problems_are_shown(own: OwnSearch) -> None:
    number = own.add()
    own.upkeep.progress = ScanProgress(number, 12345, 678, 9, 65.0)
    own.upkeep.problems[number] = "the disk is full"
    for path in ("/sources", "/sources/list"):
        page = Seen(own.browser.get(path).text)
        assert "12,345 seen, 678 new or changed, 9 skipped, 1 min 5 s so far" in page.text
        assert "the disk is full" in page.text and page.all("progress")
        assert page.all("div", data_reading="yes")
    own.upkeep.progress = None
    assert Seen(own.browser.get("/sources/list").text).all("div", data_reading="no")


# ---------------------------------------------------------------- in the background


@pytest.mark.slow
def test_sources_are_read_at_the_start_and_when_they_change(tmp_path: Path) -> None:
    with served_search(tmp_path) as (search, _):
        time.sleep(0.5)  # until the system watches
        (tmp_path / "notes" / "new.txt").write_text("camellias")
        until(lambda: search.find("camellias").found == 1)
        (tmp_path / "notes" / "new.txt").unlink()
        until(lambda: search.find("camellias").found == 0)


class Endless:
    """A scan that yields documents until it is told to stop yielding."""

    def __init__(self) -> None:
        self.over, self.begun, self.scans = Event(), Event(), 0

    def __call__(self, known):
        self.scans += 1
        for number in range(10**6):
            if self.over.is_set():
                return
            self.begun.set()
            time.sleep(0.002)
            yield FoundDocument(f"{number}", "1", f"/x/{number}", "", f"{number}", "roses", 1.0)


@pytest.mark.slow
def test_a_reading_makes_way_for_who_writes_and_goes_on(tmp_path: Path, monkeypatch) -> None:
    scan = Endless()
    monkeypatch.setattr(FilesSource, "scan", lambda self, known: scan(known))
    with PersonalSearch.open(tmp_path / "home") as search:
        number = search.add(FilesSource(str(write_notes(tmp_path / "notes"))))
        upkeep = Upkeep(search)
        upkeep.start()
        try:
            assert scan.begun.wait(10.0)
            other = search.index.label
            with upkeep.writing():
                added = search.add(FilesSource(str(tmp_path)))
                assert upkeep.progress is None and other(number, "0") is not None, "what was read so far is kept"
                assert upkeep.waiting == (number,)
            assert added != number
            until(lambda: scan.scans == 2)
            search_while = search.find("roses").found
            assert search_while > 0
            scan.over.set()
            until(lambda: upkeep.progress is None and not upkeep.waiting)
        finally:
            scan.over.set()
            upkeep.close()


@pytest.mark.slow
def test_an_index_that_another_process_writes_to_is_read_later(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("quorank.search.pages.upkeep.AGAIN", 0.1)
    with PersonalSearch.open(tmp_path / "home") as search:
        number = search.add(FilesSource(str(write_notes(tmp_path / "notes"))))
        upkeep = Upkeep(search)
        with search.home.writing():
            upkeep.start()
            until(lambda: number in upkeep.problems)
        until(lambda: search.index.count() == len(NOTES) and not upkeep.problems)
        upkeep.close()


@pytest.mark.slow
def test_closing_ends_all_of_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with served_search(tmp_path):
        began = time.monotonic()
    assert time.monotonic() - began < 5.0
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not left & {"_scan_sources", "_contact_service", "_watch_sources", "loopback pages"}
