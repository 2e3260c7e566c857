"""Parties over a network get the ranker of one process, to the last bit, whatever happens on the way."""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postgresql_server import empty_database
from refusals import refused
from scipy import stats
from silo_sessions import (
    HOLDINGS,
    NAMES,
    SEED,
    Group,
    Killed,
    Mailboxes,
    expected,
    identity_of,
    play,
    step_through,
    terms_of,
)

from quorank.errors import BadInput
from quorank.files import private_database as private_file
from quorank.member.party import UNCONFIRMED, SiloParty, sent_log
from quorank.protocol.messages import Declined
from quorank.service.store.sql_store import HolderLost, open_store
from quorank.silos.envelopes import Envelope, Kind
from quorank.silos.session import records as silo_records
from quorank.silos.session import streams as silo_streams
from quorank.silos.session.coordinator import SiloServer
from quorank.silos.session.records import Record, SiloMessage, SumHead, cut, decode_sum, enclose, encode
from quorank.silos.session.streams import SiloStore
from quorank.silos.session.terms import SiloTerms
from quorank.silos.training.statistics import share_statistics


@pytest.fixture(autouse=True)
def _quick(monkeypatch) -> None:
    """Processes end here, machines do not: nothing has to wait for the disk."""
    monkeypatch.setattr(private_file, "SYNCHRONOUS", "OFF")


@pytest.fixture
def group_of(tmp_path):
    made = []

    def make(terms: SiloTerms, folder: str = "group", **options) -> Group:
        made.append(Group(tmp_path / folder, terms, **options))
        return made[-1]

    yield make
    for group in made:
        group.close()


def uniform(numbers: np.ndarray) -> float:
    """p of numbers below 16 being uniform."""
    return float(stats.chisquare(np.bincount(numbers.astype(np.int64), minlength=16)).pvalue)


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize(("training", "turns"), [("prior", 6), ("trees", 5)])
def test_a_session_is_the_training_in_one_process(group_of, training, turns) -> None:
    terms = terms_of(training)
    group = group_of(terms)
    assert play(group)
    assert expected(terms).any() and group.rankers() == {expected(terms).tobytes()}
    assert group.server.phase == "done" and group.server.refused == {} and group.server.turns == (turns, turns)
    assert set(group.server.traffic()) == {"hello", "contribution"}
    assert len({party.fingerprint for party in group.parties.values()}) == 1
    figures = [party.figures for party in group.parties.values()]
    assert all(found is not None and {"ndcg@10", "bm25", "prior", "test_lists"} <= set(found) for found in figures)
    log = sent_log(group.parties["west"].folder)
    kinds = [line["kind"] for line in log]
    assert kinds.count("hello") == kinds.count("contribution") == 2 and kinds.count("statistics") == 1
    assert {line["receiver"] for line in log if line["kind"] in ("statistics", "part")} == {"the coordinator"}
    assert all(line["bytes"] > 0 and line["tells"] and line["at"] > 0 for line in log)


def test_masks_cancel_in_sums_and_hide_each_part(group_of) -> None:
    """The coordinator's totals are those of one process; what it gets of each party looks uniform."""
    parts, tables = [], []

    def watch(way: str, content: bytes) -> None:
        for ends, piece in SiloMessage.from_bytes(content, to_party=False).pieces if way == "up" else ():
            if piece[:1] == bytes([Record.PART]):
                parts.append(np.frombuffer(decode_sum(piece)[1], dtype="<u8") >> np.uint64(60))
            if piece[:1] == bytes([Record.STATISTICS]) and not ends:
                tables.append(np.frombuffer(piece[-400_000:], dtype=np.uint8) >> 4)

    group = group_of(terms_of(), watch=watch)
    step_through(group)
    shared = share_statistics(HOLDINGS, group.terms.statistics_epsilon, SEED)
    assert np.array_equal(np.frombuffer(group.server._store.fact("total") or b"", dtype=np.uint32), shared.total)
    assert len(tables) == 3 and len(parts) >= 3 * 4
    assert all(uniform(piece) > 1e-6 for piece in (*tables, *parts[:6]))


