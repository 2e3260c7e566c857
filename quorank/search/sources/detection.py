"""Kind of source that a path is: a browser's profile, mail, or a folder of documents."""

from __future__ import annotations

from pathlib import Path

from quorank.errors import require
from quorank.files.untrusted import home_expanded, read_head
from quorank.search.sources.chromium import ChromiumSource
from quorank.search.sources.firefox import FirefoxSource
from quorank.search.sources.folder import FilesSource
from quorank.search.sources.mail import MailSource
from quorank.search.sources.source import Source

_MAILDIR = ("cur", "new", "tmp")
_MAILBOX = b"From "


def source_at(path: Path | str) -> Source:
    """Return the source of a path, by what is there; a single document is refused."""
    found = home_expanded(path).absolute()
    require(
        found.exists(),
        "file.missing",
        "there is nothing here; expected a folder, a mailbox or a browser's profile",
        f"{path}",
    )
    if found.name == "places.sqlite" or (found / "places.sqlite").is_file():
        return FirefoxSource(str(found))
    if found.name == "History" or (found / "History").is_file():
        return ChromiumSource(str(found))
    if found.is_dir():
        maildir = all((found / name).is_dir() for name in _MAILDIR)
        return MailSource(str(found)) if maildir else FilesSource(str(found))
    mail = found.suffix.lower() in (".mbox", ".eml") or read_head(found, len(_MAILBOX)) == _MAILBOX
    require(mail, "source.single-file", "this is a single file; add the folder that it is in", f"{path}")
    return MailSource(str(found))
