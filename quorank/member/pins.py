"""Pinned identities of a device's secure sums: those of its invitation, and those that it met first (trust on first use).

In the second exchange of a secure sum the coordinator tells which identity (Ed25519) each client goes by. That is a claim.
A device believes it where it has pinned nothing else for this client: then the identity is pinned in its private file, and
from then on no other one is taken for that client (trust on first use). Keys that were not signed by these identities are
refused (`secure-sum.identity`), so a coordinator cannot put its own keys in a client's place in later rounds.

It can on first use: who is met for the first time may be anybody, one of the coordinator's own inventions too. Identities
that came another way, in an invitation or compared by voice, have no such beginning.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping

from quorank.errors import BadInput, require
from quorank.files.documents import Each, Text, parse_json
from quorank.member.private_store import PrivateStore

FACT = "identities"


class Pins(Mapping[int, bytes]):
    """Pinned public keys by client; `clients` is how many the run has, by the invitation's terms."""

    def __init__(self, store: PrivateStore, clients: int, given: Mapping[int, bytes] | None = None) -> None:
        self.store, self.clients, self.given = store, clients, dict(given or {})

    def __getitem__(self, client: int) -> bytes:
        return self._all()[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _met(self) -> dict[int, bytes]:
        text = self.store.fact(FACT)
        if text is None:
            return {}
        found = parse_json(text, Each(Text()), f"{self.store.folder}: {FACT}")
        try:
            return {int(client): bytes.fromhex(key) for client, key in found.items()}
        except ValueError:
            raise BadInput("file.damaged", "the identities of others are damaged", f"{self.store.folder}") from None

    def _all(self) -> dict[int, bytes]:
        return self._met() | self.given

    def accept(self, mine: int, own: bytes, least: int, claims: Mapping[int, bytes]) -> dict[int, bytes]:
        """The identities of a round's clients, if nobody has changed; whoever is new is pinned now."""
        try:
            self._check(mine, own, least, claims)
        except BadInput as error:
            logging.getLogger(__name__).warning("a secure sum was refused: %s", error)
            raise
        met = self._met()
        new = {client: key for client, key in claims.items() if client not in met}
        if new:
            text = json.dumps({str(client): key.hex() for client, key in sorted((met | new).items())})
            with self.store.transaction():
                self.store.set_fact(FACT, text.encode())
        return dict(claims)

    def _check(self, mine: int, own: bytes, least: int, claims: Mapping[int, bytes]) -> None:
        require(claims, "secure-sum.no-identities", "the coordinator does not say who takes part; this device refuses")
        require(
            claims.get(mine) == own,
            "secure-sum.identity",
            "the coordinator gives this device another identity; this device refuses",
        )
        require(
            max(claims) < self.clients and 2 * least > len(claims),
            "secure-sum.too-many",
            "the coordinator names more clients than the run has; this device refuses",
        )
        require(
            len(set(claims.values())) == len(claims),
            "secure-sum.identity",
            "the coordinator names one identity for several clients; this device refuses",
        )
        known = self._all()
        changed = sorted(client for client, key in claims.items() if known.get(client, key) != key)
        require(
            not changed,
            "secure-sum.identity",
            f"clients {changed} come with another identity than before; this device refuses to be summed with them: their "
            "devices were set up again, or the coordinator has put its own keys in their place",
        )
