"""Status of a service from its folder and store: what the holder wrote down, and what is known without it.

The page, the metrics and `quorank coordinator status` show it, also where no process runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from quorank import __version__
from quorank.errors import BadInput
from quorank.service.health import ServiceHealth
from quorank.service.home import STATUS, Home
from quorank.service.live.event_log import add_refusals, plain_events
from quorank.service.live.status import (
    LISTED,
    SEEN_SECONDS,
    Kind,
    MemberCounts,
    MemberStatus,
    Status,
    Versions,
    listed,
    member_state,
    shown_state,
)  # fmt: skip
from quorank.service.store.sql_store import Member, SqlStore

AWAITED = 50
"""Awaited members that are looked up one by one, where they are not among the first."""
_KINDS: Mapping[str, Kind] = {"coordinator": "devices", "silo": "parties", "tuning": "tuning"}
REFUSED = "refused "
"""How the tallies of refusals by code begin."""


class Overview:
    """Reads the status of one folder, for any thread."""

    def __init__(self, home: Home, health: ServiceHealth | None = None) -> None:
        self.home, self.health = home, health or ServiceHealth(home)
        self._store: SqlStore | None = None

    def read(self) -> Status:
        """The status now."""
        try:
            if self._store is None:
                self._store = self.home.store()
            return self._read(self._store)
        except OSError:
            self._store = None
            raise BadInput("store.unreachable", "the store cannot be read; see that its database runs") from None

    def _read(self, store: SqlStore) -> Status:
        found, process = self._told(store), self.home.process()
        tallies = store.tallies().items()
        refused = {name.removeprefix(REFUSED): count for name, count in tallies if name.startswith(REFUSED)}
        told = found.problems if process is not None else ()
        mine = [one for one in self.health.problems() if process is not None or one.code != "holder.gone"]
        return replace(
            found,
            state=shown_state(found.state, process),
            process=process,
            address=self.home.settings.url,
            counts=self._counts(store, found.counts),
            versions=replace(found.versions, members=store.programs()),
            members=self._members(store, found),
            refused=add_refusals(found.refused, refused),
            events=plain_events(store.events()) or found.events,
            problems=(*mine, *(one for one in told if one.code not in {own.code for own in mine})),
        )

    def _told(self, store: SqlStore) -> Status:
        """What the holder wrote down last; before it has, a folder that is new."""
        content = store.document(STATUS)
        if content is not None:
            return Status.read(content)
        settings, planned = self.home.settings, self.home.terms_table.get("rounds")
        kind = _KINDS[settings.kind]
        return Status(kind, "new", settings.run, store.now(), rounds_planned=planned, versions=Versions(__version__))

    def _counts(self, store: SqlStore, told: MemberCounts) -> MemberCounts:
        known = store.counts(store.now() - SEEN_SECONDS)
        same = {name: known[name] for name in ("seen", "left", "revoked")}
        return replace(told, invited=known["pending"], enrolled=known["admitted"], **same)

    def _members(self, store: SqlStore, told: Status) -> tuple[MemberStatus, ...]:
        """The first members and those that are awaited, with what the holder knows of them."""
        now, known = store.now(), {one.client: one for one in told.members}
        found = store.members(most=LISTED)
        last = found[-1].number if len(found) == LISTED else math.inf
        awaited = [one.client for one in told.members if (one.waiting or one.late) and one.client > last][:AWAITED]
        found += [one for one in map(store.member, awaited) if one is not None]
        mine = [_member(one, now, known.get(one.number)) for one in found]
        numbers = {one.client for one in mine}
        expected = [one for one in told.members if told.kind == "parties" and one.client not in numbers]
        return listed((*mine, *expected))


def _member(member: Member, now: float, told: MemberStatus | None) -> MemberStatus:
    seen = max((at for at in (member.seen, member.enrolled) if at is not None), default=None)
    ago = None if seen is None else max(0.0, now - seen)
    left, revoked, enrolled = member.left is not None, member.revoked is not None, member.key is not None
    state = member_state(left=left, revoked=revoked, enrolled=enrolled, seen_seconds=ago)
    key = None if member.key is None else member.key.hex()
    base = told or MemberStatus(member.number, member.name, state)
    return replace(base, name=member.name, state=state, seen_seconds=ago, identity=key)
