"""Cover, memory and speed of reverse top-K sketches (CS-F-LTR §VI-B).

Cover is the share of the true top K that a sketch finds, with a rule for ties: let m be K, or the number of documents
that hold the term where these are fewer, and c the m-th largest true count. A returned document counts if its true count
is at least c; one without the term never does. The cover of a term is the number that count over m, and that of a sketch
is the mean over terms. NAIVE and the others are judged by this same rule, each with the K documents that it returns.

Half of the terms are drawn in proportion to their occurrences, half alike among all terms of at least five documents; the
terms of queries, where there are some, are a third group of the same size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import require
from quorank.kernels.arrays import Doubles, Int32s, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.generated import Generator
from quorank.silos.sketch.count_sketch import CountedField, Naive
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape
from quorank.text import Index

Top = Callable[[str, int], tuple[npt.NDArray[Any], Doubles]]

KEY = bytes(range(32))
"""Key of measurements: they repeat, and it is no secret."""
RARE = 5  # documents that a term of the second group has at least


CountedDocuments = CountedField | Index
"""Term counts of one field of a party's documents."""


def without_empty(field: CountedDocuments) -> CountedField:
    """Return the same field without documents that hold no term: no sketch can find these."""
    lengths = np.diff(field.offsets)
    offsets = np.concatenate(([0], np.cumsum(lengths[lengths > 0]))).astype(np.int64)
    return CountedField(offsets, field.terms, field.counts, field.vocabulary)


def generated_field(
    documents: int = 36_400, length: int = 1_000, vocabulary: int = 50_000, seed: int = 1
) -> tuple[CountedField, Integers]:
    """Generate the documents of one party with the paper's sizes, and the terms of a hundred queries."""
    generator = Generator(parties=1, documents=documents, queries=100, body=length, vocabulary=vocabulary)
    party = generator.party(0, seed)
    field = CountedField(party.body.offsets, party.body.terms, party.body.counts, generator.words())
    return field, np.unique(np.concatenate(party.queries))


class Truth:
    """Exact counts of every term in every document."""

    def __init__(self, field: CountedDocuments) -> None:
        self.documents = len(field.offsets) - 1
        owner = np.repeat(np.arange(self.documents, dtype=np.int32), np.diff(field.offsets))
        order = np.argsort(field.terms, kind="stable")
        self._owner, self._counts = owner[order], field.counts[order]
        self.frequency = np.bincount(field.terms, minlength=len(field.vocabulary))
        self.occurrences = np.bincount(field.terms, weights=field.counts, minlength=len(field.vocabulary))
        self._offsets = np.concatenate(([0], np.cumsum(self.frequency)))

    def of(self, term: int) -> Int32s:
        """Return the (documents,) occurrences of a term."""
        out = np.zeros(self.documents, dtype=np.int32)
        part = slice(self._offsets[term], self._offsets[term + 1])
        out[self._owner[part]] = self._counts[part]
        return out

    def sample(self, number: int, seed: int, queries: Integers | None = None) -> dict[str, Integers]:
        """Draw terms to ask for: frequent ones, any, and those of queries."""
        spread = np.flatnonzero(self.frequency >= min(RARE, max(1, self.frequency.max())))
        groups = {
            "frequent": _draw(self.occurrences.astype(np.float64), number, seed, 0),
            "any": spread[_draw(np.ones(len(spread)), number, seed, 1)],
        }
        if queries is not None:
            held = queries[self.frequency[queries] > 0]
            if len(held):
                groups["queries"] = held[_draw(np.ones(len(held)), number, seed, 2)]
        return groups


def _draw(weights: Doubles, number: int, seed: int, group: int) -> Integers:
    """Draw a weighted sample without replacement: the smallest of exponential waiting times."""
    waits = -np.log1p(-uniforms(seed, Purpose.DOCUMENTS, len(weights), round_=5, client=group))
    with np.errstate(divide="ignore"):
        order = np.argsort(waits / weights, kind="stable")
    return order[: min(number, int((weights > 0).sum()))]


def term_cover(counts: Int32s, returned: npt.ArrayLike, k: int) -> float:
    """Compute the cover of one term from its (documents,) true counts and the at most k documents that were returned."""
    most = min(k, int((counts > 0).sum()))
    require(most > 0, "cover.no-document", "no document holds this term, so there is nothing to cover")
    least = np.partition(counts, len(counts) - most)[len(counts) - most]
    chosen = np.unique(np.asarray(returned)[:k])
    return int((counts[chosen] >= max(least, 1)).sum()) / most


