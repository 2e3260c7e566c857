"""Targets of `quorank.silos` and of a silo run's messages: envelopes, questions, answers, sketches, budgets."""

from __future__ import annotations

import hashlib
import json
from functools import cache

import numpy as np

from fuzz.target import as_file, scratch, target
from quorank.data.ranking import RankingData
from quorank.errors import BadInput, require
from quorank.files.documents import ANYTHING, parse_json
from quorank.silos.learning.searched_lists import SearchedLists
from quorank.silos.learning.summed_training import DictMemory, SumRequest
from quorank.silos.learning.tree_training import TreeTraining
from quorank.silos.protocol.budget import BudgetLedger
from quorank.silos.protocol.group import Field
from quorank.silos.protocol.messages import Answer, Ask, Catalogue, Envelope, Hello, Refuse
from quorank.silos.protocol.records import SiloMessage, doubles, kind_of, read, table_of, tag_of, whole_numbers
from quorank.silos.search.messages import SearchAnswer, SearchQuestion
from quorank.silos.search.settings import SearchTerms
from quorank.silos.sketch.hashing import Hashing
from quorank.silos.sketch.reverse_top_k import ReverseTopK
from quorank.text.embeddings import WordVectors

FIELDS = (Field("title", 3, 20, 4), Field("body", 4, 50, 9))
KEY = bytes(range(32))


@target("silo-message", words=(b"QSp1", b"QSs1"))
def silo_message(data: bytes) -> None:
    """One way of an exchange between a party and its coordinator, whose checksum fits."""
    whole = data + hashlib.blake2b(data, digest_size=16, person=b"quorank silo").digest()
    to_party = data[:4] == b"QSp1"
    message = SiloMessage.from_bytes(whole, to_party=to_party)
    assert message.to_bytes(to_party=to_party) == whole, "a message is written otherwise than it was read"


@target("silo-record", words=(b"\x01QP\x01", b'{"asks":[', b"null", b"[[[[", b"9" * 400))
def silo_record(data: bytes) -> None:
    """A record of a silo run."""
    kind_of(data)
    tag_of(data)
    for arrays in range(3):
        try:
            head, raw = read(data, arrays)
        except BadInput:
            if arrays == 2:
                raise
            continue
        for part in raw:
            doubles(part, len(part) // 8)
        whole_numbers(table_of(head, "asks")[0])


@target("silo-envelope", words=(b"QP\x01", b"north", b"south"))
def silo_envelope(data: bytes) -> None:
    """An envelope between two parties; its bytes are the only ones that it has."""
    assert Envelope.from_bytes(data).to_bytes() == data, "an envelope is written otherwise than it was read"


@target("silo-body", words=(b'{"a":1}', b"\x01"))
def silo_body(data: bytes) -> None:
    """What is inside an envelope: a hello, a question, an answer, a refusal or a catalogue, by the first byte."""
    kind, raw = data[:1], data[1:]
    if kind == b"h":
        assert Hello.from_bytes(raw, "north").to_bytes() == raw, "a hello is written otherwise than it was read"
    elif kind == b"q":
        assert Ask.from_bytes(raw, "north", FIELDS).to_bytes() == raw, (
            "a question is written otherwise than it was read"
        )
    elif kind == b"a":
        assert Answer.from_bytes(raw, "north", 2, FIELDS[0]).to_bytes() == raw, (
            "an answer is written otherwise than it was read"
        )
    elif kind == b"r":
        Refuse.from_bytes(raw, "north")
    else:
        Catalogue.from_bytes(raw, "north", FIELDS)


SEARCH = SearchTerms(k=2, among=2, columns=1000)
ASKED = SearchQuestion(((1, 5, 9), (2, 7, 999))).to_bytes()


@target("search-message", words=(b"\x01\x02\x03\x04", b"\xff\xff\xff\xff"))
def search_message(data: bytes) -> None:
    """A search of another party, or its answer to the one in ASKED, by the first byte."""
    kind, raw = data[:1], data[1:]
    if kind == b"q":
        assert SearchQuestion.from_bytes(raw, "north", SEARCH).to_bytes() == raw, "written otherwise than it was read"
    else:
        answer = SearchAnswer.from_bytes(raw, "north", ASKED, SEARCH)
        assert answer.to_bytes(3, SEARCH.k) == raw, "written otherwise than it was read"


@cache
def searched() -> SearchedLists:
    """Four labelled lists of a party."""
    features = (np.arange(72).reshape(24, 3) * 37 % 71 / 71).astype(np.float32)
    data = RankingData.from_arrays(features, np.arange(24) * 5 % 3, np.arange(0, 25, 6))
    return SearchedLists(data, np.ones(4), np.ones(4))


@target("tree-request", "json", words=(b'"splits"', b'"wanted"', b'"edges"', b'"trees"', b'"bins"'))
def tree_request(data: bytes) -> None:
    """A coordinator's request for sums of trees, after the bins were told."""
    content = parse_json(data, ANYTHING, "request")
    require(isinstance(content, list) and len(content) == 3, "fuzz.shape", "expected judging, head and numbers")
    judging, head, numbers = content
    require(isinstance(head, dict) and isinstance(numbers, list), "fuzz.shape", "expected a table and numbers")
    require(all(type(number) in (int, float) for number in numbers), "fuzz.shape", "expected numbers")
    side = TreeTraining(trees=3, depth=2, bins=4, folds=2).answers(searched(), np.zeros(3), DictMemory())
    level = {"step": "level", "tree": 0, "splits": [], "wanted": [0], "edges": [1, 1, 1]}
    side.sums(SumRequest(False, level, np.array([0.5, 0.25, 0.5])))
    side.sums(SumRequest(bool(judging), head, doubles(np.array(numbers, dtype="<f8").tobytes(), len(numbers))))


@target("word-vectors")
def word_vectors(data: bytes) -> None:
    """A file of word vectors that a party brings."""
    found = WordVectors(as_file(data, "vectors.txt")).embedded(["wing flutter", "plate"], ["wing"])
    assert bool(np.isfinite(found.documents).all()), "a vector is not finite"


def signed(data: bytes) -> bytes:
    """A sketch with the checksum that holders of the group's key can make."""
    return data + hashlib.blake2b(data, key=KEY, digest_size=32, person=b"quorank sketch").digest()


@target("sketch", seconds=10)
def sketch(data: bytes) -> None:
    """A saved sketch that was signed with the group's key: loaded, asked, added to, shortened, and saved again."""
    hashing = Hashing(KEY, 2, 20)
    found = ReverseTopK.load(as_file(signed(data), "sketch"), hashing)
    for term in ("alpha", "beta"):
        found.top(term, 5)
    found.cells(hashing.places(["alpha"])[0][0])
    for document in (0, 7, 1000):
        if document in found:
            found.remove(document)
        found.add(document, ["alpha", "gamma"], [2, 1])
    found.save(scratch() / "again")


@target("silo-budget", "json")
def silo_budget(data: bytes) -> None:
    """An owner's ledger of budgets, whose checksum fits."""
    try:
        content = json.loads(data)
        named = {key: value for key, value in content.items() if key != "checksum"}
        text = json.dumps(
            content | {"checksum": hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:32]}
        ).encode()
    except (ValueError, AttributeError, RecursionError):
        text = data
    BudgetLedger("north", path=as_file(text, "budget.json")).to_table()
