"""Strict check of links: every page, anchor, picture and file that a page names exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from docsite.markdown import anchors, links

STAGED = {"docs/changes.md": "CHANGELOG.md", "docs/contributing.md": "CONTRIBUTING.md"}
"""Pages of the site whose source is outside of docs/."""


def broken_links(root: Path, pages: Mapping[str, str]) -> list[str]:
    """Return "page:line: fault" for every broken link.

    Args:
        root: Root of the repository.
        pages: Contents by path below `root`. Links to other sites are not checked.
    """
    known = {path: anchors(text) for path, text in pages.items()}
    found = []
    for path, text in pages.items():
        for link in links(text):
            if re.match(r"[a-z]+:", link.target):
                continue
            target, _, anchor = link.target.partition("#")
            place = _joined(path, target) if target else path
            place = STAGED.get(place, place)
            if place not in known and not (root / place).exists():
                found.append(f"{path}:{link.line}: {link.target} is not there")
            elif anchor and place in known and anchor not in known[place]:
                found.append(f"{path}:{link.line}: {place} has no heading #{anchor}")
    return found


def leaves_docs(path: str, target: str) -> bool:
    """Return whether a link of a page below docs/ leads to a file that is not on the site."""
    place = _joined(f"docs/{path}", target.partition("#")[0])
    return not place.startswith("docs/")


def _joined(page: str, target: str) -> str:
    """Return the path of a relative link of a page."""
    parts: list[str] = []
    for part in (*PurePosixPath(page).parent.parts, *PurePosixPath(target).parts):
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
