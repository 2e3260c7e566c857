"""Parties: right answers through the whole protocol, clear refusals, and nothing spoilt by what is refused."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from published_decoys import FreshDecoys
from silo_parties import (
    NAMES,
    SMALL,
    AllTables,
    HeapTables,
    estimates,
    group_of,
    identity,
    meet,
    met,
    parties_of,
    seeded,
)

from quorank.errors import BadInput
from quorank.silos.protocol.asker import KeyedBlocks
from quorank.silos.protocol.budget import Budget, BudgetLedger
from quorank.silos.protocol.discrete_laplace import AddressedStream
from quorank.silos.protocol.group import Field
from quorank.silos.protocol.keys import PartyIdentity
from quorank.silos.protocol.messages import Ask, Envelope, Kind
from quorank.silos.protocol.owner import ServedNaive, ServedTopK
from quorank.silos.protocol.party import Party
from quorank.silos.protocol.perturbation import AtBuild, EachAnswer, Exact, OneSample
from quorank.silos.protocol.relay import deliver
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.naive import Naive
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape, rank

WORDS = tuple(f"word{i}" for i in range(60))


def documents_of(name: str, count: int = 12) -> dict[int, dict[str, int]]:
    draw = random.Random(name)
    return {
        100 + d: {term: draw.randint(1, 9) for term in draw.sample(WORDS, draw.randint(1, 6))} for d in range(count)
    }


def serving(parties: dict[str, Party], kind=AllTables, at_build: bool = False) -> None:
    for name, party in parties.items():
        party.serve("body", kind(party.hashing(), documents_of(name), at_build))


def asked(relay, parties, asker: str, owner: str, terms, field: str = "body"):
    question = parties[asker].ask(terms, owner, field)
    deliver(relay, parties, [question])
    return parties[asker].answers(question)


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    "obfuscation",
    [None, FreshDecoys(WORDS, 3, seed=1), KeyedBlocks(bytes(32), WORDS, 2, 3), KeyedBlocks(bytes(32), WORDS, 5, 6)],
)
def test_answers_are_the_cells_that_the_owner_has(obfuscation) -> None:
    """Against the owner's own tables, read directly, for all pairs and several terms at once."""
    relay, parties = met(obfuscation=obfuscation)
    serving(parties)
    for asker in NAMES:
        for owner in set(NAMES) - {asker}:
            terms = ["word3", "word7", "unheard-of", "word3"]
            found = asked(relay, parties, asker, owner, terms)
            assert [a.term for a in found] == terms
            tables = AllTables(parties[asker].hashing(), documents_of(owner)).tables
            for answered in found:
                columns, signs = parties[asker].hashing().places([answered.term])
                expected = {
                    d: float(np.median([signs[0, a] * t[a, columns[0, a]] for a in answered.rows]))
                    for d, t in tables.items()
                }
                assert estimates(answered) == expected
                assert (answered.owner, answered.field) == (owner, "body")
                assert np.array_equal(answered.signs, signs[0])


def test_real_sketches_give_through_the_protocol_what_they_give_at_home() -> None:
    shape = Shape(rows=4, columns=64, capacity=20, entries=2 * 4 * 64 * 20)
    relay, parties = met(group_of(fields=[Field("body", 4, 64, 20)]), obfuscation=KeyedBlocks(bytes(32), WORDS, 3, 4))
    for name, party in parties.items():
        served = ServedTopK(ReverseTopK(party.hashing(), shape))
        for document, counts in documents_of(name, 40).items():
            served.add(document, list(counts), list(counts.values()))
        party.serve("body", served)
        assert served.width == 20
    for term in WORDS[:12]:
        for answered in asked(relay, parties, "alpha", "beta", [term, "word1"])[:1]:
            ids, values = rank(answered.cells, answered.signs, answered.rows, 5, shape)
            at_home = parties["beta"].owner._served["body"][0].structure.top(term, 5)
            assert len(answered.rows) == 4 and np.array_equal(ids, at_home[0]) and np.array_equal(values, at_home[1])


