"""Status and health of a service from its folder and store, for the dashboard, `/healthz`, the metrics and `status`.

They are complete also where no process runs: the holder's last status, and what is known without it.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from quorank import __version__
from quorank.errors import BadInput
from quorank.files.documents import parse_json
from quorank.service.dashboard.event_log import add_refusals, plain_events
from quorank.service.dashboard.status import (
    LISTED,
    SEEN_SECONDS,
    Kind,
    MemberCounts,
    MemberStatus,
    Problem,
    Status,
    Versions,
    listed,
    member_state,
    problems_of,
    public_problems,
    shown_state,
)
from quorank.service.home import STATUS, Home
from quorank.service.store.group_commit import Writer
from quorank.service.store.sql_store import Member, SqlStore

KEPT_SECONDS = 5.0
"""Seconds for which a judgement of the health is reused."""
HOLDER_SECONDS = 60.0
"""Maximum age of the status of a living holder."""
COPIED_SECONDS = 7 * 86400.0
"""Seconds for which copied identities are reported."""
BEHIND_SECONDS = 600.0
"""Seconds after which a restored service without answers of its returned members may be behind them."""
AWAITED = 50
"""Maximum number of awaited members that are looked up one by one."""
REFUSED = "refused "
"""Prefix of the tallies of refusals by code."""
_KINDS: Mapping[str, Kind] = {"coordinator": "devices", "silo": "parties", "tuning": "tuning"}


class ServiceHealth:
    """Health of one folder's service: disk, certificate, store, holder, members; for any thread."""

    def __init__(self, home: Home, writer: Writer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.home, self.writer, self._clock = home, writer, clock
        self._store: SqlStore | None = None
        self._judged: tuple[float, tuple[Problem, ...]] | None = None

    def problems(self) -> tuple[Problem, ...]:
        """Return the current problems."""
        if self._judged is None or self._clock() - self._judged[0] > KEPT_SECONDS:
            self._judged = self._clock(), self._found()
        return self._judged[1]

    def table(self) -> Mapping[str, Any]:
        """Return codes and sentences for the public, without anything about members."""
        return public_problems(self.problems())

    def _found(self) -> tuple[Problem, ...]:
        days = self.home.days_left()
        measured: dict[str, Any] = {"certificate_days": None if self.home.tls is None else days}
        more = []
        try:
            measured["free_bytes"] = shutil.disk_usage(self.home.path).free
            if self._store is None:
                self._store = self.home.store()
            measured |= self._members(self._store)
            more += self._holder(self._store)
        except (OSError, BadInput):
            self._store = None
            more.append(Problem("store.unreachable", "the store cannot be read; nothing is accepted", fatal=True))
        if self.writer is not None and self.writer.fault and not self._is_repaired(self.writer):
            more.append(Problem("store.unwritable", "the store cannot be written; nothing is accepted", fatal=True))
        return (*problems_of(**measured), *more)

    def _is_repaired(self, writer: Writer) -> bool:
        """Test whether the store can be written again; an idle worker would report an old fault for ever."""
        with contextlib.suppress(OSError, BadInput):
            if self._store is not None:
                self._store.touch()
                writer.fault = ""
        return not writer.fault

    def _members(self, store: SqlStore) -> dict[str, Any]:
        now, quiet, events = store.now(), 60.0 * self.home.settings.quiet, store.events()
        counts, since = store.counts(now - quiet), now - COPIED_SECONDS
        restored = max((one["at"] for one in events if one["code"] == "service_restored"), default=None)
        copied = {one.get("client", 0) for one in events if one["code"] == "identity_copied" and one["at"] > since}
        return {
            "enrolled": counts["admitted"],
            "unseen_seconds": None if counts["seen"] else quiet,
            "copied": copied,
            "unanswered": 0 if restored is None else self._unanswered(store, restored, now),
        }

    def _unanswered(self, store: SqlStore, restored: float, now: float) -> int:
        """Return the number of members of a restored service that all returned without an answer to its open round."""
        open_ = store.publication()
        if open_ is None or not open_.takes_replies or store.replies(open_.run, open_.round, most=1):
            return 0
        since = max(restored, open_.opened)
        counts = store.counts(since)
        returned = counts["seen"] >= counts["admitted"] and now - since > BEHIND_SECONDS
        return counts["admitted"] if returned else 0

    def _holder(self, store: SqlStore) -> list[Problem]:
        content = store.document(STATUS)
        if content is None:
            return []
        age = store.now() - float(parse_json(content, dict[str, Any]).get("at", 0.0))
        if age <= HOLDER_SECONDS:
            return []
        return [Problem("holder.gone", f"no process has held the coordinator for {age:.0f} s", fatal=True)]


class Overview:
    """Reader of one folder's status, for any thread."""

    def __init__(self, home: Home, health: ServiceHealth | None = None) -> None:
        self.home, self.health = home, health or ServiceHealth(home)
        self._store: SqlStore | None = None

    def read(self) -> Status:
        """Return the current status."""
        try:
            if self._store is None:
                self._store = self.home.store()
            return self._read(self._store)
        except OSError:
            self._store = None
            raise BadInput("store.unreachable", "the store cannot be read; see that its database runs") from None

    def _read(self, store: SqlStore) -> Status:
        found, process = self._holder_status(store), self.home.process()
        tallies = store.tallies().items()
        refused = {name.removeprefix(REFUSED): count for name, count in tallies if name.startswith(REFUSED)}
        known = found.problems if process is not None else ()
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
            problems=(*mine, *(one for one in known if one.code not in {own.code for own in mine})),
        )

    def _holder_status(self, store: SqlStore) -> Status:
        """Return the holder's last status, or that of a new folder."""
        content = store.document(STATUS)
        if content is not None:
            return Status.read(content)
        settings, planned = self.home.settings, self.home.terms_table.get("rounds")
        kind = _KINDS[settings.kind]
        return Status(kind, "new", settings.run, store.now(), rounds_planned=planned, versions=Versions(__version__))

    def _counts(self, store: SqlStore, counts: MemberCounts) -> MemberCounts:
        known = store.counts(store.now() - SEEN_SECONDS)
        same = {name: known[name] for name in ("seen", "left", "revoked")}
        return replace(counts, invited=known["pending"], enrolled=known["admitted"], **same)

    def _members(self, store: SqlStore, status: Status) -> tuple[MemberStatus, ...]:
        """Return the first members and the awaited ones, with what the holder knows of them."""
        now, known = store.now(), {one.client: one for one in status.members}
        found = store.members(most=LISTED)
        last = found[-1].number if len(found) == LISTED else math.inf
        awaited = [one.client for one in status.members if (one.waiting or one.late) and one.client > last][:AWAITED]
        found += [one for one in map(store.member, awaited) if one is not None]
        mine = [_member(one, now, known.get(one.number)) for one in found]
        numbers = {one.client for one in mine}
        expected = [one for one in status.members if status.kind == "parties" and one.client not in numbers]
        return listed((*mine, *expected))


def _member(member: Member, now: float, known: MemberStatus | None) -> MemberStatus:
    seen = max((at for at in (member.seen, member.enrolled) if at is not None), default=None)
    ago = None if seen is None else max(0.0, now - seen)
    left, revoked, enrolled = member.left is not None, member.revoked is not None, member.key is not None
    state = member_state(left=left, revoked=revoked, enrolled=enrolled, seen_seconds=ago)
    key = None if member.key is None else member.key.hex()
    base = known or MemberStatus(member.number, member.name, state)
    return replace(base, name=member.name, state=state, seen_seconds=ago, identity=key)
