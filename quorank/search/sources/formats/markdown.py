"""Markdown: the text as it is written, and as the title that of its front matter or its first heading."""

from __future__ import annotations

import re

_TITLE = re.compile(r"^title[ \t]*:[ \t]*(.{1,300})$", re.MULTILINE | re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.{1,300})$", re.MULTILINE)
_UNDERLINED = re.compile(r"\A\s*(\S.{0,299})\n=+[ \t]*$", re.MULTILINE)
_LOOKED_AT = 10_000  # characters that may hold the title


def markdown_title(text: str) -> str:
    """Return the title of a text in Markdown; empty where it has none.

    >>> markdown_title("---\\ntitle: 'A plan'\\n---\\n# First\\n"), markdown_title("words\\n\\n## A heading ##\\n")
    ('A plan', 'A heading')
    """
    head = text[:_LOOKED_AT]
    if head.startswith("---\n") and (end := head.find("\n---", 3)) >= 0:
        found = _TITLE.search(head, 0, end)
        if found:
            return found[1].strip().strip("\"'")
    found = _UNDERLINED.match(head) or _HEADING.search(head)
    return found[1].strip().rstrip("#").strip() if found else ""
