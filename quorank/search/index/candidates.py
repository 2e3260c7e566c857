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
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quorank.errors import require_range
from quorank.kernels.arrays import Booleans, Doubles, Integers
from quorank.search.index.array_features import PARAMETERS, array_features, bm25_weights, likeness
from quorank.search.index.postings import TermHash
from quorank.search.index.query import Clause, SearchQuery
from quorank.search.index.reading import LoadedRows, SegmentReader, TermPostings, field_statistics, picked
from quorank.text.features import FEATURE_NAMES, FieldStatistics
from quorank.text.tokens import Tokeniser

EXACT, BEGINNING, ALL_WORDS, SOME_WORDS = range(4)
NO_BAND = 4
SHORTEST_PREFIX = 3
"""Letters of a prefix that is searched in bodies; a shorter one is searched in titles and names alone, and while it is
typed at their beginning alone."""
COMPLETIONS = 16
"""Maximum number of completions of a prefix in the features: the most frequent words."""
LITTLE = 3
"""Number of documents in the first three bands, and of documents with a word, below which typos are considered."""
MOST_NEAR = 8
"""Maximum number of name words for a word with a typo."""
LONGEST_KEY = 256
"""Characters of a name or title that exact matches and beginnings compare."""
SHORTEST_TYPO, LONG_WORD = 4, 8
"""Letters of the shortest word that may have a typo, and of one that may have two."""


@dataclass(frozen=True, eq=False)
class SearchCandidates:
    """Documents of a query, best first, in columns; row i belongs to document ids[i]."""

    ids: Integers
    bands: Integers
    scores: Doubles = field(repr=False)  # BM25 of title and body
    features: Doubles = field(repr=False)  # (documents, 16) in the order of FEATURE_NAMES
    modified: Doubles = field(repr=False)  # Unix seconds
    sources: Integers = field(repr=False)  # ids of the sources
    kinds: tuple[str, ...] = field(repr=False)  # kinds of the sources
    keys: tuple[str, ...] = field(repr=False)
    paths: tuple[str, ...] = field(repr=False)
    depths: Integers = field(repr=False)  # number of folders of a path
    names: tuple[str, ...] = field(repr=False)
    titles: tuple[str, ...] = field(repr=False)
    visits: tuple[tuple[float, ...], ...] = field(repr=False)
    visit_counts: Integers = field(repr=False)
    title_is_query: Booleans = field(repr=False)
    first_match: Integers = field(repr=False)  # position in title and body of the first term; −1 without one
    likeness: Doubles = field(repr=False)  # to the first results (`array_features`)
    match_span: Integers = field(repr=False)  # words from the first to the last term; 0 without one
    found: int = 0  # number of documents in any band
    near: tuple[str, ...] = ()  # words of names that replaced a mistyped one

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class _Column:
    """Postings of one term of the query in the two fields of the features."""

    body: TermPostings
    title: TermPostings


