"""Simulated persons: documents, queries with graded answers, and the files of their machines.

Dates within the last two years are drawn, many of them in the last months. Persons mostly search recent documents, as
people do in their own files (Dumais et al., SIGIR 2003, "Stuff I've Seen"): the relevance of a document is the share of
the query's topic in it, and 0 for one that was not used for 30 days.

Documents are notes in files, mail in a mailbox, or pages in the history of a browser. Of a page only title, address and
a short description are stored, as browsers do.
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
from typing import NamedTuple

import numpy as np

from quorank.errors import require_range
from quorank.kernels.draws import Purpose, uniforms
from quorank.search.sources import FilesSource, FirefoxSource, MailSource, Source
from quorank.silos.generated import Generator, TermCounts
from quorank.text.collection import Document, Query

NAMES = ("ann", "ben", "cleo", "dan", "eve", "finn")
WORD_ORDER, SOURCE_KIND = 30, 33  # rounds in the addresses of draws
SENTENCE, PARAGRAPH = 9, 60
"""Length of a generated sentence and paragraph, words."""
DAY = 86400.0
OLDEST = 730 * DAY
AGE_EXPONENT = 3.0
"""Exponent of ages OLDEST·u³, u uniform: half of the documents are from the last three months."""
RECENT = 30 * DAY
MOST_VISITS = 8
NOTES, MAIL, PAGES = "Documents", "Mail/archive", "firefox"
SHARES = (0.5, 0.3)
"""Shares of notes and mail; the rest are pages."""
DESCRIPTION = 256
"""Characters of a page's description that Firefox keeps."""
QUERIES = "queries.txt"
"""File with a person's queries, to try on the page."""
_OTHER = re.compile(r"[^a-z0-9]+")
_SCHEMA = """
CREATE TABLE moz_places (
  id INTEGER PRIMARY KEY, url LONGVARCHAR, title LONGVARCHAR, visit_count INTEGER DEFAULT 0,
  hidden INTEGER DEFAULT 0 NOT NULL, last_visit_date INTEGER, description TEXT);
CREATE TABLE moz_historyvisits (id INTEGER PRIMARY KEY, place_id INTEGER, visit_date INTEGER, visit_type INTEGER);
CREATE TABLE moz_bookmarks (id INTEGER PRIMARY KEY, type INTEGER, fk INTEGER DEFAULT NULL, title LONGVARCHAR);
"""
Keys = dict[tuple[str, str], str]
"""Kind of source and key in it → id of the document."""


class DatedDocument(NamedTuple):
    """Document with the times since its uses, in seconds, the shortest first."""

    document: Document
    ages: tuple[float, ...]


@dataclass(frozen=True)
class MadeUpPerson:
    """Simulated person; every other query is held out for measurement."""

    number: int
    documents: tuple[DatedDocument, ...] = field(repr=False)
    queries: tuple[Query, ...] = field(repr=False)
    grades: Mapping[str, Mapping[str, int]] = field(repr=False)  # query → document → 1 or 2

    @property
    def name(self) -> str:
        """First name."""
        return NAMES[self.number]

    @property
    def searched(self) -> tuple[Query, ...]:
        """Queries that the person searches."""
        return self.queries[::2]

    @property
    def held_out(self) -> tuple[Query, ...]:
        """Queries for measurement, never searched."""
        return self.queries[1::2]


def generated_persons(persons: int, documents: int, queries: int, seed: int) -> list[MadeUpPerson]:
    """Generate persons; they share half of their topics."""
    require_range("--persons", persons, least=2, most=len(NAMES))
    require_range("--documents", documents, least=20, most=20_000)
    require_range("--queries", queries, least=2, most=1000)
    generator = Generator(
        parties=persons, documents=documents, queries=2 * queries, body=120, vocabulary=4000, topics=8 * persons,
        topic_terms=100, about=0.35,
    )  # fmt: skip
    words, topics, found = generator.words(), generator.topic_table(seed), []
    for number in range(persons):
        made = generator.party(number, seed, topics)
        titles, bodies = (_texts(counts, words, seed, number, at) for at, counts in enumerate((made.title, made.body)))
        own = tuple(
            DatedDocument(Document(f"{number}-{d}", title.rstrip("."), body), _ages(number, d, seed))
            for d, (title, body) in enumerate(zip(titles, bodies, strict=True))
        )
        old = np.array([one.ages[0] > RECENT for one in own])
        asked, grades = [], {}
        for q, (terms, topic) in enumerate(zip(made.queries, made.query_topics, strict=True)):
            graded = np.where(old, 0, made.grades(int(topic), generator.strong, generator.weak))
            if graded.any():
                asked.append(Query(f"{number}-q{q}", " ".join(words[term] for term in terms)))
                grades[asked[-1].id] = {own[row].document.id: int(graded[row]) for row in np.flatnonzero(graded)}
        found.append(MadeUpPerson(number, own, tuple(asked), grades))
    return found


