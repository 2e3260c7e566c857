"""Reader of a folder of text files, also in its subfolders: the file's name is the id, its first line the title.

Files `.txt` and `.md` count; where a folder has none of them, files without an extension do. The body is the whole
text, because a first line need not be a title. In Markdown the signs of a heading are not part of the title.
"""

from __future__ import annotations

from pathlib import Path

from quorank.errors import BadInput
from quorank.text.collection import Document, TextCollection
from quorank.text.readers.decoding import decode, read_bytes

SUFFIXES = (".txt", ".md")
_HEAD = 8192


def text_files(folder: Path) -> list[Path]:
    """Return the files that `read_folder` reads, in the order of their names; hidden ones do not count."""
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    named = [file for file in files if file.suffix.lower() in SUFFIXES]
    return named or [file for file in files if not file.suffix or file.suffix[1:].isdigit()]


def read_folder(folder: Path, name: str) -> TextCollection:
    """Read a document a file; a file without text is kept as an empty document."""
    return TextCollection(name, tuple(_document(folder, file) for file in text_files(folder)))


def _document(folder: Path, file: Path) -> Document:
    content = read_bytes(file)
    if b"\0" in content[:_HEAD]:
        raise BadInput("text.not-text", f"this is not text; expected text, or move it out of {folder}", f"{file}")
    body = decode(content).strip()
    title = body.split("\n", 1)[0].strip()
    if file.suffix.lower() == ".md":
        title = title.lstrip("#").strip()
    return Document(file.relative_to(folder).as_posix(), title, body)
