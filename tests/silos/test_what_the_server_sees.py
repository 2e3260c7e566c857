"""A whole session among four parties, recorded at the server: what can be found in it, and what its sizes tell."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from silo_parties import NAMES, identity, meet, parties_of, seeded

from quorank.errors import BadInput
from quorank.silos.protocol.asker import KeyedBlocks
from quorank.silos.protocol.budget import Budget
from quorank.silos.protocol.group import Field, Group
from quorank.silos.protocol.messages import Envelope, Hello, Kind
from quorank.silos.protocol.owner import ServedTopK
from quorank.silos.protocol.party import Party
from quorank.silos.protocol.relay import deliver
from quorank.silos.protocol.session import SealedChannel
from quorank.silos.sketch.reverse_top_k import ReverseTopK, Shape

WORDS = tuple(
    f"{a}{b}" for a in ("Blast", "turbine", "KERNEL", "vœux", "largest") for b in ("fern", "gott", "Häuser", "zeal")
)
SHAPE = Shape(rows=4, columns=64, capacity=25, entries=2 * 4 * 64 * 25)
GROUP = Group(NAMES, (Field("body", SHAPE.rows, SHAPE.columns, SHAPE.capacity),))
FIRST = 40_400_000  # documents are numbered from here: four bytes that do not come about by chance


@dataclass
class Recorded:
    """What passed the server, what was inside, and who took part."""

    seen: list[bytes]
    texts: list[bytes]
    parties: dict[str, Party]
    secrets: list[bytes]
    relay: object

    @property
    def all(self) -> bytes:
        return b"|".join(self.seen)

    @property
    def bodies(self) -> bytes:
        """All but the heads, whose numbers also stand in answers."""
        return b"|".join(Envelope.from_bytes(raw).body for raw in self.seen)

    def sealed(self) -> list[Envelope]:
        found = map(Envelope.from_bytes, self.seen)
        return [e for e in found if e.kind is not Kind.HELLO]


def documents_of(name: str) -> dict[int, dict[str, int]]:
    draw = random.Random(name)
    return {
        FIRST + draw.randrange(10**6): {t: draw.randint(1, 900) for t in draw.sample(WORDS, draw.randint(1, 9))}
        for _ in range(60)
    }


def record(monkeypatch) -> Recorded:
    """Hello, contributions, catalogues, questions of each to each, and a refusal."""
    texts: list[bytes] = []
    seal = SealedChannel.seal
    monkeypatch.setattr(SealedChannel, "seal", lambda self, kind, text: texts.append(text) or seal(self, kind, text))
    seen: list[bytes] = []
    parties = parties_of(
        GROUP,
        obfuscation=lambda name: KeyedBlocks(seeded(("hiding", name))(32), WORDS, 3, 2),
        budget=Budget(questions=20),
    )
    secrets = [party.session._agreement._contribution for party in parties.values()]
    secrets += [party.session._agreement._ephemeral.private_bytes_raw() for party in parties.values()]
    secrets += [identity(name).private for name in NAMES]
    relay = meet(parties, seen.append)
    for name, party in parties.items():
        keys = party.session.keys
        secrets += [keys.hashing_key, *keys.pairs.values(), party.hashing().key]
        served = ServedTopK(ReverseTopK(party.hashing(), SHAPE))
        held = documents_of(name)
        for document, counts in held.items():
            served.add(document, list(counts), list(counts.values()))
        party.serve("body", served)
        deliver(
            relay, parties, party.describe("body", list(held), [sum(c.values()) for c in held.values()]), seen.append
        )
    for asker in NAMES:
        for owner in set(NAMES) - {asker}:
            questions = [parties[asker].ask(list(WORDS[at : at + 3]), owner) for at in (0, 3, 6, 9)]
            deliver(relay, parties, questions, seen.append)
            for question in questions[:3]:
                assert len(parties[asker].answers(question)) == 3
            with pytest.raises(BadInput, match="20 questions, 18 of them"):
                parties[asker].answers(questions[3])
    return Recorded(seen, texts, parties, secrets, relay)


@pytest.fixture(scope="module")
def session() -> Recorded:
    with pytest.MonkeyPatch.context() as patch:
        return record(patch)


def terms_in(raw: bytes) -> list[str]:
    """Terms that stand in bytes, in UTF-8 or UTF-16 and in any case."""
    folded = raw.lower()
    found = []
    for term in WORDS:
        for text in {term, term.lower(), term.upper(), term.title(), term.casefold()}:
            for encoded in (text.encode(), text.encode("utf-16-le")):
                if encoded.lower() in folded:
                    found.append(term)
    return found


def secrets_in(raw: bytes, secrets: list[bytes]) -> list[bytes]:
    """Secrets that stand in bytes: as they are, the other way round, in hexadecimal or base64; or half of them."""
    forms = lambda s: (s, s[::-1], s[:16], s[16:], s.hex().encode(), base64.b64encode(s)[:40])  # noqa: E731
    return [secret for secret in secrets if any(form in raw for form in forms(secret))]


def documents_in(raw: bytes, documents) -> list[int]:
    """Document numbers that stand in bytes: four bytes in either order, or digits."""
    return [
        d for d in documents if d.to_bytes(4, "little") in raw or d.to_bytes(4, "big") in raw or str(d).encode() in raw
    ]


def shared_stretches(raw: bytes, texts: list[bytes], width: int = 8) -> set[bytes]:
    """Stretches of sealed texts (cells, columns, lengths, reasons) that stand in bytes; zeros that fill up aside."""
    there = {raw[at : at + width] for at in range(len(raw) - width + 1)}
    found = set()
    for text in texts:
        found |= {text[at : at + width] for at in range(0, len(text) - width + 1, 4)} & there
    return {stretch for stretch in found if any(stretch)}


def every_document() -> list[int]:
    return [document for name in NAMES for document in documents_of(name)]


ASKING = (Kind.HELLO, Kind.CONTRIBUTION, Kind.ASK, Kind.ANSWER, Kind.REFUSE, Kind.CATALOGUE)
"""What a session of questions about terms sends; searches have kinds of their own."""


def test_the_session_was_a_whole_one(session) -> None:
    kinds = [Envelope.from_bytes(raw).kind for raw in session.seen]
    pairs = 4 * 3
    assert {kind: kinds.count(kind) for kind in ASKING} == {
        Kind.HELLO: pairs,
        Kind.CONTRIBUTION: pairs,
        Kind.CATALOGUE: pairs,
        Kind.ASK: 4 * pairs,
        Kind.ANSWER: 3 * pairs,
        Kind.REFUSE: pairs,
    }
    assert len({party.fingerprint for party in session.parties.values()}) == 1


def test_no_term_can_be_found(session) -> None:
    assert terms_in(session.all) == []


def test_no_key_can_be_found(session) -> None:
    assert len(set(session.secrets)) == 4 * 3 + 1 + 6 + 1
    assert secrets_in(session.all, session.secrets) == []


def test_no_document_can_be_found(session) -> None:
    assert documents_in(session.all, every_document()) == []


def test_no_cell_column_length_or_reason_can_be_found(session) -> None:
    assert len(session.texts) == 12 + 4 * 12 + 4 * 12
    assert shared_stretches(session.bodies, session.texts) == set()


def test_hellos_hold_public_keys_and_settings_and_no_more(session) -> None:
    hellos = [Envelope.from_bytes(raw) for raw in session.seen if Envelope.from_bytes(raw).kind is Kind.HELLO]
    for envelope in hellos:
        hello = Hello.from_bytes(envelope.body, envelope.sender)
        assert hello.identity == identity(envelope.sender).public
        assert set(hello.settings) == {"parties", "body.rows", "body.columns", "body.entries"}
        assert len(envelope.body) == 1 + 3 * 32 + len(json.dumps(dict(hello.settings), separators=(",", ":")))


def test_what_is_sealed_looks_like_chance(session) -> None:
    body = np.frombuffer(b"".join(e.body for e in session.sealed()), dtype=np.uint8)
    assert len(body) > 190_000
    assert stats.chisquare(np.bincount(body, minlength=256)).pvalue > 1e-4
    pairs = (body[:-1:2] & 15) * 16 + (body[1::2] & 15)
    assert stats.chisquare(np.bincount(pairs, minlength=256)).pvalue > 1e-4


def test_the_same_looks_see_a_session_without_seals(monkeypatch) -> None:
    """What would be found if envelopes were open, so that the tests above can fail."""

    class Open:
        def __init__(self, key: bytes) -> None:
            self.key = key

        def encrypt(self, nonce, text, head) -> bytes:
            return text + bytes(16)

        def decrypt(self, nonce, body, head) -> bytes:
            return body[:-16]

    monkeypatch.setattr("quorank.silos.protocol.session.ChaCha20Poly1305", Open)
    monkeypatch.setattr("quorank.silos.protocol.keys.ChaCha20Poly1305", Open)
    bare = record(monkeypatch)
    assert len(documents_in(bare.all, every_document())) == len(every_document())
    assert len(shared_stretches(bare.bodies, bare.texts)) > 1000
    contributions = bare.secrets[:4]
    assert secrets_in(bare.all, contributions) == contributions
    assert set(terms_in(bare.all + "TURBINEgott".encode("utf-16-le"))) == {"turbinegott"}


# ---------------------------------------------------------------- sizes


def sizes(session: Recorded, kind: Kind) -> set[int]:
    return {len(e.body) for e in session.sealed() if e.kind is kind}


def test_sizes_are_the_same_for_all_terms_and_all_owners_of_as_many_documents(session) -> None:
    for kind in (Kind.CONTRIBUTION, Kind.CATALOGUE, Kind.ASK, Kind.ANSWER, Kind.REFUSE):
        assert len(sizes(session, kind)) == 1


def test_sizes_depend_on_the_number_of_terms_alone(session) -> None:
    """Frequent, rare and unheard-of terms, of any length, at an owner whose cells are anything from empty to full."""
    alpha, beta = session.parties["alpha"], session.parties["beta"]
    beta.owner.ledger.budget = Budget(questions=10_000)
    filled = {
        len(beta.owner._served["body"][0].cells(np.full(SHAPE.rows, column)).documents)
        for column in range(SHAPE.columns)
    }
    assert min(filled) == 0 < max(filled)
    found: dict[int, set[tuple[int, int]]] = {}
    for terms in (["x"], [WORDS[0]], ["y" * 500], [WORDS[1]] * 2, ["a", "b"], [WORDS[2], "z" * 90]):
        question = alpha.ask(terms, "beta")
        (answer,) = beta.receive(question)
        found.setdefault(len(terms), set()).add((len(question.body), len(answer.body)))
    assert [len(found[n]) for n in (1, 2)] == [1, 1] and found[1] != found[2]


def test_the_same_question_never_looks_the_same(session) -> None:
    alpha = session.parties["alpha"]
    assert len({alpha.ask(WORDS[0], "beta").body for _ in range(20)}) == 20


def test_the_relay_keeps_counts_and_nothing_else(session) -> None:
    kept = vars(session.relay)
    assert set(kept) == {"parties", "traffic"}
    assert sum(way.bytes for way in kept["traffic"].values()) == sum(map(len, session.seen))
    assert len(kept["traffic"]) == 12 * len(ASKING)
