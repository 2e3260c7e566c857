"""Generated documents and queries for several parties, as arrays of term numbers.

Terms follow Zipf's law. A topic is a Zipf distribution over some of the rarer terms; a document mixes two topics with
words that everybody uses, and repeats itself as text does (with probability `repeat` a word is one that stood in the
document before: Simon's process, Biometrika 1955). Topics are dealt to the parties as their own subjects, and `overlap`
says how much of its text a party draws from all topics alike. A query is about one topic and made of its terms; how
relevant a document is follows from the share that the topic has in it, not from any term.

Draws are addressed by (seed, party, document), so a document does not depend on what else is generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.arrays import Doubles, Int8s, Int32s, Integers, Uint64s
from quorank.kernels.compiled import kernel
from quorank.kernels.draws import Purpose, key_of, uniform_pair, uniforms

TOPICS, QUERIES, DOCUMENTS = (1, 2, 8)  # rounds in the addresses of draws; the fields of documents have the next ones
BLOCK = 2048  # documents that are written at once
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


class TermCounts(NamedTuple):
    """Term counts of one field of many documents: document d has terms[offsets[d] : offsets[d + 1]] and their counts."""

    offsets: Integers
    terms: Int32s  # ascending within a document
    counts: Int32s


@dataclass(frozen=True, eq=False)
class GeneratedParty:
    """Documents and queries of one generated party, as numbers."""

    title: TermCounts
    body: TermCounts
    main: Integers  # (documents,) the topic with the larger share
    second: Integers
    share: Doubles  # (documents,) of the main topic among the words about a topic
    queries: tuple[Integers, ...]  # terms of each query, different ones
    query_topics: Integers

    def grades(self, topic: int, strong: float, weak: float) -> Int8s:
        """Return (documents,) grades: 2 where the topic's share is at least `strong`, 1 where at least `weak`, else 0."""
        has = np.where(self.main == topic, self.share, 0.0)
        has = has + np.where(self.second == topic, 1.0 - self.share, 0.0)
        return ((has >= strong).astype(np.int8) + (has >= weak)).astype(np.int8)