def test_loss_delay_repetition_and_order_change_no_bit(group_of) -> None:
    terms = terms_of()
    group, calm = group_of(terms), group_of(terms, "calm")
    assert play(group, loss=0.25, twice=0.4, seed=1)
    assert play(calm)
    assert group.rankers() == calm.rankers() == {expected(terms).tobytes()}
    assert group.server.traffic() == calm.server.traffic()


def test_with_secret_keys_all_parties_get_one_ranker(group_of) -> None:
    terms = terms_of(seed=None)
    group, other = group_of(terms), group_of(terms, "other")
    play(group)
    assert len(group.rankers()) == 1 and group.rankers() != {b""}
    for name in NAMES:
        other.parties[name]._entropy = random.Random(f"another {name}").randbytes
    play(other)
    assert other.parties["north"].fingerprint != group.parties["north"].fingerprint
    store = group.parties["north"]._store
    for secret in ("secrets", "agreement", "lines", "sum"):
        assert store.fact(secret) is None, "deleted when the session is done"


def test_nothing_but_keys_is_exchanged_before_the_others_are_confirmed(group_of) -> None:
    """A coordinator in between: in a second group it plays the others itself, and north takes part in that one."""
    terms, confirmed = terms_of(seed=None), set[str]()
    group, between = group_of(terms), group_of(terms, "between")
    for name in NAMES:
        between.parties[name]._entropy = random.Random(f"another {name}").randbytes
    for party in (*group.parties.values(), between.parties["north"]):
        party._confirmed = lambda fingerprint, identities: fingerprint in confirmed
    deceived = between.parties["north"]

    def kinds(party: SiloParty) -> set[str]:
        return {line["kind"] for line in sent_log(party.folder)}

    for _ in range(10):
        for name in NAMES:
            group.message(name)
            between.message(name)
    for party in (*group.parties.values(), deceived):
        assert kinds(party) == {"hello", "contribution"} and party.progress.endswith(UNCONFIRMED)
        assert set(party.identities) == set(NAMES) - {party.name}
    confirmed.add(group.parties["south"].fingerprint or "")  # as south reads it out
    step_through(group)
    for _ in range(10):
        between.message("north")
    assert len(group.rankers()) == 1 and kinds(deceived) == {"hello", "contribution"}


# ---------------------------------------------------------------- parties that leave


@pytest.mark.parametrize(("training", "turns"), [("prior", 1), ("prior", 7), ("trees", 1), ("trees", 4)])
def test_a_sum_is_requested_again_without_a_party_that_left(group_of, training, turns) -> None:
    group = group_of(terms_of(training))
    boxes = Mailboxes(group, group.folder)
    boxes.reach("training")
    for _ in range(turns):
        boxes.turn()
    boxes.post.leave(1)
    left = group.parties.pop("south")
    boxes.store.release()
    boxes.hold()  # another holder knows it too
    assert boxes.play() and boxes.post.server.gone == ("south",) and not boxes.post.server.blocked
    assert len(group.rankers()) == 1
    left.close()


def test_no_sum_is_requested_of_a_party_alone(group_of) -> None:
    group = group_of(terms_of())
    boxes = Mailboxes(group, group.folder)
    boxes.reach("training")
    boxes.post.leave(1)
    boxes.post.leave(2)
    assert boxes.post.server.blocked


def test_before_the_training_nobody_is_asked_once_a_party_has_left(group_of) -> None:
    group = group_of(terms_of())
    boxes = Mailboxes(group, group.folder)
    boxes.reach("statistics")
    boxes.post.leave(1)
    boxes.post.leave(1)
    assert boxes.post.server.blocked and boxes.post.server.gone == ("south",)
    answered = group.answers
    for _ in range(20):
        boxes.turn()
    assert group.answers <= answered + 2 and boxes.store.letter(1) is None
    assert not any(boxes.post.server.waits(name) for name in group.terms.parties)


