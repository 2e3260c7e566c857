"""A heuristic tuned in the field, for applications: `weights` order lists, `record` learns from choices, `sync` exchanges.

The application brings its heuristic: no code comes from the service. Searches are kept as running sums of the current
version, and only their mean leaves, once per version. Weights outside the heuristic's constraints are rejected even if
correctly signed, so a hostile service can at worst cause an order that the developer has allowed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorank.errors import require, require_range
from quorank.federation.reply import decode_task
from quorank.member.private_store import PrivateStore, StoredRelease
from quorank.member.sync import SyncedMembership, SyncReport, send_reply
from quorank.privacy.streams import SECRET_BYTES
from quorank.protocol.http_client import ServedTask, ServiceClient
from quorank.protocol.invitation import Invitation
from quorank.tuning.field import DeviceSums, TuningTask, TuningTerms, read_task, study_reply
from quorank.tuning.searches import Listed, check_items

if TYPE_CHECKING:
    from quorank.tuning.heuristics.heuristic import Heuristic

TASK, SUMS, TYPED, ANSWERED, FIGURES = (
    "tuning task", "tuning sums", "tuning typed", "tuning answered", "tuning figures",
)  # fmt: skip
"""Facts: the current version, its sums, the study's means, the last settled version, the version of the study reply."""


