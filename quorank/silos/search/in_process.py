"""Search among several holdings in one process, as in a session: catalogues, questions, answers, budgets, one list.

Questions and answers pass as the bytes that a network would carry in sealed envelopes. Keys, secrets and the noise of the
statistics follow from a seed, so that a search can be repeated; a deployment draws them from the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from quorank.errors import BadInput, require
from quorank.kernels.arrays import Doubles
from quorank.silos.learning.exchange import ExchangedAnswers, SiloProtocol, exchange_answers, seeded_secret
from quorank.silos.learning.holdings import Holding
from quorank.silos.learning.instances import exact_statistics
from quorank.silos.learning.shared_statistics import SharedStatistics, share_statistics
from quorank.silos.search.asker import GroupStatistics, ScoredDocument, SearchAsker, TermFound, rank_found
from quorank.silos.search.estimates import K1, B
from quorank.silos.search.ledger import SearchLedger
from quorank.silos.search.owner import SearchOwner, seeded_owner_secret
from quorank.silos.search.settings import FIELD, SearchTerms, distinct_share
from quorank.silos.sketch.hashing import Hashing
from quorank.text.features import idf_smoothed

PUBLISHED_WARNING = (
    "published noise protects no document: asked about every word of a dictionary, owners rebuild 96 to 100 % of which "
    "document holds which term (quorank silo audit)"
)


@dataclass(frozen=True)
class GroupSearchResult:
    """Result of one search: the ranked documents, who refused, and what it has cost."""

    asker: str
    terms: tuple[str, ...]
    found: tuple[ScoredDocument, ...]
    refused: Mapping[str, str]  # party → why it has not answered
    parties: Mapping[str, Mapping[str, Any]] = field(repr=False)  # party → bytes, spending and statement
    statistics_epsilon: float | None = None  # of one occurrence, in the group's summed statistics
    warning: str = ""

    def to_table(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        documents = [
            {"rank": rank, "party": each.party, "document": each.number, "id": each.id, "score": each.score}
            | {"terms": [asdict(term) for term in each.terms], "why": each.why}
            for rank, each in enumerate(self.found, 1)
        ]
        return {
            "asker": self.asker,
            "terms": list(self.terms),
            "found": documents,
            "refused": dict(self.refused),
            "parties": {name: dict(told) for name, told in self.parties.items()},
            "statistics_epsilon": self.statistics_epsilon,
            "warning": self.warning,
        }


class SearchSession:
    """Parties of one process that search each other's documents; each is owner and asker.

    With `ledgers`, a folder, owners keep their ledgers there, and what was told in earlier sessions counts.
    """

    def __init__(
        self,
        holdings: Sequence[Holding],
        terms: SearchTerms | None = None,
        seed: int = 1,
        statistics: GroupStatistics | None = None,
        ledgers: Path | None = None,
    ) -> None:
        require(len(holdings) >= 2, "silo-group.bad-size", f"a search needs two parties or more, got {len(holdings)}")
        self.holdings, self.terms, self.seed = tuple(holdings), terms or SearchTerms(), seed
        self.statistics = statistics or group_statistics(holdings, self.terms, seed)
        hashing, distinct = search_hashing(seed, self.terms), distinct_share(self.statistics(())[0])
        self.owners = {
            each.name: SearchOwner(
                each.name,
                each.documents,
                hashing,
                seeded_owner_secret(seed, each.name),
                self.terms,
                SearchLedger(
                    each.name, None if ledgers is None else ledgers / f"{each.name}.search.sqlite", salt=bytes(16)
                ),
                distinct=distinct,
            )
            for each in holdings
        }
        self.askers = {
            each.name: SearchAsker(
                each.name,
                each.documents,
                hashing,
                seeded_secret(seed, f"search decoys {each.name}"),
                self.terms,
                self.statistics,
            )
            for each in holdings
        }
        for name, owner in self.owners.items():
            catalogue = owner.catalogue()
            for other, asker in self.askers.items():
                if other != name:
                    asker.receive_catalogue(name, catalogue)

    def search(self, asker: str, words: Sequence[str], top: int = 10) -> GroupSearchResult:
        """Let one party ask all others, and rank what they name together with its own documents."""
        one = self.askers[known_party(asker, tuple(self.askers))]
        asked = one.question(words)
        found, refused, parties = one.own(asked.terms), {}, {}
        for name, owner in self.owners.items():
            if name == asker:
                continue
            told = {"question_bytes": len(asked.sent), "answer_bytes": 0}
            try:
                answer = owner.answer(asker, asked.sent)
                told["answer_bytes"] = len(answer)
                found += one.read(asked, answer, name)
            except BadInput as error:
                refused[name] = str(error)
            parties[name] = told | owner.spent(asker).to_table() | {"privacy": owner.statement()}
        epsilon = getattr(self.statistics, "epsilon", None)
        return GroupSearchResult(asker, asked.terms, tuple(rank_found(found, top)), refused, parties, epsilon)

    def close(self) -> None:
        """Close the ledgers."""
        for owner in self.owners.values():
            owner.ledger.close()


class PublishedSearch:
    """Search by the published form, for comparison: the reverse top K of every term, with one noise for all cells.

    All queries are given beforehand: their terms are asked in one session.
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
        self.protocol = SiloProtocol("published", terms.epsilon, k=k, among=terms.among, questions=1_000_000)
        self.statistics = statistics or exact_statistics(holdings)
        asked = [tuple(dict.fromkeys(t for q in queries.get(h.name, ()) for t in q)) for h in holdings]
        self.exchanged: ExchangedAnswers = exchange_answers(holdings, asked, self.protocol, seed)

    def search(self, asker: str, words: Sequence[str], top: int = 10) -> GroupSearchResult:
        """Rank the documents that were named for any term together with the asker's own."""
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


