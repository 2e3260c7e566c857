"""Owner of a search: noise that stays, answers from noisy cells alone, budgets, sizes, restarts and hostile bytes."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from damaged_files import mutations
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from quorank.errors import BadInput
from quorank.silos.count_sketch import Hashing
from quorank.silos.discrete_laplace import SystemStream, draw_noise, scale_for
from quorank.silos.holdings import Holding
from quorank.silos.search.estimates import count_prior, estimated_frequency, expected_frequency
from quorank.silos.search.ledger import SearchLedger
from quorank.silos.search.messages import SearchAnswer, SearchQuestion
from quorank.silos.search.owner import SearchOwner, SearchTable, derived_key
from quorank.silos.search.settings import SearchTerms
from quorank.text import IndexedDocuments, Tokeniser
from quorank.text.collection import Document
from quorank.text.features import idf_smoothed

HASHING = Hashing(bytes(range(32)), 1, 1 << 20)
SECRET = bytes(range(1, 33))
WORDS = [f"w{number:03d}" for number in range(300)]
TERMS = SearchTerms()


def indexed(count: int, seed: int = 1, length: int = 40) -> IndexedDocuments:
    """Documents of words with a Zipf-like frequency."""
    random = np.random.default_rng(seed)
    chances = 1 / np.arange(1, len(WORDS) + 1)
    texts = [" ".join(random.choice(WORDS, length, p=chances / chances.sum())) for _ in range(count)]
    documents = [Document(f"d{number}", "", text) for number, text in enumerate(texts)]
    return IndexedDocuments.build(documents, Tokeniser(stop_words="none"))


def columns_of(*words: str) -> tuple[int, ...]:
    return tuple(sorted(HASHING.places(words)[0][:, 0].tolist()))


def question(*bundles: tuple[str, ...]) -> bytes:
    return SearchQuestion(tuple(columns_of(*bundle) for bundle in bundles)).to_bytes()


QUESTION = question(("w000", "w010", "w050"), ("w001", "w011", "w051"), ("w002", "w012", "w052"))
HEAD = 4 + 8 + 16  # bytes of an answer before its documents
FREE = SearchTerms(share=1.0, share_of_all=1.0, share_of_document=1.0, questions_a_day=10**6)


# ---------------------------------------------------------------- noise


def test_the_noise_of_a_document_does_not_depend_on_how_many_there_are() -> None:
    for scale in (scale_for(1, 7.0), scale_for(1, 0.3)):
        long = draw_noise(SystemStream(SECRET), scale, 5000)
        for count in (1, 7, 100, 4999):
            assert (draw_noise(SystemStream(SECRET), scale, count) == long[:count]).all()


def table_of(documents: IndexedDocuments, terms: SearchTerms, numbers=None) -> SearchTable:
    given_numbers = np.arange(len(documents.ids)) if numbers is None else numbers
    return SearchTable(documents.body, HASHING, SECRET, terms, given_numbers)


def test_cells_are_counts_and_the_keyed_noise_of_their_column() -> None:
    documents, terms = indexed(50), SearchTerms(epsilon=1.0)
    numbers = np.arange(50)[::-1] * 2 + 1  # any order, with gaps
    table = table_of(documents, terms, numbers)
    (column,) = columns_of("w003")
    noise = draw_noise(SystemStream(derived_key(SECRET, f"column {column}")), scale_for(1, terms.cell_epsilon), 100)
    counts = documents.body.counts_of(np.arange(50), documents.body.term_ids(["w003"]))[:, 0]
    expected = {int(n): int(counts[r] + noise[n]) for r, n in enumerate(numbers) if counts[r] + noise[n] >= 1}
    found = table.column(column)
    assert dict(zip(table.numbers[found.places].tolist(), found.values.tolist(), strict=True)) == expected
    lengths = draw_noise(SystemStream(derived_key(SECRET, "lengths")), scale_for(1, terms.length_epsilon), 100)
    assert table.announced.tolist() == [40 + lengths[n] for n in sorted(numbers)]


# ---------------------------------------------------------------- answers


def holding_of(documents: IndexedDocuments) -> Holding:
    return Holding("alpha", documents, (), (), ())


def owner_of(documents=None, terms=TERMS, path=None, secret=SECRET, **how) -> SearchOwner:
    ledger = SearchLedger("alpha", path, salt=bytes(16))
    return SearchOwner(holding_of(documents or indexed(120)), HASHING, secret, terms, ledger, **how)


def test_the_same_question_is_told_the_same_for_everybody_and_after_a_restart(tmp_path) -> None:
    first = owner_of(path=tmp_path / "ledger.sqlite")
    told, catalogue = told_by(first, "beta"), first.catalogue()
    assert told_by(first, "gamma") == told
    first.answer("beta", question(("w004", "w020")))
    assert told_by(first, "beta") == told
    first.ledger.close()
    again = owner_of(path=tmp_path / "ledger.sqlite")
    assert (told_by(again, "beta"), again.catalogue()) == (told, catalogue)
    assert told_by(owner_of(), "delta") == told
    assert told_by(owner_of(secret=bytes(32)), "delta") != told


def told_by(owner: SearchOwner, asker: str) -> bytes:
    """What an answer tells: all but its head, which states what the asker has spent."""
    return owner.answer(asker, QUESTION)[HEAD:]


def test_an_owner_that_has_lost_its_ledger_has_other_noise(tmp_path) -> None:
    """Else the same number could have two contents under the same noise, and their difference would be bare."""
    answers = set()
    for name in ("one", "two"):
        path = tmp_path / f"{name}.sqlite"
        for _ in range(2):
            ledger = SearchLedger("alpha", path)
            answers.add(SearchOwner(holding_of(OWN), HASHING, SECRET, SearchTerms(epsilon=1.0), ledger).catalogue())
            ledger.close()
    assert len(answers) == 2


def test_documents_are_chosen_by_the_expected_bm25_of_noisy_cells_alone() -> None:
    """Against the formulas, from what the table shows: nothing exact enters."""
    documents, terms = indexed(120), SearchTerms(epsilon=2.0, share=1.0, share_of_all=1.0, share_of_document=1.0)
    owner = owner_of(documents, terms)
    bundle = columns_of("w000", "w010", "w050")
    table, n = owner.table, 120
    scores, cells = np.zeros(n), np.zeros((n, 3), dtype=int)
    for at, number in enumerate(bundle):
        column = table.column(number)
        df = estimated_frequency(len(column.places), n, terms.q)
        relative = table.lengths[column.places] / table.lengths.mean()
        weight = idf_smoothed(n, np.array([df]))[0]
        scores[column.places] += weight * expected_frequency(
            column.values, relative, count_prior(df, 1.5 * df, n), terms.q
        )
        cells[column.places, at] = column.values
    best = np.lexsort((np.arange(n), -scores))[:5]
    asked = SearchQuestion((bundle,)).to_bytes()
    (named,) = SearchAnswer.from_bytes(owner.answer("beta", asked), "alpha", asked, terms).bundles
    assert named.numbers.tolist() == table.numbers[best].tolist()
    assert named.cells.tolist() == cells[best].tolist()


def test_sizes_do_not_depend_on_what_documents_say() -> None:
    few, many = owner_of(indexed(2), FREE), owner_of(indexed(120, seed=5), FREE)
    sizes = set()
    for words in (("w000", "w001", "w002"), ("absent", "missing", "nowhere")):
        asked = question(words, ("w003", "w004", "w005"))
        assert len(asked) == len(question(("w007",), ("w008",)))  # filled up to four
        sizes |= {len(owner.answer("beta", asked)) for owner in (few, many)}
    assert len(sizes) == 1


# ---------------------------------------------------------------- documents and releases


def test_a_changed_document_gets_a_new_number_and_none_is_used_again(tmp_path) -> None:
    path = tmp_path / "ledger.sqlite"
    old = indexed(20)
    first = owner_of(old, path=path)
    numbers = {first.row_of(n): n for n in first.table.numbers.tolist()}
    first.ledger.close()
    texts = [Document(f"d{number}", "", "w000 w001" if number == 3 else _text(old, number)) for number in range(5)]
    second = owner_of(IndexedDocuments.build(texts, Tokeniser(stop_words="none")), path=path)
    kept = {second.row_of(n): n for n in second.table.numbers.tolist()}
    assert {row: n for row, n in kept.items() if row != 3} == {row: numbers[row] for row in (0, 1, 2, 4)}
    assert kept[3] == 20
    with refused("silo-search.unknown-document"):
        second.row_of(numbers[3])
    second.ledger.close()
    third = owner_of(old, path=path)  # what was removed comes back under its own number
    assert {third.row_of(n): n for n in third.table.numbers.tolist()} == numbers


def _text(documents: IndexedDocuments, row: int) -> str:
    index = documents.body
    own = slice(index.offsets[row], index.offsets[row + 1])
    return " ".join(f"{index.vocabulary[t]} " * c for t, c in zip(index.terms[own], index.counts[own], strict=True))


def test_another_secret_or_epsilon_is_another_release_and_must_be_meant(tmp_path) -> None:
    path = tmp_path / "ledger.sqlite"
    first = owner_of(path=path)
    first.answer("beta", QUESTION)
    told = first.spent("beta").entries
    assert first.statement()["epsilon"] == 8.0
    first.ledger.close()
    for how in ({"secret": bytes(32)}, {"terms": SearchTerms(epsilon=4.0)}):
        ledger = SearchLedger("alpha", path)
        with refused("silo-search.other-release"):
            SearchOwner(holding_of(OWN), HASHING, how.get("secret", SECRET), how.get("terms", TERMS), ledger)
        ledger.close()
    second = owner_of(path=path, secret=bytes(32), new_release=True)
    assert second.statement()["epsilon"] == 2 * 8.0
    second.answer("beta", QUESTION)
    assert second.spent("beta").entries > told  # entries of all releases count


# ---------------------------------------------------------------- budgets


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from([(0.02, 0.03, 0.1, 2), (0.05, 0.10, 0.25, 5)]))
def test_a_greedy_attacker_never_passes_a_budget(seed, shares) -> None:
    share, of_all, of_document, least = shares
    terms = SearchTerms(share=share, share_of_all=of_all, share_of_document=of_document, least_of_document=least)
    owner = owner_of(OWN, terms, askers=3)
    pairs = 0.6 * owner.table.lengths.sum()
    random = np.random.default_rng(seed)
    told: dict[str, set[tuple[int, int]]] = {name: set() for name in ("beta", "gamma", "delta")}
    for asker in random.choice(list(told), 40):
        asked = question(*(tuple(random.choice(WORDS[:80], 3, replace=False)) for _ in range(3)))
        before = owner.spent(asker)
        try:
            answer = SearchAnswer.from_bytes(owner.answer(asker, asked), "alpha", asked, terms)
        except BadInput as error:
            assert error.code == "silo-search.spent" and before.entries_left == 0
            assert owner.spent(asker) == replace(before, questions_today=before.questions_today + 1)
            continue
        bundles = SearchQuestion.from_bytes(asked, asker, terms).bundles
        for bundle, named in zip(bundles, answer.bundles, strict=True):
            for number, cells in zip(named.numbers.tolist(), named.cells, strict=True):
                told[asker] |= {(number, bundle[at]) for at in np.flatnonzero(cells)}
        assert owner.spent(asker).entries == len(told[asker]) <= share * pairs
        assert len(set().union(*told.values())) <= of_all * pairs
        of_each = np.unique([number for number, _ in told[asker]], return_counts=True)
        for number, count in zip(*(part.tolist() for part in of_each), strict=True):
            length = owner.table.lengths[np.searchsorted(owner.table.numbers, number)]
            assert count <= max(least, np.ceil(of_document * 0.6 * length))


OWN = indexed(120)


def at_a_clock(terms: SearchTerms) -> tuple[SearchOwner, list[float]]:
    """An owner whose clock shows the number in a list."""
    now = [0.0]
    return SearchOwner(holding_of(OWN), HASHING, SECRET, terms, SearchLedger("alpha", clock=lambda: now[0])), now


def refusal(owner: SearchOwner, raw: bytes) -> str:
    with pytest.raises(BadInput) as refused_with:
        owner.answer("beta", raw)
    return f"{refused_with.value.code} {refused_with.value}"


def test_told_entries_are_free_and_a_day_has_its_questions() -> None:
    owner, now = at_a_clock(SearchTerms(questions_a_day=3))
    for _ in range(3):
        owner.answer("beta", QUESTION)
    spent = owner.spent("beta")
    refusal(owner, QUESTION)
    assert owner.spent("beta") == replace(spent, questions_today=4) and spent.entries < 3 * 5 * 3 + 1
    owner.answer("gamma", QUESTION)
    now[0] = 86_400.0
    owner.answer("beta", QUESTION)
    assert owner.spent("beta") == replace(spent, questions_today=1)


def test_a_refusal_is_the_same_for_every_reason_and_counts_against_the_day() -> None:
    told, by_day, by_entries = question(("w000", "w001")), SearchTerms(questions_a_day=1), SearchTerms(share=0.001)
    said = set()
    for terms in (by_day, by_entries):
        owner, _ = at_a_clock(terms)
        owner.answer("beta", told)
        for number, raw in enumerate((told, QUESTION, question(("absent",))), 2):
            said.add(refusal(owner, raw))
            assert owner.spent("beta").questions_today == number
    assert len(said) == 1 and not any(letter.isdigit() for letter in said.pop())


def test_a_document_at_its_limit_is_named_alike_whatever_else_it_holds() -> None:
    """Words that it holds and that are hidden show as little as words that it does not hold, in no order of documents."""
    terms = SearchTerms("none", share=1.0, share_of_all=1.0, least_of_document=1, share_of_document=0.01)
    texts = [f"only{number} held{number} w000 w001" for number in range(8)]
    documents = [Document(f"d{number}", "", text) for number, text in enumerate(texts)]
    owner = owner_of(IndexedDocuments.build(documents, Tokeniser(stop_words="none")), terms)
    for number in range(8):
        owner.answer("beta", question((f"only{number}",)))

    def shown(*words: str) -> list[tuple[int, list[int]]]:
        asked = question(words)
        (named,) = SearchAnswer.from_bytes(owner.answer("beta", asked), "alpha", asked, terms).bundles
        return [(owner.row_of(n), sorted(c)) for n, c in zip(named.numbers.tolist(), named.cells.tolist(), strict=True)]

    expected = [(3, [0, 1])]
    assert shown("only3", "held3") == shown("only3", "held4") == shown("only3", "w000") == expected
    assert shown("held3", "absent") == []


def test_entries_are_told_anew_after_a_period_and_those_of_a_document_never() -> None:
    terms = SearchTerms(share=0.01, renew_days=30, least_of_document=1, share_of_document=0.01)
    owner, now = at_a_clock(terms)
    words, told = [question((word,)) for word in WORDS[:120]], []
    for period in range(3):
        now[0] = period * 30 * 86_400.0
        for raw in words:
            with contextlib.suppress(BadInput):
                owner.answer("beta", raw)
        told.append(owner.spent("beta").entries)
        assert told[-1] <= owner.limits.entries
        now[0] += 29 * 86_400.0
        refusal(owner, QUESTION) if told[-1] == owner.limits.entries else None
    assert told[0] == told[1] == owner.limits.entries
    assert sum(told) <= len(OWN.ids)  # one entry of each document, in all periods
    assert (terms.periods_a_year, SearchTerms().periods_a_year) == (13, 1)


def test_all_askers_together_have_the_share_of_all() -> None:
    terms = SearchTerms(share=0.02, share_of_all=0.06)
    assert [terms.entries(10_000, askers) for askers in (1, 3, 4, 60)] == [200, 200, 150, 10]


def test_a_charge_is_on_disk_before_the_answer_is_made(tmp_path, monkeypatch) -> None:
    """The owner stops between charge and answer: what it would have told is counted, and told for nothing afterwards."""
    path = tmp_path / "ledger.sqlite"
    owner = owner_of(path=path)

    def stop(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SearchAnswer, "to_bytes", stop)
        with pytest.raises(KeyboardInterrupt):
            owner.answer("beta", QUESTION)
    owner.ledger.close()
    again = owner_of(path=path)
    charged = again.spent("beta").entries
    assert charged > 0
    assert told_by(again, "beta") == told_by(owner_of(), "beta")
    assert again.spent("beta").entries == charged


KILLED = """
import sys, os, signal
sys.path[:0] = {path!r}
from test_search_owner import *
owner = owner_of(path=__import__("pathlib").Path({file!r}))
owner.answer("beta", QUESTION)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_ledger_survives_kill_9(tmp_path) -> None:
    file = tmp_path / "ledger.sqlite"
    code = KILLED.format(path=sys.path, file=str(file))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    owner, other = owner_of(path=file), owner_of()
    other.answer("beta", QUESTION)
    assert owner.spent("beta").entries == other.spent("beta").entries > 0


