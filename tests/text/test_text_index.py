"""Counts in columns, against counting with a dictionary."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.text import Document, Index, Tokeniser

TEXTS = st.lists(st.text(st.sampled_from("ab cÄé漢 the\n"), max_size=40), max_size=8)


def check(index: Index, bags: list[Counter[str]]) -> None:
    """Every column against the bags of words."""
    together = sum(bags, Counter())
    assert sorted(index.vocabulary) == sorted(together)
    assert all(index.vocabulary[i] == term for term, i in index.ids.items())
    for d, bag in enumerate(bags):
        part = slice(index.offsets[d], index.offsets[d + 1])
        assert np.all(np.diff(index.terms[part]) > 0)
        found = zip(index.terms[part].tolist(), index.counts[part].tolist(), strict=True)
        assert {index.vocabulary[t]: n for t, n in found} == bag
    assert index.lengths.tolist() == [bag.total() for bag in bags]
    assert index.distinct.tolist() == [len(bag) for bag in bags]
    assert index.collection_length == together.total()
    for term, i in index.ids.items():
        documents, counts = index.postings(i)
        assert list(zip(documents.tolist(), counts.tolist(), strict=True)) == [
            (d, bag[term]) for d, bag in enumerate(bags) if term in bag
        ]
        assert index.document_frequency[i] == len(documents)
        assert index.collection_frequency[i] == together[term]


@settings(max_examples=60)
@given(TEXTS, st.sampled_from(["body", "title"]), st.sampled_from(["none", "english"]))
def test_an_index_counts_what_the_tokeniser_gives(texts, field, stop_words) -> None:
    documents = [Document(str(i), *((t, "x") if field == "title" else ("x", t))) for i, t in enumerate(texts)]
    tokeniser = Tokeniser(stop_words)
    check(Index.build(documents, tokeniser, field), [Counter(tokeniser.tokenise(text)) for text in texts])


def test_an_empty_document_and_no_documents() -> None:
    index = Index.build([Document("1", "", " ... "), Document("2", "", "one")], Tokeniser("none"))
    assert index.lengths.tolist() == [0, 1]
    none = Index.build([], Tokeniser())
    assert (none.n_documents, none.vocabulary, none.mean_length) == (0, [], 0.0)
    assert none.counts_of([], none.term_ids(["x"])).shape == (0, 1)


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 12))
def test_the_top_k_of_a_term(counts, k) -> None:
    documents = [Document(str(i), "", "x " * n + "y") for i, n in enumerate(counts)]
    index = Index.build(documents, Tokeniser("none"))
    term = index.term_ids(["x"])[0]
    best = sorted((-n, i) for i, n in enumerate(counts) if n)[:k]
    found, occurrences = index.top(int(term), k)
    assert found.tolist() == [i for _, i in best]
    assert occurrences.tolist() == [-n for n, _ in best]


def test_numbers_out_of_range_are_refused() -> None:
    index = Index.build([Document("1", "", "a")], Tokeniser("none"))
    for rows in ([1], [-1]):
        with pytest.raises(BadInput, match="documents: expected numbers from 0 to 0"):
            index.counts_of(rows, index.term_ids(["a"]))
    with pytest.raises(BadInput, match="terms: expected ids"):
        index.statistics(np.array([1], dtype=np.int32))
