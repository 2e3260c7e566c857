"""Reader of a mailbox in the mbox format: a message is a document, its subject the title, its text parts the body.

The id is the Message-ID, or else the message's position in the file. Copies of a message are counted and skipped, as are
attachments; plain text is preferred to HTML. A wrong encoding damages characters, never the message.

Not the standard library's `mailbox`: it needs an unpacked file on disk and holds whole messages (204 MB of memory for a
message of 100 MB, where `split_messages` with a bound of 1 MB takes 16 MB).
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
from hashlib import blake2b
from pathlib import Path
from typing import IO, NamedTuple

from quorank.files.untrusted import open_bounded, read_head, translate_errors
from quorank.text.collection import Document, TextCollection, add_skipped
from quorank.text.readers.decoding import bad_line, decode, one_line, without_tags

MARK = b"From "
LONGEST_HEADER = 8192  # characters of a header that are read: the library takes quadratic time over some of them
MOST_BOUNDARIES = 64  # boundaries of parts; a message with more is read as plain text
_LINE = 1 << 20
_BOUNDARY = re.compile(rb"boundary[*0-9]*[ \t]*=", re.IGNORECASE)


def read_mbox(path: Path) -> TextCollection:
    """Read the messages of a mailbox, plain or packed."""
    if read_head(path, len(MARK)) != MARK:
        raise bad_line(path, 1, "mbox.malformed", "expected `From …`, as in mbox")
    found: dict[str, Document] = {}
    repeated = []
    with open_bounded(path) as file:
        for place, raw in enumerate(split_messages(file, path), 1):
            message, body = parse_message(raw.content)
            id_ = header_text(message, "Message-ID").strip("<> \t") or f"message-{place}"
            if id_ in found:
                repeated.append(id_)
            else:
                found[id_] = Document(id_, header_text(message, "Subject"), body)
    skipped = add_skipped({}, repeated_messages=repeated)
    return TextCollection(path.name.split(".")[0], tuple(found.values()), skipped=skipped, format="mbox")


class RawMessage(NamedTuple):
    """Raw message of a mailbox, without its line `From …`."""

    begin: int  # position of that line
    end: int  # position behind the message
    content: bytes  # at most `most` bytes
    digest: str  # of all its bytes


def split_messages(file: IO[bytes], where: object, *, begin: int = 0, most: int = 1 << 62) -> Iterator[RawMessage]:
    """Yield each message of a stream at position `begin`, with its first `most` bytes.

    A line `From …` begins a message. Memory is bounded by `most`.
    """
    start = place = begin
    kept, digest = bytearray(), blake2b(digest_size=8)
    begins, first = True, True  # a line may be read in several pieces
    with translate_errors(where, "a readable mailbox"):
        while line := file.readline(_LINE):
            if begins and line.startswith(MARK):
                if not first:
                    yield RawMessage(start, place, bytes(kept), digest.hexdigest())
                start, kept, digest, first = place, bytearray(), blake2b(digest_size=8), False
                place += len(line)
                while not line.endswith(b"\n") and (rest := file.readline(_LINE)):
                    line = rest
                    place += len(rest)
            else:
                place += len(line)
                digest.update(line)
                kept += line[: most - len(kept)]
            begins = line.endswith(b"\n")
    yield RawMessage(start, place, bytes(kept), digest.hexdigest())


class _ShortHeaders(Compat32):
    """Parsing policy that keeps the beginning of a header."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[:LONGEST_HEADER]


_POLICY = _ShortHeaders()


def parse_message(raw: bytes) -> tuple[Message, str]:
    """Return a message and the text of its body; one that cannot be divided into its parts is taken for plain text."""
    if len(_BOUNDARY.findall(raw)) <= MOST_BOUNDARIES:
        try:
            message = email.message_from_bytes(raw, policy=_POLICY)
            return message, _body(message)
        except (RecursionError, ValueError, LookupError, AttributeError, TypeError):  # over headers that are no such
            pass
    message = email.parser.BytesHeaderParser(policy=_POLICY).parsebytes(raw)
    if message.get_content_maintype() != "text":
        for name in ("Content-Type", "Content-Transfer-Encoding", "Content-Disposition"):
            del message[name]
    return message, _body(message)


def header_text(message: Message, name: str) -> str:
    """Return a header of a message on one line; empty for a missing one."""
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
    if plain := [part for part in parts if part.get_content_subtype() != "html"]:
        return "\n".join(map(_text, plain)).strip()
    return "\n".join(without_tags(_text(part)) for part in parts).strip()


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
