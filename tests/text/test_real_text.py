"""The readers and features on real collections, where they are."""

from __future__ import annotations

import bm25s
import numpy as np
import pytest

from quorank.text import Features, IndexedDocuments, Tokeniser, read_collection


@pytest.mark.parametrize(
    ("name", "documents", "queries", "judged", "judgements", "grades"),
    [
        ("cranfield", 1_400, 225, 225, 1_837, {0, 1, 2, 3, 4}),
        ("cisi", 1_460, 112, 76, 3_114, {1}),
        ("med", 1_033, 30, 30, 696, {1}),
        ("npl", 11_429, 93, 93, 2_083, {1}),
        ("nfcorpus", 3_633, 3_237, 3_237, 134_294, {1, 2}),
    ],
)
def test_counts_are_those_of_the_collections(real_data, name, documents, queries, judged, judgements, grades) -> None:
    found = read_collection(real_data(name))
    assert (found.name, len(found.documents), len(found.queries)) == (name, documents, queries)
    # every line of their files of judgements is kept
    total = sum(map(len, found.judgements.values()))
    assert (len(found.judgements), total, found.skipped) == (judged, judgements, {})
    assert {grade for of_query in found.judgements.values() for grade in of_query.values()} == grades
    empty = [document.id for document in found.documents if document.is_empty]
    assert empty == (["471", "995"] if name == "cranfield" else [])
    assert sum(not document.title for document in found.documents) == len(empty)


def test_cranfield_judgements_belong_to_their_queries(real_data) -> None:
    """Taken by the .I numbers, they would be no better than chance: so BM25 tells whether they are in place."""
    found = read_collection(real_data("cranfield"))
    indexed = IndexedDocuments.build(found.documents, Tokeniser())
    precision = []
    for query in found.queries:
        best = indexed.best(indexed.body.tokeniser.tokenise(query.text), 10)
        grades = found.judgements[query.id]
        precision.append(np.mean([grades.get(indexed.ids[row], 0) > 0 for row in best]))
    assert np.mean(precision) > 0.2


def test_bm25_on_real_data(real_data) -> None:
    found = read_collection(real_data("med"))
    tokeniser = Tokeniser()
    indexed = IndexedDocuments.build(found.documents, tokeniser)
    theirs = bm25s.BM25(method="atire", k1=1.2, b=0.75, dtype="float64")
    theirs.index([tokeniser.tokenise(document.body) for document in found.documents], show_progress=False)
    for query in found.queries[:5]:
        terms = [term for term in tokeniser.tokenise(query.text) if term in indexed.body.ids]
        expected = sum(theirs.get_scores([term]) for term in terms)
        ours = indexed.features(terms, np.arange(len(indexed.ids)), Features(idf="published"))[:, 4]
        assert ours == pytest.approx(expected, abs=1e-6)
