"""What an operator must know of a service before anybody complains: disk, certificate, store, holder, silence, copies."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quorank.documents import parse_json
from quorank.errors import BadInput
from quorank.service.home import RENEW_DAYS, Home
from quorank.service.store import SqlStore
from quorank.service.writer import Writer

LEAST_DISK = 64 << 20
"""Bytes; with less left of the disk the service tells."""
KEPT_SECONDS = 5.0
"""So long a judgement is good."""
HOLDER_SECONDS = 60.0
"""The holder says what it does more often than this."""
COPIED_SECONDS = 7 * 86400.0
"""So long copies of an identity are told of."""


class HealthProblem(NamedTuple):
    """Something that is wrong; with `fatal` the service cannot do its work."""

    code: str
    sentence: str
    fatal: bool = False


class Health:
    """The state of one folder's service, judged again at most every few seconds; for any thread."""

    def __init__(self, home: Home, writer: Writer | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.home, self.writer, self._clock = home, writer, clock
        self._store: SqlStore | None = None
        self._judged: tuple[float, list[HealthProblem]] | None = None

    def problems(self) -> list[HealthProblem]:
        """All that is wrong now."""
        if self._judged is None or self._clock() - self._judged[0] > KEPT_SECONDS:
            self._judged = self._clock(), [*self._disk(), *self._certificate(), *self._stored()]
        return self._judged[1]

    def table(self) -> Mapping[str, Any]:
        """For everybody: codes and sentences, and nothing about members."""
        found = self.problems()
        problems = [{"code": one.code, "sentence": one.sentence} for one in found]
        return {"ok": not any(one.fatal for one in found), "problems": problems}

    def _disk(self) -> list[HealthProblem]:
        free = shutil.disk_usage(self.home.path).free
        if free >= LEAST_DISK:
            return []
        return [
            HealthProblem("disk.full", f"{free >> 20} MB are left on the disk of the service's folder", free < 1 << 20)
        ]

    def _certificate(self) -> list[HealthProblem]:
        days = self.home.days_left()
        if days >= RENEW_DAYS / 2:
            return []
        if days <= 0.0:
            return [HealthProblem("certificate.expired", "the certificate has expired or cannot be read", True)]
        return [HealthProblem("certificate.expires", f"the certificate is good for {days:.0f} days more")]

    def _stored(self) -> list[HealthProblem]:
        if self.writer is not None and self.writer.fault:
            return [HealthProblem("store.unwritable", "the store cannot be written; nothing is accepted", True)]
        try:
            if self._store is None:
                self._store = self.home.store()
            return [*self._holder(self._store), *self._silence(self._store), *self._copies(self._store)]
        except (OSError, BadInput):
            self._store = None
            return [HealthProblem("store.unreachable", "the store cannot be read", True)]

    def _holder(self, store: SqlStore) -> list[HealthProblem]:
        content = store.document("status.json")
        if content is None:
            return []
        at = parse_json(content).get("at", 0.0)
        age = store.now() - at
        if age <= HOLDER_SECONDS:
            return []
        return [HealthProblem("holder.gone", f"no process has held the coordinator for {age:.0f} s", True)]

    def _silence(self, store: SqlStore) -> list[HealthProblem]:
        quiet = 60.0 * self.home.settings.quiet
        counts = store.counts(store.now() - quiet)
        if counts["seen"] or not counts["admitted"]:
            return []
        return [HealthProblem("nobody.seen", f"no member has asked for anything for {quiet / 60.0:g} minutes")]

    def _copies(self, store: SqlStore) -> list[HealthProblem]:
        since = store.now() - COPIED_SECONDS
        copied = {one.get("client") for one in store.events() if one["code"] == "identity_copied" and one["at"] > since}
        if not copied:
            return []
        sentence = (
            f"{len(copied)} members answered a round twice, differently: their folders were copied, or their keys"
        )
        return [HealthProblem("identity.copied", sentence)]
