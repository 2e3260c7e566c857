"""One device for applications: `rank` shows a list, `record` learns from its clicks, `sync` talks to the service.

Everything that the device needs is in its folder, in one private file: its key, its invitation, the terms that were agreed,
lists and clicks. `open` needs no network; the first `sync` with consent enrols. Between two syncs nothing runs: call `sync`
from a timer, a thread or asyncio (`await asyncio.to_thread(client.sync)`) when `SyncReport.next` seconds have passed. It
may be called as often as one likes: what comes too early does nothing.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.device import leaving
from quorank.device.answering import DeviceAnswers
from quorank.device.device import Device
from quorank.device.exchange import HOUR, MEMBER, Exchange, SyncReport, enrolled_terms
from quorank.device.private_store import PrivateStore
from quorank.device.status import agreed_terms, status_of
from quorank.documents import Number, Table, parse_json
from quorank.errors import BadInput, require
from quorank.federation.client_privacy import Entropy
from quorank.federation.invitation import Invitation
from quorank.federation.line import LONGEST_NEXT, Pace, ServiceLine, ServiceRefusal
from quorank.federation.member_key import MemberKey
from quorank.federation.terms import Terms
from quorank.learning import Shown
from quorank.learning.click_guard import ClickGuard

INVITATION, IDENTITY, TERMS, LINE = "invitation", "identity", "terms", "line"
"""Facts of the private file: the invitation, the device's key, what was agreed, and when the service is asked next."""

SHORTEST_PAUSE, LONGEST_PAUSE = 15.0, HOUR
"""Seconds after a service that was not reached: they double from time to time."""

FINAL = (
    "request.revoked",
    "request.left",
    "invitation.unknown",
    "invitation.used",
    "terms.changed",
    "request.protocol",
)
_LOCAL = ("file.", "folder.", "interaction.", "private-data.")
_LINE = Table({"at": Number(), "wait": Number(), "offset": Number()})


