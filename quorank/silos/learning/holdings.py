"""Documents, queries and judgements that each party holds.

Parties come from given collections (one collection a party, so that their subjects differ, or one collection dealt out
among several) or from the generator. CS-F-LTR §III.A: a query may be answered by another party's documents, but nobody
has judgements across parties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from quorank.errors import require, require_range
from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.generated import Generator, TermCounts
from quorank.text import Index, IndexedDocuments, TextCollection, Tokeniser, read_collection
from quorank.text.embeddings import EmbeddedTexts, Embedder
from quorank.text.index import whole_text
from quorank.text.languages import language_of

FIELDS = ("body", "title")
"""Fields of a document, each with sketches of its own."""
Grades = Mapping[int, int]
"""Row of a document → grade; a document that is missing is not judged, or not relevant."""

RECOMMENDED = Tokeniser.for_language("english")
"""English stop words and stems: what parties settle on unless they say otherwise."""
DOCUMENT_DEAL, QUERY_DEAL = 1, 2  # in the addresses of who gets what


@dataclass(frozen=True, eq=False)
class Holding:
    """One party's documents and queries; query q has the different terms queries[q] and the judgements grades[q]."""

    name: str
    documents: IndexedDocuments = field(repr=False)
    query_ids: tuple[str, ...] = field(repr=False)
    queries: tuple[tuple[str, ...], ...] = field(repr=False)
    grades: tuple[Grades, ...] = field(repr=False)
    embedded: EmbeddedTexts | None = field(default=None, repr=False)  # where the party has brought an embedder

    @property
    def n_documents(self) -> int:
        return len(self.documents.ids)

    @property
    def n_queries(self) -> int:
        return len(self.queries)

    @property
    def n_answered(self) -> int:
        """Queries that a document of the party's own answers, by its judgements: what it can learn and test from."""
        return sum(any(grade > 0 for grade in graded.values()) for graded in self.grades)

    def terms_of(self, queries: Sequence[int]) -> tuple[str, ...]:
        """Return the different terms of some queries."""
        return tuple(dict.fromkeys(term for q in queries for term in self.queries[q]))


def generated_holdings(generator: Generator, seed: int = 1) -> tuple[Holding, ...]:
    """Generate the parties of a generator, judged by the topics that made their documents."""
    words, topics = generator.words(), generator.topic_table(seed)
    numbers = {word: number for number, word in enumerate(words)}
    found = []
    for number in range(generator.parties):
        made = generator.party(number, seed, topics)
        ids = tuple(f"{number}-{d}" for d in range(generator.documents))
        documents = IndexedDocuments(ids, *(index_of(f, words, numbers) for f in (made.body, made.title)))
        grades: list[Grades] = []
        for topic in made.query_topics:
            graded = made.grades(int(topic), generator.strong, generator.weak)
            rows = np.flatnonzero(graded)
            grades.append(dict(zip(rows.tolist(), graded[rows].tolist(), strict=True)))
        queries = tuple(tuple(words[term] for term in terms) for terms in made.queries)
        names = tuple(f"{number}-q{q}" for q in range(generator.queries))
        found.append(Holding(party_letter(number), documents, names, queries, tuple(grades)))
    return tuple(found)


def index_of(made: TermCounts, words: list[str], numbers: dict[str, int]) -> Index:
    """Return the index of a generated field, without any text in between."""
    documents = np.repeat(np.arange(len(made.offsets) - 1, dtype=np.int32), np.diff(made.offsets))
    by_term = np.argsort(made.terms, kind="stable")
    held = np.bincount(made.terms, minlength=len(words))
    lengths = np.bincount(documents, weights=made.counts, minlength=len(made.offsets) - 1)
    frequency = np.bincount(made.terms, weights=made.counts, minlength=len(words))
    return Index(
        Tokeniser(stop_words="none"),
        words,
        numbers,
        made.offsets,
        made.terms,
        made.counts,
        np.concatenate(([0], np.cumsum(held))).astype(np.int64),
        documents[by_term],
        made.counts[by_term],
        lengths.astype(np.int64),
        frequency.astype(np.int64),
    )


