"""The store of a service, the same contract over SQLite and a real PostgreSQL."""

from __future__ import annotations

import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgresql_server import empty_database
from refusals import refused
from store_worker import StoreWorker, content_of, enrolled, hold, reply

from quorank.errors import BadInput
from quorank.protocol.messages import Publication
from quorank.protocol.transport import Message
from quorank.service.store import sql_store as stores
from quorank.service.store.group_commit import NONCE_SLOT, Call, Outcome
from quorank.service.store.sql_store import Finished, HolderLost, RepliesCame, SqlStore, open_store

Place = tuple[Path, str]
ROUND = Publication("round", "run", 1, b"task", b"signature", 5.0, limits=b"limits")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path, "" if request.param == "sqlite" else empty_database()


@pytest.fixture
def store(place: Place) -> Iterator[SqlStore]:
    opened = open_store(*place)
    yield opened
    opened.close()


@pytest.fixture
def held(store: SqlStore) -> SqlStore:
    """A store that this process holds."""
    assert store.hold() is not None
    return store


def call(member: int, *rest: Any, nonce: bytes | None = None) -> Call:
    return Call(member, secrets.token_bytes(16) if nonce is None else nonce, *rest)


def codes(outcomes: list[Outcome]) -> list[str]:
    return [outcome.code or ("again" if outcome.again else "") for outcome in outcomes]