def mean_cover(
    top: Top, truth: Truth, groups: Mapping[str, Integers], vocabulary: Sequence[str], k: int
) -> dict[str, float]:
    """Compute the mean cover of each group of terms, and of all of them."""
    out = {}
    for name, terms in groups.items():
        covers = [term_cover(truth.of(int(t)), top(vocabulary[int(t)], k)[0], k) for t in terms]
        out[name] = float(np.mean(covers))
    sizes = [len(terms) for terms in groups.values()]
    out["all"] = float(np.average(list(out.values()), weights=sizes))
    return out


def query_milliseconds(top: Top, terms: Sequence[str], k: int) -> float:
    """Measure the median time of one query, hashing included."""
    top(terms[0], k)
    times = []
    for term in terms:
        start = time.perf_counter()
        top(term, k)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def timed_build(field: CountedField, shape: Shape) -> tuple[ReverseTopK, float]:
    """Build a party's RTK-Sketch, and measure the seconds of one core that it takes."""
    start = time.thread_time()
    sketch = ReverseTopK(shape.hashing(KEY), shape, field)
    return sketch, time.thread_time() - start


def build_naive(field: CountedField, shape: Shape) -> Naive:
    """Build NAIVE with the same z and w; int16 counters where the longest document allows."""
    longest = int(np.add.reduceat(field.counts.astype(np.int64), field.offsets[:-1]).max())
    counter = np.int16 if longest < 2**15 else np.int32
    return Naive(shape.hashing(KEY), field, shape.sketch, counter)


def measure_sketches(
    party: CountedDocuments, queries: Integers | None = None, *, k: int = 150, terms: int = 100, seed: int = 1
) -> dict[str, Any]:
    """Measure cover, memory and speed of the recommended reading beside NAIVE and the literal reading as published.

    NAIVE has the published z and w. Queries are timed by the clock, building by the time that its one thread had a core,
    which is what a second and core mean on a machine with other work. NAIVE's memory is counted in int32, the type of the
    values in an RTK-Sketch.
    """
    field = without_empty(party)
    require(len(field.offsets) > 1, "cover.no-document", "there are no documents to measure with")
    chosen, old = Shape.recommended(k), Shape.published(k=k)
    truth = Truth(field)
    groups = truth.sample(terms, seed, queries)
    asked = [field.vocabulary[int(t)] for group in groups.values() for t in group]
    sketch, seconds = timed_build(field, chosen)
    cover = {"rtk": mean_cover(sketch.top, truth, groups, field.vocabulary, k)}
    time_rtk = query_milliseconds(sketch.top, asked, k)
    memory, stored, limit = sketch.memory_bytes, sketch.stored, sketch.limit
    literal, _ = timed_build(field, old)
    cover["literal"] = mean_cover(literal.top, truth, groups, field.vocabulary, k)
    del literal
    naive = build_naive(field, old)
    cover["naive"] = mean_cover(naive.top, truth, groups, field.vocabulary, k)
    time_naive = query_milliseconds(naive.top, asked[:: max(1, len(asked) // 50)], k)
    naive_memory = field.documents * old.rows * old.columns * 4
    occurrences = int(field.counts.sum())
    return {
        "documents": truth.documents,
        "occurrences": occurrences,
        "vocabulary": len(field.vocabulary),
        "k": k,
        "terms": {name: len(group) for name, group in groups.items()},
        "cover": {name: cover[name]["all"] for name in ("naive", "rtk", "literal")},
        "cover_by_terms": {name: cover[name] for name in ("naive", "rtk", "literal")},
        "cover_of_naive": cover["rtk"]["all"] / cover["naive"]["all"] if cover["naive"]["all"] else 1.0,
        "entries": {"stored": stored, "most": chosen.entries, "published": old.entries, "cell_limit": limit},
        "memory_bytes": memory,
        "naive_memory_bytes": naive_memory,
        "memory_share": memory / naive_memory,
        "query_milliseconds": time_rtk,
        "naive_query_milliseconds": time_naive,
        "build_seconds": seconds,
        "build_terms_per_second": occurrences / seconds,
        "shape": str(chosen),
        "published_shape": str(old),
    }
