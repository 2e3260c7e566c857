"""Propensities of ranks: P(examine) by rank, estimated from a log or given.

Intervention harvesting (Agarwal, Zaitsev, Wang, Li, Najork and Joachims 2019, "Estimating position bias without intrusive
interventions"): if a log shows a document for the same query at rank r and at rank r + 1, its relevance is the same, so
under position-based clicks, P(click) = p_r·relevance, only the propensities differ. Over all such (query, document) pairs,
shown n times at r and n' times at r + 1 with c and c' clicks,

    p_(r+1) / p_r = Σ c'·n/(n + n') / Σ c·n'/(n + n'),

since both sums have the same expectation but for the propensity. p_1 = 1, as only ratios matter (the adjacent chain).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quorank.data.logs.records import SearchRecords
from quorank.data.ranking import RankingData, to_arrow
from quorank.errors import BadInput, require, require_range
from quorank.kernels.arrays import Doubles, Int8s, Integers

HARVEST = "harvest"
MOST_RANKS = 1000  # largest rank with a propensity


def harvested_propensities(pairs: Integers, ranks: Integers, clicks: Int8s, least: int, most: int = 0) -> Doubles:
    """Estimate the propensities of ranks 1 to `least`, and further ones up to `most` as far as possible.

    Args:
        pairs: (rows,) number of the (query, document) pair of each shown document.
        ranks: (rows,) its rank, from 1.
        clicks: (rows,) 1 if it was clicked, else 0.
        least: Number of ranks that are needed.
        most: Number of ranks that are wanted.

    Returns:
        (ranks,) p_1 = 1, p_2, …

    Raises:
        BadInput: `propensities.not-identified` if a needed rank shares no clicked pair with the rank above.

    >>> ranks, clicks = np.array([1, 1, 2, 2]), np.array([1, 1, 1, 0], dtype=np.int8)  # one pair: 2 of 2 clicks, 1 of 2
    >>> harvested_propensities(np.zeros(4, dtype=np.int64), ranks, clicks, least=2)
    array([1. , 0.5])
    """
    k = max(least, most)
    shown = (ranks >= 1) & (ranks <= k)
    pairs, ranks, clicks = np.unique(pairs[shown], return_inverse=True)[1], ranks[shown], clicks[shown]
    count = int(pairs.max(initial=-1)) + 1
    cell = pairs.astype(np.int64) * k + ranks - 1
    times = np.bincount(cell, minlength=count * k).reshape(count, k).astype(np.float64)
    clicked = np.bincount(cell, weights=clicks, minlength=count * k).reshape(count, k)
    chain = [1.0]
    for r in range(k - 1):
        both = (times[:, r] > 0) & (times[:, r + 1] > 0)
        upper, lower = times[both, r], times[both, r + 1]
        total = upper + lower
        here = float((clicked[both, r] * lower / total).sum())
        below = float((clicked[both, r + 1] * upper / total).sum())
        if here == 0.0 or below == 0.0:
            if r + 1 >= least:
                break
            have = f"{int(both.sum()):,} documents were shown at ranks {r + 1} and {r + 2} for the same query"
            sentence = f"{have}, with clicks at {'none' if here == below == 0.0 else 'one'} of the two"
            advice = "too little to tell how many look there; give the propensities, or fewer ranks"
            raise BadInput("propensities.not-identified", f"{sentence}: {advice}")
        chain.append(chain[-1] * below / here)
    return np.array(chain)


def shown_pairs(data: RankingData, records: SearchRecords) -> Integers:
    """Number the (query, document) pairs of a log.

    Args:
        data: Lists of the log, with `document_ids`.
        records: Searches of the log, one per list.

    Returns:
        (rows,) number of the pair of each row; −1 − row where query or document is not known.
    """
    documents = _codes(data.document_ids if data.document_ids is not None else [""] * data.n_rows)
    queries = np.repeat(_codes(records.queries), np.diff(data.offsets))
    unknown = (documents < 0) | (queries < 0)
    pairs = queries * (int(documents.max(initial=0)) + 1) + documents
    return np.where(unknown, -1 - np.arange(data.n_rows), pairs).astype(np.int64)


def _codes(texts: Sequence[str]) -> Integers:
    """Return a number for each distinct string; −1 for an empty one."""
    encoded = to_arrow(texts).dictionary_encode()
    found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    empty = np.array([not text for text in encoded.dictionary.to_pylist()], dtype=np.bool_)
    return np.where(empty[found], -1, found) if len(found) else found


def deepest_rank(records: SearchRecords, least: int) -> int:
    """Return the deepest rank of a log for which propensities are needed, from `least` to `MOST_RANKS`."""
    return max(least, min(int(records.ranks.max(initial=0)), MOST_RANKS))


def read_propensities(text: str, k: int, data: RankingData, records: SearchRecords) -> Doubles:
    """Read the option of propensities.

    A ranker may lift documents from below rank k, so "harvest" and a power reach as deep as the log shows.

    Args:
        text: "harvest" to estimate them from the log, "power=0.5" for (1/rank)^0.5, or numbers such as "1,0.6,0.4".
        k: Number of ranks that are needed.
        data: Lists of the log; their labels are clicks.
        records: Searches of the log.

    Returns:
        (at least k,) propensities by rank.

    Raises:
        BadInput: `propensities.unknown`, `propensities.too-few`, `propensities.not-identified` or `value.out-of-range`.
    """
    deepest = deepest_rank(records, k)
    if text == HARVEST:
        ranks = records.ranks.astype(np.int64)
        return harvested_propensities(shown_pairs(data, records), ranks, data.labels, k, deepest)
    power = text.removeprefix("power=")
    try:
        numbers = [float(word) for word in power.split(",")]
    except ValueError:
        sentence = f"expected harvest, power=NUMBER, or a number for each of {k} ranks, as 1,0.6,0.4"
        raise BadInput("propensities.unknown", sentence, text) from None
    if power != text and len(numbers) == 1:
        require_range("power", numbers[0], least=0.0, below=100.0)
        return np.asarray((1.0 / np.arange(1, deepest + 1)) ** numbers[0])
    for number in numbers:
        require_range("propensities", number, above=0.0, most=1.0)
    few = f"has {len(numbers)} numbers, and lists show {k} ranks; give one for each rank"
    require(len(numbers) >= k, "propensities.too-few", few, text)
    return np.array(numbers)
