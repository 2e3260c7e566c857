"""Documents, queries and judgements that each party holds.

Parties come from given collections (one collection per party, so that their subjects differ, or one divided among several)
or from the generator. CS-F-LTR §III.A: a query may be answered by another party's documents, but no party has judgements
across parties.
"""

from __future__ import annotations

import hashlib
import re
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

FIELDS = ("body", "title")  # fields of a document
Grades = Mapping[int, int]  # row of a document → grade; missing documents are not judged or not relevant

RECOMMENDED = Tokeniser.for_language("english")  # default tokeniser of a group: English stop words and stems
DOCUMENT_DIVISION, QUERY_DIVISION = 1, 2  # in the addresses of the shuffles
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, eq=False)
class Holding:
    """Documents and queries of a party; query q has the distinct terms queries[q] and the judgements grades[q]."""

    name: str
    documents: IndexedDocuments = field(repr=False)
    query_ids: tuple[str, ...] = field(repr=False)
    queries: tuple[tuple[str, ...], ...] = field(repr=False)
    grades: tuple[Grades, ...] = field(repr=False)
    embedded: EmbeddedTexts | None = field(default=None, repr=False)  # where the party has an embedder

    @property
    def n_documents(self) -> int:
        return len(self.documents.ids)

    @property
    def n_queries(self) -> int:
        return len(self.queries)

    @property
    def n_answered(self) -> int:
        """Number of queries that a document of the party's own answers by its judgements."""
        return sum(any(grade > 0 for grade in graded.values()) for graded in self.grades)

    def digest(self) -> bytes:
        """Return the SHA-256 of the documents, queries and judgements."""
        digest = hashlib.sha256(b"quorank silo holding")
        for index in (self.documents.body, self.documents.title):
            for array in (index.offsets, index.terms, index.counts, index.lengths):
                digest.update(len(array).to_bytes(8, "little") + np.ascontiguousarray(array).tobytes())
            digest.update("\0".join(index.vocabulary).encode())
        for query, grades in zip(self.queries, self.grades, strict=True):
            digest.update("\0".join(query).encode() + b"\n" + repr(sorted(grades.items())).encode())
        return digest.digest()


def generated_holdings(generator: Generator, seed: int = 1) -> tuple[Holding, ...]:
    """Generate the parties of a generator, judged by the topics that made their documents."""
    words, topics = generator.words(), generator.topic_table(seed)
    found = []
    for number in range(generator.parties):
        made = generator.party(number, seed, topics)
        ids = tuple(f"{number}-{d}" for d in range(generator.documents))
        documents = IndexedDocuments(ids, index_of(made.body, words), index_of(made.title, words))
        graded = [made.grades(int(topic), generator.strong, generator.weak).tolist() for topic in made.query_topics]
        grades = tuple({row: grade for row, grade in enumerate(each) if grade} for each in graded)
        queries = tuple(tuple(words[term] for term in terms) for terms in made.queries)
        names = tuple(f"{number}-q{q}" for q in range(generator.queries))
        found.append(Holding(party_letter(number), documents, names, queries, grades))
    return tuple(found)


def index_of(made: TermCounts, words: list[str]) -> Index:
    """Return the index of a generated field, without any text in between."""
    from scipy.sparse import csr_array  # a search, which generates nothing, starts without it

    by_document = csr_array((made.counts, made.terms, made.offsets), (len(made.offsets) - 1, len(words)))
    by_term = by_document.tocsc()
    return Index(
        Tokeniser(stop_words="none"),
        words,
        {word: number for number, word in enumerate(words)},
        made.offsets,
        made.terms,
        made.counts,
        by_term.indptr.astype(np.int64),
        by_term.indices.astype(np.int32),
        by_term.data,
        by_document.sum(axis=1, dtype=np.int64),
        by_document.sum(axis=0, dtype=np.int64),
    )


