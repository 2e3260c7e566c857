"""Asker of a search: decoys that are keyed and stable, answers read by the posterior, and attacks within their bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

from quorank.silos.envelopes import Catalogue
from quorank.silos.generated import Generator
from quorank.silos.holdings import Holding, divide_collections, generated_holdings, party_name
from quorank.silos.search.asker import SearchAsker
from quorank.silos.search.attack import anchor_attack, dictionary_attack, dictionary_of, probe_attack, without_budgets
from quorank.silos.search.decoys import CoherentDecoys, ordered_bundles
from quorank.silos.search.in_process import SearchSession, search_hashing, search_in_process
from quorank.silos.search.messages import SearchQuestion
from quorank.silos.search.settings import SearchTerms
from quorank.silos.sketch.questions import published_attack
from quorank.silos.training.statistics import exact_statistics
from quorank.text import IndexedDocuments, Tokeniser
from quorank.text.collection import Document, TextCollection

GENERATOR = Generator(parties=3, documents=120, queries=16, body=60, vocabulary=1600, topics=20, topic_terms=60)
HOLDINGS = generated_holdings(GENERATOR, 1)
STATISTICS = exact_statistics(HOLDINGS)
QUERIES = [query for holding in HOLDINGS for query in holding.queries]
KEY = bytes(range(32))


def decoys_of(key: bytes = KEY) -> CoherentDecoys:
    index = HOLDINGS[0].documents.body
    others = STATISTICS(index.vocabulary)[0].document_frequency - index.document_frequency
    return CoherentDecoys(key, index, others, 3)


def bundles_of(made: CoherentDecoys, terms: tuple[str, ...]) -> list[tuple[str, ...]]:
    return made.bundles(terms, STATISTICS(terms)[0].document_frequency)


def asker_of(terms=None, key: bytes = KEY, kept=None) -> SearchAsker:
    chosen = terms or SearchTerms()
    return SearchAsker(HOLDINGS[0], search_hashing(1, chosen), key, chosen, STATISTICS, kept)


# ---------------------------------------------------------------- decoys


def test_decoys_are_keyed_stable_and_share_no_term() -> None:
    one, again, other = decoys_of(), decoys_of(), decoys_of(bytes(32))
    differ = 0
    for query in QUERIES[:10]:
        terms = tuple(sorted(set(query)))
        bundles = bundles_of(one, terms)
        assert bundles == bundles_of(again, terms)
        differ += bundles != bundles_of(other, terms)
        assert [len(bundle) for bundle in bundles] == [len(terms)] * 2
        words = [word for bundle in (terms, *bundles) for word in bundle]
        assert len(set(words)) == len(words)
    assert differ >= 8


def test_decoys_have_like_frequencies() -> None:
    made = decoys_of()
    distances = []
    for query in QUERIES[:20]:
        terms = tuple(sorted(set(query)))
        levels = [np.sort(np.log(STATISTICS(b)[0].document_frequency + 0.5)) for b in (terms, *bundles_of(made, terms))]
        distances += [np.abs(levels[0] - each).mean() for each in levels[1:]]
    assert np.mean(distances) < 0.8


def test_queries_stand_in_every_place_alike() -> None:
    places = [ordered_bundles(KEY, (f"a{n}",), [(f"b{n}",), (f"c{n}",)])[1] for n in range(600)]
    counts = np.bincount(places, minlength=3)
    assert counts.min() > 160  # 200 expected, of deviation 11.5


def topical(seed: int, topics: int = 12, words: int = 12) -> IndexedDocuments:
    """Documents about one topic each, all topics with as many words of their own."""
    random = np.random.default_rng(seed)
    texts = []
    for number in range(10 * topics):
        own = [f"t{number % topics}w{word}" for word in random.choice(words, 8, replace=False)]
        texts.append(Document(f"d{number}", "", " ".join(own)))
    return IndexedDocuments.build(texts, Tokeniser(stop_words="none"))


def test_terms_of_coherent_decoys_belong_together_and_are_guessed_less() -> None:
    """Where every document has one topic: so are a decoy's terms, and the owner cannot tell which is meant."""
    mine, theirs = topical(1), topical(2)
    queries = [
        tuple(f"t{topic}w{word}" for word in (first, first + 1, first + 2)) for topic in range(12) for first in (0, 4)
    ]
    made = CoherentDecoys(KEY, mine.body, mine.body.document_frequency.astype(float), 3)
    bundles = [made.bundles(q, mine.body.document_frequency[mine.body.term_ids(q)]) for q in queries]
    topics = [len({word.split("w")[0] for word in decoy}) == 1 for each in bundles for decoy in each]
    questions = [ordered_bundles(KEY, query, each) for query, each in zip(queries, bundles, strict=True)]
    assert np.mean(topics) > 0.9
    right = []
    for offered, place in questions:  # the owner guesses the bundle of which one document holds most
        held = [theirs.body.counts_of(range(120), theirs.body.term_ids(bundle)) > 0 for bundle in offered]
        best = np.array([each.sum(axis=1).max() for each in held])
        right.append((best[place] == best.max()) / (best == best.max()).sum())
    assert np.mean(right) < 0.7


