"""A client's request to be forgotten, and the coordinator's confirmation.

The request is one line of JSON and a signature by the member's own key over it, so nobody can have another client
forgotten. The confirmation names the request's digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from quorank.errors import BadInput, require
from quorank.files.untrusted import parse_json
from quorank.protocol.member_key import MemberKey, is_signed

_MARK, _SIGNED = "quorank leave", b"quorank leave 1\n"
_MALFORMED = "a request to leave is malformed; it is refused"


@dataclass(frozen=True)
class Leaving:
    """A request whose signature was checked."""

    run: str
    client: int
    at: float
    digest: str


class Agreed(Protocol):
    """What a member agreed to, as far as its leaving needs it."""

    @property
    def run(self) -> str: ...

    @property
    def client(self) -> int: ...


def request_of(terms: Agreed, key: MemberKey, at: float, nonce: bytes) -> bytes:
    """Ask to be forgotten, signed by the member's key."""
    fields = {"format": _MARK, "run": terms.run, "client": terms.client, "at": at, "nonce": nonce.hex()}
    line = json.dumps(fields, sort_keys=True).encode()
    return line + b"\n" + key.sign(_SIGNED + line).hex().encode()


def check_request(request: bytes, run: str, keys: Mapping[int, bytes]) -> Leaving:
    """The service's side: who leaves, if the signature is that of the key (by member) which it is known by."""
    line, _, signature = request.partition(b"\n")
    try:
        require(len(request) <= 4096, "leaving.malformed", _MALFORMED)
        found: Any = parse_json(line)
        require(found["format"] == _MARK and type(found["client"]) is int, "leaving.malformed", _MALFORMED)
        require(found["run"] == run, "leaving.other-run", "the request is of another run; it is refused")
        known = keys.get(found["client"])
        sentence = "the request names a client that is not known; it is refused"
        require(known is not None, "leaving.unknown-client", sentence)
        signed = is_signed(known or b"", _SIGNED + line, bytes.fromhex(signature.decode("ascii")))
        sentence = "the request is not signed by the client that it names; it is refused"
        require(signed, "leaving.unsigned", sentence)
        return Leaving(run, found["client"], float(found["at"]), digest_of_request(request))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise BadInput("leaving.malformed", _MALFORMED) from None


def receipt_of(request: bytes) -> bytes:
    """What the coordinator answers once the client's part is out of the run, or certain to be taken out."""
    return b"quorank left " + digest_of_request(request).encode()


def digest_of_request(request: bytes) -> str:
    """Tells requests apart, and says nothing of them."""
    return hashlib.blake2b(request, digest_size=16).hexdigest()
