"""Owner's side of a search: choose the best documents of every bundle from noisy cells, charge the asker, answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Integers
from quorank.silos.protocol.messages import Catalogue
from quorank.silos.search.ledger import Candidate, SearchLedger, SearchLimits, SearchSpending
from quorank.silos.search.messages import NamedDocuments, SearchAnswer, SearchQuestion, question_digest
from quorank.silos.search.settings import DISTINCT, SearchTerms
from quorank.silos.search.table import SearchTable, derived_key, release_key, table_digests
from quorank.silos.sketch.hashing import Hashing
from quorank.text import IndexedDocuments

_LOOKED_AT = 20  # times k candidates are looked at where documents have spent what may be told of them


class SearchOwner:
    """One party's documents as others search them.

    Everything that is sent follows from noisy cells and lengths, the questions and the ledger; numbers of documents are
    public. `secret` is lasting and the owner's own: with another one, all is released again. `distinct` is how many
    distinct terms a document is taken to have for each occurrence (`distinct_share` of the group's statistics).
    """

    def __init__(
        self,
        name: str,
        documents: IndexedDocuments,
        hashing: Hashing,
        secret: bytes,
        terms: SearchTerms,
        ledger: SearchLedger | None = None,
        *,
        distinct: float = DISTINCT,
        new_release: bool = False,
    ) -> None:
        said = "the published form answers by the term, not by the query: exchange_answers has it"
        require(terms.perturbation != "published", "option.conflict", said, "perturbation")
        self.name, self.terms, self.documents = name, terms, documents
        self.ledger = ledger or SearchLedger(name)
        key = release_key(secret, self.ledger.salt, hashing, terms)
        epsilon = terms.epsilon if terms.has_noise else 0.0
        self.releases = self.ledger.begin(derived_key(key, "fingerprint").hex()[:32], epsilon, new_release=new_release)
        digests = table_digests(documents.body, hashing, documents.ids, derived_key(key, "contents"))
        numbers = self.ledger.number_documents(digests)
        self.table = SearchTable(documents.body, hashing, key, terms, numbers)
        self.limits = SearchLimits.of(terms, self.table.lengths, distinct)
        entries = np.ceil(terms.share_of_document * distinct * self.table.lengths)
        self._most = np.maximum(entries, terms.least_of_document).astype(np.int64)

    def catalogue(self) -> bytes:
        """Return the numbers and noisy lengths of all documents, for every asker, the same bytes every time."""
        numbers, lengths = self.table.numbers.astype(np.int32), self.table.announced.astype(np.int32)
        return Catalogue(0, numbers, lengths).to_bytes()

    def answer(self, asker: str, raw: bytes) -> bytes:
        """Return the answer to a question, after it is charged, or raise why there is none; then nothing is charged."""
        question = SearchQuestion.from_bytes(raw, asker, self.terms)
        ranked = [self._ranked(bundle) for bundle in question.bundles]
        candidates = [self._candidates(bundle, *found) for bundle, found in zip(question.bundles, ranked, strict=True)]
        chosen = self.ledger.charge(asker, candidates, self.terms.k, self.limits)
        named = []
        for (best, cells), places in zip(ranked, chosen, strict=True):
            named.append(NamedDocuments(self.table.numbers[best[places]], cells[places]))
        answer = SearchAnswer(question_digest(raw), tuple(named))
        return answer.to_bytes(len(question.bundles[0]), self.terms.k)

    def spent(self, asker: str) -> SearchSpending:
        """Return what an asker was told so far, and how much it may be told."""
        return self.ledger.spent(asker, self.limits)

    def statement(self) -> dict[str, Any]:
        """Return what this owner promises, over all releases of its ledger."""
        stated = self.terms.statement()
        return stated | ({"epsilon": self.ledger.epsilon, "releases": self.releases} if self.terms.has_noise else {})

    def row_of(self, number: int) -> int:
        """Return the row of a document in the owner's own index."""
        place = int(np.searchsorted(self.table.numbers, number))
        said = f"{self.name} has no document number {number}"
        known = place < self.table.n_documents and self.table.numbers[place] == number
        require(known, "silo-search.unknown-document", said)
        return int(self.table.rows[place])

    def _ranked(self, bundle: tuple[int, ...]) -> tuple[Integers, Integers]:
        """Return the places of the best documents of a bundle by their noisy cells, and their (documents, terms) cells."""
        n, table = self.table.n_documents, self.table
        scores, touched = np.zeros(n), np.zeros(n, dtype=bool)
        for number in dict.fromkeys(bundle):
            column = table.column(number)
            scores[column.places] += column.scores
            touched[column.places] = True
        held = np.flatnonzero(touched)
        depth = min(_LOOKED_AT * self.terms.k, len(held))
        if depth < len(held):  # the best ones, and all that are as good as the last of them
            limit = np.partition(scores[held], len(held) - depth)[len(held) - depth]
            held = held[scores[held] >= limit]
        best = held[np.argsort(-scores[held], kind="stable")[:depth]]
        cells = np.zeros((len(best), len(bundle)), dtype=np.int64)
        for at, number in enumerate(bundle):
            column = table.column(number)
            if len(column.places):
                places = np.minimum(np.searchsorted(column.places, best), len(column.places) - 1)
                cells[:, at] = np.where(column.places[places] == best, column.values[places], 0)
        return best, cells

    def _candidates(self, bundle: tuple[int, ...], best: Integers, cells: Integers) -> Iterator[Candidate]:
        """Yield the documents as the ledger chooses them, best first; few are looked at unless budgets are spent."""
        for row, place in zip(cells.tolist(), best.tolist(), strict=True):
            columns = tuple(dict.fromkeys(column for column, cell in zip(bundle, row, strict=True) if cell))
            yield Candidate(int(self.table.numbers[place]), columns, int(self._most[place]))


def seeded_owner_secret(seed: int, name: str) -> bytes:
    """Return the secret of a simulated owner: the same for the same seed, and so no secret at all."""
    return hashlib.blake2b(f"{seed} {name}".encode(), digest_size=32, person=b"quorank search").digest()
