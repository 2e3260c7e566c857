"""DOCX: the text of a Word document and its notes, read from the XML in the zip file within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from quorank.errors import BadInput
from quorank.files.archives import UntrustedZip, is_zip
from quorank.files.untrusted import UnpackLimits, read_head, xml_events
from quorank.search.sources.formats.texts import ExtractedText
from quorank.text.readers.decoding import one_line

MOST_UNPACKED = 1 << 26
"""Bytes of XML that a document may unpack to."""
LONGEST_TITLE = 1000
MARGIN = 1000  # characters beyond the asked ones, so that a cut text stays longer than these without its outer space
_TEXTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_TITLE = "docProps/core.xml"
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"  # of encrypted documents and of Word before 2007
_PIECES = {"tab": "\t", "br": "\n", "cr": "\n", "p": "\n"}


def read_docx(path: Path, most_characters: int) -> ExtractedText:
    """Return title and text of a Word document, with the problem of what cannot be read."""
    title, pieces, problem, left = "", list[str](), None, most_characters + MARGIN
    try:
        if not is_zip(path):
            return ExtractedText(problem=_not_a_zip(path))
        with UntrustedZip(path, UnpackLimits(unpacked=MOST_UNPACKED)) as packed:
            if _TEXTS[0] not in packed.members:
                return ExtractedText(problem=("docx.damaged", f"has no {_TEXTS[0]}, so it is no Word document"))
            try:
                if _TITLE in packed.members:
                    with packed.open(_TITLE) as file:
                        title = next((text for name, text in _texts(file, path) if name == "title"), "")
                for member in _TEXTS:
                    if member in packed.members and left >= 0:
                        with packed.open(member) as file:
                            for name, text in _texts(file, path):
                                piece = text if name == "t" else _PIECES.get(name, "")
                                pieces.append(piece)
                                left -= len(piece)
                                if left < 0:
                                    break
            except BadInput as error:
                problem = _problem(error)
    except BadInput as error:
        return ExtractedText(problem=_problem(error))
    return ExtractedText(one_line(title[:LONGEST_TITLE]), "".join(pieces).strip(), problem)


def _texts(file: IO[bytes], where: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each element at its end."""
    for event, name, element in xml_events(file, where):
        if event == "end":
            yield name, element.text or ""


def _not_a_zip(path: Path) -> tuple[str, str]:
    if read_head(path, len(_COMPOUND_FILE)) == _COMPOUND_FILE:
        sentence = "is password-protected, or in the format of Word before 2007; only its name is searched"
        return "docx.encrypted", sentence
    return "docx.damaged", "is no Word document; only its name is searched"


def _problem(error: BadInput) -> tuple[str, str]:
    code = {"archive.unsupported": "docx.encrypted", "file.too-large": "docx.too-large"}.get(error.code, "docx.damaged")
    return (error.code if error.code in ("file.missing", "file.unreadable") else code), error.sentence
