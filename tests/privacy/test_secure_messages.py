"""Messages of a secure sum: their bytes are pinned, come back as they were, and are refused when anything is off."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secure_rounds import refused

from quorank.errors import BadInput
from quorank.privacy.secure_sum.masks import Occasion
from quorank.privacy.secure_sum.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareDelivery,
    ShareKeys,
    UnmaskReply,
    UnmaskRequest,
)

TAG = bytes(range(16))
HEAD = (7, TAG, 300)
KEYS = ((1, b"a" * 32), (300, b"b" * 32))
SEALED = ((5, b"x" * 80), (2**31 - 1, b"y" * 80))
PAIRS = ((1, b"a" * 64), (300, b"b" * 64))
DELIVERED = ((5, b"x" * 112), (2**31 - 1, b"y" * 112))
EXAMPLES = [
    AdvertiseKeys(*HEAD, b"c" * 32, b"m" * 32),
    KeyList(*HEAD, 2, b"roster", PAIRS),
    ShareKeys(*HEAD, SEALED, KEYS, b"s" * 32),
    ShareDelivery(*HEAD, b"\x05", DELIVERED),
    MaskedInput(*HEAD, np.arange(5, dtype="<u4").tobytes()),
    UnmaskRequest(*HEAD, (300, 4, 9), (8,)),
    UnmaskReply(*HEAD, KEYS, ()),
]
names = [type(message).__name__ for message in EXAMPLES]


MESSAGES = [type(message) for message in EXAMPLES]


def test_the_format_is_pinned() -> None:
    head = b"QS\x02\x06" + struct.pack("<I", 7) + TAG + struct.pack("<I", 300)
    body = struct.pack("<HIIIHI", 3, 300, 4, 9, 1, 8)
    assert UnmaskRequest(*HEAD, (300, 4, 9), (8,)).to_bytes() == head + body
    head = b"QS\x02\x05" + head[4:]
    assert EXAMPLES[4].to_bytes() == head + struct.pack("<I5I", 5, 0, 1, 2, 3, 4)
    head = b"QS\x02\x02" + head[4:]
    listed = struct.pack("<HI64sI64s", 2, 1, b"a" * 64, 300, b"b" * 64)
    assert EXAMPLES[1].to_bytes() == head + b"\x02\x00" + struct.pack("<I6s", 6, b"roster") + listed


numbers = st.integers(0, 2**31 - 1)


def keyed(size: int) -> st.SearchStrategy:
    return st.dictionaries(numbers, st.binary(min_size=size, max_size=size), max_size=6).map(lambda d: tuple(d.items()))


@given(st.data(), st.integers(0, 2**32 - 1), st.binary(min_size=16, max_size=16), numbers)
def test_every_message_comes_back(data, round_, tag, client) -> None:
    key, unique = st.binary(min_size=32, max_size=32), st.lists(numbers, unique=True, max_size=9).map(tuple)
    bodies = {
        AdvertiseKeys: (key, key),
        KeyList: (st.integers(0, 65535), st.binary(max_size=40), keyed(64)),
        ShareKeys: (keyed(80), keyed(32), key),
        ShareDelivery: (st.binary(max_size=9), keyed(112)),
        MaskedInput: (st.binary(max_size=40).map(lambda b: b[: len(b) // 4 * 4]),),
        UnmaskRequest: (unique, unique),
        UnmaskReply: (keyed(32), keyed(32)),
    }
    kind = data.draw(st.sampled_from(MESSAGES))
    message = kind(round_, tag, client, *(data.draw(part) for part in bodies[kind]))
    assert kind.from_bytes(message.to_bytes()) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=names)
def test_a_message_of_another_make_is_refused(message) -> None:
    raw, kind = message.to_bytes(), type(message)
    for broken, code, match in (
        (b"QT" + raw[2:], "malformed", "starts with other bytes"),
        (raw[:2] + b"\x01" + raw[3:], "version", "has version 1 and this program reads 2"),
        (raw[:3] + b"\x09" + raw[4:], "malformed", f"is of kind 9, expected {kind.KIND}"),
        (raw[:24] + b"\xff" * 4 + raw[28:], "malformed", "names client 4294967295"),
    ):
        with refused(code, match):
            kind.from_bytes(broken)


def test_a_client_named_twice_or_too_high_is_refused() -> None:
    with pytest.raises(BadInput, match="names a client twice"):
        UnmaskReply.from_bytes(UnmaskReply(*HEAD, (KEYS[0], KEYS[0]), ()).to_bytes())
    with pytest.raises(BadInput, match="names a client twice"):
        UnmaskRequest.from_bytes(UnmaskRequest(*HEAD, (), (3, 3)).to_bytes())
    with pytest.raises(BadInput, match="above 2\\^31 − 1"):
        ShareKeys.from_bytes(ShareKeys(*HEAD, ((2**31, b"x" * 80),), (), bytes(32)).to_bytes())


def test_a_message_of_another_round_or_session_does_not_fit() -> None:
    occasion = Occasion(b"session", 4)
    UnmaskRequest(4, occasion.tag, 1, (), ()).check_occasion(occasion)
    for round_, tag in ((5, occasion.tag), (4, Occasion(b"other", 4).tag)):
        with refused("other-round", "another session or for round"):
            UnmaskRequest(round_, tag, 1, (), ()).check_occasion(occasion)