def _ages(person: int, row: int, seed: int) -> tuple[float, ...]:
    """Draw one to eight times since the uses of a document."""
    draws = uniforms(seed, Purpose.HISTORY, 1 + MOST_VISITS, client=person, interaction=row).tolist()
    return tuple(sorted(OLDEST * draw**AGE_EXPONENT for draw in draws[1 : 2 + int(draws[0] ** 2 * MOST_VISITS)]))


def _texts(counts: TermCounts, words: Sequence[str], seed: int, person: int, part: int) -> list[str]:
    """Write the words of each document in a drawn order, as sentences and paragraphs."""
    found = []
    for document, (begin, end) in enumerate(zip(counts.offsets[:-1], counts.offsets[1:], strict=True)):
        terms = np.repeat(counts.terms[begin:end], counts.counts[begin:end])
        round_ = WORD_ORDER + part
        draws = uniforms(seed, Purpose.DOCUMENTS, len(terms), round_=round_, client=person, interaction=document)
        text = [words[term] for term in terms[np.argsort(draws, kind="stable")]]
        sentences = [f"{' '.join(text[at : at + SENTENCE]).capitalize()}." for at in range(0, len(text), SENTENCE)]
        size = PARAGRAPH // SENTENCE
        found.append("\n\n".join(" ".join(sentences[at : at + size]) for at in range(0, len(sentences), size)))
    return found


def sources_of(folder: Path) -> tuple[Source, ...]:
    """Return the sources of a machine."""
    return FilesSource(str(folder / NOTES)), MailSource(str(folder / MAIL)), FirefoxSource(str(folder / PAGES))


def write_machine(person: MadeUpPerson, folder: Path, now: float, seed: int) -> Keys:
    """Write a person's documents and queries into a folder; the kind of each document is drawn."""
    draws = uniforms(seed, Purpose.PARTITION, len(person.documents), round_=SOURCE_KIND, client=person.number)
    kinds = np.searchsorted(np.cumsum(SHARES), draws)
    notes, mail, pages = ([person.documents[row] for row in np.flatnonzero(kinds == kind)] for kind in range(3))
    for name in (NOTES, MAIL, PAGES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / QUERIES).write_text("".join(f"{query.text}\n" for query in person.queries), encoding="utf-8")
    return {
        **_write_notes(folder / NOTES, notes, now),
        **_write_mailbox(folder / MAIL, mail, now, person.name),
        **_write_places(folder / PAGES, pages, now),
    }


def _write_notes(folder: Path, notes: Sequence[DatedDocument], now: float) -> Keys:
    """Write files named by their titles, one folder a year; every third is plain text, the others are Markdown."""
    keys: Keys = {}
    for number, (document, ages) in enumerate(notes):
        at = now - ages[0]
        year, name = f"{datetime.fromtimestamp(at, UTC).year}", _OTHER.sub(" ", document.title.lower()).strip()
        ending, head = ("txt", "") if number % 3 == 2 else ("md", "# ")
        key = f"{year}/{name}.{ending}"
        if ("folder", key) in keys:
            key = f"{year}/{name} {number}.{ending}"
        (folder / year).mkdir(parents=True, exist_ok=True)
        (folder / key).write_text(f"{head}{document.title}\n\n{document.body}\n", encoding="utf-8")
        os.utime(folder / key, (at, at))
        keys["folder", key] = document.id
    return keys


def _write_mailbox(path: Path, mail: Sequence[DatedDocument], now: float, owner: str) -> Keys:
    """Write a mailbox in the mbox format."""
    keys: Keys = {}
    with path.open("wb") as file:
        for number, (document, ages) in enumerate(sorted(mail, key=lambda one: -one.ages[0])):
            at, message = datetime.fromtimestamp(now - ages[0], UTC), EmailMessage()
            id_, sender = f"{number}.{owner}@example.org", f"friend{number % 7}@example.org"
            message["Message-ID"], message["Subject"] = f"<{id_}>", document.title
            message["From"], message["To"] = sender, f"{owner}@example.org"
            message["Date"] = format_datetime(at)
            message.set_content(document.body)
            file.write(f"From {sender} {at:%a %b %d %H:%M:%S %Y}\n".encode() + message.as_bytes().rstrip() + b"\n\n")
            keys["mail", f"{path.name}#{id_}"] = document.id
    return keys


def _write_places(folder: Path, browsed: Sequence[DatedDocument], now: float) -> Keys:
    """Write the tables of Firefox's history that a search reads."""
    keys: Keys = {}
    folder.mkdir()
    with closing(sqlite3.connect(folder / "places.sqlite")) as database, database:
        database.executescript(_SCHEMA)
        for number, (document, ages) in enumerate(browsed, 1):
            address = f"https://site{number % 9}.example.org/{number}"
            times, text = [int((now - age) * 1e6) for age in ages], " ".join(document.body.split())[:DESCRIPTION]
            page = (number, address, document.title, len(times), 0, max(times), text)
            database.execute("INSERT INTO moz_places VALUES (?, ?, ?, ?, ?, ?, ?)", page)
            visits = [(number, at) for at in times]
            database.executemany(
                "INSERT INTO moz_historyvisits (place_id, visit_date, visit_type) VALUES (?, ?, 1)", visits
            )
            keys["firefox", address] = document.id
    return keys
