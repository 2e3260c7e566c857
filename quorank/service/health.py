"""What is measured of a service for `/healthz`, page and status: disk, certificate, store, holder, silence, copies."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from quorank.errors import BadInput
from quorank.files.documents import parse_json
from quorank.service.home import STATUS, Home
from quorank.service.live.status import Problem, problems_of, public_problems
from quorank.service.store.sql_store import SqlStore
from quorank.service.store.writer import Writer

KEPT_SECONDS = 5.0
"""So long a judgement is good."""
HOLDER_SECONDS = 60.0
"""The holder says what it does more often than this."""
COPIED_SECONDS = 7 * 86400.0
"""So long copies of an identity are told of."""
BEHIND_SECONDS = 600.0
"""A restored service whose members all came in so long and answered nothing may be behind them."""


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
        now, quiet, events = store.now(), 60.0 * self.home.settings.quiet, store.events()
        counts, since = store.counts(now - quiet), now - COPIED_SECONDS
        restored = max((one["at"] for one in events if one["code"] == "service_restored"), default=None)
        return {
            "enrolled": counts["admitted"],
            "unseen_seconds": None if counts["seen"] else quiet,
            "quiet_seconds": 0.0,
            "copied": {
                one.get("client", 0) for one in events if one["code"] == "identity_copied" and one["at"] > since
            },
            "unanswered": 0 if restored is None else self._unanswered(store, restored, now),
        }

    def _unanswered(self, store: SqlStore, restored: float, now: float) -> int:
        """Members of a restored service who all came for its open round, and none of whom has answered it; 0: not so."""
        open_ = store.publication()
        if open_ is None or not open_.takes_replies or store.replies(open_.run, open_.round, most=1):
            return 0
        since = max(restored, open_.opened)
        counts = store.counts(since)
        came = counts["seen"] >= counts["admitted"] and now - since > BEHIND_SECONDS
        return counts["admitted"] if came else 0

    def _holder(self, store: SqlStore) -> list[Problem]:
        content = store.document(STATUS)
        if content is None:
            return []
        age = store.now() - float(parse_json(content).get("at", 0.0))
        if age <= HOLDER_SECONDS:
            return []
        return [Problem("holder.gone", f"no process has held the coordinator for {age:.0f} s", fatal=True)]
