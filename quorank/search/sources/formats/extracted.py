"""What a reader of a file format gives: a title, a text, and what it could not read."""

from __future__ import annotations

from typing import NamedTuple


class ExtractedText(NamedTuple):
    """Title and text of a file, and the code and sentence for what could not be read of it, if anything."""

    title: str = ""
    text: str = ""
    problem: tuple[str, str] | None = None
