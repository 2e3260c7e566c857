"""Parties over a network come to what they come to in one process, to the last bit, whatever happens on the way."""

from __future__ import annotations

import itertools
import random
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
from silo_sessions import HOLDINGS, NAMES, SEED, Group, Killed, Mailboxes, expected, play, step_through, terms_of

from quorank.errors import BadInput
from quorank.files import private_database as private_file
from quorank.member.party import SiloParty, sent_log
from quorank.protocol.messages import Declined
from quorank.service.store.sql_store import HolderLost, open_store
from quorank.silos.coordinator.course import TrainingCourse
from quorank.silos.coordinator.server import SiloServer
from quorank.silos.learning.comparison import SiloSetting, collect_answers, prepare_parties, sum_statistics
from quorank.silos.learning.exchange import SiloProtocol
from quorank.silos.learning.instances import ReferenceRank
from quorank.silos.learning.training import Averaging, ClickTraining, RoundRobin
from quorank.silos.party.secrets import Secrets
from quorank.silos.protocol import records as silo_messages
from quorank.silos.protocol import stream_store as silo_store
from quorank.silos.protocol.budget import AnswerRelease, BudgetLedger
from quorank.silos.protocol.messages import Envelope, Kind
from quorank.silos.protocol.records import Record, SiloMessage, written
from quorank.silos.protocol.stream_store import SiloStore
from quorank.silos.protocol.terms import SiloTerms


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


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize("training", ["round-robin", "averaging"])
@pytest.mark.parametrize("perturbation", ["published", "strict", "none"])
def test_a_session_is_the_trial_in_one_process(group_of, perturbation, training) -> None:
    terms = terms_of(perturbation, training)
    group = group_of(terms)
    assert play(group)
    assert group.rankers() == {expected(terms).tobytes()}
    assert group.server.phase == "done" and group.server.refused == {}
    assert group.server.turns == (2 * terms.descent.length, 2 * terms.descent.length)
    assert len({party.fingerprint for party in group.parties.values()}) == 1
    prepared = prepare_parties(HOLDINGS, terms.setting, SEED, sum_statistics(HOLDINGS, terms.protocol, SEED))
    _, heard = collect_answers(prepared, terms.protocol)
    assert heard is not None
    accounts = [account for ledger in group.ledgers().values() for account in ledger.values()]
    assert sum(account["questions"] for account in accounts) == heard.spent["questions"]
    assert max(account["epsilon"] for account in accounts) == heard.spent["epsilon_of_a_pair"]
    for kind in ("catalogue", "ask", "answer"):  # of equal sizes, but for the lengths of the parties' names
        assert group.server.traffic()[kind]["bytes"] == pytest.approx(heard.wire["bytes_by_kind"][kind], rel=0.05)


@pytest.mark.parametrize(("training", "turns"), [("prior", 4), ("trees", 10)])
def test_a_session_of_sums_is_the_training_in_one_process_and_asks_nothing(group_of, training, turns) -> None:
    terms = terms_of("strict", training, questions=0)
    group = group_of(terms)
    assert play(group)
    assert expected(terms).any() and group.rankers() == {expected(terms).tobytes()}
    assert group.server.phase == "done" and group.server.refused == {} and group.server.turns == (turns, turns)
    assert set(group.server.traffic()) == {"hello", "contribution"}
    assert all(ledger == {} for ledger in group.ledgers().values())
    figures = [party.figures for party in group.parties.values()]
    assert all(found is not None and {"ndcg@10", "bm25", "prior", "test_lists"} <= set(found) for found in figures)


def test_what_a_party_adds_to_a_sum_is_not_to_be_seen(group_of) -> None:
    """A masked vector is nothing like the party's own; only all of them together give the sum."""
    group = group_of(terms_of("none", "prior", questions=0))
    vectors: list[np.ndarray] = []

    def watch(way: str, content: bytes) -> None:
        for _, piece in SiloMessage.from_bytes(content, to_party=False).pieces if way == "up" else ():
            if piece[0] == Record.LEARNED:
                vectors.append(np.frombuffer(silo_messages.read(piece, 1)[1][0], dtype="<u8"))

    group.watch = watch
    step_through(group)
    assert len(vectors) >= 3 * 4
    for vector in vectors[:12]:
        counts = np.bincount((vector >> np.uint64(60)).astype(np.int64), minlength=16)
        assert stats.chisquare(counts).pvalue > 1e-6, "uniform, where sums of a few lists are all small"


