"""Client on a person's machine: shows lists, learns from clicks, and answers tasks with releases only.

An update comes from the simulator's code (`OnlineRanker`), applied to the B oldest interactions that no release has used.
A task is answered once. A repeated task, after a restart or a lost reply, gets the stored bytes: two different releases of
one round could be averaged against the noise, while the ledger counts one, and their difference would reveal what changed
between them.

Only a release leaves, with its number of interactions, whether it was within the clip, and, where agreed, one private
report (`client_privacy`); other statistics of the user are zeros. A refusal (`Declined`) is one of a fixed list, so no
path, query or document can leak through it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from traceback import walk_tb
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quorank.errors import BadInput
from quorank.federation.reply import Reply, Task, decode_task, encode_reply, encode_task
from quorank.kernels.arrays import Doubles
from quorank.kernels.compiled import interpreted
from quorank.learning import OnlineRanker, Shown
from quorank.learning.online import ClickGuard
from quorank.member.client_privacy import Entropy, check_ranker, check_task, private_report, with_fresh_secret
from quorank.member.private_store import Interaction, PrivateStore, StoredRanker, StoredRelease
from quorank.privacy import Mechanism
from quorank.protocol.messages import Declined, Refusal
from quorank.protocol.terms import Terms

MOST_USED = MOST_WAITING = 1000  # stored interactions after and before they are used; older ones are deleted
MOST_INTERPRETED = 2000  # parameters of a ranker up to which learning in plain Python beats loading the compiler
MOST_JUDGED = 200  # number of newest interactions by which a guard judges a ranker


class PreparedRelease(NamedTuple):
    """Update that may leave once it is stored, and its interactions."""

    task: Task
    update: Doubles  # before privacy
    used: list[tuple[int, Interaction]]  # with their ids in the store


class Device:
    """Client of one run: lists for its user, and replies to tasks. Several threads may share it.

    Args:
        store: Private store, which the caller closes.
        terms: Terms that the owner has agreed to.
        seed: Address of the draws of lists; by default from `entropy`.
        entropy: Source of secret bytes.
        clock: Seconds since 1970.
        guard: Rejects rankers for the owner's lists; tasks are answered all the same.
        plain: Run kernels uncompiled; by default where rankers are small and Numba is not loaded.
        start: Parameters that show lists before the first task; by default the start of the terms.

    Raises:
        BadInput: `ranker.wrong-size` for a `start` of another length.

    >>> terms = Terms("run", 0, n_features=2, rounds=10, interactions=1)
    >>> store = PrivateStore("device")
    >>> store.set_consent(True, 0.0)
    >>> device = Device(store, terms)
    >>> device.answer(encode_task(Task("run", 0, device.start)))  # no search yet
    Declined(code='waiting')
    >>> device.record(device.rank([[0.1, 0.9], [0.8, 0.2]]), [True, False])
    >>> reply = device.answer(encode_task(Task("run", 0, device.start)))
    >>> device.answer(encode_task(Task("run", 0, device.start))) == reply  # never a second release of a round
    True
    >>> store.close()
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
        start: npt.ArrayLike | None = None,
    ) -> None:
        self.store, self.terms, self.guard = store, terms, guard
        self.plain = "numba" not in sys.modules and terms.parameters <= MOST_INTERPRETED if plain is None else plain
        self.entropy, self.clock = entropy, clock
        self.start = np.asarray(terms.ranker.initial(terms.n_features, 0) if start is None else start, np.float64)
        terms.ranker.check_size(self.start, terms.n_features)
        self._seed = int.from_bytes(entropy(8), "little") if seed is None else seed
        self._online: OnlineRanker | None = None
        self._mutex = RLock()

    # ------------------------------------------------------------ lists and clicks

    def rank(self, features: npt.ArrayLike) -> Shown:
        """Draw the list to show for a query.

        Args:
            features: Candidate documents' features, shape (documents, n_features).

        Returns:
            The list; `order` holds row numbers of `features`, best first, at most `terms.k` of them.

        Raises:
            BadInput: `features.shape`, `features.not-finite`; `interaction.damaged` where the store is damaged.
        """
        with self._mutex, interpreted(self.plain):
            return self._current().rank(features)

    def present(self, features: npt.ArrayLike) -> Shown:
        """Register a list that the application has ordered.

        Args:
            features: Features of the shown documents, shape (documents, n_features), best first.

        Raises:
            BadInput: `list.not-drawn` where the learner needs drawn lists; else as `rank`.
        """
        with self._mutex, interpreted(self.plain):
            return self._current().present(features)

    def record(self, shown: Shown, clicks: npt.ArrayLike, query: str | None = None) -> None:
        """Store the clicks on a list and learn from them.

        Args:
            shown: List returned by `rank` or `present`.
            clicks: True or false for each document of `shown.order`.
            query: Text by which the interaction can be forgotten; stored only if given.

        Raises:
            BadInput: `clicks.shape` or `clicks.not-boolean`; nothing is stored then.
        """
        with self._mutex, interpreted(self.plain):
            ranker, online = self._showing_ranker(), self._current()
            online.learn(shown, clicks)  # rejects clicks that do not fit
            clicked = np.asarray(clicks).astype(np.bool_)
            interaction = Interaction(self.clock(), ranker.run, ranker.round, shown, clicked, query)
            try:
                with self.store.transaction():
                    self.store.add_interaction(interaction, self.terms.n_features)
                    waiting = self.store.waiting()
                    if waiting > MOST_WAITING:
                        self.store.forget(self.terms.interactions)  # a whole update, so that the others stay together
            except BaseException:
                self._online = None  # it has learned what was not stored
                raise
            if waiting % self.terms.interactions == 0:
                self._online = None  # the next list belongs to the next update

    @property
    def turn(self) -> tuple[int, int]:
        """(round, interaction) of the next list: the address of its random draws."""
        with self._mutex, interpreted(self.plain):
            online = self._current()
            return online.round, online.interactions

    def ready(self) -> bool:
        """Return whether a task would be answered: B new interactions, and the owner's consent."""
        return self.store.consent and self.store.waiting() >= self.terms.interactions

    def _current(self) -> OnlineRanker:
        """Return the ranker of the next list: the newest shared one, the personal layer, and what it learned since."""
        if self._online is None:
            ranker = self._showing_ranker()
            done = self.store.waiting() // self.terms.interactions * self.terms.interactions
            self._online, _ = self._learned(ranker.theta, ranker.round, done)
        return self._online

    def _showing_ranker(self) -> StoredRanker:
        return self.store.ranker or StoredRanker(self.terms.run, 0, self.start)

    def _learned(self, theta: Doubles, round_: int, first: int) -> tuple[OnlineRanker, list[tuple[int, Interaction]]]:
        """Learn from θ on from B unused interactions; also return them."""
        online = self.learner(theta, round_)
        used = self.store.interactions(first, self.terms.interactions)
        for _, interaction in used:
            online.learn(interaction.shown, interaction.clicks)
        online.interactions = len(used)
        return online, used

    def learner(self, theta: Doubles, round_: int) -> OnlineRanker:
        """Return a learner that begins at θ plus the personal layer."""
        terms, start = self.terms, theta + self._personal()
        bound = terms.client_mechanism.bound
        return OnlineRanker(
            start, terms.n_features, terms.ranker, terms.learner, self._seed, terms.client, round_, terms.k, bound
        )

    def _personal(self) -> Doubles:
        """Return the personal layer (parameters,), zeros before the first release."""
        own = self.store.personal
        return np.zeros(self.terms.parameters) if own is None else own

    # ------------------------------------------------------------ tasks

    def answer(self, task: bytes) -> bytes | Declined:
        """Answer a task; never raises.

        Args:
            task: Bytes of the task, as `federation.reply.decode_task` reads them.

        Returns:
            The encoded reply, the same bytes for a repeated task, or the reason for declining; causes of faults stay in
            the local log.
        """
        return self.guarded(lambda: self._answer(task))

    def see(self, content: bytes) -> Declined | None:
        """Show lists by the ranker of a task that this device does not answer, such as that of a finished run.

        Returns:
            None, or the reason for rejecting the task.
        """

        def work() -> bytes:
            task = self._decoded(content)
            check_ranker(self.terms, task)
            if task.round > self.terms.rounds:
                raise Refusal("task")
            self._adopt(task)
            return b""

        found = self.guarded(work)
        return found if isinstance(found, Declined) else None

    def guarded(self, work: Callable[[], bytes]) -> bytes | Declined:
        """Run the work of an answer; map every failure to one of the fixed reasons."""
        try:
            with self._mutex, interpreted(self.plain):
                return work()
        except Refusal as refusal:
            return refusal.declined
        except OSError as error:
            self._online = None  # what was learned meanwhile is not stored
            logging.getLogger(__name__).error("device.storage: the private file cannot be written (%s)", error.strerror)
            return Declined("storage")
        except Exception as error:
            self._online = None
            logging.getLogger(__name__).error("device.fault: a task could not be answered (%s)", error_place(error))
            return Declined("fault")

    def _answer(self, content: bytes) -> bytes:
        with self.committing():
            if self.terms.privacy.hides_single_updates:
                raise Refusal("secure")
            stored, prepared = self.prepare(content)
            return stored if prepared is None else self._release(prepared)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Open a transaction that a `Refusal` does not undo: the ranker of the task is kept all the same."""
        refused = None
        with self.store.transaction():
            try:
                yield
            except Refusal as refusal:
                refused = refusal
        if refused is not None:
            raise refused

    def prepare(self, content: bytes) -> tuple[bytes, PreparedRelease | None]:
        """Return (stored reply, None) for an answered task, else (b"", update to send); inside a transaction."""
        store, terms = self.store, self.terms
        if not store.consent:
            raise Refusal("consent")
        task = self._decoded(content)
        check_task(terms, task)
        stored = self.stored_reply(task)
        if stored is not None:
            return stored, None
        self._adopt(task)
        if store.released(terms.run) >= terms.releases:
            raise Refusal("often")
        try:
            terms.setting.turns.check(store.answers(terms.run), store.last_round(terms.run), task.round + 1)
        except BadInput as error:
            raise Refusal("often" if error.code == "reply.too-often" else "resting") from None
        if store.waiting() < terms.interactions:
            raise Refusal("waiting")
        online, used = self._learned(task.theta, task.round, 0)
        update = online.parameters - task.theta - self._personal()
        if not np.isfinite(update).all():
            raise Refusal("numbers")
        return b"", PreparedRelease(task, update, used)

    def stored_reply(self, task: Task) -> bytes | None:
        """Return the reply that this task got; refuse another task of its round, and older rounds."""
        known = self.store.release(task.run, task.round + 1)
        if known is None:
            if self.store.last_round(task.run) > task.round + 1:
                raise Refusal("old")
            return None
        if known.task != task_digest(task) or known.reply is None:
            raise Refusal("repeated")
        return known.reply

    def _decoded(self, content: bytes) -> Task:
        try:
            task = decode_task(content)
        except BadInput:
            raise Refusal("malformed") from None
        if task.run != self.terms.run:
            raise Refusal("run")
        return task

    def _adopt(self, task: Task) -> None:
        """Show lists by the ranker of this task from now on, if it is newer and the guard accepts it."""
        before = self.store.ranker
        if before is not None and before.run == task.run:
            if before.round >= task.round:
                return
            if self.guard is not None and not self._is_accepted(self.guard, task):
                return
        self.store.set_ranker(StoredRanker(task.run, task.round, task.theta))
        self._online = None

    def _is_accepted(self, guard: ClickGuard, task: Task) -> bool:
        lists = [(one.shown, one.clicks) for one in self.store.latest_interactions(MOST_JUDGED) if one.run == task.run]
        verdict = guard.judge(self.terms.ranker, task.theta + self._personal(), lists)
        if not verdict.accepted:
            sentence = "the ranker of round %d is not shown: it fits %d lists of the owner worse (evidence %.3f)"
            logging.getLogger(__name__).warning(sentence, task.round, verdict.lists, verdict.evidence)
        return verdict.accepted

    # ------------------------------------------------------------ releases

    def _release(self, prepared: PreparedRelease) -> bytes:
        """Turn an update into a reply and store it before it leaves."""
        task, clicks = prepared.task, [interaction.clicks for _, interaction in prepared.used]
        mechanism = with_fresh_secret(self.terms.client_mechanism, self.entropy)
        statistics, report = private_report(self.terms, clicks, self.entropy, task.round)
        reply = self.reply(task, self.sent_part(prepared), mechanism, statistics)
        self.note(prepared, reply, len(reply), report)
        return reply

    def reply(
        self,
        task: Task,
        update: Doubles,
        mechanism: Mechanism,
        statistics: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> bytes:
        """Return the encoded reply with an update's release."""
        terms, row = self.terms, update.reshape(1, -1).copy()
        client = np.array([terms.client], dtype=np.int64)
        within = mechanism.release(row, task.theta, task.round, client, task.private)
        if not np.isfinite(row).all():
            raise Refusal("numbers")
        reply = Reply(task.run, task.round, terms.client, row[0], terms.interactions, bool(within), statistics)
        return encode_reply(reply)

    def sent_part(self, prepared: PreparedRelease) -> Doubles:
        """Return the shared part of an update plus the carried momentum, before privacy."""
        split, terms = self.terms.split, self.terms
        update = prepared.update if split is None else prepared.update * split.send
        before = self.store.carried(terms.run) if terms.client_momentum > 0.0 else None
        return update if before is None or len(before) != len(update) else update + terms.client_momentum * before

    def note(
        self, prepared: PreparedRelease, reply: bytes | None, size: int, report: Mapping[str, Any] | None = None
    ) -> None:
        """Store a release, mark its interactions as used, and keep the client's own part; inside a transaction."""
        store, terms, task, sent = self.store, self.terms, prepared.task, self.sent_part(prepared)
        self.log_release(task, reply, size, report or {}, [name for name, _ in prepared.used])
        self._online = None
        if terms.client_momentum > 0.0:
            store.set_carried(terms.run, sent)
        if terms.split is not None:
            store.set_personal((1.0 - terms.split.decay) * self._personal() + terms.split.keep * prepared.update)
        store.trim(MOST_USED)

    def log_release(
        self, task: Task, reply: bytes | None, size: int, report: Mapping[str, Any], used: Sequence[int] = ()
    ) -> None:
        """Log a release before it leaves; inside a transaction."""
        terms, at, round_ = self.terms, self.clock(), task.round + 1
        # the run's full privacy statement follows from the terms
        privacy = {"kind": terms.privacy.kind, "standing": terms.client_mechanism.promise, **report}
        entry = StoredRelease(task.run, round_, at, terms.interactions, size, privacy, reply, task_digest(task))
        self.store.add_release(entry, used)


def error_place(error: BaseException) -> str:
    """Return the kind of an error and its line of code; its text could hold a path, a query or a document."""
    places = [f" at {frame.f_globals.get('__name__')}:{line}" for frame, line in walk_tb(error.__traceback__)]
    return f"{type(error).__name__}{''.join(places[-1:])}"


def task_digest(task: Task) -> bytes:
    """Return a digest of what a task asks, independent of its address."""
    names = sorted(task.private)
    content = encode_task(Task(task.run, task.round, task.theta, {n: task.private[n] for n in names}))
    return hashlib.blake2b(content, digest_size=16).digest()