# ---------------------------------------------------------------- the ledger's file


def test_the_file_is_its_owners_alone_and_checked_when_it_is_opened(tmp_path) -> None:
    path = tmp_path / "ledger.sqlite"
    owner = owner_of(path=path)
    owner.answer("beta", QUESTION)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    spent = owner.spent("beta")
    with refused("folder.busy"):
        SearchLedger("alpha", path)
    owner.ledger.close()
    with refused("silo-ledger.other-owner"):
        SearchLedger("gamma", path)
    again = owner_of(path=path)
    assert again.spent("beta") == spent != again.spent("gamma")
    again.ledger.close()
    path.write_bytes(b"no database at all, but long enough to be one" * 100)
    with refused("file.damaged"):
        SearchLedger("alpha", path)


# ---------------------------------------------------------------- hostile bytes


def test_hostile_questions_are_refused_and_charge_nothing() -> None:
    owner = owner_of(OWN, FREE)
    for raw in (b"", QUESTION[:-1], QUESTION + b"\0", b"\2" + QUESTION[1:], bytes(100)):
        with pytest.raises(BadInput):
            owner.answer("beta", raw)
    outside = SearchQuestion(((5, 1 << 20),)).to_bytes()
    with refused("silo-message.malformed"):
        owner.answer("beta", outside)
    with refused("silo-group.bad-name"):
        owner.answer("../beta", QUESTION)
    assert owner.spent("beta").entries == 0
    for raw in mutations([QUESTION], 300):
        try:
            owner.answer("beta", raw)
        except BadInput as error:
            assert error.code in ("silo-message.malformed", "silo-message.other-version")


def test_hostile_answers_are_refused() -> None:
    owner = owner_of(OWN, FREE)
    answer = owner.answer("beta", QUESTION)
    for raw in mutations([answer], 300):
        try:
            SearchAnswer.from_bytes(raw, "alpha", QUESTION, FREE)
        except BadInput as error:
            assert error.code in ("silo-message.malformed", "silo-message.other-version", "silo-search.other-question")
    with refused("silo-search.other-question"):
        SearchAnswer.from_bytes(answer, "alpha", question(("w000",)), FREE)
