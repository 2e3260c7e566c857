"""Machine of a simulated person: notes as files, mail as a mailbox, pages as the history of a browser.

The kind of each document is drawn. Of a page only title, address and a short description are stored, as browsers do.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

import numpy as np

from quorank.kernels.draws import Purpose, uniforms
from quorank.search.demo.made_up_persons import DatedDocument, MadeUpPerson
from quorank.search.sources import FilesSource, FirefoxSource, MailSource, Source

NOTES, MAIL, PAGES = "Documents", "Mail/archive", "firefox"
SHARES = (0.5, 0.3)
"""Shares of notes and mail; the rest are pages."""
SOURCE_KIND = 33  # round in the addresses of draws
DESCRIPTION = 256
"""Characters of a page's description that Firefox keeps."""
WIDTH = 72
_OTHER = re.compile(r"[^a-z0-9]+")
_SCHEMA = """
CREATE TABLE moz_places (
  id INTEGER PRIMARY KEY, url LONGVARCHAR, title LONGVARCHAR, visit_count INTEGER DEFAULT 0,
  hidden INTEGER DEFAULT 0 NOT NULL, last_visit_date INTEGER, description TEXT);
CREATE TABLE moz_historyvisits (id INTEGER PRIMARY KEY, place_id INTEGER, visit_date INTEGER, visit_type INTEGER);
CREATE TABLE moz_bookmarks (id INTEGER PRIMARY KEY, type INTEGER, fk INTEGER DEFAULT NULL, title LONGVARCHAR);
"""


@dataclass(frozen=True)
class MadeUpMachine:
    """Folder with a person's documents, and their ids in the collection."""

    person: MadeUpPerson
    folder: Path
    keys: Mapping[tuple[str, str], str] = field(repr=False)  # kind of source and key in it → id of the document

    def sources(self) -> tuple[Source, ...]:
        """Return the sources for `quorank search add`."""
        return (
            FilesSource(str(self.folder / NOTES)),
            MailSource(str(self.folder / MAIL)),
            FirefoxSource(str(self.folder / PAGES)),
        )


def make_machine(person: MadeUpPerson, number: int, folder: Path, now: float, seed: int) -> MadeUpMachine:
    """Write a person's documents into a folder."""
    draws = uniforms(seed, Purpose.PARTITION, len(person.documents), round_=SOURCE_KIND, client=number)
    kinds = np.searchsorted(np.cumsum(SHARES), draws)
    notes, mail, pages = ([person.documents[row] for row in np.flatnonzero(kinds == kind)] for kind in range(3))
    keys = {
        **write_notes(folder / NOTES, notes, now),
        **write_mailbox(folder / MAIL, mail, now, person.name),
        **write_places(folder / PAGES / "places.sqlite", pages, now),
    }
    return MadeUpMachine(person, folder, keys)


def write_notes(folder: Path, documents: Sequence[DatedDocument], now: float) -> dict[tuple[str, str], str]:
    """Write files named by their titles, one folder a year; every third is plain text, the others are Markdown."""
    keys = {}
    for number, dated in enumerate(documents):
        document, at = dated.document, now - dated.ages[0]
        year = f"{datetime.fromtimestamp(at, UTC).year}"
        ending, head = ("txt", "") if number % 3 == 2 else ("md", "# ")
        base, copy = _slug(document.title) or f"note {number}", 1
        key = f"{year}/{base}.{ending}"
        while ("folder", key) in keys:
            copy += 1
            key = f"{year}/{base} {copy}.{ending}"
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}{document.title}\n\n{document.body}\n", encoding="utf-8")
        os.utime(path, (at, at))
        keys["folder", key] = document.id
    return keys


def _slug(title: str) -> str:
    return " ".join(_OTHER.sub(" ", title.lower()).split())[:WIDTH].strip()


def write_mailbox(path: Path, documents: Sequence[DatedDocument], now: float, owner: str) -> dict[tuple[str, str], str]:
    """Write a mailbox in the mbox format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = {}
    with path.open("wb") as file:
        for number, dated in enumerate(sorted(documents, key=lambda one: -one.ages[0])):
            at, message = datetime.fromtimestamp(now - dated.ages[0], UTC), EmailMessage()
            id_ = f"{number}.{owner}@example.org"
            message["Message-ID"] = f"<{id_}>"
            message["Subject"] = " ".join(dated.document.title.split()) or f"message {number}"
            message["From"] = f"friend{number % 7}@example.org"
            message["To"] = f"{owner}@example.org"
            message["Date"] = format_datetime(at)
            message.set_content(dated.document.body, cte="8bit" if dated.document.body.isascii() else "base64")
            text = message.as_bytes().replace(b"\nFrom ", b"\n>From ")
            file.write(b"From friend%d@example.org %s\n" % (number % 7, at.strftime("%a %b %d %H:%M:%S %Y").encode()))
            file.write(text.rstrip(b"\n") + b"\n\n")
            keys["mail", f"{path.name}#{id_}"] = dated.document.id
    return keys


def write_places(path: Path, documents: Sequence[DatedDocument], now: float) -> dict[tuple[str, str], str]:
    """Write the tables of Firefox's history that a search reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys, pages, visits = {}, [], []
    for number, dated in enumerate(documents, 1):
        document = dated.document
        address = f"https://site{number % 9}.example.org/{number}"
        title, text = " ".join(document.title.split()), " ".join(document.body.split())
        times = [int((now - age) * 1e6) for age in dated.ages]
        pages.append((number, address, title, len(times), max(times), text[:DESCRIPTION]))
        visits += [(number, at, 1) for at in times]
        keys["firefox", address] = document.id
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_SCHEMA)
        columns = "id, url, title, visit_count, last_visit_date, description"
        database.executemany(f"INSERT INTO moz_places ({columns}) VALUES (?, ?, ?, ?, ?, ?)", pages)
        database.executemany(
            "INSERT INTO moz_historyvisits (place_id, visit_date, visit_type) VALUES (?, ?, ?)", visits
        )
    return keys
