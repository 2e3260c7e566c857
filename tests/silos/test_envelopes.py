"""Envelopes and their bodies: what is written is read back, and anything else is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorank.errors import BadInput
from quorank.silos.envelopes import MOST_BYTES, Catalogue, Envelope, Hello, Kind, Refuse

NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
ENVELOPE = Envelope(Kind.SEARCH, "alpha", "beta", 7, b"body")
HELLO = Hello(b"i" * 32, b"e" * 32, b"c" * 32, {"parties": "alpha beta", "text": "x"})


@given(st.sampled_from(Kind), NAME, NAME, st.integers(0, 2**64 - 1), st.binary(max_size=99))
def test_envelopes_are_read_back(kind, sender, receiver, number, body) -> None:
    made = Envelope(kind, sender, receiver, number, body)
    assert Envelope.from_bytes(made.to_bytes()) == made


def test_envelopes_that_cannot_be_read_are_refused() -> None:
    raw = ENVELOPE.to_bytes()
    for at in range(len(raw)):
        with pytest.raises(BadInput, match="ends after"):
            Envelope.from_bytes(raw[:at])
    for changed, words in (
        (raw + b"x", "1 bytes too many"),
        (b"XX" + raw[2:], "other bytes than QP"),
        (raw[:2] + b"\x02" + raw[3:], "version 2 of the protocol, newer"),
        (raw[:3] + b"\x03" + raw[4:], "unknown kind 3"),
        (raw.replace(b"alpha", b"al ha"), "not a party name"),
        (raw.replace(b"alpha", b"alph" + b"\xff"), "other letters"),
        (ENVELOPE.head() + (MOST_BYTES + 1).to_bytes(4, "little"), "more than"),
    ):
        with pytest.raises(BadInput, match=words):
            Envelope.from_bytes(changed)


def test_hellos_are_read_back_and_have_one_encoding() -> None:
    raw = HELLO.to_bytes()
    assert Hello.from_bytes(raw, "alpha") == HELLO
    for settings in (b'{"text": "x"}', b"[1]", b'{"a":1}', b'{"b":"x","a":"y"}', b"{" * 300, b"nonsense", b"\xff"):
        with pytest.raises(BadInput, match="not a table of strings"):
            Hello.from_bytes(raw[:97] + settings, "alpha")
    with pytest.raises(BadInput, match="more than 4096"):
        Hello.from_bytes(dataclasses.replace(HELLO, settings={"a": "x" * 5000}).to_bytes(), "alpha")
    with pytest.raises(BadInput, match="older than"):
        Hello.from_bytes(b"\0" + raw[1:], "alpha")
    with pytest.raises(BadInput, match="too early"):
        Hello.from_bytes(raw[:50], "alpha")


def test_refusals_hold_nothing_but_what_they_refuse() -> None:
    raw = Refuse(5).to_bytes()
    assert raw == (5).to_bytes(8, "little") and Refuse.from_bytes(raw, "beta") == Refuse(5)
    for wrong in (raw[:-1], raw + b"\0", b""):
        with pytest.raises(BadInput, match="the refusal of beta"):
            Refuse.from_bytes(wrong, "beta")


@pytest.mark.parametrize("count", [0, 1, 5, 64])
def test_catalogues_are_read_back_and_sizes_tell_little(count) -> None:
    made = Catalogue(np.arange(count, dtype=np.int32) * 3, np.arange(count, dtype=np.int32) - 2)
    raw = made.to_bytes()
    assert len(raw) == 4 + 8 * max(1, 1 << max(count - 1, 0).bit_length())
    read = Catalogue.from_bytes(raw, "beta")
    assert read.ids.tolist() == made.ids.tolist() and read.lengths.tolist() == made.lengths.tolist()


def test_catalogues_that_cannot_be_are_refused() -> None:
    twice = Catalogue(np.array([4, 4], np.int32), np.array([1, 1], np.int32)).to_bytes()
    large = (1).to_bytes(4, "little") + b"\xff" * 4 + bytes(4)
    good = Catalogue(np.array([4, 5, 6], np.int32), np.ones(3, np.int32)).to_bytes()
    for raw, words in (
        (twice, "twice"),
        (large, "above"),
        (good[:-1] + b"x", "behind its documents"),
        (good[:9], "too early"),
        ((10**9).to_bytes(4, "little"), "too early"),
    ):
        with pytest.raises(BadInput, match=words):
            Catalogue.from_bytes(raw, "beta")
