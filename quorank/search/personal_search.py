"""Search of a person's own things: what pages and the command line call.

`find` shows a list, `choose` learns from what is opened, `why` says what put each result where it is. Choices stay in the
folder; the ranker of all comes from a federation that the person may join (`taking_part`), and what the choices say of it
is added on this machine. The same query twice, with no choice and no change of documents between, gives the same list.
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
from quorank.search.ranking.bands import BAND_NAMES, habits, ranked
from quorank.search.ranking.choice_history import ChoiceHistory
from quorank.search.ranking.personal_part import ChosenList, PersonalFit
from quorank.search.ranking.search_features import SEARCH_FEATURES, Document, documents_of, search_features
from quorank.search.ranking.shipped_ranker import shipped_parameters
from quorank.search.sources import SOURCES, Source
from quorank.search.taking_part import TakingPart

CANDIDATES = 200
PAGE = 10
"""Results of a page; choices are learned from among these."""
REMEMBERED = 500
"""Searches whose results may still be chosen from."""
Order = Literal["relevance", "date"]


@dataclass(frozen=True)
class SearchResult:
    """One line of a list."""

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
        """For JSON."""
        return {
            "path": self.path,
            "title": self.title or self.name,
            "source": self.source,
            "band": self.band,
            "score": round(self.score, 6),
        }


@dataclass(frozen=True)
class FeatureShare:
    """What one feature adds to the score of a result."""

    feature: str
    value: float
    weight: float

    @property
    def share(self) -> float:
        """Weight times value."""
        return self.weight * self.value


@dataclass(frozen=True)
class Reason:
    """Why a result is where it is."""

    result: SearchResult
    habit: str  # a sentence where it comes first by habit, else empty
    shares: tuple[FeatureShare, ...]  # largest first

    def table(self) -> dict[str, Any]:
        """For JSON."""
        parts = [
            {
                "feature": one.feature,
                "value": round(one.value, 6),
                "weight": round(one.weight, 6),
                "share": round(one.share, 6),
            }
            for one in self.shares
        ]
        return self.result.table() | {"habit": self.habit, "features": parts}


@dataclass(frozen=True)
class ResultPage:
    """What a search shows."""

    query: str
    token: str  # names this search, for `choose`
    results: tuple[SearchResult, ...]
    found: int  # documents in any band
    near: tuple[str, ...]  # words of names that were taken for a mistyped one
    seconds: float
    reasons: tuple[Reason, ...] = ()  # of the results, where they were asked for

    def table(self) -> dict[str, Any]:
        """For JSON."""
        return {"results": [result.table() for result in self.results]}


@dataclass(frozen=True, eq=False)
class _ShownSearch:
    """A page as it was shown, for learning from what is chosen."""

    query: str
    documents: tuple[Document, ...]
    ids: tuple[int, ...]
    bands: tuple[int, ...]
    features: Floats = field(repr=False)
    by_score: bool = True
    chosen: set[int] = field(default_factory=set)


class PersonalSearch:
    """One person's search; open it with `PersonalSearch.open`, and close it, or use it as a context."""

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
        """Add a source, without reading it yet; returns its number, also of one that is there already."""
        return self.index.add_source(source.table(), source.name)

    def source(self, number: int) -> Source:
        """Return a source by its number."""
        found = {stored.id: stored for stored in self.index.sources()}
        require(number in found, "source.unknown", f"there is no source {number}; status lists them")
        return SOURCES.read(found[number].table, f"source {number}")

    def update(
        self,
        number: int,
        progress: Callable[[UpdateReport], object] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> UpdateReport:
        """Read a source again: what is new or changed is indexed, what is gone leaves the index."""
        scan = self.source(number).scan(self.index.known(number))
        return self.index.update(number, scan, progress=progress, stop=stop)

    def remove(self, number: int) -> int:
        """Remove a source, its documents and the choices of them; returns how many documents there were."""
        removed = self.index.remove_source(number)
        for document in {choice.document for choice in self.history.choices() if choice.document[0] == number}:
            self._forget(document=document)
        return removed

    # ------------------------------------------------------------ searching

    @property
    def shared(self) -> Doubles:
        """Parameters of the ranker of all: the last that was taken, or the shipped one."""
        found = self.history.shared
        return shipped_parameters() if found is None else found

    @property
    def parameters(self) -> Doubles:
        """Parameters that lists are ordered by: the ranker of all with the personal part."""
        version = self.history.version
        if self._fitted is None or self._fitted[0] != version:
            self._fitted = version, self.fit.fitted(self.shared, self.history.lists(self.fit.newest))
        return self._fitted[1]

    def _ranked(
        self, text: str, typing: bool, within: str = ""
    ) -> tuple[SearchQuery, SearchCandidates, Doubles, Integers, Doubles]:
        query = parse_query(f"{within} {text}" if within else text, typing=typing, now=self.clock())
        found = self.index.find(query, CANDIDATES)
        features = search_features(found, self.history.past(text), len(query.clauses), self.clock())
        order, scores = ranked(found, features, self.parameters)
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
        """Search; with `typing` the last word may go on. `first` results are passed over, for a later page.

        `within` are operators that restrict the list (`source:mail since:7d`) and are no part of what is learned.
        With `reasons` the page says what put each result where it is.
        """
        began = time.perf_counter()
        with self._mutex:
            query, found, features, by_score, scores = self._ranked(text, typing, within)
            rows = by_score if order == "relevance" else np.lexsort((found.ids, -found.modified))
            rows = rows[first : first + limit]
            results = tuple(self._result(query, found, scores, row) for row in rows.tolist())
            token = self._remember(text, found, features, rows, order == "relevance" and first == 0)
            told = self._reasons(text, found, features, rows, results) if reasons else ()
        return ResultPage(text, token, results, found.found, found.near, time.perf_counter() - began, told)

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
        """The person opened a result: learn from it, once a search; returns its path.

        A search that is forgotten by now, or a list by date, is opened and not learned from.
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
                one = ChosenList(shown.features[[at]], 0, 1)  # an opening, of which no order follows
            name = self.history.add(self.clock(), shown.query, shown.documents[at], one)
            self.membership.record(one, name)
        return path

    def why(self, text: str, *, limit: int = PAGE) -> list[Reason]:
        """Say for each result of a search what put it where it is."""
        with self._mutex:
            query, found, features, order, scores = self._ranked(text, False)
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
            told = sorted((one for one in shares if one.share != 0.0), key=lambda one: -abs(one.share))
            number = past.here.get(documents[row], 0)
            habit = f"chosen {number} of the last {past.total} times for this query" if usual[row] else ""
            reasons.append(Reason(result, habit, tuple(told)))
        return tuple(reasons)

    # ------------------------------------------------------------ forgetting

    def forget_document(self, document: int) -> None:
        """Erase a document from the index, for good, and every choice of it."""
        with self._mutex:
            stored = self.index.document(document)
            self._forget(document=(stored.source, stored.key))
            self.index.forget([document])
            self._shown.clear()

    def forget_query(self, text: str) -> int:
        """Erase the choices for a query; returns how many there were."""
        with self._mutex:
            return self._forget(query=text)

    def reset(self) -> int:
        """Erase all choices and go back to the shipped ranker; documents stay. Returns how many choices there were."""
        with self._mutex:
            return self._forget(all_=True)

    def forget_all(self) -> None:
        """Erase everything: documents, sources, choices, and what a device has kept; `leave` tells a service before."""
        with self._mutex:
            self.reset()
            for stored in self.index.sources():
                self.index.remove_source(stored.id)
            self.index.admit_forgotten()
            self.membership.erase()

    def _forget(self, **which: Any) -> int:
        names = self.history.names(**which)
        self.membership.forget(names)  # first: where another process plays the device, nothing is half forgotten
        self.history.forget(names, all_="all_" in which)
        self._shown.clear()
        return len(names)

    # ------------------------------------------------------------ how it stands

    def status(self) -> dict[str, Any]:
        """Documents, sources, choices, the ranker and the federation, as JSON holds them."""
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
