"""What is measured of a service for `/healthz`, page and status: disk, certificate, store, holder, silence, copies."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from quorank.documents import parse_json
from quorank.errors import BadInput
from quorank.reports.live.status import Problem, problems_of
from quorank.service.home import Home
from quorank.service.store import SqlStore
from quorank.service.writer import Writer

KEPT_SECONDS = 5.0
"""So long a judgement is good."""
HOLDER_SECONDS = 60.0
"""The holder says what it does more often than this."""
COPIED_SECONDS = 7 * 86400.0
"""So long copies of an identity are told of."""
STATUS = "status.json"
"""The holder's document in the store."""

_PUBLIC = {
    "nobody.seen": "no member was seen lately",
    "identity.copied": "identities seem to run on two machines; the operator's status says which",
    "declines": "many tasks were declined; the operator's status says why",
    "rebuilding.refused": "a rebuilding was refused; the operator's status says why",
}
"""What everybody is told of problems whose sentences name members or ε."""


class ServiceHealth:
    """The state of one folder's service, judged again at most every few seconds; for any thread."""

    def __init__(self, home: Home, writer: Writer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.home, self.writer, self._clock = home, writer, clock
        self._store: SqlStore | None = None
        self._judged: tuple[float, tuple[Problem, ...]] | None = None

    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong now."""
        if self._judged is None or self._clock() - self._judged[0] > KEPT_SECONDS:
            self._judged = self._clock(), self._found()
        return self._judged[1]

    def table(self) -> Mapping[str, Any]:
        """For everybody: codes and sentences, and nothing about members."""
        found = self.problems()
        problems = [{"code": one.code, "sentence": _PUBLIC.get(one.code, one.sentence)} for one in found]
        return {"ok": not any(one.fatal for one in found), "problems": problems}

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
        if self.writer is not None and self.writer.fault and not self._is_mended(self.writer):
            more.append(Problem("store.unwritable", "the store cannot be written; nothing is accepted", fatal=True))
        return (*problems_of(**measured), *more)

    def _is_mended(self, writer: Writer) -> bool:
        """Whether the store can be written again; a worker that nobody calls would tell of an old fault for ever."""
        with contextlib.suppress(OSError, BadInput):
            if self._store is not None:
                self._store.touch()
                writer.fault = ""
        return not writer.fault

    def _members(self, store: SqlStore) -> dict[str, Any]:
        now, quiet = store.now(), 60.0 * self.home.settings.quiet
        counts = store.counts(now - quiet)
        since = now - COPIED_SECONDS
        copied = {
            one.get("client", 0) for one in store.events() if one["code"] == "identity_copied" and one["at"] > since
        }
        unseen = None if counts["seen"] else quiet
        return {"enrolled": counts["admitted"], "unseen_seconds": unseen, "quiet_seconds": 0.0, "copied": copied}

    def _holder(self, store: SqlStore) -> list[Problem]:
        content = store.document(STATUS)
        if content is None:
            return []
        age = store.now() - float(parse_json(content).get("at", 0.0))
        if age <= HOLDER_SECONDS:
            return []
        return [Problem("holder.gone", f"no process has held the coordinator for {age:.0f} s", fatal=True)]
