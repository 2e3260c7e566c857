"""Generated documents and queries for several parties, straight as arrays of term numbers.

TermCounts follow Zipf's law. A topic is a Zipf distribution over some of the rarer terms; a document mixes two topics with
words that everybody uses, and repeats itself as text does (with probability `repeat` a word is one that stood in the
document before: Simon's process, Biometrika 1955). Topics are dealt to the parties as their own subjects, and `overlap`
says how much of its text a party draws from all topics alike. A query is about one topic and made of its terms;
how relevant a document is follows from the share that the topic has in it, not from any term.

Draws are addressed by (seed, party, document), so a document is the same whatever else is generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from quorank.arrays import Doubles, Int8s, Int32s, Integers
from quorank.draws import Purpose, key_of, uniforms
from quorank.errors import require
from quorank.silos.generated_kernel import alias, draw_lengths, mixtures, topic_of, write, zipf

TOPICS, QUERIES = 1, 2  # rounds of the addresses of topics and queries; documents have higher ones
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


class TermCounts(NamedTuple):
    """One field of many documents: document d has terms[offsets[d] : offsets[d + 1]], so many times each."""

    offsets: Integers
    terms: Int32s  # ascending within a document
    counts: Int32s


@dataclass(frozen=True, eq=False)
class GeneratedParty:
    """What one party holds, as numbers."""

    title: TermCounts
    body: TermCounts
    main: Integers  # (documents,) the topic with the larger share
    second: Integers
    share: Doubles  # (documents,) of the main topic among the words about a topic
    queries: tuple[Integers, ...]  # terms of each query, different ones
    query_topics: Integers

    def grades(self, topic: int, strong: float, weak: float) -> Int8s:
        """(documents,) 2 where the topic's share is at least `strong`, 1 where it is at least `weak`, else 0."""
        has = np.where(self.main == topic, self.share, 0.0)
        has = has + np.where(self.second == topic, 1.0 - self.share, 0.0)
        return ((has >= strong).astype(np.int8) + (has >= weak)).astype(np.int8)


@dataclass(frozen=True)
class Generator:
    """How documents are made; lengths are means."""

    kind: ClassVar[str] = "generated"

    parties: int = 4  # N
    documents: int = 1000  # |D_i|, of each party
    queries: int = 60  # |Q_i|, of each party
    body: int = 150  # terms of a body
    title: int = 7  # terms of a title
    vocabulary: int = 20_000  # |T|
    exponent: float = 1.05  # of Zipf's law
    topics: int = 80
    topic_terms: int = 150
    about: float = 0.3  # share of a body's words that are about its topics
    about_title: float = 0.6  # the same of a title
    repeat: float = 0.25
    query_terms: int = 3
    overlap: float = 0.5  # share of a party's documents and queries whose topic may be any party's
    strong: float = 0.75  # share of a topic from which a document is highly relevant
    weak: float = 0.3  # share from which it is relevant

    def __post_init__(self) -> None:
        for name in ("parties", "documents", "body", "title", "topics", "query_terms"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        require(self.queries >= 0, f"queries must be 0 or more, got {self.queries}")
        require(
            self.topic_terms >= 2 * self.query_terms,
            f"topic_terms must be at least twice query_terms, {2 * self.query_terms}, got {self.topic_terms}",
        )
        require(
            self.vocabulary >= 2 * self.topic_terms,
            f"vocabulary must be at least twice topic_terms, {2 * self.topic_terms}, got {self.vocabulary}",
        )
        require(0.0 < self.exponent < 5.0, f"exponent must lie between 0 and 5, got {self.exponent}")
        for name in ("about", "about_title", "overlap"):
            require(
                0.0 <= getattr(self, name) <= 1.0, f"{name} must be from 0 to 1, got {getattr(self, name)}"
            )
        require(0.0 <= self.repeat < 1.0, f"repeat must be at least 0 and below 1, got {self.repeat}")
        require(0.0 < self.weak <= self.strong <= 1.0, "expected 0 < weak ≤ strong ≤ 1")

    def words(self) -> list[str]:
        """The vocabulary as letters: pronounceable, all different, frequent ones short."""
        base = len(SYLLABLES)
        return [_word(number, base) for number in range(self.vocabulary)]

    def topic_table(self, seed: int) -> Int32s:
        """(topics, topic_terms) the terms of each topic, its most frequent first, none of the commonest hundredth."""
        commonest = self.vocabulary // 100
        out = np.empty((self.topics, self.topic_terms), dtype=np.int32)
        for topic in range(self.topics):
            draws = uniforms(
                seed, Purpose.DOCUMENTS, self.vocabulary - commonest, round_=TOPICS, client=topic
            )
            out[topic] = commonest + np.argsort(draws, kind="stable")[: self.topic_terms]
        return out

    def party(self, number: int, seed: int = 1, topics: Int32s | None = None) -> GeneratedParty:
        """All that party `number` holds."""
        require(0 <= number < self.parties, f"there are {self.parties} parties, got number {number}")
        table = self.topic_table(seed) if topics is None else topics
        key = key_of(seed, Purpose.DOCUMENTS)
        common, own = alias(zipf(self.vocabulary, self.exponent)), alias(zipf(self.topic_terms, 0.8))
        main, second = np.empty((2, self.documents), dtype=np.int64)
        share = np.empty(self.documents)
        mixtures(key, number, self.parties, self.topics, self.overlap, main, second, share)
        fields = []
        for field, (length, about) in enumerate(((self.title, self.about_title), (self.body, self.about))):
            lengths = draw_lengths(key, number, field, self.documents, length)
            written = write(
                key, number, field, lengths, main, second, share, about, self.repeat, table, *common, *own
            )  # fmt: skip
            fields.append(TermCounts(*written))
        queries, about_topics = self._queries(seed, number, table)
        return GeneratedParty(fields[0], fields[1], main, second, share, queries, about_topics)

    def _queries(self, seed: int, number: int, table: Int32s) -> tuple[tuple[Integers, ...], Integers]:
        """TermCounts of a topic, the frequent ones rather: without replacement, with the topic's own weights."""
        weights = zipf(self.topic_terms, 0.8)
        terms, topics = [], np.empty(self.queries, dtype=np.int64)
        for query in range(self.queries):
            draws = uniforms(
                seed,
                Purpose.DOCUMENTS,
                2 + self.topic_terms,
                round_=QUERIES,
                client=number,
                interaction=query,
            )
            topics[query] = topic_of(draws[0], draws[1], number, self.parties, self.topics, self.overlap)
            race = -np.log1p(-draws[2:]) / weights  # the smallest are a weighted sample without replacement
            chosen = np.argsort(race, kind="stable")[: self.query_terms]
            terms.append(table[topics[query], chosen].astype(np.int64))
        return tuple(terms), topics


def _word(number: int, base: int) -> str:
    number += base  # two syllables at least
    letters = ""
    while number:
        number, digit = divmod(number, base)
        letters = SYLLABLES[digit] + letters
    return letters
