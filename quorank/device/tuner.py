"""A heuristic tuned in the field, for applications: `weights` to order by, `record` for what was chosen, `sync` to talk.

The application brings its heuristic: no code comes from the service. Of a search nothing is kept but running sums for the
version that was out, and nothing leaves but their mean, once a version, as the terms say. Weights that the heuristic's own
constraints do not allow are refused whoever signed them, so the worst that a service can do to an application is a list in
an order that its developer has allowed.

Like `Client`: all state is in one private file of the folder, `open` needs no network, the first `sync` with consent
enrols, and it may be called as often as one likes.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.device import leaving
from quorank.device.exchange import HOUR, MEMBER, SyncReport
from quorank.device.private_store import PrivateStore, StoredRelease
from quorank.documents import ANYTHING, parse_json
from quorank.errors import BadInput, require, require_range
from quorank.federation import wire
from quorank.federation.invitation import Invitation
from quorank.federation.leaving import receipt_of
from quorank.federation.line import ServedTask, ServiceLine, ServiceRefusal
from quorank.federation.member_key import MemberKey
from quorank.privacy.streams import SECRET_BYTES
from quorank.private_file import FILE
from quorank.tuning.field import DeviceSums, TuningTask, TuningTerms, declaration, figures_reply, read_task

if TYPE_CHECKING:
    from quorank.tuning.heuristics.heuristic import Heuristic

INVITATION, IDENTITY, TERMS, TASK, SUMS, TYPED, ANSWERED = (
    "invitation", "identity", "terms", "tuning task", "tuning sums", "tuning typed", "tuning answered",
)  # fmt: skip
"""Facts of the private file: what was agreed, the version that is out, the sums of the searches under it, the study's own
means, and the last version whose answer the service has taken or refused."""
SHORTEST_PAUSE = 15.0
PASSING = ("reply.other-round", "reply.round-full", "reply.no-open-round")
"""Refusals after which the same reply may be taken, while its version is out."""


class Tuner:
    """A device that helps to tune a heuristic; make it with `Tuner.open`, and close it, or use it as a context."""

    def __init__(
        self,
        store: PrivateStore,
        invitation: Invitation,
        heuristic: Heuristic,
        *,
        entropy: Callable[[int], bytes] = os.urandom,
        clock: Callable[[], float] = time.time,
        patient: bool = True,
    ) -> None:
        self.store, self.folder, self.invitation, self.heuristic = store, store.folder, invitation, heuristic
        self._entropy, self._clock, self._patient = entropy, clock, patient
        secret, terms = store.fact(IDENTITY), store.fact(TERMS)
        assert secret is not None and terms is not None
        self._key, self.terms = MemberKey(secret), TuningTerms.read(parse_json(terms, ANYTHING, TERMS))
        same = self.terms.heuristic == declaration(heuristic)
        sentence = "the invitation is to tune another heuristic, or other bounds of this one, than the application has"
        require(same, "terms.other-heuristic", sentence, f"{self.folder}")
        self._turn, self._closed, self._due, self._failures, self._offset, self._etag = Lock(), False, 0.0, 0, 0.0, ""
        self.task = self._kept_task()

    @classmethod
    def open(cls, folder: Path | str, heuristic: Heuristic, invitation: Path | str | None = None, **more: Any) -> Tuner:
        """The device of a folder; a new one needs its invitation, and the same one may be given again."""
        path, given = Path(folder), None if invitation is None else Invitation.read(Path(invitation))
        sentence = f"this device has left its run ({leaving.LEFT}); choose another folder, with a new invitation"
        require(leaving.left(path) is None, "device.left", sentence, f"{folder}")
        sentence = "there is no device here; open it with an invitation first"
        require(given is not None or (path / FILE).is_file(), "device.missing", sentence, f"{folder}")
        store = PrivateStore(path)
        try:
            return cls(store, _agreed(store, given, more.get("entropy", os.urandom)), heuristic, **more)
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Tuner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        self._closed = True
        self.store.close()

    # ------------------------------------------------------------ what an application calls

    @property
    def arm(self) -> str | None:
        """The study's arm that this device is in, by its identity; None without a study."""
        return self.terms.arm(self._key.public)

    def weights(self) -> dict[str, float]:
        """Return the weights to order lists by, by name: the newest published, in a control arm the shipped ones."""
        self._check_open()
        tuned = self.task is not None and self.terms.learns(self._key.public)
        return self.heuristic.named(self.task.published if tuned and self.task is not None else self.heuristic.shipped)

    def record(self, items: Any) -> None:
        """Learn from searches: their items as the heuristic's score takes them, with what was chosen from each."""
        self._check_open()
        task = self.task
        if task is None or task.figures or not self.store.consent or not self.terms.learns(self._key.public):
            return
        sums = self._sums(task.version).add(self.heuristic, self.terms, task, items)
        with self.store.transaction():
            self.store.set_fact(SUMS, _sums_text(sums))

    def record_typed(self, **metrics: float) -> None:
        """Take in the study's metrics of one search (`characters`, `rank`); their means are answered once, with an ε."""
        self._check_open()
        study = self.terms.study
        if study is None or not self.store.consent:
            return
        found = self._typed()
        for name in study["metrics"]:
            require(name in metrics, "study.no-metric", f"the study also asks for {name}", name)
            require_range(name, metrics[name], least=0.0)
            count, total = found.get(name, (0, 0.0))
            found[name] = (count + 1, total + float(metrics[name]))
        with self.store.transaction():
            self.store.set_fact(TYPED, json.dumps(found).encode())

    def consent(self, given: bool) -> None:
        """Agree to take part, or withdraw: from then on nothing leaves."""
        self._check_open()
        sentence = "this device is leaving; consent cannot be given again"
        require(not given or self.store.fact(leaving.REQUEST) is None, "device.leaving", sentence)
        with self.store.transaction():
            self.store.set_consent(given, self._clock())
        self._due = 0.0

    def releases(self) -> list[StoredRelease]:
        """All that ever left."""
        self._check_open()
        return self.store.releases()

    def sync(self, *, force: bool = False) -> SyncReport:
        """One exchange with the service; it never raises for what the service does or does not do."""
        self._check_open()
        if not self._turn.acquire(blocking=False):
            return SyncReport("busy", 1.0, "device.busy", "another thread is at it")
        try:
            wait = self._due - time.monotonic()
            if wait > 0.0 and not force:
                return SyncReport("early", wait, "device.early", "it is not yet time to ask again")
            if self.store.fact(leaving.REQUEST) is None and not self.store.consent:
                return SyncReport("consent", HOUR, "device.consent", "consent is off; nobody was asked anything")
            return self._paced(self._exchange())
        finally:
            self._turn.release()

    def leave(self) -> SyncReport:
        """Ask to be let go, then erase this device: at once where it never enrolled, else when the service confirms."""
        self._check_open()
        request = leaving.begin(self.store, self.terms, self._key, self._entropy, self._clock)
        if self.store.fact(MEMBER) is None:
            return self._erase(request)
        return self.sync(force=True)

    def _check_open(self) -> None:
        require(not self._closed, "device.closed", "this device was closed, or has left", f"{self.folder}")

    # ------------------------------------------------------------ what is kept

    def _kept_task(self) -> TuningTask | None:
        found = self.store.fact(TASK)
        return None if found is None else read_task(found, self.terms.run, self.heuristic)

    def _sums(self, version: int) -> DeviceSums:
        found, empty = self.store.fact(SUMS), DeviceSums.empty(version, len(self.heuristic.weights))
        if found is None:
            return empty
        kept = parse_json(found, ANYTHING, SUMS)
        if kept["version"] != version:
            return empty
        return DeviceSums(version, int(kept["searches"]), np.array(kept["slopes"]), np.array(kept["rest"]))

    def _typed(self) -> dict[str, tuple[int, float]]:
        found = self.store.fact(TYPED)
        table = {} if found is None else parse_json(found, ANYTHING, TYPED)
        return {name: (int(count), float(total)) for name, (count, total) in table.items()}

    # ------------------------------------------------------------ the line

    def _exchange(self) -> SyncReport:
        member = self.store.fact(MEMBER)
        line = ServiceLine.of(
            self.invitation, key=self._key, member=None if member is None else int(member), offset=self._offset,
            clock=self._clock,
        )  # fmt: skip
        try:
            if member is None:
                self._enrol(line)
            request = self.store.fact(leaving.REQUEST)
            return self._talk(line) if request is None else self._ask_to_leave(line, request)
        except ServiceRefusal as error:
            return SyncReport("failed", error.wait, error.code, error.sentence)
        except BadInput as error:
            if error.code.startswith(("file.", "folder.")):
                raise
            return SyncReport("failed", 0.0, error.code, error.sentence)
        finally:
            self._offset = line.offset
            line.close()

    def _enrol(self, line: ServiceLine) -> None:
        found = line.enrol(self.invitation, self._key)
        terms = TuningTerms.read(dict(found.terms))
        same = replace(terms, client=0) == replace(self.terms, client=0) and terms.client == found.member
        sentence = "the service's terms are not those of the invitation; nothing was sent"
        require(same, "terms.changed", sentence)
        with self.store.transaction():
            self.store.set_fact(TERMS, json.dumps(terms.table(), sort_keys=True).encode())
            self.store.set_fact(MEMBER, str(found.member).encode())
        self.terms = terms

    def _talk(self, line: ServiceLine) -> SyncReport:
        served = line.task(self._etag)
        if served.kind:
            self._take(served)
        if served.kind == "over":
            return SyncReport("over", served.next)
        self._etag = served.etag
        reply = self._reply()
        if reply is None or self.task is None:
            return SyncReport("nothing", served.next, "device.nothing", "there is nothing to send for this version")
        try:
            report = SyncReport("sent", line.reply(reply), sent=len(reply))
        except ServiceRefusal as error:
            if not error.code.startswith("reply."):
                raise
            report = SyncReport("refused", served.next, error.code, error.sentence)
            if error.code in PASSING:
                return report
        with self.store.transaction():
            self.store.set_fact(ANSWERED, str(self.task.version).encode())
        return report

    def _take(self, served: ServedTask) -> None:
        """Take over the version of a task."""
        content = served.content or b""
        sentence = "the task is none of a tuning; it is refused"
        require(served.kind in ("tuning", "over"), "task.other-kind", sentence)
        if served.kind == "over":  # the weights that stay
            last = wire.decode_task(content)
            content = TuningTask(last.round, last.theta, last.theta, last.theta, figures=True).encode(last.run)
        task = read_task(content, self.terms.run, self.heuristic)
        if self.store.fact(TASK) != content:
            with self.store.transaction():
                self.store.set_fact(TASK, content)
        self.task = task

    def _reply(self) -> bytes | None:
        """The reply to the version that is out, stored before it leaves: a version that comes again gets the same bytes."""
        task = self.task
        if task is None or self.store.fact(ANSWERED) == str(task.version).encode():
            return None
        stored = self.store.release(self.terms.run, task.version + 1)
        if stored is not None:
            return stored.reply  # a version is never answered twice otherwise, whatever the service was restored from
        made = self._answer(task) if task.figures else self._update(task)
        if made is None:
            return None
        content, searches, privacy = made
        release = StoredRelease(
            self.terms.run, task.version + 1, self._clock(), searches, len(content), privacy, content
        )
        with self.store.transaction():
            self.store.add_release(release, ())
        return content

    def _update(self, task: TuningTask) -> tuple[bytes, int, dict[str, Any]] | None:
        sums = self._sums(task.version)
        if sums.searches == 0 or not self.terms.learns(self._key.public):
            return None
        size = len(sums.slopes)
        coins = np.frombuffer(self._entropy(size), np.uint8)[None, :] < 128 if self.terms.part.needs_coins else None
        return sums.reply(self.terms, coins), sums.searches, {"kind": self.terms.part.kind}

    def _answer(self, task: TuningTask) -> tuple[bytes, int, dict[str, Any]] | None:
        """The study's figures, by randomised response; the means that they are of go with it."""
        private, typed = self.terms.figures, self._typed()
        if private is None or any(typed.get(name, (0, 0.0))[0] == 0 for name in private.study.metrics):
            return None
        means = {name: typed[name][1] / typed[name][0] for name in private.study.metrics}
        answer = private.answer(means, self._entropy(SECRET_BYTES), self.terms.client)
        told = {"kind": "figure", "model": "local", "unit": "client", "epsilon": private.epsilon, "delta": 0.0}
        return figures_reply(self.terms, task.version, answer), max(count for count, _ in typed.values()), told

    def _ask_to_leave(self, line: ServiceLine, request: bytes) -> SyncReport:
        heard = self.store.fact(leaving.HEARD) is not None
        state = line.left() if heard else line.leave(request)
        with self.store.transaction():
            self.store.set_fact(leaving.HEARD, b"1")
        if state.state == "done" and state.receipt == receipt_of(request):
            return self._erase(request)
        return SyncReport("leaving", SHORTEST_PAUSE)

    def _erase(self, request: bytes) -> SyncReport:
        erased = leaving.complete(self.store, self.terms, request, self._clock)
        self._closed = True
        return SyncReport("left", 0.0, erased=erased)

    def _paced(self, report: SyncReport) -> SyncReport:
        """The report with the pause that the device keeps: as the service says, drawn longer, so that no two agree."""
        if report.outcome == "left":
            return report
        failed = report.outcome == "failed"
        self._failures = self._failures + 1 if failed else 0
        pause = (
            max(report.next, min(HOUR, SHORTEST_PAUSE * 2.0 ** min(self._failures - 1, 20))) if failed else report.next
        )
        if self._patient:
            pause *= random.SystemRandom().uniform(1.0, 1.25)
        self._due = time.monotonic() + pause
        return replace(report, next=pause)


