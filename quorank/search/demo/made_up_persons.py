"""Simulated persons: their documents, their queries, and the relevant documents of each query.

They are generated, or come from a text collection with judgements: each person gets separate queries, the relevant
documents, and other documents. Dates within the last two years are drawn, many of them in the last months.

Generated persons mostly search recent documents, as people do in their own files (Dumais et al., SIGIR 2003, "Stuff
I've Seen"): the relevance of a document is the share of the query's topic in it, and 0 for one that was not used for
30 days. In a given collection the judgements are unchanged, and dates carry no information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.generated import Generator, TermCounts
from quorank.silos.holdings import to_three_grades
from quorank.text import TextCollection
from quorank.text.collection import Document, Query

NAMES = ("ann", "ben", "cleo", "dan", "eve", "finn")
WORD_ORDER, DOCUMENT_DRAW, QUERY_DRAW = 30, 31, 32  # rounds in the addresses of draws
SENTENCE, PARAGRAPH = 9, 60
"""Length of a generated sentence and paragraph, words."""
DAY = 86400.0
OLDEST = 730 * DAY
AGE_EXPONENT = 3.0
"""Exponent of ages OLDEST·u³, u uniform: half of the documents are from the last three months."""
RECENT = 30 * DAY
MOST_VISITS = 8


@dataclass(frozen=True)
class DatedDocument:
    """Document with the times since its uses, in seconds, the shortest first."""

    document: Document
    ages: tuple[float, ...]

    @property
    def id(self) -> str:
        """Id of the document."""
        return self.document.id


def dated(documents: Sequence[Document], person: int, seed: int) -> tuple[DatedDocument, ...]:
    """Draw one to eight times of use for each document."""
    found = []
    for row, document in enumerate(documents):
        draws = uniforms(seed, Purpose.HISTORY, 1 + MOST_VISITS, client=person, interaction=row).tolist()
        ages = sorted(OLDEST * draw**AGE_EXPONENT for draw in draws[1 : 2 + int(draws[0] ** 2 * MOST_VISITS)])
        found.append(DatedDocument(document, tuple(ages)))
    return tuple(found)


@dataclass(frozen=True)
class MadeUpPerson:
    """Simulated person; every other query is held out for measurement."""

    name: str
    documents: tuple[DatedDocument, ...] = field(repr=False)
    queries: tuple[Query, ...] = field(repr=False)
    grades: Mapping[str, Mapping[str, int]] = field(repr=False)  # query → document → 1 or 2

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
    _check(persons, documents, queries)
    generator = Generator(
        parties=persons, documents=documents, queries=2 * queries, body=120, vocabulary=4000, topics=8 * persons,
        topic_terms=100, about=0.35,
    )  # fmt: skip
    words, topics, found = generator.words(), generator.topic_table(seed), []
    for number in range(persons):
        made = generator.party(number, seed, topics)
        titles, bodies = (_texts(counts, words, seed, number, at) for at, counts in enumerate((made.title, made.body)))
        written = zip(titles, bodies, strict=True)
        texts = [Document(f"{number}-{d}", title.rstrip("."), body) for d, (title, body) in enumerate(written)]
        own = dated(texts, number, seed)
        old = np.array([one.ages[0] > RECENT for one in own])
        asked, grades = [], {}
        for q, (terms, topic) in enumerate(zip(made.queries, made.query_topics, strict=True)):
            graded = np.where(old, 0, made.grades(int(topic), generator.strong, generator.weak))
            asked.append(Query(f"{number}-q{q}", " ".join(words[term] for term in terms)))
            grades[asked[-1].id] = {own[row].id: int(graded[row]) for row in np.flatnonzero(graded)}
        kept = tuple(query for query in asked if grades[query.id])
        found.append(MadeUpPerson(NAMES[number], own, kept, grades))
    return found


def _texts(counts: TermCounts, words: Sequence[str], seed: int, person: int, part: int) -> list[str]:
    """Write the words of each document in a drawn order, as sentences and paragraphs."""
    found = []
    for document, (begin, end) in enumerate(zip(counts.offsets[:-1], counts.offsets[1:], strict=True)):
        terms = np.repeat(counts.terms[begin:end], counts.counts[begin:end])
        draws = uniforms(
            seed, Purpose.DOCUMENTS, len(terms), round_=WORD_ORDER + part, client=person, interaction=document
        )
        found.append(_prose([words[term] for term in terms[np.argsort(draws, kind="stable")]]))
    return found


def _prose(words: Sequence[str]) -> str:
    paragraphs = []
    for begin in range(0, len(words), PARAGRAPH):
        part = words[begin : begin + PARAGRAPH]
        sentences = [" ".join(part[at : at + SENTENCE]) for at in range(0, len(part), SENTENCE)]
        paragraphs.append(" ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences))
    return "\n\n".join(paragraphs)


def persons_of_collection(
    collection: TextCollection, persons: int, documents: int, queries: int, seed: int
) -> list[MadeUpPerson]:
    """Divide a collection among persons: each query belongs to one, with its relevant documents; others are drawn."""
    _check(persons, documents, queries)
    collection = collection.without_empty()
    there = {document.id: number for number, document in enumerate(collection.documents)}
    judged = [query for query in collection.queries if _relevant(collection, query, there)]
    sentence = (
        f"has {len(judged)} queries with judgements of its documents; {persons} persons need {4 * persons} at least"
    )
    require(len(judged) >= 4 * persons, "collection.too-small", sentence, collection.name)
    highest = max(grade for query in judged for grade in collection.judgements[query.id].values())
    order = np.argsort(uniforms(seed, Purpose.PARTITION, len(judged), round_=QUERY_DRAW), kind="stable")
    found = []
    for person in range(persons):
        own = [judged[number] for number in order[person::persons][: 2 * queries]]
        grades = {
            query.id: {
                id_: to_three_grades(grade, highest) for id_, grade in _relevant(collection, query, there).items()
            }
            for query in own
        }
        wanted = {there[id_] for graded in grades.values() for id_ in graded}
        draws = uniforms(seed, Purpose.PARTITION, len(there), round_=DOCUMENT_DRAW, client=person)
        others = [number for number in np.argsort(draws, kind="stable").tolist() if number not in wanted]
        kept = sorted(wanted | set(others[: max(0, documents - len(wanted))]))
        held = dated([collection.documents[number] for number in kept], person, seed)
        found.append(MadeUpPerson(NAMES[person], held, tuple(own), grades))
    return found


def _relevant(collection: TextCollection, query: Query, there: Mapping[str, int]) -> dict[str, int]:
    """Return the grades of the relevant documents of a query."""
    judged = collection.judgements.get(query.id, {})
    return {id_: grade for id_, grade in judged.items() if grade > 0 and id_ in there}


def _check(persons: int, documents: int, queries: int) -> None:
    require_range("--persons", persons, least=2, most=len(NAMES))
    require_range("--documents", documents, least=20, most=20_000)
    require_range("--queries", queries, least=2, most=1000)
