"""Reader of a mailbox in the mbox format: a message is a document, its subject the title, its text parts the body.

The id is the Message-ID, or the message's place in the file where it has none. A message that lies in the mailbox
twice is read once, and its copies are counted. Attachments are left out; of a message in plain text and in HTML the
plain text is taken. A wrong or unknown encoding costs the characters that it damages, never the message.
"""

from __future__ import annotations

import email
import email.errors
import email.header
import email.parser
import re
from collections.abc import Iterator
from email.message import Message
from email.policy import Compat32
from pathlib import Path

from quorank.foreign import open_bounded, read_head, sound
from quorank.text.collection import Document, TextCollection, add_skipped
from quorank.text.readers.decoding import bad_line, decode, one_line, unescaped

MARK = b"From "
LONGEST_HEADER = 8192
"""Characters of a header that are read: the library takes quadratic time over some of them."""
MOST_BOUNDARIES = 64
"""Parts within parts: a message that speaks of more boundaries is taken for plain text."""
_LINE = 1 << 20
_BOUNDARY = re.compile(rb"boundary[*0-9]*[ \t]*=", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z]|<[!?]")
_HIDDEN = re.compile(r"<(script|style)\b", re.IGNORECASE)
_CLOSING = {tag: re.compile(f"</{tag}", re.IGNORECASE) for tag in ("script", "style")}


def read_mbox(path: Path) -> TextCollection:
    """Read the messages of a mailbox, plain or packed."""
    if read_head(path, len(MARK)) != MARK:
        raise bad_line(path, 1, "mbox.malformed", "expected `From …`, as in mbox")
    found: dict[str, Document] = {}
    repeated = []
    for place, raw in enumerate(_raw_messages(path), 1):
        try:
            message = _parsed(raw)
            body = _body(message)
        except RecursionError:
            message = _unparted(raw)
            body = _body(message)
        id_ = _header(message, "Message-ID").strip("<> \t") or f"message-{place}"
        if id_ in found:
            repeated.append(id_)
        else:
            found[id_] = Document(id_, _header(message, "Subject"), body)
    skipped = add_skipped({}, repeated_messages=repeated)
    return TextCollection(path.name.split(".")[0], tuple(found.values()), skipped=skipped, format="mbox")


def _raw_messages(path: Path) -> Iterator[bytes]:
    """Yield the bytes of each message, which begins behind a line `From …`."""
    lines: list[bytes] = []
    begins, first = True, True  # a line may be read in several pieces
    with open_bounded(path) as file, sound(path, "a readable mailbox"):
        while line := file.readline(_LINE):
            if begins and line.startswith(MARK):
                if not first:
                    yield b"".join(lines)
                lines, first = [], False
                while not line.endswith(b"\n") and (rest := file.readline(_LINE)):
                    line = rest
            else:
                lines.append(line)
            begins = line.endswith(b"\n")
    yield b"".join(lines)


class _ShortHeaders(Compat32):
    """Parsing policy that keeps the beginning of a header."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST_HEADER]


_POLICY = _ShortHeaders()


def _parsed(raw: bytes) -> Message:
    """Return the message of some bytes with its parts, unless these are too many."""
    if len(_BOUNDARY.findall(raw)) > MOST_BOUNDARIES:
        return _unparted(raw)
    try:
        return email.message_from_bytes(raw, policy=_POLICY)
    except (ValueError, LookupError, AttributeError, TypeError):  # the library's own, over headers that are no such
        return _unparted(raw)


def _unparted(raw: bytes) -> Message:
    """Return the message of some bytes as one text."""
    message = email.parser.BytesHeaderParser(policy=_POLICY).parsebytes(raw)
    if message.get_content_maintype() != "text":
        for name in ("Content-Type", "Content-Transfer-Encoding", "Content-Disposition"):
            del message[name]
    return message


def _header(message: Message, name: str) -> str:
    try:
        raw = message.get(name)
        if raw is None:
            return ""
        text = str(raw)[:LONGEST_HEADER]
        text = str(email.header.make_header(email.header.decode_header(text)))
    except (LookupError, ValueError, AttributeError, TypeError, email.errors.MessageError):
        pass
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


def _without_tags(page: str) -> str:
    """Return the text of a page without tags, comments, scripts and styles, in one pass."""
    pieces, at = [], 0
    while at < len(page):
        begin = page.find("<", at)
        if begin < 0:
            pieces.append(page[at:])
            break
        pieces.append(page[at:begin])
        if page.startswith("<!--", begin):
            end = page.find("-->", begin)
            at = end + 3 if end >= 0 else len(page)
            continue
        opening = _HIDDEN.match(page, begin)
        if opening:
            closing = _CLOSING[opening[1].lower()].search(page, opening.end())
            begin = closing.start() if closing else len(page)
        elif not _TAG.match(page, begin):
            pieces.append("<")  # as in "a < b"
            at = begin + 1
            continue
        end = page.find(">", begin)
        at = end + 1 if end >= 0 else len(page)
    return one_line(unescaped(" ".join(pieces)))
