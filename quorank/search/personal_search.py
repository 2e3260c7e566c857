"""Search of a person's own documents: the interface for pages and the command line.

`find` returns a list with the explanation of each position, `choose` learns from an opened result. Choices stay in the
folder; the shared ranker comes from a federation that the person may join (`taking_part`), and the personal part is
added on this machine. The same query twice, without a choice or a changed document in between, returns the same list.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Literal, NamedTuple

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Floats
from quorank.search.home import SearchHome
from quorank.search.index import SearchIndex, SnippetPiece, UpdateReport, parse_query
from quorank.search.ranking.choice_history import ChoiceHistory, StoredChoice, query_key
from quorank.search.ranking.personal_part import ChosenList, PersonalFit
from quorank.search.ranking.search_features import (
    BAND_NAMES,
    SEARCH_FEATURES,
    Document,
    documents_of,
    habits,
    rank_candidates,
    search_features,
    shipped_parameters,
)
from quorank.search.sources import SOURCES, Source
from quorank.search.taking_part import TakingPart

CANDIDATES = 200
PAGE = 10  # results of a page; only choices among these are learned from
REMEMBERED = 500  # number of last searches whose results may still be chosen
FIT = PersonalFit()
Order = Literal["relevance", "date"]


class FeatureShare(NamedTuple):
    """Contribution of one feature to the score of a result: value times weight."""

    feature: str
    value: float
    weight: float
    share: float


@dataclass(frozen=True)
class SearchResult:
    """Result of a search, with the explanation of its position."""

    document: int
    path: str
    title: str
    name: str
    source: str  # kind of its source
    band: str
    score: float
    modified: float  # Unix seconds
    snippet: tuple[SnippetPiece, ...]
    habit: str  # a sentence if it comes first by habit, else empty
    shares: tuple[FeatureShare, ...]  # largest first

    def table(self) -> dict[str, Any]:
        """Return the fields for JSON, without the explanation."""
        shown = {"path": self.path, "title": self.title or self.name, "source": self.source, "band": self.band}
        return shown | {"score": round(self.score, 6)}

    def explained_table(self) -> dict[str, Any]:
        """Return the fields for JSON, with the explanation."""
        rounded = [FeatureShare(one.feature, *(round(number, 6) for number in one[1:])) for one in self.shares]
        return self.table() | {"habit": self.habit, "features": [one._asdict() for one in rounded]}


@dataclass(frozen=True)
class ResultPage:
    """Page of results."""

    query: str
    token: str  # of this search, for `choose`
    results: tuple[SearchResult, ...]
    found: int  # documents in any band
    near: tuple[str, ...]  # words of names that replaced a mistyped one
    seconds: float

    def table(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {"results": [result.table() for result in self.results]}


class _ShownSearch(NamedTuple):
    """Shown page, for learning from a choice."""

    query: str
    documents: list[Document]
    ids: list[int]
    bands: list[int]
    features: Floats
    by_score: bool
    chosen: set[int]


class PersonalSearch(AbstractContextManager["PersonalSearch"]):
    """Search of one person; open it with `PersonalSearch.open`, and close it, or use it as a context manager.

    >>> with PersonalSearch.open(folder) as search:  # doctest: +SKIP
    ...     search.update(search.add(FilesSource("~/Documents")))
    ...     page = search.find("annual report")
    ...     search.choose(page.token, page.results[0].document)
    """

    def __init__(self, home: SearchHome) -> None:
        self.home, self.index = home, SearchIndex(home)
        self.history = ChoiceHistory(home.folder, len(SEARCH_FEATURES))
        self.membership = TakingPart(home.folder, self.history, FIT)
        self._mutex = RLock()
        self._shown: OrderedDict[str, _ShownSearch] = OrderedDict()
        self._fitted: tuple[int, Doubles] | None = None

    @classmethod
    def open(cls, folder: Path | str | None = None) -> PersonalSearch:
        """Open the search of a folder, by default that of this account."""
        return cls(SearchHome.open(folder))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        self.membership.close()
        self.index.close()
        self.history.close()

    # sources

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
        self._forget(lambda choice: choice.document[0] == number)
        return removed

    # searching

    @property
    def shared(self) -> Doubles:
        """Parameters of the shared ranker: the last accepted one, or the shipped one."""
        received = self.history.shared
        return shipped_parameters() if received is None else received

    @property
    def parameters(self) -> Doubles:
        """Parameters of the ranker in use: the shared ranker with the personal part."""
        version = self.history.version
        if self._fitted is None or self._fitted[0] != version:
            self._fitted = version, FIT.fitted(self.shared, self.history.lists(FIT.newest))
        return self._fitted[1]

    def find(
        self,
        text: str,
        *,
        limit: int = PAGE,
        typing: bool = False,
        order: Order = "relevance",
        first: int = 0,
        within: str = "",
    ) -> ResultPage:
        """Return a page of results.

        Args:
            text: The query.
            limit: Number of results.
            typing: The last word may be unfinished.
            order: By score or by date.
            first: Number of results to skip.
            within: Operators that restrict the list (`source:mail since:7d`); they are not learned from.
        """
        began, now = time.perf_counter(), time.time()
        query = parse_query(f"{within} {text}" if within else text, typing=typing, now=now)
        with self._mutex, self.index.reading():
            found = self.index.find(query, CANDIDATES)
            past, theta, documents = self.history.past(text), self.parameters, documents_of(found)
            features = search_features(found, past, len(query.clauses), now)
            by_score, scores = rank_candidates(found, features, theta)
            usual = habits(features)
            ordered = by_score if order == "relevance" else np.lexsort((found.ids, -found.modified))
            rows = ordered[first : first + limit].tolist()

            def result(row: int) -> SearchResult:
                columns = SEARCH_FEATURES, features[row].tolist(), theta.tolist(), (features[row] * theta).tolist()
                shares = [FeatureShare(*one) for one in zip(*columns, strict=True) if one[3] != 0.0]
                times = past.here.get(documents[row], 0)
                return SearchResult(
                    document=int(found.ids[row]),
                    path=found.paths[row],
                    title=found.titles[row],
                    name=found.names[row],
                    source=found.kinds[row],
                    band=BAND_NAMES[found.bands[row]],
                    score=float(scores[row]),
                    modified=float(found.modified[row]),
                    snippet=self.index.snippet(int(found.ids[row]), query),
                    habit=f"chosen {times} of the last {past.total} times for this query" if usual[row] else "",
                    shares=tuple(sorted(shares, key=lambda one: -abs(one.share))),
                )

            results, token = tuple(map(result, rows)), secrets.token_hex(8)
            self._shown[token] = _ShownSearch(
                text,
                [documents[row] for row in rows],
                found.ids[rows].tolist(),
                found.bands[rows].tolist(),
                features[rows].astype(np.float32),
                order == "relevance" and first == 0,
                set(),
            )
            while len(self._shown) > REMEMBERED:
                self._shown.popitem(last=False)
        return ResultPage(text, token, results, found.found, found.near, time.perf_counter() - began)

    def choose(self, token: str, document: int) -> str:
        """Learn from an opened result, once for each search; return its path.

        Of a list by date only the opening is learned, of a search that is no longer remembered nothing.
        """
        with self._mutex:
            path, shown = self.index.document(document)[1].path, self._shown.get(token)
            if shown is None or document not in shown.ids[:PAGE] or document in shown.chosen:
                return path
            shown.chosen.add(document)
            at = shown.ids.index(document)
            if shown.by_score:
                rows = [row for row, band in enumerate(shown.bands[:PAGE]) if band == shown.bands[at]]
                one = ChosenList(shown.features[rows], rows.index(at), at + 1)
            else:
                one = ChosenList(shown.features[[at]], 0, 1)  # an opening, which says nothing about the order
            name = self.history.add(time.time(), shown.query, shown.documents[at], one)
            self.membership.record(one, name)
        return path

    # forgetting

    def forget_documents(self, documents: Sequence[int]) -> None:
        """Erase documents from the index for good, with every choice of them."""
        with self._mutex:
            found = map(self.index.document, documents)
            forgotten = {(source, document.key) for source, document in found}
            self._forget(lambda choice: choice.document in forgotten)
            self.index.forget(documents)

    def forget_query(self, text: str) -> int:
        """Erase the choices for a query; return their number."""
        key = query_key(text)
        return self._forget(lambda choice: choice.query == key)

    def reset(self) -> int:
        """Erase all choices and restore the shipped ranker; documents stay. Return the number of choices."""
        return self._forget(lambda choice: True, all_=True)

    def forget_all(self) -> None:
        """Erase everything: documents, sources, choices, and the device's data; call `leave` first to tell a service."""
        with self._mutex:
            self.reset()
            for stored in self.index.sources():
                self.index.remove_source(stored.id)
            self.index.admit_forgotten()
            self.membership.erase()

    def _forget(self, wanted: Callable[[StoredChoice], bool], *, all_: bool = False) -> int:
        with self._mutex:
            names = [choice.name for choice in self.history.choices() if wanted(choice)]
            self.membership.forget(names)  # first: it fails while another process runs the device
            self.history.forget(names, all_=all_)
            self._shown.clear()
        return len(names)

    # status

    def status(self) -> dict[str, Any]:
        """Return documents, sources, choices, ranker and federation for JSON."""
        sources = [
            {
                "number": stored.id,
                "kind": stored.kind,
                "name": stored.name,
                "documents": stored.documents,
                "skipped": len(self.index.skipped(stored.id)),
                "updated": stored.updated,
            }
            for stored in self.index.sources()
        ]
        return {
            "folder": str(self.home.folder),
            "documents": self.index.count(),
            "sources": sources,
            "choices": len(self.history.choices()),
            "ranker": "of the federation" if self.history.shared is not None else "shipped",
            "federation": self.membership.status(),
        }
