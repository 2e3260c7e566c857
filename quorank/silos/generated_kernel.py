"""The compiled half of `quorank.silos.generated`: topics of documents, their lengths, their words."""

from __future__ import annotations

import math

import numpy as np

from quorank.arrays import Doubles, Int32s, Integers, Uint64s
from quorank.compiled import kernel
from quorank.draws import uniform_pair

DOCUMENTS = 8
"""The round in the addresses of documents; their fields have the next ones."""


def zipf(n: int, exponent: float) -> Doubles:
    """Probabilities ∝ 1 / (rank + 2)^exponent (Zipf-Mandelbrot)."""
    weights = (np.arange(n) + 3.0) ** -exponent
    return np.asarray(weights / weights.sum())


def alias(probabilities: Doubles) -> tuple[Doubles, Int32s]:
    """Walker's alias table: a draw costs one comparison, whatever the distribution."""
    n = len(probabilities)
    accept, other = probabilities * n, np.arange(n, dtype=np.int32)
    _fill_alias(accept, other)
    return accept, other


@kernel
def _fill_alias(accept: Doubles, other: Int32s) -> None:
    n = len(accept)
    small, large = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    n_small = n_large = 0
    for i in range(n):
        if accept[i] < 1.0:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        less, more = small[n_small], large[n_large - 1]
        other[less] = more
        accept[more] -= 1.0 - accept[less]
        if accept[more] < 1.0:
            n_large -= 1
            small[n_small] = more
            n_small += 1
    for i in range(n_small):
        accept[small[i]] = 1.0
    for i in range(n_large):
        accept[large[i]] = 1.0


@kernel
def _pick(draw: float, accept: Doubles, other: Int32s) -> int:
    place = draw * len(accept)
    column = int(place)
    return column if place - column < accept[column] else other[column]


@kernel
def topic_of(first: float, second: float, party: int, parties: int, topics: int, overlap: float) -> int:
    """Any topic with probability `overlap`, else one of those numbered party, party + parties, …"""
    mine = (topics - party + parties - 1) // parties
    if first < overlap or mine < 1:
        return int(second * topics)
    return party + parties * int(second * mine)


@kernel
def mixtures(
    key: Uint64s,
    party: int,
    parties: int,
    topics: int,
    overlap: float,
    main: Integers,
    second: Integers,
    share: Doubles,
) -> None:
    for d in range(len(main)):
        a, b = uniform_pair(key, 0, d, party, DOCUMENTS)
        main[d] = topic_of(a, b, party, parties, topics, overlap)
        a, b = uniform_pair(key, 1, d, party, DOCUMENTS)
        second[d] = topic_of(a, b, party, parties, topics, overlap)
        a, b = uniform_pair(key, 2, d, party, DOCUMENTS)
        share[d] = 0.5 + 0.5 * a if second[d] != main[d] else 1.0


def draw_lengths(key: Uint64s, party: int, field: int, documents: int, mean: int) -> Integers:
    """Log-normal with a standard deviation of about a third, at least one term."""
    out = np.empty(documents, dtype=np.int64)
    _fill_lengths(key, party, field, float(mean), out)
    return out


@kernel
def _fill_lengths(key: Uint64s, party: int, field: int, mean: float, out: Integers) -> None:
    spread = 0.33
    for d in range(len(out)):
        a, b = uniform_pair(key, 3 + field, d, party, DOCUMENTS)
        normal = math.sqrt(-2.0 * math.log(1.0 - a)) * math.cos(2.0 * math.pi * b)
        out[d] = max(1, round(mean * math.exp(spread * normal - spread * spread / 2)))


@kernel
def write(
    key: Uint64s,
    party: int,
    field: int,
    lengths: Integers,
    main: Integers,
    second: Integers,
    share: Doubles,
    about: float,
    repeat: float,
    table: Int32s,
    common_accept: Doubles,
    common_other: Int32s,
    topic_accept: Doubles,
    topic_other: Int32s,
) -> tuple[Integers, Int32s, Int32s]:
    """The documents of a field, a word at a time, counted."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    terms = np.empty(lengths.sum(), dtype=np.int32)
    counts = np.empty(len(terms), dtype=np.int32)
    seen = np.zeros(len(common_accept), dtype=np.int32)
    words = np.empty(lengths.max(), dtype=np.int32)
    at = 0
    for d in range(len(lengths)):
        first = at
        for i in range(lengths[d]):
            u, v = uniform_pair(key, i, d, party, DOCUMENTS + 1 + field)
            if i > 0 and u < repeat:
                term = words[int(v * i)]
            else:
                u = (u - repeat) / (1.0 - repeat) if i > 0 else u
                if u >= about:
                    term = np.int32(_pick(v, common_accept, common_other))
                else:
                    subject = main[d] if u < about * share[d] else second[d]
                    term = table[subject, _pick(v, topic_accept, topic_other)]
            words[i] = term
            if seen[term] == 0:
                terms[at] = term
                at += 1
            seen[term] += 1
        terms[first:at].sort()
        for i in range(first, at):
            counts[i] = seen[terms[i]]
            seen[terms[i]] = 0
        offsets[d + 1] = at
    return offsets, terms[:at].copy(), counts[:at].copy()
