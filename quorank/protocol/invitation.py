"""Invitation of a member: where its service is, how to trust it, and a secret that enrols it once.

One JSON file with the service's address, the certificate of its authority (none: those of the system), its public key, a
code that enrols one member, and the terms, so that the owner reads them before agreeing. The member makes its own key; an
invitation holds no private key. The first use of the code becomes the member; a second use is rejected and reported to
the operator, so send it over a private channel.

With a `token` in place of the code, anybody may enrol with the invitation (open enrolment).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from urllib.parse import urlsplit

from quorank.errors import BadInput, require
from quorank.files.atomic import read_whole, write_whole
from quorank.files.codec import Length, decode
from quorank.files.documents import parse_json
from quorank.protocol.keys import PUBLIC

FILE = "invitation.json"
VERSION = 2
CODE = 32
"""Bytes of a code."""
LARGEST = 1 << 24
"""Maximum bytes of an invitation."""
_MARK = "quorank invitation"
_DAMAGED = "the invitation is damaged: something is missing; ask for a new one"

MemberKind = Literal["device", "party"]


def check_url(url: str) -> None:
    """Reject addresses other than `https://host[:port]`; plain http is allowed for a service on this machine.

    Raises:
        BadInput: `address.malformed`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    allowed = parts.scheme == "https" or (parts.scheme == "http" and local)
    bare = parts.hostname and not parts.username and parts.path in ("", "/") and not parts.query and not parts.fragment
    require(
        allowed and bare and (port is None or port > 0) and url.isprintable() and " " not in url,
        "address.malformed",
        f"{url[:100]!r} is not an address; expected https://host:port, such as https://search.example.org:9092",
    )


@dataclass(frozen=True)
class Invitation:
    """Invitation of one member, or of everybody where it has a token."""

    name: str
    url: str  # https://host:port
    service: bytes  # the service's public key
    terms: Mapping[str, Any]  # as the terms of this kind are written
    code: bytes = b""
    token: str = ""
    kind: MemberKind = "device"
    certificate: str = ""  # PEM of the authority; empty: those of the system
    identities: Mapping[str, bytes] = field(
        default_factory=dict
    )  # pinned public keys of other members, by number or name

    def __post_init__(self) -> None:
        require(0 < len(self.name) <= 100, "invitation.name", "expected a member's name of 1 to 100 characters")
        require(
            self.kind in ("device", "party"),
            "invitation.kind",
            f"the invitation is for a {self.kind}; install a newer Quorank",
        )
        check_url(self.url)
        require(len(self.service) == PUBLIC, "invitation.damaged", _DAMAGED)
        good = len(self.code) == CODE if self.code else 0 < len(self.token) <= 200
        require(good, "invitation.damaged", _DAMAGED)

    @property
    def secret(self) -> bytes:
        """Bytes of the code or the token, which the proof of enrolment signs."""
        return self.code or self.token.encode()

    def text(self) -> str:
        """Return the file's content."""
        return json.dumps(
            {
                "format": _MARK,
                "version": VERSION,
                "kind": self.kind,
                "name": self.name,
                "url": self.url,
                "certificate": self.certificate or None,
                "service": self.service.hex(),
                **({"code": self.code.hex()} if self.code else {"token": self.token}),
                "terms": self.terms,
                "identities": {who: key.hex() for who, key in sorted(self.identities.items())},
            },
            indent=1,
        )

    def write(self, path: Path) -> None:
        """Write the file with mode 0600, atomically."""
        write_whole(path, self.text().encode(), private=True)

    @classmethod
    def read(cls, path: Path) -> Invitation:
        """Read an invitation file; errors name the file and quote none of its secrets."""
        try:
            content = read_whole(path, LARGEST, code="file.unreadable")
        except BadInput as error:
            if error.code == "file.too-large":
                raise BadInput("invitation.too-large", "too large for an invitation", f"{path}") from None
            said = f"cannot be read ({error.sentence})" if error.code == "file.missing" else error.sentence
            raise BadInput("file.unreadable", f"{said}; expected an invitation", f"{path}") from None
        try:
            return cls.parse(content)
        except BadInput as error:
            raise error.at(f"{path}") from None

    @classmethod
    def parse(cls, content: bytes) -> Invitation:
        """Parse the content of an invitation file."""
        try:
            found = parse_json(content, Any)
        except BadInput:
            raise BadInput("invitation.not-json", "this is not JSON; expected an invitation") from None
        if not isinstance(found, dict) or found.get("format") != _MARK:
            raise BadInput("invitation.not-one", "this is not an invitation; ask the operator for one")
        version = found.get("version")
        sentence = f"the invitation has version {version!r}, and this Quorank reads {VERSION}; ask for a new one"
        require(version == VERSION, "invitation.version", sentence)
        try:
            known: _File = decode(_File, found)
        except BadInput:
            raise BadInput("invitation.damaged", _DAMAGED) from None
        code, token, certificate = known.get("code", b""), known.get("token", ""), known.get("certificate") or ""
        keys = known.get("identities", {})
        return cls(
            known["name"], known["url"], known["service"], known["terms"], code, token, known["kind"], certificate, keys
        )


class _File(TypedDict):
    name: str
    url: str
    kind: Any
    service: bytes
    terms: dict[str, Any]
    code: NotRequired[bytes]
    token: NotRequired[str]
    certificate: NotRequired[str | None]
    identities: NotRequired[dict[str, Annotated[bytes, Length(1000)]]]
