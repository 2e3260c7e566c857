"""A device's membership: its folder, its key, consent, one exchange with the service at a time, pauses, leaving.

What is said in an exchange is the subclass's (`Client`, `Tuner`). Everything is in the folder's private file, `open` needs
no network, and the first `sync` with consent enrols. Between two syncs nothing runs: call `sync` from a timer, a thread or
asyncio (`await asyncio.to_thread(client.sync)`) when `SyncReport.next` seconds have passed. It may be called as often as
one likes: what comes too early does nothing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Protocol, Self, TypeVar

from quorank.errors import BadInput, require
from quorank.files.documents import ANYTHING, Number, Table, parse_json
from quorank.member import leaving
from quorank.member.device_database import FILE
from quorank.member.private_store import Erased, PrivateStore
from quorank.protocol.http_client import LONGEST_NEXT, PollingInterval, ServiceClient, ServiceRefusal
from quorank.protocol.invitation import Invitation
from quorank.protocol.keys import MemberKey
from quorank.protocol.messages import AgreedTerms, leaving_receipt

HOUR = 3600.0
INVITATION, IDENTITY, TERMS, MEMBER, LINE = "invitation", "identity", "terms", "member", "line"
"""Facts of the private file: the invitation, the device's key, what was agreed, its number, and when to ask next."""

SHORTEST_PAUSE, LONGEST_PAUSE, LEAVING_PAUSE = 15.0, HOUR, 60.0
"""Seconds after a service that was not reached, which double from time to time, and while a leaving is not confirmed."""

FINAL = (
    "request.revoked",
    "request.left",
    "invitation.unknown",
    "invitation.used",
    "terms.changed",
    "request.protocol",
)
"""Refusals that no waiting will change."""

PASSING = ("reply.other-round", "reply.round-full", "reply.no-open-round")
"""Refusals after which the same reply may be taken, while its task is out."""

_LOCAL = ("file.", "folder.", "interaction.", "private-data.")
_LINE = Table({"at": Number(), "wait": Number(), "offset": Number()})


@dataclass(frozen=True)
class SyncReport:
    """What one `sync` did, and when it is worth calling again.

    `outcome`: sent (a release was confirmed), nothing (there is no task, or no answer to it yet: `code` says why), over
    (all rounds are done), early (it was called before its time), busy (another thread is at it), consent (it is off: nobody
    was asked anything), leaving (the service has the request), left (all is erased), refused (the service did not take what
    was sent), failed (the service was not reached, or not understood).
    """

    outcome: str
    next: float  # seconds
    code: str = ""
    sentence: str = ""
    sent: int = 0  # bytes of the release
    erased: Erased | None = None

    def table(self) -> dict[str, object]:
        """For JSON."""
        return {name: getattr(self, name) for name in ("outcome", "next", "code", "sentence", "sent")}


def hand_in(line: ServiceClient, reply: bytes, next_: float) -> tuple[SyncReport, bool]:
    """Send a reply: what came of it, and whether that is settled, so that the same bytes need not be sent again."""
    try:
        return SyncReport("sent", line.reply(reply), sent=len(reply)), True
    except ServiceRefusal as error:
        if not error.code.startswith("reply."):
            raise
        report = SyncReport("refused", error.wait or next_, error.code, error.sentence)
        return report, error.code not in PASSING


class TermsOfMember(AgreedTerms, Protocol):
    """What a member agrees to, of whatever kind."""

    def table(self) -> dict[str, Any]:
        """As invitations hold it."""


T = TypeVar("T", bound=TermsOfMember)


