"""Text collections that commands read: what their readers left out is said on stderr and stands in the figures."""

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
    """Return the text collection that a path holds; None where it holds LETOR files or nothing that is known."""
    from quorank.data.importing import find_collection
    from quorank.errors import BadInput
    from quorank.files.atomic import expand_home
    from quorank.text import read_collection

    path = expand_home(source)
    try:
        if not path.exists():
            return None
    except OSError:  # a name that is too long for one
        return None
    if path.is_dir():
        try:
            find_collection(path)
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
    """Return whether one of the first files begins like a row of LETOR: then the folder lacks a file of its layout."""
    from quorank.errors import BadInput
    from quorank.files.untrusted import read_head

    for file in sorted(file for file in folder.iterdir() if file.is_file())[:_FILES]:
        with suppress(BadInput):
            if _LETOR_ROW.match(read_head(file, _HEAD)):
                return True
    return False


def tell_skipped(skipped: SkipRecord, name: str) -> None:
    """Say on stderr what was left out, if anything was."""
    from quorank.text import describe_skipped

    if told := describe_skipped(skipped, name):
        say(told)


def read_texts(paths: Iterable[Path | str]) -> list[TextCollection]:
    """Read collections without their empty documents and queries, and say what was left out of each."""
    from quorank.text import read_collection

    found = []
    for path in paths:
        found.append(read_collection(path).without_empty())
        tell_skipped(found[-1].skipped, found[-1].name)
    return found


def skipped_of(collections: Iterable[TextCollection]) -> dict[str, dict[str, Any]]:
    """Return what was left out of each collection that lost something, by its name, as JSON has it."""
    return {found.name: skipped_table(found.skipped) for found in collections if found.skipped}


def skipped_table(skipped: SkipRecord) -> dict[str, Any]:
    """Return a record as JSON has it: reason → count and example."""
    return {reason: asdict(left_out) for reason, left_out in skipped.items()}