def test_naive_sketches_are_served_whole() -> None:
    relay, parties = met()
    naive = Naive(parties["beta"].hashing())
    for document, counts in documents_of("beta").items():
        terms = list(counts)
        naive.add_many([0, len(terms)], range(len(terms)), list(counts.values()), terms, [document])
    parties["beta"].serve("body", ServedNaive(naive))
    (answered,) = asked(relay, parties, "alpha", "beta", "word5")
    at_home = dict(zip(naive.documents.tolist(), naive.estimates("word5").tolist(), strict=True))
    assert estimates(answered) == at_home


def test_fields_have_sketches_and_keys_of_their_own() -> None:
    relay, parties = met(group_of(fields=[SMALL, Field("title", 4, 40, 30)]))
    beta = parties["beta"]
    assert beta.hashing("title").key != beta.hashing("body").key
    beta.serve("title", AllTables(beta.hashing("title"), {5: {"word1": 7}}))
    (answered,) = asked(relay, parties, "alpha", "beta", "word1", "title")
    assert estimates(answered) == {5: 7.0} and answered.field == "title"
    with pytest.raises(BadInput, match="beta gives no answer: beta does not serve the field 'body' yet"):
        asked(relay, parties, "alpha", "beta", "word1")
    with pytest.raises(BadInput, match="no field 'abstract'; its fields are body, title"):
        parties["alpha"].ask("word1", "beta", "abstract")


def test_many_terms_go_into_as_many_envelopes_as_they_need(monkeypatch) -> None:
    relay, parties = met()
    serving(parties)
    monkeypatch.setattr("quorank.silos.protocol.messages.MOST_BYTES", 5000)
    alpha = parties["alpha"]
    assert alpha.asker.most_terms("body") == 3
    with pytest.raises(BadInput, match="60 terms are too many for one envelope; ask about 3 at a time"):
        alpha.ask(WORDS, "beta")
    questions = alpha.ask_many(WORDS, "beta")
    deliver(relay, parties, questions)
    assert [a.term for q in questions for a in alpha.answers(q)] == list(WORDS)


def test_answers_may_come_in_any_order_and_are_read_once() -> None:
    _, parties = met()
    serving(parties)
    alpha, beta = parties["alpha"], parties["beta"]
    questions = [alpha.ask(term, "beta") for term in WORDS[:5]]
    replies = [beta.receive(question)[0] for question in reversed(questions)]
    assert alpha.answers(questions[0]) is None
    for reply in replies:
        assert alpha.receive(reply) == []
    assert [alpha.answers(q)[0].term for q in questions] == list(WORDS[:5])
    with pytest.raises(BadInput, match="not waiting"):
        alpha.answers(questions[0])


# ---------------------------------------------------------------- agreeing


def test_hellos_and_contributions_may_overtake_each_other() -> None:
    """Envelopes in every kind of disorder: whatever comes too early waits."""
    for trial in range(30):
        parties = parties_of(group_of())
        shuffle = random.Random(trial)
        waiting = [e for party in parties.values() for e in party.hello()]
        while waiting:
            waiting.sort(key=lambda e: (e.kind is Kind.HELLO and shuffle.random() < 0.5, shuffle.random()))
            envelope = waiting.pop(0)
            waiting += parties[envelope.receiver].receive(envelope)
        assert len({party.fingerprint for party in parties.values()}) == 1
        assert not any(party.session.dropped for party in parties.values())


def test_a_question_that_comes_before_the_last_contribution_is_answered_then() -> None:
    parties = parties_of(group_of(("alpha", "beta", "gamma")))
    late, waiting = [], [e for party in parties.values() for e in party.hello()]
    while waiting:
        e = waiting.pop(0)
        if e.kind is Kind.CONTRIBUTION and (e.sender, e.receiver) == ("gamma", "beta"):
            late.append(e)
        else:
            waiting += parties[e.receiver].receive(e)
    alpha, beta = parties["alpha"], parties["beta"]
    question = alpha.ask("word1", "beta")
    assert beta.receive(question) == [] and not beta.is_agreed
    with pytest.raises(BadInput, match="keys are not agreed yet"):
        beta.hashing()
    (reply,) = beta.receive(late[0])
    alpha.receive(reply)
    with pytest.raises(BadInput, match="does not serve"):
        alpha.answers(question)


