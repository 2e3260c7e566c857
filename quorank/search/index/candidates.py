"""Candidates of a query: the documents for a ranker to order, with their band and the values of its features.

Bands: 0, the query is the file name (with or without its ending) or the title; 1, it is the beginning of one of them;
2, the document contains all words; 3, some. The first `limit` documents are taken by band, then by BM25 of title and
body, then the newest, then by id: no document of a better band is lost, and the same query on the same index gives the
same list.

A prefix is a term that occurs wherever a word with that beginning does. Documents with such words are found among the
words as written; for the features its occurrences are those of the stems of its most frequent completions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.search.index.likeness import FEATURES, bm25, likeness
from quorank.search.index.query import Clause, SearchQuery
from quorank.search.index.reading import SegmentReader, TermPostings, field_statistics
from quorank.text.features import FieldCounts, FieldStatistics, pair_features
from quorank.text.index import picked

EXACT, BEGINNING, ALL_WORDS, SOME_WORDS = range(4)
NO_BAND = 4
SHORTEST_PREFIX = 3
"""Letters of a prefix that is searched in bodies; a shorter one is searched in titles and names alone, and while it is
typed at their beginning alone."""
COMPLETIONS = 16  # maximum number of completions of a prefix in the features: the most frequent words
LITTLE = 3
"""Number of documents in the first three bands, and of documents with a word, below which typos are considered."""
MOST_NEAR = 8  # maximum number of name words for a word with a typo
LONGEST_KEY = 256  # characters of a name or title that exact matches and beginnings compare
SHORTEST_TYPO, LONG_WORD = 4, 8  # letters of the shortest word that may have a typo, and of one that may have two


@dataclass(frozen=True, eq=False, repr=False)
class SearchCandidates:
    """Documents of a query, best first, in columns; row i belongs to document ids[i]."""

    ids: Integers
    bands: Integers
    features: Doubles  # (documents, 16) in the order of FEATURE_NAMES
    modified: Doubles  # Unix seconds
    sources: Integers  # ids of the sources
    kinds: tuple[str, ...]  # kinds of the sources
    keys: tuple[str, ...]
    paths: tuple[str, ...]
    depths: Integers  # number of folders of a path
    names: tuple[str, ...]
    titles: tuple[str, ...]
    visits: tuple[tuple[float, ...], ...]
    title_is_query: Booleans
    first_match: Integers  # position in title and body of the first term; −1 without one
    likeness: Doubles  # to the first results (`likeness`)
    match_span: Integers  # words from the first to the last term; 0 without one
    found: int = 0  # number of documents in any band
    near: tuple[str, ...] = ()  # words of names that replaced a mistyped one

    def __len__(self) -> int:
        return len(self.ids)


class _Column(NamedTuple):
    """Postings of one term of the query in the two fields of the features."""

    body: TermPostings
    title: TermPostings


class CandidateSearch:
    """Search for one query: bands of all rows, and the postings of its terms."""

    def __init__(self, reader: SegmentReader, query: SearchQuery) -> None:
        self.reader, self.query = reader, query
        self.key = " ".join(query.plain_words)
        self.loaded = self.reader.refresh()
        self.allowed = self._allowed()
        self.bands = np.full(len(self.allowed), NO_BAND, dtype=np.int64)
        self.nearness = np.zeros(len(self.allowed), dtype=np.int64)  # mistyped words that a name nearly has
        self.columns: list[_Column] = []

    def run(self, limit: int) -> SearchCandidates:
        """Return the first documents."""
        rare = self._add_by_words()
        self._add_names()
        near = self._add_near_names(rare) if np.count_nonzero(self.bands <= ALL_WORDS) < LITTLE else ()
        statistics = [
            field_statistics(name, [column[at] for column in self.columns], self.loaded)
            for at, name in enumerate(_Column._fields)
        ]
        scores = self._scores(statistics[0])
        found = np.flatnonzero(self.bands < NO_BAND)
        chosen = self._first(found, scores, limit)
        return self._described(chosen, scores[chosen], self._features(statistics, chosen), len(found), near)

    # filters and bands

    def _allowed(self) -> Booleans:
        """Return (rows,) the documents that pass the filters."""
        query, columns, allowed = self.query, self.loaded.columns, self.loaded.alive.copy()
        if query.sources:
            known = self.reader.fetch("SELECT id, kind, name FROM sources")
            wanted = [number for number, kind, name in known if {kind.casefold(), name.casefold()} & {*query.sources}]
            allowed &= np.isin(columns["source"], wanted)
        if query.types:
            types = [self.reader.hash(f"type:{ending}") for ending in query.types]
            allowed &= np.isin(columns["type"], np.array(types, np.uint64))
        if query.after is not None:
            allowed &= columns["modified"] >= query.after
        if query.before is not None:
            allowed &= columns["modified"] < query.before
        return allowed

    def _add_by_words(self) -> list[str]:
        """Set the bands of documents by their words; return the words of few documents."""
        held, required = np.zeros(len(self.bands), dtype=np.int64), self.allowed.copy()
        rare: list[str] = []
        clauses = [clause for clause in self.query.clauses if not self._is_weak(clause)] or self.query.clauses
        for clause in clauses:
            matched = self._matched(clause)
            self.columns += self._columns_of(clause, matched)
            if clause.required:
                required &= matched
            else:
                held += matched
                if clause.kind != "prefix" and np.count_nonzero(matched) < LITTLE:
                    rare += clause.words
        if optional := sum(not clause.required for clause in clauses):
            self.bands[(held > 0) | (optional < len(clauses))] = SOME_WORDS
            self.bands[held == optional] = ALL_WORDS
        elif clauses or self.query.filters:
            self.bands[:] = ALL_WORDS
        self.bands[~required] = NO_BAND
        self.allowed = required
        return rare

    def _is_weak(self, clause: Clause) -> bool:
        """Return whether a clause counts only without any other: a stop word, or the first one or two letters of a word."""
        if clause.required or clause.kind == "prefix":
            return False
        begun = clause.kind == "typed" and len(clause.words[0]) < SHORTEST_PREFIX
        return begun or not self.reader.hashes(clause.words)

    def _matched(self, clause: Clause) -> Booleans:
        """Return (rows,) the documents that match a clause."""
        matched = np.zeros(len(self.bands), dtype=bool)
        hashes = self.reader.hashes(clause.words) if clause.kind in ("word", "typed") else []
        for part in ("body", "name") if clause.field == "any" else (clause.field,):
            for postings in self.reader.postings(part, *hashes):
                matched[postings.rows] = True
        begun = clause.kind == "typed" and len(clause.words[0]) < SHORTEST_PREFIX
        if not begun and (clause.kind != "word" or not hashes):
            found = self.reader.numbers("rowid", "words WHERE words MATCH ?", _expression(clause))
            matched[self.loaded.rows_of(found)] = True
        return matched

    def _columns_of(self, clause: Clause, matched: Booleans) -> list[_Column]:
        """Return the postings for the features of a clause: one column for each term."""
        if clause.kind in ("word", "phrase"):
            terms = [term for term in self.reader.tokeniser.terms([*clause.words]) if term]
            return [self._column([self.reader.hash(term)]) for term in terms]
        word = clause.words[0]
        completions = self.reader.fetch(
            "SELECT term FROM vocabulary WHERE term >= ? AND term < ? ORDER BY doc DESC, term LIMIT ?",
            word, _upper_bound(word), COMPLETIONS if len(word) >= SHORTEST_PREFIX else 0,
        )  # fmt: skip
        words = [*(completion for (completion,) in completions), *([word] if clause.kind == "typed" else [])]
        return [_Column(*(postings.within(matched) for postings in self._column(self.reader.hashes(words))))]

    def _column(self, hashes: Sequence[int]) -> _Column:
        return _Column(*(TermPostings.union(self.reader.postings(part, *hashes)) for part in _Column._fields))

    # names

    def _add_names(self) -> None:
        """Set the bands of documents whose name or title is the query, or begins with it."""
        key = self.key
        if not key or len(key) > LONGEST_KEY:
            return
        beginning = key if self.query.clauses[-1].kind in ("typed", "prefix") else f"{key} "
        begun = "name_key >= ?1 AND name_key < ?2 OR title_key >= ?1 AND title_key < ?2"
        equal = "name_key = ?1 OR stem_key = ?1 OR title_key = ?1"
        for band, condition, *values in ((BEGINNING, begun, beginning, _upper_bound(beginning)), (EXACT, equal, key)):
            rows = self.loaded.rows_of(self.reader.numbers("id", f"documents WHERE {condition}", *values))
            self.bands[rows[self.allowed[rows]]] = band

    def _add_near_names(self, words: Sequence[str]) -> tuple[str, ...]:
        """Add documents whose name contains nearly one of some words, as band 3; return those words of names."""
        taken: list[str] = []
        for word in words:
            near = near_words(word, self.reader.name_words())[:MOST_NEAR]
            found = [postings.rows for postings in self.reader.postings("name", *self.reader.hashes(near))]
            rows = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found]))
            rows = rows[self.allowed[rows]]
            if len(rows):
                self.nearness[rows] += 1
                self.bands[rows] = np.minimum(self.bands[rows], SOME_WORDS)
                taken += near
        return tuple(dict.fromkeys(taken))

    # scores and features

    def _scores(self, statistics: FieldStatistics) -> Doubles:
        """Return (rows,) BM25 of title and body."""
        scores, lengths = np.zeros(len(self.bands)), self.loaded.columns["body_length"]
        idf = FEATURES.inverse_document_frequency(statistics)
        for (body, _), weight in zip(self.columns, idf, strict=True):
            scores[body.rows] += weight * bm25(body.counts, lengths[body.rows], statistics.mean_length)
        return scores

    def _first(self, found: Integers, scores: Doubles, limit: int) -> Integers:
        """Return the first `limit` found rows by (band, score, near names, newest, id)."""
        bands, columns = self.bands, self.loaded.columns
        if len(found) > limit:  # leave out rows that cannot be among them before sorting
            below = np.cumsum(np.bincount(bands[found], minlength=NO_BAND))
            last = int(np.searchsorted(below, limit))
            kept, open_ = found[bands[found] < last], found[bands[found] == last]
            left = limit - len(kept)
            if left < len(open_):
                least = np.partition(scores[open_], len(open_) - left)[len(open_) - left]
                open_ = open_[scores[open_] >= least]
            found = np.concatenate((kept, open_))
        keys = (columns["id"][found], -columns["modified"][found], -self.nearness[found], -scores[found], bands[found])
        return found[np.lexsort(keys)][:limit]

    def _features(self, statistics: Sequence[FieldStatistics], chosen: Integers) -> Doubles:
        fields = []
        for at, part in enumerate(_Column._fields):
            counts = np.zeros((len(chosen), len(self.columns)))
            for number, column in enumerate(self.columns):
                counts[:, number] = picked(column[at].rows, column[at].counts, chosen, 0.0)
            lengths, distinct = (self.loaded.columns[f"{part}_{what}"][chosen] for what in ("length", "distinct"))
            fields.append(FieldCounts(counts, lengths, statistics[at], distinct))
        return pair_features(fields[0], fields[1])

    def _described(
        self, chosen: Integers, scores: Doubles, features: Doubles, found: int, near: tuple[str, ...]
    ) -> SearchCandidates:
        columns = self.loaded.columns
        ids = columns["id"][chosen]
        fetched = self.reader.fetch(
            "SELECT documents.id, kind, key, path, title, documents.name, visits, title_key FROM documents"
            f" JOIN sources ON sources.id = source WHERE documents.id IN ({','.join(map(str, ids.tolist()))})"
        )
        by_id = {row[0]: row[1:] for row in fetched}
        described: list[tuple[Any, ...]] = [by_id[number] for number in ids.tolist()]
        kinds, keys, paths, titles, names, visits, title_keys = zip(*described, strict=True) if described else [()] * 7
        firsts = [picked(body.rows, body.firsts, chosen, -1) for body, _ in self.columns]
        places = np.array(firsts, dtype=np.int64).reshape(len(self.columns), len(chosen))
        beyond = np.iinfo(np.int64).max
        first = np.where(places >= 0, places, beyond).min(axis=0, initial=beyond)
        last = places.max(axis=0, initial=-1)
        return SearchCandidates(
            ids=ids,
            bands=self.bands[chosen],
            features=features,
            modified=columns["modified"][chosen],
            sources=columns["source"][chosen].astype(np.int64),
            kinds=kinds,
            keys=keys,
            paths=paths,
            depths=np.array([path_depth(path) for path in paths], dtype=np.int64),
            names=names,
            titles=titles,
            visits=tuple(tuple(np.frombuffer(blob, "<f8").tolist()) if blob else () for blob in visits),
            title_is_query=np.array([bool(self.key) and title == self.key for title in title_keys], dtype=bool),
            first_match=np.where(last >= 0, first, -1),
            likeness=likeness(chosen, scores, self.reader),
            match_span=np.where(last >= 0, last - first + 1, 0),
            found=found,
            near=near,
        )


def near_words(word: str, known: Sequence[str]) -> list[str]:
    """Return the other known words within the allowed Levenshtein distance, the nearest first, then by the alphabet.

    One letter may be wrong in a word of 4 to 7 letters, two in a longer one.

    >>> near_words("budgte", ["budget", "gadget", "budge", "bud"])
    ['budge']
    """
    most = 0 if len(word) < SHORTEST_TYPO else 1 if len(word) < LONG_WORD else 2
    if most == 0 or not known:
        return []
    from rapidfuzz.distance import Levenshtein  # 80 ms, which a search without a typo need not wait for
    from rapidfuzz.process import cdist

    distances = cdist([word], known, scorer=Levenshtein.distance, score_cutoff=most, dtype=np.uint8)[0]
    near = np.flatnonzero((distances > 0) & (distances <= most)).tolist()
    return [known[row] for row in sorted(near, key=lambda row: (distances[row], known[row]))]


def path_depth(path: str) -> int:
    """Return the number of folders of a path or an address."""
    return path.partition("://")[2].rstrip("/").count("/") if "://" in path else max(path.rstrip("/").count("/") - 1, 0)


def _upper_bound(beginning: str) -> str:
    """Return an upper bound of all strings with this beginning, in SQLite's order."""
    return f"{beginning}\U0010ffff"


def _expression(clause: Clause) -> str:
    """Return the clause in the language of FTS5, where a quoted string is never an operator."""
    words = " ".join(clause.words)
    prefix = clause.kind in ("typed", "prefix")
    columns = "" if clause.field == "any" else f"{clause.field} : "
    if prefix and clause.field == "any" and len(words) < SHORTEST_PREFIX:
        columns = "{name title} : "
    return f'{columns}"{words}"{" *" if prefix else ""}'
