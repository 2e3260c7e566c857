"""The sixteen features: against kept libraries, against probabilities, against values by hand."""

from __future__ import annotations

from math import log

import bm25s
import numpy as np
import pytest
from generated_text import make_documents
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.text import (
    Document,
    Features,
    FieldCounts,
    FieldStatistics,
    IndexedDocuments,
    Tokeniser,
    pair_features,
    pooled,
)
from quorank.text.features import field_features

WORDS = Tokeniser("none")
PUBLISHED = Features(bm25="published", idf="published")
QUERIES = [["word3"], ["word0", "word17", "word150"], ["word5", "word5", "word9"], ["word1", "nowhere"]]
LENGTH, TF, IDF, TF_IDF, BM25, ABS, DIR, JM = range(8)


def corpus() -> tuple[IndexedDocuments, list[list[str]]]:
    documents = make_documents(80)
    return IndexedDocuments.build(documents, WORDS), [WORDS.tokenise(d.body) for d in documents]


def of_field(counts, lengths, statistics, part=None, distinct=None) -> np.ndarray:
    return field_features(FieldCounts(counts, lengths, statistics, distinct), part)


def all_bm25(indexed: IndexedDocuments, terms: list[str], part: Features) -> np.ndarray:
    return indexed.features(terms, np.arange(len(indexed.ids)), part)[:, BM25]


@pytest.mark.parametrize("terms", QUERIES, ids=" ".join)
@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.5, 0.0), (2.0, 1.0)])
def test_bm25_is_that_of_bm25s(terms, k1, b) -> None:
    """Lucene's BM25 leaves the constant factor k1 + 1 out; ATIRE's takes the published IDF."""
    indexed, texts = corpus()
    known = [term for term in terms if term in indexed.body.ids]
    for method, idf, factor in (("lucene", "smoothed", k1 + 1), ("atire", "published", 1.0)):
        theirs = bm25s.BM25(method=method, k1=k1, b=b, dtype="float64")
        theirs.index(texts, show_progress=False)
        expected = sum(theirs.get_scores([term]) for term in known) * factor
        assert all_bm25(indexed, known, Features(k1=k1, b=b, idf=idf)) == pytest.approx(expected, abs=1e-6)


def test_the_best_documents_are_those_of_the_feature() -> None:
    indexed, _ = corpus()
    for terms in QUERIES:
        scores = all_bm25(indexed, terms, Features())
        best = indexed.best(terms, 7)
        assert scores[best] == pytest.approx(np.sort(scores)[::-1][: len(best)])
        assert np.all(scores[best] > 0)
    assert len(indexed.best(["nowhere"], 5)) == 0


@pytest.mark.parametrize("row", [0, 11, 42])
@pytest.mark.parametrize(
    "part", [Features(), Features(mu=10, lambda_=0.7, delta=0.2), Features(delta=1.0, lambda_=1.0)], ids=str
)
def test_language_models_are_distributions_over_the_vocabulary(row, part) -> None:
    """Σ_t p(t|d) = 1 for each of the three: a query of one term has the log of p(t|d) as its feature."""
    indexed, texts = corpus()
    body = indexed.body
    total = np.zeros(3)
    for term in body.vocabulary:
        total += np.exp(indexed.features([term], [row], part)[0, ABS : JM + 1])
    assert total == pytest.approx(np.ones(3), abs=1e-9)
    assert body.lengths[row] == len(texts[row])


def test_language_models_by_the_definition() -> None:
    indexed, texts = corpus()
    everything = [word for text in texts for word in text]
    terms = ["word2", "word60", "word2"]
    for row in (3, 30):
        text = texts[row]
        absolute = dirichlet = mercer = 1.0
        for term in terms:
            p = everything.count(term) / len(everything)
            c, n = text.count(term), len(text)
            absolute *= max(c - 0.7, 0) / n + 0.7 * len(set(text)) / n * p
            dirichlet *= (c + 2000 * p) / (n + 2000)
            mercer *= 0.9 * c / n + 0.1 * p
        expected = np.log([absolute, dirichlet, mercer])
        assert indexed.features(terms, [row])[0, ABS : JM + 1] == pytest.approx(expected)


def test_values_by_hand() -> None:
    documents = [Document("1", "red fox", "red fox red"), Document("2", "dog", "blue dog"), Document("3", "", "fox")]
    indexed = IndexedDocuments.build(documents, WORDS)
    part = Features(idf="published")
    found = indexed.features(["red", "fox"], [0, 1, 2], part)
    assert found.shape == (3, 16)
    assert found[:, LENGTH].tolist() == [3, 2, 1]
    assert found[:, 8 + LENGTH].tolist() == [2, 1, 0]
    assert found[0, TF] == pytest.approx(2 / 3 + 1 / 3)
    assert found[0, IDF] == pytest.approx(log(3 / 1) + log(3 / 2))
    assert found[2, IDF] == pytest.approx(log(3 / 2))
    assert found[0, TF_IDF] == pytest.approx(2 / 3 * log(3) + 1 / 3 * log(3 / 2))
    norm = 1.2 * (0.25 + 0.75 * 3 / 2)
    expected = log(3) * 2 * 2.2 / (2 + norm) + log(3 / 2) * 1 * 2.2 / (1 + norm)
    assert found[0, BM25] == pytest.approx(expected)
    assert found[1, [TF, IDF, TF_IDF, BM25]].tolist() == [0, 0, 0, 0]
    # the third title is empty: nothing but the language of all titles
    assert found[2, 8 + ABS :] == pytest.approx([log(1 / 3) + log(1 / 3)] * 3)


