"""TREC's files of rankings: a run, `query Q0 document rank score tag`, and judgements (qrels), `query 0 document grade`.

A document without an id is named by its query and its place in the list, `10.3`, in both files. Scores are written so that
they are read back to the bit. Equal scores rank in the order of the list; trec_eval breaks ties by the document's id, and
`quorank evaluate` computes the mean over their orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.data.ranking import RankingData, grouped_rows
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
    """Encode a run.

    Args:
        queries: Name of each list.
        offsets: (lists + 1,) first row of each list.
        documents: Name of each row, "" for none; None if no row has one.
        scores: (rows,) scores.
        tag: Name of the run.

    Raises:
        BadInput: `trec.bad-tag` or `trec.bad-id` for a name that is too long or has spaces.

    >>> print(trec_run(["10"], np.array([0, 2]), ["a", "b"], np.array([0.5, 2.0])).decode(), end="")
    10 Q0 b 1 2.0 quorank
    10 Q0 a 2 0.5 quorank
    """
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
    """Group rows by the query of each, in the order of first occurrence, as the first arguments of `trec_run`.

    >>> queries, offsets, _, scores = grouped(["a", "b", "a"], None, np.array([1.0, 2.0, 3.0]))
    >>> queries, offsets.tolist(), scores.tolist()
    (['a', 'b'], [0, 2, 3], [1.0, 3.0, 2.0])
    """
    order, offsets, names = grouped_rows(queries, len(scores))
    return names, offsets, None if documents is None else [documents[row] for row in order.tolist()], scores[order]


def trec_qrels(data: RankingData) -> bytes:
    """Encode the labels of a split as judgements; raises BadInput `trec.bad-id` for a name with spaces.

    >>> print(trec_qrels(RankingData.from_arrays([[1.0], [2.0]], labels=[0, 2], offsets=[0, 2])).decode(), end="")
    0 0 0.1 0
    0 0 0.2 2
    """
    lines = []
    for query, rows, names in _lists(data.query_ids, data.offsets, data.document_ids):
        labels = data.labels[rows].tolist()
        lines += [f"{query} 0 {name} {label}\n" for name, label in zip(names, labels, strict=True)]
    return "".join(lines).encode()


def _lists(
    queries: Sequence[str], offsets: Integers, documents: Sequence[str] | None
) -> Iterator[tuple[str, slice, list[str]]]:
    """Yield each query with the rows and the names of its documents."""
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