# ---------------------------------------------------------------- killed and started again


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_commit(group_of, monkeypatch, when) -> None:
    """A process ends at its first commit, the next one at its second, and so on, and again from the first."""
    terms = terms_of()
    group = group_of(terms)
    commit = SiloStore._commit
    lives = itertools.cycle(range(1, 6))
    left = {"on": False, "boundaries": next(lives)}

    def fatal(self) -> None:
        left["boundaries"] -= left["on"]
        ends = left["boundaries"] == 0
        if ends:
            left.update(on=False, boundaries=next(lives))
        if ends and when == "before":
            raise Killed
        commit(self)
        if ends:
            raise Killed

    monkeypatch.setattr(SiloStore, "_commit", fatal)
    rounds = 0
    while not group.server.done:
        for name in NAMES:
            content = group.server.due(name)
            if content is not None:
                left["on"] = True
                found = group.answer(name, content)
                if isinstance(found, bytes):
                    group.receive(name, found)
                left["on"] = False
        rounds += 1
        assert rounds < 500, [party.progress for party in group.parties.values()]
    assert group.kills > 15
    assert group.rankers() == {expected(terms).tobytes()}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_another_holder_continues_to_the_same_bits(group_of, database) -> None:
    """Every few turns another process holds the session; one that was only asleep can write nothing any more."""
    terms = terms_of()
    group = group_of(terms)
    address = "" if database == "sqlite" else empty_database()
    boxes, holders = Mailboxes(group, group.folder, database=address), 1
    while not boxes.post.server.done:
        for _ in range(4):
            boxes.turn()
        asleep, old = boxes.post, boxes.store
        old.release()
        boxes.store = open_store(group.folder, address)
        boxes.hold()
        holders += 1
        if not boxes.post.server.done:
            with pytest.raises(HolderLost):
                asleep.turn()
        for line in boxes.lines.values():
            line.store = boxes.store
        old.close()
        assert holders < 100
    assert holders > 2 and group.rankers() == {expected(terms).tobytes()}
    boxes.store.close()


def test_an_older_copy_of_a_folder_is_refused(group_of, tmp_path) -> None:
    """Restored, a party would seal other texts under numbers that it has used."""
    group = group_of(terms_of())
    for name in NAMES:
        group.message(name)
    group.parties["south"].close()
    shutil.copytree(group.folder / "south", tmp_path / "copy")
    group.start("south")
    for _ in range(3):
        for name in NAMES:
            group.message(name)
    group.parties["south"].close()
    shutil.rmtree(group.folder / "south")
    shutil.copytree(tmp_path / "copy", group.folder / "south")
    group.start("south")
    while (content := group.server.due("south")) is None:
        assert group.message("north") or group.message("west")
    assert group.parties["south"].answer(content) == Declined("place")


# ---------------------------------------------------------------- what crosses


def test_nothing_that_crosses_holds_a_term_a_document_or_a_feature(group_of) -> None:
    crossed: list[bytes] = []
    group = group_of(terms_of(), watch=lambda way, content: crossed.append(content))
    lists: dict[str, np.ndarray] = {}

    def after(name: str) -> None:
        for party in group.parties.values():
            if "sums" in party.__dict__:
                lists[party.name] = party.sums.args[1].data.features

    step_through(group, after)
    everything = b"\n".join(crossed)
    terms = {t.encode() for h in HOLDINGS for query in h.queries for t in query}
    terms |= {t.encode() for h in HOLDINGS for t in h.documents.body.vocabulary}
    terms |= {name.encode() for h in HOLDINGS for name in (*h.documents.ids, *h.query_ids)}
    assert len(terms) > 600 and min(map(len, terms)) >= 8
    assert occurring({b"north", b"elsewhere"}, everything) == {b"north"}  # what is in clear is found
    assert not occurring(terms, everything)
    assert set(lists) == set(NAMES)
    for features in lists.values():
        for row in features[::12]:
            for width in ("<f4", "<f8"):
                assert row[4:8].astype(width).tobytes() not in everything or not row[4:8].any()


