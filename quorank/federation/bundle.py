"""An invitation: what a device needs to find its coordinator, to trust it, and to be known by it.

One JSON file with the address, the certificate of the coordinator's authority, the node's private key, the terms and,
where secure sums are signed, the public identities of the other clients. Whoever holds it can speak in the device's name:
it is written for its owner's eyes and goes to the device by a way that others cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from quorank.documents import ANYTHING, parse_json
from quorank.errors import BadInput, require
from quorank.federation.terms import Terms
from quorank.files import read_whole

FILE = "invitation.json"
VERSION = 1
_MARK = "quorank invitation"
LARGEST = 1 << 24

T = TypeVar("T")


@dataclass(frozen=True)
class Bundle:
    """One device's invitation."""

    name: str
    address: str  # host:port
    certificate: str  # PEM, of the authority that the coordinator's certificate is checked against
    key: str  # PEM, the node's private key
    terms: Terms
    identities: Mapping[int, bytes] = field(default_factory=dict)  # by client: Ed25519 public keys that are pinned

    def __post_init__(self) -> None:
        require(0 < len(self.name) <= 100, "invitation.name", "an invitation names its device by 1 to 100 letters")
        check_address(self.address)

    def text(self) -> str:
        return json.dumps(
            {
                "format": _MARK,
                "version": VERSION,
                "name": self.name,
                "address": self.address,
                "certificate": self.certificate,
                "key": self.key,
                "terms": self.terms.table(),
                "identities": {str(client): key.hex() for client, key in sorted(self.identities.items())},
            },
            indent=1,
        )

    def write(self, path: Path) -> None:
        """For its owner's eyes, whole or not at all."""
        from quorank.certificates import write_private

        write_private(path, self.text().encode())

    @classmethod
    def read(cls, path: Path) -> Bundle:
        """From such a file; every mistake is a sentence that names the file and quotes none of its secrets."""
        return read_invitation(path, cls._of)

    @classmethod
    def _of(cls, found: object) -> Bundle:
        if not isinstance(found, dict) or found.get("format") != _MARK:
            raise BadInput("invitation.not-one", "this is not an invitation; ask the coordinator's owner for one")
        (name, address, certificate, key), identities = checked_fields(found, VERSION)
        try:
            pinned = {int(client): bytes.fromhex(key) for client, key in identities.items()}
        except (ValueError, TypeError):
            raise BadInput("invitation.damaged", "the invitation's identities are damaged; ask for a new one") from None
        return cls(name, address, certificate, key, Terms.read(found.get("terms")), pinned)


def read_invitation(path: Path, of: Callable[[object], T]) -> T:
    """What `of` makes of the file's JSON; every mistake is a sentence that names the file."""
    try:
        content = read_whole(path, LARGEST, code="file.unreadable")
    except BadInput as error:
        if error.code == "file.too-large":
            raise BadInput("invitation.too-large", "it is too large for an invitation", f"{path}") from None
        said = f"cannot be read ({error.sentence})" if error.code == "file.missing" else error.sentence
        raise BadInput("file.unreadable", f"{said}; expected an invitation", f"{path}") from None
    try:
        found = parse_json(content, ANYTHING)
    except BadInput:
        raise BadInput("invitation.not-json", "this is not JSON; expected an invitation", f"{path}") from None
    try:
        return of(found)
    except BadInput as error:
        raise error.at(f"{path}") from None


def checked_fields(found: Mapping[str, Any], version: int) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(name, address, certificate, key) and the identities of an invitation of this version."""
    require(
        found.get("version") == version,
        "invitation.version",
        f"an invitation of version {found.get('version')!r}, and this Quorank reads {version}; install the newer one",
    )
    words = [found.get(name) for name in ("name", "address", "certificate", "key")]
    identities = found.get("identities", {})
    if not all(isinstance(word, str) for word in words) or not isinstance(identities, dict):
        raise BadInput("invitation.damaged", "the invitation is damaged: something is missing; ask for a new one")
    return tuple(map(str, words)), identities


def check_address(address: str) -> None:
    """host:port."""
    host, _, port = address.rpartition(":")
    good = host and port.isdecimal() and port.isascii() and len(port) <= 5 and 0 < int(port) < 65536 and " " not in host
    require(
        good, "address.malformed", f"{address!r} is not an address; expected host:port, such as search.example.org:9092"
    )
