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
from quorank.kernels.arrays import Doubles, Integers
from quorank.kernels.draws import Purpose, uniforms
from quorank.silos.generated import Generator
from quorank.silos.holdings import index_of
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape
from quorank.text import Index

Top = Callable[[str, int], tuple[npt.NDArray[Any], Doubles]]

KEY = bytes(range(32))  # key of measurements: they repeat, and it is no secret
RARE = 5  # documents that a term of the second group has at least


def generated_index(
    documents: int = 36_400, length: int = 1_000, vocabulary: int = 50_000, seed: int = 1
) -> tuple[Index, Integers]:
    """Generate the documents of one party with the paper's sizes, and the terms of a hundred queries."""
    generator = Generator(parties=1, documents=documents, queries=100, body=length, vocabulary=vocabulary)
    party, words = generator.party(0, seed), generator.words()
    return index_of(party.body, words), np.unique(np.concatenate(party.queries))


def sampled_terms(index: Index, number: int, seed: int, queries: Integers | None = None) -> dict[str, Integers]:
    """Draw terms to ask for: frequent ones, any, and those of queries."""
    held, everything = index.document_frequency, np.arange(len(index.vocabulary))
    weights = {
        "frequent": index.collection_frequency.astype(np.float64),
        "any": (held >= min(RARE, max(1, held.max(initial=0)))).astype(np.float64),
        "queries": (np.isin(everything, [] if queries is None else queries) & (held > 0)).astype(np.float64),
    }
    return {name: _draw(of, number, seed, at) for at, (name, of) in enumerate(weights.items()) if of.any()}


def _draw(weights: Doubles, number: int, seed: int, group: int) -> Integers:
    """Draw a weighted sample without replacement: the smallest of exponential waiting times."""
    waits = -np.log1p(-uniforms(seed, Purpose.DOCUMENTS, len(weights), round_=5, client=group))
    terms = np.flatnonzero(weights)
    return terms[np.argsort(waits[terms] / weights[terms], kind="stable")[:number]]


def term_cover(counts: Doubles, returned: npt.ArrayLike, k: int) -> float:
    """Compute the cover of one term from its (documents,) true counts and the at most k documents that were returned."""
    most = min(k, int((counts > 0).sum()))
    require(most > 0, "cover.no-document", "no document holds this term, so there is nothing to cover")
    least = np.partition(counts, len(counts) - most)[len(counts) - most]
    chosen = np.unique(np.asarray(returned)[:k])
    return int((counts[chosen] >= max(least, 1)).sum()) / most


def mean_cover(top: Top, index: Index, groups: Mapping[str, Integers], k: int) -> dict[str, float]:
    """Compute the mean cover of each group of terms, and of all of them."""
    every = np.arange(index.n_documents)
    covers = {
        name: [
            term_cover(counts, top(index.vocabulary[term], k)[0], k)
            for term, counts in zip(terms.tolist(), index.counts_of(every, terms.astype(np.int32)).T, strict=True)
        ]
        for name, terms in groups.items()
    }
    means = {name: float(np.mean(of)) for name, of in covers.items()}
    return means | {"all": float(np.mean([cover for of in covers.values() for cover in of]))}


def query_milliseconds(top: Top, terms: Sequence[str], k: int) -> float:
    """Measure the median time of one query, hashing included."""
    top(terms[0], k)
    times = []
    for term in terms:
        start = time.perf_counter()
        top(term, k)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def timed_build(index: Index, shape: Shape) -> tuple[ReverseTopK, float]:
    """Build a party's RTK-Sketch, and measure the seconds of one core that it takes."""
    start = time.thread_time()
    sketch = ReverseTopK(KEY, shape, index)
    return sketch, time.thread_time() - start


def naive_bytes(index: Index, shape: Shape) -> int:
    """Return the memory of NAIVE in int32, the type of the values in an RTK-Sketch."""
    return index.n_documents * shape.rows * shape.columns * 4