def occurring(words: set[bytes], text: bytes) -> set[bytes]:
    """Those of the words that are in a text; only places are compared whose first bytes may begin one of them."""
    first = min(map(len, words))
    letters = np.frombuffer(text, np.uint8)
    places = np.arange(len(letters) - first + 1)
    for at in range(first):
        begins = np.zeros(256, bool)
        begins[[word[at] for word in words]] = True
        places = places[begins[letters[places + at]]]
    return {word for place in places.tolist() for word in words if text.startswith(word, place)}


def test_without_consent_nothing_leaves(group_of) -> None:
    group = group_of(terms_of(), consent={"south": False})
    for name in NAMES:
        group.message(name)
    assert not play(group, most=40)
    assert group.server.phase == "agreement"
    assert sent_log(group.parties["south"].folder) == []
    content = group.server.due("south")
    assert content is not None and group.parties["south"].answer(content) == Declined("consent")
    group.consent["south"] = True
    assert play(group)
    assert group.rankers() == {expected(group.terms).tobytes()}


# ---------------------------------------------------------------- what is refused


def changed(raw: bytes, *, to_party: bool = False, **changes) -> bytes:
    """A sound message with other content."""
    return replace(SiloMessage.from_bytes(raw, to_party=to_party), **changes).to_bytes(to_party=to_party)


def test_answers_that_are_no_answers_change_nothing(group_of) -> None:
    group = group_of(terms_of())
    for at in range(9):
        group.message(NAMES[at % 3])
    server = group.server
    state = [server.due(name) for name in NAMES], server.traffic(), server.phase
    content = next(filter(None, state[0]))
    name = NAMES[SiloMessage.from_bytes(content, to_party=True).number]
    good = group.parties[name].answer(content)
    assert isinstance(good, bytes)
    other = next(n for n in NAMES if n != name)
    bad: list[tuple[str, bytes, str]] = [
        (other, good, "another party"),
        (name, b"", "malformed"),
        (name, good[:-1], "malformed"),
        (name, content, "malformed"),
        (name, b"QSs2" + bytes(60), "malformed"),
        (name, changed(good, digest=bytes(16)), "other terms"),
        (name, changed(good, have=2**63), "do not exist"),
        (name, changed(good, start=2**63), "do not exist"),
    ]
    for party, raw, words in bad:
        with pytest.raises(BadInput, match=words):
            server.receive(party, raw)
    with refused("party.unknown"):
        server.receive("east", good)
    assert sum(server.refused.values()) == len(bad)
    assert ([server.due(n) for n in NAMES], server.traffic(), server.phase) == state
    server.receive(name, good)
    after = [server.due(n) for n in NAMES]
    server.receive(name, good)  # once more
    assert [server.due(n) for n in NAMES] == after
    step_through(group)
    assert group.rankers() == {expected(group.terms).tobytes()}


@pytest.mark.parametrize(
    "record",
    [
        encode(Record.TOTAL, np.zeros(3, np.uint32)),
        encode(Record.STATISTICS, np.zeros(3, np.uint32)),
        encode(Record.PART, np.zeros(3, np.uint64), head=SumHead(0, (0, 1, 2))),
        encode(Record.KEPT),
        enclose(Envelope(Kind.SEARCH, "north", "south", 1, b"x").to_bytes()),
        enclose(Envelope(Kind.HELLO, "south", "north", 0, b"x").to_bytes()),
        enclose(Envelope(Kind.HELLO, "north", "north", 0, b"x").to_bytes()),
        enclose(Envelope(Kind.HELLO, "north", "east", 0, b"x").to_bytes()),
        b"\xee",
        bytes([Record.PART]),
    ],
)
def test_records_at_the_wrong_time_are_refused(record) -> None:
    terms = terms_of()
    server = SiloServer(SiloStore(None, "coordinator"), terms)
    message = SiloMessage(0, terms.digest[:16], 0, 0, tuple(cut(record)))
    before = [server.due(name) for name in NAMES]
    with pytest.raises(BadInput):
        server.receive("north", message.to_bytes(to_party=False))
    assert [server.due(name) for name in NAMES] == before and sum(server.refused.values()) == 1


