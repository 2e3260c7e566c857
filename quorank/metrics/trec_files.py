"""TREC's files of rankings: a run, `query Q0 document rank score tag`, and judgements (qrels), `query 0 document grade`.

Documents without an id are called by their query and their place in its list, `10.3`, alike in both files. Scores are
written so that they are read back to the bit. Of equal scores, the document that stands first in its list ranks first,
as in `quorank evaluate`; trec_eval breaks ties by the document's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData
from quorank.errors import brief, require
from quorank.kernels.arrays import Integers

TAG = "quorank"
LONGEST_TAG = 100


def trec_run(
    queries: Sequence[str],
    offsets: Integers,
    documents: Sequence[str] | None,
    scores: npt.NDArray[np.floating[Any]],
    tag: str = TAG,
) -> bytes:
    """Encode a run of lists: rows offsets[q] .. offsets[q + 1] of scores (rows,) are those of queries[q]."""
    sound = 0 < len(tag) <= LONGEST_TAG and tag.isprintable() and not any(map(str.isspace, tag))
    require(sound, "trec.bad-tag", f"expected up to {LONGEST_TAG} letters without spaces, got {brief(tag)}", "--tag")
    lines = []
    for query, rows, names in _lists(queries, offsets, documents):
        own = scores[rows]
        ranked = np.argsort(-own, kind="stable")
        values = own.tolist()
        lines += [f"{query} Q0 {names[p]} {rank} {values[p]!r} {tag}\n" for rank, p in enumerate(ranked.tolist(), 1)]
    return "".join(lines).encode()


def grouped(
    queries: Sequence[str], documents: Sequence[str] | None, scores: npt.NDArray[np.floating[Any]]
) -> tuple[list[str], Integers, list[str] | None, npt.NDArray[np.floating[Any]]]:
    """Return rows brought together by the query of each, queries in order of their first row, as `trec_run` takes them."""
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(query, len(numbers)) for query in queries], dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(numbers)))]).astype(np.int64)
    named = None if documents is None else [documents[row] for row in order.tolist()]
    return [*numbers], offsets, named, scores[order]


def trec_qrels(data: RankingData) -> bytes:
    """Encode the labels of a split as judgements."""
    lines = []
    for query, rows, names in _lists(data.query_ids, data.offsets, data.document_ids):
        labels = data.labels[rows].tolist()
        lines += [f"{query} 0 {name} {label}\n" for name, label in zip(names, labels, strict=True)]
    return "".join(lines).encode()


def _lists(
    queries: Sequence[str], offsets: Integers, documents: Sequence[str] | None
) -> Iterator[tuple[str, slice, list[str]]]:
    """Each query with the rows and the names of its documents."""
    for number in range(len(offsets) - 1):
        query, start, stop = str(queries[number]), int(offsets[number]), int(offsets[number + 1])
        if documents is None:
            names = [f"{query}.{place}" for place in range(1, stop - start + 1)]
        else:
            names = [documents[row] or f"{query}.{row - start + 1}" for row in range(start, stop)]
        for text in (query, *names):
            sentence = f"TREC files are divided by spaces, and {brief(text)} has one; rename it"
            require(text and len(text.split()) == 1, "trec.bad-id", sentence)
        yield query, slice(start, stop), names
