"""Targets of `quorank.privacy`: the messages of a secure sum, and the list of members."""

from __future__ import annotations

from fuzz.target import target
from quorank.engines.driver import several, single
from quorank.errors import BadInput
from quorank.privacy.secure_sum.messages import (
    AdvertiseKeys,
    KeyList,
    MaskedInput,
    ShareDelivery,
    ShareKeys,
    UnmaskReply,
    UnmaskRequest,
)
from quorank.protocol.keys import PUBLIC
from quorank.protocol.member_list import START, Head, MemberList
from quorank.protocol.secure_identity import SignedKeys, pack_clients, unpack_clients
from quorank.protocol.secure_round import envelope, open_envelope

MESSAGES = (AdvertiseKeys, KeyList, ShareKeys, ShareDelivery, MaskedInput, UnmaskRequest, UnmaskReply)


@target("secure-message", words=(b"QS\x02", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80"))
def secure_message(data: bytes) -> None:
    """Each kind of message of a secure sum; its bytes are the only ones that it has."""
    refused = 0
    for kind in MESSAGES:
        try:
            message = kind.from_bytes(data)
        except BadInput as error:
            refused, last = refused + 1, error
            continue
        assert message.to_bytes() == data, "a message is written otherwise than it was read"
        if isinstance(message, MaskedInput):
            assert len(message.vector) * 4 == len(message.words)
    if refused == len(MESSAGES):
        raise last


@target("secure-keys", words=(b"QS\x02\x01",))
def secure_keys(data: bytes) -> None:
    """Keys under a signature."""
    assert SignedKeys.from_bytes(data).to_bytes() == data, "signed keys are written otherwise than they were read"


@target("secure-envelope", words=(b"QSEC\x03", b"QSCB"))
def secure_envelope(data: bytes) -> None:
    """What carries the messages of a secure sum over a network."""
    try:
        phase, parts = open_envelope(data)
        assert envelope(phase, parts) == data, "an envelope is written otherwise than it was read"
    except BadInput:
        messages = single(data)
        if len(dict(messages)) == len(messages):
            assert several(dict(messages)) == data, "messages are written otherwise than they were read"


@target("member-list")
def member_list(data: bytes) -> None:
    """Clients of a sum, and a page of the list of members with an attester."""
    try:
        unpack = unpack_clients(data)
        assert pack_clients(unpack) == data
    except BadInput:
        pass
    found = MemberList(data[:START], bytes(PUBLIC), bytes(PUBLIC))
    entries = found.split(data[START:])
    found.append(entries)
    assert found.starts_with(Head(len(entries), found.head.digest)) and found.unattested([]) == []
    assert Head.parse(f"{found.head}") == Head.from_bytes(found.head.to_bytes()) == found.head
