"""A client's request to be forgotten, and the coordinator's confirmation.

The request is one line of JSON and an ECDSA signature (P-384, SHA-384) by the node's key over it, so nobody can have
another client forgotten. The confirmation names the request's digest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from quorank.errors import BadInput, require
from quorank.federation.terms import Terms

_MARK = "quorank leave"
_MALFORMED = "a request to leave is malformed; it is refused"


@dataclass(frozen=True)
class Leaving:
    """A request whose signature was checked."""

    run: str
    client: int
    at: float
    digest: str


def request_of(terms: Terms, key: str, at: float, nonce: bytes) -> bytes:
    """Ask to be forgotten, signed by the node's private key (PEM)."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    fields = {"format": _MARK, "run": terms.run, "client": terms.client, "at": at, "nonce": nonce.hex()}
    line = json.dumps(fields, sort_keys=True).encode()
    try:
        private = serialization.load_ssh_private_key(key.encode(), None)
    except (ValueError, UnsupportedAlgorithm):
        raise BadInput("invitation.key", "the invitation's key cannot be read; ask for a new invitation") from None
    require(
        isinstance(private, ec.EllipticCurvePrivateKey),
        "invitation.key",
        "the invitation's key is of another kind; ask for a new one",
    )
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return line + b"\n" + private.sign(line, ec.ECDSA(hashes.SHA384())).hex().encode()


def check_request(request: bytes, run: str, keys: dict[int, bytes]) -> Leaving:
    """The coordinator's side: who leaves, if the signature is that of the key which this client is known by."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    line, _, signature = request.partition(b"\n")
    try:
        require(len(request) <= 4096, "leaving.malformed", _MALFORMED)
        found: Any = json.loads(line)
        require(found["format"] == _MARK and isinstance(found["client"], int), "leaving.malformed", _MALFORMED)
        require(found["run"] == run, "leaving.other-run", "the request is of another run; it is refused")
        require(
            found["client"] in keys,
            "leaving.unknown-client",
            "the request names a client that is not known; it is refused",
        )
        public = serialization.load_ssh_public_key(keys[found["client"]])
        assert isinstance(public, ec.EllipticCurvePublicKey)
        public.verify(bytes.fromhex(signature.decode("ascii")), line, ec.ECDSA(hashes.SHA384()))
        return Leaving(run, found["client"], float(found["at"]), digest_of_request(request))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput("leaving.malformed", _MALFORMED) from None
    except InvalidSignature:
        raise BadInput(
            "leaving.unsigned", "the request is not signed by the client that it names; it is refused"
        ) from None


def receipt_of(request: bytes) -> bytes:
    """What the coordinator answers once the client's part is out of the run, or certain to be taken out."""
    return b"quorank left " + digest_of_request(request).encode()


def digest_of_request(request: bytes) -> str:
    """Tells requests apart, and says nothing of them."""
    return hashlib.blake2b(request, digest_size=16).hexdigest()
