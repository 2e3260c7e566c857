"""A hostile service: whatever it asks, a party runs no code, writes into its folder only, and says what its terms name."""

from __future__ import annotations

import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silo_sessions import HOLDINGS, NAMES, Group, ScriptedLine, identity_of, step_through, terms_of

from quorank.member.party import SERVER, SiloParty, sent_log
from quorank.member.party_run import take_part
from quorank.protocol import frames
from quorank.protocol.http_client import ServedMail
from quorank.protocol.messages import Declined
from quorank.silos.envelopes import Envelope, Kind
from quorank.silos.session.records import (
    MEANINGS,
    MOST_MESSAGE,
    Record,
    SiloMessage,
    SumHead,
    cut,
    enclose,
    encode,
    tag_of,
)
from quorank.silos.training.statistics import VECTOR_LENGTH

TERMS, NORTH = terms_of(), identity_of("north")
WORDS = {word.encode() for h in HOLDINGS for query in h.queries for word in query}
WORDS |= {name.encode() for h in HOLDINGS for name in (*h.documents.ids, *h.query_ids)}
FEATURES, MODELS = 18, 6

_watched: list[tuple[str, Any]] | None = None
ACTIONS = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.", "marshal.", "socket.connect")
CODE = ("exec", "compile", "import")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    if event in CODE or event.startswith(ACTIONS):
        _watched.append((event, arguments[:1]))
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        _watched.append(("write", arguments[0]))
    elif event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.symlink", "os.link"):
        _watched.append((event, arguments[0]))


