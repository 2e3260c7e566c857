"""Searches over a network: what one process finds, to the byte, whatever is lost, killed or sent by a hostile member."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from silo_sessions import HOLDINGS, NAMES, SEED, Group, Mailboxes, MailboxLine, terms_of

from quorank.files import private_database as private_file
from quorank.member.party_searches import SPENT, FolderDesk, SearchRequest
from quorank.protocol.http_client import ServedMail
from quorank.silos.envelopes import Kind
from quorank.silos.search.in_process import SearchSession
from quorank.silos.search.ledger import REFUSED
from quorank.silos.search.settings import SearchTerms
from quorank.silos.training.ranked_search import RankedSearch
from quorank.silos.training.statistics import share_statistics

SEARCH = SearchTerms(among=2, share=1.0, share_of_all=1.0, columns=1 << 16)
TERMS = terms_of(search=SEARCH)
QUERY = " ".join(HOLDINGS[0].queries[0])


@pytest.fixture(autouse=True)
def _quick(monkeypatch) -> None:
    monkeypatch.setattr(private_file, "SYNCHRONOUS", "OFF")


@dataclass
class Desk:
    """Searches in memory."""

    left: list[SearchRequest] = field(default_factory=list)
    found: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def wanted(self) -> list[SearchRequest]:
        return [request for request in self.left if request.name not in self.found]

    def hand_out(self, name: str, found: Mapping[str, Any]) -> None:
        assert name not in self.found, "handed out once"
        self.found[name] = found


@pytest.fixture
def group(tmp_path):
    made = Group(tmp_path / "group", TERMS)
    yield made
    made.close()


def finished(group: Group) -> Mailboxes:
    """A group whose parties have the ranker."""
    boxes = Mailboxes(group, group.folder)
    for _ in range(600):
        if boxes.post.server.done and all(party.ranker is not None for party in group.parties.values()):
            return boxes
        boxes.turn()
    raise AssertionError([party.progress for party in group.parties.values()])


def with_desk(group: Group, name: str, *requests: SearchRequest) -> Desk:
    desk = Desk(list(requests))
    group.parties[name]._desk = desk
    return desk


def turn_until(boxes: Mailboxes, condition, most: int = 400) -> bool:
    for _ in range(most):
        if condition():
            return True
        boxes.turn()
    return False


def in_process(asker: str, query: str, group: Group) -> dict[str, Any]:
    """What the same parties find in one process, with own documents by the group's ranker in the places of own ones."""
    named = [replace(holding, name=name) for holding, name in zip(HOLDINGS, NAMES, strict=True)]
    session = SearchSession(named, SEARCH, SEED, share_statistics(named, TERMS.statistics_epsilon, SEED))
    words = TERMS.setting.tokeniser.tokenise(query)
    wanted = session.search(asker, words, 10**6).to_table()
    ranker = TERMS.saved_ranker(group.parties[asker].ranker)
    holding = next(each for each in named if each.name == asker)
    rows = [
        row for row, _ in RankedSearch(holding, TERMS.setting.searched, ranker, TERMS.setting.features).ranked(words)
    ]
    own = [each for each in wanted["found"] if each["party"] == asker]
    assert {each["number"] for each in own} == {*rows}, "BM25 and the ranker find the same documents"
    placed = iter(sorted(own, key=lambda each: rows.index(each["number"])))
    found = [next(placed) if each["party"] == asker else each for each in wanted["found"]]
    return wanted | {"found": [each | {"rank": rank} for rank, each in enumerate(found[:10], 1)]}


def test_a_search_over_the_network_is_that_of_one_process(group) -> None:
    boxes = finished(group)
    desk = with_desk(group, "north", SearchRequest("first", QUERY), SearchRequest("second", QUERY, top=3))
    assert turn_until(boxes, lambda: len(desk.found) == 2)
    wanted = in_process("north", QUERY, group)
    assert wanted["found"] and {each["party"] for each in wanted["found"]} > {"north"}
    assert desk.found["first"]["found"] == wanted["found"] and desk.found["first"]["refused"] == {}
    assert desk.found["second"]["found"] == wanted["found"][:3]
    for name, told in desk.found["first"]["parties"].items():
        assert told == {key: wanted["parties"][name][key] for key in told} and told["entries"] > 0
        spent = json.loads((group.parties["north"].folder / SPENT).read_text())
        assert spent[name] == {key: value for key, value in told.items() if "bytes" not in key} | {"questions_today": 2}
    traffic = boxes.post.server.traffic()
    assert traffic["search"]["envelopes"] == traffic["found"]["envelopes"] == 4
    assert traffic["description"]["envelopes"] == 2, "told once to each asker"


def test_killed_parties_and_lost_messages_change_nothing(group) -> None:
    boxes = finished(group)
    boxes.store.release()
    boxes = Mailboxes(group, group.folder, loss=0.3, twice=0.3, seed=3)
    desk = with_desk(group, "south", SearchRequest("one", QUERY))
    for step in range(300):
        if desk.found:
            break
        boxes.turn()
        if step % 7 == 3:
            group.kill(("north", "west")[step % 2])
        if step == 10:
            group.kill("south")
            group.parties["south"]._desk = desk
    assert desk.found["one"]["found"] == in_process("south", QUERY, group)["found"]