def test_the_same_query_has_the_same_bytes_in_any_order_of_words() -> None:
    first, second = asker_of(), asker_of()
    for query in QUERIES[:5]:
        asked, again = first.question(query), second.question([*reversed(query), query[0]])
        assert asked == again
        assert set(asked.bundles[asked.place]) == set(query)
        columns = SearchQuestion.from_bytes(asked.sent, "A", SearchTerms()).bundles
        assert all(list(bundle) == sorted(bundle) for bundle in columns)  # the order of words does not show


def test_a_reworded_query_keeps_its_decoys_word_for_word() -> None:
    """A term dropped, a term added: every bundle changes by as many words, so none stands out as the one that stays."""
    asker = asker_of()
    for number, query in enumerate(QUERIES[:6]):
        terms = tuple(sorted(set(query)))
        first = asker.question(terms)
        for changed in (terms[1:], (*terms, f"new{number}"), (*terms[1:], f"other{number}")):
            second = asker.question(changed)
            shared = [max(len(set(one) & set(other)) for other in second.bundles) for one in first.bundles]
            assert shared == [len(set(terms) & set(changed))] * 3
            words = [word for bundle in second.bundles for word in bundle]
            assert len(set(words)) == len(words)
        assert asker.question(terms) == first


def test_kept_decoys_outlive_the_documents_they_came_from() -> None:
    kept: dict = {}
    asked = asker_of(kept=kept).question(QUERIES[0])
    terms = SearchTerms()
    moved = SearchAsker(replace(HOLDINGS[2], name="A"), search_hashing(1, terms), KEY, terms, STATISTICS, kept)
    assert moved.question(QUERIES[0]).sent == asked.sent


def test_questions_that_cannot_be_asked() -> None:
    with refused("silo-search.no-term"):
        asker_of().question([])
    with refused("silo-search.too-long"):
        asker_of().question([f"w{number}" for number in range(129)])
    long = asker_of().question([f"w{number}" for number in range(128)])  # longer than any document
    assert [len(bundle) for bundle in long.bundles] == [128] * 3
    few = IndexedDocuments.build([Document("d", "", "one two three")], Tokeniser(stop_words="none"))
    terms = SearchTerms()
    empty = IndexedDocuments.build([], Tokeniser(stop_words="none"))
    for documents in (few, empty):
        with refused("silo-search.no-decoys"):
            SearchAsker(Holding("A", documents, (), (), ()), search_hashing(1, terms), KEY, terms, STATISTICS).question(
                ["four", "five"]
            )
    assert len(asker_of(SearchTerms(among=1)).question(["one"]).bundles) == 1


# ---------------------------------------------------------------- reading


def test_without_noise_and_limits_a_search_finds_what_one_index_would() -> None:
    """k so large that every document is named: scores are BM25 of all documents together."""
    terms = SearchTerms("none", k=100, among=1, share=1.0, share_of_all=1.0, share_of_document=1.0)
    session = SearchSession(HOLDINGS, terms, statistics=STATISTICS)
    query = QUERIES[3]
    found = session.search("A", query, top=20)
    expected = []
    for holding in HOLDINGS:
        one = SearchAsker(holding, search_hashing(1, terms), KEY, terms, STATISTICS)
        expected += [(each.score, holding.name) for each in one.own(sorted(set(query)))]
    best = sorted(expected, key=lambda pair: -pair[0])[:20]
    assert np.allclose(
        [each.score for each in found.found], [score for score, _ in best], rtol=1e-2
    )  # a cell of 1 may be a collision
    assert not found.refused


