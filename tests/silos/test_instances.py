"""Parties, labels and instances against what they are defined as, counted by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.generated import Generator
from quorank.silos.holdings import divide_collections, generated_holdings, to_three_grades
from quorank.silos.sketch.augmentation import Augment, ExactAnswers, cross_features, find_candidates
from quorank.silos.sketch.instances import Instances, noisy_labels, own_rows, reference_grades, reference_scores
from quorank.silos.sketch.published import PublishedSetting, augmented_rows, prepare_parties
from quorank.silos.training.setting import divide_queries
from quorank.silos.training.statistics import exact_statistics, share_statistics
from quorank.text import Document, Features, Query, TextCollection, Tokeniser

SMALL = Generator(parties=3, documents=120, queries=20, body=40, vocabulary=1500, topics=9, topic_terms=40)
PARTIES = generated_holdings(SMALL, seed=4)
PLAIN = Tokeniser(stop_words="none")


def text_of(index, row: int) -> Counter:
    own = slice(index.offsets[row], index.offsets[row + 1])
    return Counter({index.vocabulary[t]: int(c) for t, c in zip(index.terms[own], index.counts[own], strict=True)})


def little_collection(documents: int = 40, queries: int = 12) -> TextCollection:
    words = [f"w{i}" for i in range(12)]
    random = np.random.default_rng(3)
    made = tuple(
        Document(f"d{i}", " ".join(random.choice(words, 2)), " ".join(random.choice(words, 9)))
        for i in range(documents)
    )
    asked = tuple(Query(f"q{i}", " ".join(random.choice(words, 3))) for i in range(queries))
    judged = {q.id: {f"d{d}": int(g) for d, g in enumerate(random.integers(0, 5, documents)) if g} for q in asked}
    return TextCollection("little", made, asked, judged)


def test_a_collection_is_dealt_out_once_and_whole() -> None:
    collection = little_collection()
    parties = divide_collections([collection], 4, seed=2, tokeniser=PLAIN)
    dealt = [id_ for party in parties for id_ in party.documents.ids]
    assert sorted(dealt) == sorted(d.id for d in collection.documents)
    assert sorted(q for party in parties for q in party.query_ids) == sorted(q.id for q in collection.queries)
    assert {party.n_documents for party in parties} == {10}
    for party in parties:
        for query, grades in zip(party.query_ids, party.grades, strict=True):
            expected = {
                party.documents.rows[d]: to_three_grades(g, 4)
                for d, g in collection.judgements[query].items()
                if d in party.documents.rows
            }
            assert grades == expected
    other = divide_collections([collection], 4, seed=3, tokeniser=PLAIN)
    assert [p.documents.ids for p in parties] != [p.documents.ids for p in other]
    with pytest.raises(BadInput, match="too few for 13 parties"):
        divide_collections([collection], 13)


def test_reference_labels_are_ranks_of_the_query_likelihood() -> None:
    """Against probabilities computed word by word over the documents of all parties."""
    terms, mu = PARTIES[0].queries[2], 50.0
    texts = [
        text_of(p.documents.body, d) + text_of(p.documents.title, d) for p in PARTIES for d in range(p.n_documents)
    ]
    total = sum(sum(text.values()) for text in texts)
    scores = reference_scores(PARTIES, terms, mu)
    for d in (0, 130, 359):
        if not any(texts[d][t] for t in terms):
            assert scores[d] == -np.inf
            continue
        expected = 0.0
        for t in terms:
            p = sum(text[t] for text in texts) / total
            expected += np.log((texts[d][t] + mu * p) / (sum(texts[d].values()) + mu))
        assert scores[d] == pytest.approx(expected)
    grades = reference_grades(PARTIES, mu)[0][2]
    best = [int(d) for d in np.argsort(-scores, kind="stable")[:20] if np.isfinite(scores[d])]
    assert grades == {d: 2 if rank < 2 else 1 for rank, d in enumerate(best) if d < 120}


@given(st.integers(1, 9), st.floats(0.1, 0.9), st.integers(0, 50))
def test_a_split_uses_every_query_once(labelled: int, share: float, seed: int) -> None:
    grades = [{0: 1} if q % 3 else {0: 0} for q in range(30)]
    parts = divide_queries((labelled,), share, grades, seed, 1)
    assert sorted(parts.labelled + parts.unlabelled + parts.test) == list(range(30))
    assert all(q % 3 for q in parts.labelled + parts.test)
    assert len(parts.test) == min(max(1, round(share * 20)), 19)
    assert len(parts.labelled) == min(labelled, 20 - len(parts.test))


def test_a_party_with_few_answered_queries_learns_first_and_tests_later() -> None:
    nothing = divide_queries((3,), 0.5, [{0: 0}, {}], 1, 0)
    assert (nothing.labelled, nothing.test, sorted(nothing.unlabelled)) == ((), (), [0, 1])
    one = divide_queries((3,), 0.5, [{0: 0}, {1: 1}], 1, 0)
    assert (one.labelled, one.test, one.unlabelled) == ((1,), (), (0,))


def test_own_lists_hold_all_that_is_relevant_with_exact_features() -> None:
    party, statistics = PARTIES[0], exact_statistics(PARTIES)
    queries = [0, 3, 5]
    rows = own_rows(party, queries, party.grades, statistics, Features(), 1, 0)
    for q, row in zip(queries, rows, strict=True):
        listed = [party.documents.rows[id_] for id_ in row.document_ids]
        assert listed == sorted(set(listed))
        assert {r for r, g in party.grades[q].items() if g} <= set(listed)
        assert set(party.documents.best(party.queries[q], 10).tolist()) <= set(listed)
        assert np.asarray(row.labels).tolist() == [party.grades[q].get(r, 0) for r in listed]
        d = listed[0]
        text = text_of(party.documents.body, d)
        assert row.features[0, 0] == sum(text.values())
        assert row.features[0, 1] == pytest.approx(sum(text[t] for t in party.queries[q]) / sum(text.values()))
    data = Instances.of(rows).data
    assert data.features.min() >= 0.0 and data.features.max() <= 1.0
    assert data.n_queries == 3


def test_bad_labels_are_other_labels_of_the_list_at_the_asked_rate() -> None:
    labels = np.array([0] * 4000 + [1] * 4000 + [2] * 2000)
    assert np.array_equal(noisy_labels(labels, 0.0, 1, 0, 0), labels)
    changed = noisy_labels(labels, 0.5, 1, 0, 0)
    same = 0.5 + 0.5 * (0.4**2 + 0.4**2 + 0.2**2)
    assert (changed == labels).mean() == pytest.approx(same, abs=0.02)
    assert np.bincount(changed) / 10_000 == pytest.approx([0.4, 0.4, 0.2], abs=0.02)


def test_candidates_hold_the_counts_of_all_answers() -> None:
    answers = ExactAnswers(PARTIES, k=10)
    terms = PARTIES[0].queries[1]
    found = find_candidates(answers, 0, 2, terms)
    owner = PARTIES[2].documents
    named = set()
    for t, term in enumerate(terms):
        for index, counts in ((owner.body, found.body), (owner.title, found.title)):
            documents, _ = index.top(int(index.term_ids([term])[0]), 10)
            named |= set(documents.tolist())
            for place, d in enumerate(found.documents):
                assert counts[place, t] == (text_of(index, int(d))[term] if d in documents else 0)
    assert set(found.documents.tolist()) == named


def test_features_across_parties_are_the_owners_when_counts_are_exact() -> None:
    """All terms found everywhere (K beyond the documents): what crosses gives the owner's own features."""
    statistics, terms = exact_statistics(PARTIES), PARTIES[0].queries[4]
    answers = ExactAnswers(PARTIES, k=1000)
    found = find_candidates(answers, 0, 1, terms)
    across = cross_features(
        found, (answers.lengths(1, "body"), answers.lengths(1, "title")), statistics(terms), Features()
    )
    own = PARTIES[1].documents.features(terms, found.documents, Features(), statistics(terms))
    without_distinct = [c for c in range(16) if c not in (5, 13)]  # LMIR.ABS needs distinct terms, which do not cross
    assert across[:, without_distinct] == pytest.approx(own[:, without_distinct])


