"""Candidates and likeness against quorank.text, and against bands worked out document by document."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from indexed_things import TOKENISER, counted, faults, fill, indexed, made_up_things, thing

from quorank.search.index import SearchCandidates, SearchIndex, likeness, parse_query, search_index
from quorank.search.sources.source import FoundDocument
from quorank.text import Document, IndexedDocuments
from quorank.text.feedback import Feedback
from quorank.text.tokens import normalised_words

QUERIES = [
    "wa0a", "wb1bing wc2c", "we4es wf5fed wg6g", "wh7a the wh7as", "wa0a wa0a", "absent wb1b", "absent", "wl115d wi8b",
    "wa0a wb1b wc2c wd3d we4e wf5f wg6g",
]  # fmt: skip


def words_of(text: str) -> list[str]:
    return normalised_words(text).decode().split()


def terms_of(*texts: str) -> set[str]:
    return {term for text in texts for term in TOKENISER.tokenise(text)}


def band_of(query: str, one: FoundDocument) -> int:
    """The band of plain words, by the rule: exact name or title, beginning of them, all words, some words, none (4)."""
    words, stem = words_of(query), one.name.rpartition(".")[0]
    beginnings = [words_of(text)[: len(words)] for text in (one.name, one.title)]
    if words in [words_of(text) for text in (one.name, stem, one.title)]:
        return 0
    if words in beginnings:
        return 1
    wanted = [terms_of(word) <= terms_of(one.title, one.body, one.name) for word in words if terms_of(word)]
    return 2 if all(wanted) else 3 if any(wanted) else 4


def assert_as_counted(things: list[FoundDocument], index: SearchIndex, query: str) -> None:
    found = index.find(parse_query(query), 10_000)
    assert found.near == ()
    reference = counted(things)
    rows = [reference.rows[key] for key in found.keys]
    expected = reference.features(TOKENISER.tokenise(query), rows)
    np.testing.assert_allclose(found.features, expected, rtol=1e-9, atol=1e-9)
    bands = {one.key: band for one in things if (band := band_of(query, one)) < 4}
    assert dict(zip(found.keys, found.bands.tolist(), strict=True)) == bands
    assert found.found == len(bands)
    bm25 = dict(zip(found.keys, expected[:, 4].tolist(), strict=True))
    time = {one.key: one.modified for one in things}
    ranks = [(bands[key], -round(bm25[key], 9), -time[key]) for key in found.keys]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("query", QUERIES)
def test_features_and_bands_are_those_of_quorank_text(made_up: SearchIndex, query: str) -> None:
    assert_as_counted(made_up_things(400), made_up, query)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory):
    with indexed(tmp_path_factory.mktemp("home"), made_up_things(400)) as index:
        yield index


def test_statistics_stay_right_after_changes_removals_and_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 7 documents, so that segments are merged again and again; each state against a fresh count."""
    monkeypatch.setattr(search_index, "BATCH_DOCUMENTS", 7)
    random = np.random.default_rng(4)
    things = {one.key: one for one in made_up_things(150)}
    others = made_up_things(150, seed=2)
    with indexed(tmp_path, things.values()) as index:
        for step in range(4):
            for key in random.permutation([*things])[:30].tolist():
                del things[key]
            for key in random.permutation([*things])[:20].tolist():
                things[key] = thing(key, others[step].body + key, title=others[step].title, modified=float(step))
            things |= {one.key + "new": thing(one.key + "new", one.body) for one in others[step * 25 : step * 25 + 25]}
            fill(index, things.values())
            for query in QUERIES:
                assert_as_counted([*things.values()], index, query)
            assert vocabulary(index) == counted_words([*things.values()])
        assert faults(index) == []
        before = [index.find(parse_query(query)) for query in QUERIES]
        with closing(sqlite3.connect(index.path)) as database, database:
            database.execute("UPDATE facts SET value = '' WHERE name = 'stamp'")
        fill(index, things.values())  # it is built again
        assert faults(index) == []
        assert all(same(a, index.find(parse_query(query))) for a, query in zip(before, QUERIES, strict=True))


def vocabulary(index: SearchIndex) -> dict[str, int]:
    with closing(sqlite3.connect(index.path)) as database:
        return dict(database.execute("SELECT term, doc FROM vocabulary"))


def counted_words(things: list[FoundDocument]) -> dict[str, int]:
    """Word → documents that hold it."""
    return Counter(word for t in things for word in {*words_of(t.name), *words_of(t.title), *words_of(t.body)})


