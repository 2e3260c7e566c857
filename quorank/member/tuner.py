"""A heuristic tuned in the field, for applications: `weights` to order by, `record` for what was chosen, `sync` to talk.

The application brings its heuristic: no code comes from the service. Of a search nothing is kept but running sums for the
version that was out, and nothing leaves but their mean, once a version, as the terms say. Weights that the heuristic's own
constraints do not allow are refused whoever signed them, so the worst that a service can do to an application is a list in
an order that its developer has allowed.

Like `Client`: all state is in one private file of the folder, `open` needs no network, the first `sync` with consent
enrols, and it may be called as often as one likes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.errors import require
from quorank.federation import wire
from quorank.member.membership import Membership, SyncReport, hand_in
from quorank.member.private_store import PrivateStore, StoredRelease
from quorank.privacy.streams import SECRET_BYTES
from quorank.protocol.http_client import ServedTask, ServiceClient
from quorank.protocol.invitation import Invitation
from quorank.tuning.field import DeviceSums, MetricSums, TuningTask, TuningTerms, declaration, figures_reply, read_task

if TYPE_CHECKING:
    from quorank.tuning.heuristics.heuristic import Heuristic

TASK, SUMS, TYPED, ANSWERED, FIGURES = (
    "tuning task", "tuning sums", "tuning typed", "tuning answered", "tuning figures",
)  # fmt: skip
"""Facts of the private file: the version that is out, the sums of the searches under it, the study's own means, the last
version whose answer the service has taken or refused, and the version under which figures were answered, once for all."""


class Tuner(Membership[TuningTerms]):
    """A device that helps to tune a heuristic; make it with `Tuner.open`, and close it, or use it as a context."""

    def __init__(self, store: PrivateStore, invitation: Invitation, *, heuristic: Heuristic, **more: Any) -> None:
        super().__init__(store, invitation, **more)
        self.heuristic, self._etag = heuristic, ""
        same = self.terms.heuristic == declaration(heuristic)
        sentence = "the invitation is to tune another heuristic, or other bounds of this one, than the application has"
        require(same, "terms.other-heuristic", sentence, f"{self.folder}")
        self.task = self._kept_task()

    @classmethod
    def open(cls, folder: Path | str, heuristic: Heuristic, invitation: Path | str | None = None, **more: Any) -> Tuner:
        """The device of a folder; a new one needs its invitation, and the same one may be given again."""
        return cls._opened(folder, invitation, heuristic=heuristic, **more)

    @classmethod
    def read_terms(cls, table: object) -> TuningTerms:
        return TuningTerms.read(table)

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
            self.store.set_fact(SUMS, sums.to_bytes())

    def record_typed(self, **metrics: float) -> None:
        """Take in the study's metrics of one search (`characters`, `rank`); their means are answered once, with an ε."""
        self._check_open()
        study = self.terms.study
        if study is None or not self.store.consent:
            return
        found = self._typed()
        found.add(study, metrics)
        with self.store.transaction():
            self.store.set_fact(TYPED, found.to_bytes())

    def releases(self) -> list[StoredRelease]:
        """All that ever left."""
        self._check_open()
        return self.store.releases()

    # ------------------------------------------------------------ what is kept

    def _kept_task(self) -> TuningTask | None:
        found = self.store.fact(TASK)
        return None if found is None else read_task(found, self.terms.run, self.heuristic)

    def _sums(self, version: int) -> DeviceSums:
        found = self.store.fact(SUMS)
        kept = None if found is None else DeviceSums.from_bytes(found, f"{self.folder}: {SUMS}")
        if kept is None or kept.version != version:
            return DeviceSums.empty(version, len(self.heuristic.weights))
        return kept

    def _typed(self) -> MetricSums:
        return MetricSums.from_bytes(self.store.fact(TYPED) or b"{}", f"{self.folder}: {TYPED}")

    # ------------------------------------------------------------ the line

    def _talk(self, line: ServiceClient) -> SyncReport:
        served = line.task(self._etag)
        if served.kind:
            self._take(served)
        if served.kind == "over":
            return SyncReport("over", served.next)
        self._etag = served.etag
        reply = self._reply()
        if reply is None or self.task is None:
            return SyncReport("nothing", served.next, "device.nothing", "there is nothing to send for this version")
        report, settled = hand_in(line, reply, served.next)
        if settled:
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
        agreed = task.version < self.terms.rounds + task.figures
        require(agreed, "task.beyond-terms", "the task is of more versions than were agreed; it is refused")
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
            if task.figures:
                self.store.set_fact(FIGURES, str(task.version).encode())
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
        if self.store.fact(FIGURES) is not None:
            return None  # ε is spent: whatever a service asks for, there is one answer
        means = None if private is None else typed.means(private.study.metrics)
        if private is None or means is None:
            return None
        answer = private.answer(means, self._entropy(SECRET_BYTES), self.terms.client)
        told = {"kind": "figure", "model": "local", "unit": "client", "epsilon": private.epsilon, "delta": 0.0}
        return figures_reply(self.terms, task.version, answer), max(count for count, _ in typed.values()), told
