"""Mailboxes, also with messages that no rule foresees."""

from __future__ import annotations

import mailbox
from email.message import EmailMessage

import pytest

from quorank.errors import BadInput
from quorank.text import Skipped, read_collection
from quorank.text.readers.mbox import read_mbox

START = b"From someone@example.org Thu Jan  1 00:00:00 1970\n"


def mbox(folder, *messages: bytes):
    path = folder / "mail.mbox"
    path.write_bytes(b"\n".join(START + message for message in messages))
    return path


def test_messages_written_by_the_library(tmp_path) -> None:
    message = EmailMessage()
    message["Subject"] = "Grüße aus Köln"
    message["Message-ID"] = "<1@example.org>"
    message.set_content("plain äöü\n")
    message.add_alternative("<p>html</p>", subtype="html")
    message.add_attachment("attached text", filename="notes.txt")
    message.add_attachment(b"\0\1", maintype="image", subtype="png", filename="x.png")
    page = EmailMessage()
    page["Subject"] = "page"
    page.set_content("<style>p {}</style><p>Fish &amp; <b>chips</b></p>", subtype="html")
    box = mailbox.mbox(tmp_path / "mail.mbox")
    box.add(message)
    box.add(page)
    box.flush()
    first, second = read_collection(tmp_path / "mail.mbox").documents
    assert (first.id, first.title, first.body) == ("1@example.org", "Grüße aus Köln", "plain äöü")
    assert (second.id, second.body) == ("message-2", "Fish & chips")


def test_bad_encodings_cost_characters_not_messages(tmp_path) -> None:
    path = mbox(
        tmp_path,
        b"Subject: =?no-such-charset?B?////?=\nContent-Type: text/plain; charset=utf-8\n\ncaf\xe9 au lait\n",
        b"Subject: caf\xe9\nContent-Type: text/plain; charset=no-such\n\nbody two\n",
        b"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n!!!not base64\n",
        b'Content-Type: multipart/mixed; boundary="x"\n\nno parts\n',
    )
    found = read_collection(path).documents
    assert len(found) == 4
    assert found[0].body == "café au lait"
    assert found[1].body == "body two"
    assert found[1].title.startswith("caf")


def test_copies_are_read_once(tmp_path) -> None:
    message = b"Message-ID: <a@b>\nSubject: s\n\nbody\n"
    found = read_collection(mbox(tmp_path, message, message, b"Subject: t\n\nother\n"))
    assert [document.id for document in found.documents] == ["a@b", "message-3"]
    assert found.skipped == {"repeated_messages": Skipped(1, "a@b")}


def test_what_is_no_mailbox_is_refused(tmp_path) -> None:
    (tmp_path / "x.mbox").write_text("To: me\n")
    with pytest.raises(BadInput, match=r"x\.mbox, line 1: expected `From"):
        read_mbox(tmp_path / "x.mbox")
