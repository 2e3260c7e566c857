"""Budgets: a ledger that adds up, only grows, survives restarts, and refuses who asks too much."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.protocol.budget import AnswerRelease, Budget, BudgetLedger

EACH = AnswerRelease("body each-answer", 0.5)
ONCE = AnswerRelease("body at-build 1", 0.5, once=True)
ASKERS = st.sampled_from(["beta", "gamma"])
RELEASES = st.builds(
    AnswerRelease, st.sampled_from(["one", "two"]), st.sampled_from([0.0, 0.1, 0.5, 1 / 3, 2.0]), st.booleans()
)


def test_answers_add_up_and_a_build_counts_once() -> None:
    ledger = BudgetLedger("alpha")
    ledger.charge("beta", 3, EACH)
    ledger.charge("beta", 1, EACH)
    ledger.charge("gamma", 1000, ONCE)
    ledger.charge("gamma", 1000, ONCE)
    assert (ledger.questions("beta"), ledger.epsilon("beta")) == (4, 4 * 0.5)
    assert (ledger.questions("gamma"), ledger.epsilon("gamma")) == (2000, 0.5)
    ledger.charge("gamma", 1, AnswerRelease("body at-build 2", 0.5, once=True))  # built again: released again
    assert ledger.epsilon("gamma") == 2 * 0.5
    assert (ledger.questions("delta"), ledger.epsilon("delta")) == (0, 0.0)


def test_who_asks_too_much_is_refused_and_nothing_changes() -> None:
    ledger = BudgetLedger("alpha", Budget(questions=10, epsilon=2.0))
    ledger.charge("beta", 4, EACH)
    with pytest.raises(BadInput, match=r"alpha spends ε = 2 on beta, 2 is spent and this would make 2\.5"):
        ledger.charge("beta", 1, EACH)
    with pytest.raises(BadInput, match="10 questions, 4 of them are answered and 7 more"):
        ledger.charge("beta", 7, AnswerRelease("exact", 0.0))
    assert (ledger.questions("beta"), ledger.epsilon("beta")) == (4, 2.0)
    ledger.charge("beta", 6, AnswerRelease("exact", 0.0))
    ledger.charge("gamma", 4, EACH)  # budgets are of each asker


def test_ten_tenths_fit_into_one() -> None:
    ledger = BudgetLedger("alpha", Budget(epsilon=1.0))
    for _ in range(10):
        ledger.charge("beta", 1, AnswerRelease("x", 0.1))
    with pytest.raises(BadInput):
        ledger.charge("beta", 1, AnswerRelease("x", 1e-6))


@given(st.lists(st.tuples(ASKERS, st.integers(1, 50), RELEASES), max_size=12))
def test_the_ledger_adds_up_and_never_goes_back(charges) -> None:
    """Against a sum with fractions; also after every refusal."""
    ledger = BudgetLedger("alpha", Budget(questions=100, epsilon=20.0))
    counted: dict[str, list[tuple[int, AnswerRelease]]] = {"beta": [], "gamma": []}
    for asker, questions, release in charges:
        before = {a: (ledger.questions(a), ledger.epsilon(a)) for a in counted}
        try:
            ledger.charge(asker, questions, release)
            counted[asker].append((questions, release))
        except BadInput:
            assert {a: (ledger.questions(a), ledger.epsilon(a)) for a in counted} == before
        for a, (questions_before, epsilon_before) in before.items():
            assert ledger.questions(a) >= questions_before and ledger.epsilon(a) >= epsilon_before
            assert ledger.questions(a) <= 100 and ledger.epsilon(a) <= 20.0
    for a, made in counted.items():
        assert ledger.questions(a) == sum(q for q, _ in made)
        exact = sum((q * Fraction(r.epsilon) for q, r in made if not r.once), Fraction(0))
        exact += sum((Fraction(r.epsilon) for r in {r for _, r in made if r.once}), Fraction(0))
        assert 0 <= Fraction(ledger.epsilon(a)) - exact + Fraction(1, 10**9) <= Fraction(101, 10**6)


@settings(max_examples=20)
@given(st.lists(st.tuples(ASKERS, st.integers(1, 9), RELEASES), min_size=1, max_size=8))
def test_a_restart_knows_all_that_was_charged(tmp_path_factory, charges) -> None:
    path = tmp_path_factory.mktemp("ledger") / "budget.json"
    for asker, questions, release in charges:
        BudgetLedger("alpha", path=path).charge(asker, questions, release)  # a new process each time
    whole = BudgetLedger("alpha")
    for asker, questions, release in charges:
        whole.charge(asker, questions, release)
    assert BudgetLedger("alpha", path=path).to_table() == whole.to_table()
    assert [p.name for p in path.parent.iterdir()] == ["budget.json"]


def test_the_file_is_written_before_an_answer_could_leave(tmp_path, monkeypatch) -> None:
    path = tmp_path / "budget.json"
    ledger = BudgetLedger("alpha", path=path)
    ledger.charge("beta", 2, EACH)
    monkeypatch.setattr("quorank.silos.protocol.budget.write_whole", _full_disk)
    with pytest.raises(OSError):
        ledger.charge("beta", 3, EACH)
    assert ledger.questions("beta") == 2 == BudgetLedger("alpha", path=path).questions("beta")


def _full_disk(*_, **__) -> None:
    raise OSError(28, "No space left on device")


def test_two_processes_on_one_ledger_are_noticed(tmp_path) -> None:
    path = tmp_path / "budget.json"
    one, two = BudgetLedger("alpha", path=path), BudgetLedger("alpha", path=path)
    one.charge("beta", 2, EACH)
    with pytest.raises(BadInput, match="another process uses this ledger"):
        two.charge("beta", 1, EACH)
    old = path.read_bytes()
    one.charge("beta", 1, EACH)
    path.write_bytes(old)  # put back from a backup while the owner is running
    with pytest.raises(BadInput, match="it was put back"):
        one.charge("beta", 1, EACH)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"questions": 3', '"questions": 2'),
        lambda text: text.replace("500000", "400000"),
        lambda text: text.replace('"once": false', '"once": true'),
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace("beta", "gamma"),
    ],
)
def test_damaged_ledgers_are_refused(tmp_path, damage) -> None:
    path = tmp_path / "budget.json"
    BudgetLedger("alpha", path=path).charge("beta", 3, EACH)
    path.write_text(damage(path.read_text()))
    with pytest.raises(BadInput, match="damaged") as refused:
        BudgetLedger("alpha", path=path)
    assert (refused.value.code, refused.value.where) == ("silo-ledger.damaged", str(path))


def test_entries_that_do_not_add_up_are_refused_though_the_checksum_is_right(tmp_path) -> None:
    from quorank.silos.protocol.budget import _checksum

    path = tmp_path / "budget.json"
    BudgetLedger("alpha", path=path).charge("beta", 3, EACH)
    content = json.loads(path.read_text())
    content["askers"]["beta"]["millionths"] = 1
    content["checksum"] = _checksum(content)
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match="damaged"):
        BudgetLedger("alpha", path=path)


def test_another_owners_ledger_is_refused(tmp_path) -> None:
    path = tmp_path / "budget.json"
    BudgetLedger("alpha", path=path).charge("beta", 3, EACH)
    with pytest.raises(BadInput, match="the ledger of alpha, not of gamma"):
        BudgetLedger("gamma", path=path)


@pytest.mark.parametrize(
    ("questions", "epsilon"), [(0, 0.5), (-1, 0.5), (1, -0.1), (1, float("inf")), (1, float("nan"))]
)
def test_a_ledger_only_grows(questions, epsilon) -> None:
    with pytest.raises(BadInput, match="only grows"):
        BudgetLedger("alpha").charge("beta", questions, AnswerRelease("x", epsilon))


@pytest.mark.parametrize("budget", [{"questions": -1}, {"epsilon": -0.5}, {"epsilon": float("nan")}])
def test_budgets_that_make_no_sense_are_refused(budget) -> None:
    with pytest.raises(BadInput, match="must be at least 0"):
        Budget(**budget)
