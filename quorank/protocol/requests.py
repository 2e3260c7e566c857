"""Signed requests of members to a service, on both sides (docs/protocol.md).

The headers alone identify the member, before anything of a body is read: they name the member, the service's time, a nonce
and the digest of the body, and are signed by the member's key together with the method, the path and the service's public
key. A request is therefore invalid at another service, for another call, later, or a second time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

from quorank import __version__
from quorank.errors import BadInput, require
from quorank.files.codec import Length
from quorank.files.documents import parse_json
from quorank.protocol.invitation import CODE
from quorank.protocol.keys import PUBLIC, SIGNATURE, MemberKey, enrolment_content, is_signed

PROTOCOL = 1
AGENT = f"quorank/{__version__}"  # User-Agent of members
NONCE = 16  # bytes of a nonce
CLOCK_SECONDS = 300.0  # maximum difference between a request's time and the service's clock, seconds
NONCE_SECONDS = 900.0  # seconds for which a service stores nonces, longer than a request is valid

MEMBER, TIME, NONCE_HEADER, DIGEST, SIGNED, VERSION = (
    f"quorank-{name}" for name in ("member", "time", "nonce", "digest", "signature", "protocol")
)
# headers of answers: kind and round of a task, 0 for a member outside its cohort, polling interval, number of a letter
KIND, ROUND, ASKED, NEXT, MAIL = (f"quorank-{name}" for name in ("kind", "round", "asked", "next", "mail"))

_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_SECONDS = re.compile(r"0|[1-9][0-9]{0,11}")
_NONCE = re.compile(rf"[0-9a-f]{{{2 * NONCE}}}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LENGTH = re.compile(r"[0-9]{1,19}")
_AGENT = re.compile(r"quorank/([0-9]{1,4}(?:\.[0-9]{1,4}){1,3}[a-z0-9.+-]{0,12})")

_OTHER_PROTOCOL = f"this service speaks protocol {PROTOCOL}"

_STATUSES = """
401 request.unsigned request.unknown-member request.signature request.time operator.token
403 request.revoked request.left invitation.unknown enrolment.ended enrolment.full enrolment.not-attested
404 request.unknown
405 request.method
408 request.slow
409 request.replayed invitation.used
413 request.too-long
415 request.encoding
426 request.protocol
429 enrolment.too-many request.too-many
500 service.fault
503 service.busy service.storage
"""
STATUS = {code: int(line.split()[0]) for line in _STATUSES.strip().splitlines() for code in line.split()[1:]}


def status_of(code: str) -> int:
    """Return the HTTP status of an error code; 409 for a conflict of a reply, letter or request to leave, else 400."""
    return STATUS.get(code, 409 if code.startswith(("reply.", "mail.", "leaving.")) else 400)


class SignedHead(NamedTuple):
    """Headers of a request; untrusted before `check`."""

    member: int
    time: int
    nonce: bytes
    digest: str
    signature: bytes
    program: str = ""  # claimed version; not signed


def _content(method: str, target: str, service: bytes, head: SignedHead) -> bytes:
    words = (method, target, service.hex(), str(head.member), str(head.time), head.nonce.hex(), head.digest)
    return "\n".join(("quorank request 1", *words)).encode()


def signed_headers(
    key: MemberKey, service: bytes, member: int, method: str, target: str, body: bytes, time: int, nonce: bytes
) -> dict[str, str]:
    """Return a request's headers; `target` is the path with its query, `time` the service's, `nonce` 16 fresh bytes."""
    head = SignedHead(member, time, nonce, hashlib.sha256(body).hexdigest(), b"")
    signature = key.sign(_content(method, target, service, head))
    return {
        VERSION: str(PROTOCOL),
        MEMBER: str(member),
        TIME: str(time),
        NONCE_HEADER: nonce.hex(),
        DIGEST: head.digest,
        SIGNED: base64.b64encode(signature).decode(),
    }


def headers_of(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by lower-case names; reject repeated protocol headers."""
    headers: dict[str, str] = {}
    for raw, value in pairs:
        name = raw.decode("latin-1").lower()
        again = name in headers and name.startswith(("quorank-", "content-"))
        require(not again, "request.malformed", "a header of the request is repeated")
        headers[name] = value.decode("latin-1")
    return headers


def body_length(headers: Mapping[str, str], most: int) -> int:
    """Return the announced or maximum length of a body; reject longer and compressed ones."""
    require("content-encoding" not in headers, "request.encoding", "a body must not be compressed")
    length = headers.get("content-length") or str(most)
    require(_LENGTH.fullmatch(length), "request.malformed", "a header is malformed")
    require(int(length) <= most, "request.too-long", f"a body of this call has at most {most} bytes")
    return int(length)


