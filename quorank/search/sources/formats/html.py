"""HTML: its text without tags, scripts and styles, and its title; the encoding that it names, else as for plain text."""

from __future__ import annotations

import codecs
import re

from quorank.search.sources.formats.extracted import ExtractedText
from quorank.search.sources.formats.text import decode_text
from quorank.text.readers.pages import without_tags

LONGEST_PAGE = 4_000_000
"""Characters of a page, with its tags, that are looked at."""
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset[ \t]{0,9}=[ \t]{0,9}[\"']?([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^>]{0,200}>([^<]{0,1000})", re.IGNORECASE)
_HEAD = 2048  # bytes in which a page must name its encoding


def read_html(content: bytes) -> ExtractedText | None:
    """Return the title and text of a page; None where it holds no text."""
    page = _decoded(content)
    if page is None:
        return None
    cut = len(page) > LONGEST_PAGE
    page = page[:LONGEST_PAGE]
    title = _TITLE.search(page)
    sentence = f"only the first {LONGEST_PAGE:,} characters of the page are searched"
    return ExtractedText(
        without_tags(title[1]) if title else "", without_tags(page), ("file.text-cut", sentence) if cut else None
    )


def _decoded(content: bytes) -> str | None:
    named = _CHARSET.search(content, 0, _HEAD)
    if named and b"\0" not in content[:_HEAD]:
        try:
            name = codecs.lookup(named[1].decode("ascii")).name
            if name.startswith(("utf-8", "cp", "iso8859", "koi8", "gb", "big5", "shift_jis", "euc", "mac", "tis")):
                return content.decode(name, "replace")
        except (LookupError, ValueError):
            pass
    return decode_text(content)
