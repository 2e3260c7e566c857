"""Search among several holdings in one process: catalogues, questions, answers, budgets and one ranked list.

Questions and answers pass as the bytes that a network carries in sealed envelopes. Keys, secrets and the noise of the
statistics follow from a seed, so that a search can be repeated; a deployment draws them from the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from quorank.errors import BadInput, require
from quorank.files.codec import encode
from quorank.silos.count_sketch import seeded_secret
from quorank.silos.holdings import Holding
from quorank.silos.search.asker import ScoredDocument, SearchAsker
from quorank.silos.search.owner import SearchOwner, search_hashing, seeded_owner_secret
from quorank.silos.search.settings import SearchTerms, distinct_share
from quorank.silos.training.lists import Statistics
from quorank.silos.training.statistics import share_statistics


@dataclass(frozen=True)
class GroupSearchResult:
    """Result of one search."""

    asker: str
    terms: tuple[str, ...]
    found: tuple[ScoredDocument, ...]
    refused: Mapping[str, str]  # party → reason why it has not answered
    parties: Mapping[str, Mapping[str, Any]] = field(repr=False)  # party → bytes, budget and guarantee
    statistics_epsilon: float | None = None  # ε of one occurrence in the group's summed statistics
    own_ranked: bool = False  # whether own documents are in the order of the group's ranker

    def to_table(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        found = [
            {"rank": rank, "document": each.number, "why": each.why} | encode(each)
            for rank, each in enumerate(self.found, 1)
        ]
        table: dict[str, Any] = encode(self)
        return table | {"found": found}


class SearchSession:
    """Parties of one process that search each other's documents; each is owner and asker."""

    def __init__(
        self,
        holdings: Sequence[Holding],
        terms: SearchTerms | None = None,
        seed: int = 1,
        statistics: Statistics | None = None,
    ) -> None:
        self.holdings, self.terms, self.seed = tuple(holdings), terms or SearchTerms(), seed
        epsilon = self.terms.epsilon if self.terms.has_noise else None  # of the statistics, in addition to the answers'
        self.statistics = statistics or share_statistics(holdings, epsilon, seed)
        hashing, distinct = search_hashing(seed, self.terms), distinct_share(self.statistics(())[0])
        self.owners, self.askers = dict[str, SearchOwner](), dict[str, SearchAsker]()
        for each in holdings:
            secret, key = seeded_owner_secret(seed, each.name), seeded_secret(seed, f"search decoys {each.name}")
            self.owners[each.name] = SearchOwner(
                each, hashing, secret, self.terms, askers=len(holdings) - 1, distinct=distinct
            )
            self.askers[each.name] = SearchAsker(each, hashing, key, self.terms, self.statistics)
        for name, owner in self.owners.items():
            catalogue = owner.catalogue()
            for other, asker in self.askers.items():
                if other != name:
                    asker.receive_catalogue(name, catalogue)

    def search(self, asker: str, words: Sequence[str], top: int = 10) -> GroupSearchResult:
        """Ask all others for one party, and rank their answers together with its own documents."""
        said = f"there is no party {asker!r}; the parties are {', '.join(self.askers)}"
        require(asker in self.askers, "silo-group.unknown-party", said)
        one = self.askers[asker]
        asked = one.question(words)
        answers, refused, parties = dict[str, bytes](), {}, {}
        for name, owner in self.owners.items():
            if name == asker:
                continue
            try:
                answers[name] = owner.answer(asker, asked.sent)
            except BadInput as error:
                refused[name] = str(error)
            told = {"question_bytes": len(asked.sent), "answer_bytes": len(answers.get(name, b""))}
            parties[name] = told | asdict(owner.spent(asker)) | {"privacy": owner.statement()}
        epsilon = getattr(self.statistics, "epsilon", None)
        return GroupSearchResult(asker, asked.terms, one.ranked(asked, answers, top), refused, parties, epsilon)


def search_in_process(
    holdings: Sequence[Holding], asker: str, query: str, terms: SearchTerms | None = None, seed: int = 1, top: int = 10
) -> GroupSearchResult:
    """Search the documents of all holdings for one party's query.

    Args:
        holdings: The parties.
        asker: Name of the asking party.
        query: Words of the query.
        terms: Parameters of the search.
        seed: Seed of keys and noise.
        top: Number of documents to list.

    Returns:
        The ranked documents of all parties, with the costs at each owner.

    Raises:
        BadInput: `silo-search.no-term`, `silo-group.unknown-party`.

    >>> from quorank.silos.generated import Generator
    >>> from quorank.silos.holdings import generated_holdings
    >>> parties = generated_holdings(Generator(parties=2, documents=30, queries=2, vocabulary=600))
    >>> result = search_in_process(parties, "A", " ".join(parties[0].queries[0]), top=3)
    >>> len(result.found), sorted(result.parties)
    (3, ['B'])
    """
    words = tuple(dict.fromkeys(holdings[0].documents.body.tokeniser.tokenise(query)))
    require(words, "silo-search.no-term", "the query has only stop words; use other words")
    return SearchSession(holdings, terms, seed).search(asker, words, top)
