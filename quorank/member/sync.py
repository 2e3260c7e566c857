"""Synchronisation of an enrolled device: one exchange with the service at a time, retries, leaving.

Between two syncs nothing runs: call `sync` from a timer, a thread or asyncio (`await asyncio.to_thread(client.sync)`) when
`SyncReport.next` seconds have passed. It may be called more often; early calls do nothing. The first sync with consent
enrols the device.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypedDict

from quorank.errors import BadInput, require
from quorank.member.membership import HEARD, LEAVING, MEMBER, Membership, T
from quorank.member.private_store import Erased, PrivateStore
from quorank.protocol.http_client import LONGEST_NEXT, PollingInterval, ServiceClient, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.protocol.messages import is_leaving_receipt

POLLING = "polling"  # fact: when the service is to be asked next
HOUR = 3600.0
SHORTEST_PAUSE, LONGEST_PAUSE = 15.0, HOUR  # seconds between retries, which double from the shortest to the longest
LEAVING_PAUSE = 60.0  # seconds between requests while leaving is not confirmed
FINAL = (
    "request.revoked", "request.left", "invitation.unknown", "invitation.used", "terms.changed", "request.protocol",
)  # fmt: skip
"""Refusals that no waiting will change."""
TEMPORARY = ("reply.other-round", "reply.round-full", "reply.no-open-round")
"""Refusals after which the same reply may be accepted while its task is current."""
_LOCAL = ("file.", "folder.", "interaction.", "private-data.")


@dataclass(frozen=True)
class SyncReport:
    """Result of one `sync`.

    Args:
        outcome: `sent` (a release was confirmed), `nothing` (no task, or no answer to it yet; `code` says why), `over`
            (all rounds are done), `early` (called before its time), `busy` (another thread is syncing), `consent` (it is
            off: nothing was requested), `leaving` (the service has the request), `left` (everything is erased), `refused`
            (the service rejected the answer), `failed` (the service was unreachable or unreadable).
        next: Seconds until the next sync is useful.
        code: Stable code of the reason.
        sentence: The reason for people.
        sent: Bytes of the release.
        erased: Evidence of the erasure after `left`.

    >>> SyncReport("sent", 30.0, sent=512).table()["outcome"]
    'sent'
    """

    outcome: str
    next: float
    code: str = ""
    sentence: str = ""
    sent: int = 0
    erased: Erased | None = None

    def table(self) -> dict[str, object]:
        """Return the report as JSON holds it."""
        return {name: getattr(self, name) for name in ("outcome", "next", "code", "sentence", "sent")}


class Polling(TypedDict):
    """State of polling between processes."""

    at: float  # when it was written, seconds since 1970
    wait: float


class SyncedMembership(Membership[T]):
    """Membership that takes part by short exchanges."""

    def __init__(self, store: PrivateStore, invitation: Invitation, **options: Any) -> None:
        super().__init__(store, invitation, **options)
        self._syncing, self._interval = Lock(), PollingInterval(SHORTEST_PAUSE, LONGEST_PAUSE)
        self._due = time.monotonic() + self._stored_wait()

    @abstractmethod
    def _exchange(self, service: ServiceClient) -> SyncReport:
        """Fetch the current task and answer it."""

    def consent(self, given: bool) -> None:
        super().consent(given)
        self._due = 0.0

    def sync(self, *, force: bool = False) -> SyncReport:
        """Exchange messages with the service once; errors of the service are reported, not raised.

        Args:
            force: Sync also before `SyncReport.next` seconds have passed.

        Returns:
            The outcome, and the time of the next sync.

        Raises:
            BadInput: `device.closed` after `close` or `leave`; errors of the private store, such as `file.busy`.
        """
        self._check_open()
        if not self._syncing.acquire(blocking=False):
            return SyncReport("busy", 1.0, "device.busy", "another thread is syncing")
        try:
            wait = self._left_to_wait()
            if wait > 0.0 and not force:
                return SyncReport("early", wait, "device.early", "it is not yet time to ask again")
            request = self.store.fact(LEAVING)
            if request is None and not self.store.consent:
                return SyncReport("consent", HOUR, "device.consent", "consent is off; nothing was requested")
            if request is None:
                try:
                    self.check_policy()
                except BadInput as error:
                    return SyncReport("consent", HOUR, error.code, error.sentence)
            return self._scheduled(self._connect(request))
        finally:
            self._syncing.release()

    def leave(self) -> SyncReport:
        """Ask to be forgotten, then erase this device: at once if it never enrolled, else when the service confirms.

        Returns:
            Outcome `left` with the evidence of the erasure, or `leaving` while the service has not confirmed; `sync`, or
            `leave` again, then asks for the confirmation.

        Raises:
            BadInput: `device.closed`, or `private-data.remains` where a file of the folder still holds private data.
        """
        self._check_open()
        with self._syncing:
            request = self._request_leaving()
            if self.store.fact(MEMBER) is None:
                return SyncReport("left", 0.0, erased=self._erase(request))
        return self.sync(force=True)

    def _connect(self, request: bytes | None) -> SyncReport:
        service = self.service()
        try:
            if service.member is None:
                self.enrol(service)
            return self._exchange(service) if request is None else self._confirm_leaving(service, request)
        except BadInput as error:
            if error.code.startswith(_LOCAL):
                raise
            return self._failed(error)
        finally:
            service.close()

    def _confirm_leaving(self, service: ServiceClient, request: bytes) -> SyncReport:
        if self.store.fact(HEARD) is None:
            try:
                service.leave(request)
            except ServiceRefusal as error:
                if error.code != "request.left":
                    raise
            self.store.set_note(HEARD, True)
        found = service.leave()
        if found.state != "done":
            sentence = "the service has the request, and confirms it when the ranker is rebuilt without this member"
            return SyncReport("leaving", LEAVING_PAUSE, "leaving.heard", sentence)
        sentence = "the service did not confirm that this client leaves; nothing was erased; try again later"
        signed = is_leaving_receipt(self.invitation.service, request, found.receipt or "")
        require(signed, "leaving.not-confirmed", sentence)
        return SyncReport("left", 0.0, erased=self._erase(request))

    def _failed(self, error: BadInput) -> SyncReport:
        if error.code == "request.unknown-member":  # the service was restored from before this device came: enrol again
            self.store.drop_fact(MEMBER)
        logging.getLogger(__name__).warning("%s: %s", error.code, error.sentence)
        refused = error if isinstance(error, ServiceRefusal) else ServiceRefusal(error.code, error.sentence)
        pause = max(self._interval.after_failure(refused), LONGEST_PAUSE if error.code in FINAL else 0.0)
        return SyncReport("failed", pause, error.code, error.sentence)

    def _scheduled(self, report: SyncReport) -> SyncReport:
        """Return the report with the randomised pause that the device will keep, and store the pause."""
        if report.outcome == "left":
            return report
        failed = report.outcome == "failed"
        pause = min(LONGEST_NEXT, report.next if failed else self._interval.after_success(report.next))
        self._due = time.monotonic() + pause
        try:
            self.store.set_note(POLLING, {"at": self._clock(), "wait": pause})
        except OSError:
            logging.getLogger(__name__).warning("file.full: the time of the next sync could not be written")
        return replace(report, next=pause)

    def _left_to_wait(self) -> float:
        return max(0.0, self._due - time.monotonic())

    def _stored_wait(self) -> float:
        """Return the rest of an earlier process's pause; a clock that was changed since shortens it at most."""
        try:
            state = self.store.note(POLLING, Polling)
        except BadInput:
            state = None
        if state is None:
            return 0.0
        passed = self._clock() - state["at"]
        return min(max(state["wait"] - passed, 0.0), LONGEST_NEXT) if passed >= 0.0 else 0.0


def send_reply(service: ServiceClient, reply: bytes, next_: float) -> tuple[SyncReport, bool]:
    """Send a reply; returns the report and whether it is settled, so that the same bytes are not sent again."""
    try:
        return SyncReport("sent", service.reply(reply), sent=len(reply)), True
    except ServiceRefusal as error:
        if not error.code.startswith("reply."):
            raise
        report = SyncReport("refused", error.wait or next_, error.code, error.sentence)
        return report, error.code not in TEMPORARY
