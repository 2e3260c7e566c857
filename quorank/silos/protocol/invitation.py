"""A party's invitation to a group: where the coordinator is, how to trust it, the node's key, and the group's terms.

One JSON file, as for devices (`bundle`), with the public identities of other parties where the coordinator's owner was
told them. Identities that come with an invitation are as good as the way it came: parties that do not want to believe
their coordinator compare them, or the fingerprint, by voice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quorank.errors import require
from quorank.federation.bundle import check_address, checked_fields, read_invitation
from quorank.silos.protocol.terms import SiloTerms

FILE = "invitation.json"
VERSION = 1
KEY_BYTES = 32
_MARK, _DEVICES = "quorank silo invitation", "quorank invitation"


@dataclass(frozen=True)
class SiloBundle:
    """One party's invitation."""

    name: str
    address: str  # host:port
    certificate: str  # PEM, of the authority that the coordinator's certificate is checked against
    key: str = field(repr=False)  # PEM, the node's private key
    terms: SiloTerms
    identities: Mapping[str, bytes] = field(default_factory=dict)  # by party: X25519 public keys

    def __post_init__(self) -> None:
        check_address(self.address)
        require(
            self.name in self.terms.parties,
            "party.unknown",
            f"{self.name} is no party of the group; its parties are {', '.join(self.terms.parties)}",
        )

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
                "identities": {name: key.hex() for name, key in sorted(self.identities.items())},
            },
            indent=1,
        )

    def write(self, path: Path) -> None:
        """For its owner's eyes, whole or not at all."""
        from quorank.certificates import write_private

        write_private(path, self.text().encode())

    @classmethod
    def read(cls, path: Path) -> SiloBundle:
        """From such a file; every mistake is a sentence that names the file and quotes none of its secrets."""
        return read_invitation(path, cls._of)

    @classmethod
    def _of(cls, found: object) -> SiloBundle:
        mark = found.get("format") if isinstance(found, dict) else None
        require(mark != _DEVICES, "invitation.other-kind", "this is a device's invitation; accept it with quorank join")
        require(
            mark == _MARK, "invitation.not-one", "this is not a party's invitation; ask the coordinator's owner for one"
        )
        assert isinstance(found, dict)
        (name, address, certificate, key), identities = checked_fields(found, VERSION)
        terms = SiloTerms.read(found.get("terms"))
        pinned = {str(who): read_identity(f"{who}={key}", terms)[1] for who, key in identities.items()}
        return cls(name, address, certificate, key, terms, pinned)


def read_identity(text: str, terms: SiloTerms) -> tuple[str, bytes]:
    """A party and its public identity, of NAME=HEX."""
    name, equals, digits = text.partition("=")
    require(
        equals and name in terms.parties,
        "identity.malformed",
        f"expected NAME=HEX with one of the parties {', '.join(terms.parties)}",
        f"{text[:80]!r}",
    )
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    require(
        len(key) == KEY_BYTES,
        "identity.malformed",
        f"a public identity has {2 * KEY_BYTES} hexadecimal digits, as quorank silo join --identity prints it",
        f"{name}",
    )
    return name, key


def read_identities(texts: list[str], terms: SiloTerms) -> dict[str, bytes]:
    """Several of them; a party that is given two is refused."""
    found: dict[str, bytes] = {}
    for text in texts:
        name, key = read_identity(text, terms)
        require(
            found.get(name, key) == key,
            "identity.conflict",
            "two different identities were given; ask which is right",
            f"{name}",
        )
        found[name] = key
    return found
