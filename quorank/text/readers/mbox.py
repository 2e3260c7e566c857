"""Reader of a mailbox in the mbox format: a message is a document, its subject the title, its text parts the body.

The id is the Message-ID, or the message's place in the file where it has none. A message that lies in the mailbox
twice is read once. Attachments are left out; of a message in plain text and in HTML the plain text is taken. A wrong or
unknown encoding costs the characters that it damages, never the message.
"""

from __future__ import annotations

import email.errors
import email.header
import mailbox
import tempfile
from contextlib import closing
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path

from quorank.text.collection import Document, TextCollection
from quorank.text.readers.decoding import bad_line, decode, is_gzipped, one_line, read_bytes

MARK = b"From "


def read_mbox(path: Path) -> TextCollection:
    """Read the messages of a mailbox, plain or gzipped."""
    if read_bytes(path, len(MARK)) != MARK:
        raise bad_line(path, 1, "mbox.malformed", "expected `From …`, as in mbox")
    if is_gzipped(path):
        with tempfile.TemporaryDirectory() as folder:
            unpacked = Path(folder) / "mbox"
            unpacked.write_bytes(read_bytes(path))
            documents = _messages(unpacked)
    else:
        documents = _messages(path)
    return TextCollection(path.name.split(".")[0], documents)


def _messages(path: Path) -> tuple[Document, ...]:
    found: dict[str, Document] = {}
    with closing(mailbox.mbox(path, create=False)) as box:
        for place, message in enumerate(box, 1):
            id_ = _header(message, "Message-ID").strip("<> \t") or f"message-{place}"
            if id_ not in found:
                found[id_] = Document(id_, _header(message, "Subject"), _body(message))
    return tuple(found.values())


def _header(message: Message, name: str) -> str:
    raw = message.get(name)
    if raw is None:
        return ""
    try:
        text = str(email.header.make_header(email.header.decode_header(raw)))
    except (LookupError, ValueError, email.errors.MessageError):
        text = str(raw)
    return one_line(text.encode(errors="replace").decode())


def _body(message: Message) -> str:
    parts = [part for part in message.walk() if part.get_content_maintype() == "text" and not _is_attached(part)]
    plain = [part for part in parts if part.get_content_subtype() != "html"]
    if plain:
        return "\n".join(map(_text, plain)).strip()
    return "\n".join(_without_tags(_text(part)) for part in parts).strip()


def _is_attached(part: Message) -> bool:
    try:
        return part.get_content_disposition() == "attachment"
    except (ValueError, AttributeError):  # a header that is not even text
        return True


def _text(part: Message) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        charset = part.get_content_charset() or "utf-8"
        return content.decode(charset).replace("\r\n", "\n")
    except (LookupError, ValueError):
        return decode(content)


class _Text(HTMLParser):
    """Parser that gathers the text of a page without scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style") and self.hidden > 0

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.pieces.append(data)


def _without_tags(page: str) -> str:
    parser = _Text()
    parser.feed(page)
    parser.close()
    return one_line(" ".join(parser.pieces))
