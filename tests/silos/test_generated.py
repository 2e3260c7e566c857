"""Generated parties: the distributions that they are said to follow, and draws that depend on their address alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from quorank.silos.generated import Generator, alias_table, pick, zipf

SMALL = Generator(parties=3, documents=300, queries=40, body=80, vocabulary=2000, topics=12, topic_terms=40)


def test_the_alias_table_is_the_distribution() -> None:
    """Exactly: the share of [0, 1) that leads to each outcome is its probability."""
    probabilities = zipf(50, 1.1)
    accept, other = alias_table(probabilities)
    share = accept / 50
    for i in range(50):
        share[other[i]] += (1.0 - accept[i]) / 50
    assert share == pytest.approx(probabilities)
    draws = (np.arange(100_000) + 0.5) / 100_000
    counts = np.bincount(pick(draws, accept, other), minlength=50)
    assert counts / 100_000 == pytest.approx(probabilities, abs=1e-3)


def test_counts_add_up_to_lengths_near_the_mean() -> None:
    party = SMALL.party(0)
    for terms, mean in ((party.body, SMALL.body), (party.title, SMALL.title)):
        lengths = np.add.reduceat(terms.counts, terms.offsets[:-1])
        assert terms.counts.min() >= 1 and terms.terms.max() < SMALL.vocabulary
        assert lengths.min() >= 1
        assert lengths.mean() == pytest.approx(mean, rel=0.08)
        for d in (0, 17, 299):
            own = terms.terms[terms.offsets[d] : terms.offsets[d + 1]]
            assert (np.diff(own) > 0).all()


def test_common_words_follow_zipf() -> None:
    """Without topics and repetition, every word is drawn from the law itself: chi-square."""
    plain = replace(SMALL, about=0.0, repeat=0.0, documents=2000)
    body = plain.party(1).body
    seen = np.zeros(plain.vocabulary)
    np.add.at(seen, body.terms, body.counts)
    expected = zipf(plain.vocabulary, plain.exponent) * seen.sum()
    assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_topics_take_their_shares() -> None:
    """With nothing but topics and no repetition, the main topic's share of the words is the document's."""
    pure = replace(SMALL, about=1.0, repeat=0.0, body=400, topic_terms=20, vocabulary=50_000)
    table, party = pure.topic_table(1), pure.party(0)
    terms, counts, offsets = party.body.terms, party.body.counts, party.body.offsets
    z = []
    for d in range(300):
        own = slice(offsets[d], offsets[d + 1])
        in_main = np.isin(terms[own], table[party.main[d]])
        n, hits, share = counts[own].sum(), counts[own][in_main].sum(), party.share[d]
        if share < 1.0 and not np.isin(table[party.main[d]], table[party.second[d]]).any():
            z.append((hits - n * share) / np.sqrt(n * share * (1 - share)))
    assert len(z) > 200
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_overlap_decides_whose_topics_a_party_has() -> None:
    for overlap in (0.0, 0.4, 1.0):
        party = replace(SMALL, overlap=overlap, documents=3000).party(1)
        own = (party.main % 3 == 1).mean()
        assert own == pytest.approx((1 - overlap) + overlap / 3, abs=0.03)


def test_grades_follow_the_mixture_alone() -> None:
    party = SMALL.party(2)
    topic = int(party.query_topics[0])
    grades = party.grades(topic, strong=0.75, weak=0.3)
    for d in range(300):
        has = (party.main[d] == topic) * party.share[d] + (party.second[d] == topic) * (1 - party.share[d])
        assert grades[d] == (2 if has >= 0.75 else 1 if has >= 0.3 else 0)
    assert set(grades) == {0, 1, 2}


def test_queries_are_different_terms_of_their_topic() -> None:
    table, party = SMALL.topic_table(1), SMALL.party(0)
    for terms, topic in zip(party.queries, party.query_topics, strict=True):
        assert len(set(terms)) == SMALL.query_terms
        assert np.isin(terms, table[topic]).all()


def test_a_document_is_the_same_whatever_else_is_made() -> None:
    few, many = replace(SMALL, documents=50).party(1, seed=9), replace(SMALL, documents=200).party(1, seed=9)
    last = few.body.offsets[50]
    assert many.body.offsets[50] == last
    assert few.body.terms.tolist() == many.body.terms[:last].tolist()
    assert few.queries[3].tolist() == many.queries[3].tolist()
    other = replace(SMALL, documents=50).party(1, seed=10)
    assert other.body.terms[:100].tolist() != few.body.terms[:100].tolist()