def test_held_envelopes_are_bounded_and_bad_ones_are_dropped_with_a_sentence() -> None:
    parties = parties_of(group_of(("alpha", "beta")))
    alpha, beta = parties["alpha"], parties["beta"]
    for number in range(64):
        assert alpha.receive(Envelope(Kind.ASK, "beta", "alpha", number, b"junk")) == []
    with pytest.raises(BadInput, match="too much before keys are agreed"):
        alpha.receive(Envelope(Kind.ASK, "beta", "alpha", 99, b"junk"))
    deliver_pair(alpha, beta)
    assert alpha.is_agreed and beta.is_agreed and len(alpha.session.dropped) == 64


def deliver_pair(alpha: Party, beta: Party) -> None:
    (to_beta,) = beta.receive(alpha.hello()[0])
    (to_alpha,) = alpha.receive(beta.hello()[0])
    beta.receive(to_alpha)
    alpha.receive(to_beta)


def test_a_party_with_another_key_than_pinned_is_refused() -> None:
    group = group_of(("alpha", "beta"))
    pins = {name: identity(name).public for name in group.parties}
    alpha = Party(identity("alpha"), group, pins=pins)
    impostor = Party(PartyIdentity("beta"), group)
    with pytest.raises(BadInput, match="another key than the one pinned"):
        alpha.receive(impostor.hello()[0])
    deliver_pair(alpha, Party(identity("beta"), group, pins=pins))
    assert alpha.is_agreed


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (dataclasses.replace(SMALL, rows=7), "body.rows = 7"),
        (dataclasses.replace(SMALL, columns=41), "body.columns = 41"),
    ],
)
def test_a_party_with_other_rows_or_columns_is_refused(field, words) -> None:
    alpha = Party(identity("alpha"), group_of(("alpha", "beta")))
    with pytest.raises(BadInput, match=words):
        alpha.receive(Party(identity("beta"), group_of(("alpha", "beta"), [field])).hello()[0])
    deliver_pair(alpha, Party(identity("beta"), group_of(("alpha", "beta"))))
    assert alpha.is_agreed


def test_an_older_party_is_refused(monkeypatch) -> None:
    alpha, beta = (Party(identity(n), group_of(("alpha", "beta"))) for n in ("alpha", "beta"))
    monkeypatch.setattr("quorank.silos.protocol.messages.VERSION", 0)
    hello = beta.hello()[0]
    raw = hello.to_bytes()
    monkeypatch.undo()
    with pytest.raises(BadInput, match="version 0 of the protocol, older than this program's 1"):
        Envelope.from_bytes(raw)
    with pytest.raises(BadInput, match="version 0 of the protocol, older than this program's 1"):
        alpha.receive(hello)
    deliver_pair(alpha, beta)
    assert alpha.is_agreed


def test_strangers_and_misled_envelopes_are_refused() -> None:
    _, parties = met()
    question = parties["alpha"].ask("word1", "beta")
    with pytest.raises(BadInput, match="for beta, not for gamma"):
        parties["gamma"].receive(question)
    with pytest.raises(BadInput, match="omega is no other party"):
        parties["beta"].receive(dataclasses.replace(question, sender="omega"))
    with pytest.raises(BadInput, match="does not open"):
        parties["gamma"].receive(dataclasses.replace(question, receiver="gamma"))
    with pytest.raises(BadInput, match="omega is no other party"):
        parties["alpha"].ask("word1", "omega")
    with pytest.raises(BadInput, match="none of them is empty"):
        parties["alpha"].ask(["word1", ""], "beta")
    with pytest.raises(BadInput, match="keys are not agreed"):
        Party(identity("alpha"), group_of()).ask("word1", "beta")


