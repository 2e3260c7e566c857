"""Decoys of a search: bundles of terms among which the query is hidden from the owners.

The owner sees M bundles of T columns and knows the hash functions, so it reads every bundle with a dictionary. Decoys of
independently drawn terms would be revealed by their lack of coherence: no document of the owner contains several of them.
`CoherentDecoys` therefore takes the terms of a decoy from one document of the asker's own, each similar in frequency to a
term of the query, and selects the document whose terms are as coherent as the query's, measured on the asker's other
documents. (A search that improves them term by term comes nearer to the query's coherence there, and owners guess as often
or more often: what is optimised on own documents shows in others'.)

All draws are keyed by the asker's own key: the same query has the same bundles in the same order for every owner, every
time. A reworded query would be recognised as the bundle that recurs, so the decoys of the earlier query are reworded with
it (`reworded`). docs/results/silos.md has the rate at which owners guess right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.text import UNSEEN, Index

CANDIDATES = 24  # documents of the asker's own that a decoy is begun from
SAMPLE = 1024  # documents of the asker's own that coherence is computed on
NEIGHBOURS = 6  # documents that a new word of a reworded decoy comes from
JOINED = 32  # documents whose terms are taken together for a decoy of a query that is longer than any document
WEIGHTS = np.array([2.0, 3.0, 2.0, 0.7, 0.3])  # weights of the five measures of coherence in a distance
# added to the query's coherence: what was chosen to look coherent in own documents is less so in others'
OVERSHOOT = np.array([0.075, 0.075, 0.0375, 0.75, 0.225])
Bundle = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class CoherentDecoys:
    """Decoys of terms that belong together as much as the query's do, begun from one own document each.

    From each of some documents T terms are taken, of like frequency as the query's; the set whose coherence is nearest to
    the query's is the decoy. The document itself does not count: no owner has it.
    """

    key: bytes = field(repr=False)  # no owner has it
    index: Index = field(repr=False)  # the asker's own documents
    frequency: Doubles = field(repr=False)  # (vocabulary,) documents of the group that hold a term
    among: int = 3  # M

    @cached_property
    def _level(self) -> Doubles:
        """(vocabulary,) levels of the asker's own terms."""
        return _level(self.frequency)

    def _draws(self, purpose: str, count: int, below: int) -> Integers:
        """Draw `count` numbers below `below`, keyed."""
        digest = hashlib.blake2b(purpose.encode("utf-8", "surrogatepass"), key=self.key, person=b"quorank decoys")
        words = np.frombuffer(hashlib.shake_256(digest.digest()).digest(8 * count), dtype="<u8")
        return (words % np.uint64(max(below, 1))).astype(np.int64)

    def _terms_of(self, *documents: int) -> Int32s:
        """Return the different terms of some documents."""
        index = self.index
        parts = [index.terms[index.offsets[each] : index.offsets[each + 1]] for each in dict.fromkeys(documents)]
        return np.unique(np.concatenate([index.terms[:0], *parts]))

    def reworded(self, terms: Bundle, frequency: Doubles, earlier: Bundle, decoys: Sequence[Bundle]) -> list[Bundle]:
        """Return the decoys of an earlier query, reworded as the query is: a term that it keeps keeps its words in them.

        A new term has a new word of like frequency in each, from documents that hold most of the words that stay.
        """
        levels, stay = _level(frequency), {term: at for at, term in enumerate(earlier)}
        used, every = {*terms, *(word for decoy in decoys for word in decoy)}, np.arange(len(self.index.vocabulary))
        found: list[Bundle] = []
        for decoy in decoys:
            covered = np.zeros(self.index.n_documents)
            for kept in self.index.term_ids([decoy[stay[term]] for term in terms if term in stay]).tolist():
                covered[self.index.postings(kept)[0]] += 1.0
            near = self._terms_of(*np.argsort(-covered, kind="stable")[:NEIGHBOURS].tolist())
            bundle = []
            for term, level in zip(terms, levels, strict=True):
                if term in stay:
                    bundle.append(decoy[stay[term]])
                    continue
                word = self._nearest(near, level, used) or self._nearest(every, level, used)
                if word is None:
                    return found
                used.add(word)
                bundle.append(word)
            found.append(tuple(bundle))
        return found

    def _nearest(self, pool: Integers | Int32s, level: float, used: set[str]) -> str | None:
        """Return the free term of a pool whose frequency is nearest."""
        for term in pool[np.argsort(np.abs(self._level[pool] - level), kind="stable")].tolist():
            if self.index.vocabulary[term] not in used:
                return str(self.index.vocabulary[term])
        return None

    def bundles(self, terms: Bundle, frequency: Doubles) -> list[Bundle]:
        """Return M − 1 decoys for a query; fewer only where the asker's documents have too few terms.

        Args:
            terms: Terms of the query.
            frequency: (terms,) documents of the group that hold each.
        """
        if not self.index.n_documents:
            return []
        levels = _level(frequency)
        order = np.lexsort((np.array(terms), levels))  # rarest first
        wanted, ids = levels[order], self.index.term_ids(terms)[order]
        taken = set(ids.tolist())
        target = self._coherence(ids, wanted) + OVERSHOOT
        drawn = self._draws(f"documents {terms[int(order[0])]}", 16 * CANDIDATES * self.among, self.index.n_documents)
        documents = iter(dict.fromkeys(drawn.tolist()))
        found: list[Bundle] = []
        for _ in range(self.among - 1):
            options = []
            for document in documents:
                matched = self._matched(self._terms_of(document), wanted, taken)
                if matched is not None:
                    coherence = self._coherence(matched, self._level[matched], document)
                    options.append((float(np.abs(coherence - target) @ WEIGHTS), document, matched))
                if len(options) == CANDIDATES:
                    break
            if not options:  # a query longer than any document is hidden among terms of several
                matched = self._matched(self._terms_of(*np.roll(drawn, -len(found))[:JOINED].tolist()), wanted, taken)
                if matched is None:
                    break
                options.append((0.0, 0, matched))
            bundle = np.empty(len(terms), dtype=np.int32)
            bundle[order] = min(options, key=lambda option: option[:2])[2]
            taken.update(bundle.tolist())
            found.append(tuple(self.index.vocabulary[term] for term in bundle))
        return found

    @cached_property
    def _sample(self) -> Int32s:
        """(documents,) place of a document in the sample that coherence is computed on, −1 for the others."""
        n = self.index.n_documents
        places = np.full(n, -1, dtype=np.int32)
        chosen = np.arange(n) if n <= SAMPLE else np.unique(self._draws("sample", SAMPLE, n))
        places[chosen] = np.arange(len(chosen))
        return places

    def _coherence(self, terms: Int32s, levels: Doubles, without: int = UNSEEN) -> Doubles:
        """Compute (5,) how much terms of these levels belong together in the sample, one document of which is left out.

        Share of the terms' weight in the best document, the mean of the best three and of the best ten, the log of the
        co-occurrences of two terms over those expected by chance, and the log of the documents with two or more.
        """
        members = np.zeros((len(terms), int(self._sample.max(initial=0)) + 1))  # 1 where a document holds a term
        for row, term in zip(members, terms.tolist(), strict=True):
            places = self._sample[self.index.postings(term)[0]]
            row[places[places >= 0]] = 1.0
        if without != UNSEEN and self._sample[without] >= 0:
            members[:, self._sample[without]] = 0.0
        weights = np.maximum(
            np.log(self.frequency.max(initial=1.0) + 1.0) - levels, 0.1
        )  # rare terms are more informative
        best = np.sort(weights @ members / weights.sum())[::-1][:10]
        held, df = members.sum(axis=0), members.sum(axis=1)
        chance = (df.sum() ** 2 - (df**2).sum()) / (2.0 * len(held))
        together = np.log(((held * (held - 1.0)).sum() / 2.0 + 0.1) / (chance + 0.1))
        several = np.log1p(np.count_nonzero(held >= 2))
        return np.array([best[0], best[:3].mean(), best.mean(), together, several])

    def _matched(self, own: Int32s, levels: Doubles, taken: set[int]) -> Int32s | None:
        """Return one of some terms for each level, rarest first: the nearest one that is free; None if they are too few."""
        free = np.array([term for term in own.tolist() if term not in taken], dtype=np.int32)
        if len(free) < len(levels):
            return None
        distance = np.abs(self._level[free][None, :] - levels[:, None])
        chosen = np.empty(len(levels), dtype=np.int32)
        for at in range(len(levels)):
            nearest = int(np.argmin(distance[at]))
            chosen[at] = free[nearest]
            distance[:, nearest] = np.inf
        return chosen


def _level(frequency: Doubles) -> Doubles:
    """Compute log(df + ½), by which frequencies are compared."""
    return np.log(np.maximum(frequency, 0.0) + 0.5)


def ordered_bundles(key: bytes, terms: Bundle, decoys: Sequence[Bundle]) -> tuple[tuple[Bundle, ...], int]:
    """Return the query among its decoys in a keyed order independent of the query, and the query's place."""

    def place(bundle: Bundle) -> bytes:
        text = " ".join(sorted(bundle)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=key, digest_size=16, person=b"quorank order").digest()

    everything = sorted((terms, *decoys), key=place)
    return tuple(everything), everything.index(terms)