def test_augmented_lists_rank_what_was_found_and_add_what_was_not() -> None:
    statistics, answers = exact_statistics(PARTIES), ExactAnswers(PARTIES, k=30)
    setting = PublishedSetting(augment=Augment(take=12, negatives=7))
    row = augmented_rows(prepare_parties(PARTIES, setting, 1, statistics), answers, 0, 1, 3)
    assert row is not None
    labels, documents = np.asarray(row.labels), np.array(row.document_ids).astype(int)
    found = find_candidates(answers, 0, 1, PARTIES[0].queries[3])
    assert set(documents[labels > 0]) <= set(found.documents.tolist())
    assert not set(documents[labels == 0]) & set(found.documents.tolist())
    assert (labels > 0).sum() == 12 and (labels == 2).sum() == 2 and (labels == 0).sum() <= 7
    scores = cross_features(
        found, (answers.lengths(1, "body"), answers.lengths(1, "title")), statistics(PARTIES[0].queries[3])
    )[:, [4, 12]].sum(axis=1)
    limit = np.sort(scores)[-12]
    assert set(found.documents[scores > limit].tolist()) <= set(documents[labels > 0])


def test_shared_statistics_are_the_sums_over_all_parties() -> None:
    """Wide tables make collisions rare: most terms are exact, and none is below the truth."""
    shared, exact = share_statistics(PARTIES), exact_statistics(PARTIES)
    terms = PARTIES[0].documents.body.vocabulary[:300]
    for found, true in zip(shared(terms), exact(terms), strict=True):
        assert (found.document_frequency >= true.document_frequency).all()
        assert (found.collection_frequency >= true.collection_frequency).all()
        assert (found.document_frequency == true.document_frequency).mean() > 0.95
        assert found.documents == true.documents == 360
        assert found.collection_length == true.collection_length
        assert found.distinct_total == true.distinct_total


def test_statistics_with_noise_are_near_the_sums() -> None:
    shared, exact = (share_statistics(PARTIES, epsilon=2.0, seed=3), exact_statistics(PARTIES))
    terms = PARTIES[0].documents.body.vocabulary[:300]
    error = shared(terms)[0].document_frequency - exact(terms)[0].document_frequency
    assert 0.5 < np.abs(error).mean() < 15.0
    assert shared.epsilon == 2.0
