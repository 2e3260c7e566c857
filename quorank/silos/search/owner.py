"""Owner's side of a search: noisy cells of its documents, the choice of the best ones, and the charge to the asker.

The table has one row of w columns, exact and sparse, from which noisy columns are computed on demand. A column holds, for
every document d, v(d, j) = c(d, j) + X(d, j): the occurrences of the terms that the group's key hashes to column j, and
discrete Laplace noise of scale 1/ε_c. X(d, j) is draw number d of a ChaCha20 stream whose key follows from the owner's
lasting secret and j. A cell therefore has the same noise in every answer to every asker, also after restarts. The noise
of a length, of scale 1/ε_L, is made in the same way. One occurrence of one term changes one cell and one length by one:
ε_c + ε_L = ε, and everything computed from v and the noisy lengths alone is post-processing.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.silos.count_sketch import Hashing, seeded_secret
from quorank.silos.discrete_laplace import SystemStream, draw_noise, scale_for
from quorank.silos.envelopes import Catalogue
from quorank.silos.holdings import Holding
from quorank.silos.search.estimates import count_prior, estimated_frequency, expected_frequency, shrink_lengths
from quorank.silos.search.ledger import SearchLedger, SearchLimits, SearchSpending
from quorank.silos.search.messages import MOST_VALUE, NamedDocuments, SearchAnswer, SearchQuestion, question_digest
from quorank.silos.search.settings import DISTINCT, FIELD, SearchTerms
from quorank.text import Index
from quorank.text.features import idf_smoothed

KEPT_CELLS = 1 << 22  # limit on the cells of cached columns
_COUNTS_EACH = 1.5  # cf/df that an owner assumes: its own would be exact


def release_key(secret: bytes, salt: bytes, hashing: Hashing, terms: SearchTerms) -> bytes:
    """Derive the key of all noise of one release from the owner's secret, its ledger's salt, the group's hashing and ε.

    Another ε or group key gives entirely different noise: the same random words at another scale would reveal it.
    """
    stated = f"{salt.hex()} {hashing.fingerprint()} {terms.perturbation} {terms.cell_epsilon} {terms.length_epsilon}"
    return hashlib.blake2b(stated.encode(), key=secret, digest_size=32, person=b"quorank release").digest()


def derived_key(key: bytes, purpose: str) -> bytes:
    """Derive a key for one purpose."""
    return hashlib.blake2b(purpose.encode(), key=key, digest_size=32, person=b"quorank cells").digest()


def table_digests(index: Index, hashing: Hashing, ids: tuple[str, ...], key: bytes) -> list[bytes]:
    """Return a keyed 16-byte digest of each document's cells."""
    columns = hashing.places(index.vocabulary)[0][:, 0]
    found = []
    for row, name in enumerate(ids):
        own = slice(index.offsets[row], index.offsets[row + 1])
        cells = np.stack((columns[index.terms[own]], index.counts[own]), axis=1).astype("<i4")
        held = cells[np.lexsort((cells[:, 1], cells[:, 0]))].tobytes()
        digest = hashlib.blake2b(held, key=key, digest_size=16, person=b"quorank content")
        digest.update(name.encode("utf-8", "surrogatepass"))
        found.append(digest.digest())
    return found


@dataclass(frozen=True)
class NoisyColumn:
    """Cells of a column that are 1 or more."""

    places: Int32s  # of their documents, in the order of document numbers
    values: Integers
    scores: Doubles  # idf·E[tf | v], from noisy values alone

    def cell(self, place: int) -> tuple[int, float]:
        """Return value and score of a document's cell; zeros where it is not 1 or more."""
        at = int(np.searchsorted(self.places, place))
        here = at < len(self.places) and self.places[at] == place
        return (int(self.values[at]), float(self.scores[at])) if here else (0, 0.0)