class Client:
    """A device; make it with `Client.open`, and close it, or use it as a context."""

    def __init__(
        self,
        store: PrivateStore,
        invitation: Invitation,
        *,
        start: npt.ArrayLike | None = None,
        guard: ClickGuard | None = None,
        seed: int | None = None,
        entropy: Entropy = os.urandom,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.folder, self.invitation = store, store.folder, invitation
        self._start, self._guard, self._seed, self._entropy, self._clock = start, guard, seed, entropy, clock
        secret = store.fact(IDENTITY)
        assert secret is not None
        self._key, self._turn, self._closed = MemberKey(secret), Lock(), False
        self._plan(agreed_terms(store))
        self._due, self._offset = self._remembered()
        self._pace = Pace(SHORTEST_PAUSE, LONGEST_PAUSE)

    @classmethod
    def open(cls, folder: Path | str, invitation: Path | str | None = None, **more: Any) -> Client:
        """The device of a folder; a new one needs its invitation, and the same one may be given again.

        `start` are parameters that show lists until the first ranker comes (by default the ranker's own beginning: a linear
        one draws lists at random until then); `guard` keeps rankers that the owner's clicks speak against from the lists.
        """
        path = Path(folder)
        _finish_leaving(path)
        given = None if invitation is None else Invitation.read(Path(invitation))
        if given is not None:
            sentence = "this invitation is for a party; join with: quorank silo join"
            require(given.kind == "device", "invitation.kind", sentence, f"{invitation}")
        else:
            from quorank.private_file import FILE

            sentence = "there is no device here; join with an invitation first"
            require((path / FILE).is_file(), "device.missing", sentence, f"{path}")
        store = PrivateStore(path)
        try:
            entropy: Entropy = more.get("entropy", os.urandom)
            return cls(store, _agreed(store, given, entropy), **more)
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        self._closed = True
        self.store.close()

    def _plan(self, terms: Terms) -> None:
        start = (
            terms.ranker.initial(terms.n_features, 0) if self._start is None else np.asarray(self._start, np.float64)
        )
        self.device = Device(
            self.store, terms, seed=self._seed, entropy=self._entropy, clock=self._clock, guard=self._guard, start=start
        )
        pinned = {int(who): key for who, key in self.invitation.identities.items() if who.isdecimal()}
        self._answers = DeviceAnswers.of(self.device, pinned or None)

    @property
    def terms(self) -> Terms:
        """What was agreed; the client's number is the device's own once it has enrolled."""
        return self.device.terms

    # what an application calls

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show for features (documents, n_features); its `order` are their rows, best first."""
        self._check_open()
        return self.device.rank(features)

    def record(self, shown: Shown, clicks: npt.ArrayLike, query: str | None = None) -> None:
        """Take in what was clicked on a list, true or false for each shown document; the query only where it is given."""
        self._check_open()
        self.device.record(shown, clicks, query)

    def consent(self, given: bool) -> None:
        """Agree to take part, or withdraw: from then on nothing leaves."""
        self._check_open()
        sentence = "this device is leaving; consent cannot be given again"
        require(not given or self.store.fact(leaving.REQUEST) is None, "device.leaving", sentence)
        with self.store.transaction():
            self.store.set_consent(given, self._clock())
        self._due = 0.0

    def status(self) -> dict[str, Any]:
        """Where the device stands, as JSON holds it."""
        self._check_open()
        return status_of(self.store) | {"next": self._left_to_wait()}

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
                erased = leaving.complete(self.store, self.terms, request, self._clock)
                self._closed = True
                return SyncReport("left", 0.0, erased=erased)
        return self.sync(force=True)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or has left."""
        return self._closed

    def _check_open(self) -> None:
        require(not self._closed, "device.closed", "this device was closed, or has left", f"{self.folder}")

    # the line

    def _exchange(self, request: bytes | None) -> SyncReport:
        invitation = self.invitation
        member = self.store.fact(MEMBER)
        number = None if member is None else int(member)
        line = ServiceLine.of(invitation, key=self._key, member=number, offset=self._offset, clock=self._clock)
        try:
            if member is None:
                self._enrol(line)
            talk = Exchange(line, self._answers, self._clock)
            report = talk.take_part() if request is None else talk.leave(request)
        except BadInput as error:
            if error.code.startswith(_LOCAL):
                raise
            report = self._failed(error)
        finally:
            line.close()
        self._offset = line.offset
        if report.outcome == "left":
            self._closed = True
        return report

    def _enrol(self, line: ServiceLine) -> None:
        terms = enrolled_terms(line, self.terms, self.invitation, self._key)
        with self.store.transaction():
            self.store.set_fact(TERMS, json.dumps(terms.table(), sort_keys=True).encode())
            self.store.set_fact(MEMBER, str(terms.client).encode())
        self._plan(terms)

    def _failed(self, error: BadInput) -> SyncReport:
        if (
            error.code == "request.unknown-member"
        ):  # a service that was restored from before this device came: enrol anew
            with self.store.transaction():
                self.store.file.database.execute("DELETE FROM facts WHERE name = ?", (MEMBER,))
        logging.getLogger(__name__).warning("%s: %s", error.code, error.sentence)
        refused = error if isinstance(error, ServiceRefusal) else ServiceRefusal(error.code, error.sentence)
        pause = max(self._pace.badly(refused), LONGEST_PAUSE if error.code in FINAL else 0.0)
        return SyncReport("failed", pause, error.code, error.sentence)

    # when to ask again

    def _remember(self, report: SyncReport) -> SyncReport:
        """The report with the pause that the device will keep: as the service says, drawn longer, so that no two agree."""
        if report.outcome == "left":
            return report
        pause = min(LONGEST_NEXT, report.next if report.outcome == "failed" else self._pace.well(report.next))
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


def _agreed(store: PrivateStore, given: Invitation | None, entropy: Entropy) -> Invitation:
    """The invitation of a folder, which is kept with the terms and a new key where there was none."""
    known = store.fact(INVITATION)
    if known is None:
        sentence = "this folder holds no invitation; give one"
        require(given is not None, "invitation.missing", sentence, f"{store.folder}")
        assert given is not None
        table = json.dumps(Terms.read(given.terms).table(), sort_keys=True).encode()
        sentence = "this folder belongs to a device under other terms; choose another folder"
        require(store.fact(TERMS) in (None, table), "folder.other-run", sentence, f"{store.folder}")
        with store.transaction():
            store.set_fact(TERMS, table)
            store.set_fact(INVITATION, given.text().encode())
            if store.fact(IDENTITY) is None:
                store.set_fact(IDENTITY, MemberKey.create(entropy).secret)
        return given
    found = Invitation.parse(known)
    if given is not None and given != found:
        same = (given.service, given.secret) == (found.service, found.secret)
        same = same and Terms.read(given.terms) == Terms.read(found.terms)
        sentence = "this folder belongs to a device of another invitation; choose another folder, or leave first"
        require(same, "folder.other-run", sentence, f"{store.folder}")
        with store.transaction():
            store.set_fact(INVITATION, given.text().encode())  # the service has another address or certificate now
        return given
    return found


def _finish_leaving(folder: Path) -> None:
    """A device that has left does not come back by accident; an erasure that was cut short goes on."""
    note = leaving.left(folder)
    if note is not None:
        if note.get("erased") is None:
            leaving.resume(folder, {name: note[name] for name in note if name != "erased"})
        sentence = f"this device has left its run ({leaving.LEFT}); choose another folder, with a new invitation"
        raise BadInput("device.left", sentence, f"{folder}")
