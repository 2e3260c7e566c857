"""Opening of a document with the system's program, by its number in the index, never by a path from a request."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from quorank.errors import BadInput, require
from quorank.search.personal_search import PersonalSearch
from quorank.search.sources.file_names import opened_path

_WEB = re.compile(r"https?://[^\s\x00-\x1f\"<>\\^`{|}]+", re.IGNORECASE)
RUN_BY_OPENING = frozenset((
    ".app", ".appimage", ".bat", ".cmd", ".com", ".command", ".cpl", ".desktop", ".exe", ".hta", ".jar", ".jse", ".lnk",
    ".msi", ".pif", ".ps1", ".reg", ".run", ".scf", ".scr", ".sh", ".url", ".vbe", ".vbs", ".workflow", ".wsf", ".wsh",
))  # fmt: skip
"""Endings of files that the system may run instead of showing them; their folder is opened instead."""


def web_address(path: str) -> str | None:
    """Return an address that may be a link, http or https; None for anything else, such as script or data."""
    return path if _WEB.fullmatch(path) else None


def local_file(search: PersonalSearch, document: int) -> Path:
    """Return the file of a document, which must exist and lie in its source."""
    stored = search.index.document(document)
    path = Path(opened_path(stored.path))
    require(path.is_absolute(), "document.no-file", "this document is not a file, and its address cannot be opened")
    gone = "this file no longer exists; the next scan removes it from the index"
    try:
        require(path.exists(), "document.gone", gone)
        inside = search.source(stored.source).holds(path)
    except OSError:
        raise BadInput("document.gone", gone) from None
    require(inside, "document.outside", "this path leads out of its source; it is not opened")
    return path


def open_document(search: PersonalSearch, document: int) -> str:
    """Open the file of a document with the system's program; return a sentence for the person."""
    path = local_file(search, document)
    runs = path.suffix.lower() in RUN_BY_OPENING
    open_path(path.parent if runs else path)
    return "Opening it might run a program, so its folder was opened." if runs else "Opened with the system's program."


def open_path(path: Path) -> None:
    """Start the system's program for a path, without waiting for it."""
    if sys.platform == "win32":
        os.startfile(path)
        return
    name = "open" if sys.platform == "darwin" else "xdg-open"
    program = shutil.which(name)
    require(program, "system.no-opener", f"this system has no {name}; open the file yourself", f"{path}")
    assert program is not None
    quiet = subprocess.DEVNULL
    subprocess.Popen([program, path], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