def _agreed(store: PrivateStore, given: Invitation | None, entropy: Callable[[int], bytes]) -> Invitation:
    """The invitation of a folder, which is kept with the terms and a new key where there was none."""
    known = store.fact(INVITATION)
    if known is not None:
        found = Invitation.parse(known)
        same = given is None or (given.service, given.secret) == (found.service, found.secret)
        sentence = "this folder belongs to a device of another invitation; choose another folder, or leave first"
        require(same, "folder.other-run", sentence, f"{store.folder}")
        if given is None or given == found:
            return found
    sentence = "this folder holds no invitation; give one"
    require(given is not None, "invitation.missing", sentence, f"{store.folder}")
    assert given is not None
    terms = TuningTerms.read(dict(given.terms))
    with store.transaction():
        store.set_fact(INVITATION, given.text().encode())  # also where the service has another address now
        if known is None:
            store.set_fact(TERMS, json.dumps(terms.table(), sort_keys=True).encode())
            store.set_fact(IDENTITY, MemberKey.create(entropy).secret)
    return given


def _sums_text(sums: DeviceSums) -> bytes:
    table = {"version": sums.version, "searches": sums.searches}
    return json.dumps(table | {"slopes": sums.slopes.tolist(), "rest": sums.rest.tolist()}).encode()
