"""Search by the paper's questions about terms, and the attack that rebuilds documents from their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quorank.kernels.arrays import Doubles
from quorank.silos.holdings import Holding
from quorank.silos.search.asker import GroupStatistics, ScoredDocument, SearchAsker, TermFound, rank_found
from quorank.silos.search.attack import AttackOutcome, SearchAttacker
from quorank.silos.search.estimates import K1, B
from quorank.silos.search.in_process import GroupSearchResult, known_party
from quorank.silos.search.owner import search_hashing
from quorank.silos.search.settings import SearchTerms
from quorank.silos.sketch.exchange import ExchangedAnswers, QuestionProtocol, QuestionSession, exchange_answers
from quorank.silos.training.statistics import exact_statistics
from quorank.text.features import idf_smoothed

PUBLISHED_WARNING = (
    "published noise protects no document: by asking about every word of a dictionary, a party rebuilds 96 to 100 % of an "
    "owner's (document, term) pairs (quorank silo audit)"
)


class PublishedSearch:
    """Search by the reverse top-K of every term, with one noise sample for all cells (CS-F-LTR eq. 5).

    All queries are given in advance, and their terms are asked in one session.
    """

    def __init__(
        self,
        holdings: Sequence[Holding],
        terms: SearchTerms,
        queries: Mapping[str, Sequence[Sequence[str]]],
        seed: int = 1,
        statistics: GroupStatistics | None = None,
        k: int = 150,
    ) -> None:
        self.holdings, self.terms = tuple(holdings), terms
        self.protocol = QuestionProtocol("published", terms.epsilon, k=k, among=terms.among)
        self.statistics = statistics or exact_statistics(holdings)
        asked = [tuple(dict.fromkeys(t for q in queries.get(h.name, ()) for t in q)) for h in holdings]
        self.exchanged: ExchangedAnswers = exchange_answers(holdings, asked, self.protocol, seed)

    def search(self, asker: str, words: Sequence[str], top: int = 10) -> GroupSearchResult:
        """Rank the documents in the answers about any term together with the asker's own."""
        names = [each.name for each in self.holdings]
        number = names.index(known_party(asker, tuple(names)))
        terms = tuple(sorted(set(words)))
        body = self.statistics(terms)[0]
        weights, mean = idf_smoothed(body.documents, body.document_frequency), max(body.mean_length, 1.0)
        own = self.holdings[number]
        reader = SearchAsker(
            asker, own.documents, search_hashing(1, self.terms), bytes(32), self.terms, self.statistics
        )
        found = reader.own(terms)
        for owner, name in enumerate(names):
            if owner != number:
                found += self._read(number, owner, name, terms, weights, mean)
        parties = {name: {"privacy": self.protocol.noise().statement(1)} for name in names if name != asker}
        result = GroupSearchResult(asker, terms, tuple(rank_found(found, top)), {}, parties, None, PUBLISHED_WARNING)
        return replace(result, parties={name: told | self._cost() for name, told in parties.items()})

    def _read(
        self, asker: int, owner: int, name: str, terms: Sequence[str], weights: Doubles, mean: float
    ) -> list[ScoredDocument]:
        lengths = self.exchanged.lengths(owner, "body")
        named: dict[int, list[TermFound]] = {}
        for term, weight in zip(terms, weights, strict=True):
            answer = self.exchanged.answer(asker, owner, "body", term)
            for document, estimate in zip(answer.documents.tolist(), answer.counts.tolist(), strict=True):
                length = float(max(lengths[document], 1))
                count = min(float(estimate), length)
                score = float(weight) * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean))
                named.setdefault(document, []).append(TermFound(term, count, score))
        return [
            ScoredDocument(name, document, sum(t.score for t in held), tuple(sorted(held, key=lambda t: -t.score)))
            for document, held in named.items()
        ]

    def _cost(self) -> dict[str, Any]:
        return {"session_bytes": self.exchanged.wire["bytes"], "questions": self.exchanged.spent["questions_of_a_pair"]}


def published_attack(
    holdings: Sequence[Holding], owner: int, asker: int, dictionary: Sequence[str], epsilon: float = 0.5, seed: int = 1
) -> AttackOutcome:
    """Ask about every word: a document that stands in the word's cell in every row holds the word."""
    session = QuestionSession(holdings, QuestionProtocol("published", epsilon), seed)
    told: set[tuple[int, str]] = set()
    for answered in session.ask(asker, owner, "body", dictionary):
        cells = answered.cells
        rows = [cells.documents[cells.offsets[row] : cells.offsets[row + 1]] for row in answered.rows.tolist()]
        held = set(rows[0].tolist()).intersection(*(row.tolist() for row in rows[1:]))
        told |= {(document, answered.term) for document in held}
    truth = SearchAttacker(holdings[owner], SearchTerms("none"), seed)
    truth.told, truth.questions = told, len(dictionary)
    return truth.outcome(refused=False)