def same(one: SearchCandidates, other: SearchCandidates) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in vars(one))


def test_a_cut_list_is_the_beginning_of_the_whole_one(made_up: SearchIndex) -> None:
    for query in QUERIES:
        whole, cut = (made_up.find(parse_query(query), size) for size in (10_000, 7))
        assert cut.keys == whole.keys[:7]
        assert cut.found == whole.found
        np.testing.assert_array_equal(cut.features, whole.features[:7])


def test_names_are_never_lost_behind_better_scores(tmp_path: Path) -> None:
    """The word is in 300 bodies many times; the file of that name has another text, and so have those that begin so."""
    things = [thing(f"{n}", "budget " * 30 + "plan", title=f"about {n}", modified=100.0 + n) for n in range(300)]
    things += [
        thing("a/Budget.ods", "numbers"),
        thing("b/x", "letters", title="Budget"),
        thing("c/Budget 2024.txt", "x"),
    ]
    things += [thing("d/y", "no", title="Budget of the town"), thing("e/budgetary.txt", "no")]
    with indexed(tmp_path, [one if "/" not in one.key else named(one) for one in things]) as index:
        found = index.find(parse_query("budget"), 10)
        assert {*found.keys[:2]} == {"a/Budget.ods", "b/x"}
        assert {*found.keys[2:4]} == {"c/Budget 2024.txt", "d/y"}
        assert found.bands.tolist() == [0, 0, 1, 1] + [2] * 6
        assert found.title_is_query.tolist() == [key == "b/x" for key in found.keys]
        typed = index.find(parse_query("budget", typing=True), 10)
        assert {*typed.keys[2:5]} == {"c/Budget 2024.txt", "d/y", "e/budgetary.txt"}
        assert index.find(parse_query("BUDGET.ODS"), 1).keys == ("a/Budget.ods",)
        assert index.find(parse_query("budget type:ods"), 5).keys == ("a/Budget.ods",)


def named(one: FoundDocument) -> FoundDocument:
    return thing(one.key, one.body, title=one.title, name=one.key.partition("/")[2], modified=one.modified)


LETTERS = [
    thing("1", "The annual report of the heating department", title="Report", name="report.pdf", modified=1e9),
    thing("2", "A report that is not annual: heat and heated rooms", title="Rooms", name="rooms.txt", modified=1.1e9),
    thing("3", "Heathens reported nothing", title="Annual", name="annual report.txt", modified=1.2e9),
    thing("4", "Nothing at all, to be or not to be", title="Hamlet", name="hamlet.txt", modified=1.3e9),
    thing("5", "漢字の本 Straße naïve cafe\u0301", title="Ünïcode", name="ünïcode.md", modified=1.4e9),
]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ('"annual report"', {"1", "3"}),
        ('"report annual"', set()),
        ('"not to be"', {"4"}),
        ("to be", {"4"}),
        ('heat "annual report"', {"1", "3"}),
        ("title:annual", {"3"}),
        ("title:report", {"1"}),
        ("name:report", {"1", "3"}),
        ("name:report heating", {"1", "3"}),
        ("heat*", {"1", "2", "3"}),
        ("heathe*", {"3"}),
        ("heat", {"1", "2"}),
        ("title:an*", {"3"}),
        ("type:txt report", {"2", "3"}),
        ("type:PDF", {"1"}),
        ("source:folder hamlet", {"4"}),
        ("source:mail hamlet", set()),
        ("before:2002 report", {"1"}),
        ("after:2008", {"3", "4", "5"}),
        ("strasse", {"5"}),
        ("STRASSE CAFÉ", {"5"}),
        ("字", {"5"}),
        ('"漢字"', {"5"}),
        ('"字漢"', set()),
        ("", set()),
        ('"" * : title: "', set()),
        ('report" AND (NEAR OR NOT', {"1", "2", "3"}),
    ],
)
def test_operators(letters: SearchIndex, query: str, keys: set[str]) -> None:
    assert {*letters.find(parse_query(query)).keys} == keys


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory):
    with indexed(tmp_path_factory.mktemp("home"), LETTERS) as index:
        yield index


@pytest.mark.parametrize(
    ("query", "keys"),
    [("hea", {"1", "2", "3"}), ("annual rep", {"1", "2", "3"}), ("h", {"4"}), ("report o", {"1", "2", "3"})],
)
def test_a_word_that_is_being_typed_stands_for_its_completions(
    letters: SearchIndex, query: str, keys: set[str]
) -> None:
    found = letters.find(parse_query(query, typing=True))
    assert {*found.keys} == keys
    assert (found.bands < 3).all()


