"""Mail as a source: against Python's own mailboxes, and what a second scan reads of one that grew or was compacted."""

from __future__ import annotations

import gzip
import mailbox
import os
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

from persons_files import mailbox_of, make_maildir, message
from scanned_items import ScannedItems

from quorank.search.sources import MailSource


def scan(path: Path, known: dict[str, str] | None = None) -> ScannedItems:
    return ScannedItems(MailSource(str(path)).scan(known or {}))


def test_a_mailbox_holds_what_python_finds_in_it(tmp_path: Path) -> None:
    made = mailbox.mbox(tmp_path / "archive")
    for number in range(5):
        made.add(message(number, f"Hello\nFrom here it goes on {number}\n"))
    made.close()
    scanned = scan(tmp_path / "archive")
    documents = scanned.found
    theirs = {f"archive#message{number}@example.org": number for number in range(5)}
    assert set(documents) == {*theirs, "archive"}
    for key, number in theirs.items():
        document = documents[key]
        assert document.title == f"Subject {number}" and document.name == ""
        assert document.body.startswith(f"From: Ann {number} <ann{number}@example.org>\nTo: bob@example.org\n\nHello")
        assert document.body.rstrip().endswith(f"it goes on {number}")
        assert document.modified == datetime(2024, 1, 1 + number, 10, tzinfo=UTC).timestamp()
        assert document.path == str(tmp_path / "archive")
    assert scanned[-1] == documents["archive"]  # when it is indexed, all of its messages are
    assert (documents["archive"].name, documents["archive"].body) == ("archive", "")


def test_an_unchanged_mailbox_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(mailbox_of([message(number) for number in range(3)]))
    status = path.stat()
    known = scan(path).after()
    path.write_bytes(b"X" * status.st_size)  # nobody looks
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    again = scan(path, known)
    assert again.unchanged == set(known) and len(again) == len(known)


def test_of_a_mailbox_that_grew_the_older_part_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(mailbox_of([message(number, "words " * 20_000) for number in range(6)]))
    known = scan(path).after()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 9] = b"\nFrom x\n\n"  # would be a message, if anybody read it
    content += mailbox_of([message(6), message(2)])  # the second lies there already
    path.write_bytes(content)
    again = scan(path, known)
    assert set(again.found) == {"archive", "archive#message6@example.org", "archive#message2@example.org 2"}
    assert again.unchanged == set(known) - {"archive"}
    known = again.after(known)
    assert len(known) == 9 and scan(path, known).unchanged == set(known)


def test_a_message_that_was_being_written_is_read_again(tmp_path: Path) -> None:
    for cut in (1, 30, 120, 220, 400):
        path = tmp_path / f"cut{cut}"
        whole = mailbox_of([message(0), message(1, "the whole text " * 20), message(2)])
        part = len(mailbox_of([message(0)])) + cut
        path.write_bytes(whole[:part])
        known = scan(path).after()
        path.write_bytes(whole)
        again = scan(path, known)
        known = again.after(known)
        assert set(known) == {path.name, *(f"{path.name}#message{number}@example.org" for number in range(3))}
        assert "the whole text the whole" in again.found[f"{path.name}#message1@example.org"].body


