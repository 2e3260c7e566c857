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
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from quorank.errors import BadInput, require
from quorank.files.atomic import read_whole, write_whole
from quorank.files.codec import Length, decode, encode
from quorank.files.documents import parse_json
from quorank.protocol.keys import PUBLIC

VERSION = 2
CODE = 32  # bytes of a code
LARGEST = 1 << 24  # maximum bytes of an invitation
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MARK = "quorank invitation"
_DAMAGED = "the invitation is damaged: something is missing; ask for a new one"

MemberKind = Literal["device", "party"]


def check_run_name(run: str) -> None:
    """Reject names of runs that are empty, long, or hold control characters, which a terminal would act on.

    Raises:
        BadInput: `run.name`.
    """
    sentence = f"a run has a name of 1 to 200 printable characters, got {run[:200]!r}; rename it"
    require(0 < len(run) <= 200 and run.isprintable(), "run.name", sentence)


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
    allowed = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    bare = parts.hostname and not parts.username and parts.path in ("", "/") and not parts.query and not parts.fragment
    require(
        allowed and bare and (port is None or port > 0) and url.isprintable() and " " not in url,
        "address.malformed",
        f"{url[:100]!r} is not an address; expected https://host:port, such as https://search.example.org:9092",
    )


@dataclass(frozen=True)
class Invitation:
    """Invitation of one member, or of everybody where it has a token."""

    name: Annotated[str, Length(100, 1)]
    url: str  # https://host:port
    service: Annotated[bytes, Length(PUBLIC, PUBLIC)]  # the service's public key
    terms: Mapping[str, Any]  # as the terms of this kind are written
    code: Annotated[bytes, Length(CODE)] = b""
    token: Annotated[str, Length(200)] = ""
    kind: MemberKind = "device"
    certificate: str = ""  # PEM of the authority; empty: those of the system
    # pinned public keys of other members, by number or name
    identities: Mapping[str, Annotated[bytes, Length(1000)]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_url(self.url)
        require(self.name.isprintable(), "invitation.damaged", _DAMAGED)
        require(len(self.code) == CODE if self.code else self.token, "invitation.damaged", _DAMAGED)

    @property
    def secret(self) -> bytes:
        """Bytes of the code or the token, which the proof of enrolment signs."""
        return self.code or self.token.encode()

    def text(self) -> str:
        """Return the file's content."""
        return json.dumps({"format": _MARK, "version": VERSION, **encode(self)}, indent=1)

    def write(self, path: Path) -> None:
        """Write the file with mode 0600, atomically."""
        write_whole(path, self.text().encode(), private=True)

    @classmethod
    def read(cls, path: Path) -> Invitation:
        """Read an invitation file; errors name the file and quote none of its secrets."""
        try:
            content = read_whole(path, LARGEST, code="file.unreadable", advice="; expected an invitation")
        except BadInput as error:
            code = "invitation.too-large" if error.code == "file.too-large" else "file.unreadable"
            raise BadInput(code, error.sentence, error.where) from None
        try:
            return cls.parse(content)
        except BadInput as error:
            raise error.at(f"{path}") from None

    @classmethod
    def parse(cls, content: bytes) -> Invitation:
        """Parse the content of an invitation file."""
        found = parse_json(content, Any, code="invitation.not-json", advice="; expected an invitation")
        named = isinstance(found, dict) and found.pop("format", None) == _MARK
        require(named, "invitation.not-one", "this is not an invitation; ask the operator for one")
        version = found.pop("version", None)
        sentence = f"the invitation has version {version!r}, and this Quorank reads {VERSION}; ask for a new one"
        require(version == VERSION, "invitation.version", sentence)
        try:
            return decode(cls, found)
        except BadInput as error:
            if error.code == "address.malformed":
                raise
            raise BadInput("invitation.damaged", _DAMAGED) from None
