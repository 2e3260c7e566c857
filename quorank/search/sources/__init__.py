"""Sources of a person's documents: folders, mail, browsers, and sources of other packages."""

from pathlib import Path

from quorank.data.logs.browser_history import CHROMIUM_FILE, FIREFOX_FILE
from quorank.errors import require
from quorank.files.atomic import expand_home
from quorank.files.untrusted import read_head
from quorank.parts import Family
from quorank.search.sources.browsers import ChromiumSource, FirefoxSource
from quorank.search.sources.folder import FilesSource
from quorank.search.sources.mail import MailSource
from quorank.search.sources.source import (
    GROUP,
    FoundDocument,
    PathSource,
    Scanned,
    SkippedDocument,
    Source,
    UnchangedDocument,
)
from quorank.text.readers.mbox import MARK

SOURCES: Family[Source] = Family(
    "source", FilesSource, MailSource, FirefoxSource, ChromiumSource, base=Source, group=GROUP
)
"""Sources by their kinds; other packages add theirs as entry points of the group `quorank.sources`."""

__all__ = [
    "SOURCES", "ChromiumSource", "FilesSource", "FirefoxSource", "FoundDocument", "MailSource", "PathSource", "Scanned",
    "SkippedDocument", "Source", "UnchangedDocument", "source_at",
]  # fmt: skip

_MAILDIR = ("cur", "new", "tmp")


def source_at(path: Path | str) -> Source:
    """Return the source of a path, by its content: a browser's profile, mail, or a folder of documents.

    Raises:
        BadInput: Nothing is there (`file.missing`), or a single document (`source.single-file`).
    """
    found = expand_home(path).absolute()
    missing = "there is nothing here; expected a folder, a mailbox or a browser's profile"
    require(found.exists(), "file.missing", missing, f"{path}")
    for file, source in ((FIREFOX_FILE, FirefoxSource), (CHROMIUM_FILE, ChromiumSource)):
        if found.name == file or (found / file).is_file():
            return source(str(found))
    if found.is_dir():
        maildir = all((found / name).is_dir() for name in _MAILDIR)
        return MailSource(str(found)) if maildir else FilesSource(str(found))
    mail = found.suffix.lower() in (".mbox", ".eml") or read_head(found, len(MARK)) == MARK
    require(mail, "source.single-file", "this is a single file; add the folder that it is in", f"{path}")
    return MailSource(str(found))
