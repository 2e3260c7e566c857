"""Targets of `quorank.silos`: messages, records, envelopes and their bodies, searches, requests for sums."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from fuzz.target import as_file, target
from quorank.data.ranking import RankingData
from quorank.errors import BadInput, require
from quorank.files.documents import parse_json
from quorank.silos.envelopes import Catalogue, Envelope, Hello, Refuse
from quorank.silos.search.messages import SearchAnswer, SearchQuestion
from quorank.silos.search.settings import SearchTerms
from quorank.silos.session.records import SiloMessage, decode_array, decode_sum, finite_doubles, kind_of, tag_of
from quorank.silos.training.lists import SearchedLists
from quorank.silos.training.sums import SumRequest
from quorank.silos.training.trees import TreeTraining
from quorank.text.embeddings import WordVectors


@target("silo-message", words=(b"QSp2", b"QSs2"))
def silo_message(data: bytes) -> None:
    """Message between a party and its coordinator, in either direction, with the right checksum."""
    whole = data + hashlib.blake2b(data, digest_size=16, person=b"quorank silo").digest()
    to_party = data[:4] == b"QSp2"
    message = SiloMessage.from_bytes(whole, to_party=to_party)
    assert message.to_bytes(to_party=to_party) == whole, "a message is written otherwise than it was read"


@target("silo-record", words=(b"\x01QP\x01", b'{"number":', b"null", b"[[[[", b"9" * 400))
def silo_record(data: bytes) -> None:
    """A record of a session."""
    kind_of(data)
    tag_of(data)
    try:
        decode_array(data, 24)
    except BadInput:
        _, raw = decode_sum(data)
        finite_doubles(raw)


@target("silo-envelope", words=(b"QP\x01", b"north", b"south"))
def silo_envelope(data: bytes) -> None:
    """An envelope between two parties; its bytes are the only ones that it has."""
    assert Envelope.from_bytes(data).to_bytes() == data, "an envelope is written otherwise than it was read"


@target("silo-body", words=(b'{"a":1}', b"\x01"))
def silo_body(data: bytes) -> None:
    """Body of an envelope: a hello, a refusal or a catalogue, by the first byte."""
    kind, raw = data[:1], data[1:]
    if kind == b"h":
        assert Hello.from_bytes(raw, "north").to_bytes() == raw, "a hello is written otherwise than it was read"
    elif kind == b"r":
        Refuse.from_bytes(raw, "north")
    else:
        Catalogue.from_bytes(raw, "north")


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


@target("tree-request", "json", words=(b'"splits"', b'"wanted"', b'"edges"', b'"judge"', b'"bins"'))
def tree_request(data: bytes) -> None:
    """A coordinator's request for sums of trees, after another one."""
    content = parse_json(data, object, "request")
    require(isinstance(content, list) and len(content) == 3, "fuzz.shape", "expected judging, head and numbers")
    judging, head, numbers = content
    require(isinstance(head, dict) and isinstance(numbers, list), "fuzz.shape", "expected a table and numbers")
    require(all(type(number) in (int, float) for number in numbers), "fuzz.shape", "expected numbers")
    side = TreeTraining(trees=3, depth=2, bins=4, folds=2).answers(searched(), np.zeros(3))
    level = {"step": "level", "wanted": [0], "edges": [1, 1, 1]}
    side(SumRequest(False, level, np.array([0.5, 0.25, 0.5])))
    side(SumRequest(bool(judging), head, finite_doubles(np.array(numbers, dtype="<f8").tobytes())))


@target("word-vectors")
def word_vectors(data: bytes) -> None:
    """A file of word vectors that a party brings."""
    found = WordVectors(as_file(data, "vectors.txt")).embedded(["wing flutter", "plate"], ["wing"])
    assert bool(np.isfinite(found.documents).all()), "a vector is not finite"
