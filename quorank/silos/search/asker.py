"""Asker's side of a search: hide a query among decoys, read the owners' answers, rank all documents together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles, Integers
from quorank.silos.count_sketch import Hashing
from quorank.silos.envelopes import Catalogue
from quorank.silos.holdings import Holding
from quorank.silos.search.decoys import Bundle, CoherentDecoys, ordered_bundles
from quorank.silos.search.estimates import BM25, count_prior, expected_count, expected_frequency, shrink_lengths
from quorank.silos.search.messages import SearchAnswer, SearchQuestion, by_column
from quorank.silos.search.settings import MOST_TERMS, SearchTerms
from quorank.silos.training.lists import Statistics
from quorank.text import UNSEEN
from quorank.text.features import bm25_robertson

KeptBundles = dict[Bundle, tuple[Bundle, ...]]  # decoys by query, its terms in order


@dataclass(frozen=True)
class TermFound:
    """A term of the query in a document: its exact or estimated count, and its share of the score."""

    term: str
    count: float
    score: float


@dataclass(frozen=True)
class ScoredDocument:
    """Document in a result; only the asker's own has an id."""

    party: str
    number: int
    score: float
    terms: tuple[TermFound, ...]
    id: str | None = None

    @property
    def why(self) -> str:
        """Found terms with their counts, the largest share of the score first."""
        return ", ".join(f"{each.term} ×{round(each.count, 1):g}" for each in self.terms)


@dataclass(frozen=True)
class AskedQuery:
    """Question to all owners; only `sent` leaves the asker."""

    terms: Bundle  # of the query, in the order of their columns
    sent: bytes = field(repr=False)  # message
    place: int = field(repr=False)  # of the query among the bundles
    bundles: tuple[Bundle, ...] = field(repr=False)