class CandidateFinder:
    """Search over the segments of one index."""

    def __init__(self, reader: SegmentReader, tokeniser: Tokeniser, term_hash: TermHash) -> None:
        self._reader, self._tokeniser, self._hash = reader, tokeniser, term_hash
        self._name_words: tuple[LoadedRows, list[str]] | None = None  # with the rows for which they were read

    def find(self, query: SearchQuery, limit: int) -> SearchCandidates:
        """Return the first documents of a query."""
        require_range("limit", limit, least=1)
        loaded = self._reader.refresh()
        allowed = self._allowed(query, loaded)
        bands, columns, rare = self._bands_by_words(query, loaded, allowed)
        self._add_names(query, loaded, allowed, bands)
        nearness = np.zeros(len(bands), dtype=np.int64)
        near: tuple[str, ...] = ()
        if rare and np.count_nonzero(bands <= ALL_WORDS) < LITTLE:
            near = self._add_near_names(rare, loaded, allowed, bands, nearness)
        scores, statistics = self._scores(columns, loaded)
        found = np.flatnonzero(bands < NO_BAND)
        chosen = _first(found, bands, scores, nearness, loaded, limit)
        features = self._features(columns, statistics, chosen, loaded)
        return self._described(query, loaded, chosen, bands, scores, features, columns, len(found), near)

    # filters and bands

    def _allowed(self, query: SearchQuery, loaded: LoadedRows) -> Booleans:
        """Return (rows,) the documents that pass the filters."""
        allowed = loaded.alive.copy()
        columns = loaded.columns
        if query.sources:
            known = self._reader.fetch("SELECT id, kind, name FROM sources")
            wanted = [number for number, kind, name in known if {kind.casefold(), name.casefold()} & {*query.sources}]
            allowed &= np.isin(columns["source"], wanted)
        if query.types:
            allowed &= np.isin(columns["type"], np.array([self._hash(f"type:{t}") for t in query.types], np.uint64))
        if query.after is not None:
            allowed &= columns["modified"] >= query.after
        if query.before is not None:
            allowed &= columns["modified"] < query.before
        return allowed

    def _bands_by_words(
        self, query: SearchQuery, loaded: LoadedRows, allowed: Booleans
    ) -> tuple[Integers, list[_Column], list[str]]:
        """Return (rows,) the bands by words, the columns of the features, and the words of few documents."""
        rows = len(allowed)
        held, required = np.zeros(rows, dtype=np.int64), allowed.copy()
        columns: list[_Column] = []
        rare: list[str] = []
        wanted_count = required_count = 0
        weak = [clause for clause in query.clauses if self._is_weak(clause)]
        for clause in query.clauses:
            if clause in weak and len(weak) < len(query.clauses):
                continue
            matched = self._matched(clause, rows)
            columns += self._columns(clause, matched)
            if clause.required:
                required &= matched
                required_count += 1
            else:
                held += matched
                wanted_count += 1
                if clause.kind != "prefix" and np.count_nonzero(matched) < LITTLE:
                    rare += clause.words
        bands = np.full(rows, NO_BAND, dtype=np.int64)
        if wanted_count:
            bands[(held > 0) | bool(required_count)] = SOME_WORDS
            bands[held == wanted_count] = ALL_WORDS
        elif required_count or query.filters:
            bands[:] = ALL_WORDS
        bands[~required] = NO_BAND
        if required_count:
            allowed &= required
        return bands, columns, rare

    def _is_weak(self, clause: Clause) -> bool:
        """Return whether a clause counts only without any other: a stop word, or the first one or two letters of a word."""
        if clause.required or clause.kind == "prefix":
            return False
        return not self._terms(clause)[0] or (clause.kind == "typed" and len(clause.words[0]) < SHORTEST_PREFIX)

    def _terms(self, clause: Clause) -> list[str]:
        return self._tokeniser.terms(list(clause.words))

    def _matched(self, clause: Clause, rows: int) -> Booleans:
        """Return (rows,) the documents that match a clause."""
        matched = np.zeros(rows, dtype=bool)
        if clause.kind in ("word", "typed"):
            term = self._terms(clause)[0]
            for part in ("body", "name") if clause.field == "any" else (clause.field,):
                if term:
                    matched[self._reader.postings(part, self._hash(term))[0].rows] = True
        begun = clause.kind == "typed" and len(clause.words[0]) < SHORTEST_PREFIX
        if not begun and (clause.kind != "word" or not self._terms(clause)[0]):
            matched |= self._fts_matches(_expression(clause), rows)
        return matched

    def _fts_matches(self, expression: str, rows: int) -> Booleans:
        """Return (rows,) the documents that FTS5 finds."""
        matched = np.zeros(rows, dtype=bool)
        found = self._reader.numbers("rowid", "words WHERE words MATCH ?", expression)
        matched[self._reader.loaded.rows_of(found)] = True
        return matched

    def _columns(self, clause: Clause, matched: Booleans) -> list[_Column]:
        """Return the postings for the features of a clause: one column for each term."""
        if clause.kind in ("word", "phrase"):
            return [self._column([term]) for term in self._terms(clause) if term]
        word = clause.words[0]
        completions = self._reader.fetch(
            "SELECT word FROM vocabulary WHERE word >= ? AND word < ? ORDER BY documents DESC, word LIMIT ?",
            word, _upper_bound(word), COMPLETIONS if len(word) >= SHORTEST_PREFIX else 0,
        )  # fmt: skip
        words = [*(completion for (completion,) in completions), *([word] if clause.kind == "typed" else [])]
        terms = dict.fromkeys(term for term in self._tokeniser.terms(words) if term)
        column = self._column([*terms])
        return [_Column(column.body.within(matched), column.title.within(matched))]

    def _column(self, terms: Sequence[str]) -> _Column:
        hashes = [self._hash(term) for term in terms]
        body, title = (TermPostings.union(self._reader.postings(part, *hashes)) for part in ("body", "title"))
        return _Column(body, title)

    # names

    def _add_names(self, query: SearchQuery, loaded: LoadedRows, allowed: Booleans, bands: Integers) -> None:
        """Set the bands of documents whose name or title is the query, or begins with it."""
        key = " ".join(query.plain_words)
        if not key or len(key) > LONGEST_KEY:
            return
        beginning = key if query.open_ended else f"{key} "
        range_ = (beginning, _upper_bound(beginning))
        statements = (
            (BEGINNING, "name_key >= ? AND name_key < ?", range_),
            (BEGINNING, "title_key >= ? AND title_key < ?", range_),
            (EXACT, "name_key = ?", (key,)),
            (EXACT, "stem_key = ?", (key,)),
            (EXACT, "title_key = ?", (key,)),
        )
        for band, condition, values in statements:
            found = self._reader.numbers("id", f"documents WHERE {condition}", *values)
            if len(found):
                rows = loaded.rows_of(found)
                bands[rows[allowed[rows]]] = band

    def _add_near_names(
        self, words: Sequence[str], loaded: LoadedRows, allowed: Booleans, bands: Integers, nearness: Integers
    ) -> tuple[str, ...]:
        """Add documents whose name contains nearly one of some words, as band 3; return those words of names."""
        taken: list[str] = []
        for word in words:
            near = near_words(word, self._words_of_names(loaded))[:MOST_NEAR]
            hashes = [self._hash(term) for term in self._tokeniser.terms(near) if term]
            rows = [postings.rows for postings in self._reader.postings("name", *hashes)]
            held = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))
            held = held[allowed[held]]
            if len(held):
                nearness[held] += 1
                bands[held] = np.minimum(bands[held], SOME_WORDS)
                taken += near
        return tuple(dict.fromkeys(taken))

    def _words_of_names(self, loaded: LoadedRows) -> list[str]:
        if self._name_words is None or self._name_words[0] is not loaded:
            joined = self._reader.fetch("SELECT group_concat(word, ' ') FROM vocabulary WHERE names > 0")[0][0]
            self._name_words = (loaded, (joined or "").split())
        return self._name_words[1]

    # scores and features

    def _scores(
        self, columns: Sequence[_Column], loaded: LoadedRows
    ) -> tuple[Doubles, tuple[FieldStatistics, FieldStatistics]]:
        """Return (rows,) BM25 of title and body, and the statistics of both fields for the terms."""
        statistics = (
            field_statistics("body", [column.body for column in columns], loaded),
            field_statistics("title", [column.title for column in columns], loaded),
        )
        scores = np.zeros(len(loaded.alive))
        idf = PARAMETERS.inverse_document_frequency(statistics[0])
        lengths = loaded.columns["body_length"]
        for column, weight in zip(columns, idf, strict=True):
            rows = column.body.rows
            scores[rows] += weight * bm25_weights(column.body.counts, lengths[rows], statistics[0].mean_length)
        return scores, statistics

    def _features(
        self,
        columns: Sequence[_Column],
        statistics: tuple[FieldStatistics, FieldStatistics],
        chosen: Integers,
        loaded: LoadedRows,
    ) -> Doubles:
        fields = []
        for part, known in zip(("body", "title"), statistics, strict=True):
            counts = np.zeros((len(chosen), len(columns)))
            for number, column in enumerate(columns):
                postings = column.body if part == "body" else column.title
                counts[:, number] = picked(postings.rows, postings.counts, chosen, 0.0)
            lengths, distinct = (loaded.columns[f"{part}_{what}"][chosen] for what in ("length", "distinct"))
            fields.append(array_features(counts, lengths, distinct, known))
        return np.hstack(fields) if len(chosen) else np.zeros((0, len(FEATURE_NAMES)))

    def _described(
        self,
        query: SearchQuery,
        loaded: LoadedRows,
        chosen: Integers,
        bands: Integers,
        scores: Doubles,
        features: Doubles,
        columns: Sequence[_Column],
        found: int,
        near: tuple[str, ...],
    ) -> SearchCandidates:
        ids = loaded.columns["id"][chosen]
        fetched = self._reader.fetch(
            "SELECT documents.id, kind, key, path, title, documents.name, visits, visit_count, title_key FROM documents"
            f" JOIN sources ON sources.id = source WHERE documents.id IN ({','.join(map(str, ids.tolist()))})"
        )
        by_id = {row[0]: row[1:] for row in fetched}
        described: list[tuple[Any, ...]] = [by_id[number] for number in ids.tolist()]
        kinds, keys, paths, titles, names, visits, visit_counts, title_keys = (
            zip(*described, strict=True) if described else [()] * 8
        )
        key = " ".join(query.plain_words)
        firsts = [picked(column.body.rows, column.body.firsts, chosen, -1) for column in columns]
        places = np.array(firsts, dtype=np.int64).reshape(len(columns), len(chosen))
        beyond = np.iinfo(np.int64).max
        first = np.where(places >= 0, places, beyond).min(axis=0, initial=beyond)
        last = places.max(axis=0, initial=-1)
        somewhere = last >= 0
        return SearchCandidates(
            ids=ids,
            bands=bands[chosen],
            scores=scores[chosen],
            features=features,
            modified=loaded.columns["modified"][chosen],
            sources=loaded.columns["source"][chosen].astype(np.int64),
            kinds=kinds,
            keys=keys,
            paths=paths,
            depths=np.array([path_depth(path) for path in paths], dtype=np.int64),
            names=names,
            titles=titles,
            visits=tuple(tuple(np.frombuffer(blob, "<f8").tolist()) if blob else () for blob in visits),
            visit_counts=np.array(visit_counts, dtype=np.int64),
            title_is_query=np.array([bool(key) and title == key for title in title_keys], dtype=bool),
            first_match=np.where(somewhere, first, -1),
            likeness=likeness(chosen, scores[chosen], self._reader, self._tokeniser, self._hash),
            match_span=np.where(somewhere, last - first + 1, 0),
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


def _first(
    found: Integers, bands: Integers, scores: Doubles, nearness: Integers, loaded: LoadedRows, limit: int
) -> Integers:
    """Return the first `limit` rows by (band, score, near names, newest, id)."""
    if len(found) > limit:  # leave out rows that cannot be among them before sorting
        below = np.cumsum(np.bincount(bands[found], minlength=NO_BAND))
        last = int(np.searchsorted(below, limit))
        kept, open_ = found[bands[found] < last], found[bands[found] == last]
        left = limit - len(kept)
        if left < len(open_):
            least = np.partition(scores[open_], len(open_) - left)[len(open_) - left]
            open_ = open_[scores[open_] >= least]
        found = np.concatenate((kept, open_))
    columns = loaded.columns
    keys = (columns["id"][found], -columns["modified"][found], -nearness[found], -scores[found], bands[found])
    return found[np.lexsort(keys)][:limit]


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
