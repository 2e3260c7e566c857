"""Status and health of a service from its folder and store, for the dashboard, `/healthz`, the metrics and `status`.

They are complete also where no process runs: the holder's last status, and what is known without it.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from quorank import __version__
from quorank.errors import BadInput
from quorank.files.documents import parse_json
from quorank.protocol.certificates import fit_together
from quorank.service.dashboard.event_log import add_refusals, plain_event
from quorank.service.dashboard.status import (
    LISTED,
    SEEN_SECONDS,
    Kind,
    MemberState,
    MemberStatus,
    Problem,
    Status,
    Versions,
    listed,
)
from quorank.service.home import STATUS, Home
from quorank.service.store.group_commit import Writer
from quorank.service.store.sql_store import TRAFFIC, Member, SqlStore

KEPT_SECONDS = 5.0  # seconds for which a judgement of the health is reused
HOLDER_SECONDS = 60.0  # maximum age of the status of a living holder
QUIET_SECONDS = 3600.0  # seconds without any member that are reported
COPIED_SECONDS = 7 * 86400.0  # seconds for which copied identities are reported
BEHIND_SECONDS = 600.0  # seconds without an answer after which a restored service may be behind its members
RATE_SECONDS = 60.0  # seconds over which the rate of requests is measured
AWAITED = 50  # maximum number of awaited members that are looked up one by one
LEAST_FREE_BYTES = 64 << 20  # free space below which the disk counts as full
LEAST_DAYS = 30.0  # remaining days of a certificate below which they are reported
_KINDS: Mapping[str, Kind] = {"coordinator": "devices", "silo": "parties", "tuning": "tuning"}


class Overview:
    """Reader of one folder's status and health, for any thread; `writer` is the worker's own."""

    def __init__(self, home: Home, writer: Writer | None = None) -> None:
        self.home, self.writer = home, writer
        self._store: SqlStore | None = None
        self._since, self._days = time.monotonic(), home.days_left()  # a worker serves the certificate of its start
        self._judged: tuple[float, tuple[Problem, ...]] | None = None
        self._counted = deque[tuple[float, int]]()  # (moment, answered requests) of earlier reads

    @contextlib.contextmanager
    def _opened(self) -> Iterator[SqlStore]:
        """Open the store, and once more after a failure."""
        try:
            if self._store is None:
                self._store = self.home.store()
            yield self._store
        except OSError:
            self._store = None
            raise BadInput("store.unreachable", "the store cannot be read; nothing is accepted") from None

    # ------------------------------------------------------------ health

    def health(self) -> dict[str, Any]:
        """Return the problems for the public, without anything about members, and whether the service can work."""
        found = self.problems()
        return {
            "ok": not any(one.fatal for one in found),
            "problems": [{"code": one.code, "sentence": one.sentence} for one in found],
        }

    def problems(self) -> tuple[Problem, ...]:
        """Return the current problems of disk, certificate, store, holder and members; their sentences are public."""
        if self._judged is None or time.monotonic() - self._judged[0] > KEPT_SECONDS:
            self._judged = time.monotonic(), tuple(self._problems())
        return self._judged[1]

    def _problems(self) -> Iterator[Problem]:
        days, files = self._days - (time.monotonic() - self._since) / 86400.0, self.home.tls
        try:
            free = shutil.disk_usage(self.home.path).free
            if free < LEAST_FREE_BYTES:
                sentence = f"the disk is full ({free >> 20} MiB left): replies are rejected, and accepted ones are kept"
                yield Problem("disk.full", sentence, fatal=True)
            with self._opened() as store:
                yield from self._problems_in(store)
        except (OSError, BadInput):
            yield Problem("store.unreachable", "the store cannot be read; nothing is accepted", fatal=True)
        if files is not None and not fit_together(*files):
            sentence = "certificate and key on the disk cannot be used, and a restart would fail: replace them"
            yield Problem("certificate.unreadable", sentence)
        if -math.inf < days < LEAST_DAYS:
            sentence = "the certificate has expired: members cannot connect"
            if days > 0.0:
                sentence = (
                    f"the certificate expires in {days:.0f} days: restart for a new one, or replace the given one"
                )
            yield Problem("certificate.expires", sentence, fatal=days <= 0.0)
        if self.writer is not None and self.writer.fault and not self._is_repaired(self.writer):
            yield Problem("store.unwritable", "the store cannot be written; nothing is accepted", fatal=True)

    def _problems_in(self, store: SqlStore) -> Iterator[Problem]:
        now, events, content = store.now(), store.events(), store.document(STATUS)
        counts = store.counts(now - QUIET_SECONDS)
        if counts["enrolled"] and not counts["seen"]:
            yield Problem("nobody.seen", f"no member was seen for {QUIET_SECONDS / 60.0:.0f} minutes")
        if any(one["code"] == "identity_copied" and one["at"] > now - COPIED_SECONDS for one in events):
            sentence = (
                "some members seem to run on two machines: revoke those named in the events, and invite them again"
            )
            yield Problem("identity.copied", sentence)
        if self._is_behind(store, max((one["at"] for one in events if one["code"] == "service_restored"), default=now)):
            sentence = (
                "all members returned since the restore, and none answered its round; if they had answered it before, "
                "restore the backup again with a larger --skip"
            )
            yield Problem("restore.behind", sentence)
        age = 0.0 if content is None else now - float(parse_json(content).get("at", 0.0))
        if age > HOLDER_SECONDS:
            yield Problem("holder.gone", f"no process has held the coordinator for {age:.0f} s", fatal=True)

    def _is_behind(self, store: SqlStore, restored: float) -> bool:
        """Return whether all members of a restored service returned without an answer to its open round."""
        open_ = store.publication()
        if open_ is None or not open_.limits or store.now() - max(restored, open_.opened) <= BEHIND_SECONDS:
            return False
        counts = store.counts(max(restored, open_.opened))
        return 0 < counts["enrolled"] <= counts["seen"] and not store.replies(open_.run, open_.round, most=1)

    def _is_repaired(self, writer: Writer) -> bool:
        """Test whether the store can be written again; an idle worker would report an old fault for ever."""
        with contextlib.suppress(OSError, BadInput), self._opened() as store:
            store.touch()
            writer.fault = ""
        return not writer.fault

    # ------------------------------------------------------------ status

    def read(self) -> Status:
        """Return the current status."""
        with self._opened() as store:
            found, process = self._holder_status(store), self.home.process()
            problems = {one.code: one for one in self.problems() if process is not None or one.code != "holder.gone"}
            if process is not None:
                problems = {one.code: one for one in found.problems} | problems
            state = found.state if process is not None or found.state in ("new", "done") else "stopped"
            events = (plain_event(one["at"], one["code"], one) for one in store.events())
            tallies = store.tallies()
            requests, microseconds = (tallies.pop(name, 0) for name in TRAFFIC)
            return replace(
                found,
                state="starting" if process is not None and state in ("new", "stopped") else state,
                process=process,
                address=self.home.settings.url,
                counts=replace(found.counts, **store.counts(store.now() - SEEN_SECONDS)),
                versions=replace(found.versions, members=store.programs()),
                members=self._members(store, found),
                refused=add_refusals(found.refused, tallies),
                requests=requests,
                request_seconds=microseconds / 1e6,
                request_rate=self._rate(requests),
                events=tuple(event for event in events if event is not None),
                problems=tuple(problems.values()),
            )

    def _rate(self, requests: int) -> float | None:
        """Return the answered requests per second since a read within RATE_SECONDS; None at the first read."""
        now = time.monotonic()
        while self._counted and now - self._counted[0][0] > RATE_SECONDS:
            self._counted.popleft()
        self._counted.append((now, requests))
        began, before = self._counted[0]
        return max(0, requests - before) / (now - began) if now > began else None

    def _holder_status(self, store: SqlStore) -> Status:
        """Return the holder's last status, or that of a new folder."""
        content = store.document(STATUS)
        if content is not None:
            return Status.read(content)
        settings, planned = self.home.settings, self.home.terms_table.get("rounds")
        kind = _KINDS[settings.kind]
        return Status(kind, "new", settings.run, store.now(), rounds_planned=planned, versions=Versions(__version__))

    def _members(self, store: SqlStore, status: Status) -> tuple[MemberStatus, ...]:
        """Return the first members and the awaited ones, with what the holder knows of them."""
        now, known = store.now(), {one.client: one for one in status.members}
        found = store.members(most=LISTED)
        last = found[-1].number if len(found) == LISTED else math.inf
        awaited = [one.client for one in status.members if one.waiting and one.client > last][:AWAITED]
        found += [one for one in map(store.member, awaited) if one is not None]
        listed_now = {one.number: _member(one, now, known.get(one.number)) for one in found}
        expected = known if status.kind == "parties" else {}
        return listed((expected | listed_now).values())


def _member(member: Member, now: float, known: MemberStatus | None) -> MemberStatus:
    seen = max((at for at in (member.seen, member.enrolled) if at is not None), default=None)
    ago = None if seen is None else max(0.0, now - seen)
    state: MemberState = "present" if ago is not None and ago <= SEEN_SECONDS else "away"
    if not member.admitted:
        state = "left" if member.left is not None else "revoked" if member.revoked is not None else "invited"
    identity = None if member.key is None else member.key.hex()
    found = known or MemberStatus(member.number, member.name, state)
    return replace(found, name=member.name, state=state, seen_seconds=ago, identity=identity)
