"""DOCX: the text of a Word document and its notes, read from the XML in the zip file within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from quorank.errors import BadInput
from quorank.files.archives import UntrustedZip, is_zip
from quorank.files.untrusted import UnpackLimits, read_head, xml_events
from quorank.search.sources.formats.extracted import ExtractedText
from quorank.text.readers.decoding import one_line

MOST_UNPACKED = 1 << 26
"""Bytes of XML that a document may unpack to."""
_TEXTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_TITLE = "docProps/core.xml"
_OLD = b"\xd0\xcf\x11\xe0"  # a compound file: how Office keeps what is under a password


def _paragraphs(file: IO[bytes], where: Path) -> Iterator[str]:
    """Yield the pieces of a document's text, with a line break after each paragraph."""
    for event, name, element in xml_events(file, where):
        if event == "start" and name in ("tab", "br", "cr"):
            yield "\t" if name == "tab" else "\n"
        elif event == "end" and name == "t":
            yield element.text or ""
        elif event == "end" and name == "p":
            yield "\n"


def _title(file: IO[bytes], where: Path) -> str:
    """Return the title in the properties of a document."""
    events = xml_events(file, where, 10_000)
    return next(
        ((element.text or "")[:1000] for event, name, element in events if (event, name) == ("end", "title")), ""
    )


def read_docx(path: Path, most_characters: int) -> ExtractedText:
    """Return the title and text of a Word document; what cannot be read is the problem of what is returned."""
    try:
        if not is_zip(path):
            return ExtractedText(problem=_no_zip(path))
        with UntrustedZip(path, UnpackLimits(unpacked=MOST_UNPACKED)) as packed:
            if _TEXTS[0] not in packed.members:
                return ExtractedText(problem=("docx.damaged", f"holds no {_TEXTS[0]}, so it is no Word document"))
            title, pieces, left, problem = "", [], most_characters, None
            try:
                if _TITLE in packed.members:
                    with packed.open(_TITLE) as file:
                        title = _title(file, path)
                for name in _TEXTS:
                    if name in packed.members and left >= 0:
                        with packed.open(name) as file:
                            for piece in _paragraphs(file, path):
                                pieces.append(piece)
                                left -= len(piece)
                                if left < 0:
                                    break
            except BadInput as error:
                problem = _problem(error)
            return ExtractedText(one_line(title), "".join(pieces).strip(), problem)
    except BadInput as error:
        return ExtractedText(problem=_problem(error))


def _no_zip(path: Path) -> tuple[str, str]:
    if read_head(path, len(_OLD)) == _OLD:
        return "docx.encrypted", "is under a password, or in the format of Word before 2007; only its name is searched"
    return "docx.damaged", "is no Word document; only its name is searched"


def _problem(error: BadInput) -> tuple[str, str]:
    code = {"archive.unsupported": "docx.encrypted", "file.too-large": "docx.too-large"}.get(error.code, "docx.damaged")
    return (error.code if error.code in ("file.missing", "file.unreadable") else code), error.sentence