def test_replayed_questions_and_answers_are_refused_and_not_charged() -> None:
    _, parties = met()
    serving(parties)
    alpha, beta = parties["alpha"], parties["beta"]
    question = alpha.ask("word1", "beta")
    (reply,) = beta.receive(question)
    with pytest.raises(BadInput, match="a replay"):
        beta.receive(question)
    assert beta.ledger.questions("alpha") == 1
    alpha.receive(reply)
    with pytest.raises(BadInput, match="a replay"):
        alpha.receive(reply)
    assert alpha.answers(question)[0].term == "word1"


def test_a_kept_hashing_key_lets_sketches_outlive_a_session() -> None:
    _, before = met()
    kept = before["alpha"].hashing_key
    tables = AllTables(before["beta"].hashing(), documents_of("beta"))
    relay, after = met(hashing_key=kept)
    after["beta"].serve("body", tables)
    assert len(estimates(asked(relay, after, "alpha", "beta", "word2")[0])) == 12
    parties = parties_of(group_of(), hashing_key=lambda name: kept if name != "gamma" else seeded("x")(32))
    with pytest.raises(BadInput, match="alpha has hashing = "):
        meet(parties)


# ---------------------------------------------------------------- serving


def test_sketches_of_another_key_or_shape_are_not_served() -> None:
    _, parties = met()
    beta = parties["beta"]
    for hashing in (
        Hashing(bytes(32), SMALL.rows, SMALL.columns),
        Hashing(beta.hashing().key, SMALL.rows + 1, SMALL.columns),
        Hashing(beta.hashing().key, SMALL.rows, SMALL.columns + 1),
    ):
        with pytest.raises(BadInput, match="another key, rows or columns"):
            beta.serve("body", AllTables(hashing, documents_of("beta")))
    with pytest.raises(BadInput, match="up to 31 documents and the group settled on 30 entries"):
        beta.serve("body", AllTables(beta.hashing(), documents_of("beta", 31)))


def test_perturbations_that_would_not_hold_are_refused_when_sketches_are_served() -> None:
    _, parties = met(perturbation=EachAnswer(0.5))
    with pytest.raises(BadInput, match="who stands in a reverse top-K cell depends on what the documents say"):
        serving(parties, HeapTables)
    serving(parties)
    for part, at_build, words in ((AtBuild(0.5), False, "without noise"), (Exact(), True, "with noise")):
        _, parties = met(perturbation=part)
        with pytest.raises(BadInput, match=f"were built {words}"):
            serving(parties, HeapTables, at_build)
        serving(parties, HeapTables, not at_build)


@pytest.mark.parametrize(("part", "shared"), [(OneSample(0.5), True), (EachAnswer(0.5), False)])
def test_answers_are_perturbed_as_the_part_says(part, shared) -> None:
    relay, parties = met(perturbation=part, seed=3)
    serving(parties)
    (answered,) = asked(relay, parties, "alpha", "beta", "word1")
    exact = AllTables(parties["alpha"].hashing(), documents_of("beta")).cells(
        parties["alpha"].hashing().places(["word1"])[0][0]
    )
    noise = (answered.cells.values - exact.values).reshape(SMALL.rows, -1)
    assert np.any(noise) and bool(np.all(noise == noise[0])) == shared
    again = met(perturbation=part, seed=3)
    serving(again[1])
    (same,) = asked(*again, "alpha", "beta", "word1")
    assert np.array_equal(same.cells.values, answered.cells.values)  # a seed gives the same bits
    (other,) = asked(relay, parties, "alpha", "beta", "word1")
    assert not np.array_equal(other.cells.values, answered.cells.values)  # and the next answer new noise


