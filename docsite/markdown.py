"""Links, headings and code blocks of Markdown pages.

An HTML comment before a fence, invisible to readers, determines how the block is tested:

    <!-- not run: needs a second machine -->     not at all; the reason
    <!-- file: spring.toml -->                   content of a file that later blocks use
    <!-- before:                                 Python that runs first, for names that the page does not define
    features = …
    -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^( *)(`{3,})([\w-]*)\s*$")
_COMMENT = re.compile(r"<!--\s*(not run|file|before):\s*(.*?)\s*-->\s*$", re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+(?:\([^()]*\))?)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")


@dataclass(frozen=True)
class Block:
    """Fenced block: language, content, first line, and the comment before it."""

    language: str
    text: str
    line: int
    not_run: str = ""  # the reason
    file: str = ""  # name of the file whose content it is
    before: str = ""  # Python that runs first


@dataclass(frozen=True)
class Link:
    """Link or picture: shown text, target, line."""

    text: str
    target: str
    line: int
    picture: bool


def blocks(text: str) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    found, lines, at, since = [], text.split("\n"), 0, 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        indent, ticks, language = fence.groups()
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == ticks), len(lines))
        comment = _COMMENT.search("\n".join(lines[since:at]).rstrip())
        said = {comment[1].replace(" ", "_"): comment[2]} if comment else {}
        body = "\n".join(line.removeprefix(indent) for line in lines[at + 1 : end])
        found.append(Block(language, body, at + 1, **said))
        at = since = end + 1
    return found


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of fenced blocks with their numbers; code between backticks is blanked."""
    ticks = ""
    for number, line in enumerate(text.split("\n"), 1):
        fence = _FENCE.match(line)
        if fence and not ticks:
            ticks = fence[2]
        elif ticks:
            ticks = "" if line.strip() == ticks else ticks
        else:
            yield number, line


def links(text: str) -> list[Link]:
    """Return all links and pictures outside of code."""
    found = []
    for number, line in prose(text):
        plain = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda code: "·" * len(code[0]), line)
        for match in _LINK.finditer(plain):
            shown = line[match.start(2) : match.end(2)]
            found.append(Link(shown, match[3], number, match[1] == "!"))
    return found


def headings(text: str) -> list[tuple[int, str]]:
    """Return (level, title) of every heading."""
    matches = (_HEADING.match(line) for _, line in prose(text))
    return [(len(match[1]), match[2]) for match in matches if match]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as on forges and on the site."""
    found: set[str] = set()
    for _, title in headings(text):
        slug, number = slug_of(title), 0
        while (name := f"{slug}_{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def slug_of(title: str) -> str:
    """Return the anchor of a heading: lower case, without marks, a dash for each space."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")


def first_heading(text: str) -> str:
    """Return the title of a page."""
    return next(title for level, title in headings(text) if level == 1)


def first_sentence(text: str) -> str:
    """Return the first paragraph below the title."""
    kept = [line for _, line in prose(text)]
    begin = next(n for n, line in enumerate(kept) if line.startswith("# ")) + 1
    paragraphs = re.split(r"\n\s*\n", "\n".join(kept[begin:]).strip())
    return " ".join(paragraphs[0].split())


def pages(folder: Path) -> list[Path]:
    """Return the Markdown files below a folder, sorted."""
    return sorted(folder.rglob("*.md"))
