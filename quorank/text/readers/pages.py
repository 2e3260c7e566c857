"""Text of a page in HTML, without a parser: tags are left out, in one pass and linear time."""

from __future__ import annotations

import re

from quorank.text.readers.decoding import one_line, unescaped

_TAG = re.compile(r"</?[a-zA-Z]|<[!?]")
_HIDDEN = re.compile(r"<(script|style)\b", re.IGNORECASE)
_CLOSING = {tag: re.compile(f"</{tag}", re.IGNORECASE) for tag in ("script", "style")}


def without_tags(page: str) -> str:
    """Return the text of a page without tags, comments, scripts and styles, in one pass."""
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
        opening = _HIDDEN.match(page, begin)
        if opening:
            closing = _CLOSING[opening[1].lower()].search(page, opening.end())
            begin = closing.start() if closing else len(page)
        end = page.find(">", begin)
        at = end + 1 if end >= 0 else len(page)
    return one_line(unescaped(" ".join(pieces)))