def read_holdings(
    paths: Sequence[Path | str], parties: int, seed: int = 1, tokeniser: Tokeniser | None = None, *, whole: bool = True
) -> tuple[Holding, ...]:
    """Read parties from collections on disk; several collections are one party each, one is divided among `parties`."""
    require(len(paths) >= 1, "collection.missing", "name at least one collection")
    collections = [_read(str(path)) for path in paths]
    for collection in collections:
        check_texts(collection.name, collection, tokeniser or RECOMMENDED)
    return divide_collections(collections, parties, seed, tokeniser, whole=whole)


@lru_cache(maxsize=8)
def _read(path: str) -> TextCollection:
    return read_collection(path).without_empty()


def divide_collections(
    collections: Sequence[TextCollection],
    parties: int = 4,
    seed: int = 1,
    tokeniser: Tokeniser | None = None,
    *,
    whole: bool = True,
    queries: bool = True,
) -> tuple[Holding, ...]:
    """Make one party of each of several collections, or divide one among parties by an addressed shuffle.

    Args:
        collections: One or several collections.
        parties: Number of parties of a single collection.
        seed: Seed of the shuffle.
        tokeniser: Tokeniser of all parties.
        whole: Include titles in bodies.
        queries: Divide the queries too.

    Raises:
        BadInput: `collection.too-small`, `collection.repeated-name`.
    """
    if len(collections) > 1:
        names = [party_name(each.name) for each in collections]
        said = f"two collections have the same name: {', '.join(names)}; rename one"
        require(len(set(names)) == len(names), "collection.repeated-name", said)
        parts: list[tuple[TextCollection, Sequence[int], Sequence[int]]]
        parts = [(each, range(len(each.documents)), range(len(each.queries))) for each in collections]
    else:
        require_range("parties", parties, least=1)
        (one,) = collections
        n, m = len(one.documents), len(one.queries)
        said = f"{n} documents and {m} queries are too few for {parties} parties; choose fewer or another collection"
        require(min(n, m if queries else n) >= parties, "collection.too-small", said, one.name)
        names = [party_letter(party) for party in range(parties)]
        divided = _divide(n, parties, seed, DOCUMENT_DIVISION), _divide(m, parties, seed, QUERY_DIVISION)
        parts = [(one, documents, asked) for documents, asked in zip(*divided, strict=True)]
    return tuple(
        make_holding(name, collection, documents, asked if queries else (), tokeniser, whole=whole)
        for name, (collection, documents, asked) in zip(names, parts, strict=True)
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
    """Make a party of some documents and queries of a collection, without queries that have no term."""
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
    """Refuse a party's collection without documents, or in another language than the agreed one."""
    require(collection.documents, "party.no-documents", f"{name} has no documents; every party needs some")
    agreed, found = tokeniser.stemming, language_of(collection)
    others = found.language is not None and agreed not in ("none", found.language)
    porter = agreed == "porter" and found.language == "english"
    sentence = (
        f"the documents of {name} are {found}, and the group has agreed on {agreed}; move them to a group of that "
        "language, or agree on another one for all"
    )
    require(not others or porter, "party.other-language", sentence)


def to_three_grades(grade: int, highest: int) -> int:
    """Return a grade on the paper's scale 0, 1, 2: of longer scales the upper half is 2, the lower 1; 0 stays 0."""
    return min(grade, 1 + (2 * grade > highest)) if highest > 2 else grade


def party_letter(number: int) -> str:
    """Return the name of party `number`: A, B, …, Z, then P26 and so on."""
    return chr(ord("A") + number) if number < 26 else f"P{number}"


def party_name(text: str) -> str:
    """Return the party name made from a directory's name: other characters become '-'.

    >>> party_name("annual reports")
    'annual-reports'
    """
    return _OTHER.sub("-", text).strip("-._")[:64] or "party"


def _divide(count: int, parties: int, seed: int, what: int) -> list[list[int]]:
    """Cut the shuffled numbers 0 .. count − 1 into equal parts, each in ascending order."""
    order = np.argsort(uniforms(seed, Purpose.PARTITION, count, round_=what), kind="stable")
    return [np.sort(part).tolist() for part in np.array_split(order, parties)]