def test_keys_stay_when_a_mailbox_is_compacted(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    messages = [message(number, id_="" if number == 3 else None) for number in range(5)]
    path.write_bytes(mailbox_of(messages))
    first = scan(path)
    known = first.after()
    path.write_bytes(mailbox_of([messages[0], *messages[2:]]))
    again = scan(path, known)
    assert set(again.found) == {"archive"} and len(again.unchanged) == 4
    assert set(known) - set(again.after(known)) == {"archive#message1@example.org"}


def test_messages_with_the_same_id_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(mailbox_of([message(number, id_="same@x") for number in range(3)]))
    known = scan(path).after()
    assert set(known) == {"archive", "archive#same@x", "archive#same@x 2", "archive#same@x 3"}
    path.write_bytes(path.read_bytes() + mailbox_of([message(7, id_="same@x")]))
    again = scan(path, known)
    assert set(again.found) == {"archive", "archive#same@x 4"} and len(again.after(known)) == 5


def test_a_mail_of_a_hundred_megabytes(tmp_path: Path) -> None:
    """Of the text the beginning is found; the attachment goes by as a stream."""
    path = tmp_path / "archive"
    head = (
        b"Subject: The film\nMessage-ID: <film@x>\nContent-Type: multipart/mixed; boundary=b\n\n"
        b"--b\nContent-Type: text/plain\n\n"
        b"Here is the film.\n--b\nContent-Type: video/mp4\nContent-Transfer-Encoding: base64\n\n"
    )
    with path.open("wb") as file:
        file.write(mailbox_of([message(1)]) + b"From a\n" + head)
        for _ in range(100):
            file.write((b"QUJD" * 249 + b"\n") * 1010)
        file.write(b"--b--\n\n" + mailbox_of([message(2)]))
    assert path.stat().st_size > 100_000_000
    begin = time.process_time()
    tracemalloc.start()
    scanned = scan(path)
    assert tracemalloc.get_traced_memory()[1] < 80_000_000
    tracemalloc.stop()
    assert time.process_time() - begin < 20
    assert scanned.skipped == {"archive#film@x": "mail.too-large"}
    documents = scanned.found
    assert documents["archive#film@x"].body == "Here is the film."
    assert documents["archive#message2@example.org"].title == "Subject 2"
    (tmp_path / "film.eml").write_bytes(path.read_bytes()[len(mailbox_of([message(1)])) + 7 :])
    single = scan(tmp_path / "film.eml")
    assert [type(item).__name__ for item in single] == ["SkippedDocument", "FoundDocument"]
    assert single.found["film.eml"].body == "Here is the film."


def test_a_maildir_whose_messages_are_read_and_moved(tmp_path: Path) -> None:
    folder = make_maildir(tmp_path / "Mail" / "inbox", [message(number) for number in range(4)])
    make_maildir(folder / ".sent", [message(9)])
    (folder / "dovecot.index").write_bytes(b"\0")
    scanned = scan(tmp_path / "Mail")
    theirs = mailbox.Maildir(folder, create=False)
    assert {document.title for document in scanned.found.values()} == {
        f"Subject {number}" for number in (0, 1, 2, 3, 9)
    }
    assert {key for key in scanned.found if "sent" not in key} == {f"inbox/{name}" for name, _ in theirs.iteritems()}
    known = scanned.after()
    (new,) = [path for path in (folder / "new").iterdir() if "M1P" in path.name]
    new.rename(folder / "cur" / f"{new.name}:2,S")
    (read,) = [path for path in (folder / "cur").iterdir() if "M0P" in path.name]
    read.rename(read.with_name(f"{read.name}T"))
    assert scan(tmp_path / "Mail", known).unchanged == set(known)


def test_a_message_that_moves_during_the_scan_is_met(tmp_path: Path) -> None:
    folder = make_maildir(tmp_path / "inbox", [message(number) for number in range(6)])
    known = scan(folder).after()
    going = MailSource(str(folder)).scan(known)
    scanned = ScannedItems([next(going)])
    for path in (folder / "new").iterdir():
        path.rename(folder / "cur" / f"{path.name}:2,S")
    assert ScannedItems([*scanned, *going]).unchanged == set(known)


def test_a_folder_of_mailboxes(tmp_path: Path) -> None:
    (tmp_path / "Inbox").write_bytes(mailbox_of([message(1), message(2, X_Mozilla_Status="0009")]))
    (tmp_path / "Inbox.msf").write_bytes(b"// <!-- <mdb:mork -->")
    (tmp_path / "Inbox.sbd").mkdir()
    (tmp_path / "Inbox.sbd" / "Work").write_bytes(mailbox_of([message(3)]))
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "ring").symlink_to(tmp_path)
    scanned = scan(tmp_path)
    keys = {"Inbox", "Inbox#message1@example.org", "Inbox.sbd/Work", "Inbox.sbd/Work#message3@example.org"}
    assert set(scanned.found) == keys  # the second message was deleted in Thunderbird
    known = scanned.after()
    assert set(scan(tmp_path, known).after(known)) == keys
    gone = scan(tmp_path / "unmounted", known)
    assert gone.unchanged == set(known) and gone.skipped == {"": "mail.missing"}


def test_a_damaged_packed_mailbox_keeps_what_is_indexed(tmp_path: Path) -> None:
    path = tmp_path / "old.gz"
    path.write_bytes(gzip.compress(mailbox_of([message(1), message(2)])))
    known = scan(path).after()
    assert set(known) == {"old.gz", "old.gz#message1@example.org", "old.gz#message2@example.org"}
    path.write_bytes(path.read_bytes()[:-20])
    again = scan(path, known)
    assert again.skipped == {"old.gz": "file.damaged"}
    assert again.unchanged == set(known)


def test_texts_can_be_stored_whatever_a_message_says(tmp_path: Path) -> None:
    raw = (
        b"Subject: =?unicode_escape?q?=5Cud800?= \xff\nMessage-ID: <\xff\xed\xa0\x80>\n"
        b"Content-Type: text/plain; charset=unicode_escape\n\n\\ud800 \\x00 x\n"
    )
    (tmp_path / "a").write_bytes(b"From x\n" + raw)
    scanned = scan(tmp_path / "a")
    assert len(scanned.found) == 2
    scanned.assert_storable()
