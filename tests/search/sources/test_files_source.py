"""Folder as a source: what is found of each kind of file, what a second scan opens, and everything that a disk may hold."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from persons_files import docx_of, word_xml
from scanned_items import ScannedItems

from quorank.search.sources import FilesSource, FoundDocument, folder
from quorank.search.sources.folder import TICK
from quorank.search.sources.source import opened_path


def scan(path: Path | str, known: dict[str, str] | None = None) -> ScannedItems:
    return ScannedItems(FilesSource(str(path)).scan(known or {}))


def test_each_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("first line\r\nsecond — line\n")
    (tmp_path / "old.txt").write_bytes("Grüße".encode("cp1252"))
    (tmp_path / "windows.txt").write_text("Grüße", encoding="utf-16")
    (tmp_path / "notes.md").write_text("intro\n\n# The plan #\n\ntext\n")
    (tmp_path / "page.html").write_bytes(
        b"<html><head><meta charset=iso-8859-1><title>A &amp; B</title><style>p{}</style></head>"
        b"<p>caf\xe9<script>x()</script>"
    )
    (tmp_path / "main.py").write_text("def area(radius): ...\n")
    (tmp_path / "letter.docx").write_bytes(docx_of(word_xml(["Dear Bob,", "all is well & good."]), "A letter"))
    (tmp_path / "picture.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "unknown.xyz").write_bytes(b"MZ\0\0")
    (tmp_path / "empty").touch()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "Makefile").write_text("all:\n")
    os.utime(tmp_path / "plain.txt", (1_700_000_000, 1_700_000_000.5))
    scanned = scan(tmp_path)
    assert scanned.skipped == {}
    texts = {key: (document.title, document.body) for key, document in scanned.found.items()}
    assert texts == {
        "plain.txt": ("plain.txt", "first line\nsecond — line\n"),
        "old.txt": ("old.txt", "Grüße"),
        "windows.txt": ("windows.txt", "Grüße"),
        "notes.md": ("The plan", "intro\n\n# The plan #\n\ntext\n"),
        "page.html": ("A & B", "A & B café"),
        "main.py": ("main.py", "def area(radius): ...\n"),
        "letter.docx": ("A letter", "Dear Bob,\nall is well & good."),
        "picture.jpg": ("picture.jpg", ""),
        "unknown.xyz": ("unknown.xyz", ""),
        "empty": ("empty", ""),
        "deep/er/Makefile": ("Makefile", "all:\n"),
    }
    document = scanned.found["plain.txt"]
    assert (document.path, document.name) == (str(tmp_path / "plain.txt"), "plain.txt")
    assert document.modified == 1_700_000_000.5


def test_a_second_scan_opens_only_what_changed(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text(name)
    known = scan(tmp_path).after()
    assert scan(tmp_path, known).unchanged == {"a.txt", "b.txt", "c.txt"}
    (tmp_path / "a.txt").write_text("z.txt")  # as long as before
    (tmp_path / "b.txt").unlink()
    (tmp_path / "d.txt").write_text("new")
    again = scan(tmp_path, known)
    assert again.texts == {"a.txt": "z.txt", "d.txt": "new"}
    assert again.unchanged == {"c.txt"} and again.skipped == {}


def test_a_file_of_two_gigabytes_costs_a_look_at_its_size(tmp_path: Path) -> None:
    for name in ("film.mp4", "huge.txt"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2 << 30)
    (tmp_path / "small.txt").write_text("small")
    begin = time.process_time()
    scanned = scan(tmp_path)
    assert time.process_time() - begin < 0.5
    assert scanned.skipped == {"huge.txt": "file.too-large"}  # a film is found by its name anyway
    assert scanned.texts == {"film.mp4": "", "huge.txt": "", "small.txt": "small"}


def test_a_long_text_is_cut_and_the_log_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_CHARACTERS", 100)
    (tmp_path / "a.txt").write_text("é" * 150)
    (tmp_path / "b.docx").write_bytes(docx_of(word_xml(["x" * 400])))
    scanned = scan(tmp_path)
    assert scanned.skipped == {"a.txt": "file.text-cut", "b.docx": "file.text-cut"}
    assert scanned.texts == {"a.txt": "é" * 100, "b.docx": "x" * 100}


def test_names_of_every_encoding_are_found_and_can_be_opened(tmp_path: Path) -> None:
    names = [
        "café".encode(), "café".encode("latin-1"), "кот".encode("koi8-r"), "猫".encode("shift-jis"), b"a\nb",
        "\uf7e9".encode(), b"\x80",
    ]  # fmt: skip
    for number, name in enumerate(names):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(f"text {number}")
    scanned = scan(tmp_path)
    scanned.assert_storable()
    documents = scanned.found
    assert len(documents) == len(names)
    for document in documents.values():
        assert document.name.isprintable() and Path(opened_path(document.path)).read_text() == document.body
    assert "café" in {document.name for document in documents.values()}
    assert scan(tmp_path, scanned.after()).unchanged == set(documents)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "text.txt").write_text("text")
    (tmp_path / "a" / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "z.txt").symlink_to(tmp_path / "a" / "b" / "text.txt")
    scanned = scan(tmp_path)
    assert set(scanned.found) == {"a/b/text.txt"}
    assert scanned.skipped == dict.fromkeys(["a/b/up", "self", "nowhere", "z.txt"], "file.link")


def test_pipes_sockets_and_devices_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(tmp_path)  # a socket's path is short
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        assert scan(tmp_path).skipped == {"pipe": "file.special", "socket": "file.special"}
    assert not [item for item in scan("/dev/fd") if isinstance(item, FoundDocument) and item.body]


def test_ignored_files_are_not_found_and_ignored_folders_not_entered(tmp_path: Path) -> None:
    for path in ("keep.txt", "drop.log", ".hidden/a.txt", "node_modules/x/index.js", "sub/drop.txt", "sub/keep.log"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub" / ".quorankignore").write_text("!*.log\ndrop.*\n")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    (tmp_path / "saved" / "page.txt").write_text("text")
    scanned = scan(tmp_path)
    assert set(scanned.found) == {"keep.txt", "sub/keep.log"} and scanned.skipped == {}
    source = FilesSource(str(tmp_path))
    assert source.concerns(tmp_path / "sub" / "a.txt") and source.concerns(tmp_path / "sub" / ".gitignore")
    assert not source.concerns(tmp_path / ".git" / "index")


def test_what_vanishes_or_changes_during_a_scan(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("old")
        os.utime(tmp_path / name, (1, 1_600_000_000))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "e.txt").write_text("old")
    going = FilesSource(str(tmp_path)).scan({})
    scanned = ScannedItems([next(going)])
    (tmp_path / "b.txt").unlink()
    shutil.rmtree(tmp_path / "d")
    (tmp_path / "c.txt").write_text("newer")
    scanned += list(going)
    assert scanned.skipped == {"b.txt": "file.vanished", "d/": "folder.vanished"}
    assert set(scanned.found) == {"a.txt", "c.txt"}
    again = scan(tmp_path, scanned.after())
    assert again.texts == {"c.txt": "newer"} or (again.texts == {} and scanned.found["c.txt"].body == "newer")


def test_a_missing_folder_keeps_what_is_indexed(tmp_path: Path) -> None:
    scanned = scan(tmp_path / "unmounted", {"a.txt": "1-2", "b.txt": "1-2"})
    assert scanned.skipped == {"": "folder.missing"} and scanned.unchanged == {"a.txt", "b.txt"}


def test_a_folder_too_deep_for_the_system_is_passed_over(tmp_path: Path) -> None:
    """Its path is longer than the system takes; what was indexed below it stays."""
    (tmp_path / "z.txt").write_text("text")
    name, held, deepest = "d" * 200, os.open(tmp_path, os.O_RDONLY), ""
    for _ in range(25):
        os.mkdir(name, dir_fd=held)
        inner = os.open(name, os.O_RDONLY, dir_fd=held)
        os.close(held)
        held, deepest = inner, f"{deepest}{name}/"
    os.close(held)
    known = {f"{deepest}old.txt": "1-2"}
    try:
        scanned = scan(tmp_path, known)
    finally:
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    assert set(scanned.found) == {"z.txt"} and scanned.unchanged == set(known)
    assert set(scanned.skipped.values()) == {"folder.unreadable"}


@contextmanager
def as_ordinary_person() -> Iterator[None]:
    """Root may read everything, so it becomes nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_keeps_what_is_indexed() -> None:
    root = Path(tempfile.mkdtemp())
    try:
        root.chmod(0o755)
        for path in ("known.txt", "new.txt", "closed/inner.txt"):
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text("text")
        known = scan(root).after()
        known["known.txt"] = "another"
        del known["new.txt"]
        for path in ("known.txt", "new.txt", "closed"):
            (root / path).chmod(0)
        with as_ordinary_person():
            scanned = scan(root, known)
        unreadable = dict.fromkeys(["known.txt", "new.txt"], "file.unreadable")
        assert scanned.skipped == unreadable | {"closed/": "folder.unreadable"}
        assert scanned.unchanged == {"known.txt", "closed/inner.txt"}
        assert scanned.texts == {"new.txt": ""}
        (root / "new.txt").chmod(0o644)  # changes neither size nor time, and is read again all the same
        assert scan(root, scanned.after(known)).found["new.txt"].body == "text"
    finally:
        for path in ("known.txt", "new.txt", "closed"):
            (root / path).chmod(0o755)
        shutil.rmtree(root)


def test_what_changed_just_now_is_read_a_tick_of_the_clock_later(tmp_path: Path) -> None:
    """Else another change within the same tick, to the same size, would have the same fingerprint."""
    path = tmp_path / "a.txt"
    for number in range(5):
        path.write_text(f"text {number}")
        assert scan(tmp_path).found["a.txt"].body == f"text {number}"
        assert time.time() - path.stat().st_mtime >= TICK
    os.utime(path, (1, 1_600_000_000))
    begin = time.monotonic()
    scan(tmp_path)
    assert time.monotonic() - begin < 10 * TICK  # nobody waits for what is old
