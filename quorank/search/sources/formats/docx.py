"""DOCX: the text of a Word document and its notes, read from the XML in the zip file within bounds."""

from __future__ import annotations

from pathlib import Path

from quorank.errors import BadInput
from quorank.files.untrusted import ForeignZip, UnpackLimits, XmlReader, is_zip, read_head
from quorank.search.sources.formats.extracted import ExtractedText
from quorank.text.readers.decoding import one_line

MOST_UNPACKED = 1 << 26
"""Bytes of XML that a document may unpack to."""
_TEXTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_TITLE = "docProps/core.xml"
_OLD = b"\xd0\xcf\x11\xe0"  # a compound file: how Office keeps what is under a password


class _WordText(XmlReader):
    """Characters of the runs of a document, a line for each paragraph."""

    def __init__(self, where: object, most: int) -> None:
        super().__init__(where)
        self.pieces: list[str] = []
        self.left, self._inside = most, False

    def begin(self, name: str) -> None:
        self._inside = name == "t"
        if name in ("tab", "br", "cr"):
            self._add("\n" if name != "tab" else "\t")

    def end(self, name: str) -> None:
        self._inside = False
        if name == "p":
            self._add("\n")

    def text(self, characters: str) -> None:
        if self._inside:
            self._add(characters)

    def _add(self, piece: str) -> None:
        self.pieces.append(piece)
        self.left -= len(piece)
        self.stop = self.stop or self.left < 0


class _WordTitle(XmlReader):
    """Title in the properties of a document."""

    def __init__(self, where: object) -> None:
        super().__init__(where, 10_000)
        self.title, self._inside = "", False

    def begin(self, name: str) -> None:
        self._inside = name == "title"

    def end(self, name: str) -> None:
        self._inside = False
        self.stop = self.stop or name == "title"

    def text(self, characters: str) -> None:
        if self._inside and len(self.title) < 1000:
            self.title += characters


def read_docx(path: Path, most_characters: int) -> ExtractedText:
    """Return the title and text of a Word document; what cannot be read is the problem of what is returned."""
    try:
        if not is_zip(path):
            return ExtractedText(problem=_no_zip(path))
        with ForeignZip(path, UnpackLimits(unpacked=MOST_UNPACKED)) as packed:
            if _TEXTS[0] not in packed.members:
                return ExtractedText(problem=("docx.damaged", f"holds no {_TEXTS[0]}, so it is no Word document"))
            found = _WordText(path, most_characters)
            title = _WordTitle(path)
            problem = None
            try:
                if _TITLE in packed.members:
                    with packed.open(_TITLE) as file:
                        title.read(file)
                for name in _TEXTS:
                    if name in packed.members and not found.stop:
                        with packed.open(name) as file:
                            found.read(file)
            except BadInput as error:
                problem = _problem(error)
            return ExtractedText(one_line(title.title), "".join(found.pieces).strip(), problem)
    except BadInput as error:
        return ExtractedText(problem=_problem(error))


def _no_zip(path: Path) -> tuple[str, str]:
    if read_head(path, len(_OLD)) == _OLD:
        return "docx.encrypted", "is under a password, or in the format of Word before 2007; only its name is searched"
    return "docx.damaged", "is no Word document; only its name is searched"


def _problem(error: BadInput) -> tuple[str, str]:
    code = {"archive.unsupported": "docx.encrypted", "file.too-large": "docx.too-large"}.get(error.code, "docx.damaged")
    return (error.code if error.code in ("file.missing", "file.unreadable") else code), error.sentence