class Membership(ABC, Generic[T]):
    """A device in its folder; make it with `open`, and close it, or use it as a context."""

    def __init__(
        self,
        store: PrivateStore,
        invitation: Invitation,
        *,
        entropy: Callable[[int], bytes] = os.urandom,
        clock: Callable[[], float] = time.time,
    ) -> None:
        secret, terms = store.fact(IDENTITY), store.fact(TERMS)
        assert secret is not None and terms is not None
        self.store, self.folder, self.invitation = store, store.folder, invitation
        self._entropy, self._clock, self._key = entropy, clock, MemberKey(secret)
        self._turn, self._closed, self._pace = Lock(), False, PollingInterval(SHORTEST_PAUSE, LONGEST_PAUSE)
        self._due, self._offset = self._remembered()
        self.terms: T = self.read_terms(parse_json(terms, ANYTHING, f"{store.folder}: terms"))

    @classmethod
    @abstractmethod
    def read_terms(cls, table: object) -> T:
        """Terms of this kind, from a table that came from others."""

    @abstractmethod
    def _talk(self, line: ServiceClient) -> SyncReport:
        """Fetch the task of the moment and answer it."""

    @classmethod
    def _opened(cls, folder: Path | str, invitation: Path | str | None, **more: Any) -> Self:
        path = Path(folder).expanduser()
        _finish_leaving(path)
        given = None if invitation is None else Invitation.read(Path(invitation).expanduser())
        sentence = "this invitation is for a party; join with: quorank silo join"
        require(given is None or given.kind == "device", "invitation.kind", sentence, f"{invitation}")
        sentence = "there is no device here; join with an invitation first"
        require(given is not None or (path / FILE).is_file(), "device.missing", sentence, f"{path}")
        store = PrivateStore(path)
        try:
            return cls(store, cls._agreed(store, given, more.get("entropy", os.urandom)), **more)
        except BaseException:
            store.close()
            raise

    @classmethod
    def _agreed(cls, store: PrivateStore, given: Invitation | None, entropy: Callable[[int], bytes]) -> Invitation:
        """The invitation of a folder, which is kept with the terms and a new key where there was none."""
        known = store.fact(INVITATION)
        found = None if known is None else Invitation.parse(known)
        sentence = "this folder holds no invitation; give one"
        require(found or given, "invitation.missing", sentence, f"{store.folder}")
        if given is None or given == found:
            assert found is not None
            return found
        table = json.dumps(cls.read_terms(given.terms).table(), sort_keys=True).encode()
        same = store.fact(TERMS) in (None, table)
        if found is not None:
            same = (given.service, given.secret) == (found.service, found.secret)
            same = same and cls.read_terms(given.terms) == cls.read_terms(found.terms)
        sentence = "this folder belongs to a device of another invitation; choose another folder, or leave first"
        require(same, "folder.other-run", sentence, f"{store.folder}")
        with store.transaction():
            store.set_fact(INVITATION, given.text().encode())  # also where the service has another address now
            if found is None:
                store.set_fact(TERMS, table)
                store.set_fact(IDENTITY, store.fact(IDENTITY) or MemberKey.create(entropy).secret)
        return given

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        self._closed = True
        self.store.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed, or has left."""
        return self._closed

    def _check_open(self) -> None:
        require(not self._closed, "device.closed", "this device was closed, or has left", f"{self.folder}")

    # what an application calls

    def consent(self, given: bool) -> None:
        """Agree to take part, or withdraw: from then on nothing leaves."""
        self._check_open()
        require(isinstance(given, bool), "value.wrong-type", "consent is True or False", "given")
        sentence = "this device is leaving; consent cannot be given again"
        require(not given or self.store.fact(leaving.REQUEST) is None, "device.leaving", sentence)
        with self.store.transaction():
            self.store.set_consent(given, self._clock())
        self._due = 0.0

    def sync(self, *, force: bool = False) -> SyncReport:
        """One exchange with the service; it never raises for what the service does or does not do."""
        self._check_open()
        if not self._turn.acquire(blocking=False):
            return SyncReport("busy", 1.0, "device.busy", "another thread is at it")
        try:
            wait = self._left_to_wait()
            if wait > 0.0 and not force:
                return SyncReport("early", wait, "device.early", "it is not yet time to ask again")
            request = self.store.fact(leaving.REQUEST)
            if request is None and not self.store.consent:
                return SyncReport("consent", HOUR, "device.consent", "consent is off; nobody was asked anything")
            return self._remember(self._exchange(request))
        finally:
            self._turn.release()

    def leave(self) -> SyncReport:
        """Ask to be forgotten, then erase this device: at once where it never enrolled, else when the service confirms.

        Until then `sync`, or `leave` again, asks whether it has.
        """
        self._check_open()
        with self._turn:
            request = leaving.begin(self.store, self.terms, self._key, self._entropy, self._clock)
            if self.store.fact(MEMBER) is None:
                return self._erased(request)
        return self.sync(force=True)

    # the line

    def _exchange(self, request: bytes | None) -> SyncReport:
        member = self.store.fact(MEMBER)
        number = None if member is None else int(member)
        line = ServiceClient.from_invitation(
            self.invitation, key=self._key, member=number, offset=self._offset, clock=self._clock
        )
        try:
            if member is None:
                self._enrol(line)
            return self._talk(line) if request is None else self._ask_to_leave(line, request)
        except BadInput as error:
            if error.code.startswith(_LOCAL):
                raise
            return self._failed(error)
        finally:
            self._offset = line.offset
            line.close()

    def _enrol(self, line: ServiceClient) -> None:
        """Be let in; the terms as the service confirms them must be the agreed ones but for the number."""
        found = line.enrol(self.invitation, self._key)
        table = self.read_terms(found.terms).table()
        same = table | {"client": 0} == self.terms.table() | {"client": 0} and table["client"] == found.member
        sentence = "the service enrols under other terms than those of the invitation; nothing is sent"
        require(same, "terms.changed", sentence)
        with self.store.transaction():
            self.store.set_fact(TERMS, json.dumps(table, sort_keys=True).encode())
            self.store.set_fact(MEMBER, str(found.member).encode())
        self.terms = self.read_terms(table)

    def _ask_to_leave(self, line: ServiceClient, request: bytes) -> SyncReport:
        """Hand in a request to leave, and ask how far it is; where it is confirmed, all is erased."""
        if self.store.fact(leaving.HEARD) is None:
            try:
                line.leave(request)
            except ServiceRefusal as error:
                if error.code != "request.left":
                    raise
            with self.store.transaction():
                self.store.set_fact(leaving.HEARD, b"1")
        found = line.leaving_state()
        if found.state != "done":
            sentence = "the service has the request, and confirms it when the others' part is done again without it"
            return SyncReport("leaving", LEAVING_PAUSE, "leaving.heard", sentence)
        sentence = "the service did not confirm that this client leaves; nothing was erased; try again later"
        require(found.receipt == leaving_receipt(request), "leaving.not-confirmed", sentence)
        return self._erased(request)

    def _erased(self, request: bytes) -> SyncReport:
        erased = leaving.complete(self.store, self.terms, request, self._clock)
        self._closed = True
        return SyncReport("left", 0.0, erased=erased)

    def _failed(self, error: BadInput) -> SyncReport:
        if error.code == "request.unknown-member":  # the service was restored from before this device came: enrol anew
            with self.store.transaction():
                self.store.forget_fact(MEMBER)
        logging.getLogger(__name__).warning("%s: %s", error.code, error.sentence)
        refused = error if isinstance(error, ServiceRefusal) else ServiceRefusal(error.code, error.sentence)
        pause = max(self._pace.after_failure(refused), LONGEST_PAUSE if error.code in FINAL else 0.0)
        return SyncReport("failed", pause, error.code, error.sentence)

    # when to ask again

    def _remember(self, report: SyncReport) -> SyncReport:
        """The report with the pause that the device will keep: as the service says, drawn longer, so that no two agree."""
        if report.outcome == "left":
            return report
        pause = min(LONGEST_NEXT, report.next if report.outcome == "failed" else self._pace.after_success(report.next))
        self._due = time.monotonic() + pause
        state = {"at": self._clock(), "wait": pause, "offset": self._offset}
        try:
            with self.store.transaction():
                self.store.set_fact(LINE, json.dumps(state).encode())
        except OSError:
            logging.getLogger(__name__).warning("file.full: when to ask again could not be written")
        return replace(report, next=pause)

    def _left_to_wait(self) -> float:
        return max(0.0, self._due - time.monotonic())

    def _remembered(self) -> tuple[float, float]:
        """(when to ask next by the monotonic clock, offset) of an earlier process.

        A clock that was put back or forward since makes a device ask earlier, and never later than it had to.
        """
        found = self.store.fact(LINE)
        if found is None:
            return 0.0, 0.0
        try:
            state = parse_json(found, _LINE)
        except BadInput:
            return 0.0, 0.0
        passed = self._clock() - state["at"]
        left = state["wait"] - passed if passed >= 0.0 else 0.0
        return time.monotonic() + min(max(left, 0.0), LONGEST_NEXT), float(state["offset"])


def _finish_leaving(folder: Path) -> None:
    """A device that has left does not come back by accident; an erasure that was cut short goes on."""
    note = leaving.left(folder)
    if note is not None:
        if note.get("erased") is None:
            leaving.resume(folder, {name: note[name] for name in note if name != "erased"})
        sentence = f"this device has left its run ({leaving.LEFT}); choose another folder, with a new invitation"
        raise BadInput("device.left", sentence, f"{folder}")
