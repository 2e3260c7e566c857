"""An invitation: what a member needs to find its service, to trust it, and to be let in once.

One JSON file with the service's address, the certificate of its authority (or none: then the system's are used), its public
key, a code that enrols one member, and the terms, so that the owner can read them before anything is agreed. The member
makes its own key; no private key is in an invitation. Whoever holds the code first can take the member's place, and the
second use of a code is refused and seen by the operator: it goes to its owner by a way that others cannot read.

With a `token` in the place of the code, the invitation is for everybody (open enrolment).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from quorank.errors import BadInput, require
from quorank.files.atomic import read_whole, write_whole
from quorank.files.documents import ANYTHING, parse_json
from quorank.protocol.addresses import check_url as check_url
from quorank.protocol.member_key import PUBLIC

FILE = "invitation.json"
VERSION = 2
CODE = 32
"""Bytes of a code."""
LARGEST = 1 << 24
_MARK = "quorank invitation"
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_NOT_READ = "the invitation is damaged: something is missing; ask for a new one"

MemberKind = Literal["device", "party"]


@dataclass(frozen=True)
class Invitation:
    """One member's invitation, or everybody's where it has a token."""

    name: str
    url: str  # https://host:port
    service: bytes  # the service's public key
    terms: Mapping[str, Any]  # as the reader of the member's kind reads them
    code: bytes = b""
    token: str = ""
    kind: MemberKind = "device"
    certificate: str = ""  # PEM of the authority; none: the system's
    identities: Mapping[str, bytes] = field(default_factory=dict)  # of other members, pinned: by number, or by name

    def __post_init__(self) -> None:
        require(0 < len(self.name) <= 100, "invitation.name", "an invitation names its member by 1 to 100 letters")
        require(
            self.kind in ("device", "party"), "invitation.kind", f"it is for a {self.kind}; install the newer Quorank"
        )
        check_url(self.url)
        require(len(self.service) == PUBLIC, "invitation.damaged", _NOT_READ)
        good = len(self.code) == CODE if self.code else 0 < len(self.token) <= 200
        require(good, "invitation.damaged", _NOT_READ)

    @property
    def secret(self) -> bytes:
        """The code or the token, as bytes that a proof of enrolment is made of."""
        return self.code or self.token.encode()

    def text(self) -> str:
        """As it is written."""
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
        """For its owner's eyes, whole or not at all."""
        write_whole(path, self.text().encode(), private=True)

    @classmethod
    def read(cls, path: Path) -> Invitation:
        """From such a file; every mistake is a sentence that names the file and quotes none of its secrets."""
        try:
            content = read_whole(path, LARGEST, code="file.unreadable")
        except BadInput as error:
            if error.code == "file.too-large":
                raise BadInput("invitation.too-large", "it is too large for an invitation", f"{path}") from None
            said = f"cannot be read ({error.sentence})" if error.code == "file.missing" else error.sentence
            raise BadInput("file.unreadable", f"{said}; expected an invitation", f"{path}") from None
        try:
            return cls.parse(content)
        except BadInput as error:
            raise error.at(f"{path}") from None

    @classmethod
    def parse(cls, content: bytes) -> Invitation:
        """From the bytes of such a file."""
        try:
            found = parse_json(content, ANYTHING)
        except BadInput:
            raise BadInput("invitation.not-json", "this is not JSON; expected an invitation") from None
        if not isinstance(found, dict) or found.get("format") != _MARK:
            raise BadInput("invitation.not-one", "this is not an invitation; ask the operator for one")
        version = found.get("version")
        older = "; it was made by an older Quorank: ask for a new one" if version == 1 else "; install the newer one"
        require(
            version == VERSION,
            "invitation.version",
            f"an invitation of version {version!r}, and this Quorank reads {VERSION}{older}",
        )
        name, url, kind, token = (found.get(key, "") for key in ("name", "url", "kind", "token"))
        certificate, terms, identities = found.get("certificate"), found.get("terms"), found.get("identities", {})
        words = all(isinstance(word, str) for word in (name, url, kind, token, certificate or ""))
        require(words and isinstance(terms, dict) and isinstance(identities, dict), "invitation.damaged", _NOT_READ)
        assert isinstance(terms, dict)
        pinned = {str(who): _bytes(key) for who, key in identities.items()}
        code = _bytes(found["code"]) if "code" in found else b""
        return cls(name, url, _bytes(found.get("service")), terms, code, token, kind, certificate or "", pinned)


def _bytes(word: object) -> bytes:
    if not isinstance(word, str) or not _HEX.fullmatch(word) or len(word) > 2000:
        raise BadInput("invitation.damaged", _NOT_READ)
    return bytes.fromhex(word)
