"""A device: one real client. It shows lists, learns from its own user's clicks, and answers tasks with releases alone.

The update comes from the same code as the simulator's (`OnlineRanker`, `late_learning`), from the B oldest interactions
that no release has used. A task is answered once. If it comes again, after a restart or because the reply was lost, the
stored bytes are sent again and never a second, different release: two releases of one round would be averaged against the
noise, while the ledger counts one, and their difference would show what changed between them.

Nothing leaves but a release, its number of interactions, whether it was within the clip, and, where that was agreed, one
figure about the lists under noise of its own (`private_figures`); else statistics of the user are zeros. A refusal
(`Declined`) is one of a fixed list, so no path, query or document can be in it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput, require
from quorank.federation import wire
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import plainly
from quorank.learning import OnlineRanker, Shown
from quorank.learning.click_guard import ClickGuard
from quorank.learning.late_learning import LateRanker
from quorank.member.client_privacy import (
    Entropy,
    check_task,
    check_turn,
    privacy_promise,
    private_report,
    with_fresh_secret,
)
from quorank.member.private_rows import Interaction
from quorank.member.private_store import PrivateStore, StoredRanker, StoredRelease
from quorank.privacy import Mechanism
from quorank.protocol.messages import Declined, Refusal
from quorank.protocol.terms import Terms

MOST_USED = MOST_WAITING = 1000
"""Interactions that are kept after they were used, and before; older ones are forgotten."""

MOST_PLAIN = 2000
"""Parameters of a ranker up to which a device learns in plain Python: loading what compiles would cost it more."""

MOST_JUDGED = 200
"""The newest interactions, by which a guard judges a ranker."""


@dataclass(frozen=True, eq=False)
class PreparedRelease:
    """An update that may leave once it is stored, and what it is made of."""

    task: wire.Task
    update: Doubles  # before privacy
    used: list[tuple[int, Interaction]]  # with their numbers in the store


class Device:
    """One client. `seed` addresses the draws of lists; without one they come from the system's entropy.

    With a `guard` lists are shown by a new ranker only if the owner's own clicks do not speak against it; else by the one
    before. Tasks are answered all the same: an update says where the clicks point from the ranker of the task. `plain`:
    whether kernels run uncompiled, with the same bits; by default where rankers are small and Numba is not loaded. `start`
    are the parameters that show lists before the first task comes; what is recorded of those counts as any older ranker's.
    """

    def __init__(
        self,
        store: PrivateStore,
        terms: Terms,
        *,
        seed: int | None = None,
        entropy: Entropy = os.urandom,
        clock: Callable[[], float] = time.time,
        guard: ClickGuard | None = None,
        plain: bool | None = None,
        start: Doubles | None = None,
    ) -> None:
        self.store, self.terms, self.guard = store, terms, guard
        self.plain = "numba" not in sys.modules and terms.parameters <= MOST_PLAIN if plain is None else plain
        self._entropy, self.clock = entropy, clock
        if start is not None:
            terms.ranker.check_size(start, terms.n_features)
        self.start = start
        self._seed = int.from_bytes(entropy(8), "little") if seed is None else seed
        self._online: OnlineRanker | None = None
        self._mutex = RLock()

    # what an application calls

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show for the candidates' features (documents, n_features)."""
        with self._mutex, plainly(self.plain):
            return self._current().rank(features)

    def present(self, features: npt.ArrayLike) -> Shown:
        """Take the list that an application shows in an order of its own, features (documents, n_features) best first."""
        with self._mutex, plainly(self.plain):
            return self._current().present(features)

    def record(self, shown: Shown, clicks: npt.ArrayLike, query: str | None = None) -> None:
        """Take in what was clicked on a list that `rank` drew. The query's text is kept only where it is given."""
        with self._mutex, plainly(self.plain):
            ranker, online = self._shows(), self._current()
            online.learn(shown, clicks)  # refuses clicks that do not fit
            clicked = np.asarray(clicks).astype(np.bool_)
            interaction = Interaction(self.clock(), ranker.run, ranker.round, shown, clicked, query)
            try:
                with self.store.transaction():
                    self.store.add_interaction(interaction, self.terms.n_features)
                    waiting = self.store.waiting()
                    if waiting > MOST_WAITING:
                        self.store.forget(self.terms.interactions)  # a whole update's worth: the others stay together
            except BaseException:
                self._online = None  # it has learned what was not stored
                raise
            if waiting % self.terms.interactions == 0:
                self._online = None  # the next list belongs to the next update

    @property
    def turn(self) -> tuple[int, int]:
        """(round, interaction) of the list that `rank` draws next: where its random draws stand."""
        with self._mutex, plainly(self.plain):
            online = self._current()
            return online.round, online.interactions

    def ready(self) -> bool:
        """Whether a task would be answered: B new interactions, and the owner's consent."""
        return self.store.consent and self.store.waiting() >= self.terms.interactions

    def _current(self) -> OnlineRanker:
        """The ranker that shows the next list: the newest of all, the client's own part, and what it learned since."""
        if self._online is None:
            ranker = self._shows()
            done = self.store.waiting() // self.terms.interactions * self.terms.interactions
            self._online, _ = self._learned(ranker.theta, ranker.round, done, self.terms.interactions)
        return self._online

    def _shows(self) -> StoredRanker:
        """The ranker of the newest task, or the one to begin with."""
        found = self.store.ranker
        if found is None and self.start is not None:
            return StoredRanker(self.terms.run, 0, self.start)
        sentence = "no ranker has come yet; show a list of your own, and do not record it"
        require(found is not None, "device.no-ranker", sentence)
        assert found is not None
        return found

    def _learned(
        self, theta: Doubles, round_: int, first: int, count: int
    ) -> tuple[OnlineRanker, list[tuple[int, Interaction]]]:
        """Start from θ and the client's own part and learn from waiting interactions; also says from which."""
        online = self.learner(theta, round_)
        used = self.store.interactions(first, count)
        for _, interaction in used:
            online.learn(interaction.shown, interaction.clicks)
        online.interactions = len(used)
        return online, used

    def learner(self, theta: Doubles, round_: int) -> LateRanker:
        """What learns from θ and the client's own part on."""
        terms, own = self.terms, self.store.personal
        start, bound = theta if own is None else theta + own, terms.client_mechanism.bound
        return LateRanker(
            start, terms.n_features, terms.ranker, terms.learner, self._seed, terms.client, round_, terms.k, bound
        )

    # what the coordinator asks

    def answer(self, task: bytes) -> bytes | Declined:
        """The reply to a task (`wire`), or why there is none. It never raises; the cause stays in this machine's log."""
        return self.guarded(lambda: self._answer(task))

    def see(self, content: bytes) -> Declined | None:
        """Show lists by the ranker of a task that is answered elsewhere, or of none: after the last round, say."""

        def work() -> bytes:
            task = self._decoded(content)
            fits = task.round <= self.terms.rounds and task.theta.shape == (self.terms.parameters,)
            if not fits or not np.isfinite(task.theta).all():
                raise Refusal("task")
            with self.store.transaction():
                self._adopt(task)
            return b""

        found = self.guarded(work)
        return found if isinstance(found, Declined) else None

    def guarded(self, work: Callable[[], bytes]) -> bytes | Declined:
        """Do the work of an answer; whatever goes wrong becomes one of the fixed reasons."""
        try:
            with self._mutex, plainly(self.plain):
                return work()
        except Refusal as refusal:
            return refusal.declined
        except OSError as error:
            self._online = None  # what was learned meanwhile is not stored
            logging.getLogger(__name__).error("device.storage: the private file cannot be written (%s)", error.strerror)
            return Declined("storage")
        except Exception as error:
            self._online = None
            logging.getLogger(__name__).error("device.fault: a task could not be answered (%s)", place_of(error))
            return Declined("fault")

    def _answer(self, content: bytes) -> bytes:
        with self.committing():
            if self.terms.secure:
                raise Refusal("secure")
            known, prepared = self.prepare(content)
            return known if prepared is None else self._release(prepared)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """A transaction that a refusal does not undo: the ranker that came with the task is kept all the same."""
        refused = None
        with self.store.transaction():
            try:
                yield
            except Refusal as refusal:
                refused = refusal
        if refused is not None:
            raise refused

    def prepare(self, content: bytes) -> tuple[bytes, PreparedRelease | None]:
        """Inside a transaction: (the stored reply, None) to a task that was answered, else (b"", the update to send)."""
        store, terms = self.store, self.terms
        if not store.consent:
            raise Refusal("consent")
        task = self._read(content)
        known = self.stored_reply(task)
        if known is not None:
            return known, None
        self._adopt(task)
        check_turn(terms.turns, store.answers(terms.run), store.last_round(terms.run), task.round + 1)
        if store.waiting() < terms.interactions:
            raise Refusal("waiting")
        online, used = self._learned(task.theta, task.round, 0, terms.interactions)
        update, own = online.parameters - task.theta, store.personal
        if own is not None:
            update -= own
        if not np.isfinite(update).all():
            raise Refusal("numbers")
        return b"", PreparedRelease(task, update, used)

    def stored_reply(self, task: wire.Task) -> bytes | None:
        """The reply that this task was given; another task of its round, or one of an older round, is refused."""
        known = self.store.release(task.run, task.round + 1)
        if known is None:
            if self.store.last_round(task.run) > task.round + 1:
                raise Refusal("old")
            return None
        if known.task != digest_of(task) or known.reply is None:
            raise Refusal("repeated")
        return known.reply

    def _read(self, content: bytes) -> wire.Task:
        task = self._decoded(content)
        check_task(self.terms, task)
        return task

    def _decoded(self, content: bytes) -> wire.Task:
        try:
            task = wire.decode_task(content)
        except BadInput:
            raise Refusal("malformed") from None
        if task.run != self.terms.run:
            raise Refusal("run")
        return task

    def _adopt(self, task: wire.Task) -> None:
        """From now on lists are shown by the ranker of the newest task."""
        before = self.store.ranker
        newer = before is None or before.run != task.run or before.round < task.round
        if newer and not self._refuses(before, task):
            self.store.set_ranker(StoredRanker(task.run, task.round, task.theta))
            self._online = None

    def _refuses(self, before: StoredRanker | None, task: wire.Task) -> bool:
        """Whether the guard keeps the ranker of a task from the owner's lists."""
        if self.guard is None or before is None or before.run != task.run:
            return False
        own = self.store.personal
        offset = np.zeros(self.terms.parameters) if own is None else own
        lists = [(one.shown, one.clicks) for one in self.store.latest_interactions(MOST_JUDGED) if one.run == task.run]
        verdict = self.guard.judge(self.terms.ranker, task.theta + offset, lists)
        if not verdict.accepted:
            sentence = "the ranker of round %d is not shown: by %d lists of the owner it fits worse (evidence %.3f)"
            logging.getLogger(__name__).warning(sentence, task.round, verdict.lists, verdict.evidence)
        return not verdict.accepted

    def _release(self, prepared: PreparedRelease) -> bytes:
        """Turn an update into the release that is sent, and store it before it leaves."""
        task, clicks = prepared.task, [interaction.clicks for _, interaction in prepared.used]
        mechanism = with_fresh_secret(self.terms.client_mechanism, self._entropy)
        told, report = private_report(self.terms, clicks, self._entropy, task.round)
        reply = self.reply(task, self.sent_part(prepared), mechanism, told)
        self.note(prepared, reply, len(reply), report)
        return reply

    def reply(
        self, task: wire.Task, update: Doubles, mechanism: Mechanism, told: tuple[float, float, float] = (0.0, 0.0, 0.0)
    ) -> bytes:
        """The reply with an update's release, and what is told of the lists."""
        terms, row = self.terms, update.reshape(1, -1).copy()
        client = np.array([terms.client], dtype=np.int64)
        within = mechanism.release(row, task.theta, task.round, client, task.private)
        if not np.isfinite(row).all():
            raise Refusal("numbers")
        found = wire.Reply(task.run, task.round, terms.client, row[0], terms.interactions, bool(within), told)
        return wire.encode_reply(found)

    def sent_part(self, prepared: PreparedRelease) -> Doubles:
        """What of an update is for all, with what is carried on of those before, before privacy."""
        split, terms = self.terms.split, self.terms
        update = prepared.update if split is None else prepared.update * split.send
        before = self.store.carried(terms.run) if terms.client_momentum > 0.0 else None
        return update if before is None or len(before) != len(update) else update + terms.client_momentum * before

    def note(
        self, prepared: PreparedRelease, reply: bytes | None, size: int, more: Mapping[str, Any] | None = None
    ) -> None:
        """Inside a transaction: what will be sent, that its interactions are used, and what the client keeps of it."""
        store, terms, task, sent = self.store, self.terms, prepared.task, self.sent_part(prepared)
        self.add_release(task, reply, size, more or {}, [name for name, _ in prepared.used])
        self._online = None
        if terms.keep_every > 0 and task.round % terms.keep_every == 0:
            with np.errstate(over="ignore"):
                store.keep(task.run, task.round + 1, sent.astype(np.float32))
        if terms.client_momentum > 0.0:
            store.set_carried(terms.run, sent)
        if terms.split is not None:
            own = store.personal
            before = np.zeros(terms.parameters) if own is None else own
            store.set_personal((1.0 - terms.split.decay) * before + terms.split.keep * prepared.update)
        store.trim(MOST_USED)

    def add_release(
        self, task: wire.Task, reply: bytes | None, size: int, more: Mapping[str, Any], used: Sequence[int] = ()
    ) -> None:
        """Inside a transaction: the line of the log for what will be sent, and which interactions are in it."""
        at, told = self.clock(), self.privacy | dict(more)
        entry = StoredRelease(task.run, task.round + 1, at, self.terms.interactions, size, told, reply, digest_of(task))
        self.store.add_release(entry, used)

    @cached_property
    def privacy(self) -> dict[str, Any]:
        """What is kept with each release: against whom it is protected. The run's statement follows from the terms."""
        return {"kind": self.terms.privacy.kind, "standing": privacy_promise(self.terms.client_mechanism)}


def place_of(error: BaseException) -> str:
    """The kind of an error and the line of code that it came from; its text could hold a path, a query or a document."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f" at {at.tb_frame.f_globals.get('__name__')}:{at.tb_lineno}"
    return f"{type(error).__name__}{where}"


def digest_of(task: wire.Task) -> bytes:
    """Tells two tasks of a round apart by what they ask, however they were addressed."""
    names = sorted(task.private)
    content = wire.encode_task(wire.Task(task.run, task.round, task.theta, {n: task.private[n] for n in names}))
    return hashlib.blake2b(content, digest_size=16).digest()
