"""Search of a person's own documents: the interface for pages and the command line.

`find` returns a list, `choose` learns from an opened result, `why` explains the position of each result. Choices stay
in the folder; the shared ranker comes from a federation that the person may join (`taking_part`), and the personal
part is added on this machine. The same query twice, without a choice or a changed document in between, returns the
same list.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Floats, Integers
from quorank.search.home import SearchHome
from quorank.search.index import (
    SearchCandidates,
    SearchIndex,
    SearchQuery,
    SnippetPiece,
    StoredSource,
    UpdateReport,
    parse_query,
)
from quorank.search.ranking.choice_history import ChoiceHistory
from quorank.search.ranking.personal_part import ChosenList, PersonalFit
from quorank.search.ranking.search_features import SEARCH_FEATURES, Document, documents_of, search_features
from quorank.search.ranking.shipped_ranker import BAND_NAMES, habits, rank_candidates, shipped_parameters
from quorank.search.sources import SOURCES, Source
from quorank.search.taking_part import TakingPart

CANDIDATES = 200
PAGE = 10
"""Results of a page; only choices among these are learned from."""
REMEMBERED = 500
"""Number of last searches whose results may still be chosen."""
Order = Literal["relevance", "date"]


@dataclass(frozen=True)
class SearchResult:
    """Result of a search."""

    document: int
    path: str
    title: str
    name: str
    source: str  # kind of its source
    band: str
    score: float
    modified: float  # Unix seconds
    snippet: tuple[SnippetPiece, ...]

    def table(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "path": self.path,
            "title": self.title or self.name,
            "source": self.source,
            "band": self.band,
            "score": round(self.score, 6),
        }


@dataclass(frozen=True)
class FeatureShare:
    """Contribution of one feature to the score of a result."""

    feature: str
    value: float
    weight: float

    @property
    def share(self) -> float:
        """Weight times value: the contribution to the score."""
        return self.weight * self.value


@dataclass(frozen=True)
class Reason:
    """Explanation of the position of a result."""

    result: SearchResult
    habit: str  # a sentence if it comes first by habit, else empty
    shares: tuple[FeatureShare, ...]  # largest first

    def table(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        parts = [
            {"feature": one.feature} | {name: round(getattr(one, name), 6) for name in ("value", "weight", "share")}
            for one in self.shares
        ]
        return self.result.table() | {"habit": self.habit, "features": parts}


@dataclass(frozen=True)
class ResultPage:
    """Page of results."""

    query: str
    token: str  # of this search, for `choose`
    results: tuple[SearchResult, ...]
    found: int  # documents in any band
    near: tuple[str, ...]  # words of names that replaced a mistyped one
    seconds: float
    reasons: tuple[Reason, ...] = ()  # of the results, if requested

    def table(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {"results": [result.table() for result in self.results]}


@dataclass(frozen=True, eq=False)
class _ShownSearch:
    """Shown page, for learning from a choice."""

    query: str
    documents: tuple[Document, ...]
    ids: tuple[int, ...]
    bands: tuple[int, ...]
    features: Floats = field(repr=False)
    by_score: bool = True
    chosen: set[int] = field(default_factory=set)


class PersonalSearch:
    """Search of one person; open it with `PersonalSearch.open`, and close it, or use it as a context manager.

    >>> with PersonalSearch.open(folder) as search:  # doctest: +SKIP
    ...     search.update(search.add(FilesSource("~/Documents")))
    ...     page = search.find("annual report")
    ...     search.choose(page.token, page.results[0].document)
    """

    def __init__(
        self, home: SearchHome, *, clock: Callable[[], float] = time.time, fit: PersonalFit | None = None
    ) -> None:
        self.home, self.clock, self.fit = home, clock, fit or PersonalFit()
        self.index = SearchIndex.open(home)
        self.history = ChoiceHistory(home.folder, len(SEARCH_FEATURES))
        self.membership = TakingPart(home.folder, self.history, self.fit, clock)
        self._mutex = RLock()
        self._shown: OrderedDict[str, _ShownSearch] = OrderedDict()
        self._fitted: tuple[int, Doubles] | None = None

    @classmethod
    def open(cls, folder: Path | str | None = None, **more: Any) -> PersonalSearch:
        """Open the search of a folder, by default that of this account."""
        return cls(SearchHome.open(folder), **more)

    def __enter__(self) -> PersonalSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        self.membership.close()
        self.index.close()
        self.history.close()

    # ------------------------------------------------------------ sources

    def add(self, source: Source) -> int:
        """Add a source without reading it yet; return its number, also of one that exists already."""
        return self.index.add_source(source.table(), source.name)

    def source(self, number: int) -> Source:
        """Return a source by its number."""
        found = {stored.id: stored for stored in self.index.sources()}
        require(number in found, "source.unknown", f"there is no source {number}; `quorank search status` lists them")
        return SOURCES.read(found[number].table, f"source {number}")

    def update(
        self,
        number: int,
        progress: Callable[[UpdateReport], object] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> UpdateReport:
        """Scan a source: index new and changed documents, and remove missing ones."""
        scan = self.source(number).scan(self.index.known(number))
        return self.index.update(number, scan, progress=progress, stop=stop)

    def remove(self, number: int) -> int:
        """Remove a source, its documents and their choices; return the number of documents."""
        removed = self.index.remove_source(number)
        for document in {choice.document for choice in self.history.choices() if choice.document[0] == number}:
            self._forget(document=document)
        return removed

    # ------------------------------------------------------------ searching

    @property
    def shared(self) -> Doubles:
        """Parameters of the shared ranker: the last accepted one, or the shipped one."""
        found = self.history.shared
        return shipped_parameters() if found is None else found

    @property
    def parameters(self) -> Doubles:
        """Parameters of the ranker in use: the shared ranker with the personal part."""
        version = self.history.version
        if self._fitted is None or self._fitted[0] != version:
            self._fitted = version, self.fit.fitted(self.shared, self.history.lists(self.fit.newest))
        return self._fitted[1]

    def _rank(
        self, text: str, typing: bool, within: str = ""
    ) -> tuple[SearchQuery, SearchCandidates, Doubles, Integers, Doubles]:
        query = parse_query(f"{within} {text}" if within else text, typing=typing, now=self.clock())
        found = self.index.find(query, CANDIDATES)
        features = search_features(found, self.history.past(text), len(query.clauses), self.clock())
        order, scores = rank_candidates(found, features, self.parameters)
        return query, found, features, order, scores

    def find(
        self,
        text: str,
        *,
        limit: int = PAGE,
        typing: bool = False,
        order: Order = "relevance",
        first: int = 0,
        within: str = "",
        reasons: bool = False,
    ) -> ResultPage:
        """Return a page of results.

        Args:
            text: The query.
            limit: Number of results.
            typing: The last word may be unfinished.
            order: By score or by date.
            first: Number of results to skip.
            within: Operators that restrict the list (`source:mail since:7d`); they are not learned from.
            reasons: Explain the position of each result.
        """
        began = time.perf_counter()
        with self._mutex:
            query, found, features, by_score, scores = self._rank(text, typing, within)
            rows = by_score if order == "relevance" else np.lexsort((found.ids, -found.modified))
            rows = rows[first : first + limit]
            results = tuple(self._result(query, found, scores, row) for row in rows.tolist())
            token = self._remember(text, found, features, rows, order == "relevance" and first == 0)
            explained = self._reasons(text, found, features, rows, results) if reasons else ()
        return ResultPage(text, token, results, found.found, found.near, time.perf_counter() - began, explained)

    def _result(self, query: SearchQuery, found: SearchCandidates, scores: Doubles, row: int) -> SearchResult:
        return SearchResult(
            int(found.ids[row]),
            found.paths[row],
            found.titles[row],
            found.names[row],
            found.kinds[row],
            BAND_NAMES[found.bands[row]],
            float(scores[row]),
            float(found.modified[row]),
            self.index.snippet(int(found.ids[row]), query),
        )

    def _remember(self, text: str, found: SearchCandidates, features: Doubles, rows: Integers, by_score: bool) -> str:
        token, documents = secrets.token_hex(8), documents_of(found)
        self._shown[token] = _ShownSearch(
            text,
            tuple(documents[row] for row in rows.tolist()),
            tuple(found.ids[rows].tolist()),
            tuple(found.bands[rows].tolist()),
            features[rows].astype(np.float32),
            by_score,
        )
        while len(self._shown) > REMEMBERED:
            self._shown.popitem(last=False)
        return token

    def choose(self, token: str, document: int) -> str:
        """Learn from an opened result, once for each search; return its path.

        Of a list by date only the opening is learned, of a search that is no longer remembered nothing.
        """
        with self._mutex:
            path = self.index.document(document).path
            shown = self._shown.get(token)
            if shown is None or document not in shown.ids[:PAGE] or document in shown.chosen:
                return path
            shown.chosen.add(document)
            at = shown.ids.index(document)
            rows = [row for row in range(min(len(shown.ids), PAGE)) if shown.bands[row] == shown.bands[at]]
            one = ChosenList(shown.features[rows], rows.index(at), at + 1)
            if not shown.by_score:
                one = ChosenList(shown.features[[at]], 0, 1)  # an opening, which says nothing about the order
            name = self.history.add(self.clock(), shown.query, shown.documents[at], one)
            self.membership.record(one, name)
        return path

    def why(self, text: str, *, limit: int = PAGE) -> list[Reason]:
        """Explain the position of each result of a search."""
        with self._mutex:
            query, found, features, order, scores = self._rank(text, False)
            rows = order[:limit]
            results = tuple(self._result(query, found, scores, row) for row in rows.tolist())
            return list(self._reasons(text, found, features, rows, results))

    def _reasons(
        self, text: str, found: SearchCandidates, features: Doubles, rows: Integers, results: Sequence[SearchResult]
    ) -> tuple[Reason, ...]:
        theta, past = self.parameters, self.history.past(text)
        usual, documents, reasons = habits(features), documents_of(found), []
        for row, result in zip(rows.tolist(), results, strict=True):
            shares = (
                FeatureShare(name, float(features[row, i]), float(theta[i])) for i, name in enumerate(SEARCH_FEATURES)
            )
            largest = sorted((one for one in shares if one.share != 0.0), key=lambda one: -abs(one.share))
            number = past.here.get(documents[row], 0)
            habit = f"chosen {number} of the last {past.total} times for this query" if usual[row] else ""
            reasons.append(Reason(result, habit, tuple(largest)))
        return tuple(reasons)

    # ------------------------------------------------------------ forgetting

    def forget_document(self, document: int) -> None:
        """Erase a document from the index for good, with every choice of it."""
        with self._mutex:
            stored = self.index.document(document)
            self._forget(document=(stored.source, stored.key))
            self.index.forget([document])
            self._shown.clear()

    def forget_query(self, text: str) -> int:
        """Erase the choices for a query; return their number."""
        with self._mutex:
            return self._forget(query=text)

    def reset(self) -> int:
        """Erase all choices and restore the shipped ranker; documents stay. Return the number of choices."""
        with self._mutex:
            return self._forget(all_=True)

    def forget_all(self) -> None:
        """Erase everything: documents, sources, choices, and the device's data; call `leave` first to tell a service."""
        with self._mutex:
            self.reset()
            for stored in self.index.sources():
                self.index.remove_source(stored.id)
            self.index.admit_forgotten()
            self.membership.erase()

    def _forget(self, **which: Any) -> int:
        names = self.history.names(**which)
        self.membership.forget(names)  # first: it fails while another process runs the device
        self.history.forget(names, all_="all_" in which)
        self._shown.clear()
        return len(names)

    # ------------------------------------------------------------ status

    def status(self) -> dict[str, Any]:
        """Return documents, sources, choices, ranker and federation for JSON."""
        sources = [self._source_status(stored) for stored in self.index.sources()]
        return {
            "folder": str(self.home.folder),
            "documents": self.index.count(),
            "sources": sources,
            "choices": len(self.history.choices()),
            "ranker": "of the federation" if self.history.shared is not None else "shipped",
            "federation": self.membership.status(),
        }

    def _source_status(self, stored: StoredSource) -> Mapping[str, Any]:
        return {
            "number": stored.id,
            "kind": stored.kind,
            "name": stored.name,
            "documents": stored.documents,
            "skipped": len(self.index.skipped(stored.id)),
            "updated": stored.updated,
        }