def at(store: SqlStore, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the store's clock."""
    there = store.now() + seconds
    monkeypatch.setattr(store.database, "now", lambda: there)


# ------------------------------------------------------------ who may take part


def test_an_invitation_enrols_one_key_and_the_same_again(store: SqlStore) -> None:
    anna, ben = store.invite("anna", "device", b"a" * 32), store.invite("ben", "party", b"b" * 32)
    assert (anna.number, ben.number, ben.kind, anna.key, anna.admitted) == (0, 1, "party", None, False)
    key = secrets.token_bytes(32)
    first = store.enrol(key, code=b"b" * 32)
    assert (first.number, first.name, first.key, first.admitted) == (1, "ben", key, True)
    assert store.enrol(key, code=b"b" * 32) == first == store.member(1)
    with refused("invitation.used"):
        store.enrol(secrets.token_bytes(32), code=b"b" * 32)
    with refused("enrolment.other-member"):
        store.enrol(key, code=b"a" * 32)
    with refused("invitation.unknown"):
        store.enrol(secrets.token_bytes(32), code=b"c" * 32)
    with refused("invitation.repeated", "anna"):
        store.invite("anna", "device", b"d" * 32)
    with refused("invitation.repeated", "carl"):
        store.invite("carl", "party", b"d" * 32, number=1)
    store.revoke("anna")
    with refused("request.revoked"):
        store.enrol(secrets.token_bytes(32), code=b"a" * 32)
    with refused("invitation.unknown", "nobody"):
        store.revoke("nobody")
    with refused("invitation.unknown", "anna"):
        store.revoke("anna")


def test_a_revoked_party_is_invited_again_with_a_new_key(store: SqlStore) -> None:
    store.invite("anna", "party", b"a", 4)
    old = store.enrol(b"k" * 32, code=b"a")
    with refused("invitation.repeated", "anna"):
        store.invite("anna", "party", b"b", 4)
    store.revoke("anna")
    with refused("invitation.repeated", "anna"):
        store.invite("anna", "device", b"b")
    again = store.invite("anna", "party", b"b", 4)
    assert (again.number, again.key, again.revoked) == (old.number, None, None)
    with refused("invitation.unknown"):
        store.enrol(b"k" * 32, code=b"a")
    assert store.enrol(b"l" * 32, code=b"b").number == old.number


def test_a_token_enrols_as_many_and_as_long_as_it_says(held: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    held.open_enrolment("word", 2, held.now() + 60.0)
    keys = [secrets.token_bytes(32) for _ in range(4)]
    assert [held.enrol(key, token="word").number for key in keys[:2]] == [0, 1]
    assert not held.is_open()
    with refused("enrolment.full"):
        held.enrol(keys[2], token="word")
    assert held.enrol(keys[1], token="word").number == 1, "a lost answer is given again, also by a full token"
    with refused("invitation.unknown"):
        held.enrol(keys[2], token="other")
    with refused("enrolment.other-member"):
        held.enrol(keys[0], token="other")
    held.open_enrolment("word", 3, held.now() + 60.0)
    assert held.is_open()
    at(held, monkeypatch, 61.0)
    with refused("enrolment.ended"):
        held.enrol(keys[2], token="word")
    held.open_enrolment("word", 3, held.now() + 60.0)
    assert held.enrol(keys[2], token="word").number == 2
    held.open_enrolment("word", 4, held.now() + 60.0)
    assert (held.close_enrolment(), held.is_open(), held.close_enrolment()) == (1, False, 0)
    with refused("enrolment.ended"):
        held.enrol(keys[3], token="word")
    held.let_go(1, b"receipt")
    held.revoke("device-0")
    for key, code in ((keys[0], "request.revoked"), (keys[1], "request.left")):
        with refused(code):
            held.enrol(key, token="word")


def test_numbers_are_never_given_again_and_names_do_not_clash(store: SqlStore) -> None:
    assert store.invite("device-1", "device", b"a").number == 0
    store.open_enrolment("word", 9, store.now() + 60.0)
    first = store.enrol(b"k" * 32, token="word")
    assert first.number == 1 and first.name.startswith("device-1-")
    store.revoke(first.name)
    assert store.invite("carl", "party", b"c", number=7).number == 7
    assert store.next_number() == 8
    assert store.enrol(b"l" * 32, token="word").number == 8
    assert [m.number for m in store.members()] == [0, 1, 7, 8]
    assert [m.number for m in store.members(most=2)] == [0, 1]
    assert store.admitted() == [8]
    assert store.counts(store.now()) == {"invited": 2, "enrolled": 1, "revoked": 1, "left": 0, "seen": 0}
    store.take([call(8)])
    assert store.counts(store.now() - 10.0)["seen"] == 1


# ------------------------------------------------------------ what members send


def test_who_is_refused_at_the_gate(held: SqlStore) -> None:
    invited = held.invite("anna", "device", b"a").number
    good, revoked, left = enrolled(held, 3)
    held.revoke(f"device-{revoked}")
    held.let_go(left, b"receipt")
    asked = [good, 99, invited, revoked, left]
    found = ["", "request.unknown-member", "request.unknown-member", "request.revoked", "request.left"]
    assert codes(held.take([call(member) for member in asked])) == found
    found[-1] = ""  # one who has left can ask how far that is
    assert codes(held.take([call(member, "leave") for member in asked])) == found
    assert held.take([]) == []


def test_a_nonce_is_taken_once_by_a_member(place: Place, store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, ben = enrolled(store, 2)
    nonce = secrets.token_bytes(16)
    in_group = [call(anna, nonce=nonce), call(anna, nonce=nonce), call(ben, nonce=nonce)]
    assert codes(store.take(in_group)) == ["", "request.replayed", ""]
    other = open_store(*place)
    assert codes(other.take([call(anna, nonce=nonce)])) == ["request.replayed"], "another worker knows it too"
    other.close()
    there = store.now()
    for seconds, code in ((-NONCE_SLOT, "request.replayed"), (899.0, "request.replayed"), (1300.0, "")):
        monkeypatch.setattr(store.database, "now", lambda seconds=seconds: there + seconds)
        assert codes(store.take([call(anna, nonce=nonce)])) == [code], seconds
    ((kept,),) = store.database.execute("SELECT count(*) FROM nonces")
    assert kept == 1, "what has expired is deleted"


def test_a_reply_is_for_the_open_publication_and_for_who_is_asked(held: SqlStore) -> None:
    members = enrolled(held, 4)
    assert codes(held.take([call(0, "reply", 1, b"x")])) == ["reply.no-open-round"]
    asked = np.array(members[1:3], "<u4").tobytes()
    open_ = held.publish(replace(ROUND, asked=asked))
    assert open_ == replace(ROUND, asked=asked, number=1, opened=open_.opened) == held.publication()
    calls = [call(m, "reply", 1, content_of(1, m)) for m in (*members, 2)] + [call(2, "reply", 1, b"other")]
    found = ["reply.unasked", "", "", "reply.unasked", "again", "reply.repeated"]
    assert codes(held.take(calls)) == found, "also in one group"
    assert codes(held.take([call(1, "reply", 2, b"x")])) == ["reply.other-round"]
    found = held.take([call(1, "reply", 1, content_of(1, 1)), call(1, "reply", 1, b"other")])
    assert codes(found) == ["again", "reply.repeated"]
    assert [(r.member, r.content) for r in held.replies("run", 1)] == [(m, content_of(1, m)) for m in (1, 2)]
    again = held.publish(ROUND)
    assert again.number == 2
    found = held.take([call(m, "reply", n, content_of(1, m)) for n in (1, 2) for m in (1, 3)])
    assert codes(found) == ["reply.other-round"] * 2 + ["again", ""], "the same round, published again"
    for kind in ("secure", "over"):
        number = held.publish(replace(ROUND, kind=kind, limits=b"")).number  # type: ignore[arg-type]
        assert codes(held.take([call(0, "reply", number, b"x")])) == ["reply.no-open-round"]


def test_a_round_takes_as_many_replies_as_it_has_room_for(place: Place, held: SqlStore) -> None:
    members = enrolled(held, 6)
    held.publish(replace(ROUND, room=3))
    assert codes(held.take([call(m, "reply", 1, b"x") for m in members[:2]])) == ["", ""]
    number = held.publish(replace(ROUND, room=3)).number  # the same round again has what it had
    other = open_store(*place)
    found = other.take([call(m, "reply", number, b"x") for m in members])
    assert codes(found) == ["again", "again", "", *["reply.round-full"] * 3]
    number = held.publish(replace(ROUND, room=3, round=2)).number
    found = other.take([call(m, "reply", number, b"x") for m in members])
    assert codes(found) == ["", "", "", *["reply.round-full"] * 3]
    other.close()


def test_members_that_hold_nothing_take_nobody_s_place(held: SqlStore) -> None:
    members = enrolled(held, 6)
    one = replace(ROUND, kind="rebuilding", room=2)
    number = held.publish(one).number
    assert codes(held.take([call(m, "reply", number, b"nothing") for m in members[:3]])) == ["", "", ""]
    number = held.publish(one).number
    assert codes(held.take([call(m, "reply", number, b"x") for m in members[3:]])) == ["", "", "reply.round-full"]


def test_a_member_takes_part_a_few_times_with_rests_between_and_every_run_counts_for_itself(held: SqlStore) -> None:
    (member,) = enrolled(held, 1)

    def code(round_: int, run: str = "run") -> str:
        one = held.publish(replace(ROUND, run=run, round=round_, most=3, rest=2))
        return held.take([call(member, "reply", one.number, content_of(round_, member))])[0].code

    found = [code(round_) for round_ in range(9)]
    assert found == ["", *["reply.resting"] * 2] * 2 + ["", *["reply.too-often"] * 2]
    assert held.database.execute("SELECT taken, last FROM turns WHERE member = ?", member) == [(3, 6)]
    assert code(0, "rebuilding") == ""
    assert code(9) == "reply.too-often", "another run between does not begin the count anew"
    held.publish(replace(ROUND, round=7, most=4))
    assert code(7) == "reply.too-often"


def test_letters_are_answered_once_and_read_in_the_order_of_their_answers(place: Place, held: SqlStore) -> None:
    anna, ben = enrolled(held, 2)
    first, second, third = held.send([(anna, b"1"), (ben, b"2"), (anna, b"3")])
    assert first < second < third
    assert held.letter(anna) == Message(first, anna, b"1")
    assert held.unanswered() == [(first, anna), (second, ben), (third, anna)]
    calls = [
        call(ben, "mail", second, b"two"), call(anna, "mail", second, b"x"), call(anna, "mail", first, b""),
        call(anna, "mail", 99, b"x"), call(anna, "mail", 1 << 70, b"x"), call(ben, "mail", second, b"two"),
        call(ben, "mail", second, b"other"),
    ]  # fmt: skip
    found = ["", "mail.unknown", "", "mail.unknown", "mail.unknown", "again", "mail.repeated"]
    assert codes(held.take(calls)) == found
    assert held.letter(anna) == Message(third, anna, b"3") and held.letter(ben) is None
    assert held.answers(1) == [Message(second, ben, b"two")]
    assert held.answers() == [Message(first, anna, b"")]
    assert held.answers() == []
    held.take([call(anna, "mail", third, b"three")])
    assert held.answers() == [Message(third, anna, b"three")]
    held.forget([second])
    assert codes(held.take([call(ben, "mail", second, b"two")])) == ["mail.unknown"]
    held.release()
    other = open_store(*place)
    assert other.hold() is not None
    assert [one.id for one in other.answers()] == [first, third], "a new holder gets what is kept"
    with pytest.raises(HolderLost):
        held.answers()
    assert other.send([(ben, b"4")])[0] > third
    other.forget(None)
    assert (other.letter(ben), other.answers(), other.unanswered()) == (None, [], [])
    other.close()


def test_leaving(held: SqlStore) -> None:
    anna, ben = enrolled(held, 2)
    calls = [
        call(ben, "leave", 0, b"bye"),
        call(anna, "leave"),
        call(ben, "leave", 0, b"bye"),
        call(ben, "leave", 0, b"x"),
    ]
    assert codes(held.take(calls)) == ["", "", "again", "leaving.repeated"]
    assert codes(held.take(calls[2:3])) == ["request.replayed"]
    assert held.leavers() == [(ben, b"bye", None)]
    assert held.leaving(ben) == (b"bye", None) and held.leaving(anna) is None
    assert codes(held.take([call(ben)])) == [""], "it takes part until it is out"
    held.let_go(ben, b"receipt")
    assert held.leaving(ben) == (b"bye", b"receipt") and held.leavers() == [(ben, b"bye", b"receipt")]
    assert codes(held.take([call(ben), call(ben, "leave")])) == ["request.left", ""]
    assert held.admitted() == [anna] and held.counts(0.0)["left"] == 1


# ------------------------------------------------------------ the holder


def test_a_round_ends_in_one_transaction_and_not_before_all_replies_were_read(held: SqlStore) -> None:
    members = enrolled(held, 3)
    held.publish(ROUND, {"checkpoint": b"0", "other": b"kept"})
    held.take([call(m, "reply", 1, content_of(1, m)) for m in members[:2]])
    first, last = held.replies("run", 1)
    assert held.replies("run", 1, after=first.id) == [last] and held.replies("run", 1, most=1) == [first]
    held.take([call(members[2], "reply", 1, b"late")])
    before = held.version()
    after = replace(ROUND, round=2)
    with pytest.raises(RepliesCame):
        held.publish(after, {"checkpoint": b"1"}, Finished("run", 1, last.id))
    with pytest.raises(RepliesCame):
        held.keep({"checkpoint": b"1"}, Finished("run", 1, last.id))
    assert held.document("checkpoint") == b"0" and held.version() == before and len(held.replies("run", 1)) == 3
    (late,) = held.replies("run", 1, last.id)
    held.publish(after, {"checkpoint": b"1", "other": None}, Finished("run", 1, late.id))
    assert (held.document("checkpoint"), held.document("other"), held.replies("run", 1)) == (b"1", None, [])
    assert held.version() > before
    held.keep({"checkpoint": b"2"})
    assert held.document("checkpoint") == b"2"


def test_what_an_old_holder_writes_is_refused(place: Place, store: SqlStore) -> None:
    (member,) = enrolled(store, 1)
    old = store.hold()
    assert old is not None
    store.publish(ROUND)
    other = open_store(*place)
    assert other.hold() is None, "two services on one store"
    store.release()
    assert other.hold() == old + 1
    assert store.hold() is None
    for write in (
        lambda: store.publish(ROUND),
        lambda: store.keep({"a": b"b"}),
        lambda: store.send([(member, b"x")]),
        lambda: store.answers(),
        lambda: store.forget(None),
        lambda: store.let_go(member, b"x"),
    ):
        with pytest.raises(HolderLost):
            write()
    assert store.document("a") is None and store.letter(member) is None
    assert other.publish(ROUND).number == 2
    other.close()


@pytest.mark.slow
def test_another_process_takes_over_when_the_holder_is_killed(place: Place, store: SqlStore) -> None:
    holder = StoreWorker(hold, *place)
    epoch = holder.next()
    assert store.hold() is None
    holder.kill()
    until = time.monotonic() + 10.0
    while (found := store.hold()) is None and time.monotonic() < until:
        time.sleep(0.02)
    assert found == epoch + 1


def test_a_transaction_that_fails_leaves_nothing(held: SqlStore) -> None:
    enrolled(held, 1)
    with pytest.raises(ZeroDivisionError), held.holding():
        held.database.execute("DELETE FROM members")
        raise ZeroDivisionError
    assert held.admitted() == [0]


def test_long_replies_are_read_in_smaller_batches(held: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    members = enrolled(held, 5)
    held.publish(ROUND)
    held.take([call(m, "reply", 1, content_of(1, m, 1000)) for m in members])
    for most, sizes in ((1, [1, 1, 1, 1, 1]), (2000, [2, 2, 1]), (10_000, [5])):
        monkeypatch.setattr(stores, "MOST_BYTES", most)
        found: list[list[int]] = []
        last = 0
        while batch := held.replies("run", 1, last):
            found.append([one.member for one in batch])
            last = batch[-1].id
        assert [len(batch) for batch in found] == sizes
        assert [member for batch in found for member in batch] == members


def test_events_and_tallies(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "EVENTS", 3)
    for number in range(5):
        store.note("invitation.used", number=number)
    found = store.events(2)
    assert [(one["code"], one["number"]) for one in found] == [("invitation.used", 4), ("invitation.used", 3)]
    assert abs(found[0]["at"] - store.now()) < 60.0 and len(store.events()) == 3
    store.tally({"request.time": 2, "request.signature": 1})
    store.tally({"request.time": 3})
    assert store.tallies() == {"request.time": 5, "request.signature": 1}


def test_versions_of_members_are_counted_by_their_last_request(store: SqlStore) -> None:
    numbers = enrolled(store, 80)
    assert store.programs() == {}, "nobody has asked for anything yet"

    def ask(number: int, program: str) -> None:
        (outcome,) = store.take([Call(number, secrets.token_bytes(16), program=program)])
        assert not outcome.code

    for number in numbers[:4]:
        ask(number, "0.1.0")
    ask(numbers[0], "0.2.0")
    ask(numbers[1], "")
    ask(numbers[4], "")
    assert store.programs() == {"0.1.0": 3, "0.2.0": 1, "other": 1}, "a request that tells none changes nothing"
    for number in numbers[5:]:
        ask(number, f"9.{number}")
    told = store.programs()
    assert len(told) == 32 and sum(told.values()) == 80 and told["0.1.0"] == 3 and told["other"] == 80 - 3 - 30
    store.revoke("device-5")
    assert sum(store.programs().values()) == 79


def test_what_changes_for_workers_changes_the_version(held: SqlStore) -> None:
    before = held.version()
    for change in (
        lambda: held.invite("anna", "device", b"a"),
        lambda: held.enrol(b"k" * 32, code=b"a"),
        lambda: held.publish(ROUND),
        lambda: held.send([(0, b"x")]),
        lambda: held.let_go(0, b"x"),
        lambda: held.revoke("anna"),
    ):
        change()
        assert held.version() > before
        before = held.version()
    held.take([call(0)])
    assert held.version() == before


# ------------------------------------------------------------ many at once


@pytest.mark.slow
def test_four_processes_and_a_holder_lose_nothing_and_count_nothing_twice(place: Place, held: SqlStore) -> None:
    """Four workers answer rounds with room for 30 of 80, every other of which is closed while replies still come; one
    worker is killed in the middle."""
    enrolled(held, 80)
    rounds, room = 12, 30
    held.publish(replace(ROUND, room=room))
    workers = [StoreWorker(reply, *place, 20 * number, 20, 7, rounds) for number in range(4)]
    counted: list[tuple[int, int]] = []
    for round_ in range(1, rounds + 1):
        after = replace(ROUND, round=round_ + 1, room=room, kind="over" if round_ == rounds else "round")
        last = count = 0
        until = time.monotonic() + 30.0
        while time.monotonic() < until:
            for one in held.replies("run", round_, last):
                assert one.content == content_of(round_, one.member)
                counted.append((round_, one.member))
                count, last = count + 1, one.id
            if round_ == 5 and workers[0].process.is_alive():
                workers[0].process.kill()
            if count >= (room if round_ % 2 else 8):
                with suppress(RepliesCame):  # then they are read first
                    held.publish(after, {"round": b"%d" % round_}, Finished("run", round_, last))
                    break
        assert held.replies("run", round_) == [] and (count == room if round_ % 2 else 8 <= count <= room)
    told = [worker.rest() for worker in workers]
    accepted = Counter(one for lines in told for what, ones in lines if what == "accepted" for one in ones)
    assert [worker.process.exitcode for worker in workers] == [-signal.SIGKILL, 0, 0, 0]
    assert max(Counter(counted).values()) == 1 and max(accepted.values()) == 1
    unconfirmed = set(counted) - set(accepted)
    assert set(accepted) <= set(counted)
    under_way = told[0][-1][1] if told[0] else ()  # it may have been killed before it began
    assert unconfirmed <= set(under_way), "only what the killed one was told nothing of"


@pytest.mark.slow
def test_processes_that_make_the_store_at_the_same_time(place: Place) -> None:
    workers = [StoreWorker(hold, *place) for _ in range(4)]
    told = [worker.next() for worker in workers]
    for worker in workers:
        assert worker.process.is_alive()
        worker.kill()
    assert sorted(told, key=str) == [1, None, None, None]


def test_unknown_databases_and_newer_formats_are_refused(place: Place, store: SqlStore) -> None:
    with refused("database.unknown", "--database"):
        open_store(place[0], "mysql://host/name")
    with pytest.raises(BadInput) as caught:
        open_store(place[0], "postgresql://user:se@cret:word@host/name")
    assert caught.value.code == "database.unknown" and "cret" not in str(caught.value)
    store.database.execute("UPDATE service SET format = format + 1")
    with refused("store.version"):
        open_store(*place)
