"""Members of secure sums as one device knows them: the list of its service, and the keys that its owner has pinned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from quorank.errors import BadInput, require
from quorank.member.membership import Pins
from quorank.member.policy import policy_of
from quorank.member.private_store import PrivateStore
from quorank.protocol.member_list import Head, MemberList, next_digest

STARTED = "members"  # fact: random bytes that name the list
FORKED = (
    "the service shows this device another list of members than before; compare the lists with other members by "
    "`quorank join --compare`, and join again in a new folder if they agree"
)

Page = Callable[[int], tuple[bytes, bytes]]  # from a position: the start of the list, and its next entries


@dataclass(eq=False)
class KnownMembers:
    """Members that a device knows.

    Args:
        store: Private store of the device, which keeps the list.
        pins: Keys that the owner has pinned, and those of the invitation, by client number.
        service: Public key of the service.
        attester: Public key of the attester that the terms name; empty without one.
    """

    store: PrivateStore
    pins: Pins
    service: bytes
    attester: bytes = b""
    _list: MemberList | None = field(default=None, init=False)

    @property
    def list(self) -> MemberList | None:
        """The list as it was last fetched; None before."""
        if self._list is None and (start := self.store.fact(STARTED)) is not None:
            self._list = self._new(start)
            self._list.append(entry for (entry,) in self.store.rows("SELECT entry FROM members ORDER BY position"))
        return self._list

    def _new(self, start: bytes) -> MemberList:
        return MemberList(start, self.service, self.attester)

    def update(self, head: Head, page: Page) -> None:
        """Fetch entries up to a head that the service has signed; what does not lead to that head is not stored.

        Raises:
            BadInput: `members.forked` where the new list contradicts the one of before, `members.malformed`.
        """
        before = self.list
        if before is not None and head.size <= len(before):
            return  # `at` compares the two
        start, raw = page(0 if before is None else len(before))
        same = before is not None and start == before.start
        known = before if before is not None and same else self._new(start)
        if before is not None and not same:
            raw = page(0)[1]
        added: list[bytes] = []
        while len(known) + len(added) < head.size:
            more = known.split(raw)
            require(more, "members.malformed", "the service's list of members is shorter than it says; ask again")
            added += more[: head.size - len(known) - len(added)]
            raw = page(len(known) + len(added))[1] if len(known) + len(added) < head.size else b""
        digest = known.head.digest
        for entry in added:
            digest = next_digest(digest, entry)
        require(digest == head.digest, "members.forked", FORKED)
        first = len(known)
        known.append(added)
        require(before is None or same or not known.contradicts(before), "members.forked", FORKED)
        with self.store.transaction():
            if not same:
                self.store.rows("DELETE FROM members")
                self.store.set_fact(STARTED, start)
            for position, entry in enumerate(added, first):
                self.store.rows("INSERT INTO members VALUES (?, ?)", position, entry)
        self._list = known

    def at(self, head: Head) -> SumMembers:
        """Return the members of a secure sum whose occasion has this head.

        Raises:
            BadInput: `members.forked` where the list is another one, `members.missing` without a list.
        """
        if self.list is None:
            raise _rejected("members.missing", "the list of members could not be fetched")
        if not self.list.starts_with(head):
            raise _rejected("members.forked", FORKED)
        return SumMembers(self, head)


@dataclass(frozen=True)
class SumMembers:
    """Members that may take part in one secure sum."""

    known: KnownMembers
    head: Head

    def identities(self, mine: int, own: bytes, least: int, clients: Sequence[int]) -> dict[int, bytes]:
        """Return the public keys of a roster's clients.

        Raises:
            BadInput: `secure-sum.identity`, `secure-sum.strangers`, `secure-sum.not-attested`, or `policy.known`.
        """
        listed = self.known.list
        assert listed is not None
        keys = {client: key for client in clients if (key := listed.key(client, self.head.size)) is not None}
        strangers = sorted(set(clients) - keys.keys())
        changed = self.known.pins.changed({f"{client}": key for client, key in keys.items()})
        for holds, code, sentence in (
            (not strangers, "secure-sum.strangers", f"the roster has clients that are not listed: {strangers[:5]}"),
            (keys.get(mine) == own, "secure-sum.identity", "the list names another key for this device"),
            (not changed, "secure-sum.identity", f"clients {', '.join(changed)} have another key than the pinned one"),
        ):
            if not holds:
                raise _rejected(code, sentence)
        unattested = listed.unattested(sorted(keys))
        if unattested:
            raise _rejected("secure-sum.not-attested", f"the attester has not vouched for the clients {unattested[:5]}")
        self.check_known(mine, clients)
        return keys

    def check_known(self, mine: int, clients: Sequence[int]) -> None:
        """Reject a sum with fewer pinned members than the owner's policy asks for.

        Raises:
            BadInput: `policy.known`.
        """
        least, pinned = policy_of(self.known.store).known, self.known.pins.known
        count = sum(f"{client}" in pinned for client in clients if client != mine)
        if count < least:
            sentence = f"a sum would have {count} members that the owner has pinned, and the policy asks for {least}"
            raise _rejected("policy.known", sentence)


def _rejected(code: str, sentence: str) -> BadInput:
    logging.getLogger(__name__).warning("a secure sum was rejected: %s", sentence)
    return BadInput(code, f"{sentence}; this device refuses")