class Tuner(SyncedMembership[TuningTerms]):
    """Device of one person that tunes the weights of an application's heuristic.

    Open it with `Tuner.open`, and close it or use it as a context manager. Only `sync` and `leave` use the network, and
    nothing is sent without consent.

    Attributes:
        heuristic: The application's heuristic.
        terms: Agreed terms of the tuning.

    >>> from quorank.protocol.keys import MemberKey
    >>> from quorank.tuning.field import FieldTuning
    >>> from quorank.tuning.heuristics.heuristic import Heuristic, Weight, one_by_one
    >>> weights = Weight("recent", 1.0, 0.0, 5.0, step=0.1), Weight("title", 2.0, 0.0, 5.0, step=0.1)
    >>> score = one_by_one(["recent", "title"], lambda item, w: w["recent"] * item[0] + w["title"] * item[1])
    >>> heuristic = Heuristic("notes", weights, (), score)
    >>> terms = FieldTuning(heuristic, iterations=20).terms("run").table()
    >>> desk = Invitation("desk", "https://127.0.0.1:9", MemberKey.create().public, terms, code=bytes(32))
    >>> desk.write(Path("invitation.json"))
    >>> with Tuner.open("tuning", heuristic, "invitation.json") as tuner:
    ...     tuner.consent(True)
    ...     tuner.weights()  # the shipped ones until the first `tuner.sync()`
    {'recent': 1.0, 'title': 2.0}
    """

    def __init__(self, store: PrivateStore, invitation: Invitation, *, heuristic: Heuristic, **options: Any) -> None:
        super().__init__(store, invitation, **options)
        self.heuristic, self._etag = heuristic, ""
        same = self.terms.heuristic == heuristic.declaration
        sentence = "the invitation is to tune another heuristic, or other bounds of this one, than the application has"
        require(same, "terms.other-heuristic", sentence, f"{self.folder}")
        kept = store.fact(TASK)
        self.task = None if kept is None else read_task(kept, self.terms.run, heuristic)

    @classmethod
    def open(
        cls, folder: Path | str, heuristic: Heuristic, invitation: Path | str | None = None, **options: Any
    ) -> Tuner:
        """Open the device of a folder, or create it from an invitation; no network is needed.

        Args:
            folder: Directory of the private store, created with mode 0700.
            heuristic: The application's heuristic, as declared in the terms.
            invitation: Invitation file, needed once; the same one may be given again.
            options: For simulations: `entropy` (source of secret bytes) and `clock`.

        Returns:
            The device. One process at a time may open it.

        Raises:
            BadInput: `terms.other-heuristic` where the invitation tunes another heuristic; else as `Client.open`.
        """
        return cls._opened(folder, invitation, heuristic=heuristic, **options)

    @classmethod
    def _read_terms(cls, table: object) -> TuningTerms:
        return TuningTerms.read(table)

    # ------------------------------------------------------------ calls of an application

    @property
    def arm(self) -> str | None:
        """Arm of the study that this device is in, by its key; None without a study."""
        return self.terms.arm(self.key.public)

    def weights(self) -> dict[str, float]:
        """Return the weights to order lists by.

        Returns:
            Newest published weights by name; in a control arm, and before the first sync, the shipped ones.

        Raises:
            BadInput: `device.closed`.
        """
        self._check_open()
        task = self.task if self.terms.learns(self.key.public) else None
        return self.heuristic.named(self.heuristic.shipped if task is None else task.published)

    def record(self, items: Any, chosen: int | None = None) -> None:
        """Learn from searches; without consent, in a control arm and before the first version this does nothing.

        Args:
            items: The shown items of one search in their order, for a score made by `one_by_one`; without `chosen`, items
                in the columns of the heuristic's score, with the chosen item of each search.
            chosen: Position of the chosen item among the shown ones, from 0.

        Raises:
            BadInput: `searches.unknown-choice` where no item stands at `chosen`, `searches.wrong-shape`, `device.closed`.
        """
        self._check_open()
        if chosen is not None:
            items = Listed.of([items], [chosen])
        sentence = "expected the shown items and the position of the chosen one: record(items, chosen=0)"
        require(hasattr(items, "offsets"), "searches.wrong-shape", sentence)
        check_items(items)
        task = self.task
        if task is None or task.asks_metrics or not self.store.consent or not self.terms.learns(self.key.public):
            return
        sums = self._sums(task.version).add(self.heuristic, self.terms, task, items)
        self.store.set_note(SUMS, sums)

    def record_typed(self, **metrics: float) -> None:
        """Record the study's metrics of one search; their means are sent once, under the study's ε.

        Args:
            metrics: Values by name, such as `characters` typed and `rank` of the chosen item.

        Raises:
            BadInput: `study.no-metric` where a metric of the study is missing, `value.out-of-range` for a negative one,
                `device.closed`.
        """
        self._check_open()
        study = self.terms.study
        if study is None or not self.store.consent:
            return
        for name in study.metrics:
            require(name in metrics, "study.no-metric", f"the study also asks for {name}", name)
            require_range(name, metrics[name], least=0.0)
        typed = self._typed()
        for name in study.metrics:
            count, total = typed.get(name, (0, 0.0))
            typed[name] = (count + 1, total + float(metrics[name]))
        self.store.set_note(TYPED, typed)

    # ------------------------------------------------------------ stored state

    def _sums(self, version: int) -> DeviceSums:
        kept: DeviceSums | None = self.store.note(SUMS, DeviceSums)
        if kept is None or kept.version != version:
            return DeviceSums.empty(version, len(self.heuristic.weights))
        return kept

    def _typed(self) -> dict[str, tuple[int, float]]:
        """Return the number and sum of the device's own measurements of each metric of the study."""
        typed: dict[str, tuple[int, float]] = self.store.note(TYPED, dict[str, tuple[int, float]], {})
        return typed

    # ------------------------------------------------------------ one exchange

    def _exchange(self, service: ServiceClient) -> SyncReport:
        served = service.task(self._etag)
        if served.kind:
            self._adopt(served)
        if served.kind == "over":
            return SyncReport("over", served.next)
        self._etag = served.etag
        reply = self._reply()
        if reply is None or self.task is None:
            return SyncReport("nothing", served.next, "device.nothing", "there is nothing to send for this version")
        report, settled = send_reply(service, reply, served.next)
        if settled:
            self.store.set_note(ANSWERED, self.task.version)
        return report

    def _adopt(self, served: ServedTask) -> None:
        """Make the version of a task the current one."""
        content = served.content or b""
        sentence = "the task does not belong to a tuning; it was rejected"
        require(served.kind in ("tuning", "over"), "task.other-kind", sentence)
        if served.kind == "over":  # the weights that stay
            last = decode_task(content)
            content = TuningTask(last.round, last.theta, last.theta, last.theta, asks_metrics=True).encode(last.run)
        task = read_task(content, self.terms.run, self.heuristic)
        agreed = task.version < self.terms.rounds + task.asks_metrics
        require(agreed, "task.beyond-terms", "the task exceeds the agreed number of versions; it was rejected")
        if self.store.fact(TASK) != content:
            self.store.set_fact(TASK, content)
        self.task = task

    def _reply(self) -> bytes | None:
        """Return the reply to the current version, stored before it leaves; a repeated version gets the same bytes."""
        task = self.task
        if task is None or self.store.note(ANSWERED, int) == task.version:
            return None
        stored = self.store.release(self.terms.run, task.version + 1)
        if stored is not None:
            return stored.reply  # never a second answer to a version, even to a restored service
        made = self._answer(task) if task.asks_metrics else self._update(task)
        if made is None:
            return None
        content, searches, privacy = made
        round_, now = task.version + 1, self._clock()
        release = StoredRelease(self.terms.run, round_, now, searches, len(content), privacy, content)
        with self.store.transaction():
            self.store.add_release(release)
            if task.asks_metrics:
                self.store.set_note(FIGURES, task.version)
        return content

    def _update(self, task: TuningTask) -> tuple[bytes, int, dict[str, Any]] | None:
        sums = self._sums(task.version)
        if sums.searches == 0 or not self.terms.learns(self.key.public):
            return None
        size = len(sums.slopes)
        coins = np.frombuffer(self._entropy(size), np.uint8)[None, :] < 128 if self.terms.release.needs_coins else None
        return sums.reply(self.terms, coins), sums.searches, {"kind": self.terms.release.kind}

    def _answer(self, task: TuningTask) -> tuple[bytes, int, dict[str, Any]] | None:
        """Answer for the study's metrics by randomised response, once."""
        private, typed = self.terms.private_means, self._typed()
        if self.store.fact(FIGURES) is not None:
            return None  # ε is spent
        if private is None or any(name not in typed for name in private.study.metrics):
            return None
        means = {name: total / count for name, (count, total) in typed.items()}
        answer = private.answer(means, self._entropy(SECRET_BYTES), self.terms.client)
        privacy = {"kind": "figure", "model": "local", "unit": "client", "epsilon": private.epsilon, "delta": 0.0}
        return study_reply(self.terms, task.version, answer), max(count for count, _ in typed.values()), privacy