def read_holdings(
    paths: Sequence[Path | str],
    parties: int,
    seed: int = 1,
    tokeniser: Tokeniser | None = None,
    *,
    whole: bool = True,
    embedder: Embedder | None = None,
) -> tuple[Holding, ...]:
    """Read parties from collections on disk: several collections are a party each, one is dealt out among `parties`."""
    require(len(paths) >= 1, "collection.missing", "name at least one collection")
    collections = [_read(str(path)) for path in paths]
    for collection in collections:
        check_texts(collection.name, collection, tokeniser or RECOMMENDED)
    if len(collections) == 1:
        return deal_collection(collections[0], parties, seed, tokeniser, whole=whole, embedder=embedder)
    names = [collection.name for collection in collections]
    said = f"two collections have the same name: {', '.join(names)}; rename one"
    require(len(set(names)) == len(names), "collection.repeated-name", said)
    return tuple(
        make_holding(
            c.name, c, range(len(c.documents)), range(len(c.queries)), tokeniser, whole=whole, embedder=embedder
        )
        for c in collections
    )


@lru_cache(maxsize=8)
def _read(path: str) -> TextCollection:
    """Read a collection, once however often it is dealt out."""
    return read_collection(path).without_empty()


def deal_collection(
    collection: TextCollection,
    parties: int,
    seed: int = 1,
    tokeniser: Tokeniser | None = None,
    *,
    whole: bool = True,
    embedder: Embedder | None = None,
) -> tuple[Holding, ...]:
    """Deal one collection out: documents and queries each go to a party by an addressed shuffle."""
    require_range("parties", parties, least=1)
    n, m = len(collection.documents), len(collection.queries)
    said = f"{n} documents and {m} queries are too few for {parties} parties; take fewer parties or another collection"
    require(min(n, m) >= parties, "collection.too-small", said, collection.name)
    documents, queries = _deal(n, parties, seed, DOCUMENT_DEAL), _deal(m, parties, seed, QUERY_DEAL)
    return tuple(
        make_holding(party_letter(p), collection, documents[p], queries[p], tokeniser, whole=whole, embedder=embedder)
        for p in range(parties)
    )


def make_holding(
    name: str,
    collection: TextCollection,
    documents: Sequence[int],
    queries: Sequence[int],
    tokeniser: Tokeniser | None = None,
    *,
    whole: bool = True,
    embedder: Embedder | None = None,
) -> Holding:
    """Make a party of some documents and queries of a collection; queries without a known term are left out.

    The body holds the title too, unless `whole` is off.
    """
    part = tokeniser or RECOMMENDED
    held = [collection.documents[d] for d in documents]
    indexed = IndexedDocuments.build(held, part, whole=whole)
    highest = max((grade for judged in collection.judgements.values() for grade in judged.values()), default=0)
    ids, terms, grades, asked = [], [], [], []
    for q in queries:
        query = collection.queries[q]
        words = tuple(dict.fromkeys(part.tokenise(query.text)))
        if not words:
            continue
        judged = collection.judgements.get(query.id, {})
        ids.append(query.id)
        asked.append(query.text)
        terms.append(words)
        own = ((indexed.rows[d], grade) for d, grade in judged.items() if d in indexed.rows)
        grades.append({row: to_three_grades(grade, highest) for row, grade in own})
    embedded = None if embedder is None else embedder.embedded([whole_text(document) for document in held], asked)
    return Holding(name, indexed, tuple(ids), tuple(terms), tuple(grades), embedded)


def check_texts(name: str, collection: TextCollection, tokeniser: Tokeniser) -> None:
    """Refuse a party's collection without documents, or in another language than the one that all have settled on."""
    require(collection.documents, "party.no-documents", f"{name} has no documents; a party takes part with its own")
    agreed, found = tokeniser.stemming, language_of(collection)
    others = found.language is not None and agreed not in ("none", found.language)
    porter = agreed == "porter" and found.language == "english"
    sentence = (
        f"the documents of {name} are {found}, and the group has settled on {agreed}; put them into a group of that "
        "language, or settle on another one for all"
    )
    require(not others or porter, "party.other-language", sentence)


def to_three_grades(grade: int, highest: int) -> int:
    """Return a grade on the paper's scale 0, 1, 2: of longer scales the upper half is 2, the lower 1; 0 stays 0."""
    return min(grade, 1 + (2 * grade > highest)) if highest > 2 else grade


def party_letter(number: int) -> str:
    """Return the name of party `number`: A, B, …, Z, then P26 and so on."""
    return chr(ord("A") + number) if number < 26 else f"P{number}"


def _deal(count: int, parties: int, seed: int, what: int) -> list[list[int]]:
    """Cut the shuffled numbers 0 .. count − 1 into as many equal parts, each in ascending order."""
    order = np.argsort(uniforms(seed, Purpose.PARTITION, count, round_=what), kind="stable")
    return [np.sort(part).tolist() for part in np.array_split(order, parties)]