@dataclass(frozen=True)
class Generator:
    """Parameters of the generator; lengths are means."""

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
            require_range(name, getattr(self, name), least=1)
        require_range("queries", self.queries, least=0)
        for name, half in (("topic_terms", "query_terms"), ("vocabulary", "topic_terms")):
            least, given = 2 * getattr(self, half), getattr(self, name)
            require(given >= least, "value.out-of-range", f"must be at least twice {half}, {least}, got {given}", name)
        require_range("exponent", self.exponent, above=0.0, below=5.0)
        for name in ("about", "about_title", "overlap"):
            require_range(name, getattr(self, name), least=0.0, most=1.0)
        require_range("repeat", self.repeat, least=0.0, below=1.0)
        require(0.0 < self.weak <= self.strong <= 1.0, "value.out-of-range", "expected 0 < weak ≤ strong ≤ 1", "weak")

    def words(self) -> list[str]:
        """Return the vocabulary as letters: pronounceable, all different, frequent ones short."""
        return [_word(number) for number in range(self.vocabulary)]

    def topic_table(self, seed: int) -> Int32s:
        """Draw the (topics, topic_terms) terms of each topic, its most frequent first, none of the commonest hundredth."""
        commonest = self.vocabulary // 100
        out = np.empty((self.topics, self.topic_terms), dtype=np.int32)
        for topic in range(self.topics):
            draws = uniforms(seed, Purpose.DOCUMENTS, self.vocabulary - commonest, round_=TOPICS, client=topic)
            out[topic] = commonest + np.argsort(draws, kind="stable")[: self.topic_terms]
        return out

    def party(self, number: int, seed: int = 1, topics: Int32s | None = None) -> GeneratedParty:
        """Generate the documents and queries of party `number`."""
        said = f"there are {self.parties} parties, got number {number}"
        require(0 <= number < self.parties, "value.out-of-range", said)
        table = self.topic_table(seed) if topics is None else topics
        key, every = key_of(seed, Purpose.DOCUMENTS), np.full(self.documents, 5)
        draws = draw_pairs(key, number, DOCUMENTS, 0, every).reshape(self.documents, 5, 2)
        main, second = (self._topics(draws[:, at, 0], draws[:, at, 1], number) for at in (0, 1))
        share = np.where(main != second, 0.5 + 0.5 * draws[:, 2, 0], 1.0)
        fields = []
        for field, (mean, about) in enumerate(((self.title, self.about_title), (self.body, self.about))):
            lengths = log_normal_lengths(draws[:, 3 + field], mean)
            parts = []
            for first in range(0, self.documents, BLOCK):
                block = slice(first, first + BLOCK)
                drawn = draw_pairs(key, number, DOCUMENTS + 1 + field, first, lengths[block])
                parts.append(self._write(drawn, lengths[block], main[block], second[block], share[block], table, about))
            counts, terms, times = (np.concatenate(each) for each in zip(*parts, strict=True))
            fields.append(TermCounts(np.concatenate(([0], np.cumsum(counts))), terms, times))
        queries, about_topics = self._queries(seed, number, table)
        return GeneratedParty(fields[0], fields[1], main, second, share, queries, about_topics)

    def _topics(self, first: Doubles, second: Doubles, party: int) -> Integers:
        """Draw any topic with probability `overlap`, else one of the topics party, party + parties, …."""
        mine = (self.topics - party + self.parties - 1) // self.parties
        own = party + self.parties * (second * mine).astype(np.int64)
        return np.where((first < self.overlap) | (mine < 1), (second * self.topics).astype(np.int64), own)

    def _write(
        self,
        draws: Doubles,
        lengths: Integers,
        main: Integers,
        second: Integers,
        share: Doubles,
        table: Int32s,
        about: float,
    ) -> tuple[Integers, Int32s, Int32s]:
        """Write some documents of a field; return the number of distinct terms of each, the terms and their counts."""
        u, v = draws.T
        document, starts = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths) - lengths
        at = np.arange(len(u)) - starts[document]
        repeats = (at > 0) & (u < self.repeat)
        u = np.where(at > 0, (u - self.repeat) / (1.0 - self.repeat), u)
        subject = np.where(u < about * share[document], main[document], second[document])
        topical = table[subject, pick(v, *alias_table(zipf(self.topic_terms, 0.8)))]
        words = np.where(u < about, topical, pick(v, *alias_table(zipf(self.vocabulary, self.exponent))))
        source = np.where(repeats, starts[document] + (v * at).astype(np.int64), np.arange(len(u)))
        while (source[source] != source).any():  # a repeated word may itself be a repetition
            source = source[source]
        keys, times = np.unique(document * self.vocabulary + words[source], return_counts=True)
        counts = np.bincount(keys // self.vocabulary, minlength=len(lengths))
        return counts, (keys % self.vocabulary).astype(np.int32), times.astype(np.int32)

    def _queries(self, seed: int, number: int, table: Int32s) -> tuple[tuple[Integers, ...], Integers]:
        """Draw the terms and topics of queries: terms of one topic, without replacement, with the topic's own weights."""
        weights = zipf(self.topic_terms, 0.8)
        terms, topics = [], np.empty(self.queries, dtype=np.int64)
        for query in range(self.queries):
            count = 2 + self.topic_terms
            draws = uniforms(seed, Purpose.DOCUMENTS, count, round_=QUERIES, client=number, interaction=query)
            topics[query] = self._topics(draws[0], draws[1], number)
            race = -np.log1p(-draws[2:]) / weights  # the smallest are a weighted sample without replacement
            chosen = np.argsort(race, kind="stable")[: self.query_terms]
            terms.append(table[topics[query], chosen].astype(np.int64))
        return tuple(terms), topics


def _word(number: int) -> str:
    """Write a number in syllables."""
    number += len(SYLLABLES)  # two syllables at least
    letters = ""
    while number:
        number, digit = divmod(number, len(SYLLABLES))
        letters = SYLLABLES[digit] + letters
    return letters


def zipf(n: int, exponent: float) -> Doubles:
    """Return n probabilities ∝ 1 / (rank + 2)^exponent (Zipf-Mandelbrot)."""
    weights = (np.arange(n) + 3.0) ** -exponent
    return np.asarray(weights / weights.sum())


@kernel
def alias_table(probabilities: Doubles) -> tuple[Doubles, Int32s]:
    """Return Walker's alias table, with which a draw costs one comparison."""
    n = len(probabilities)
    accept, other = probabilities * n, np.arange(n).astype(np.int32)
    small, large = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    n_small = n_large = 0
    for i in range(n):
        if accept[i] < 1.0:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        less, more = small[n_small], large[n_large - 1]
        other[less] = more
        accept[more] -= 1.0 - accept[less]
        if accept[more] < 1.0:
            n_large -= 1
            small[n_small] = more
            n_small += 1
    for i in range(n_small):
        accept[small[i]] = 1.0
    for i in range(n_large):
        accept[large[i]] = 1.0
    return accept, other


def pick(draws: Doubles, accept: Doubles, other: Int32s) -> Integers:
    """Draw outcomes of an alias table from uniform numbers."""
    places = draws * len(accept)
    columns = places.astype(np.int64)
    return np.where(places - columns < accept[columns], columns, other[columns])


def log_normal_lengths(draws: Doubles, mean: float) -> Integers:
    """Draw log-normal lengths with a standard deviation of about a third from (documents, 2) draws, at least one term."""
    spread = 0.33
    normal = np.sqrt(-2.0 * np.log(1.0 - draws[:, 0])) * np.cos(2.0 * np.pi * draws[:, 1])
    return np.maximum(1, np.rint(mean * np.exp(spread * normal - spread * spread / 2))).astype(np.int64)


@kernel
def draw_pairs(key: Uint64s, party: int, round_: int, first: int, counts: Integers) -> Doubles:
    """Draw (Σ counts, 2) numbers: counts[d] pairs at the address of document first + d."""
    out, at = np.empty((counts.sum(), 2)), 0
    for d in range(len(counts)):
        for i in range(counts[d]):
            out[at, 0], out[at, 1] = uniform_pair(key, i, first + d, party, round_)
            at += 1
    return out
