"""Reader of a folder of text files, also in its subfolders: the file's name is the id, its first line the title.

Files `.txt` and `.md` count; where a folder has none of them, files without an extension do. The body is the whole
text, because a first line need not be a title. In Markdown the signs of a heading are not part of the title. Files of
other kinds, and binary files, are skipped and counted.
"""

from __future__ import annotations

from pathlib import Path

from quorank.errors import BadInput, brief
from quorank.files.untrusted import read_bounded
from quorank.text.collection import Document, TextCollection, add_skipped
from quorank.text.readers.decoding import decode

SUFFIXES = (".txt", ".md")
_HEAD = 8192


def text_files(folder: Path) -> list[Path]:
    """Return the files that `read_folder` reads, in the order of their names; hidden ones do not count."""
    files = _files(folder)
    named = [file for file in files if file.suffix.lower() in SUFFIXES]
    return named or [file for file in files if not file.suffix or file.suffix[1:].isdigit()]


def read_folder(folder: Path, name: str) -> TextCollection:
    """Read a document a file; a file without a word is kept as an empty document."""
    files, documents, damaged = text_files(folder), [], []
    for file in files:
        content, id_ = read_bounded(file), file.relative_to(folder).as_posix()
        if b"\0" in content[:_HEAD]:
            damaged.append(id_)
        else:
            body = decode(content).strip()
            title = body.split("\n", 1)[0].strip()
            documents.append(Document(id_, title.lstrip("#").strip() if file.suffix.lower() == ".md" else title, body))
    if not documents:
        sentence = f"none of its {len(files)} files is text, as {brief(damaged[0])}; expected files of text"
        raise BadInput("text.not-text", sentence, f"{folder}")
    others = [file.relative_to(folder).as_posix() for file in sorted(set(_files(folder)) - set(files))]
    skipped = add_skipped({}, files_that_are_not_text=damaged, files_of_other_kinds=others)
    return TextCollection(name, tuple(documents), skipped=skipped, format="folder of text files")


def _files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