def test_bm25_as_published() -> None:
    indexed = IndexedDocuments.build([Document("1", "", "red fox red"), Document("2", "", "dog")], WORDS)
    value = indexed.features(["red"], [0], PUBLISHED)[0, BM25]
    assert value == pytest.approx(log(2 / 1) * (2 / 3) * 2.2 / (2 / 3 + 1.2))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("published", [log(10 / 4), log(10 / 10), log(10 / 0.5)]),
        ("smoothed", [log(1 + 6.5 / 4.5), log(1 + 0.5 / 10.5), log(1 + 10.5 / 0.5)]),
    ],
)
def test_inverse_document_frequencies(form, expected) -> None:
    statistics = FieldStatistics(10, np.array([4.0, 10.0, 0.0]), np.array([5.0, 10.0, 0.0]), 100)
    assert Features(idf=form).inverse_document_frequency(statistics) == pytest.approx(expected)


NUMBERS = st.floats(-50, 500, allow_nan=False)


@settings(max_examples=80)
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 300)), min_size=1, max_size=6),
    st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.integers(0, 100),
    st.sampled_from([Features(), PUBLISHED, Features(idf="published", b=0.0, idf_over="query")]),
    st.booleans(),
)
def test_any_estimates_give_finite_features(pairs, frequencies, documents, part, distinct) -> None:
    """Negative, fractional and impossible estimates, empty documents, empty fields."""
    counts, lengths = np.array([pair[:2] for pair in pairs]), np.array([pair[2] for pair in pairs])
    statistics = FieldStatistics(documents, frequencies[:2], frequencies[2:], documents * 7.5)
    found = of_field(counts, lengths, statistics, part, lengths / 2 if distinct else None)
    assert np.isfinite(found).all()
    assert (found[:, ABS:] <= 1e-12).all(), "a probability is at most 1"
    clamped = np.clip(counts, 0, lengths[:, None])
    assert np.array_equal(found, of_field(clamped, lengths, statistics, part, lengths / 2 if distinct else None))


@given(st.integers(0, 20), st.integers(1, 20), st.integers(20, 200))
def test_more_occurrences_are_never_worse(fewer, more, length) -> None:
    statistics = FieldStatistics(50, [5.0], [40.0], 5000.0, 3000.0)
    found = of_field([[fewer], [min(fewer + more, length)]], [length, length], statistics)
    assert (found[1] >= found[0]).all()


def test_statistics_of_parties_add_up_to_those_of_all_documents() -> None:
    documents = make_documents(60)
    together = IndexedDocuments.build(documents, WORDS)
    parties = [IndexedDocuments.build(documents[i::3], WORDS) for i in range(3)]
    terms = ["word0", "word33", "nowhere"]
    sums = [pooled(*fields) for fields in zip(*(p.statistics(terms) for p in parties), strict=True)]
    across = parties[1].features(terms, np.arange(20), statistics=(sums[0], sums[1]))
    assert across == pytest.approx(together.features(terms, np.arange(60)[1::3]))


def test_lengths_alone_give_a_likely_number_of_distinct_terms() -> None:
    indexed, _ = corpus()
    terms = indexed.body.term_ids(["word2"])
    statistics = indexed.body.statistics(terms)
    rows = np.arange(80)
    likely = statistics.likely_distinct(indexed.body.lengths[rows].astype(float))
    assert likely.sum() == pytest.approx(indexed.body.distinct.sum())
    counts = indexed.body.counts_of(rows, terms)
    guessed = of_field(counts, indexed.body.lengths, statistics)
    exact = of_field(counts, indexed.body.lengths, statistics, distinct=indexed.body.distinct)
    assert np.array_equal(np.delete(guessed, ABS, axis=1), np.delete(exact, ABS, axis=1))
    assert np.abs(guessed[:, ABS] - exact[:, ABS]).max() < 0.7


def test_wrong_shapes_are_refused() -> None:
    statistics = FieldStatistics(3, [1.0], [2.0], 12.0)
    for counts, lengths, sentence in (
        ([[1.0, 2.0]], [4], "one column for each of 1 terms"),
        ([[1.0]], [4, 5], "each of 2 documents"),
        ([[float("nan")]], [4], "finite"),
        ([[1.0]], [-4], "at least 0"),
    ):
        with pytest.raises(BadInput, match=sentence):
            of_field(counts, lengths, statistics)
    with pytest.raises(BadInput, match="same terms"):
        FieldStatistics(3, [1.0], [2.0, 3.0], 12.0)
    with pytest.raises(BadInput, match="same documents"):
        pair_features(FieldCounts([[1.0]], [4], statistics), FieldCounts([[1.0], [0.0]], [4, 4], statistics))
    with pytest.raises(BadInput, match="one query's terms"):
        pooled(statistics, FieldStatistics(3, [1.0, 1.0], [2.0, 2.0], 12.0))
