"""Text collections that commands read, with a message and a table about skipped documents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorank.cli.display import say

if TYPE_CHECKING:
    from quorank.text import SkipRecord, TextCollection

_LETOR_ROW = re.compile(rb"\s*\S+\s+qid:")
_HEAD, _FILES = 256, 20


def find_text(source: Path | str) -> TextCollection | None:
    """Return the text collection in a path; None for LETOR files and unknown formats."""
    from quorank.data.importing import find_collection
    from quorank.data.layout import find_files
    from quorank.errors import BadInput
    from quorank.files.atomic import expand_home
    from quorank.files.untrusted import read_head
    from quorank.text import read_collection

    path = expand_home(source)
    try:
        if not path.exists():
            return None
    except OSError:  # a name that is too long
        return None
    if path.is_dir():
        try:
            folder = find_collection(path)
            (first, *_) = find_files(folder, 1)["train"]
            if b"qid:" in read_head(first, _HEAD):
                return None
        except BadInput as error:
            if error.code != "folder.no-collection" or _holds_letor(path):
                return None
    try:
        return read_collection(path)
    except BadInput as error:
        if error.code == "text.unknown-format":
            return None
        raise


def _holds_letor(folder: Path) -> bool:
    """Return True if one of the first files begins like LETOR: the folder then lacks a file of its layout."""
    from quorank.errors import BadInput
    from quorank.files.untrusted import read_head

    for file in sorted(file for file in folder.iterdir() if file.is_file())[:_FILES]:
        with suppress(BadInput):
            if _LETOR_ROW.match(read_head(file, _HEAD)):
                return True
    return False


def report_skipped(skipped: SkipRecord, name: str) -> None:
    """Print a message on stderr about skipped documents, if any."""
    from quorank.text import describe_skipped

    if message := describe_skipped(skipped, name):
        say(message)


def read_texts(paths: Iterable[Path | str]) -> list[TextCollection]:
    """Read collections without empty documents and queries, with a message about skipped ones."""
    from quorank.text import read_collection

    collections = []
    for path in paths:
        collections.append(read_collection(path).without_empty())
        report_skipped(collections[-1].skipped, collections[-1].name)
    return collections


def skipped_of(collections: Iterable[TextCollection]) -> dict[str, dict[str, Any]]:
    """Return the skipped documents of each collection that has any, by its name, for JSON."""
    return {each.name: skipped_table(each.skipped) for each in collections if each.skipped}


def skipped_table(skipped: SkipRecord) -> dict[str, Any]:
    """Return a record for JSON: count and example by reason."""
    return {reason: asdict(entry) for reason, entry in skipped.items()}
