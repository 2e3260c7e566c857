"""Title and text of files: plain text, source code, Markdown, HTML and DOCX.

Text is UTF-8, UTF-16 or UTF-32 with its byte order mark, else Windows-1252; a NUL near the start means binary data.
HTML may name its encoding. The text of a Word document and its notes is read from the XML in the zip file within bounds.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from quorank.errors import BadInput
from quorank.files.archives import UntrustedZip, is_zip
from quorank.files.untrusted import UnpackLimits, read_head, xml_events
from quorank.text.readers.decoding import decode, one_line, without_tags

HTML_ENDINGS = frozenset({".html", ".htm", ".xhtml"})
MARKDOWN_ENDINGS = frozenset({".md", ".markdown", ".mdown", ".mkd"})
_BINARY = """
7z a aac ai aif aiff apk avi avif azw3 bin blend bmp bz2 cab class cr2 dat db deb dll dmg doc dylib eot epub exe fits flac
flv gif gz h5 hdf5 heic heif icns ico img iso jar jpeg jpg jxl key lib lz4 lzma m4a m4b m4v mid mkv mobi mov mp3 mp4 mpeg
mpg msi nef npy npz numbers o obj odp ods odt ogg ogv opus orf otf pages parquet pdb pkl png ppt pptx psd pt pth pyc raf
rar raw rpm safetensors so sqlite sqlite3 tar tgz tif tiff ttf vdi vmdk wasm wav webm webp wma wmv woff woff2 xcf xls xlsx
xz zip zst
"""
BINARY_ENDINGS = frozenset(f".{ending}" for ending in _BINARY.split())
"""Endings of files without text that can be read here: they are found by their names and never opened."""
LONGEST_PAGE = 4_000_000  # characters of an HTML page, with its tags, that are searched
MOST_UNPACKED = 1 << 26  # bytes of XML that a Word document may unpack to
LONGEST_TITLE = 1000
MARGIN = 1000  # characters beyond the requested ones, so that a cut text stays longer than these after `strip`
_BINARY_HEAD, _CHARSET_HEAD = 8192, 2048  # bytes in which a NUL means binary data, and a page must name its encoding
_MARKDOWN_HEAD = 10_000  # characters that may hold the title
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FRONT_TITLE = re.compile(r"^title[ \t]*:[ \t]*(.{1,300})$", re.MULTILINE | re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.{1,300})$", re.MULTILINE)
_UNDERLINED = re.compile(r"\A\s*(\S.{0,299})\n=+[ \t]*$", re.MULTILINE)
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset[ \t]{0,9}=[ \t]{0,9}[\"']?([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE)
_HTML_TITLE = re.compile(r"<title\b[^>]{0,200}>([^<]{0,1000})", re.IGNORECASE)
_DOCX_TEXTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_DOCX_TITLE = "docProps/core.xml"
_DOCX_PIECES = {"tab": "\t", "br": "\n", "cr": "\n", "p": "\n"}
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"  # of encrypted documents and of Word before 2007
_CODECS = ("utf-8", "cp", "iso8859", "koi8", "gb", "big5", "shift_jis", "euc", "mac", "tis")


class ExtractedText(NamedTuple):
    """Title and text of a file, with code and sentence of a problem, if any."""

    title: str = ""
    text: str = ""
    problem: tuple[str, str] | None = None


def read_text(content: bytes, ending: str = "") -> ExtractedText:
    """Return title and text of a file of text, Markdown or HTML by its ending; binary data has neither."""
    if ending not in HTML_ENDINGS:
        text = decode_text(content)
        return ExtractedText(markdown_title(text) if ending in MARKDOWN_ENDINGS else "", text)
    page = _decode_html(content)
    title = _HTML_TITLE.search(page, 0, LONGEST_PAGE)
    cut = "file.text-cut", f"only the first {LONGEST_PAGE:,} characters of the page are searched"
    problem = cut if len(page) > LONGEST_PAGE else None
    return ExtractedText(without_tags(title[1]) if title else "", without_tags(page[:LONGEST_PAGE]), problem)


def decode_text(content: bytes) -> str:
    """Return the text of a file; empty for binary data."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding, "replace").replace("\r\n", "\n")
    return "" if b"\0" in content[:_BINARY_HEAD] else decode(content)


def markdown_title(text: str) -> str:
    r"""Return the title of a Markdown document, from its front matter or its first heading; empty without one.

    >>> markdown_title("---\ntitle: 'A plan'\n---\n# First\n"), markdown_title("words\n\n## A heading ##\n")
    ('A plan', 'A heading')
    """
    head = text[:_MARKDOWN_HEAD]
    if head.startswith("---\n") and (end := head.find("\n---", 3)) >= 0:
        found = _FRONT_TITLE.search(head, 0, end)
        if found:
            return found[1].strip().strip("\"'")
    found = _UNDERLINED.match(head) or _HEADING.search(head)
    return found[1].strip().rstrip("#").strip() if found else ""


def _decode_html(content: bytes) -> str:
    named = _CHARSET.search(content, 0, _CHARSET_HEAD)
    if named and b"\0" not in content[:_CHARSET_HEAD]:
        with suppress(LookupError, ValueError):
            name = codecs.lookup(named[1].decode("ascii")).name
            if name.startswith(_CODECS):
                return content.decode(name, "replace")
    return decode_text(content)


def read_docx(path: Path, most_characters: int) -> ExtractedText:
    """Return title and text of a Word document, with the reason for parts that cannot be read."""
    title, pieces, problem, left = "", list[str](), None, most_characters + MARGIN
    try:
        if not is_zip(path):
            if read_head(path, len(_COMPOUND_FILE)) == _COMPOUND_FILE:
                sentence = "is password-protected, or in the format of Word before 2007; only its name is searched"
                return ExtractedText(problem=("docx.encrypted", sentence))
            return ExtractedText(problem=("docx.damaged", "is not a Word document; only its name is searched"))
        with UntrustedZip(path, UnpackLimits(unpacked=MOST_UNPACKED)) as packed:
            if _DOCX_TEXTS[0] not in packed.members:
                return ExtractedText(problem=("docx.damaged", f"has no {_DOCX_TEXTS[0]}, so it is no Word document"))
            if _DOCX_TITLE in packed.members:
                with packed.open(_DOCX_TITLE) as file:
                    title = next((text for name, text in _texts(file, path) if name == "title"), "")
            for member in _DOCX_TEXTS:
                if member in packed.members and left >= 0:
                    with packed.open(member) as file:
                        for name, text in _texts(file, path):
                            pieces.append(text if name == "t" else _DOCX_PIECES.get(name, ""))
                            left -= len(pieces[-1])
                            if left < 0:
                                break
    except BadInput as error:
        codes = {name: name for name in ("file.missing", "file.unreadable")}
        codes |= {"archive.unsupported": "docx.encrypted", "file.too-large": "docx.too-large"}
        problem = codes.get(error.code, "docx.damaged"), error.sentence
    return ExtractedText(one_line(title[:LONGEST_TITLE]), "".join(pieces).strip(), problem)


def _texts(file: IO[bytes], where: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each element at its end."""
    for event, name, element in xml_events(file, where):
        if event == "end":
            yield name, element.text or ""