@pytest.mark.parametrize(("training", "turns"), [("prior", 1), ("prior", 3), ("prior", 9), ("trees", 1), ("trees", 8)])
def test_a_sum_that_a_leaver_is_missing_from_is_asked_for_again(group_of, training, turns) -> None:
    """The ranker of those who are left; a group of two goes on, a party alone does not."""
    group = group_of(terms_of("none", training, questions=0))
    boxes = Mailboxes(group, group.folder)
    while boxes.post.server.phase != "training":
        boxes.turn()
    for _ in range(turns):
        boxes.turn()
    boxes.post.leave(1)
    left = group.parties.pop("south")
    boxes.store.release()
    boxes.hold()
    assert boxes.play() and boxes.post.server.gone == ("south",) and not boxes.post.server.blocked
    assert len(group.rankers()) == 1
    left.close()


def test_a_party_alone_is_asked_for_no_sum(group_of) -> None:
    group = group_of(terms_of("none", "prior", questions=0))
    boxes = Mailboxes(group, group.folder)
    while boxes.post.server.phase != "training":
        boxes.turn()
    boxes.post.leave(1)
    boxes.post.leave(2)
    assert boxes.post.server.blocked


@pytest.mark.parametrize("weights", [(), (0.0, 3.0)])
def test_with_one_weight_nothing_is_validated(group_of, weights) -> None:
    terms = terms_of("none", "averaging", weights)
    group = group_of(terms)
    assert play(group)
    assert group.rankers() == {expected(terms).tobytes()}
    assert group.server.turns[1] == terms.descent.length * (2 if len(weights) > 1 else 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_loss_delay_repetition_and_order_change_no_bit(group_of, seed) -> None:
    terms = terms_of("published", ["round-robin", "averaging"][seed % 2])
    group, calm = group_of(terms), group_of(terms, "calm")
    assert play(group, loss=0.25, twice=0.4, seed=seed)
    assert play(calm)
    assert group.rankers() == calm.rankers() == {expected(terms).tobytes()}
    assert group.ledgers() == calm.ledgers()
    assert group.server.traffic() == calm.server.traffic()


def test_a_party_that_leaves_and_comes_back_is_waited_for(group_of) -> None:
    group = group_of(terms_of("none"))
    away = group.parties.pop("south")
    assert not play(group, most=30)
    assert group.server.phase == "agreement"
    group.parties["south"] = away
    assert play(group)
    assert group.rankers() == {expected(group.terms).tobytes()}


@pytest.mark.parametrize("phase", ["validation", "training", "end"])
def test_after_the_asking_a_session_goes_on_without_a_party_that_left(group_of, phase) -> None:
    group = group_of(terms_of("none", "round-robin"))
    boxes = Mailboxes(group, group.folder)
    while boxes.post.server.phase != phase:
        boxes.turn()
    boxes.post.leave(1)
    left = group.parties.pop("south")
    boxes.store.release()
    boxes.hold()  # another holder knows it too
    assert boxes.play() and boxes.post.server.gone == ("south",) and not boxes.post.server.blocked
    assert len(group.rankers()) == 1 and group.server.turns[0] == group.server.turns[1]
    assert (group.rankers() == {expected(group.terms).tobytes()}) == (phase == "end"), "its turns pass"
    left.close()


def test_before_that_nobody_is_asked_once_a_party_has_left(group_of) -> None:
    group = group_of(terms_of("none"))
    boxes = Mailboxes(group, group.folder)
    while boxes.post.server.phase != "asking":
        boxes.turn()
    boxes.post.leave(1)
    boxes.post.leave(1)
    assert boxes.post.server.blocked and boxes.post.server.gone == ("south",)
    answered = group.answers
    boxes.turn()  # what the others were asked before is answered once more at most
    for _ in range(20):
        boxes.turn()
    assert group.answers <= answered + 2 and boxes.store.letter(1) is None
    assert not any(boxes.post.server.waits(name) for name in group.terms.parties)


@pytest.mark.parametrize("training", [RoundRobin(turns=4, steps=1), Averaging(rounds=2, steps=1)])
def test_turns_of_a_party_that_left_pass_with_the_parameters_as_they_were(training) -> None:
    gone: set[int] = set()
    course = TrainingCourse.begin(training, [[2], [3], [5]], 1, gone)
    first, second, third = np.array([[1.0, 4.0]]), np.array([[2.0, 8.0]]), np.array([[3.0, 5.0]])
    start = course.thetas.copy()
    if isinstance(training, Averaging):
        assert not course.take(0, first)
        gone.add(1)
        assert not course.end_turn() and course.take(2, third) and course.turn == 1
        assert np.allclose(course.thetas, start + (2 * (first - start) + 5 * (third - start)) / 7)
    else:
        gone.add(1)
        assert course.take(0, first) and course.turn == 2, "the turn of party 1 has passed"
        assert np.array_equal(course.thetas, first)
        assert course.take(2, third) and np.array_equal(course.thetas, third) and course.turn == 3
        again = TrainingCourse.read(training, course.table(), gone)
        assert again.take(0, second) and again.done and np.array_equal(again.thetas, second)


# ---------------------------------------------------------------- killed and started again


@pytest.mark.parametrize(("training", "seed"), [("round-robin", SEED), ("round-robin", None), ("trees", SEED)])
def test_everybody_is_killed_after_every_message(group_of, training, seed) -> None:
    """Alternately before the answer is handed in, so that it is lost, and after it; with noise of the seed's, and own."""
    terms = terms_of("published", training, seed=seed)
    group = group_of(terms)
    turn = 0
    while not group.server.done:
        for name in NAMES:
            turn += 1
            if group.message(name, answered=turn % 2 == 0):
                group.kill(name)
                group.kill_server()
        assert turn < 1_000
    assert group.kills > 100
    calm = group_of(terms, "calm")
    step_through(calm)
    assert group.rankers() == calm.rankers() and len(calm.rankers()) == 1
    assert seed is None or group.rankers() == {expected(terms).tobytes()}
    assert group.ledgers() == calm.ledgers()


@pytest.mark.parametrize(("perturbation", "when"), [("published", "after"), ("strict", "before")])
def test_killed_at_every_commit_and_every_charge(group_of, monkeypatch, perturbation, when) -> None:
    """A process ends at its first commit or charge, the next one at its second, and so on, and again from the first."""
    terms = terms_of(perturbation)
    calm = group_of(terms, "calm")
    step_through(calm)
    group = group_of(terms)
    commit, save = SiloStore._commit, BudgetLedger._save
    lives = itertools.cycle(range(1, 10))
    left = {"on": False, "boundaries": next(lives)}

    def fatal(work, *arguments) -> None:
        left["boundaries"] -= left["on"]
        ends = left["boundaries"] == 0
        if ends:
            left.update(on=False, boundaries=next(lives))
        if ends and when == "before":
            raise Killed
        work(*arguments)
        if ends:
            raise Killed

    monkeypatch.setattr(SiloStore, "_commit", lambda self: fatal(commit, self))
    monkeypatch.setattr(BudgetLedger, "_save", lambda self, *rest: fatal(save, self, *rest))
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
    assert group.kills > 25
    assert group.rankers() == calm.rankers() == {expected(terms).tobytes()}
    assert group.ledgers() == calm.ledgers()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_another_holder_goes_on_to_the_same_bits(group_of, database) -> None:
    """Every few turns another process holds the session; one that was only asleep can write nothing any more."""
    terms = terms_of("published", "averaging")
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
    assert holders > 3 and group.rankers() == {expected(terms).tobytes()}
    boxes.store.close()


def test_a_ledger_charges_work_that_is_done_again_once(tmp_path) -> None:
    path, release = tmp_path / "ledger.json", AnswerRelease("body published", 0.5)
    ledger = BudgetLedger("north", path=path)
    ledger.charge("south", 3, release)
    before = ledger.charges
    ledger.charge("south", 2, release)
    ledger.charge("west", 2, release)
    again = BudgetLedger("north", path=path)
    again.begin_again(before)
    for asker, questions in (("south", 2), ("west", 2), ("south", 4)):
        again.charge(asker, questions, release)
    assert (again.questions("south"), again.questions("west")) == (9, 2)
    with pytest.raises(BadInput, match="fewer than"):
        again.begin_again(99)


def test_an_older_copy_of_a_folder_is_refused(group_of, tmp_path) -> None:
    """Put back, a party would seal other texts under numbers that it has used."""
    import shutil

    group = group_of(terms_of("none"))
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


# ---------------------------------------------------------------- in earnest


def test_in_earnest_all_parties_end_with_one_ranker(group_of) -> None:
    terms = terms_of("published", seed=None)
    group, other = group_of(terms), group_of(terms, "other")
    play(group)
    assert len(group.rankers()) == 1 and group.rankers() != {b""}
    for name in NAMES:
        other.parties[name]._entropy = random.Random(f"another {name}").randbytes
    play(other)
    assert other.rankers() != group.rankers()  # other keys, other noise
    store = group.parties["north"]._store
    for secret in ("secrets", "agreement", "lines", "sum"):
        assert store.fact(secret) is None, "forgotten when the run is done"


def test_the_same_question_is_answered_with_the_same_noise(tmp_path) -> None:
    """Also after a restart, and to another asker; another question with other noise."""
    terms = terms_of("published", seed=None)
    drawn = []
    for _ in range(2):
        store = SiloStore(tmp_path, "party")
        _, by_question = Secrets(store, terms, "north", random.Random(len(drawn)).randbytes).of_answers()
        assert by_question is not None
        asked = [(0, np.array([1, 2])), (0, np.array([1, 3])), (1, np.array([1, 2]))]
        drawn.append([by_question(*each).words(8).tolist() for each in asked])
        store.close()
    assert drawn[0] == drawn[1]
    assert len({tuple(words) for words in drawn[0]}) == 3


def test_masks_cancel_in_the_sum_and_hide_each_table(group_of) -> None:
    """What the coordinator adds up is the sum of one process; what it gets of each party looks uniform."""
    seen: list[bytes] = []
    group = group_of(terms_of("strict"), watch=lambda way, content: seen.append(content) if way == "up" else 0)
    step_through(group)
    masked = []
    for content in seen:
        message = SiloMessage.from_bytes(content, to_party=False)
        for ends, piece in message.pieces:
            if piece and piece[0] == Record.MASKED and len(piece) == silo_messages.PIECE and not ends:
                masked.append(piece)
    shared = sum_statistics(HOLDINGS, group.terms.protocol, SEED)
    total = np.concatenate(list(shared.totals.values())).astype(np.uint32)
    assert np.array_equal(np.frombuffer(group.server._store.fact("total") or b"", dtype=np.uint32), total)
    assert len(masked) == 3
    for piece in masked:
        numbers = np.frombuffer(piece[-400_000:], dtype=np.uint8)
        assert stats.chisquare(np.bincount(numbers, minlength=256)).pvalue > 1e-4


# ---------------------------------------------------------------- what crosses


def test_nothing_that_crosses_holds_a_term_a_document_or_a_feature(group_of) -> None:
    crossed: list[bytes] = []
    group = group_of(terms_of("published"), watch=lambda way, content: crossed.append(content))
    training = {}
    step_through(
        group,
        lambda name: training.update(
            {n: p._member.training for n, p in group.parties.items() if p._member and p._member.place == 4}
        ),
    )
    everything = b"\n".join(crossed)
    assert b"north" in everything and b'"asks"' in everything  # what is in clear is found
    terms = {t.encode() for h in HOLDINGS for query in h.queries for t in query}
    terms |= {t.encode() for h in HOLDINGS for t in h.documents.body.vocabulary}
    terms |= {name.encode() for h in HOLDINGS for name in (*h.documents.ids, *h.query_ids)}
    assert len(terms) > 600 and min(map(len, terms)) >= 8
    assert occurring({b"north", b"elsewhere"}, everything) == {b"north"}
    assert not occurring(terms, everything)
    assert set(training) == set(NAMES)
    for own in training.values():
        for part in (own.own, own.found):
            for row in part.data.features[::12]:
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


def test_a_party_knows_what_it_sent(group_of) -> None:
    group = group_of(terms_of("none"))
    step_through(group)
    log = sent_log(group.parties["west"].folder)
    kinds = [line["kind"] for line in log]
    batches = group.server._run._asks[2]
    assert kinds.count("hello") == kinds.count("contribution") == 2
    assert kinds.count("ask") == 2 * batches and kinds.count("catalogue") == 4
    assert {line["receiver"] for line in log if line["kind"] in ("ask", "answer")} == {"north", "south"}
    assert {line["receiver"] for line in log if line["kind"] in ("masked", "rows", "learned", "tally")} == {
        "the coordinator"
    }
    assert all(line["bytes"] > 0 and line["tells"] and line["at"] > 0 for line in log)


def test_without_consent_nothing_leaves(group_of) -> None:
    group = group_of(terms_of("none"), consent={"south": False})
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


def test_answers_that_are_no_answers_change_nothing(group_of) -> None:
    group = group_of(terms_of("none"))
    step_through_some(group, 12)
    server = group.server
    state = [server.due(name) for name in NAMES], server.traffic(), server.phase
    content = server.due("north") or server.due("south") or server.due("west")
    assert content is not None
    name = NAMES[SiloMessage.from_bytes(content, to_party=True).number]
    good = group.parties[name].answer(content)
    assert isinstance(good, bytes)
    other = next(n for n in NAMES if n != name)
    bad: list[tuple[str, bytes, str]] = [
        (other, good, "another party"),
        (name, b"", "malformed"),
        (name, good[:-1], "malformed"),
        (name, content, "malformed"),
        (name, b"QSs1" + bytes(60), "malformed"),
        (name, changed(good, digest=bytes(16)), "other terms"),
        (name, changed(good, have=2**63), "never said"),
        (name, changed(good, start=2**63), "never said"),
    ]
    for party, raw, words in bad:
        with pytest.raises(BadInput, match=words):
            server.receive(party, raw)
    with pytest.raises(BadInput, match="no party"):
        server.receive("east", good)
    assert sum(server.refused.values()) == len(bad)
    assert ([server.due(n) for n in NAMES], server.traffic(), server.phase) == state
    server.receive(name, good)
    after = [server.due(n) for n in NAMES]
    server.receive(name, good)  # once more
    assert [server.due(n) for n in NAMES] == after
    step_through(group)
    assert group.rankers() == {expected(group.terms).tobytes()}


def changed(raw: bytes, *, to_party: bool = False, **changes) -> bytes:
    """A sound message that says something else."""
    return replace(SiloMessage.from_bytes(raw, to_party=to_party), **changes).to_bytes(to_party=to_party)


def step_through_some(group: Group, messages: int) -> None:
    for at in range(messages):
        group.message(NAMES[at % 3])


@pytest.mark.parametrize(
    "record",
    [
        written(Record.SUM, {"asks": [1, 1, 1]}),
        written(Record.MASKED, {"asks": 1}, np.zeros(3, np.uint32)),
        written(Record.ROWS, {"kept": [], "models": [], "final": [-1]}),
        written(Record.LEARNED, {"stage": 0, "turn": 0}, np.full(17, np.nan)),
        written(Record.TALLY, {"lists": 1}, np.zeros(3), np.zeros(3)),
        written(Record.KEPT),
        bytes([Record.ENVELOPE]) + Envelope(Kind.ASK, "north", "south", 1, b"x").to_bytes(),
        bytes([Record.ENVELOPE]) + Envelope(Kind.HELLO, "south", "north", 0, b"x").to_bytes(),
        bytes([Record.ENVELOPE]) + Envelope(Kind.HELLO, "north", "north", 0, b"x").to_bytes(),
        b"\xee",
        bytes([Record.ROWS]),
    ],
)
def test_records_at_the_wrong_time_are_refused(record) -> None:
    terms = terms_of()
    server = SiloServer(SiloStore(None, "coordinator"), terms)
    message = SiloMessage(0, terms.digest()[:16], 0, 0, tuple(silo_messages.cut(record)))
    before = [server.due(name) for name in NAMES]
    with pytest.raises(BadInput):
        server.receive("north", message.to_bytes(to_party=False))
    assert [server.due(name) for name in NAMES] == before and len(server.refused) == 1


def test_a_party_declines_what_it_did_not_agree_to(group_of) -> None:
    group = group_of(terms_of("none"))
    content = group.server.due("north")
    assert content is not None
    party, other = group.parties["north"], terms_of("strict")
    for raw, code in (
        (b"", "malformed"),
        (content[:-1], "malformed"),
        (content + b"\0", "malformed"),
        (group.server.due("south"), "client"),
        (changed(content, to_party=True, digest=other.digest()[:16]), "run"),
        (changed(content, to_party=True, have=2**63), "place"),
    ):
        assert raw is not None and party.answer(raw) == Declined(code)
    for record in (
        written(Record.LEARN, {"stage": 0, "turn": 0, "models": [0], "clients": [0]}, np.zeros(17)),
        written(Record.RANKER, None, np.zeros(16)),
        written(Record.JUDGE, {"folds": [0]}, np.zeros(48)),
        written(Record.KEPT),
        bytes([Record.ENVELOPE]) + Envelope(Kind.HELLO, "east", "north", 0, b"x").to_bytes(),
        bytes([Record.ENVELOPE]) + Envelope(Kind.ANSWER, "south", "north", 1, b"x").to_bytes(),
    ):
        fresh = Group(group.folder / f"{record[0]}-{len(record)}", group.terms)
        message = SiloMessage(0, group.terms.digest()[:16], 0, 0, tuple(silo_messages.cut(record)))
        assert fresh.parties["north"].answer(message.to_bytes(to_party=True)) == Declined("stopped")
        assert "cannot go on" in fresh.parties["north"].progress
        fresh.close()


def test_a_message_that_cannot_be_written_now_is_answered_later(group_of, monkeypatch) -> None:
    monkeypatch.setattr(private_file, "_PATIENCE", 0.05)
    group = group_of(terms_of("none"))
    party, content = group.parties["north"], group.server.due("north")
    with closing(sqlite3.connect(group.folder / "north" / "party.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert party.answer(content) == Declined("storage")
        assert party.stopped is None and sent_log(party.folder) == []
    assert isinstance(party.answer(content), bytes)


def test_another_key_than_the_pinned_one_stops_a_party(group_of) -> None:
    group = group_of(terms_of("none"), pins={"north": {"south": bytes(31) + b"\x09"}})
    assert not play(group, most=60)
    assert "pinned" in group.parties["north"].progress
    assert "masked" not in [line["kind"] for line in sent_log(group.parties["north"].folder)]
    assert group.server.phase == "agreement"


def test_pinned_identities_are_those_of_the_folders(group_of) -> None:
    group = group_of(terms_of("none"))
    keys = {name: party.identity.public for name, party in group.parties.items()}
    for name in NAMES:
        group.pins[name] = {other: key for other, key in keys.items() if other != name}
        group.kill(name)
    assert {name: party.identity.public for name, party in group.parties.items()} == keys
    assert (group.folder / "north" / "identity.key").stat().st_mode & 0o777 == 0o600
    assert (group.folder / "north" / "party.sqlite").stat().st_mode & 0o777 == 0o600
    assert play(group)


def test_a_spent_budget_ends_in_words(group_of) -> None:
    group = group_of(terms_of("none", questions=5))
    assert not play(group, most=60)
    assert "gives no answer" in group.parties["north"].progress
    assert group.server.traffic()["refuse"]["envelopes"] > 0


def test_a_folder_is_of_one_run_one_party_and_one_set_of_documents(group_of, tmp_path) -> None:
    group = group_of(terms_of("none"))
    with pytest.raises(BadInput, match="another process"):
        SiloParty(group.folder / "north", "north", group.terms, HOLDINGS[0])
    group.parties["north"].close()
    for name, terms, holding, words in (
        ("north", terms_of("strict"), HOLDINGS[0], "other terms"),
        ("south", group.terms, HOLDINGS[0], "another party"),
        ("north", group.terms, HOLDINGS[1], "other documents"),
        ("east", group.terms, HOLDINGS[1], "no party"),
    ):
        with pytest.raises(BadInput, match=words):
            SiloParty(group.folder / "north", name, terms, holding)
    group.start("north")
    with refused("folder.other-run"):
        SiloServer(group.streams, terms_of("strict"))


def test_changed_bytes_are_refused_and_change_nothing(group_of) -> None:
    group, draw = group_of(terms_of("none")), random.Random(7)

    def damaged(raw: bytes) -> bytes:
        at = draw.randrange(len(raw))
        return raw[:at] + bytes([raw[at] ^ 1 << draw.randrange(8)]) + raw[at + 1 :]

    def after(_: str) -> None:
        for name in NAMES:
            content = group.server.due(name)
            if content is None:
                continue
            assert group.parties[name].answer(damaged(content)) == Declined("malformed")
            found = group.parties[name].answer(content)
            assert isinstance(found, bytes)
            with pytest.raises(BadInput, match="malformed"):
                group.server.receive(name, damaged(found))

    step_through(group, after)
    assert group.rankers() == {expected(group.terms).tobytes()}
    assert sum(group.server.refused.values()) > 20


def test_an_answer_is_only_ever_its_own_members(group_of) -> None:
    """A member answers letters of its own mailbox, and what it says is taken in its own name."""
    group = group_of(terms_of("none"))
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


# ---------------------------------------------------------------- parts of it


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8),
    st.lists(st.sampled_from(["ok", "lost", "twice", "old"]), min_size=1, max_size=60),
)
def test_streams_bring_every_record_once_and_in_order(sizes, fates) -> None:
    """Pieces of seven bytes, two to a message; whatever is lost, comes twice or comes again much later."""
    before = silo_messages.PIECE, silo_store.ROOM
    silo_messages.PIECE, silo_store.ROOM = 7, 24
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
        silo_messages.PIECE, silo_store.ROOM = before


def test_large_records_travel_in_messages_below_nine_mebibytes() -> None:
    one, two = SiloStore(None, "one"), SiloStore(None, "two")
    record = bytes([Record.KEPT]) + np.random.default_rng(1).bytes(20_000_000)
    one.put("two", record)
    messages = 0
    while two.next("one") is None:
        raw = one.message("two", 0, bytes(16)).to_bytes(to_party=True)
        assert len(raw) <= 9 << 20
        two.take("one", SiloMessage.from_bytes(raw, to_party=True))
        one.take("two", two.message("one", 0, bytes(16)))
        messages += 1
    assert two.next("one") == record and messages == 3


@pytest.mark.parametrize("training", [RoundRobin(turns=5, steps=1), Averaging(rounds=5, steps=1)])
def test_models_whose_parties_differ_play_the_same_turns(training) -> None:
    """A party without instances for one ranker is left out of that one only."""
    rows = [[3, 0], [2, 2], [0, 5]]
    course = TrainingCourse.begin(training, rows, 1)
    for turn in range(5):
        plays = course.plays()
        for model, present in enumerate(([0, 1], [1, 2])):
            playing = [p for p, played in plays.items() if model in [m for m, _ in played]]
            assert playing == [present[c] for c in training.players(turn, 2)]
        kept = TrainingCourse.read(training, course.table())
        for each in (course, kept):
            for p, played in plays.items():
                each.take(p, np.full((len(played), 2), float(p + turn)))
        assert course.table() == kept.table()
    assert course.done
    with pytest.raises(BadInput, match="no party has an instance"):
        TrainingCourse.begin(training, [[1, 0], [1, 0]], 1)


def test_terms_are_read_as_they_were_written() -> None:
    for terms in (terms_of(), terms_of("strict", "averaging", (), None)):
        again = SiloTerms.read(terms.table())
        assert again == terms and again.digest() == terms.digest()
    assert terms_of().digest() != terms_of("none").digest()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 9}, "version 9"),
        ({"run": 3}, "missing or of the wrong kind"),
        ({"parties": ["north"]}, "2 to 64 parties"),
        ({"parties": "north"}, "wrong kind"),
        ({"seed": 1.5}, "wrong kind"),
        ({"sed": 1}, "unknown key 'sed'"),
        ({"protocol": {"k": "many"}}, "protocol.k"),
        ({"protocol": {"kind": "other"}}, "protocol.kind"),
        ({"protocol": {"shape": {"rows": 0}}}, "terms: "),
        ({"setting": {"asked": "all"}}, "setting.asked"),
        ({"setting": {"lists": {"deep": 1}}}, "unknown key 'deep'"),
        ({"setting": {"training": "clicks"}}, "round-robin or averaging"),
        ({"setting": {"labels": "reference-rank"}}, "known to nobody"),
        ({"setting": []}, "expected a table"),
    ],
)
def test_terms_that_cannot_be_are_refused(change, words) -> None:
    with pytest.raises(BadInput, match=words):
        SiloTerms.read(terms_of().table() | change)
    with pytest.raises(BadInput, match="expected a table"):
        SiloTerms.read([1])


def test_what_no_network_can_do_is_refused() -> None:
    for setting in (SiloSetting(training=ClickTraining()), SiloSetting(labels=ReferenceRank())):
        with pytest.raises(BadInput):
            SiloTerms("run", NAMES, SiloProtocol(), setting)
