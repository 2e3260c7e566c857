"""Mail as a source: mailboxes in the mbox format, maildirs, single messages (.eml), and folders of all these.

The key of a message is that of its mailbox and its Message-ID, so that it stays the same when a mailbox is compacted;
without a Message-ID it is the digest of its headers. A mailbox is a document too, found by its name. Its fingerprint
holds the size that was read and a digest of its beginning and end: an unchanged mailbox costs one status call, one
that only grew is read from its last message on, and in any other only changed messages are parsed. A mailbox of any
size is read as a stream; of a long message the beginning is parsed, which holds its text.

Not the standard library's `mailbox.mbox`: it needs an unpacked file, scans all of it before the first message, holds a
line and a message of any length in memory, and cannot begin at an offset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, ClassVar, NamedTuple

from quorank.errors import BadInput, require_range
from quorank.files.untrusted import open_bounded, open_plain, packing_of, read_head, translate_errors
from quorank.search.sources.file_names import absolute_path, keep_path, opened_path, shown_name, stored_path
from quorank.search.sources.source import (
    MOST_CHARACTERS,
    FoundDocument,
    Scanned,
    SkippedDocument,
    Source,
    UnchangedDocument,
    plain_text,
    unchanged_below,
)
from quorank.text.readers.mbox import MARK, RawMessage, header_text, parse_message, split_messages

MOST_PARSED = 8_000_000
"""Bytes of a message that are parsed; attachments follow them."""
_END = 1 << 16  # compared bytes at the beginning and the end of the part of a mailbox that was read
_MAILDIR = frozenset({"cur", "new"})
_ID = re.compile(rb"^message-id:[ \t]*(?:\r?\n[ \t]+)?<?([^>\s]{1,500})", re.IGNORECASE | re.MULTILINE)
_DELETED = re.compile(rb"^x-mozilla-status:[ \t]*([0-9a-f]{4})\b", re.IGNORECASE | re.MULTILINE)
_PEOPLE = ("From", "To", "Cc")
_MARK = "#"  # between the key of a mailbox and that of a message


class _MailboxState(NamedTuple):
    """Part of a mailbox that was read, as its fingerprint holds it."""

    size: int
    changed: int  # modification time, nanoseconds
    last: int  # offset of the last message
    ends: str  # digest of the beginning and the end of the part
    key: str  # of the last message, which may have been incomplete

    @classmethod
    def parse(cls, fingerprint: str) -> _MailboxState | None:
        match fingerprint.split("-", 4):
            case [size, changed, last, ends, key] if all(map(str.isdecimal, (size, changed, last))):
                return cls(int(size), int(changed), int(last), ends, key)
        return None

    def __str__(self) -> str:
        return "-".join(map(str, self))


@dataclass(frozen=True)
class MailSource(Source):
    """Messages of a mailbox, of a maildir, or of a folder of them.

    Args:
        path: A mailbox, a maildir, an `.eml` file, or a folder.
        most_characters: Searched characters of a message.

    >>> MailSource("/people/ann/Mail").name
    '/people/ann/Mail'
    """

    kind: ClassVar[str] = "mail"
    rest: ClassVar[float] = 10.0

    path: str = "~/Mail"
    most_characters: int = MOST_CHARACTERS

    def __post_init__(self) -> None:
        keep_path(self, "path")
        require_range("most_characters", self.most_characters, least=1, most=100_000_000)

    @property
    def name(self) -> str:
        """The path of the mail."""
        return shown_name(opened_path(self.path))

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the mailbox or the folder."""
        return (absolute_path(self.path),)

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the messages, mailbox by mailbox in the order of their names."""
        root = absolute_path(self.path)
        if root.is_dir():
            yield from self._folder(root, "", known)
        elif root.is_file():
            yield from self._file(root, stored_path(root.name), known)
        else:
            sentence = "is missing now; its indexed content stays until the source is removed"
            yield SkippedDocument("", "mail.missing", sentence)
            yield from unchanged_below(known)

    def _folder(self, root: Path, prefix: str, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the messages in a folder and below; links are not followed, and hidden files are left out."""
        waiting = [(str(root), prefix)]
        while waiting:
            folder, prefix = waiting.pop()
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
                folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
                files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
            except OSError as error:
                yield SkippedDocument(prefix, "folder.unreadable", f"cannot be read ({error.strerror})")
                yield from unchanged_below(known, prefix)
                continue
            maildir = {entry.name for entry in folders} >= _MAILDIR
            if maildir:
                yield from self._maildir(folder, prefix, known)
            inner = [entry for entry in folders if not (maildir and entry.name in ("cur", "new", "tmp"))]
            waiting += [(entry.path, f"{prefix}{stored_path(entry.name)}/") for entry in reversed(inner)]
            for entry in files:
                if not entry.name.startswith(".") and not maildir:
                    yield from self._file(Path(entry.path), prefix + stored_path(entry.name), known)

    def _file(self, path: Path, key: str, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the messages of a file; nothing for a file that is neither a message nor a mailbox."""
        try:
            if path.suffix.lower() == ".eml":
                yield from self._message_file(path, key, known)
            elif _MailboxState.parse(known.get(key, "")) or read_head(path, len(MARK)) == MARK:
                yield from self._mailbox(path, key, known)
        except BadInput as error:
            yield SkippedDocument(key, error.code, error.sentence)
            if error.code != "file.missing":
                yield from (UnchangedDocument(known_key) for known_key in _known_keys(key, known))

    # ------------------------------------------------------------ mailboxes

    def _mailbox(self, path: Path, key: str, known: Mapping[str, str]) -> Iterator[Scanned]:
        with translate_errors(path, "a readable mailbox"):
            status = path.stat()
        before = _MailboxState.parse(known.get(key, ""))
        if before is not None and (before.size, before.changed) == (status.st_size, status.st_mtime_ns):
            yield from (UnchangedDocument(known_key) for known_key in _known_keys(key, known))
            return
        packed = packing_of(path) is not None
        with open_bounded(path) if packed else open_plain(path) as file:
            begin = 0
            if before is not None and not packed and status.st_size >= before.size:
                with translate_errors(path, "a readable mailbox"):
                    grown = _digest_of_ends(file, before.size) == before.ends
                    begin = before.last if grown else 0
                    file.seek(begin)
            reader = _MailboxReader(self, path, key, known, status.st_mtime)
            if before is not None and begin:
                yield from reader.skip_older(before.key)
            last = begin
            for raw in split_messages(file, path, begin=begin, most=MOST_PARSED):
                last, end = raw.begin, raw.end
                yield from reader.message(raw)
            with translate_errors(path, "a readable mailbox"):
                ends = "" if packed else _digest_of_ends(file, end)
        state = _MailboxState(status.st_size if packed else end, status.st_mtime_ns, last, ends, reader.last)
        name = shown_name(path.name)
        yield FoundDocument(key, str(state), stored_path(str(path)), name, name, "", status.st_mtime)

    # ------------------------------------------------------------ single messages

    def _maildir(self, folder: str, prefix: str, known: Mapping[str, str]) -> Iterator[Scanned]:
        done: set[str] = set()
        for part in ("new", "cur"):  # in this order a message that is moved meanwhile is found
            try:
                with os.scandir(f"{folder}/{part}") as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                yield SkippedDocument(f"{prefix}{part}/", "folder.unreadable", f"cannot be read ({error.strerror})")
                yield from (UnchangedDocument(key) for key in known if key.startswith(prefix) and key not in done)
                return
            for entry in entries:
                # flags follow a colon and change when a message is read; so does the folder
                key = prefix + stored_path(entry.name.partition(":2,")[0])
                if entry.name.startswith(".") or key in done:
                    continue
                try:
                    yield from self._message_file(Path(entry.path), key, known)
                except BadInput as error:
                    if part == "new" and error.code == "file.missing":
                        continue  # moved: it is found in cur
                    yield SkippedDocument(key, error.code, error.sentence)
                    if key in known:  # renamed by another flag
                        yield UnchangedDocument(key)
                done.add(key)

    def _message_file(self, path: Path, key: str, known: Mapping[str, str]) -> Iterator[Scanned]:
        try:
            status = path.stat()
        except OSError as error:
            code = "file.missing" if isinstance(error, FileNotFoundError) else "file.unreadable"
            raise BadInput(code, f"cannot be read ({error.strerror})", f"{path}") from None
        fingerprint = f"{status.st_size}-{status.st_mtime_ns}"
        if known.get(key) == fingerprint:
            yield UnchangedDocument(key)
            return
        with open_plain(path) as file, translate_errors(path, "a readable file"):
            content = file.read(MOST_PARSED)
        stored = stored_path(str(path))
        yield from self.document(key, fingerprint, stored, content, status.st_size, status.st_mtime)

    def document(
        self, key: str, fingerprint: str, path: str, content: bytes, size: int, fallback: float
    ) -> Iterator[Scanned]:
        """Yield the document of a message of `size` bytes, dated `fallback` without a date of its own."""
        message, text = parse_message(content)
        if size > MOST_PARSED:
            sentence = f"has {size:,} bytes; the text in the first {MOST_PARSED:,} is searched"
            yield SkippedDocument(key, "mail.too-large", sentence)
        people = "\n".join(f"{name}: {found}" for name in _PEOPLE if (found := header_text(message, name)))
        body = plain_text(f"{people}\n\n{text}").strip()
        if len(body) > self.most_characters:
            body = body[: self.most_characters]
            yield SkippedDocument(key, "mail.text-cut", f"only its first {len(body):,} characters are searched")
        title = plain_text(header_text(message, "Subject")) or "(no subject)"
        yield FoundDocument(key, fingerprint, path, title, "", body, _date(message, fallback))


class _MailboxReader:
    """Reader of the messages of one mailbox: assigns keys, and parses new and changed messages."""

    def __init__(self, source: MailSource, path: Path, key: str, known: Mapping[str, str], changed: float) -> None:
        self.source, self.key, self.known, self.changed = source, key, known, changed
        self.path = stored_path(str(path))
        self.copies: dict[str, int] = {}  # number of messages with a Message-ID
        self.last = ""  # key of the last message
        self.resumed: str | None = None  # the last key of the earlier scan, where reading continues from there

    def skip_older(self, last: str) -> Iterator[Scanned]:
        """Yield all known messages but the last one, which is read again."""
        self.resumed = last
        for known_key in _known_keys(self.key, self.known):
            if known_key not in (last, self.key):
                yield UnchangedDocument(known_key)

    def message(self, raw: RawMessage) -> Iterator[Scanned]:
        """Yield one message; nothing for one that the mail program marked as deleted."""
        head = _headers(raw)
        if _is_deleted(head):
            self.last = ""
            return
        id_ = _message_id(head)
        copy = self.copies.get(id_, 0) + 1
        if self.resumed is not None and id_ not in self.copies:
            while (key := self._numbered(id_, copy)) in self.known and key != self.resumed:
                copy += 1
        self.copies[id_] = copy
        self.last = key = self._numbered(id_, copy)
        size = raw.end - raw.begin
        fingerprint = f"{size}-{raw.digest}"
        if self.known.get(key) == fingerprint:
            yield UnchangedDocument(key)
        else:
            yield from self.source.document(key, fingerprint, self.path, raw.content, size, self.changed)

    def _numbered(self, id_: str, copy: int) -> str:
        return f"{self.key}{_MARK}{id_}" + (f" {copy}" if copy > 1 else "")


def _headers(raw: RawMessage) -> bytes:
    """Return the headers of a message."""
    head = raw.content[:_END]
    end = min((place for place in (head.find(b"\n\n"), head.find(b"\n\r\n")) if place >= 0), default=len(head))
    return head[:end]


def _message_id(head: bytes) -> str:
    """Return the Message-ID of a message, or without one the digest of its headers."""
    found = _ID.search(head)
    return plain_text(found[1].decode("utf-8", "replace")) if found else f"-{blake2b(head, digest_size=8).hexdigest()}"


def _is_deleted(head: bytes) -> bool:
    """Return whether Thunderbird has deleted a message, which stays in the file until it is compacted."""
    found = _DELETED.search(head)
    return found is not None and bool(int(found[1], 16) & 8)


def _known_keys(mailbox: str, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the known keys of a mailbox and its messages."""
    messages = mailbox + _MARK
    for key in known:
        if key == mailbox or key.startswith(messages):
            yield key


def _digest_of_ends(file: IO[bytes], size: int) -> str:
    """Return the digest of the first and the last bytes of the part of a mailbox that was read."""
    digest = blake2b(digest_size=8)
    for place in (0, max(0, size - _END)):
        file.seek(place)
        digest.update(file.read(min(_END, size - place)))
    return digest.hexdigest()


def _date(message: Message, fallback: float) -> float:
    try:
        return parsedate_to_datetime(header_text(message, "Date")).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return fallback