def test_places_of_matches(letters: SearchIndex) -> None:
    found = letters.find(parse_query("report heating"))
    by_key = {key: (int(a), int(b)) for key, a, b in zip(found.keys, found.first_match, found.match_span, strict=True)}
    # "Report | The annual report of the heating", "Rooms | A report that is not annual heat", "Annual | Heathens reported"
    assert by_key == {"1": (0, 7), "2": (2, 6), "3": (2, 1)}


def test_what_a_ranker_is_told_of_a_document(tmp_path: Path) -> None:
    page = FoundDocument("k", "f", "https://example.org/a/b.html", "T", "example.org/b.html", "x", 5.0, (9.0, 7.0))
    with SearchIndex.open(tmp_path) as index:
        fill(index, [page], index.add_source({"kind": "firefox"}, "Firefox of Ada"))
        fill(index, [thing("deep/er/file.txt", "x")])
        found = index.find(parse_query("source:firefox x"))
        assert (found.kinds, found.visits) == (("firefox",), ((9.0, 7.0),))
        assert (found.depths.tolist(), found.titles, found.names) == ([2], ("T",), ("example.org/b.html",))
        assert index.find(parse_query('source:"firefox')).keys == ("k",)
        assert index.find(parse_query("type:txt")).depths.tolist() == [4]  # /people/person/deep/er


def test_names_with_a_typo(tmp_path: Path) -> None:
    names = ["annual report.pdf", "holidays.txt", "cat.txt", "invoice.txt", "rapport.txt"]
    with indexed(
        tmp_path, [thing(f"{n}", "plain", name=name, modified=float(n)) for n, name in enumerate(names)]
    ) as index:
        assert index.find(parse_query("repotr")).keys == ()  # two letters exchanged: a distance of 2, of 6 letters
        found = index.find(parse_query("reprt"))
        assert (found.keys, found.bands.tolist(), found.near) == (("0",), [3], ("report",))
        assert index.find(parse_query("anual reprt")).keys == ("0",)
        assert index.find(parse_query("hollidais")).keys == ("1",)
        assert index.find(parse_query("cart")).keys == ("2",)
        assert index.find(parse_query("cta")).keys == ()
        assert index.find(parse_query("invoize type:pdf")).keys == ()
    many = [thing(f"many/{n}", "reprt") for n in range(3)]
    with indexed(tmp_path / "other", [*many, thing("x", "plain", name="report.pdf")]) as index:
        assert len(index.find(parse_query("reprt"))) == 3


def expected_likeness(things: list[FoundDocument], query: str) -> dict[str, float]:
    """Σ_t p̂(t)·BM25(t, d) by key: the expanded query with α = 1, which leaves nothing of the query itself."""
    documents = [Document(one.key, one.title, one.body) for one in things]
    index = IndexedDocuments.build(documents, TOKENISER, whole=True).body
    terms = index.term_ids(TOKENISER.tokenise(query))
    feedback = Feedback(likeness.DOCUMENTS, likeness.TERMS, share=1.0)
    scores = feedback.scores(index, terms, index.bm25(np.unique(terms)))
    return {one.key: float(score) for one, score in zip(things, scores, strict=True)}


def assert_like(index: SearchIndex, things: list[FoundDocument], query: str) -> None:
    found = index.find(parse_query(query), 10_000)
    assert len(found) > likeness.DOCUMENTS
    wanted = expected_likeness(things, query)
    np.testing.assert_allclose(found.likeness, [wanted[key] for key in found.keys], rtol=1e-9, atol=1e-12)


def test_likeness_is_the_feedback_of_quorank_text(tmp_path: Path) -> None:
    things = made_up_things(200)
    with indexed(tmp_path, things) as index:
        for query in ("wb1bing wc2c", "we4es wf5fed wg6g"):
            assert_like(index, things, query)


def test_without_words_nothing_is_like_anything(tmp_path: Path) -> None:
    with indexed(tmp_path, [thing(f"{n}", "rose", modified=float(n)) for n in range(5)]) as index:
        assert index.find(parse_query("since:1d"), 10).likeness.tolist() == [0.0] * len(
            index.find(parse_query("since:1d"))
        )
        found = index.find(parse_query("rose"), 10)
        assert found.likeness == pytest.approx(found.likeness[0])