def test_a_message_that_cannot_be_written_now_is_answered_later(group_of, monkeypatch) -> None:
    monkeypatch.setattr(private_file, "_PATIENCE", 0.05)
    group = group_of(terms_of())
    party, content = group.parties["north"], group.server.due("north")
    with closing(sqlite3.connect(group.folder / "north" / "party.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert party.answer(content) == Declined("storage")
        assert party.stopped is None and sent_log(party.folder) == []
    assert isinstance(party.answer(content), bytes)


def test_another_key_than_the_pinned_one_stops_a_party(group_of) -> None:
    group = group_of(terms_of(), pins={"north": {"south": bytes(31) + b"\x09"}})
    assert not play(group, most=60)
    assert "pinned" in group.parties["north"].progress
    assert "statistics" not in [line["kind"] for line in sent_log(group.parties["north"].folder)]
    assert group.server.phase == "agreement"


def test_a_folder_belongs_to_one_session_one_party_and_one_set_of_documents(group_of) -> None:
    group = group_of(terms_of())
    with pytest.raises(BadInput, match="another process"):
        SiloParty(group.folder / "north", identity_of("north"), group.terms, HOLDINGS[0])
    group.parties["north"].close()
    for name, terms, holding, words in (
        ("north", terms_of("trees"), HOLDINGS[0], "other terms"),
        ("south", group.terms, HOLDINGS[0], "another party"),
        ("north", group.terms, HOLDINGS[1], "other documents"),
        ("east", group.terms, HOLDINGS[1], "not a party"),
    ):
        with pytest.raises(BadInput, match=words):
            SiloParty(group.folder / "north", identity_of(name), terms, holding)
    group.start("north")
    with refused("folder.other-run"):
        SiloServer(group.streams, terms_of("trees"))


def test_an_answer_counts_as_its_own_members(group_of) -> None:
    group = group_of(terms_of())
    boxes = Mailboxes(group, group.folder)
    boxes.post.turn()
    north, south = (boxes.lines[name].mail() for name in ("north", "south"))
    assert north.content is not None and south.content is not None
    answer = group.parties["north"].answer(north.content)
    assert isinstance(answer, bytes)
    with refused("mail.unknown"):
        boxes.lines["south"].answer(north.id, answer)
    boxes.lines["south"].answer(south.id, answer)
    boxes.post.turn()
    assert boxes.post.server.refused == {"silo-message.other-party": 1} and boxes.post.server.traffic() == {}
    boxes.lines["north"].answer(north.id, answer)
    boxes.post.turn()
    assert boxes.post.server.traffic()["hello"]["envelopes"] == 2


# ---------------------------------------------------------------- streams and terms


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8),
    st.lists(st.sampled_from(["ok", "lost", "twice", "old"]), min_size=1, max_size=60),
)
def test_streams_deliver_every_record_once_and_in_order(sizes, fates) -> None:
    """Pieces of seven bytes, two to a message; whatever is lost, repeated or much delayed."""
    before = silo_records.PIECE, silo_streams.ROOM
    silo_records.PIECE, silo_streams.ROOM = 7, 24
    try:
        one, two = SiloStore(None, "one"), SiloStore(None, "two")
        records = [bytes([Record.KEPT]) + bytes([at]) * size for at, size in enumerate(sizes)]
        for record in records:
            one.put("two", record)
        got, old = [], []
        for fate in (*fates, *["ok"] * 60):
            message = one.message("two", 0, bytes(16))
            old.append(message)
            if fate == "lost":
                continue
            for each in {"twice": [message, message], "old": [old[0]]}.get(fate, [message]):
                two.take("one", each)
            while (record := two.next("one")) is not None:
                got.append(record)
                two.finish("one")
            one.take("two", two.message("one", 0, bytes(16)))
        assert got == records
        assert one.waiting("two") == 0 and not one.rows("SELECT 1 FROM sending")
    finally:
        silo_records.PIECE, silo_streams.ROOM = before
