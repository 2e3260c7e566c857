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
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, ClassVar, NamedTuple

from quorank.errors import BadInput
from quorank.files.untrusted import open_bounded, open_plain, packing_of, read_head, translate_errors
from quorank.search.sources.source import (
    MOST_CHARACTERS,
    FoundDocument,
    PathSource,
    Scanned,
    SkippedDocument,
    UnchangedDocument,
    plain_text,
    shown_name,
    sorted_entries,
    stored_path,
    unchanged_below,
)
from quorank.text.readers.mbox import MARK, header_text, parse_message, split_messages

MOST_PARSED = 8_000_000  # bytes of a message that are parsed; attachments follow them
_END = 1 << 16  # compared bytes at the beginning and the end of the part of a mailbox that was read
_MAILDIR = frozenset({"cur", "new", "tmp"})
_ID = re.compile(rb"^message-id:[ \t]*(?:\r?\n[ \t]+)?<?([^>\s]{1,500})", re.IGNORECASE | re.MULTILINE)
_DELETED = re.compile(rb"^x-mozilla-status:[ \t]*([0-9a-f]{4})\b", re.IGNORECASE | re.MULTILINE)
_HEADERS_END = re.compile(rb"\n\r?\n")
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
class MailSource(PathSource):
    """Messages of a mailbox, of a maildir, or of a folder of them.

    Args:
        path: A mailbox, a maildir, an `.eml` file, or a folder.

    >>> MailSource("/people/ann/Mail").name
    '/people/ann/Mail'
    """

    kind: ClassVar[str] = "mail"
    rest: ClassVar[float] = 10.0

    path: str = "~/Mail"

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the messages, mailbox by mailbox in the order of their names."""
        root = self.place
        if root.is_dir():
            yield from _scan_folder(str(root), known)
        elif root.is_file():
            yield from _scan_file(root, stored_path(root.name), known)
        else:
            sentence = "is missing now; its indexed content stays until the source is removed"
            yield SkippedDocument("", "mail.missing", sentence)
            yield from unchanged_below(known)


def _scan_folder(root: str, known: Mapping[str, str]) -> Iterator[Scanned]:
    """Yield the messages in a folder and below; links are not followed, and hidden files are left out."""
    waiting = [(root, "")]
    while waiting:
        folder, prefix = waiting.pop()
        try:
            entries = sorted_entries(folder)
            folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError as error:
            yield SkippedDocument(prefix, "folder.unreadable", f"cannot be read ({error.strerror})")
            yield from unchanged_below(known, prefix)
            continue
        if {entry.name for entry in folders} >= {"cur", "new"}:
            yield from _scan_maildir(folder, prefix, known)
            folders, files = [entry for entry in folders if entry.name not in _MAILDIR], []
        waiting += [(entry.path, f"{prefix}{stored_path(entry.name)}/") for entry in reversed(folders)]
        for entry in files:
            if not entry.name.startswith("."):
                yield from _scan_file(Path(entry.path), prefix + stored_path(entry.name), known)


def _scan_file(path: Path, key: str, known: Mapping[str, str]) -> Iterator[Scanned]:
    """Yield the messages of a file; nothing for a file that is neither a message nor a mailbox."""
    try:
        if path.suffix.lower() == ".eml":
            yield from _scan_message(path, key, known)
        elif _MailboxState.parse(known.get(key, "")) or read_head(path, len(MARK)) == MARK:
            yield from _scan_mailbox(path, key, known)
    except BadInput as error:
        yield SkippedDocument(key, error.code, error.sentence)
        if error.code != "file.missing":
            yield from _unchanged_mailbox(key, known)


def _scan_mailbox(path: Path, key: str, known: Mapping[str, str]) -> Iterator[Scanned]:
    with translate_errors(path, "a readable mailbox"):
        status = path.stat()
    before = _MailboxState.parse(known.get(key, ""))
    if before is not None and (before.size, before.changed) == (status.st_size, status.st_mtime_ns):
        yield from _unchanged_mailbox(key, known)
        return
    packed = packing_of(path) is not None
    numbers = _MessageKeys(key, known)
    with open_bounded(path) if packed else open_plain(path) as file, translate_errors(path, "a readable mailbox"):
        last = 0
        if before is not None and not packed and status.st_size >= before.size:
            if _digest_of_ends(file, before.size) == before.ends and before.last:
                last, numbers.resumed = before.last, before.key
                # the last message, which may have been incomplete, is read again
                yield from _unchanged_mailbox(key, known, but=(before.key, key))
            file.seek(last)
        last_key = ""
        for raw in split_messages(file, path, begin=last, most=MOST_PARSED):
            head, *_ = _HEADERS_END.split(raw.content[:_END], maxsplit=1)
            last, end, last_key = raw.begin, raw.end, ""
            status_word = _DELETED.search(head)
            if status_word and int(status_word[1], 16) & 8:  # Thunderbird keeps the message until it compacts the file
                continue
            last_key = numbers.key_of(head)
            size = raw.end - raw.begin
            fingerprint = f"{size}-{raw.digest}"
            if known.get(last_key) == fingerprint:
                yield UnchangedDocument(last_key)
            else:
                yield from _documents(last_key, fingerprint, path, raw.content, size, status.st_mtime)
        ends = "" if packed else _digest_of_ends(file, end)
    state = _MailboxState(status.st_size if packed else end, status.st_mtime_ns, last, ends, last_key)
    name = shown_name(path.name)
    yield FoundDocument(key, str(state), stored_path(str(path)), name, name, "", status.st_mtime)


class _MessageKeys:
    """Keys of the messages of a mailbox; copies of a message are numbered."""

    def __init__(self, mailbox: str, known: Mapping[str, str]) -> None:
        self._mailbox, self._known, self._copies = mailbox, known, dict[str, int]()
        self.resumed: str | None = None  # the last key of the earlier scan, where reading continues from there

    def key_of(self, head: bytes) -> str:
        """Return the key of the message with these headers."""
        id_ = _message_id(head)
        copy = self._copies.get(id_, 0) + 1
        if self.resumed is not None and id_ not in self._copies:
            while (key := self._numbered(id_, copy)) in self._known and key != self.resumed:
                copy += 1
        self._copies[id_] = copy
        return self._numbered(id_, copy)

    def _numbered(self, id_: str, copy: int) -> str:
        return f"{self._mailbox}{_MARK}{id_}" + (f" {copy}" if copy > 1 else "")


def _scan_maildir(folder: str, prefix: str, known: Mapping[str, str]) -> Iterator[Scanned]:
    done: set[str] = set()
    for part in ("new", "cur"):  # in this order a message that is moved meanwhile is found
        try:
            entries = sorted_entries(f"{folder}/{part}")
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
                yield from _scan_message(Path(entry.path), key, known)
            except BadInput as error:
                if part == "new" and error.code == "file.missing":
                    continue  # moved: it is found in cur
                yield SkippedDocument(key, error.code, error.sentence)
                if key in known:  # renamed by another flag
                    yield UnchangedDocument(key)
            done.add(key)


def _scan_message(path: Path, key: str, known: Mapping[str, str]) -> Iterator[Scanned]:
    with open_plain(path) as file, translate_errors(path, "a readable file"):
        status = os.fstat(file.fileno())
        fingerprint = f"{status.st_size}-{status.st_mtime_ns}"
        if known.get(key) == fingerprint:
            yield UnchangedDocument(key)
            return
        content = file.read(MOST_PARSED)
    yield from _documents(key, fingerprint, path, content, status.st_size, status.st_mtime)


def _documents(key: str, fingerprint: str, path: Path, content: bytes, size: int, fallback: float) -> Iterator[Scanned]:
    """Yield the document of a message of `size` bytes; `fallback` is its time if it has no valid date."""
    message, text = parse_message(content)
    if size > MOST_PARSED:
        sentence = f"has {size:,} bytes; the text in the first {MOST_PARSED:,} is searched"
        yield SkippedDocument(key, "mail.too-large", sentence)
    people = "\n".join(f"{name}: {found}" for name in _PEOPLE if (found := header_text(message, name)))
    body = plain_text(f"{people}\n\n{text}").strip()
    if len(body) > MOST_CHARACTERS:
        body = body[:MOST_CHARACTERS]
        yield SkippedDocument(key, "mail.text-cut", f"only its first {len(body):,} characters are searched")
    title = plain_text(header_text(message, "Subject")) or "(no subject)"
    try:
        date = parsedate_to_datetime(header_text(message, "Date")).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        date = fallback
    yield FoundDocument(key, fingerprint, stored_path(str(path)), title, "", body, date)


def _message_id(head: bytes) -> str:
    """Return the Message-ID of a message, or without one the digest of its headers."""
    found = _ID.search(head)
    return plain_text(found[1].decode("utf-8", "replace")) if found else f"-{blake2b(head, digest_size=8).hexdigest()}"


def _unchanged_mailbox(mailbox: str, known: Mapping[str, str], but: tuple[str, ...] = ()) -> Iterator[Scanned]:
    """Yield the known keys of a mailbox and its messages as unchanged, but for some."""
    for key in known:
        if (key == mailbox or key.startswith(mailbox + _MARK)) and key not in but:
            yield UnchangedDocument(key)


def _digest_of_ends(file: IO[bytes], size: int) -> str:
    """Return the digest of the first and the last bytes of the part of a mailbox that was read."""
    digest = blake2b(digest_size=8)
    for place in (0, max(0, size - _END)):
        file.seek(place)
        digest.update(file.read(min(_END, size - place)))
    return digest.hexdigest()