def test_a_spent_budget_reaches_who_asks_and_others_still_answer(tmp_path) -> None:
    terms = replace(TERMS, search=replace(SEARCH, questions_a_day=1))
    group = Group(tmp_path / "group", terms)
    try:
        boxes = finished(group)
        other = " ".join(HOLDINGS[0].queries[1])
        desk = with_desk(group, "north", SearchRequest("a", QUERY))
        assert turn_until(boxes, lambda: "a" in desk.found)
        desk.left.append(SearchRequest("b", other))
        assert turn_until(boxes, lambda: "b" in desk.found)
        assert set(desk.found["b"]["refused"]) == {"south", "west"}
        assert desk.found["b"]["refused"] == {name: f"{name} {REFUSED}" for name in ("south", "west")}
        assert desk.found["b"]["found"] and {each["party"] for each in desk.found["b"]["found"]} == {"north"}
    finally:
        group.close()


def test_a_party_that_is_away_is_named_when_the_time_is_over(group) -> None:
    boxes = finished(group)
    away = group.parties.pop("west")
    desk = with_desk(group, "north", SearchRequest("late", QUERY, patience=0.0))
    assert turn_until(boxes, lambda: bool(desk.found))
    assert desk.found["late"]["refused"]["west"] == "has not answered yet"
    away.close()


def test_a_hostile_member_ends_nobodys_searches(group) -> None:
    """Questions and answers that cannot be read, or that nobody asked for, are dropped; later searches go on."""
    boxes = finished(group)
    with_desk(group, "south")
    boxes.turn()
    hostile = group.parties["south"]
    with hostile._store.transaction():
        for kind, text in ((Kind.SEARCH, b"nonsense"), (Kind.SEARCH, bytes(400))):
            hostile.seal("north", kind, text)
        hostile.seal("west", Kind.SEARCH, b"")
    desk = with_desk(group, "north", SearchRequest("after", QUERY))
    assert turn_until(boxes, lambda: bool(desk.found))
    assert desk.found["after"]["found"] == in_process("north", QUERY, group)["found"]
    assert all(party.stopped is None for party in group.parties.values())
    assert boxes.post.server.traffic()["refuse"]["envelopes"] == 3


class Unsealed:
    """Stands in for the cipher, to show what the test below finds without seals."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def encrypt(self, nonce: bytes, text: bytes, head: bytes) -> bytes:
        return text + bytes(16)

    def decrypt(self, nonce: bytes, body: bytes, head: bytes) -> bytes:
        return body[:-16]


@pytest.mark.parametrize("sealed", [True, False])
def test_nothing_of_a_query_or_a_document_is_seen_on_the_way(tmp_path, monkeypatch, sealed) -> None:
    if not sealed:
        monkeypatch.setattr("quorank.silos.session.agreement.ChaCha20Poly1305", Unsealed)
    seen: list[bytes] = []
    taken, given = MailboxLine.answer, MailboxLine.mail

    def answer(line: MailboxLine, number: int, content: bytes) -> float:
        seen.append(content)
        return taken(line, number, content)

    def mail(line: MailboxLine, most: int = 0) -> ServedMail:
        found = given(line, most)
        seen.append(found.content or b"")
        return found

    monkeypatch.setattr(MailboxLine, "answer", answer)
    monkeypatch.setattr(MailboxLine, "mail", mail)
    group = Group(tmp_path / "group", TERMS)
    boxes = finished(group)
    desk = with_desk(group, "north", SearchRequest("quiet", QUERY))
    assert turn_until(boxes, lambda: bool(desk.found))
    everything = b"".join(seen)
    assert len({each["party"] for each in desk.found["quiet"]["found"]}) > 1, "something was asked and found"
    run = group.parties["north"]
    question = run.searches.asker.question(QUERY.split()).sent
    keys = run.agreement.keys
    for secret in (keys.hashing_key, *keys.pairs.values(), *(word.encode() for word in QUERY.split())):
        assert secret not in everything
    contents = (
        question[4:20],
        run.agreement._contributions[run.name],
        group.parties["south"].searches.owner.catalogue()[4:60],
    )
    assert [content in everything for content in contents] == [not sealed] * 3
    group.close()


def test_decoys_of_earlier_searches_are_remembered_on_disk(group) -> None:
    """A query in other words keeps its decoys, also after a restart: an owner would else see which bundle comes again."""
    boxes = finished(group)
    desk = with_desk(group, "north", SearchRequest("first", QUERY))
    assert turn_until(boxes, lambda: "first" in desk.found)
    group.kill("north")
    group.parties["north"]._desk = desk
    less = " ".join(QUERY.split()[:-1])
    desk.left.append(SearchRequest("second", less))
    assert turn_until(boxes, lambda: "second" in desk.found)
    member = group.parties["north"]
    first, second = (set(member.searches.asker.question(text.split()).bundles) for text in (QUERY, less))
    assert all(any(set(small) <= set(large) for large in first) for small in second)
    assert len(list(member.searches.asker._kept)) == len(member.searches.asker._kept) == 2


def test_a_desk_of_files(tmp_path) -> None:
    desk = FolderDesk(tmp_path / "searches")
    assert desk.wanted() == [] and desk.fetch("x") is None
    name = desk.leave("wing flutter", 5, 2.5)
    (tmp_path / "searches" / "junk.json").write_text("{")
    (tmp_path / "searches" / "other.json").write_text('{"name": "../up", "query": "x", "top": 1, "patience": 1.0}')
    (request,) = desk.wanted()
    assert request == SearchRequest(name, "wing flutter", 5, 2.5)
    desk.hand_out(name, {"found": []})
    assert desk.wanted() == [] and desk.fetch(name) == {"found": []} and desk.fetch(name) is None
    again = desk.leave("x", 1, 1.0)
    desk.withdraw(again)
    assert desk.wanted() == []
    assert (tmp_path / "searches").stat().st_mode & 0o777 == 0o700