def search_in_process(
    holdings: Sequence[Holding],
    asker: str,
    query: str,
    terms: SearchTerms | None = None,
    seed: int = 1,
    top: int = 10,
    ledgers: Path | None = None,
) -> GroupSearchResult:
    """Search the documents of all holdings for a party's query, by the form that the terms name."""
    chosen = terms or SearchTerms()
    words = query_terms(holdings, query)
    if chosen.perturbation == "published":
        known_party(asker, tuple(each.name for each in holdings))
        return PublishedSearch(holdings, chosen, {asker: [words]}, seed).search(asker, words, top)
    session = SearchSession(holdings, chosen, seed, ledgers=ledgers)
    try:
        return session.search(asker, words, top)
    finally:
        session.close()


def query_terms(holdings: Sequence[Holding], query: str) -> tuple[str, ...]:
    """Return the different terms of a query, as the parties make them of their documents."""
    words = tuple(dict.fromkeys(holdings[0].documents.body.tokeniser.tokenise(query)))
    said = "nothing is left of the query without stop words; ask with other words"
    require(words, "silo-search.no-term", said)
    return words


def group_statistics(holdings: Sequence[Holding], terms: SearchTerms, seed: int) -> SharedStatistics:
    """Sum the statistics of all parties; with strict noise they have noise of their own, for as much ε again."""
    epsilon = terms.epsilon if terms.has_noise else None
    return share_statistics(holdings, seeded_secret(seed, "statistics"), epsilon=epsilon, seed=seed)


def search_hashing(seed: int, terms: SearchTerms) -> Hashing:
    """Return the hash function of a simulated group."""
    return Hashing(seeded_secret(seed, f"hashing {FIELD}"), 1, terms.columns)


def known_party(name: str, names: Sequence[str]) -> str:
    """Return a party's name, or refuse it and say which ones there are."""
    said = f"there is no party {name!r}; the parties are {', '.join(names)}"
    require(name in names, "silo-group.unknown-party", said)
    return name
