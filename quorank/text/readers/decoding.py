"""Decoding of text files, plain or packed, in UTF-8 or else Windows-1252, and of HTML pages without a parser."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from quorank.errors import BadInput
from quorank.files.untrusted import read_bounded
from quorank.text.collection import Document, Query, refuse_twice

_TITLE_LINES = 4
_TITLE_END = re.compile(r"\s{2,}\S")
_LONG_CODE = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9a-fA-F]{8,});?")  # Unicode ends at seven digits

_TAG = re.compile(r"</?[a-zA-Z]|<[!?]")
_HIDDEN = re.compile(r"<(script|style)\b", re.IGNORECASE)
_CLOSING = {tag: re.compile(f"</{tag}", re.IGNORECASE) for tag in ("script", "style")}

Item = TypeVar("Item", Document, Query)


def decode(content: bytes | bytearray) -> str:
    r"""Decode UTF-8 if it is that, else Windows-1252; line ends become \n."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def unescaped(text: str) -> str:
    """Replace entities by their characters; a code beyond Unicode, however long, by the replacement character."""
    return html.unescape(_LONG_CODE.sub("\ufffd", text))


def read_text(path: Path) -> str:
    """Return the text of a plain or packed file."""
    return decode(read_bounded(path))


def bad_line(where: object, line: int, code: str, sentence: str) -> BadInput:
    """Return the error for a line of a file."""
    return BadInput(code, sentence, f"{where}, line {line}")


def each_once(where: object, what: str, found: Iterable[tuple[int, Item]]) -> tuple[Item, ...]:
    """Return the documents or queries of a file, given with their lines; an id that stands twice is refused."""
    numbered = list(found)
    refuse_twice(f"{where}", what, (item.id for _, item in numbered), (line for line, _ in numbered))
    return tuple(item for _, item in numbered)


def one_line(text: str) -> str:
    """Replace each run of white space by one space."""
    return " ".join(text.split())


def leading_title(text: str) -> str:
    """Return a title for a document without one: its beginning up to an indented line or a double space.

    If neither is within the first four lines, the title is the first line. MED and NPL have this layout.
    """
    lines = [line.rstrip() for line in text.strip().split("\n", _TITLE_LINES)[:_TITLE_LINES]]
    beginning = "\n".join(lines)
    end = _TITLE_END.search(beginning)
    return one_line(beginning[: end.start()] if end else lines[0])


def without_tags(page: str) -> str:
    """Return the text of an HTML page without tags, comments, scripts and styles, in linear time."""
    pieces, at = [], 0
    while at < len(page):
        tag = _TAG.search(page, at)  # a bracket as in "a < b" is text
        if tag is None:
            pieces.append(page[at:])
            break
        begin = tag.start()
        pieces.append(page[at:begin])
        if page.startswith("<!--", begin):
            end = page.find("-->", begin)
            at = end + 3 if end >= 0 else len(page)
            continue
        if opening := _HIDDEN.match(page, begin):
            closing = _CLOSING[opening[1].lower()].search(page, opening.end())
            begin = closing.start() if closing else len(page)
        end = page.find(">", begin)
        at = end + 1 if end >= 0 else len(page)
    return one_line(unescaped(" ".join(pieces)))
