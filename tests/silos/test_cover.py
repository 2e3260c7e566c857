"""Cover by its definition, and the cover of both readings, on real text where it is there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.count_sketch import Naive
from quorank.silos.sketch.cover import (
    KEY,
    generated_index,
    mean_cover,
    naive_bytes,
    query_milliseconds,
    sampled_terms,
    term_cover,
    timed_build,
)
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape
from quorank.text import Document, Index, Tokeniser


@pytest.fixture(scope="module")
def small() -> tuple[Index, np.ndarray]:
    return generated_index(documents=400, length=120, vocabulary=3000)


def test_cover_by_hand() -> None:
    counts = np.array([5, 0, 3, 3, 3, 1, 0], dtype=np.int32)
    assert term_cover(counts, [0, 2], 2) == 1.0
    assert term_cover(counts, [0, 4], 2) == 1.0, "of equal documents any will do"
    assert term_cover(counts, [0, 5], 2) == 1 / 2
    assert term_cover(counts, [2, 3, 4, 0], 2) == 1.0, "only the first K count, and here they reach the second count"
    assert term_cover(counts, [0, 2, 3, 4, 5, 1, 6], 10) == 1.0, "five documents hold the term"
    assert term_cover(counts, [1, 6, 5], 10) == 1 / 5, "a document without the term never counts"
    with pytest.raises(BadInput, match="nothing to cover"):
        term_cover(np.zeros(4, dtype=np.int32), [1], 2)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12).filter(any), st.integers(1, 12), st.data())
def test_cover_counts_documents_at_the_kth_count_or_above(counts, k: int, data) -> None:
    order = data.draw(st.permutations(range(len(counts))))
    share = term_cover(np.array(counts, dtype=np.int32), order[:k], k)
    best = [count for count in sorted(counts, reverse=True)[:k] if count]
    assert share == sum(counts[d] >= best[-1] for d in order[:k]) / len(best)
    assert term_cover(np.array(counts, dtype=np.int32), np.argsort(counts)[::-1], k) == 1.0


def test_sampled_terms_are_frequent_ones_any_and_those_of_queries(small) -> None:
    index, _ = small
    groups = sampled_terms(index, 50, seed=1, queries=np.arange(3000))
    assert [len(set(group.tolist())) for group in groups.values()] == [50, 50, 50]
    assert np.all(index.document_frequency[groups["any"]] >= 5)
    occurrences = index.collection_frequency
    assert occurrences[groups["frequent"]].mean() > 3 * occurrences[groups["any"]].mean()


def test_the_recommended_reading_finds_what_naive_finds_and_the_literal_one_does_not(small) -> None:
    index, queries = small
    groups, old = sampled_terms(index, 20, 1, queries), Shape.published(k=20)
    naive, (ours, seconds) = Naive(old.hashing(KEY), index), timed_build(index, Shape.recommended(20))
    found, literal, whole = (
        mean_cover(each.top, index, groups, 20)["all"] for each in (ours, timed_build(index, old)[0], naive)
    )
    assert found >= 0.95 * whole > 0.5 and literal < found
    assert ours.stored <= ours.shape.entries == old.entries == 30_000 * 20
    assert 0 < ours.memory_bytes < naive_bytes(index, old) == 400 * 30 * 200 * 4
    assert seconds > 0 and query_milliseconds(ours.top, index.vocabulary[:5], 20) > 0


def test_documents_without_a_term_are_never_returned() -> None:
    texts = [Document(str(number), "", body) for number, body in enumerate(("", "a b b", "", "b b b"))]
    index = Index.build(texts, Tokeniser(stop_words="none"), "body")
    shape = Shape.published(k=2)
    sketch = ReverseTopK(bytes(32), shape, index)
    assert sketch.documents == 2 and sketch.top("b", 4)[0].tolist() == [3, 1]