class SearchAsker:
    """A party as it searches the others' documents and its own.

    Args:
        holding: The party's name and documents.
        hashing: Hash function of the group's searches.
        key: Secret from which decoys are drawn; no owner may have it.
        terms: Parameters that the group has agreed on.
        statistics: The group's summed statistics.
        kept: Decoys of earlier queries. It must outlast the process: decoys that change with the asker's documents, or
            that are not reworded with a query, reveal the query.
    """

    def __init__(
        self,
        holding: Holding,
        hashing: Hashing,
        key: bytes,
        terms: SearchTerms,
        statistics: Statistics,
        kept: KeptBundles | None = None,
    ) -> None:
        self.name, self.documents, self.hashing, self.terms = holding.name, holding.documents, hashing, terms
        self.statistics, self._key = statistics, key
        self._kept: KeptBundles = {} if kept is None else kept
        self._lengths: dict[str, tuple[Integers, Doubles]] = {}

    # ------------------------------------------------------------ asking

    def question(self, words: Iterable[str]) -> AskedQuery:
        """Return the question about a query: the same bytes for the same terms in any order.

        Raises:
            BadInput: `silo-search.no-term`, `silo-search.too-long`, `silo-search.no-decoys`.
        """
        different = tuple(sorted(set(words)))
        require(different, "silo-search.no-term", "the query has no term; ask with other words")
        said = f"the query has {len(different)} different terms, {MOST_TERMS} are the most; shorten it"
        require(len(different) <= MOST_TERMS, "silo-search.too-long", said)
        bundles, place = ordered_bundles(self._key, different, self._decoys_of(different))
        ordered = tuple(by_column(self.hashing, bundle) for bundle in bundles)
        sent = SearchQuestion(tuple(columns for _, columns in ordered)).to_bytes()
        return AskedQuery(ordered[place][0], sent, place, tuple(bundle for bundle, _ in ordered))

    def _decoys_of(self, terms: Bundle) -> tuple[Bundle, ...]:
        if self.terms.among == 1:
            return ()
        if terms not in self._kept:
            held = self.documents.body.statistics(self.documents.body.term_ids(terms)).document_frequency
            group = self.statistics(terms)[0].document_frequency
            others, earlier = np.maximum(group - held, 0.0), self._related(terms)
            self._kept[terms] = tuple(
                self._decoys.bundles(terms, others)
                if earlier is None
                else self._decoys.reworded(terms, others, earlier, self._kept[earlier])
            )
        decoys = self._kept[terms]
        if len(decoys) + 1 < self.terms.among:
            said = (
                f"the documents of {self.name} have too few terms to hide {len(terms)} terms among {self.terms.among} "
                "bundles; shorten the query, or ask with --among 1, which hides nothing"
            )
            raise BadInput("silo-search.no-decoys", said)
        return decoys

    def _related(self, terms: Bundle) -> Bundle | None:
        """Return the earlier query with most terms in common, if they are at least half of the shorter one's."""
        own: set[str] = set(terms)
        best: tuple[float, Bundle] = (0.0, ())
        for earlier in self._kept:
            shared = len(own.intersection(earlier))
            if 2 * shared >= min(len(own), len(earlier)):
                best = max(best, (shared / len(own.union(earlier)), earlier))
        return best[1] or None

    @cached_property
    def _decoys(self) -> CoherentDecoys:
        index = self.documents.body
        others = self.statistics(index.vocabulary)[0].document_frequency - index.document_frequency
        return CoherentDecoys(self._key, index, np.maximum(others, 0.0), self.terms.among)

    # ------------------------------------------------------------ reading

    def receive_catalogue(self, owner: str, raw: bytes) -> None:
        """Read the numbers and noisy lengths of an owner's documents."""
        catalogue = Catalogue.from_bytes(raw, owner)
        order = np.argsort(catalogue.ids, kind="stable")
        told = catalogue.lengths[order].astype(np.float64)
        epsilon = self.terms.length_epsilon if self.terms.has_noise else None
        self._lengths[owner] = catalogue.ids[order].astype(np.int64), shrink_lengths(told, epsilon)

    def read(self, asked: AskedQuery, raw: bytes, owner: str) -> list[ScoredDocument]:
        """Return the documents in an owner's answer to the query, scored by their expected BM25."""
        said = f"{owner} has not sent the lengths of its documents; wait for its catalogue"
        require(owner in self._lengths, "silo-search.no-catalogue", said)
        named = SearchAnswer.from_bytes(raw, owner, asked.sent, self.terms).bundles[asked.place]
        numbers, lengths = self._lengths[owner]
        said = f"{owner} names a document that its catalogue does not; ask for a new catalogue"
        require(np.isin(named.numbers, numbers).all(), "silo-search.unknown-document", said)
        places = np.searchsorted(numbers, named.numbers)
        body = self.statistics(asked.terms)[0]
        mean = max(body.mean_length, 1.0)
        collide = min((body.distinct_total or 0.0) / max(body.documents, 1.0) / self.terms.columns, 0.5)
        relative = lengths[places] / mean
        counts, scores = np.zeros((2, *named.cells.shape))
        for at, weight in enumerate(BM25.inverse_document_frequency(body)):
            df, cf = float(body.document_frequency[at]), float(body.collection_frequency[at])
            held = np.flatnonzero(named.cells[:, at] >= 1)
            prior = count_prior(df, cf, body.documents)
            values = named.cells[held, at]
            counts[held, at] = expected_count(values, prior, self.terms.q, collide)
            scores[held, at] = weight * expected_frequency(values, relative[held], prior, self.terms.q, collide)
        return [
            _found(owner, int(number), asked.terms, counts[at], scores[at]) for at, number in enumerate(named.numbers)
        ]

    def own(self, words: Sequence[str]) -> list[ScoredDocument]:
        """Return the asker's own documents that hold a term, scored exactly by BM25 with the group's statistics."""
        index, body = self.documents.body, self.statistics(words)[0]
        ids, mean = index.term_ids(words), max(body.mean_length, 1.0)
        held = index.holding(ids[ids != UNSEEN])
        counts = index.counts_of(held, ids)
        lengths = index.lengths[held][:, None].astype(np.float64)
        scores = BM25.inverse_document_frequency(body) * bm25_robertson(counts, lengths, mean, BM25.k1, BM25.b)
        return [
            _found(self.name, int(row), tuple(words), counts[at], scores[at], self.documents.ids[row])
            for at, row in enumerate(held)
        ]

    def ranked(
        self, asked: AskedQuery, answers: Mapping[str, bytes], top: int, own_rows: Sequence[int] = ()
    ) -> tuple[ScoredDocument, ...]:
        """Rank the asker's own documents and those in the owners' answers together.

        The highest score comes first, of equal ones by party and number. Own documents in `own_rows`, best first by the
        group's ranker, take the places of own documents in that order.
        """
        found = self.own(asked.terms)
        for owner, raw in answers.items():
            found += self.read(asked, raw, owner)
        scored = [each for each in found if each.score > 0]
        scored.sort(key=lambda each: (-each.score, each.party, each.number))
        place = {row: at for at, row in enumerate(own_rows)}
        own = [each for each in scored if each.party == self.name]
        own.sort(key=lambda each: place.get(each.number, len(place)))
        ordered = iter(own)
        return tuple(next(ordered) if each.party == self.name else each for each in scored)[:top]


def _found(
    party: str, number: int, words: Bundle, counts: Doubles, scores: Doubles, id_: str | None = None
) -> ScoredDocument:
    order = np.argsort(-scores, kind="stable")
    terms = tuple(TermFound(words[at], float(counts[at]), float(scores[at])) for at in order if scores[at] > 0)
    return ScoredDocument(party, number, float(scores.sum()), terms, id_)