def test_seeded_noise_does_not_depend_on_the_order_of_questions_or_documents() -> None:
    found = []
    for order in (("alpha", "gamma"), ("gamma", "alpha")):
        relay, parties = met(perturbation=EachAnswer(0.5), seed=3)
        serving(parties)
        found.append({asker: asked(relay, parties, asker, "beta", "word1")[0].cells.values.tolist() for asker in order})
    assert found[0] == found[1] and found[0]["alpha"] != found[0]["gamma"]
    shape = Shape(rows=2, columns=32, capacity=30, entries=2 * 32 * 30)
    hashing = shape.hashing(bytes(32))
    tables = []
    for order in ([1, 2], [2, 1]):
        served = ServedTopK(ReverseTopK(hashing, shape), AtBuild(1.0), lambda d: AddressedStream(5, interaction=d))
        for document in order:
            served.add(document, ["word1"], [1])
        cells = served.cells(np.zeros(2, np.int32))
        tables.append(sorted(zip(cells.documents.tolist(), cells.values.tolist(), strict=True)))
    assert tables[0] == tables[1]


def test_noise_of_the_build_is_the_same_in_every_answer() -> None:
    shape = Shape(rows=2, columns=32, capacity=30, entries=2 * 32 * 30)
    relay, parties = met(group_of(fields=[Field("body", 2, 32, 30)]), perturbation=AtBuild(1.0))
    beta = parties["beta"]
    served = ServedTopK(ReverseTopK(beta.hashing(), shape), AtBuild(1.0), lambda d: AddressedStream(1, interaction=d))
    for document, counts in documents_of("beta").items():
        served.add(document, list(counts), list(counts.values()))
    with pytest.raises(BadInput, match="already in this sketch"):
        served.add(100, ["word1"], [1])
    with pytest.raises(BadInput, match="is empty"):
        served.add(500, [], [])
    beta.serve("body", served)
    answers = [asked(relay, parties, asker, "beta", "word1")[0].cells for asker in ("alpha", "gamma", "alpha")]
    assert all(np.array_equal(answers[0].values, a.values) for a in answers[1:])
    exact = AllTables(beta.hashing(), documents_of("beta")).cells(beta.hashing().places(["word1"])[0][0])
    counted = set(exact.documents[exact.values != 0].tolist())
    assert len(counted) < 8 < len(set(answers[0].documents.tolist()))  # noise stands also where nothing was counted
    assert (beta.ledger.epsilon("alpha"), beta.ledger.epsilon("gamma")) == (1.0, 1.0)


def test_lengths_are_told_once_and_checked() -> None:
    relay, parties = met()
    beta = parties["beta"]
    for ids, lengths, words in (
        ([1, 2, 1], [5, 6, 7], r"document \[1\] stands twice"),
        ([1, 2], [5, 0], r"document \[2\] of 'body' is empty"),
        ([1, 2], [5], "2 documents cannot have 1 lengths"),
        ([-1], [5], "numbers from 0"),
        ([2**31], [5], "numbers from 0"),
    ):
        with pytest.raises(BadInput, match=words):
            beta.describe("body", ids, lengths)
    deliver(relay, parties, beta.describe("body", [9, 2, 5], [90, 20, 50]))
    told = parties["gamma"].catalogues["beta", "body"]
    assert (told.ids.tolist(), told.lengths.tolist()) == ([2, 5, 9], [20, 50, 90])
    with pytest.raises(BadInput, match="described already"):
        beta.describe("body", [1], [1])


def test_strict_lengths_are_noisy_the_same_for_all_and_paid_for() -> None:
    for part, paid in ((EachAnswer(0.5), 0.5), (AtBuild(0.5), 0.0)):
        relay, parties = met(perturbation=part, seed=3)
        beta = parties["beta"]
        deliver(relay, parties, beta.describe("body", range(50), [100] * 50))
        told = [parties[n].catalogues["beta", "body"].lengths.tolist() for n in ("alpha", "gamma", "delta")]
        assert told[0] == told[1] == told[2] and len(set(told[0])) > 5
        assert beta.ledger.epsilon("alpha") == paid