def test_a_search_is_a_function_of_its_seed_and_tells_what_it_cost() -> None:
    query = " ".join(QUERIES[0])
    one, again = (search_in_process(HOLDINGS, "A", query, seed=3) for _ in range(2))
    assert one == again
    assert one.found != search_in_process(HOLDINGS, "A", query, seed=4).found
    assert {each.party for each in one.found} - {"A"}
    assert all((each.id is not None) == (each.party == "A") for each in one.found)
    assert set(one.parties) == {"B", "C"}
    told = one.parties["B"]
    assert 0 < told["entries"] <= told["most_entries"] and told["privacy"]["epsilon"] == 8.0
    assert one.to_table()["found"][0]["why"] == one.found[0].why != ""
    with refused("silo-group.unknown-party"):
        search_in_process(HOLDINGS, "Z", query)


def test_an_owner_that_refuses_is_named_and_the_others_are_ranked() -> None:
    session = SearchSession(HOLDINGS, SearchTerms(questions_a_day=1), statistics=STATISTICS)
    session.search("A", QUERIES[0])
    session.owners["C"].ledger.rows("DELETE FROM days")
    result = session.search("A", QUERIES[1])
    assert set(result.refused) == {"B"} and {each.party for each in result.found} & {"C"}


def test_answers_about_unknown_documents_and_before_a_catalogue_are_refused() -> None:
    session = SearchSession(HOLDINGS, statistics=STATISTICS)
    asker, asked = session.askers["A"], session.askers["A"].question(QUERIES[0])
    answer = session.owners["B"].answer("A", asked.sent)
    fresh = asker_of()
    with refused("silo-search.no-catalogue"):
        fresh.read(asked, answer, "B")
    asker.receive_catalogue("B", Catalogue(np.array([9999], dtype=np.int32), np.array([5], dtype=np.int32)).to_bytes())
    with refused("silo-search.unknown-document"):
        asker.read(asked, answer, "B")


# ---------------------------------------------------------------- attacks


def test_a_dictionary_rebuilds_less_than_a_twentieth_and_of_the_published_form_nearly_all() -> None:
    frequent, rare = dictionary_of(HOLDINGS, 1000)
    terms = SearchTerms()
    for words in (frequent, rare):
        outcome = dictionary_attack(HOLDINGS[0], words, terms)
        assert outcome.refused and outcome.recovered < 0.05
    document = anchor_attack(HOLDINGS[0], frequent, terms)
    assert document.recovered < 0.05 and document.document < 0.35
    assert dictionary_attack(HOLDINGS[0], frequent, terms, members=2).recovered < 0.05
    free = dictionary_attack(HOLDINGS[0], frequent[:300], without_budgets(terms))
    assert not free.refused and free.recovered > 0.10  # it is the budget that holds
    published = published_attack(HOLDINGS, 0, 1, dictionary_of(HOLDINGS, 10**6)[0])
    assert published.recovered > 0.9 and published.precision > 0.9


@pytest.mark.parametrize("spend", [True, False])
def test_limits_that_are_reached_tell_nothing(spend: bool) -> None:
    """Refusals of a spent budget, and documents at their limit, show no word that they hide."""
    frequent, _ = dictionary_of(HOLDINGS, 1000)
    outcome = probe_attack(HOLDINGS[0], frequent, SearchTerms(), probes=3000, spend=spend)
    assert outcome.recovered < 0.05


# ---------------------------------------------------------------- parties


def test_collections_without_queries_are_dealt_out() -> None:
    documents = tuple(Document(f"d{number}", "", f"word{number} common") for number in range(10))
    dealt = divide_collections([TextCollection("one", documents)], 3, queries=False)
    assert [each.name for each in dealt] == ["A", "B", "C"]
    assert sorted(id_ for each in dealt for id_ in each.documents.ids) == sorted(d.id for d in documents)
    with refused("collection.too-small", "one"):
        divide_collections([TextCollection("one", documents[:1])], 3, queries=False)
    several = divide_collections(
        [TextCollection("annual reports", documents), TextCollection("b", documents)], queries=False
    )
    assert [each.name for each in several] == ["annual-reports", "b"]
    assert party_name("…") == "party"
