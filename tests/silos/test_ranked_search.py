"""A party's own search, and its own documents in a search of the group, in the order of the group's ranker."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quorank.rankers import Linear
from quorank.rankers.ranker_file import Origin, SavedRanker
from quorank.silos.generated import Generator
from quorank.silos.holdings import generated_holdings
from quorank.silos.search.in_process import SearchSession
from quorank.silos.search.settings import SearchTerms
from quorank.silos.training.lists import OwnSearch, PartySearch
from quorank.silos.training.ranked_search import RankedSearch, search_of_ranker
from quorank.text import FEATURE_NAMES, Features

SEARCHED = OwnSearch()
HOLDINGS = generated_holdings(Generator(parties=2, documents=60, queries=6, vocabulary=600))


def saved_ranker(theta: np.ndarray, searched: OwnSearch = SEARCHED) -> SavedRanker:
    names = searched.feature_names
    return SavedRanker(Linear(), len(names), theta, feature_names=names, origin=Origin("silo"))


def test_the_ranker_orders_the_lists_of_the_training() -> None:
    theta = np.random.default_rng(1).normal(size=18)
    search, ranked = (
        PartySearch(HOLDINGS[0], SEARCHED, Features()),
        RankedSearch(HOLDINGS[0], SEARCHED, saved_ranker(theta)),
    )
    data = search.lists(range(6), HOLDINGS[0].grades).data
    for query, terms in enumerate(HOLDINGS[0].queries):
        rows = data.rows_of(query)
        scores = data.features[rows] @ theta.astype(np.float32)
        wanted = [data.document_ids[rows.start + at] for at in np.argsort(-scores, kind="stable")]
        assert [HOLDINGS[0].documents.ids[row] for row, _ in ranked.ranked(terms)] == wanted


def test_bm25_alone_keeps_the_order_of_the_search_and_unknown_words_find_nothing() -> None:
    theta = np.zeros(18)
    theta[FEATURE_NAMES.index("BM25 of body")] = 1.0
    ranked, terms = RankedSearch(HOLDINGS[0], SEARCHED, saved_ranker(theta)), HOLDINGS[0].queries[0]
    rows, _ = PartySearch(HOLDINGS[0], SEARCHED, Features()).candidates(terms)
    assert [row for row, _ in ranked.ranked(terms)] == rows.tolist() and len(rows)
    assert ranked.ranked(("nowhere",)) == []


def test_other_features_are_no_search_of_a_group() -> None:
    assert search_of_ranker(saved_ranker(np.ones(18))) == SEARCHED
    assert search_of_ranker(saved_ranker(np.ones(16), OwnSearch(evidence=()))) == OwnSearch(evidence=())
    run = saved_ranker(np.ones(16), OwnSearch(evidence=()))
    assert search_of_ranker(replace(run, origin=Origin("run"))) is None, "of imported texts: other tokens"
    assert search_of_ranker(SavedRanker(Linear(), 3, np.ones(3))) is None


def test_own_documents_change_places_with_own_documents_only() -> None:
    session = SearchSession(HOLDINGS, SearchTerms(share=1.0, share_of_all=1.0))
    asker, owner = session.askers["A"], session.owners["B"]
    asked = asker.question(HOLDINGS[0].queries[0])
    answers = {"B": owner.answer("A", asked.sent)}
    plain = asker.ranked(asked, answers, 20)
    own = [each.number for each in plain if each.party == "A"]
    turned = asker.ranked(asked, answers, 20, own[::-1])
    assert [each.party for each in turned] == [each.party for each in plain]
    assert [each for each in turned if each.party == "B"] == [each for each in plain if each.party == "B"]
    assert [each.number for each in turned if each.party == "A"] == own[::-1] and len(own) > 1
    some = [each.number for each in asker.ranked(asked, answers, 20, own[-1:]) if each.party == "A"]
    assert some == [own[-1], *own[:-1]], "documents that the ranker has not scored keep the order of BM25"
