"""Targets of `quorank.search`: every format of a person's files, mail, browsers' databases, ignore rules, file names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

from fuzz.target import as_file, as_folder, scratch, target
from quorank.errors import BadInput
from quorank.search.sources import (
    ChromiumSource,
    FilesSource,
    FirefoxSource,
    FoundDocument,
    MailSource,
    Scanned,
    SkippedDocument,
    Source,
    UnchangedDocument,
)
from quorank.search.sources.formats import ExtractedText, decode_text, markdown_title, read_docx, read_text
from quorank.search.sources.ignore_rules import RuleStack
from quorank.search.sources.pdf import PdfProcess
from quorank.search.sources.source import opened_path, shown_name, stored_path

_XML = (
    b"<w:p>",
    b"<w:t>",
    b"</w:t>",
    b"<w:tab/>",
    b"<!DOCTYPE a>",
    b"<!ENTITY a 'b'>",
    b"&a;",
    b"<![CDATA[",
    b"<?xml version='1.0' encoding='",
    b"utf-16",
)
_HTML = (
    b"<title>",
    b"</title>",
    b"<script>",
    b"<style",
    b"<!--",
    b"<meta charset=",
    b"utf-7",
    b"gb18030",
    b"&#0;",
    b"&amp;",
    b"\xff\xfe",
    b"<",
)
_MAIL = (
    b"\nFrom a\n",
    b"Message-ID: <a>\n",
    b"Message-ID:\n <",
    b"Date: Mon, 1 Jan 2024 10:00:00 +0000\n",
    b"Date: 99999999999",
    b"X-Mozilla-Status: 0008\n",
    b"Content-Type: text/html\n",
    b"\n\n",
    b"\r\n",
)
_RULES = (b"**/", b"/**", b"*", b"?", b"[", b"]", b"[!", b"[[:alpha:]]", b"\\", b"!", b"#", b"/", b"\n", b"-", b" ")
_PDF = (
    b" 0 R",
    b" 0 obj",
    b"endobj",
    b"stream\n",
    b"/Kids [2 0 R]",
    b"/FlateDecode",
    b"/Parent",
    b"/Contents",
    b"xref",
    b"/Encrypt",
)


def check_scan(scanned: Iterable[Scanned]) -> list[Scanned]:
    """Hold what a scan yields: each key once, texts that a database takes, one printable line for the log."""
    found = list(scanned)
    there = [item.key for item in found if not isinstance(item, SkippedDocument)]
    assert len(there) == len(set(there)), there
    for item in found:
        texts = [item.key]
        if isinstance(item, FoundDocument):
            texts += [item.fingerprint, item.path, item.title, item.name, item.body]
            assert list(item.visits) == sorted(item.visits, reverse=True) and len(item.visits) <= 10, item.visits
            assert item.modified - item.modified == 0.0, item.modified
        elif isinstance(item, SkippedDocument):
            texts.append(item.sentence)
            assert item.sentence.isprintable() and len(item.sentence) < 1000, item.sentence
        for text in texts:
            text.encode()
            assert "\0" not in text, item
    return found


def scan_twice(source: Source) -> None:
    """Scan a source, and again with the documents found: nothing has changed. A skipped document is a refusal."""
    first = check_scan(source.scan({}))
    known = {item.key: item.fingerprint for item in first if isinstance(item, FoundDocument)}
    again = check_scan(source.scan(known))
    assert {item.key for item in again if isinstance(item, UnchangedDocument)} == set(known), (known, again)
    refuse(next(((item.code, item.sentence) for item in first if isinstance(item, SkippedDocument)), None))


def refuse(problem: tuple[str, str] | None) -> None:
    """Raise what could not be read as the refusal of the input."""
    if problem is not None:
        raise BadInput(*problem)


@target(
    "person-docx",
    "zip",
    _XML,
    made=lambda: {"not even a zip file": b"PK\x03\x04" * 1000, "an old format": b"\xd0\xcf\x11\xe0" + bytes(600)},
)
def person_docx(data: bytes) -> None:
    """A Word document."""
    refuse(read_docx(as_file(data, "a.docx"), 100_000).problem)


@target(
    "person-page",
    words=_HTML,
    made=lambda: {
        "tags that are opened": b"<a " * 1_000_000,
        "brackets": b"<" * 4_000_000,
        "scripts": b"<script" * 500_000,
        "titles": b"<title " * 500_000,
        "encodings": b"<meta charset" * 200_000,
    },
)
def person_page(data: bytes) -> None:
    """A page in HTML."""
    found = read_text(data, ".html")
    assert isinstance(found, ExtractedText)
    (found.title + found.text).encode()


@target(
    "person-text", words=(b"# ", b"---\n", b"title: ", b"\n===\n", b"\xff\xfe", b"\xfe\xff", b"\0", b"\xef\xbb\xbf")
)
def person_text(data: bytes) -> None:
    """A text, which may be Markdown."""
    text = decode_text(data)
    text.encode()
    assert "\n" not in markdown_title(text)


@cache
def _pdf(process: int) -> PdfProcess:
    return PdfProcess(seconds=2)


@target("person-pdf", words=_PDF, seconds=20)
def person_pdf(data: bytes) -> None:
    """A PDF file, in the process that reads them."""
    found = _pdf(os.getpid()).read(str(as_file(data, "a.pdf")), 100_000)
    assert found.problem is None or found.problem[0] != "pdf.crashed", found
    refuse(found.problem)


@target(
    "person-mailbox",
    words=_MAIL,
    made=lambda: {
        "many messages": b"From a\n\n" * 300,
        "one Message-ID": b"From a\nMessage-ID: <a>\n\n" * 300,
        "one header": b"From a\nMessage-ID:" + b" \n" * 5_000,
        "one line": b"From a\n" + b"Message-ID: " * 50_000,
    },
)
def person_mailbox(data: bytes) -> None:
    """A mailbox, scanned twice; then with a message more, of which the older ones need not be read."""
    path = as_file(data, "mailbox")
    source = MailSource(str(path))
    scan_twice(source)
    known = {item.key: item.fingerprint for item in source.scan({}) if isinstance(item, FoundDocument)}
    with path.open("ab") as file:
        file.write(b"\nFrom a\nSubject: more\n\nwords\n")
    there = {item.key for item in check_scan(source.scan(known)) if not isinstance(item, SkippedDocument)}
    whole = {item.key for item in source.scan({}) if isinstance(item, FoundDocument)}
    assert there == whole, (there, whole)


@target("person-firefox", "sqlite")
def person_firefox(data: bytes) -> None:
    """The database of Firefox."""
    scan_twice(FirefoxSource(str(as_file(data, "places.sqlite"))))


@target("person-chromium", "sqlite")
def person_chromium(data: bytes) -> None:
    """The database of Chromium."""
    scan_twice(ChromiumSource(str(as_file(data, "History"))))


@target(
    "person-folder",
    words=(b"=== a.txt\n", b"=== .gitignore\n", b"=== b/.gitignore\n", b"=== b/a.html\n", b"=== x/c.docx\n", *_RULES),
)
def person_folder(data: bytes) -> None:
    """A folder of files with rules, scanned twice."""
    folder = scratch() / "c"
    scan_twice(FilesSource(str(as_folder(data, folder))))


@target(
    "ignore-rules",
    words=_RULES,
    made=lambda: {
        "stars": b"*a" * 1000 + b"b\n",
        "folders": b"**/a/" * 400 + b"b",
        "brackets": b"[" * 4000,
        "many rules": b"a*b\n!c\n" * 5000,
    },
)
def ignore_rules(data: bytes) -> None:
    """Rules, and paths that they are asked for."""
    rules = RuleStack(()).below(b"", [data])
    for path in (b"a", b"a" * 255, b"a/b/c.txt", b"a/" * 1000 + b"b", b"\xff[]!#\\ /x"):
        for folder in (False, True):
            rules.ignores(path, folder)


@target("file-name", words=(b"\xef\x9e\x80", b"\xef\x9f\xbf", b"\xed\xb2\x80", b"\xe9", b"\n", b"\x1b"))
def file_name(data: bytes) -> None:
    """A path of any bytes: stored, opened again, shown."""
    path = os.fsdecode(data)
    text = stored_path(path)
    text.encode()
    assert opened_path(text) == path
    assert shown_name(path).isprintable()
