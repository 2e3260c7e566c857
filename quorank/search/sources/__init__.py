"""Where the documents of a person come from: folders, mail, browsers, and sources of other packages."""

from quorank.parts import Family
from quorank.search.sources.chromium import ChromiumSource
from quorank.search.sources.detection import source_at
from quorank.search.sources.firefox import FirefoxSource
from quorank.search.sources.folder import FilesSource
from quorank.search.sources.mail import MailSource
from quorank.search.sources.source import GROUP, FoundDocument, Scanned, SkippedDocument, Source, UnchangedDocument

SOURCES: Family[Source] = Family(
    "source", FilesSource, MailSource, FirefoxSource, ChromiumSource, base=Source, group=GROUP
)  # a new one: its file, its name here; in a package of its own, an entry point of the group `quorank.sources`

__all__ = [
    "SOURCES",
    "ChromiumSource",
    "FilesSource",
    "FirefoxSource",
    "FoundDocument",
    "MailSource",
    "Scanned",
    "SkippedDocument",
    "Source",
    "UnchangedDocument",
    "source_at",
]
