"""Folder of files as a source: text, Markdown, HTML, PDF, DOCX and source code; other files are found by their names.

The key of a file is its path below the folder, its fingerprint its size and modification time, taken before it is
read: a change during the reading gives another fingerprint in the next scan. A file whose content cannot be read has
the code of the reason in its fingerprint, so that it is not opened again until it changes. A folder that cannot be read
(an unmounted disk, a missing permission) keeps its indexed content. Links are not followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from quorank.errors import BadInput
from quorank.files.atomic import read_whole
from quorank.search.sources.formats import BINARY_ENDINGS, ExtractedText, read_docx, read_text
from quorank.search.sources.ignore_rules import IGNORE_FILES, MOST_RULES_BYTES, RuleStack
from quorank.search.sources.pdf import PdfProcess
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

MOST_BYTES = 20_000_000  # bytes of a file; larger ones are found by their names only
TICK = 0.02  # resolution of file system clocks, seconds: a file that changed just now is read after this time
_CACHE_TAG, _CACHE_SIGNATURE = "CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"
_SYSTEM_FOLDERS = frozenset({"/proc", "/sys", "/dev", "/run"})
_TEMPORARY = "file.unreadable"  # code of a problem that may end without a change of the file
_WORD_ENDINGS = (".docx", ".docm", ".dotx")


class _Folder(NamedTuple):
    """Folder to scan: its path, the same below the source in bytes, its key, its ignore rules."""

    path: str
    below: bytes
    prefix: str
    rules: RuleStack


@dataclass(frozen=True)
class FilesSource(PathSource):
    """Files of a folder and the folders below it.

    Args:
        path: The folder.

    >>> FilesSource("/people/ann/Documents").name
    '/people/ann/Documents'
    """

    kind: ClassVar[str] = "folder"

    path: str = "~/Documents"

    def concerns(self, path: Path) -> bool:
        """Return whether the default rules admit a changed path."""
        if path.name in IGNORE_FILES:
            return True
        parts, rules = Path(os.path.relpath(path, self.place)).parts, RuleStack.default()
        names = [os.fsencode(part) for part in parts]
        return not any(rules.ignores(b"/".join(names[: n + 1]), n < len(names) - 1) for n in range(len(names)))

    def scan(self, known: Mapping[str, str]) -> Iterator[Scanned]:
        """Yield the files, folder by folder in the order of their names."""
        if not self.place.is_dir():
            sentence = "is not a folder, or missing now; its indexed content stays until the source is removed"
            yield SkippedDocument("", "folder.missing", sentence)
            yield from unchanged_below(known)
            return
        waiting = [_Folder(str(self.place), b"", "", RuleStack.default())]
        with PdfProcess() as pdf:
            while waiting:
                inner: list[_Folder] = []
                yield from _scan_folder(waiting.pop(), inner, known, pdf)
                waiting += reversed(inner)


def _scan_folder(folder: _Folder, inner: list[_Folder], known: Mapping[str, str], pdf: PdfProcess) -> Iterator[Scanned]:
    """Yield the files of a folder, and append its folders to `inner`."""
    path, below, prefix, rules = folder
    try:
        entries = sorted_entries(path)
    except (FileNotFoundError, NotADirectoryError):
        yield SkippedDocument(prefix, "folder.vanished", "vanished during the scan")
        return
    except OSError as error:
        sentence = f"cannot be read ({error.strerror}); its indexed content stays"
        yield SkippedDocument(prefix, "folder.unreadable", sentence)
        yield from unchanged_below(known, prefix)
        return
    contents: dict[str, bytes] = {}
    for name in {entry.name for entry in entries} & {*IGNORE_FILES, _CACHE_TAG}:
        try:
            contents[name] = read_whole(f"{path}/{name}", MOST_RULES_BYTES, code="file.unreadable")
        except BadInput as error:
            yield SkippedDocument(prefix + name, "ignore-rules.unreadable", error.sentence)
    if prefix and contents.get(_CACHE_TAG, b"").startswith(_CACHE_SIGNATURE):
        return
    rules = rules.below(below, [contents[name] for name in IGNORE_FILES if name in contents])
    for entry in entries:
        encoded, key = os.fsencode(entry.name), prefix + stored_path(entry.name)
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules.ignores(below + encoded, is_folder):
                continue
            if entry.is_symlink():
                yield SkippedDocument(key, "file.link", "is a link, and links are not followed")
                continue
            if is_folder:
                if entry.path not in _SYSTEM_FOLDERS:
                    inner.append(_Folder(entry.path, below + encoded + b"/", f"{key}/", rules))
                continue
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            yield from _unreadable(key, error, known)
            continue
        if stat.S_ISREG(status.st_mode):
            yield from _scan_file(key, entry, status, known, pdf)
        else:
            yield SkippedDocument(key, "file.special", "is a pipe, a socket or a device, without content to search")


def _unreadable(key: str, error: OSError, known: Mapping[str, str]) -> Iterator[Scanned]:
    if isinstance(error, FileNotFoundError):
        yield SkippedDocument(key, "file.vanished", "vanished during the scan")
    else:
        yield SkippedDocument(key, "file.unreadable", f"cannot be read ({error.strerror})")
        if key in known:
            yield UnchangedDocument(key)
        yield from unchanged_below(known, f"{key}/")


def _scan_file(
    key: str, entry: os.DirEntry[str], status: os.stat_result, known: Mapping[str, str], pdf: PdfProcess
) -> Iterator[Scanned]:
    same, _, code = known.get(key, "").partition(" ")
    if same == _fingerprint(status) and code != _TEMPORARY:
        yield UnchangedDocument(key)
        return
    if 0 <= time.time() - status.st_mtime < TICK:
        time.sleep(TICK)
        try:
            status = os.stat(entry.path)  # noqa: PTH116
        except OSError as error:
            yield from _unreadable(key, error, known)
            return
    fingerprint, found = _fingerprint(status), ExtractedText()
    ending = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122
    if status.st_size and ending not in BINARY_ENDINGS:
        found = _read(entry.path, ending, status.st_size, pdf)
    if found.problem is not None:
        code, sentence = found.problem
        if code == "file.missing":
            yield SkippedDocument(key, "file.vanished", "vanished while it was read")
            return
        yield SkippedDocument(key, code, sentence)
        if code == _TEMPORARY and key in known:
            yield UnchangedDocument(key)
            return
        fingerprint = f"{fingerprint} {code}"
    shown, text = shown_name(entry.name), plain_text(found.text)
    if len(text) > MOST_CHARACTERS:
        text = text[:MOST_CHARACTERS]
        yield SkippedDocument(key, "file.text-cut", f"only its first {len(text):,} characters are searched")
    title = plain_text(found.title) or shown
    yield FoundDocument(key, fingerprint, stored_path(entry.path), title, shown, text, status.st_mtime)


def _fingerprint(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def _read(path: str, ending: str, size: int, pdf: PdfProcess) -> ExtractedText:
    """Return title and text of a file; a binary file has neither text nor problem."""
    if size > MOST_BYTES:
        sentence = f"is larger than {MOST_BYTES:,} bytes; only its name is searched"
        return ExtractedText(problem=("file.too-large", sentence))
    if ending == ".pdf":
        return pdf.read(path, MOST_CHARACTERS)
    if ending in _WORD_ENDINGS:
        return read_docx(Path(path), MOST_CHARACTERS)
    try:
        return read_text(read_whole(path, MOST_BYTES, code="file.unreadable"), ending)
    except BadInput as error:
        return ExtractedText(problem=(error.code, error.sentence))