def test_lengths_that_are_drawn_again_in_another_session_cost_again(tmp_path) -> None:
    """Noise of a build covers the lengths once: scale (z + 1)/ε on a sensitivity of one is ε/(z + 1) each further time."""
    spent = []
    for _ in range(3):
        relay, parties = met(perturbation=AtBuild(0.7), ledger=lambda name: tmp_path / f"{name}.json")
        deliver(relay, parties, parties["beta"].describe("body", [1, 2], [10, 20]))
        spent.append(parties["beta"].ledger.epsilon("alpha"))
    assert spent == [0.0, 0.1, 0.2]
    assert parties["beta"].ledger.released("alpha", "body lengths") == 3


# ---------------------------------------------------------------- budgets


def test_a_party_that_asks_too_much_is_refused_with_a_reason_it_can_read(tmp_path) -> None:
    relay, parties = met(budget=Budget(questions=5), ledger=lambda name: tmp_path / f"{name}.json")
    serving(parties)
    asked(relay, parties, "alpha", "beta", ["word1", "word2", "word3"])
    with pytest.raises(
        BadInput, match="beta gives no answer: beta answers alpha 5 questions, 3 of them are answered and 3"
    ):
        asked(relay, parties, "alpha", "beta", ["word1", "word2", "word3"])
    asked(relay, parties, "alpha", "beta", ["word1", "word2"])
    asked(relay, parties, "gamma", "beta", ["word1"])  # others have budgets of their own
    assert BudgetLedger("beta", path=tmp_path / "beta.json").to_table() == {
        "alpha": {"questions": 5, "epsilon": 0.0},
        "gamma": {"questions": 1, "epsilon": 0.0},
    }
    relay, parties = met(budget=Budget(questions=5), ledger=lambda name: tmp_path / f"{name}.json")
    serving(parties)
    with pytest.raises(BadInput, match="5 of them are answered"):  # a restart forgets nothing
        asked(relay, parties, "alpha", "beta", "word1")


def test_decoys_count_and_epsilon_adds_up() -> None:
    relay, parties = met(
        budget=Budget(questions=100, epsilon=2.0),
        perturbation=EachAnswer(0.5),
        obfuscation=KeyedBlocks(bytes(32), WORDS, 4, 6),
    )
    serving(parties)
    asked(relay, parties, "alpha", "beta", "word1")
    assert (parties["beta"].ledger.questions("alpha"), parties["beta"].ledger.epsilon("alpha")) == (4, 2.0)
    with pytest.raises(BadInput, match=r"beta spends ε = 2 on alpha, 2 is spent and this would make 4"):
        asked(relay, parties, "alpha", "beta", "word1")


def test_unsound_questions_are_refused_and_cost_nothing(monkeypatch) -> None:
    """A party that leaves the protocol: what it seals is authentic, and nonsense."""
    _, parties = met()
    serving(parties)
    alpha, beta = parties["alpha"], parties["beta"]
    for text in (
        b"",
        b"nonsense",
        Ask(0, np.full((1, 6), 40, np.int32)).to_bytes(),
        Ask(7, np.zeros((1, 6), np.int32)).to_bytes(),
    ):
        (reply,) = beta.receive(alpha.session.seal("beta", Kind.ASK, text))
        assert reply.kind is Kind.REFUSE
    with pytest.raises(BadInput, match="nobody is waiting"):
        alpha.receive(reply)
    monkeypatch.setattr("quorank.silos.protocol.messages.MOST_BYTES", 5000)
    (reply,) = beta.receive(alpha.session.seal("beta", Kind.ASK, Ask(0, np.zeros((4, 6), np.int32)).to_bytes()))
    assert reply.kind is Kind.REFUSE  # the answer would be larger than an envelope
    assert beta.ledger.questions("alpha") == 0


def test_an_unreadable_answer_is_told_to_whoever_waits_for_it() -> None:
    _, parties = met()
    alpha, beta = parties["alpha"], parties["beta"]
    question = alpha.ask("word1", "beta")
    beta.receive(question)
    alpha.receive(beta.session.seal("alpha", Kind.ANSWER, question.number.to_bytes(8, "little") + b"rubbish"))
    with pytest.raises(BadInput, match="the answer of beta cannot be read"):
        alpha.answers(question)
