"""Whole trials: what the protocol answers, what is compared, and what the figures mean."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from quorank.errors import BadInput
from quorank.metrics.lists import err, ndcg
from quorank.silos.generated import Generator
from quorank.silos.holdings import FIELDS, generated_holdings
from quorank.silos.sketch.augmentation import Augment, ExactAnswers
from quorank.silos.sketch.cover import term_cover
from quorank.silos.sketch.published import (
    METHODS,
    PublishedSetting,
    RoundRobin,
    augment_parties,
    compare_methods,
    prepare_parties,
)
from quorank.silos.sketch.questions import QuestionProtocol, QuestionSession
from quorank.silos.sketch.reverse_top_k import Shape
from quorank.silos.training.comparison import ComparisonOutcome, PartySource, RepeatedComparison, compare_with_search
from quorank.silos.training.setting import SiloSetting

SMALL = Generator(parties=3, documents=150, queries=16, body=50, vocabulary=1500, topics=9, topic_terms=40)
QUICK = PublishedSetting(
    labelled=(3,), asked=5, tested=8, training=RoundRobin(turns=20, steps=20), augment=Augment(take=20, negatives=20)
)
SHAPE = Shape(rows=2, columns=4096, capacity=200, entries=100_000)
PARTIES = generated_holdings(SMALL, seed=2)
PREPARED = prepare_parties(PARTIES, QUICK, seed=2)
TERMS = [tuple(dict.fromkeys(t for q in PREPARED.asked(p) for t in PARTIES[p].queries[q])) for p in range(3)]


def body_cover(answers, k: int) -> float:
    """Mean share of the true top-K in bodies that answers name."""
    shares = []
    for asker, owner in permutations(range(3), 2):
        index = PARTIES[owner].documents.body
        for term in TERMS[asker]:
            counts = index.counts_of(np.arange(index.n_documents), index.term_ids([term]))[:, 0]
            if counts.any():
                shares.append(term_cover(counts, answers.answer(asker, owner, "body", term)[0], k))
    return float(np.mean(shares))


def test_a_session_without_noise_answers_as_exact_counts_do() -> None:
    """The sketch is wide enough for these documents: nearly all of the true top 20 come back with true counts."""
    heard = QuestionSession(PARTIES, QuestionProtocol("none", k=20, shape=SHAPE), seed=2)
    assert body_cover(heard, 20) > 0.97
    agreed = []
    for asker in range(3):
        for owner in range(3):
            if owner == asker:
                continue
            index = PARTIES[owner].documents.body
            assert heard.lengths(owner, "body").tolist() == index.lengths.tolist()
            for term in TERMS[asker]:
                documents, counts = heard.answer(asker, owner, "body", term)
                true = index.counts_of(documents, index.term_ids([term]))[:, 0]
                agreed += (counts == true).tolist()
    assert np.mean(agreed) > 0.95


def test_hiding_terms_changes_the_price_and_not_the_answer() -> None:
    plain, hidden = (
        QuestionSession(PARTIES, QuestionProtocol("none", k=20, among=among, shape=SHAPE), seed=2) for among in (1, 3)
    )
    for asker, owner, name in product(range(3), range(3), FIELDS):
        for term in TERMS[asker] if asker != owner else ():
            one, other = (each.answer(asker, owner, name, term) for each in (plain, hidden))
            assert one[0].tolist() == other[0].tolist()
    assert hidden.spent["questions"] == 3 * plain.spent["questions"]
    asked = sum(len(terms) for terms in TERMS)
    assert plain.spent["questions"] == asked * 2 * 2  # two fields, two other parties


def test_noise_costs_cover_and_is_the_seeds() -> None:
    covers = {}
    for kind in ("none", "published", "strict"):
        shape = replace(SHAPE, columns=64, entries=50_000)
        protocol = QuestionProtocol(kind, 0.5, k=20, among=1, shape=shape)
        heard, again = (QuestionSession(PARTIES, protocol, seed=2) for _ in range(2))
        one, other = (each.answer(0, 1, "body", TERMS[0][0]) for each in (heard, again))
        assert one[1].tolist() == other[1].tolist()
        covers[kind] = body_cover(heard, 20)
        if kind == "strict":
            assert heard.spent["epsilon"] == 0.5
        else:
            assert heard.spent["epsilon"] is None
    assert covers["none"] > covers["published"] > covers["strict"]


def test_cover_counts_ties_and_short_lists_fairly() -> None:
    """Exact answers cover everything, whichever of equal documents they name."""
    for k in (1, 5, 1000):
        assert body_cover(ExactAnswers(PARTIES, k), k) == 1.0
    assert 0.4 < body_cover(ExactAnswers(PARTIES, 5), 10) < 0.9


def test_figures_are_those_of_the_metrics_over_all_documents_of_the_party() -> None:
    lists, party, parts = PREPARED.tests[0], PARTIES[0], PREPARED.splits[0]
    test, theta = lists.data, np.random.default_rng(1).normal(size=16)
    found = lists.figures([theta])[0]
    values = {"err": [], "ndcg@10": [], "ndcg": []}
    for q, query in enumerate(parts.test[: QUICK.tested]):
        rows = test.rows_of(q)
        order = np.argsort(-(test.features[rows].astype(np.float32) @ theta.astype(np.float32)), kind="stable")
        labels, judged = test.labels[rows], np.array(list(party.grades[query].values()))
        values["err"].append(err(labels[order], len(labels), 2))
        values["ndcg@10"].append(ndcg(labels[order], judged, 10))
        values["ndcg"].append(ndcg(labels[order], judged, party.n_documents))
    assert found == pytest.approx({key: np.mean(v) for key, v in values.items()}, abs=2e-3)


def test_no_test_query_is_ever_trained_on_or_asked() -> None:
    for p, parts in enumerate(PREPARED.splits):
        assert not set(parts.test) & set(PREPARED.asked(p))
        assert not set(parts.test) & set(parts.labelled)
        trained = {name.split(":")[1] for name in PREPARED.own[p].data.query_ids}
        tested = {name.split(":")[1] for name in PREPARED.tests[p].data.query_ids}
        assert not trained & tested


def test_the_four_methods_are_what_they_are_called() -> None:
    """With nothing augmented, Local+ is Local and CS-F-LTR is Global; one party alone is all of them."""
    found = augment_parties(PREPARED, ExactAnswers(PARTIES, 20))
    outcome = compare_methods(PREPARED, found)
    nothing = replace(PREPARED, setting=replace(QUICK, augment=Augment(weights=(0.0,))))
    bare = compare_methods(nothing, found)
    assert bare.table["local+"] == bare.table["local"] == outcome.table["local"]
    assert bare.table["cs-f-ltr"] == bare.table["global"] == outcome.table["global"]
    assert outcome.table["cs-f-ltr"] != outcome.table["global"]
    one = replace(PREPARED, parties=PARTIES[:1], own=PREPARED.own[:1], splits=PREPARED.splits[:1])
    alone = compare_methods(one, augment_parties(one, ExactAnswers(PARTIES[:1], 20)))
    assert alone.table["local"] == alone.table["cs-f-ltr"] == alone.table["global"]
    rows = outcome.by_party["local"]
    mean = np.mean([row["ndcg@10"] for row in rows])
    assert outcome.table["local"]["ndcg@10"] == pytest.approx(mean)


def test_trials_repeat_and_sum_up() -> None:
    source, protocol = PartySource(parties=3, generator=SMALL), QuestionProtocol("published", 0.5, k=20, shape=SHAPE)

    def trial(seed: int) -> ComparisonOutcome:
        prepared = prepare_parties(source.holdings(seed), QUICK, seed)
        return compare_methods(prepared, augment_parties(prepared, prepared.answers(protocol)))

    results = [trial(seed) for seed in (1, 2)]
    assert trial(1).table == results[0].table
    figures = RepeatedComparison(results).as_dict()
    assert set(figures["table"]) == {"bm25", "w0", *METHODS}
    values = [[r.table[m]["ndcg@10"] for r in results] for m in ("cs-f-ltr", "global")]
    assert figures["table"]["cs-f-ltr"]["ndcg@10"] == pytest.approx(np.mean(values[0]))
    found = figures["significance"]["global"]
    assert found["difference"] == pytest.approx(np.mean(values[0]) - np.mean(values[1]))
    expected = stats.ttest_rel(*values).pvalue
    if found["difference"] != 0:
        assert found["p"] == pytest.approx(expected)
        assert found["corrected_p"] == pytest.approx(min(1.0, 5 * expected))
    assert set(figures["parties"]) == {"A", "B", "C"}


def test_a_trial_from_the_prior_repeats() -> None:
    setting = SiloSetting(labelled=(3,), tested=8)
    first, again = (compare_with_search(PARTIES, setting, 1) for _ in range(2))
    assert list(first.table) == ["bm25", "w0", "alone", "ours"]
    assert first.table == again.table


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SiloSetting(labelled=(0,)), "labelled"),
        (lambda: PublishedSetting(noise=(1.5,)), "noise"),
        (lambda: SiloSetting(test_share=1.0), "test_share"),
        (lambda: Augment(take=0), "take: must be at least 1"),
        (lambda: Augment(weights=(-1.0,)), "weights: must be 0 or more"),
        (lambda: QuestionProtocol(k=0), "k: must be at least 1"),
        (lambda: QuestionProtocol(epsilon=0.0), "epsilon: must be"),
        (lambda: PartySource(parties=1), "parties: must be at least 2"),
    ],
)
def test_settings_that_cannot_be(make, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()