class SearchTable:
    """Noisy cells and lengths of one owner's documents; row r of the index is document number numbers[r]."""

    def __init__(self, index: Index, hashing: Hashing, key: bytes, terms: SearchTerms, numbers: Integers) -> None:
        self.index, self.terms, self._key = index, terms, key
        self.rows = np.argsort(numbers, kind="stable")  # (documents,) row of the index by place
        self.numbers: Integers = numbers[self.rows]  # (documents,) ascending
        self._place = np.argsort(self.rows)  # place by row
        columns = hashing.places(index.vocabulary)[0][:, 0]
        self._by_column = np.argsort(columns, kind="stable")
        self._columns = columns[self._by_column]
        noisy = index.lengths[self.rows] + self._noise("lengths", terms.length_epsilon)
        self.announced: Integers = np.clip(noisy, -(2**31), 2**31 - 1)  # lengths, the same in every session
        self.lengths = shrink_lengths(self.announced, terms.length_epsilon if terms.has_noise else None)
        self._relative = self.lengths / max(float(self.lengths.mean()), 1.0) if len(self.lengths) else self.lengths
        self.column = lru_cache(max(16, KEPT_CELLS // max(len(numbers), 1)))(self._column)

    def _column(self, number: int) -> NoisyColumn:
        """Compute the cells of a column that are 1 or more."""
        first, last = np.searchsorted(self._columns, [number, number + 1])
        cells = self._noise(f"column {number}", self.terms.cell_epsilon)
        for term in self._by_column[first:last].tolist():
            documents, counts = self.index.postings(term)
            cells[self._place[documents]] += counts
        n, q = len(self.numbers), self.terms.q
        places = np.flatnonzero(cells >= 1)
        values = np.minimum(cells[places], MOST_VALUE)
        df = estimated_frequency(len(places), n, q)
        weight = float(idf_smoothed(float(n), np.array([df]))[0])
        scores = weight * expected_frequency(values, self._relative[places], count_prior(df, _COUNTS_EACH * df, n), q)
        return NoisyColumn(places.astype(np.int32), values, scores)

    def _noise(self, purpose: str, epsilon: float) -> Integers:
        """Draw the noise of every document: draw number d of a stream for the document with number d."""
        if not self.terms.has_noise or not len(self.numbers):
            return np.zeros(len(self.numbers), dtype=np.int64)
        stream = SystemStream(derived_key(self._key, purpose))
        return draw_noise(stream, scale_for(1, epsilon), int(self.numbers[-1]) + 1)[self.numbers]


class SearchOwner:
    """A party's documents as others search them.

    Everything sent follows from noisy cells and lengths, the questions and the ledger; numbers of documents are public.

    Args:
        holding: The owner's name and documents.
        hashing: Hash function of the group's searches, of one row.
        secret: Lasting secret of the owner; with another one everything is released again.
        terms: Parameters that the group has agreed on.
        ledger: Ledger of disclosed entries; in memory unless given.
        askers: Number of other parties, among whom `share_of_all` is divided.
        distinct: Assumed number of distinct terms per occurrence (`distinct_share` of the group's statistics).
        new_release: Allow another release by a ledger that knows a different secret, ε or group key.
    """

    def __init__(
        self,
        holding: Holding,
        hashing: Hashing,
        secret: bytes,
        terms: SearchTerms,
        ledger: SearchLedger | None = None,
        *,
        askers: int = 1,
        distinct: float = DISTINCT,
        new_release: bool = False,
    ) -> None:
        self.name, self.terms, documents = holding.name, terms, holding.documents
        self.ledger = ledger or SearchLedger(self.name)
        key = release_key(secret, self.ledger.salt, hashing, terms)
        epsilon = terms.epsilon if terms.has_noise else 0.0
        self.releases = self.ledger.begin(derived_key(key, "fingerprint").hex()[:32], epsilon, new_release=new_release)
        digests = table_digests(documents.body, hashing, documents.ids, derived_key(key, "contents"))
        numbers = self.ledger.number_documents(digests)
        self.table = SearchTable(documents.body, hashing, key, terms, numbers)
        pairs = distinct * float(np.sum(self.table.lengths))  # (document, term), estimated from noisy lengths
        self.limits = SearchLimits(terms.entries(pairs, askers), terms.questions_a_day, terms.renew_days)
        entries = np.ceil(terms.share_of_document * distinct * self.table.lengths)
        self._most = np.maximum(entries, terms.least_of_document).astype(np.int64)

    def catalogue(self) -> bytes:
        """Return the numbers and noisy lengths of all documents: the same bytes for every asker, every time."""
        numbers, lengths = self.table.numbers.astype(np.int32), self.table.announced.astype(np.int32)
        return Catalogue(numbers, lengths).to_bytes()

    def answer(self, asker: str, raw: bytes) -> bytes:
        """Answer a question with cells that the asker knows or may still learn, and charge the new ones.

        Raises:
            BadInput: The question is malformed, or the asker's budget is used up.
        """
        question = SearchQuestion.from_bytes(raw, asker, self.terms)
        spent = self.ledger.admit(asker, self.limits)
        disclosed = _Disclosed(self.ledger, asker, spent.entries_left)
        named = tuple(self._named(bundle, disclosed) for bundle in question.bundles)
        self.ledger.charge(asker, disclosed.fresh, self.limits)
        answer = SearchAnswer(question_digest(raw), named, self.spent(asker))
        return answer.to_bytes(len(question.bundles[0]), self.terms.k)

    def spent(self, asker: str) -> SearchSpending:
        """Return what an asker has spent of its limits."""
        return self.ledger.spent(asker, self.limits)

    def statement(self) -> dict[str, Any]:
        """Return the guarantee of this owner over all releases of its ledger."""
        stated = self.terms.statement()
        return stated | ({"epsilon": self.ledger.epsilon, "releases": self.releases} if self.terms.has_noise else {})

    def row_of(self, number: int) -> int:
        """Return the row of a document in the owner's own index."""
        found = self.table.rows[self.table.numbers == number]
        require(len(found), "silo-search.unknown-document", f"{self.name} has no document number {number}")
        return int(found[0])

    def _named(self, bundle: tuple[int, ...], disclosed: _Disclosed) -> NamedDocuments:
        """Return the best documents of a bundle by the cells that the asker may see, best first.

        What is hidden because a limit is reached enters neither the choice nor the order, so it does not show in either.
        """
        table, k = self.table, self.terms.k
        columns = [table.column(number) for number in bundle]
        whole, touched = np.zeros(len(table.numbers)), np.zeros(len(table.numbers), dtype=bool)
        for number in dict.fromkeys(bundle):
            column = table.column(number)
            whole[column.places] += column.scores
            touched[column.places] = True
        held = np.flatnonzero(touched)
        best: list[tuple[float, int, list[int]]] = []  # (−score, place, cells)
        for place in held[np.argsort(-whole[held], kind="stable")].tolist():
            if len(best) == k and (-whole[place], place) > best[-1][:2]:
                break  # what is hidden only lowers a score
            cells = [column.cell(place) for column in columns]
            shown = disclosed.visible(int(table.numbers[place]), int(self._most[place]), bundle, [v for v, _ in cells])
            if any(shown):
                score = 0.0  # added up in the order of `whole`, which it equals where nothing is hidden
                for part in {n: s for n, (_, s), seen in zip(bundle, cells, shown, strict=True) if seen}.values():
                    score += part
                insort(best, (-score, place, shown))
                del best[k:]
        rows = [(place, disclosed.add(int(table.numbers[place]), bundle, shown)) for _, place, shown in best]
        rows = [(place, shown) for place, shown in rows if any(shown)]
        places = np.array([place for place, _ in rows], dtype=np.int64)
        return NamedDocuments(table.numbers[places], np.array([cells for _, cells in rows]).reshape(-1, len(bundle)))


class _Disclosed:
    """Entries that an asker has received, and those that the answer to its question adds."""

    def __init__(self, ledger: SearchLedger, asker: str, left: int) -> None:
        self._ledger, self._asker, self._left = ledger, asker, left
        self._known: dict[int, tuple[int, set[int]]] = {}
        self.fresh: set[tuple[int, int]] = set()  # (document, column)

    def _of(self, document: int) -> tuple[int, set[int]]:
        if document not in self._known:
            self._known[document] = self._ledger.disclosed(self._asker, document)
        return self._known[document]

    def visible(self, document: int, most: int, bundle: tuple[int, ...], cells: list[int]) -> list[int]:
        """Return a document's cells with 0 for new ones beyond its limit, in the order of the bundle."""
        count, known = self._of(document)
        new = dict.fromkeys(n for n, cell in zip(bundle, cells, strict=True) if cell and n not in known)
        shown = known.union(list(new)[: max(most - count, 0)])
        return [cell if n in shown else 0 for n, cell in zip(bundle, cells, strict=True)]

    def add(self, document: int, bundle: tuple[int, ...], cells: list[int]) -> list[int]:
        """Add a named document's cells to the answer and return them; new cells are 0 once the budget is spent."""
        count, known = self._of(document)
        out = []
        for column, cell in zip(bundle, cells, strict=True):
            if cell and column not in known and self._left:
                self._left -= 1
                count += 1
                known.add(column)
                self.fresh.add((document, column))
            out.append(cell if column in known else 0)
        self._known[document] = count, known
        return out


def seeded_owner_secret(seed: int, name: str) -> bytes:
    """Return the secret of a simulated owner: the same for the same seed, and therefore not secret."""
    return hashlib.blake2b(f"{seed} {name}".encode(), digest_size=32, person=b"quorank search").digest()


def search_hashing(seed: int, terms: SearchTerms) -> Hashing:
    """Return the hash function of a simulated group."""
    return Hashing(seeded_secret(seed, f"hashing {FIELD}"), 1, terms.columns)