def decode_base64(value: str) -> bytes:
    """Return the bytes of an untrusted header; empty if it is malformed."""
    with suppress(binascii.Error, ValueError):
        return base64.b64decode(value, validate=True)
    return b""


def read_head(headers: Mapping[str, str]) -> SignedHead:
    """Parse the signed headers, given by lower-case names."""
    require(SIGNED in headers, "request.unsigned", "the request is not signed; enrol first, and sign every request")
    require(headers.get(VERSION) == str(PROTOCOL), "request.protocol", _OTHER_PROTOCOL)
    words = [headers.get(name, "") for name in (MEMBER, TIME, NONCE_HEADER, DIGEST)]
    signature = decode_base64(headers[SIGNED])
    valid = all(shape.fullmatch(word) for word, shape in zip(words, (_NUMBER, _SECONDS, _NONCE, _DIGEST), strict=True))
    require(valid and len(signature) == SIGNATURE, "request.malformed", "a header of the request is malformed")
    member, time, nonce, digest = words
    agent = _AGENT.fullmatch(headers.get("user-agent", ""))
    program = "" if agent is None else agent[1]
    return SignedHead(int(member), int(time), bytes.fromhex(nonce), digest, signature, program)


def check(head: SignedHead, key: bytes, service: bytes, method: str, target: str, now: float) -> None:
    """Reject a request that the member's key did not sign for this service, call and time."""
    signed = is_signed(key, _content(method, target, service, head), head.signature)
    require(signed, "request.signature", "the signature is not that of the member's key")
    require(abs(head.time - now) <= CLOCK_SECONDS, "request.time", "the request's time is not the service's")


def check_body(head: SignedHead, body: bytes) -> None:
    """Reject a body with another digest than the signed one."""
    signed = hashlib.sha256(body).hexdigest() == head.digest
    require(signed, "request.digest", "the body is not the one that was signed")


def enrolment_body(
    key: MemberKey, service: bytes, code: bytes = b"", token: str = "", attestation: bytes = b""
) -> bytes:
    """Return the body of an enrolment with a code or a token, and an attester's signature where one is asked for."""
    proof = key.sign(enrolment_content(service, code or token.encode(), key.public))
    secret = {"code": code.hex()} if code else {"token": token}
    fields = {"protocol": PROTOCOL, **secret, "key": key.public.hex(), "proof": base64.b64encode(proof).decode()}
    fields |= {"attestation": attestation.hex()} if attestation else {}
    return json.dumps(fields).encode()


class _Enrolment(TypedDict):
    protocol: Any
    key: Annotated[bytes, Length(PUBLIC, PUBLIC)]
    proof: str
    code: NotRequired[Annotated[bytes, Length(CODE, CODE)]]
    token: NotRequired[Annotated[str, Length(200, 1)]]
    attestation: NotRequired[Annotated[bytes, Length(SIGNATURE, SIGNATURE)]]


def read_enrolment(body: bytes, service: bytes) -> tuple[bytes, bytes, str, bytes]:
    """Return (key, code, token, attestation) of an enrolment; reject one that the key did not sign."""
    try:
        found: _Enrolment = parse_json(body, _Enrolment)
        require(("code" in found) != ("token" in found), "request.malformed", "")
    except BadInput:
        sentence = "an enrolment has protocol, code or token, key and proof"
        raise BadInput("request.malformed", sentence) from None
    require(found["protocol"] == PROTOCOL, "request.protocol", _OTHER_PROTOCOL)
    key, code, token = found["key"], found.get("code", b""), found.get("token", "")
    proof = decode_base64(found["proof"])
    require(len(proof) == SIGNATURE, "request.malformed", "the proof of an enrolment is a signature")
    signed = is_signed(key, enrolment_content(service, code or token.encode(), key), proof)
    require(signed, "enrolment.proof", "the proof is not a signature by this key, for this service and code")
    return key, code, token, found.get("attestation", b"")


def refusal(code: object, sentence: object) -> BadInput:
    """Return a service's refusal with a well-formed code and a sentence of bounded length."""
    known = re.fullmatch(r"[a-z][a-z-]{0,40}\.[a-z][a-z0-9-]{0,60}", str(code))
    code = known[0] if known else "service.unreadable"
    return BadInput(code, sentence[:300] if isinstance(sentence, str) else "")