class Watched:
    """What Python itself tells that it does, in a block: code that is loaded, processes, files that are changed."""

    def __enter__(self) -> list[tuple[str, Any]]:
        global _watched
        if not getattr(Watched, "hooked", False):
            sys.addaudithook(_hook)
            Watched.hooked = True  # type: ignore[attr-defined]
        _watched = []
        return _watched

    def __exit__(self, *_: object) -> None:
        global _watched
        _watched = None


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Folders of a party in three phases; everything that is used is loaded."""
    top, found = tmp_path_factory.mktemp("phases"), {}
    whole = Group(top / "whole", TERMS)
    step_through(whole)
    whole.close()
    for phase in ("agreement", "statistics", "training"):
        group = Group(top / phase, TERMS)
        turns = 1 if phase == "training" else 0
        while group.server.phase != phase or group.server.turns[0] < turns:
            for name in NAMES:
                group.message(name)
        group.close()
        found[phase] = top / phase / "north"
        for name in ("unknown kind", "total of another length", "a sum of no number", "a sum alone"):
            shutil.copytree(found[phase], top / f"{phase} {name}")
            party = SiloParty(top / f"{phase} {name}", NORTH, TERMS, HOLDINGS[0])
            party.answer(messages(party, RECORDS[name]).to_bytes(to_party=True))
            party.close()
    return found


def envelope(kind: Kind, sender: str, receiver: str = "north", number: int = 1, body: bytes = b"x" * 64) -> bytes:
    return enclose(Envelope(kind, sender, receiver, number, body).to_bytes())


def ask(number: int = 0, among: tuple[int, ...] = (0, 1, 2), numbers: object = None, **head) -> bytes:
    given = np.zeros(MODELS * FEATURES) if numbers is None else numbers
    return encode(Record.ASK_SUM, np.asarray(given), head=SumHead(number, among, **head))


def record_with(head: bytes) -> bytes:
    """A request for a sum with any bytes for its head."""
    return bytes([Record.ASK_SUM]) + frames.pack([head, b""])


RECORDS = {
    "unknown kind": b"\xee" * 40,
    "empty": b"",
    "only a kind": bytes([Record.TOTAL]),
    "total of another length": encode(Record.TOTAL, np.zeros(5, np.uint32)),
    "total again": encode(Record.TOTAL, np.zeros(VECTOR_LENGTH, np.uint32)),
    "a record of parties": encode(Record.KEPT),
    "a part": encode(Record.PART, np.zeros(3), head=SumHead(0, (0, 1, 2))),
    "a ranker that is too short": encode(Record.RANKER, np.zeros(3)),
    "a ranker without numbers": encode(Record.RANKER, np.full(FEATURES, np.nan)),
    "a ranker with more": encode(Record.RANKER, np.zeros(FEATURES), np.zeros(1)),
    "a sum alone": ask(among=(0,)),
    "a sum without it": ask(among=(1, 2)),
    "a sum with itself twice": ask(among=(0, 0, 1)),
    "a sum in another order": ask(among=(1, 0)),
    "a sum of strangers": ask(among=(0, 1, 63)),
    "a sum of a far number": ask(number=10**6),
    "a sum of no number": record_with(b'{"number": -1, "among": [0, 1, 2]}'),
    "held-out lists of no model": ask(judging=True, numbers=()),
    "another request": ask(asked={"step": "bins"}),
    "numbers that are not": ask(numbers=np.full(MODELS * FEATURES, np.inf)),
    "numbers that are large": ask(numbers=np.full(MODELS * FEATURES, 1e9)),
    "many numbers": ask(numbers=np.zeros(100_000)),
    "strings": record_with(b'{"number": "../../etc/passwd", "among": {"__class__": "os.system"}}'),
    "deep head": record_with(b"[" * 100_000),
    "long number": record_with(b"9" * 100_000),
    "no number": record_with(b"NaN"),
    "pickle": record_with(b"\x80\x04\x95cos\nsystem\n(S'touch /tmp/owned'\ntR."),
    "wrong lengths": bytes([Record.ASK_SUM]) + b"\xff" * 60,
    "hello of a stranger": envelope(Kind.HELLO, "east"),
    "hello of itself": envelope(Kind.HELLO, "north"),
    "hello again": envelope(Kind.HELLO, "south", number=0, body=b"\1" * 200),
    "a search of the service's": envelope(Kind.SEARCH, "south"),
    "a search of no number": envelope(Kind.SEARCH, "south", number=2**63),
    "an answer of the service's": envelope(Kind.FOUND, "south"),
    "a description of the service's": envelope(Kind.DESCRIPTION, "south"),
    "a refusal of the service's": envelope(Kind.REFUSE, "south"),
    "for another": envelope(Kind.SEARCH, "south", receiver="west"),
}


def messages(party: SiloParty, record: bytes) -> SiloMessage:
    """A sound message that brings a record where the party expects the next one."""
    came, _, _, heard = party._store.places(SERVER)
    return SiloMessage(0, TERMS.digest[:16], heard, came, tuple(cut(record)))


def told(answer: bytes) -> list[str]:
    """The tags of the whole records in an answer."""
    found, open_ = [], b""
    for ends, piece in SiloMessage.from_bytes(answer, to_party=False).pieces:
        open_ += piece
        if ends:
            found.append(tag_of(open_))
            open_ = b""
    return found


@pytest.mark.parametrize("phase", ["agreement", "statistics", "training"])
def test_whatever_it_asks_only_what_the_terms_name_leaves(folders, tmp_path, phase) -> None:
    for number, (case, record) in enumerate(RECORDS.items()):
        folder = tmp_path / str(number)
        shutil.copytree(folders[phase], folder)
        before = sorted(path.name for path in tmp_path.iterdir())
        party = SiloParty(folder, NORTH, TERMS, HOLDINGS[0], entropy=random.Random(number).randbytes)
        content = messages(party, record).to_bytes(to_party=True)
        began = time.monotonic()
        with Watched() as done:
            answers = [party.answer(content) for _ in range(3)]
        assert time.monotonic() - began < 5.0, case
        log = [entry["kind"].upper() for entry in sent_log(party.folder)]
        for answer in answers:
            if isinstance(answer, bytes):
                assert all(MEANINGS[tag] and tag in log for tag in told(answer)), case
                assert not [word for word in WORDS if word in answer], case
        if phase != "agreement" or not isinstance(answers[0], bytes):
            assert {a.code for a in answers if isinstance(a, Declined)} <= {"stopped", "place", "malformed"}, case
        assert log.count("PART") <= 3, case
        loaded = [one for one in done if one[0] in CODE or one[0].startswith(ACTIONS)]
        assert not loaded, (case, loaded)
        outside = [one for one in done if isinstance(one[1], str | bytes | Path) and not inside(one[1], folder)]
        assert not outside, (case, outside)
        party.close()
        assert sorted(path.name for path in tmp_path.iterdir()) == before, case


def inside(path: str | bytes | Path, folder: Path) -> bool:
    return Path(path.decode() if isinstance(path, bytes) else path).is_relative_to(folder)


def test_it_gets_each_sum_once_and_no_more_than_were_agreed(folders, tmp_path) -> None:
    shutil.copytree(folders["training"], tmp_path / "north")
    party = SiloParty(tmp_path / "north", NORTH, TERMS, HOLDINGS[0])
    most = TERMS.setting.training.planned_turns + 1
    parts = 0
    given = party._store.note("last sum")[0]
    for number in [given, *range(given + 1, most + 5)]:
        came, _, sent, _ = party._store.places(SERVER)
        record = ask(number, numbers=np.full(MODELS * FEATURES, 0.01 * number))
        content = SiloMessage(0, TERMS.digest[:16], sent, came, tuple(cut(record))).to_bytes(to_party=True)
        answer = party.answer(content)
        if isinstance(answer, bytes):
            parts += told(answer).count("PART")
        elif number > given:
            break
        else:  # the record stays unhandled: a party that cannot continue is not asked again
            assert answer == Declined("stopped") and "is complete" in (party.stopped or "")
            party._store.finish(SERVER)
    assert 1 <= parts <= most - 1
    assert [entry["kind"] for entry in sent_log(party.folder)].count("part") <= most
    party.close()


def test_what_is_no_message_is_answered_with_nothing(folders, tmp_path) -> None:
    """Noise, huge, cut off, changed, of another run, for another party, from the future."""
    shutil.copytree(folders["statistics"], tmp_path / "north")
    party = SiloParty(tmp_path / "north", NORTH, TERMS, HOLDINGS[0])
    before, draw = sent_log(party.folder), random.Random(1)
    sound = messages(party, RECORDS["hello again"])
    raw = sound.to_bytes(to_party=True)
    other = terms_of("trees").digest[:16]
    letters = (
        b"\0", b"QSp2", draw.randbytes(1000), draw.randbytes(MOST_MESSAGE), bytes(MOST_MESSAGE + 1), raw[:-1], raw + b"\0",
        raw[:40] + bytes([raw[40] ^ 1]) + raw[41:], sound.to_bytes(to_party=False),
        SiloMessage(0, other, 0, 0, ()).to_bytes(to_party=True),
        SiloMessage(1, sound.digest, sound.have, sound.start, sound.pieces).to_bytes(to_party=True),
        SiloMessage(0, sound.digest, 2**60, sound.start, ()).to_bytes(to_party=True),
        SiloMessage(0, sound.digest, 0, 2**60, sound.pieces).to_bytes(to_party=True),
        b"GET / HTTP/1.1\r\n\r\n", b'{"code": "import os"}',
    )  # fmt: skip
    line = ScriptedLine(*(ServedMail(0.0, number, letter) for number, letter in enumerate(letters)))
    with Watched() as done:
        assert not take_part(party, line, lambda: len(line.answers) == len(letters), sleep=lambda seconds: None)
    assert [content for _, content in line.answers] == [b""] * len(letters) and sent_log(party.folder) == before
    assert not [one for one in done if one[0] in CODE or one[0].startswith(ACTIONS)]
    party.close()


def test_without_consent_it_hears_nothing(folders, tmp_path) -> None:
    shutil.copytree(folders["agreement"], tmp_path / "north")
    agreed = False
    party = SiloParty(tmp_path / "north", NORTH, TERMS, HOLDINGS[0], consent=lambda: agreed)
    letter, looks = messages(party, b"\xee").to_bytes(to_party=True), iter(range(20))
    line = ScriptedLine(ServedMail(0.0, 0, letter))
    assert not take_part(
        party, line, lambda: next(looks, None) is None, lambda: agreed, sleep=lambda seconds: None, clock=time.monotonic
    )
    assert line.answers == [] and len(line.said) == 1
    assert party.answer(letter) == Declined("consent")
    party.close()
