"""Messages between a service and its members: published tasks, declined answers, requests to leave."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, get_args

import numpy as np

from quorank.errors import require
from quorank.files.documents import parse_json
from quorank.privacy.accounting import Turns
from quorank.protocol.keys import MemberKey, is_signed

# ---------------------------------------------------------------- published tasks

Kind = Literal["round", "secure", "rebuilding", "tuning", "over"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Publication:
    """Current task of a service: the same bytes for all members."""

    kind: Kind
    run: str
    round: int
    content: bytes
    signature: bytes
    next: float  # polling interval, seconds
    number: int = 0  # of this publication, assigned by the store
    room: int = 0  # maximum number of replies; 0: one from each member in `asked`
    most: int = 0  # maximum number of replies from one member in the run; 0: unlimited
    rest: int = 0  # rounds that a member sits out after a reply
    asked: bytes = b""  # numbers of the cohort, little-endian u32; empty: every member
    limits: bytes = b""  # `ReplyLimits` as JSON; empty: no replies are accepted (secure sums use letters)
    opened: float = 0.0  # time of publication by the store's clock

    def asks(self, member: int) -> bool:
        """Return whether a member belongs to the cohort."""
        return not self.asked or bool((np.frombuffer(self.asked, "<u4") == member).any())

    def check_answers(self, member: int, number: int) -> None:
        """Reject a reply to another publication than this one, or from a member outside the cohort."""
        require(self.limits, "reply.no-open-round", "no round is open for replies")
        require(number == self.number, "reply.other-round", "the round of this reply is over")
        require(self.asks(member), "reply.unasked", "this member was not asked in this round")

    def check_turn(self, taken: int, last: int, filled: int) -> None:
        """Reject a member with `taken` replies, the last in round `last`, where the round already has `filled` replies."""
        Turns(self.most or None, self.rest).check(taken, last, self.round)
        full = self.room and filled >= self.room
        require(not full, "reply.round-full", "the round already has all its replies")


# ---------------------------------------------------------------- declined answers

REASONS = {
    "consent": "consent is off",
    "waiting": "there are too few new interactions",
    "malformed": "the task cannot be read",
    "run": "the task belongs to another run",
    "client": "the task is for another client",
    "over": "all planned rounds of the run are done",
    "old": "a later round was answered already",
    "repeated": "this round was answered already for another task",
    "resting": "the device sits out some rounds between two answers",
    "often": "the device has answered as many rounds of this run as agreed",
    "task": "the task does not match the agreed terms",
    "secure": "this run sends updates in secure sums only",
    "members": "the list of members is another one than this device knows",
    "unmasking": "the secure sum did not follow the agreed terms",
    "version": "the secure sum has another version and both sides need the same one",
    "numbers": "the update holds a number that is not finite",
    "place": "earlier messages do not fit this folder",
    "stopped": "the run cannot continue at this party",
    "storage": "the private file cannot be written",
    "fault": "the device could not answer",
}
"""Reasons of members for sending no release: a fixed list, so nothing private can leak through it."""


@dataclass(frozen=True)
class Declined:
    """Reason for sending no release."""

    code: str

    def __post_init__(self) -> None:
        assert self.code in REASONS

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return REASONS[self.code]


class Refusal(Exception):
    """Abort an answer with a reason code and nothing else."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.declined = Declined(code)


# ---------------------------------------------------------------- requests to leave

_MARK, _SIGNED = "quorank leave", b"quorank leave 1\n"
_MALFORMED = "the request to leave is malformed"


class Leaving(NamedTuple):
    """Request to leave whose signature is valid."""

    client: int
    at: float
    digest: str


class AgreedTerms(Protocol):
    """Terms of any kind of member."""

    @property
    def run(self) -> str: ...

    @property
    def client(self) -> int: ...

    def table(self) -> dict[str, Any]:
        """Return the terms as invitations hold them."""


class _Request(TypedDict):
    format: Literal["quorank leave"]
    run: str
    client: int
    at: float
    nonce: str


def leaving_request(place: AgreedTerms, key: MemberKey, at: float, nonce: bytes) -> bytes:
    """Return a request to leave: one line of JSON and the member's signature, so nobody can remove another client."""
    fields = {"format": _MARK, "run": place.run, "client": place.client, "at": at, "nonce": nonce.hex()}
    line = json.dumps(fields, sort_keys=True).encode()
    return line + b"\n" + key.sign(_SIGNED + line).hex().encode()


def check_leaving_request(request: bytes, run: str, keys: Mapping[int, bytes]) -> Leaving:
    """Return the request if it names this run and is signed by the key (by member number) that the service knows."""
    line, _, signature = request.partition(b"\n")
    require(len(request) <= 4096, "leaving.malformed", _MALFORMED)
    found: _Request = parse_json(line, _Request, code="leaving.malformed")
    require(found["run"] == run, "leaving.other-run", "the request to leave belongs to another run")
    key = keys.get(found["client"])
    require(key is not None, "leaving.unknown-client", "the request to leave names an unknown client")
    given = bytes.fromhex(signature.decode()) if re.fullmatch(rb"[0-9a-f]{128}", signature) else b""
    signed = is_signed(key or b"", _SIGNED + line, given)
    require(signed, "leaving.unsigned", "the request to leave is not signed by the client that it names")
    return Leaving(found["client"], found["at"], leaving_digest(request))


def leaving_receipt(key: MemberKey, request: bytes) -> bytes:
    """Return the service's signature under: the client's part is out of the run, or certain to be removed."""
    return key.sign(_receipt_content(request)).hex().encode()


def is_leaving_receipt(service: bytes, request: bytes, receipt: str) -> bool:
    """Return whether the service has signed this receipt for this request."""
    signature = bytes.fromhex(receipt) if re.fullmatch(r"[0-9a-f]{128}", receipt) else b""
    return is_signed(service, _receipt_content(request), signature)


def _receipt_content(request: bytes) -> bytes:
    return b"quorank left 1\n" + leaving_digest(request).encode()


def leaving_digest(request: bytes) -> str:
    """Digest that identifies a request and reveals nothing of it."""
    return hashlib.blake2b(request, digest_size=16).hexdigest()
