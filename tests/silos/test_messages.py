"""Messages: what is written is read back, anything else is refused, sealed lines notice every change and replay."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silo_parties import SMALL, identity, seeded

from quorank.errors import BadInput
from quorank.silos.protocol import messages
from quorank.silos.protocol.group import Field, Group
from quorank.silos.protocol.keys import Agreement
from quorank.silos.protocol.messages import (
    MOST_BYTES,
    VERSION,
    Answer,
    Ask,
    Catalogue,
    Envelope,
    Hello,
    Kind,
    Refuse,
    answer_bytes,
    has_repeats,
    most_vectors,
)
from quorank.silos.protocol.relay import Relay
from quorank.silos.protocol.session import WINDOW, SealedChannel
from quorank.silos.sketch.ranking import Cells

FIELDS = (SMALL, Field("title", 3, 16, 5))
NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


def envelope(body: bytes = b"body") -> Envelope:
    return Envelope(Kind.ASK, "alpha", "beta", 7, body)


def cells(seed: int, rows: int = 6, width: int = 30, documents: int = 100) -> Cells:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, width + 1, rows)
    ids = [random.permutation(documents)[:length] for length in lengths]
    return Cells(
        np.concatenate(([0], np.cumsum(lengths))),
        np.concatenate(ids).astype(np.int32),
        random.integers(-(2**31), 2**31, lengths.sum(), dtype=np.int64).astype(np.int32),
        random.integers(0, 9, rows).astype(np.int32),
    )


def same(one: Cells, two: Cells) -> bool:
    return all(map(np.array_equal, one, two))


# ---------------------------------------------------------------- envelopes


@given(st.sampled_from(Kind), NAME, NAME, st.integers(0, 2**64 - 1), st.binary(max_size=200))
def test_envelopes_are_read_back(kind, sender, receiver, number, body) -> None:
    made = Envelope(kind, sender, receiver, number, body)
    assert Envelope.from_bytes(made.to_bytes()) == made
    assert made.to_bytes().startswith(made.head())


@given(st.binary(max_size=100))
def test_random_bytes_are_no_envelope(raw) -> None:
    with pytest.raises(BadInput):
        Envelope.from_bytes(raw)


@given(st.data())
def test_a_changed_envelope_is_refused_or_is_another_one(data) -> None:
    raw = bytearray(envelope().to_bytes())
    cut = data.draw(st.integers(0, len(raw)))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(raw), bytes(raw[:cut])):
        try:
            read = Envelope.from_bytes(bad)
        except BadInput:
            continue
        assert read.to_bytes() == bad


@pytest.mark.parametrize(("version", "words"), [(0, "older"), (VERSION + 1, "newer")])
def test_another_version_is_refused_by_name(version, words) -> None:
    raw = bytearray(envelope().to_bytes())
    raw[2] = version
    with pytest.raises(BadInput, match=f"version {version} of the protocol, {words}"):
        Envelope.from_bytes(bytes(raw))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: b"XX" + raw[2:], "other bytes than QP"),
        (lambda raw: raw[:3] + b"\x63" + raw[4:], "unknown kind 99"),
        (lambda raw: raw + b"x", "1 bytes too many"),
        (lambda raw: raw[:-1], "too early"),
        (lambda raw: raw.replace(b"alpha", b"al ha"), "no name of a party"),
        (lambda raw: raw.replace(b"alpha", b"al\xffha"), "other letters"),
    ],
)
def test_faults_of_an_envelope_are_named(change, words) -> None:
    with pytest.raises(BadInput, match=words):
        Envelope.from_bytes(change(envelope().to_bytes()))


def test_a_body_that_claims_to_be_huge_is_refused_before_it_is_read() -> None:
    raw = envelope(b"").head() + (MOST_BYTES + 1).to_bytes(4, "little")
    with pytest.raises(BadInput, match="has a body of"):
        Envelope.from_bytes(raw)


# ---------------------------------------------------------------- hellos


def hello() -> Hello:
    return Agreement(identity("alpha"), Group(("alpha", "beta"), FIELDS), entropy=seeded(1)).hello


def test_a_hello_is_read_back() -> None:
    assert Hello.from_bytes(hello().to_bytes(), "alpha") == hello()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (b"[]", "no table"),
        (b'{"b":1,"a":2}', "no table"),  # not canonical: two texts for the same settings
        (b'{"a":1.5}', "no table"),
        (b'{"a":true}', "no table"),
        (b'{"a":{"b":1}}', "no table"),
        (b"\xff", "no table"),
        (b"[" * 4000, "no table"),
        (b'{"a":"' + b"x" * 5000 + b'"}', "more than 4096"),
    ],
)
def test_strange_settings_are_refused(settings, words) -> None:
    with pytest.raises(BadInput, match=words):
        Hello.from_bytes(hello().to_bytes()[:97] + settings, "alpha")


def test_an_older_hello_is_refused() -> None:
    with pytest.raises(BadInput, match="the hello of alpha has version 0 of the protocol, older"):
        Hello.from_bytes(b"\0" + hello().to_bytes()[1:], "alpha")


# ---------------------------------------------------------------- questions and answers


@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_questions_are_read_back_and_sized_by_their_number(count, seed) -> None:
    columns = np.random.default_rng(seed).integers(0, 40, (count, 6)).astype(np.int32)
    raw = Ask(0, columns).to_bytes()
    read = Ask.from_bytes(raw, "alpha", FIELDS)
    assert np.array_equal(read.columns, columns) and read.field == 0
    assert len(raw) == 7 + 24 * count


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (Ask(2, np.zeros((1, 6), np.int32)), "field number 2"),
        (Ask(0, np.zeros((1, 5), np.int32)), "5 rows where sketches of 'body' have 6"),
        (Ask(0, np.full((1, 6), 40, np.int32)), "column 40 where sketches of 'body' have 40"),
        (Ask(0, np.full((1, 6), -1, np.int32)), "column 4294967295"),
        (Ask(0, np.zeros((0, 6), np.int32)), "no vector"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(ask, words) -> None:
    with pytest.raises(BadInput, match=words):
        Ask.from_bytes(ask.to_bytes(), "alpha", FIELDS)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_answers_are_read_back_and_their_size_depends_on_nothing_in_them(seeds) -> None:
    vectors = tuple(cells(seed) for seed in seeds)
    raw = Answer(9, vectors, 30).to_bytes()
    assert len(raw) == answer_bytes(len(seeds), 6, 30)
    read = Answer.from_bytes(raw, "beta", len(seeds), SMALL)
    assert read.asked == 9 and all(map(same, read.vectors, vectors))


def test_an_answer_with_empty_cells_is_as_large_as_a_full_one() -> None:
    empty = Cells(np.zeros(7, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.zeros(6, np.int32))
    raw = Answer(1, (empty,), 30).to_bytes()
    assert len(raw) == len(Answer(1, (cells(1),), 30).to_bytes())
    assert same(Answer.from_bytes(raw, "beta", 1, SMALL).vectors[0], empty)


def test_faults_of_answers_are_named() -> None:
    raw = Answer(1, (cells(1),), 30).to_bytes()
    for bad, vectors, field, words in (
        (raw, 2, SMALL, "1 vectors where 2 were asked"),
        (raw, 1, dataclasses.replace(SMALL, rows=5), "6 rows where sketches have 5"),
        (raw, 1, dataclasses.replace(SMALL, entries=29), "cells of 30 documents, 29 are agreed"),
        (raw + b"\0", 1, SMALL, "another size than it says"),
        (raw[:-1], 1, SMALL, "another size than it says"),
        (raw[:-1] + b"x", 1, SMALL, "something behind its cells"),
        (raw[:18] + b"\x1f" + raw[19:], 1, SMALL, "a cell larger than it says"),
        (raw[:10], 1, SMALL, "too early"),
    ):
        with pytest.raises(BadInput, match=words):
            Answer.from_bytes(bad, "beta", vectors, field)
    one = cells(1)
    twice = one._replace(documents=np.zeros_like(one.documents))
    with pytest.raises(BadInput, match="a document twice"):
        Answer.from_bytes(Answer(1, (twice,), 30).to_bytes(), "beta", 1, SMALL)
    negative = one._replace(documents=one.documents - 200)
    with pytest.raises(BadInput, match="above 2"):
        Answer.from_bytes(Answer(1, (negative,), 30).to_bytes(), "beta", 1, SMALL)
    with pytest.raises(BadInput, match="were announced"):
        Answer(1, (one,), 2).to_bytes()


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 7, 2**24, 2**31 - 1]), max_size=5), min_size=1, max_size=6))
def test_repeated_documents_are_found(rows) -> None:
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    ids = np.array([d for row in rows for d in row], dtype=np.int32)
    assert has_repeats(offsets, ids) == any(len(set(row)) < len(row) for row in rows)


def test_as_many_vectors_as_fit_are_asked_at_once() -> None:
    field = Field("body", 30, 200, 750)
    fit = most_vectors(field)
    assert answer_bytes(fit, 30, 750) + 16 <= MOST_BYTES < answer_bytes(fit + 1, 30, 750) + 16
    with pytest.raises(BadInput, match="larger than an envelope"):
        most_vectors(Field("body", 30, 200, 1 << 20))


@given(st.text(max_size=600))
def test_reasons_are_read_as_printable_text_of_one_size(reason) -> None:
    raw = Refuse(3, reason).to_bytes()
    read = Refuse.from_bytes(raw, "beta")
    assert len(raw) == 510 and read.asked == 3 and read.reason.isprintable()
    if reason.isprintable() and len(reason.encode()) <= 500:
        assert read.reason == reason


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=20))
def test_catalogues_are_read_back_and_sized_by_powers_of_two(ids) -> None:
    made = Catalogue(1, np.array(ids, dtype=np.int32), np.arange(len(ids), dtype=np.int32) - 3)
    raw = made.to_bytes()
    read = Catalogue.from_bytes(raw, "beta", FIELDS)
    assert read.ids.tolist() == ids and np.array_equal(read.lengths, made.lengths)
    assert len(raw) in {5 + 8 * 2**k for k in range(6)}
    assert len(raw) < 5 + 16 * max(len(ids), 1)


def test_faults_of_catalogues_are_named() -> None:
    twice = Catalogue(0, np.array([4, 4], np.int32), np.ones(2, np.int32)).to_bytes()
    with pytest.raises(BadInput, match="a document twice"):
        Catalogue.from_bytes(twice, "beta", FIELDS)
    with pytest.raises(BadInput, match="field number 2"):
        Catalogue.from_bytes(b"\2" + twice[1:], "beta", FIELDS)
    with pytest.raises(BadInput, match="behind its documents"):
        Catalogue.from_bytes(twice.replace(b"\4", b"\5", 1) + b"x", "beta", FIELDS)


@given(st.binary(max_size=80), st.sampled_from(["ask", "answer", "refuse", "catalogue", "hello"]))
def test_random_bytes_never_do_more_than_be_refused(raw, kind) -> None:
    readers = {
        "ask": lambda: Ask.from_bytes(raw, "alpha", FIELDS),
        "answer": lambda: Answer.from_bytes(raw, "alpha", 1, SMALL),
        "refuse": lambda: Refuse.from_bytes(raw, "alpha"),
        "catalogue": lambda: Catalogue.from_bytes(raw, "alpha", FIELDS),
        "hello": lambda: Hello.from_bytes(raw, "alpha"),
    }
    try:
        readers[kind]()
    except BadInput as error:
        assert "alpha" in str(error)


# ---------------------------------------------------------------- sealed lines


def line() -> tuple[SealedChannel, SealedChannel]:
    secret = bytes(range(32))
    return SealedChannel(secret, "alpha", "beta"), SealedChannel(secret, "beta", "alpha")


def test_a_line_carries_both_ways_and_in_any_order() -> None:
    alpha, beta = line()
    sent = [alpha.seal(Kind.ASK, bytes([i])) for i in range(20)]
    assert [beta.open(e) for e in reversed(sent)] == [bytes([i]) for i in reversed(range(20))]
    assert alpha.open(beta.seal(Kind.ANSWER, b"back")) == b"back"
    assert len({e.body for e in (alpha.seal(Kind.ASK, b"same") for _ in range(9))}) == 9


def test_replays_and_envelopes_from_long_ago_are_refused() -> None:
    alpha, beta = line()
    sent = [alpha.seal(Kind.ASK, b"text") for _ in range(WINDOW + 5)]
    for e in sent[3:]:
        beta.open(e)
    for e in (sent[0], sent[3], sent[-1]):
        with pytest.raises(BadInput) as refused:
            beta.open(e)
        assert refused.value.code == "silo-message.replayed"
    assert len(beta._seen) <= WINDOW


@pytest.mark.parametrize(
    "change",
    [
        {"kind": Kind.ANSWER},
        {"number": 2},
        {"sender": "beta", "receiver": "alpha"},
        {"sender": "gamma"},
        {"body": b""},
        {"body": b"x" * 21},
    ],
)
def test_whatever_the_server_changes_is_noticed_and_harms_nothing(change) -> None:
    alpha, beta = line()
    sent = alpha.seal(Kind.ASK, b"text")
    with pytest.raises(BadInput):
        beta.open(dataclasses.replace(sent, **change))
    assert beta.open(sent) == b"text"


def test_an_envelope_sent_back_to_its_sender_does_not_open() -> None:
    alpha, _ = line()
    sent = alpha.seal(Kind.ASK, b"text")
    with pytest.raises(BadInput):
        alpha.open(dataclasses.replace(sent, sender="beta", receiver="alpha"))


def test_another_key_does_not_open() -> None:
    alpha, _ = line()
    with pytest.raises(BadInput, match="sealed with another key") as refused:
        SealedChannel(bytes(32), "beta", "alpha").open(alpha.seal(Kind.ASK, b"text"))
    assert refused.value.code == "silo-message.not-authentic"


def test_a_text_that_is_too_large_is_not_sealed(monkeypatch) -> None:
    alpha, _ = line()
    monkeypatch.setattr("quorank.silos.protocol.session.MOST_BYTES", 100)
    alpha.seal(Kind.ASK, bytes(84))
    with pytest.raises(BadInput, match="fewer terms"):
        alpha.seal(Kind.ASK, bytes(85))


# ---------------------------------------------------------------- the relay


def test_the_relay_hands_on_what_it_got_and_counts() -> None:
    relay = Relay(["alpha", "beta", "gamma"])
    raw = envelope().to_bytes()
    assert relay.pass_on(raw, "alpha") == ("beta", raw)
    relay.pass_on(raw)
    way = relay.traffic["alpha", "beta", Kind.ASK]
    assert (way.envelopes, way.bytes) == (2, 2 * len(raw)) and relay.total() == way


@pytest.mark.parametrize(
    ("raw", "sender", "words"),
    [
        (dataclasses.replace(envelope(), sender="omega").to_bytes(), None, "omega is not known"),
        (dataclasses.replace(envelope(), receiver="omega").to_bytes(), None, "omega is not known"),
        (dataclasses.replace(envelope(), receiver="alpha").to_bytes(), None, "wrote to itself"),
        (envelope().to_bytes(), "beta", "in the name of alpha"),
        (envelope(bytes(300)).to_bytes(), None, "larger than the 200"),
        (b"anything", None, "cannot be read"),
    ],
)
def test_the_relay_refuses_strangers_and_large_envelopes(raw, sender, words, monkeypatch) -> None:
    monkeypatch.setattr("quorank.silos.protocol.relay.MOST_RELAYED", 200)
    relay = Relay(["alpha", "beta"])
    with pytest.raises(BadInput, match=words):
        relay.pass_on(raw, sender)
    assert not relay.traffic


def test_an_envelope_of_the_largest_body_passes_the_relay() -> None:
    relay = Relay(["a" * 64, "b" * 64])
    raw = Envelope(Kind.ANSWER, "a" * 64, "b" * 64, 2**64 - 1, bytes(messages.MOST_BYTES)).to_bytes()
    assert relay.pass_on(raw)[0] == "b" * 64
