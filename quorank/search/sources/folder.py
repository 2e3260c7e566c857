"""Folder of files as a source: text, Markdown, HTML, PDF, DOCX and source code; other files are found by their names.

The key of a file is its path below the folder, its fingerprint its size and modification time, taken before it is
read: a change during the reading gives another fingerprint in the next scan. A file whose content cannot be read has
the code of the reason in its fingerprint, so that it is not opened again until it changes, or until the limit that it
exceeded changes. A folder that cannot be read (an unmounted disk, a missing permission) keeps its indexed content.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import ClassVar, NamedTuple

from quorank.errors import BadInput, require_range
from quorank.files.atomic import read_whole
from quorank.search.sources.file_names import absolute_path, keep_path, opened_path, shown_name, stored_path
from quorank.search.sources.formats.docx import read_docx
from quorank.search.sources.formats.pdf import PdfProcess
from quorank.search.sources.formats.texts import BINARY_ENDINGS, ExtractedText, read_text
from quorank.search.sources.ignore_rules import IGNORE_FILES, MOST_RULES_BYTES, RuleStack
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

MOST_BYTES = 20_000_000
"""Default limit on the bytes of a file."""
TICK = 0.02
"""Resolution of file system clocks, seconds: a file that changed just now is read after this time."""
_CACHE_TAG, _CACHE_SIGNATURE = "CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"
_SYSTEM_FOLDERS = frozenset({"/proc", "/sys", "/dev", "/run"})
_TEMPORARY = frozenset({"file.unreadable"})
"""Codes of problems that may end without a change of the file."""


class _Folder(NamedTuple):
    """Folder to scan: its path, its key with a trailing slash, its ignore rules."""

    path: str
    prefix: str
    rules: RuleStack


@dataclass(frozen=True)
class FilesSource(Source):
    """Files of a folder and the folders below it.

    Args:
        path: The folder.
        ignore: Rules as in `.gitignore` that precede those of all files.
        most_bytes: Larger files are found by their names only.
        most_characters: Searched characters of a file.
        follow_links: Follow symbolic links; each folder is still scanned once.

    >>> FilesSource("/people/ann/Documents", ignore=("*.log",)).name
    '/people/ann/Documents'
    """

    kind: ClassVar[str] = "folder"

    path: str = "~/Documents"
    ignore: tuple[str, ...] = ()
    most_bytes: int = MOST_BYTES
    most_characters: int = MOST_CHARACTERS
    follow_links: bool = False

    def __post_init__(self) -> None:
        keep_path(self, "path")
        require_range("most_bytes", self.most_bytes, least=1, most=1 << 31)
        require_range("most_characters", self.most_characters, least=1, most=100_000_000)

    @property
    def name(self) -> str:
        """The path of the folder."""
        return shown_name(opened_path(self.path))

    @property
    def root(self) -> str:
        """The absolute path of the folder."""
        return str(absolute_path(self.path))

    def watch_paths(self) -> tuple[Path, ...]:
        """Return the folder."""
        return (absolute_path(self.path),)

    def holds(self, path: Path) -> bool:
        """Return whether a file lies in the folder, or behind a link where links are followed."""
        return path.is_relative_to(self.root) if self.follow_links else super().holds(path)

    def concerns(self, path: Path) -> bool:
        """Return whether the source's own and the default rules admit a changed path."""
        below = Path(os.path.relpath(path, self.root)).parts
        if path.name in IGNORE_FILES:
            return True
        rules, at = RuleStack.start(self.ignore), b""
        for place, part in enumerate(below):
            name = os.fsencode(part)
            if rules.ignores(at + name, place < len(below) - 1):
                return False
            at += name + b"/"
        return True

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the files, folder by folder in the order of their names."""
        if not Path(self.root).is_dir():
            sentence = "is no folder, or missing now; its indexed content stays until the source is removed"
            yield SkippedDocument("", "folder.missing", sentence)
            yield from unchanged_below(known)
            return
        with PdfProcess() as pdf:
            yield from _Scan(self, known, pdf).files()


class _Scan:
    """Scan of a folder."""

    def __init__(self, source: FilesSource, known: Mapping[str, str], pdf: PdfProcess) -> None:
        self.source, self.known, self.pdf = source, known, pdf
        root = Path(source.root).stat()
        self.seen = {(root.st_dev, root.st_ino)}  # folders, where links are followed

    def files(self) -> Iterator[Scanned]:
        waiting = [_Folder(self.source.root, "", RuleStack.start(self.source.ignore))]
        while waiting:
            folder = waiting.pop()
            inner: list[_Folder] = []
            yield from self._entries(folder, inner)
            waiting += reversed(inner)

    def _entries(self, folder: _Folder, inner: list[_Folder]) -> Iterator[Scanned]:
        prefix, rules = folder.prefix, folder.rules
        try:
            with os.scandir(folder.path) as found:
                entries = sorted(found, key=attrgetter("name"))
        except (FileNotFoundError, NotADirectoryError):
            yield SkippedDocument(prefix, "folder.vanished", "vanished during the scan")
            return
        except OSError as error:
            sentence = f"cannot be read ({error.strerror}); its indexed content stays"
            yield SkippedDocument(prefix, "folder.unreadable", sentence)
            yield from unchanged_below(self.known, prefix)
            return
        names = {entry.name for entry in entries}
        if _CACHE_TAG in names and prefix and self._is_cache(folder):
            return
        below = os.fsencode(folder.path[len(self.source.root) :].lstrip("/"))
        below += b"/" if below else b""
        contents = []
        for name in IGNORE_FILES:
            if name in names:
                try:
                    contents.append(read_whole(f"{folder.path}/{name}", MOST_RULES_BYTES, code="file.unreadable"))
                except BadInput as error:
                    yield SkippedDocument(prefix + name, "ignore-rules.unreadable", error.sentence)
        rules = rules.below(below, contents)
        for entry in entries:
            name = entry.name
            encoded = name.encode("utf-8", "surrogateescape")
            try:
                is_folder, is_link = entry.is_dir(follow_symlinks=False), entry.is_symlink()
                if rules.ignores(below + encoded, is_folder):
                    continue
                key = prefix + stored_path(name)
                if is_link:
                    if not self.source.follow_links:
                        yield SkippedDocument(key, "file.link", "is a link, and links are not followed here")
                        continue
                    is_folder = entry.is_dir()
                if is_folder and not self.source.follow_links:
                    if entry.path not in _SYSTEM_FOLDERS:
                        inner.append(_Folder(entry.path, f"{key}/", rules))
                    continue
                status = entry.stat(follow_symlinks=self.source.follow_links)
            except OSError as error:
                yield from self._unreadable(prefix + stored_path(name), error)
                continue
            if is_folder:
                if self._was_seen(status):
                    yield SkippedDocument(key, "folder.link-loop", "was scanned already, and a link leads here again")
                elif entry.path not in _SYSTEM_FOLDERS:
                    inner.append(_Folder(entry.path, f"{key}/", rules))
            elif stat.S_ISREG(status.st_mode):
                yield from self._file(key, name, entry.path, status)
            else:
                yield SkippedDocument(
                    key, "file.special", f"is {_file_type(status.st_mode)}, which has no content to search"
                )

    def _is_cache(self, folder: _Folder) -> bool:
        try:
            return read_whole(f"{folder.path}/{_CACHE_TAG}", MOST_RULES_BYTES, code="file.unreadable").startswith(
                _CACHE_SIGNATURE
            )
        except BadInput:
            return False

    def _was_seen(self, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        known = identity in self.seen
        self.seen.add(identity)
        return known

    def _unreadable(self, key: str, error: OSError) -> Iterator[Scanned]:
        if isinstance(error, FileNotFoundError):
            yield SkippedDocument(key, "file.vanished", "vanished during the scan, or is a dangling link")
        else:
            yield SkippedDocument(key, "file.unreadable", f"cannot be read ({error.strerror})")
            if key in self.known:
                yield UnchangedDocument(key)
            yield from unchanged_below(self.known, f"{key}/")

    def _file(self, key: str, name: str, path: str, status: os.stat_result) -> Iterator[Scanned]:
        before, size = self.known.get(key), status.st_size
        fingerprint = f"{size}-{status.st_mtime_ns}"
        if before is not None and self._is_settled(before, fingerprint, size):
            yield UnchangedDocument(key)
            return
        if 0 <= time.time() - status.st_mtime < TICK:
            time.sleep(TICK)
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError as error:
                yield from self._unreadable(key, error)
                return
            size = status.st_size
            fingerprint = f"{size}-{status.st_mtime_ns}"
        shown = shown_name(name)
        ending = os.path.splitext(name)[1].lower()  # noqa: PTH122
        title, text, code = shown, "", ""
        if size and ending not in BINARY_ENDINGS:
            found = self._read(path, ending, size)
            text = found.text
            if found.problem is not None:
                code, sentence = found.problem
                yield SkippedDocument(key, code, sentence)
                if code == "file.vanished":
                    return
                if code in _TEMPORARY and before is not None:
                    yield UnchangedDocument(key)
                    return
                fingerprint = f"{fingerprint} {code}"
            if len(text) > self.source.most_characters:
                text = text[: self.source.most_characters]
                yield SkippedDocument(key, "file.text-cut", f"only its first {len(text):,} characters are searched")
            title = found.title or shown
        stored = path if path.isascii() else stored_path(path)
        yield FoundDocument(key, fingerprint, stored, title, shown, text, status.st_mtime)

    def _is_settled(self, before: str, fingerprint: str, size: int) -> bool:
        """Return whether reading the file again would give the indexed content."""
        if before == fingerprint:
            return True
        same, _, code = before.partition(" ")
        if same != fingerprint or code in _TEMPORARY:
            return False
        return code != "file.too-large" or size > self.source.most_bytes

    def _read(self, path: str, ending: str, size: int) -> ExtractedText:
        """Return title and text of a file; a binary file has neither text nor problem."""
        most = self.source.most_bytes
        if size > most:
            return ExtractedText(problem=_too_large(most))
        if ending == ".pdf":
            found = self.pdf.read(path, self.source.most_characters)
        elif ending in (".docx", ".docm", ".dotx"):
            found = read_docx(Path(path), self.source.most_characters)
        else:
            try:
                content = read_whole(path, most, code="file.unreadable")
            except BadInput as error:
                found = ExtractedText(problem=(error.code, error.sentence))
            else:
                found = read_text(content, ending)
        if found.problem is not None:
            code, sentence = found.problem
            known = {
                "file.missing": ("file.vanished", "vanished while it was read"),
                "file.too-large": _too_large(most),
            }
            return found._replace(problem=known.get(code, (code, sentence)))
        return found._replace(title=plain_text(found.title), text=plain_text(found.text))


def _too_large(most: int) -> tuple[str, str]:
    return "file.too-large", f"is larger than {most:,} bytes; only its name is searched"


def _file_type(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((words for is_kind, words in kinds if is_kind(mode)), "a device")
